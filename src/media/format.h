/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a video format, and the writer that all formats share. One file per format: mp4.c, gif.c, png.c. */
#ifndef ITH_MEDIA_FORMAT_H
#define ITH_MEDIA_FORMAT_H

#include "media.h"
#include "output.h"

typedef struct ith_video_format {
    /* Fills writer->state. If it fails, `close` frees what it has filled. */
    ith_status (*open)(ith_video_writer *writer);
    ith_status (*add)(ith_video_writer *writer, const uint8_t *rgb);
    /* Writes the end of the file and closes it. */
    ith_status (*end)(ith_video_writer *writer);
    /* Frees the state and writes nothing. */
    void (*close)(ith_video_writer *writer);
} ith_video_format;

extern const ith_video_format ith_video_mp4, ith_video_gif, ith_video_png;

struct ith_video_writer {
    ith_context *context;
    const ith_video_format *format;
    ith_video_options options;
    char *title, *comment; /* copies, to which options points */
    ith_output output;
    int64_t frames; /* number of frames added */
    void *state;    /* private to the format */
};

/* Records the sentence "'PATH' cannot be written: `what`: REASON" for an error of libav, and returns its status. */
ith_status ith_video_fail(ith_video_writer *writer, int av_error, const char *what);

#endif
