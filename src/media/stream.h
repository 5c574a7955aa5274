/* SPDX-License-Identifier: Apache-2.0 */
/* One encoded video stream in one file: the part that mp4 and GIF share. */
#ifndef ITH_MEDIA_STREAM_H
#define ITH_MEDIA_STREAM_H

#include "format.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

/* The encoder, the file format and the packet buffer of one video. */
typedef struct ith_stream {
    AVCodecContext *encoder; /* set and opened by the format, before ith_stream_begin */
    AVFormatContext *muxer;
    AVPacket *packet;
    bool begun; /* whether the file has its header and lacks its trailer */
} ith_stream;

/* Makes an encoder context with the size and rate of the video, not opened yet. Returns NULL if there is no memory. */
AVCodecContext *ith_stream_encoder(const ith_video_writer *writer, const AVCodec *codec);
/* Makes a frame of the video's size with a buffer for its pixels. Returns NULL if there is no memory. */
AVFrame *ith_stream_frame(const ith_video_writer *writer, enum AVPixelFormat format);
/* Copies rgb [height, width, 3] into an RGB24 frame, and gives it the time stamp of the writer's next frame. Returns an
 * error of libav or 0. */
int ith_stream_fill(const ith_video_writer *writer, AVFrame *frame, const uint8_t *rgb);

/* Opens the partial file and writes its header. settings: options for the muxer, which removes the options that it
 * uses; NULL: none. */
ith_status ith_stream_begin(ith_video_writer *writer, ith_stream *stream, const char *muxer, AVDictionary **settings);
/* Encodes a frame and writes the packets that are ready. With NULL as frame, the encoder gives its last packets. */
ith_status ith_stream_encode(ith_video_writer *writer, ith_stream *stream, const AVFrame *frame);
/* Writes the encoder's last packets and the trailer, and closes the file. */
ith_status ith_stream_end(ith_video_writer *writer, ith_stream *stream);
/* Frees the stream. Closes its file if ith_stream_end has not done so. */
void ith_stream_free(ith_stream *stream);

#endif
