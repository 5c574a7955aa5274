/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a video format, and the writer that all formats share. Each format has a file: mp4.c, gif.c,
 * png.c. */
#ifndef ITH_MEDIA_FORMAT_H
#define ITH_MEDIA_FORMAT_H

#include "media.h"
#include "output.h"

/* The functions of a video format. */
typedef struct ith_video_format {
    /* Opens the output and fills writer->state. If it fails, `close` frees the members that are already set. */
    ith_status (*open)(ith_video_writer *writer);
    /* Adds a frame, rgb [height, width, 3]. */
    ith_status (*add)(ith_video_writer *writer, const uint8_t *rgb);
    /* Writes the end of the file and closes it. */
    ith_status (*end)(ith_video_writer *writer);
    /* Frees writer->state and writes nothing. */
    void (*close)(ith_video_writer *writer);
    bool holds_one_frame;
} ith_video_format;

extern const ith_video_format ith_video_mp4, ith_video_gif, ith_video_png, ith_video_png_folder;

/* A video that is being written. */
struct ith_video_writer {
    ith_context *context;
    const ith_video_format *format;
    ith_video_options options;
    char *title, *comment; /* copies of the caller's texts; options.title and options.comment point to them */
    ith_output output;     /* final and partial name of the output */
    int64_t frames;        /* number of frames that were added */
    void *state;           /* data of the format, such as its encoder */
};

/* Records the sentence "'PATH' cannot be written: `what`: REASON" for an error of libav, and returns its status. */
ith_status ith_video_fail(ith_video_writer *writer, int av_error, const char *what);

#endif
