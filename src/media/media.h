/* SPDX-License-Identifier: Apache-2.0 */
/* Video files out: mp4, GIF or a folder of PNGs, through libav*. Written beside its name and renamed when whole. */
#ifndef ITH_MEDIA_MEDIA_H
#define ITH_MEDIA_MEDIA_H

#include <ithaca/ithaca.h>

typedef struct ith_video_writer ith_video_writer;

typedef struct ith_video_options {
    int64_t width, height; /* pixels */
    double fps;
    int crf;             /* H.264 quality, 0 (best) to 51; mp4 only */
    const char *title;   /* the prompt, kept in an mp4's metadata; NULL: none */
    const char *comment; /* seed and settings, likewise */
    bool (*should_stop)(
        void); /* asked for every encoded frame: true ends the call with ITH_ERR_INTERRUPTED; NULL: never */
} ith_video_options;

/* The kind is told from the name: .mp4, .gif, or a trailing '/' (or an existing folder) for PNGs, which are called
 * frame_0000.png and so on. An existing file is replaced when the new one is whole; a folder that holds such frames
 * already is refused. Fails at once where nothing could be written later. */
ith_status ith_video_open(ith_context *context, const char *path, const ith_video_options *options,
                          ith_video_writer **out);
/* rgb [height, width, 3]. */
ith_status ith_video_add(ith_video_writer *writer, const uint8_t *rgb);
/* Ends the file and gives it its name. The writer is gone whatever happens; on failure so is the unfinished file. */
ith_status ith_video_finish(ith_video_writer **writer);
/* Removes what was written. */
void ith_video_discard(ith_video_writer **writer);

/* Whether ith_video_open would succeed, leaving nothing behind: to be asked before hours of work. */
ith_status ith_video_check(ith_context *context, const char *path, const ith_video_options *options);
/* The part of it that needs no sizes yet: the name is of a known kind and can be written. */
ith_status ith_video_check_path(ith_context *context, const char *path);

#endif
