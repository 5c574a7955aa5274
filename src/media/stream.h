/* SPDX-License-Identifier: Apache-2.0 */
/* One encoded video stream in one file: the part that mp4 and GIF share. */
#ifndef ITH_MEDIA_STREAM_H
#define ITH_MEDIA_STREAM_H

#include "format.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

typedef struct ith_stream {
    AVCodecContext *encoder; /* set and opened by the format, before ith_stream_begin */
    AVFormatContext *muxer;
    AVPacket *packet;
} ith_stream;

/* An encoder context with the writer's size and rate, not opened yet; NULL if there is no memory. */
AVCodecContext *ith_stream_encoder(const ith_video_writer *writer, const AVCodec *codec);
/* A frame of the writer's size with a buffer for its pixels; NULL if there is no memory. */
AVFrame *ith_stream_frame(const ith_video_writer *writer, enum AVPixelFormat format);
/* Copies rgb [height, width, 3] into an RGB24 frame and gives it the writer's next time stamp. Returns an error of
 * libav or 0. */
int ith_stream_fill(const ith_video_writer *writer, AVFrame *frame, const uint8_t *rgb);

/* Opens the writer's partial file and writes the header. settings: options for the muxer, which consumes them; NULL:
 * none. */
ith_status ith_stream_begin(ith_video_writer *writer, ith_stream *stream, const char *muxer, AVDictionary **settings);
/* Encodes a frame and writes the packets that are ready. NULL drains the encoder. */
ith_status ith_stream_encode(ith_video_writer *writer, ith_stream *stream, const AVFrame *frame);
/* Drains the encoder, writes the trailer and closes the file. */
ith_status ith_stream_end(ith_video_writer *writer, ith_stream *stream);
/* Frees the stream, and closes its file if ith_stream_end has not. */
void ith_stream_free(ith_stream *stream);

#endif
