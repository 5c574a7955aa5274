/* SPDX-License-Identifier: Apache-2.0 */
/* Writes mp4 with H.264: 8-bit 4:2:0 in BT.709 limited range, with the index in front of the data (faststart).
 *
 *   Y  = 16 + 219/255 (0.2126 R + 0.7152 G + 0.0722 B)
 *   Cb = 128 + 224/255 (B - Y') / 1.8556,   Cr = 128 + 224/255 (R - Y') / 1.5748      (Y' before its range is narrowed)
 *
 * libswscale converts with this matrix, set explicitly: its default is BT.601, which gives wrong colours in a stream
 * with a BT.709 tag. */
#include "stream.h"

#include "../base/cpu.h"

#include <libavutil/opt.h>
#include <libswscale/swscale.h>
#include <math.h>
#include <string.h>

/* The state of an mp4 writer (ith_video_writer.state). */
typedef struct mp4 {
    ith_stream stream;
    struct SwsContext *convert;
    AVFrame *rgb, *frame; /* a frame in RGB; the frame in 4:2:0 */
} mp4;

/* Sets the quality by the first option that the encoder has: "crf", "cq", a bit rate, a quantiser. */
static void set_quality(AVCodecContext *encoder, int crf)
{
    if (av_opt_set_int(encoder->priv_data, "crf", crf, 0) >= 0)
        return;
    if (av_opt_set_int(encoder->priv_data, "cq", crf, 0) >= 0)
        return;
    if (encoder->codec_id == AV_CODEC_ID_H264) {
        /* This encoder takes a bit rate only: about 0.1 bits per pixel at crf 23, doubled for each 6 less. */
        double pixels_per_second = encoder->width * (double)encoder->height * av_q2d(encoder->framerate);
        encoder->bit_rate = (int64_t)(pixels_per_second * 0.1 * exp2((23 - crf) / 6.0)) + 1000;
        return;
    }
    /* MPEG-4 part 2 takes a quantiser, which is proportional to the step size of H.264: it doubles with each 6 of
     * crf. */
    double quantiser = fmin(fmax(exp2((crf - 14) / 6.0), 1), 31);
    encoder->flags |= AV_CODEC_FLAG_QSCALE;
    encoder->global_quality = (int)(quantiser * FF_QP2LAMBDA);
}

/* The pixel formats that an encoder accepts, up to AV_PIX_FMT_NONE; NULL if it does not name them. */
static const enum AVPixelFormat *pixel_formats(const AVCodec *codec)
{
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(61, 13, 100) // FFmpeg 7.1 replaced the field by a function
    const void *formats = NULL;
    avcodec_get_supported_config(NULL, codec, AV_CODEC_CONFIG_PIX_FORMAT, 0, &formats, NULL);
    return formats;
#else
    return codec->pix_fmts;
#endif
}

/* Whether an encoder accepts frames in YUV 4:2:0. */
static bool takes_yuv420p(const AVCodec *codec)
{
    for (const enum AVPixelFormat *format = pixel_formats(codec); format && *format != AV_PIX_FMT_NONE; format++)
        if (*format == AV_PIX_FMT_YUV420P)
            return true;
    return false;
}

/* Forbids x264 to use AVX-512: version 164 then reads uninitialised memory, and the file changes from run to run. With
 * AVX2 it writes the same bits as plain C code. Encoders without the option ignore it. */
static void avoid_avx512(AVCodecContext *encoder)
{
    if (ith_cpu_detect(ITH_CPU_AVX512) & ITH_CPU_AVX512)
        av_opt_set(encoder->priv_data, "x264-params", "asm=avx2", 0);
}

/* Opens an encoder. Returns NULL on failure, for example because this machine lacks the encoder's hardware. *no_memory
 * becomes true if there is no memory for it. */
static AVCodecContext *try_encoder(const ith_video_writer *writer, const AVCodec *codec, bool *no_memory)
{
    AVCodecContext *encoder = ith_stream_encoder(writer, codec);
    *no_memory |= !encoder;
    if (!encoder)
        return NULL;
    encoder->pix_fmt = AV_PIX_FMT_YUV420P;
    encoder->color_primaries = AVCOL_PRI_BT709;
    encoder->color_trc = AVCOL_TRC_BT709;
    encoder->colorspace = AVCOL_SPC_BT709;
    encoder->color_range = AVCOL_RANGE_MPEG;
    encoder->chroma_sample_location = AVCHROMA_LOC_LEFT;
    encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    encoder->thread_count = ITH_VIDEO_ENCODER_THREADS;
    set_quality(encoder, writer->options.crf);
    avoid_avx512(encoder);
    const int error = avcodec_open2(encoder, codec, NULL);
    *no_memory |= error == AVERROR(ENOMEM);
    if (error < 0)
        avcodec_free_context(&encoder);
    return encoder;
}

/* Opens the first encoder that works: libx264, any other H.264 encoder, or MPEG-4 part 2, which every libavcodec
 * has. */
