/* SPDX-License-Identifier: Apache-2.0 */
/* If FFmpeg has no H.264 encoder, an mp4 holds MPEG-4 part 2, with a warning; if it has neither, there is an error.
 * This program replaces libavcodec's functions that search for encoders. */
#include "media/media.h"
#include "support/engine/decode.h"
#include "support/temporary.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { FRAMES = 9, WIDTH = 96, HEIGHT = 64 };

static bool has_mpeg4, lacks_memory;
static char *folder, last_log[256];
static ith_context *context;

typedef __typeof__(*avcodec_find_encoder(AV_CODEC_ID_NONE)) found_codec; /* AVCodec; const from FFmpeg 5 on */

found_codec *avcodec_find_encoder_by_name(const char *name)
{
    (void)name;
    return NULL;
}

const AVCodec *av_codec_iterate(void **iterator)
{
    (void)iterator;
    return NULL;
}

found_codec *avcodec_find_encoder(enum AVCodecID id)
{
    found_codec *(*find)(enum AVCodecID);
    *(void **)&find = dlsym(RTLD_NEXT, "avcodec_find_encoder");
    assert_non_null(find);
    return has_mpeg4 && id == AV_CODEC_ID_MPEG4 ? find(id) : NULL;
}

int avcodec_open2(AVCodecContext *encoder, const AVCodec *codec, AVDictionary **options)
{
    int (*open)(AVCodecContext *, const AVCodec *, AVDictionary **);
    *(void **)&open = dlsym(RTLD_NEXT, "avcodec_open2");
    assert_non_null(open);
    return lacks_memory ? AVERROR(ENOMEM) : open(encoder, codec, options);
}

static void keep_log(void *user, ith_log_level level, const char *line)
{
    (void)user, (void)level;
    snprintf(last_log, sizeof last_log, "%s", line);
}

static int set_up(void **state)
{
    (void)state;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.log = keep_log;
    folder = temporary_folder();
    return ith_context_create(&options, &context);
}

static int tear_down(void **state)
{
    (void)state;
    ith_context_destroy(&context);
    temporary_remove(folder);
    return 0;
}

/* A ramp of greys that gets lighter from frame to frame, with a texture on it. */
static uint8_t grey(int frame, int x, int y)
{
    return (uint8_t)(20 + x + 10 * frame + (x * 7 + y * 13) % 19);
}

static ith_status write_video(const char *path, int crf)
{
    static uint8_t rgb[3 * WIDTH * HEIGHT];
    const ith_video_options options = {.width = WIDTH, .height = HEIGHT, .fps = 12, .crf = crf};
    ith_video_writer *writer = NULL;
    ith_status status = ith_video_open(context, path, &options, &writer);
    for (int i = 0; !status && i < FRAMES; i++) {
        for (int at = 0; at < 3 * WIDTH * HEIGHT; at++)
            rgb[at] = grey(i, at / 3 % WIDTH, at / 3 / WIDTH);
        status = ith_video_add(writer, rgb);
    }
    return status ? status : ith_video_finish(&writer);
}

static long file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) ? -1 : (long)info.st_size;
}

static void mpeg4_takes_the_place_of_h264(void **state)
{
    (void)state;
    const char *good = temporary_path(folder, "good.mp4"), *bad = temporary_path(folder, "bad.mp4");
    has_mpeg4 = true;
    assert_int_equal(write_video(good, 10), ITH_OK);
    assert_non_null(strstr(last_log, "MPEG-4 part 2"));
    decoded video;
    assert_true(decode_open(&video, good));
    assert_int_equal(video.decoder->codec_id, AV_CODEC_ID_MPEG4);
    assert_int_equal(video.count, FRAMES);
    for (int i = 0; i < FRAMES; i++)
        for (int x = 0; x < WIDTH; x++) {
            double luma = 16 + 219.0 / 255 * grey(i, x, HEIGHT / 2);
            assert_true(fabs(video.frames[i]->data[0][HEIGHT / 2 * video.frames[i]->linesize[0] + x] - luma) <= 8);
        }
    decode_close(&video);
    assert_int_equal(write_video(bad, 45), ITH_OK);
    assert_true(2 * file_bytes(bad) < file_bytes(good));
}

static void without_any_encoder_a_sentence_says_so(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "none.mp4");
    has_mpeg4 = false;
    assert_int_equal(write_video(path, 18), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "neither an H.264 nor an MPEG-4 encoder"));
    assert_int_equal(file_bytes(path), -1);
}

static void without_memory_a_sentence_says_so(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "poor.mp4");
    has_mpeg4 = lacks_memory = true;
    assert_int_equal(write_video(path, 18), ITH_ERR_MEMORY);
    assert_non_null(strstr(ith_context_error(context), "there is no memory for its encoder"));
    assert_int_equal(file_bytes(path), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mpeg4_takes_the_place_of_h264),
        cmocka_unit_test(without_any_encoder_a_sentence_says_so),
        cmocka_unit_test(without_memory_a_sentence_says_so),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
