/* SPDX-License-Identifier: Apache-2.0 */
/* Writes PNGs, 8-bit RGB without loss, tagged sRGB: one file, or a folder of frame_0000.png and so on. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* The state of a PNG writer (ith_video_writer.state). */
typedef struct png {
    AVCodecContext *encoder;
    AVPacket *packet;
    AVFrame *frame;
    int folder; /* descriptor of the partial folder; -1: the output is one file */
} png;

/* Opens the PNG encoder. Returns an error of libav or 0. */
static int open_encoder(const ith_video_writer *writer, png *state)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_PNG);
    if (!codec)
        return AVERROR_ENCODER_NOT_FOUND;
    state->encoder = ith_stream_encoder(writer, codec);
    state->packet = av_packet_alloc();
    state->frame = ith_stream_frame(writer, AV_PIX_FMT_RGB24);
    if (!state->encoder || !state->packet || !state->frame)
        return AVERROR(ENOMEM);
    state->encoder->pix_fmt = AV_PIX_FMT_RGB24;
    state->encoder->thread_count = 1; /* so that the encoder returns each frame's packet at once */
    state->frame->color_primaries = AVCOL_PRI_BT709;
    state->frame->color_trc = AVCOL_TRC_IEC61966_2_1;
    return avcodec_open2(state->encoder, codec, NULL);
}

static ith_status png_open(ith_video_writer *writer)
{
    png *state = writer->state = ith_alloc_zero(writer->context, 1, sizeof *state, "png writer");
    if (!state)
        return ITH_ERR_MEMORY;
    state->folder = writer->output.folder ? open(writer->output.partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (writer->output.folder && state->folder < 0)
        return ith_video_fail(writer, AVERROR(errno), "its folder cannot be opened");
    int error = open_encoder(writer, state);
    return error < 0 ? ith_video_fail(writer, error, "the PNG encoder cannot be opened") : ITH_OK;
}

/* Writes all bytes to a file. Returns an error number of the system, or 0. */
static int write_all(int file, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done = write(file, data, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        data += done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* Opens the file of the next frame: the partial file, or a new file of the partial folder. Writes its name to `name`.
 * Returns -1 if it cannot be opened. */
static int open_frame(const ith_video_writer *writer, const png *state, char name[32])
{
    if (!writer->output.folder) {
        snprintf(name, 32, "the frame");
        return open(writer->output.partial, O_WRONLY | O_CLOEXEC);
    }
    snprintf(name, 32, "frame_%04lld.png", (long long)writer->frames);
    return openat(state->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* Writes the encoded frame to its file. */
static ith_status write_frame(ith_video_writer *writer, png *state)
{
    char name[32];
    int file = open_frame(writer, state, name);
    if (file < 0)
        return ith_video_fail(writer, AVERROR(errno), name);
    int error = write_all(file, state->packet->data, (size_t)state->packet->size);
    if (close(file) && !error)
        error = errno;
    return error ? ith_video_fail(writer, AVERROR(error), name) : ITH_OK;
}

/* Implements ith_video_format.add: encodes a frame and writes its file. */
static ith_status png_add(ith_video_writer *writer, const uint8_t *rgb)
{
    png *state = writer->state;
    int error = ith_stream_fill(writer, state->frame, rgb);
    if (error >= 0)
        error = avcodec_send_frame(state->encoder, state->frame);
    if (error >= 0)
        error = avcodec_receive_packet(state->encoder, state->packet);
    if (error < 0)
        return ith_video_fail(writer, error, "a frame cannot be encoded");
    ith_status status = write_frame(writer, state);
    av_packet_unref(state->packet);
    return status;
}

static ith_status png_end(ith_video_writer *writer)
{
    (void)writer; /* png_add has completed the file of each frame */
    return ITH_OK;
}

static void png_close(ith_video_writer *writer)
{
    png *state = writer->state;
    if (!state)
        return;
    if (state->folder >= 0)
        close(state->folder);
    avcodec_free_context(&state->encoder);
    av_packet_free(&state->packet);
    av_frame_free(&state->frame);
    ith_free(writer->context, state);
}

const ith_video_format ith_video_png = {
    .open = png_open, .add = png_add, .end = png_end, .close = png_close, .holds_one_frame = true};
const ith_video_format ith_video_png_folder = {.open = png_open, .add = png_add, .end = png_end, .close = png_close};
