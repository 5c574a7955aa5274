/* SPDX-License-Identifier: Apache-2.0 */
/* One encoded stream in one file. */
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

/* An encoder context for the writer's size and rate, not opened yet; NULL if there is no memory for it. */
AVCodecContext *ith_stream_encoder(const ith_video_writer *writer, const AVCodec *codec);
/* A frame of the writer's size with room for its pixels; NULL if there is no memory for it. */
AVFrame *ith_stream_frame(const ith_video_writer *writer, enum AVPixelFormat format);
/* Copies packed rgb [height, width, 3] into an RGB24 frame as the writer's next one; returns an error of libav. */
int ith_stream_fill(const ith_video_writer *writer, AVFrame *frame, const uint8_t *rgb);

/* Opens the writer's partial file and writes the head. settings: options of the muxer, consumed; may be NULL. */
ith_status ith_stream_begin(ith_video_writer *writer, ith_stream *stream, const char *muxer, AVDictionary **settings);
/* frame NULL: the end, what the encoder still holds is written. */
ith_status ith_stream_encode(ith_video_writer *writer, ith_stream *stream, const AVFrame *frame);
/* Drains the encoder, writes the tail and closes the file. */
ith_status ith_stream_end(ith_video_writer *writer, ith_stream *stream);
/* Frees; closes a file that ith_stream_end has not. */
void ith_stream_free(ith_stream *stream);

#endif
