/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/video_case.h"

#include "support/engine/decode.h"
#include "support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void keep_log(void *user, ith_log_level level, const char *line)
{
    video_case *f = user;
    (void)level;
    snprintf(f->last_log, sizeof f->last_log, "%s", line);
}

int video_set_up(void **state)
{
    video_case *f = calloc(1, sizeof *f);
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.log = keep_log, options.log_user = f;
    f->folder = temporary_folder();
    f->width = 64, f->height = 48;
    *state = f;
    return ith_context_create(&options, &f->context);
}

int video_tear_down(void **state)
{
    video_case *f = *state;
    ith_context_destroy(&f->context);
    temporary_remove(f->folder);
    free(f);
    return 0;
}

const char *video_path(video_case *f, const char *name)
{
    snprintf(f->path, sizeof f->path, "%s/%s", f->folder, name);
    return f->path;
}

void video_paint(const video_case *f, int index, uint8_t *rgb)
{
    static const uint8_t patches[4][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {255, 255, 255}};
    for (int64_t y = 0; y < f->height; y++)
        for (int64_t x = 0; x < f->width; x++) {
            uint8_t *pixel = rgb + 3 * (y * f->width + x);
            bool square = y > f->height * 3 / 4 && x / 4 == index;
            uint8_t grey = (uint8_t)(square ? 20 : (uint8_t)(255 * x / f->width));
            for (int c = 0; c < 3; c++)
                pixel[c] = y < f->height / 2 ? patches[4 * x / f->width][c] : grey;
        }
}

ith_video_options video_options(const video_case *f)
{
    return (ith_video_options){.width = f->width,
                               .height = f->height,
                               .fps = 12,
                               .crf = 4,
                               .title = "A red \"circle\", ünïcode",
                               .comment = "seed 42; steps 16"};
}

ith_status video_write_frames(video_case *f, const char *path, const ith_video_options *options, int frames)
{
    ith_video_writer *writer = NULL;
    ith_status status = ith_video_open(f->context, path, options, &writer);
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    for (int i = 0; !status && i < frames; i++) {
        video_paint(f, i, rgb);
        status = ith_video_add(writer, rgb);
    }
    free(rgb);
    if (!status)
        return ith_video_finish(&writer);
    ith_video_discard(&writer);
    assert_null(writer);
    return status;
}

ith_status video_write(video_case *f, const char *path, const ith_video_options *options)
{
    return video_write_frames(f, path, options, VIDEO_FRAMES);
}

void video_assert_written(video_case *f, const char *path, const ith_video_options *options)
{
    ith_status status = video_write(f, path, options);
    if (status)
        fail_msg("%s", ith_context_error(f->context));
}

/* Whether a PNG has a chunk of this name. */
static bool holds_chunk(const char *path, const char *name)
{
    size_t bytes = 0, at = 0;
    char *file = temporary_read(path, &bytes);
    while (at + 4 <= bytes && memcmp(file + at, name, 4) != 0)
        at++;
    free(file);
    return at + 4 <= bytes;
}

void video_assert_pngs(video_case *f, const char *folder, int frames)
{
    assert_int_equal(temporary_count(folder), frames);
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    for (int i = 0; i < frames; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/frame_%04d.png", folder, i);
        decoded picture;
        assert_true(decode_open(&picture, path));
        assert_int_equal(picture.count, 1);
        assert_true(holds_chunk(path, "sRGB"));
        assert_int_equal(picture.frames[0]->format, AV_PIX_FMT_RGB24);
        assert_int_equal(picture.frames[0]->width, f->width);
        assert_int_equal(picture.frames[0]->height, f->height);
        video_paint(f, i, rgb);
        for (int64_t y = 0; y < f->height; y++)
            assert_memory_equal(picture.frames[0]->data[0] + y * picture.frames[0]->linesize[0], rgb + 3 * y * f->width,
                                (size_t)(3 * f->width));
        decode_close(&picture);
    }
    free(rgb);
}

long video_file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) ? -1 : (long)info.st_size;
}
