/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a PNG with libavcodec (picture.h). */
#include "picture.h"

#include "../base/replace_file.h"

#include <libavcodec/avcodec.h>
#include <libavutil/log.h>
#include <string.h>

/* The encoder of one picture, and its result. */
typedef struct png {
    AVCodecContext *encoder;
    AVFrame *frame;
    AVPacket *packet;
} png;

static void png_free(png *p)
{
    avcodec_free_context(&p->encoder);
    av_frame_free(&p->frame);
    av_packet_free(&p->packet);
}

/* Opens the encoder for a picture of this size. Returns an error of libav or 0. */
static int open_png_encoder(png *p, int height, int width)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_PNG);
    if (!codec)
        return AVERROR_ENCODER_NOT_FOUND;
    p->encoder = avcodec_alloc_context3(codec);
    p->frame = av_frame_alloc();
    p->packet = av_packet_alloc();
    if (!p->encoder || !p->frame || !p->packet)
        return AVERROR(ENOMEM);
    p->encoder->width = p->frame->width = width;
    p->encoder->height = p->frame->height = height;
    p->encoder->pix_fmt = AV_PIX_FMT_RGB24;
    p->frame->format = AV_PIX_FMT_RGB24;
    p->encoder->time_base = (AVRational){1, 1};
    p->encoder->thread_count = 1;
    p->encoder->compression_level = 1; /* the fastest; squares of one colour need no better */
    const int error = avcodec_open2(p->encoder, codec, NULL);
    return error < 0 ? error : av_frame_get_buffer(p->frame, 0);
}

/* Enlarges the picture into the frame, and encodes it. Returns an error of libav or 0. */
static int png_encode(png *p, const uint8_t *rgb, int64_t width, int64_t scale)
{
    const int64_t line = p->frame->linesize[0];
    for (int64_t y = 0; y < p->frame->height; y++) {
        uint8_t *row = p->frame->data[0] + y * line;
        if (y % scale) {
            memcpy(row, row - line, (size_t)p->frame->width * 3);
            continue;
        }
        for (int64_t x = 0; x < width; x++, rgb += 3)
            for (int64_t i = 0; i < scale; i++, row += 3)
                memcpy(row, rgb, 3);
    }
    int error = avcodec_send_frame(p->encoder, p->frame);
    return error < 0 ? error : avcodec_receive_packet(p->encoder, p->packet);
}

/* An ith_write_fn. */
static ith_status write_packet(FILE *file, void *user)
{
    const AVPacket *packet = user;
    fwrite(packet->data, 1, (size_t)packet->size, file);
    return ITH_OK;
}

ith_status ith_picture_write(ith_context *context, const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                             int64_t scale)
{
    png p = {0};
    av_log_set_level(AV_LOG_QUIET);
    int error = open_png_encoder(&p, (int)(height * scale), (int)(width * scale));
    if (error >= 0)
        error = png_encode(&p, rgb, width, scale);
    ith_status status = ITH_OK;
    if (error == AVERROR(ENOMEM))
        status = ith_fail(context, ITH_ERR_MEMORY, "cannot write %s: out of memory", path);
    else if (error < 0)
        status = ith_fail(context, ITH_ERR_INTERNAL, "cannot write %s: %s", path, av_err2str(error));
    if (!status)
        status = ith_replace_file(context, path, write_packet, p.packet);
    png_free(&p);
    return status;
}
