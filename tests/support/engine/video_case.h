/* SPDX-License-Identifier: Apache-2.0 */
/* Videos that tests write: a folder, painted frames, and checks of PNGs. */
#ifndef ITH_TESTS_VIDEO_CASE_H
#define ITH_TESTS_VIDEO_CASE_H

#include "media/media.h"

#define VIDEO_FRAMES 9

typedef struct video_case {
    ith_context *context;
    char *folder, path[320]; /* path: a name of up to 255 bytes in the folder */
    int64_t width, height;
    char last_log[256];
} video_case;

/* The set-up and the tear-down of a test, whose state is a video_case. */
int video_set_up(void **state);
int video_tear_down(void **state);

/* The path of a name in the folder, in f->path. */
const char *video_path(video_case *f, const char *name);
/* Paints frame `index` [height, width, 3]: four patches above a ramp of greys: red, green, blue and white; a dark
 * square walks over the ramp. */
void video_paint(const video_case *f, int index, uint8_t *rgb);
ith_video_options video_options(const video_case *f);
/* Writes the first `frames` painted frames. Returns the first failure. */
ith_status video_write_frames(video_case *f, const char *path, const ith_video_options *options, int frames);
/* The same with VIDEO_FRAMES frames. */
ith_status video_write(video_case *f, const char *path, const ith_video_options *options);
/* As video_write. The test fails if it returns a failure. */
void video_assert_written(video_case *f, const char *path, const ith_video_options *options);
/* Fails unless the folder holds the first `frames` painted frames as PNGs, and nothing else. */
void video_assert_pngs(video_case *f, const char *folder, int frames);
/* The bytes of a file. */
long video_file_bytes(const char *path);

#endif