static ith_status open_encoder(ith_video_writer *writer, mp4 *state)
{
    bool no_memory = false;
    const AVCodec *codec = avcodec_find_encoder_by_name("libx264");
    AVCodecContext *encoder = codec ? try_encoder(writer, codec, &no_memory) : NULL;
    void *iterator = NULL;
    while (!encoder && (codec = av_codec_iterate(&iterator)))
        if (av_codec_is_encoder(codec) && codec->id == AV_CODEC_ID_H264 && takes_yuv420p(codec))
            encoder = try_encoder(writer, codec, &no_memory);
    codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
    if (!encoder && codec) {
        ith_log(
            writer->context, ITH_LOG_WARNING,
            "no H.264 encoder of this FFmpeg can be opened: '%s' is written as MPEG-4 part 2, which some players lack",
            writer->output.path);
        encoder = try_encoder(writer, codec, &no_memory);
    }
    state->stream.encoder = encoder;
    if (!encoder && no_memory)
        return ith_fail(writer->context, ITH_ERR_MEMORY, "'%s' cannot be written: there is no memory for its encoder",
                        writer->output.path);
    if (!encoder)
        return ith_fail(writer->context, ITH_ERR_UNSUPPORTED,
                        "'%s' cannot be written: this FFmpeg has neither an H.264 nor an MPEG-4 encoder for %d x %d "
                        "pixels; a .gif or a folder of PNGs (name it with '/' at its end) works",
                        writer->output.path, (int)writer->options.width, (int)writer->options.height);
    return ITH_OK;
}

/* Makes the conversion from RGB to 4:2:0 with BT.709 and limited range. Returns an error of libav or 0. */
static int open_conversion(const ith_video_writer *writer, mp4 *state)
{
    struct SwsContext *convert = state->convert = sws_alloc_context();
    if (!convert)
        return AVERROR(ENOMEM);
    const struct {
        const char *name;
        int64_t value;
    } settings[] = {
        {"srcw", writer->options.width},
        {"srch", writer->options.height},
        {"src_format", AV_PIX_FMT_RGB24},
        {"dstw", writer->options.width},
        {"dsth", writer->options.height},
        {"dst_format", AV_PIX_FMT_YUV420P},
        {"sws_flags", SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP},
        {"dst_h_chr_pos", 0}, /* MPEG's chroma position: at the left pixel, midway between two rows */
        {"dst_v_chr_pos", 128},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int error = av_opt_set_int(convert, settings[i].name, settings[i].value, 0);
        if (error < 0)
            return error;
    }
    int error = sws_init_context(convert, NULL, NULL);
    if (error < 0)
        return error;
    const int *bt709 = sws_getCoefficients(SWS_CS_ITU709);
    const int unity = 1 << 16; /* contrast and saturation of 1.0 */
    return sws_setColorspaceDetails(convert, bt709, 1, bt709, 0, 0, unity, unity);
}

/* Allocates state->rgb, with zeros around its pixels, and state->frame. Returns an error of libav or 0. */
static int open_frames(const ith_video_writer *writer, mp4 *state)
{
    state->rgb = ith_stream_frame(writer, AV_PIX_FMT_RGB24);
    state->frame = ith_stream_frame(writer, AV_PIX_FMT_YUV420P);
    if (!state->rgb || !state->frame)
        return AVERROR(ENOMEM);
    memset(state->rgb->buf[0]->data, 0, (size_t)state->rgb->buf[0]->size);
    return 0;
}

/* Implements ith_video_format.open: opens the encoder, the conversion and the file. */
static ith_status mp4_open(ith_video_writer *writer)
{
    if (writer->options.width % 2 || writer->options.height % 2)
        return ith_fail(writer->context, ITH_ERR_ARGUMENT,
                        "'%s': an mp4 has an even width and height, not %d x %d; a .gif takes any", writer->output.path,
                        (int)writer->options.width, (int)writer->options.height);
    mp4 *state = writer->state = ith_alloc_zero(writer->context, 1, sizeof *state, "mp4 writer");
    if (!state)
        return ITH_ERR_MEMORY;
    ith_status status = open_encoder(writer, state);
    if (status)
        return status;
    int error = open_conversion(writer, state);
    if (error >= 0)
        error = open_frames(writer, state);
    AVDictionary *settings = NULL;
    if (error >= 0)
        error = av_dict_set(&settings, "movflags", "+faststart", 0);
    status = error < 0 ? ith_video_fail(writer, error, "colours cannot be converted")
                       : ith_stream_begin(writer, &state->stream, "mp4", &settings);
    av_dict_free(&settings);
    return status;
}

/* Implements ith_video_format.add: converts a frame from RGB to 4:2:0 and encodes it. libswscale reads up to 15 bytes
 * beyond the pixels, so it reads a copy with a margin. */
static ith_status mp4_add(ith_video_writer *writer, const uint8_t *rgb)
{
    mp4 *state = writer->state;
    int error = av_frame_make_writable(state->frame);
    if (error >= 0)
        error = ith_stream_fill(writer, state->rgb, rgb);
    if (error < 0)
        return ith_video_fail(writer, error, "a frame");
    error = sws_scale(state->convert, (const uint8_t *const *)state->rgb->data, state->rgb->linesize, 0,
                      state->frame->height, state->frame->data, state->frame->linesize);
    if (error < 0)
        return ith_video_fail(writer, error, "colours cannot be converted");
    state->frame->pts = state->rgb->pts;
    state->frame->quality = state->stream.encoder->global_quality; /* MPEG-4 part 2 reads the quality from the frame */
    return ith_stream_encode(writer, &state->stream, state->frame);
}

static ith_status mp4_end(ith_video_writer *writer)
{
    mp4 *state = writer->state;
    return ith_stream_end(writer, &state->stream);
}

static void mp4_close(ith_video_writer *writer)
{
    mp4 *state = writer->state;
    if (!state)
        return;
    ith_stream_free(&state->stream);
    sws_freeContext(state->convert);
    av_frame_free(&state->rgb);
    av_frame_free(&state->frame);
    ith_free(writer->context, state);
}

const ith_video_format ith_video_mp4 = {.open = mp4_open, .add = mp4_add, .end = mp4_end, .close = mp4_close};
