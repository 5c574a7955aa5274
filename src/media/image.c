/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pictures with libav's decoders and libswscale (image.h). */
#include "image.h"

#include "../base/context.h"
#include "image_file.h"
#include "yuv.h"

#include <errno.h>
#include <fcntl.h>
#include <libavcodec/avcodec.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A picture while it is decoded. */
typedef struct decoding {
    ith_context *context;
    const char *path;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame, *rgb; /* the decoded frame; the frame in RGB24, with room behind its rows for libswscale */
    struct SwsContext *convert;
    uint8_t fill; /* the value of every byte of a picture before it is decoded */
} decoding;

/* Decoded pixels: rgb [height, width, 3], upright. */
typedef struct pixels {
    uint8_t *rgb; /* freed with free */
    int64_t height, width;
} pixels;

static ith_status refuse(const decoding *d, ith_status status, const char *reason)
{
    return ith_fail(d->context, status, "'%s' cannot be read: %s", d->path, reason);
}

static ith_status refuse_form(const decoding *d)
{
    return refuse(d, ITH_ERR_UNSUPPORTED, "libav cannot decode this form of picture; save it as PNG");
}

/* The sentence for an error of libav. */
static ith_status refuse_error(const decoding *d, int error)
{
    char reason[AV_ERROR_MAX_STRING_SIZE + 64], text[AV_ERROR_MAX_STRING_SIZE];
    if (error == AVERROR(ENOMEM))
        return refuse(d, ITH_ERR_MEMORY, "there is no memory for its pixels");
    if (error == AVERROR_PATCHWELCOME)
        return refuse_form(d);
    av_make_error_string(text, sizeof text, error);
    snprintf(reason, sizeof reason, "the picture is damaged (%s)", text);
    return refuse(d, ITH_ERR_FORMAT, reason);
}

