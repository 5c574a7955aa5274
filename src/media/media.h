/* SPDX-License-Identifier: Apache-2.0 */
/* Writes videos as mp4, GIF or a folder of PNGs, with FFmpeg's libav*. An output is written under a temporary name in
 * the same folder, and renamed when it is complete. */
#ifndef ITH_MEDIA_MEDIA_H
#define ITH_MEDIA_MEDIA_H

#include <ithaca/ithaca.h>

typedef struct ith_video_writer ith_video_writer;

typedef struct ith_video_options {
    int64_t width, height; /* pixels */
    double fps;
    int crf;             /* H.264 quality, 0 (best) to 51; mp4 only */
    const char *title;   /* the prompt, for the metadata of an mp4; NULL: none */
    const char *comment; /* seed and settings, for the metadata */
    bool (*should_stop)(
        void); /* called after every encoded frame; true ends the call with ITH_ERR_INTERRUPTED; NULL: never */
} ith_video_options;

/* The name determines the format: .mp4, .gif, or a trailing '/' (or an existing folder) for PNGs frame_0000.png and so
 * on. An existing file is replaced when the new one is complete; a folder that already holds such frames is refused.
 * Creates the temporary file, so that a place that cannot be written fails here. */
ith_status ith_video_open(ith_context *context, const char *path, const ith_video_options *options,
                          ith_video_writer **out);
/* Adds a frame, rgb [height, width, 3]. */
ith_status ith_video_add(ith_video_writer *writer, const uint8_t *rgb);
/* Completes the file, renames it, and frees the writer. On failure the file is removed and the writer freed. */
ith_status ith_video_finish(ith_video_writer **writer);
/* Removes the unfinished output and frees the writer. */
void ith_video_discard(ith_video_writer **writer);

/* The status that ith_video_open would return, without leaving a file: to be called before a long computation. */
ith_status ith_video_check(ith_context *context, const char *path, const ith_video_options *options);
/* The same before the sizes are known: checks the name and the folder only. */
ith_status ith_video_check_path(ith_context *context, const char *path);

#endif
