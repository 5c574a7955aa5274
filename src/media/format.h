/* SPDX-License-Identifier: Apache-2.0 */
/* What the kinds of video files have in common. One file per kind: mp4.c, gif.c, png.c. */
#ifndef ITH_MEDIA_FORMAT_H
#define ITH_MEDIA_FORMAT_H

#include "media.h"
#include "output.h"

typedef struct ith_video_format {
    /* Fills writer->state; what it has filled when it fails, close frees. */
    ith_status (*open)(ith_video_writer *writer);
    ith_status (*add)(ith_video_writer *writer, const uint8_t *rgb);
    /* Everything is written and closed when it returns. */
    ith_status (*end)(ith_video_writer *writer);
    /* Frees the state; writes nothing. */
    void (*close)(ith_video_writer *writer);
} ith_video_format;

extern const ith_video_format ith_video_mp4, ith_video_gif, ith_video_png;

struct ith_video_writer {
    ith_context *context;
    const ith_video_format *format;
    ith_video_options options;
    char *title, *comment; /* copies that options points to */
    ith_output output;
    int64_t frames; /* added so far */
    void *state;    /* of the format */
};

/* Turns an error of libav into a status and a sentence: 'clip.mp4' cannot be written: `what`: the reason. */
ith_status ith_video_fail(ith_video_writer *writer, int av_error, const char *what);

#endif