/* Refuses a file whose bytes show that it cannot be decoded whole, or that it is no single picture. */
static ith_status check_file(const decoding *d, const ith_image_file *file)
{
    if (file->kind == ITH_IMAGE_OTHER)
        return refuse(d, ITH_ERR_FORMAT, "it is no PNG, JPEG or WebP");
    if (!file->whole)
        return refuse(d, ITH_ERR_FORMAT, "its end is missing");
    if (!file->complete)
        return refuse(d, ITH_ERR_FORMAT, "some of its scans or tables are missing");
    if (!file->usual)
        return refuse_form(d);
    if (file->animated)
        return refuse(d, ITH_ERR_FORMAT, "it is animated; a single picture is needed");
    if (file->xmp_compressed)
        return refuse(d, ITH_ERR_UNSUPPORTED,
                      "its XMP data are compressed, and may tell how it is turned; save it without them");
    if (!file->agrees)
        return refuse(d, ITH_ERR_FORMAT, "its parts give different sizes of the picture");
    if (file->width > 0 && file->height > ITH_IMAGE_MOST_PIXELS / file->width)
        return ith_fail(d->context, ITH_ERR_FORMAT,
                        "'%s' cannot be read: it has %lld x %lld pixels, and at most %lld in all are supported",
                        d->path, (long long)file->width, (long long)file->height, (long long)ITH_IMAGE_MOST_PIXELS);
    return ITH_OK;
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* An AVCodecContext.get_buffer2. Fills the memory of a frame with a known value. Pixels that the file lacks keep it. */
static int fill_frame(AVCodecContext *codec, AVFrame *frame, int flags)
{
    const int error = avcodec_default_get_buffer2(codec, frame, flags);
    for (int i = 0; error >= 0 && i < AV_NUM_DATA_POINTERS && frame->buf[i]; i++)
        memset(frame->buf[i]->data, ((const decoding *)codec->opaque)->fill, (size_t)frame->buf[i]->size);
    return error;
}

static int open_decoder(decoding *d, ith_image_kind kind)
{
    static const enum AVCodecID ids[] = {
        [ITH_IMAGE_PNG] = AV_CODEC_ID_PNG, [ITH_IMAGE_JPEG] = AV_CODEC_ID_MJPEG, [ITH_IMAGE_WEBP] = AV_CODEC_ID_WEBP};
    const AVCodec *codec = avcodec_find_decoder(ids[kind]);
    if (!codec)
        return AVERROR_DECODER_NOT_FOUND;
    d->codec = avcodec_alloc_context3(codec);
    d->packet = av_packet_alloc();
    d->frame = av_frame_alloc();
    if (!d->codec || !d->packet || !d->frame)
        return AVERROR(ENOMEM);
    d->codec->thread_count = 1;
    d->codec->get_buffer2 = fill_frame;
    d->codec->opaque = d;
    d->codec->max_pixels = ITH_IMAGE_MOST_PIXELS;
    d->codec->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    return avcodec_open2(d->codec, codec, NULL);
}

static int decode(decoding *d, const uint8_t *data, int64_t bytes)
{
    d->packet->data = (uint8_t *)(uintptr_t)data; /* libav does not write to it */
    d->packet->size = (int)bytes;
    int error = avcodec_send_packet(d->codec, d->packet);
    if (error >= 0)
        error = avcodec_send_packet(d->codec, NULL);
    if (error >= 0)
        error = avcodec_receive_frame(d->codec, d->frame);
    if (error >= 0 && (d->frame->flags & AV_FRAME_FLAG_CORRUPT || d->frame->decode_error_flags))
        error = AVERROR_INVALIDDATA;
    return error;
}

/* Describes the decoded frame, if it has Y, Cb and Cr with 8 bits each. Returns false for other frames. All
 * JPEGs have one range, and all WebPs the other. libav's range is not used: it comes from a comment in the JPEG, or
 * from the bit that says how VP8 limits its numbers. */
static bool find_yuv(const decoding *d, ith_yuv *yuv)
{
    const AVFrame *frame = d->frame;
    const AVPixFmtDescriptor *format = av_pix_fmt_desc_get(frame->format);
    if (!format || format->nb_components < 3 || format->flags & (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL) ||
        !(format->flags & AV_PIX_FMT_FLAG_PLANAR) || format->comp[0].depth != 8)
        return false;
    *yuv = (ith_yuv){.height = frame->height,
                     .width = frame->width,
                     .shift_y = format->log2_chroma_h,
                     .shift_x = format->log2_chroma_w,
                     .full = d->codec->codec_id == AV_CODEC_ID_MJPEG};
    for (int i = 0; i < 3; i++)
        yuv->planes[i] = frame->data[i], yuv->strides[i] = frame->linesize[i];
    return true;
}

/* Takes the upper 8 of 16 bits, as Pillow does; libswscale rounds. Returns false for frames of fewer bits. */
static bool take_upper_bits(decoding *d)
{
    const AVFrame *frame = d->frame;
    const AVPixFmtDescriptor *format = av_pix_fmt_desc_get(frame->format);
    if (!format || format->comp[0].depth != 16 || format->flags & AV_PIX_FMT_FLAG_PLANAR)
        return false;
    const int upper = format->flags & AV_PIX_FMT_FLAG_BE ? 0 : 1;
    for (int y = 0; y < frame->height; y++)
        for (int i = 0; i < 3; i++) {
            const AVComponentDescriptor *colour = &format->comp[format->nb_components >= 3 ? i : 0];
            const uint8_t *from = frame->data[0] + (ptrdiff_t)y * frame->linesize[0] + colour->offset + upper;
            uint8_t *to = d->rgb->data[0] + (ptrdiff_t)y * d->rgb->linesize[0] + i;
            for (int x = 0; x < frame->width; x++, from += colour->step, to += 3)
                *to = *from;
        }
    return true;
}

/* Converts a frame of another format with libswscale. */
static int convert_with_swscale(decoding *d)
{
    const AVFrame *frame = d->frame;
    const int full = frame->color_range == AVCOL_RANGE_JPEG;
    d->convert = sws_alloc_context();
    if (!d->convert)
        return AVERROR(ENOMEM);
    const struct {
        const char *name;
        int value;
    } options[] = {{"srcw", frame->width},
                   {"srch", frame->height},
                   {"dstw", frame->width},
                   {"dsth", frame->height},
                   {"src_format", frame->format},
                   {"dst_format", AV_PIX_FMT_RGB24},
                   {"sws_flags", SWS_BICUBIC | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP | SWS_ACCURATE_RND}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        av_opt_set_int(d->convert, options[i].name, options[i].value, 0);
    const int *matrix = sws_getCoefficients(SWS_CS_ITU601);
    sws_setColorspaceDetails(d->convert, matrix, full, matrix, 1, 0, 1 << 16, 1 << 16);
    const int error = sws_init_context(d->convert, NULL, NULL);
    if (error < 0)
        return error;
    return sws_scale(d->convert, (const uint8_t *const *)frame->data, frame->linesize, 0, frame->height, d->rgb->data,
                     d->rgb->linesize);
}

/* Converts the frame to RGB24. */
static int convert(decoding *d)
{
    ith_yuv yuv;
    d->rgb = av_frame_alloc();
    if (!d->rgb)
        return AVERROR(ENOMEM);
    d->rgb->format = AV_PIX_FMT_RGB24, d->rgb->width = d->frame->width, d->rgb->height = d->frame->height;
    const int error = av_frame_get_buffer(d->rgb, 0);
    if (error < 0)
        return error;
    if (take_upper_bits(d))
        return 0;
    if (!find_yuv(d, &yuv))
        return convert_with_swscale(d);
    ith_yuv_to_rgb(&yuv, d->rgb->data[0], d->rgb->linesize[0]);
    return 0;
}

static void close_decoding(decoding *d)
{
    sws_freeContext(d->convert);
    av_frame_free(&d->rgb);
    av_frame_free(&d->frame);
    av_packet_free(&d->packet);
    avcodec_free_context(&d->codec);
}

/* ---- Orientation ------------------------------------------------------------------------------------------------- */

/* Copies an RGB24 frame to `out` so that it stands upright. Orientations from 5 on exchange height and width. */
static void turn(const AVFrame *rgb, int orientation, uint8_t *out)
{
    const int64_t height = rgb->height, width = rgb->width;
    const bool transposed = orientation >= 5;
    const bool flips_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool flips_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    for (int64_t row = 0; row < (transposed ? width : height); row++)
        for (int64_t column = 0; column < (transposed ? height : width); column++, out += 3) {
            int64_t y = transposed ? column : row, x = transposed ? row : column;
            y = flips_y ? height - 1 - y : y;
            x = flips_x ? width - 1 - x : x;
            memcpy(out, rgb->data[0] + y * rgb->linesize[0] + x * 3, 3);
        }
}

/* Makes the pixels of the decoded frame, and turns them upright. */
static ith_status make_pixels(decoding *d, int orientation, pixels *out)
{
    const int64_t rows = d->frame->height, columns = d->frame->width;
    const int error = convert(d);
    if (error < 0)
        return refuse_error(d, error);
    if (!(out->rgb = malloc((size_t)(rows * columns * 3))))
        return refuse_error(d, AVERROR(ENOMEM));
    turn(d->rgb, orientation, out->rgb);
    out->height = orientation >= 5 ? columns : rows, out->width = orientation >= 5 ? rows : columns;
    return ITH_OK;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static ith_status read_pixels(decoding *d, const ith_image_file *file, const uint8_t *data, int64_t bytes, pixels *out)
{
    int error = open_decoder(d, file->kind);
    if (error >= 0)
        error = decode(d, data, bytes);
    ith_status status = error < 0 ? refuse_error(d, error) : make_pixels(d, file->orientation, out);
    close_decoding(d);
    return status;
}

/* Checks that a picture has all its pixels: decoders accept compressed data that end too early. Decodes the picture
 * again, into memory with other bytes and with other bytes behind the compressed data. The pixels must be the same. */
static ith_status check_pixels(const decoding *first, const ith_image_file *file, const uint8_t *data, int64_t bytes,
                               const pixels *found)
{
    decoding d = {.context = first->context, .path = first->path, .fill = (uint8_t)~first->fill};
    pixels again = {NULL, 0, 0};
    uint8_t *longer = calloc(1, (size_t)bytes + ITH_IMAGE_MORE_BYTES + AV_INPUT_BUFFER_PADDING_SIZE);
    if (!longer)
        return refuse_error(&d, AVERROR(ENOMEM));
    const int64_t longer_bytes = ith_image_file_lengthen(file, data, bytes, longer);
    ith_status status = read_pixels(&d, file, longer, longer_bytes, &again);
    if (!status && (again.height != found->height || again.width != found->width ||
                    memcmp(again.rgb, found->rgb, (size_t)(found->height * found->width * 3))))
        status = refuse(&d, ITH_ERR_FORMAT, "some of its pixels are missing");
    free(again.rgb);
    free(longer);
    return status;
}

ith_status ith_image_decode(ith_context *context, const char *path, const uint8_t *data, int64_t bytes, uint8_t **rgb,
                            int64_t *height, int64_t *width)
{
    decoding d = {.context = context, .path = path};
    pixels found = {NULL, 0, 0};
    const ith_image_file file = ith_image_file_look(data, bytes);
    *rgb = NULL;
    av_log_set_level(AV_LOG_QUIET);
    ith_status status = check_file(&d, &file);
    if (status)
        return status;
    uint8_t *copy = calloc(1, (size_t)bytes + AV_INPUT_BUFFER_PADDING_SIZE);
    if (!copy)
        return refuse_error(&d, AVERROR(ENOMEM));
    memcpy(copy, data, (size_t)bytes);
    ith_image_file_hide(&file, copy);
    status = read_pixels(&d, &file, copy, bytes, &found);
    if (!status)
        status = check_pixels(&d, &file, copy, bytes, &found);
    free(copy);
    if (status) {
        free(found.rgb);
        return status;
    }
    *rgb = found.rgb, *height = found.height, *width = found.width;
    return ITH_OK;
}

/* Reads a regular file of at most ITH_IMAGE_MOST_BYTES. Returns an error number of the system. */
static int read_file(const char *path, uint8_t **data, int64_t *bytes)
{
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return errno;
    int error = fstat(file, &info) ? errno : !S_ISREG(info.st_mode) ? EISDIR : 0;
    if (!error && info.st_size > ITH_IMAGE_MOST_BYTES)
        error = EFBIG;
    if (!error && !(*data = malloc((size_t)info.st_size + 1))) /* not of 0 bytes */
        error = ENOMEM;
    *bytes = 0;
    while (!error && *bytes < info.st_size) {
        const ssize_t got = read(file, *data + *bytes, (size_t)(info.st_size - *bytes));
        if (got == 0) /* the file was cut */
            break;
        if (got < 0)
            error = errno;
        else
            *bytes += got;
    }
    close(file);
    return error;
}

ith_status ith_image_read(ith_context *context, const char *path, uint8_t **rgb, int64_t *height, int64_t *width)
{
    uint8_t *data = NULL;
    int64_t bytes = 0;
    const int error = read_file(path, &data, &bytes);
    *rgb = NULL;
    ith_status status;
    if (error == EFBIG)
        status = ith_fail(context, ITH_ERR_FORMAT, "'%s' cannot be read: pictures have at most %lld bytes", path,
                          (long long)ITH_IMAGE_MOST_BYTES);
    else if (error)
        status = ith_fail(context, error == ENOMEM ? ITH_ERR_MEMORY : ITH_ERR_IO, "'%s' cannot be read: %s", path,
                          error == EISDIR ? "it is not a file" : strerror(error));
    else
        status = ith_image_decode(context, path, data, bytes, rgb, height, width);
    free(data);
    return status;
}
