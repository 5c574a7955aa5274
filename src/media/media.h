/* SPDX-License-Identifier: Apache-2.0 */
/* Writes videos as mp4, GIF or a folder of PNGs, and a single frame as a PNG, with FFmpeg's libav libraries. An output
 * is written under a temporary name in the same folder, and renamed when it is complete. */
#ifndef ITH_MEDIA_MEDIA_H
#define ITH_MEDIA_MEDIA_H

#include <ithaca/ithaca.h>

/* Threads that encode an mp4, while the next frames are decoded. The file depends on their number, so it is the same on
 * every machine and for any number of ranks. */
#define ITH_VIDEO_ENCODER_THREADS 4

typedef struct ith_video_writer ith_video_writer;

/* The properties of a video. */
typedef struct ith_video_options {
    int64_t width, height; /* pixels */
    int64_t frames;        /* number of frames; 0: not known yet */
    double fps;            /* frames a second */
    int crf;               /* H.264 quality, 0 (best) to 51; mp4 only */
    const char *title;     /* the prompt, for the metadata of an mp4; NULL: none */
    const char *comment;   /* seed and settings, for the metadata of an mp4; NULL: none */
    /* Called after every encoded frame. If it returns true, the writing ends with ITH_ERR_INTERRUPTED. NULL: never
     * called. */
    bool (*should_stop)(void);
} ith_video_options;

/* Opens a writer. The name determines the format: .mp4, .gif, .png for a single frame, or a trailing '/' (or an
 * existing empty folder) for PNGs frame_0000.png and so on. An existing file is replaced when the new one is complete;
 * a folder that already holds frames is refused. The temporary file is created now, so that a place that cannot be
 * written fails here. */
ith_status ith_video_open(ith_context *context, const char *path, const ith_video_options *options,
                          ith_video_writer **out);
/* Adds a frame, rgb [height, width, 3], to the video. ITH_ERR_ARGUMENT for the second frame of a .png. */
ith_status ith_video_add(ith_video_writer *writer, const uint8_t *rgb);
/* Completes the output, gives it its final name, and frees the writer. On failure the output is removed and the writer
 * freed. */
ith_status ith_video_finish(ith_video_writer **writer);
/* Removes the unfinished output and frees the writer. */
void ith_video_discard(ith_video_writer **writer);

/* Returns the status that ith_video_open would return, and leaves no file. To be called before a long computation. */
ith_status ith_video_check(ith_context *context, const char *path, const ith_video_options *options);
/* Checks only the name of an output and its folder, when the size of the video is not known yet. */
ith_status ith_video_check_path(ith_context *context, const char *path);

#endif
