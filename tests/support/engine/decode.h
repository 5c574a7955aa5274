/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a video or a picture back with libav, for tests. */
#ifndef ITH_TESTS_DECODE_H
#define ITH_TESTS_DECODE_H

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

#include <stdbool.h>

#define DECODE_MAX_FRAMES 64

typedef struct decoded {
    AVFormatContext *file;
    AVCodecContext *decoder;
    AVFrame *frames[DECODE_MAX_FRAMES];
    int count;
} decoded;

/* Decodes a whole file. Returns false if some part of it cannot be decoded. */
bool decode_open(decoded *video, const char *path);

void decode_close(decoded *video);

#endif
