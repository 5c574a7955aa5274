/* SPDX-License-Identifier: Apache-2.0 */
/* Videos are read back with libav's decoders and compared with the frames that were written. Colours are compared with
 * BT.709, computed here from ITU-R's definition. */
#include "media/media.h"
#include "support/engine/decode.h"
#include "support/engine/video_case.h"
#include "support/guarded.h"
#include "support/temporary.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static double bt709(int plane, double r, double g, double b)
{
    double y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    if (plane == 0)
        return 16 + 219.0 / 255 * y;
    return 128 + 224.0 / 255 * (plane == 1 ? (b - y) / 1.8556 : (r - y) / 1.5748);
}

/* The mean square error of a plane, compared with the painted frame in BT.709 with chroma averaged over 2 x 2
 * pixels. */
static double plane_error(const video_case *f, const AVFrame *frame, int index, int plane)
{
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    video_paint(f, index, rgb);
    int step = plane ? 2 : 1;
    double sum = 0;
    for (int64_t y = 0; y < f->height / step; y++)
        for (int64_t x = 0; x < f->width / step; x++) {
            double want = 0;
            for (int i = 0; i < step * step; i++) {
                const uint8_t *p = rgb + 3 * ((y * step + i / step) * f->width + x * step + i % step);
                want += bt709(plane, p[0], p[1], p[2]) / (step * step);
            }
            double got = frame->data[plane][y * frame->linesize[plane] + x];
            sum += (got - want) * (got - want);
        }
    free(rgb);
    return sum / (double)(f->width * f->height / (step * step));
}

static void assert_patches(const video_case *f, const AVFrame *frame)
{
    static const uint8_t patches[4][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {255, 255, 255}};
    for (int i = 0; i < 4; i++)
        for (int plane = 0; plane < 3; plane++) {
            int step = plane ? 2 : 1;
            int64_t x = (2 * i + 1) * f->width / 8 / step, y = f->height / 4 / step;
            double want = bt709(plane, patches[i][0], patches[i][1], patches[i][2]);
            assert_true(fabs(frame->data[plane][y * frame->linesize[plane] + x] - want) <= 2);
        }
}

static void mp4_holds_the_frames(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    video_assert_written(f, video_path(f, "clip.mp4"), &options);
    assert_int_equal(temporary_count(f->folder), 1);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_int_equal(video.count, VIDEO_FRAMES);
    for (int i = 0; i < VIDEO_FRAMES; i++) {
        assert_int_equal(video.frames[i]->format, AV_PIX_FMT_YUV420P);
        assert_patches(f, video.frames[i]);
        assert_true(10 * log10(255 * 255 / plane_error(f, video.frames[i], i, 0)) > 40);
        assert_true(10 * log10(255 * 255 / plane_error(f, video.frames[i], i, 1)) > 25);
        assert_true(10 * log10(255 * 255 / plane_error(f, video.frames[i], i, 2)) > 25);
    }
    const AVStream *track = video.file->streams[0];
    assert_true(fabs(av_q2d(track->avg_frame_rate) - 12) < 1e-6);
    assert_true(fabs((double)video.file->duration / AV_TIME_BASE - VIDEO_FRAMES / 12.0) < 0.01);
    assert_int_equal(track->codecpar->color_space, AVCOL_SPC_BT709);
    assert_int_equal(track->codecpar->color_primaries, AVCOL_PRI_BT709);
    assert_int_equal(track->codecpar->color_trc, AVCOL_TRC_BT709);
    assert_int_equal(track->codecpar->color_range, AVCOL_RANGE_MPEG);
    assert_true(av_q2d(track->codecpar->sample_aspect_ratio) == 1);
    assert_string_equal(av_dict_get(video.file->metadata, "title", NULL, 0)->value, options.title);
    assert_string_equal(av_dict_get(video.file->metadata, "comment", NULL, 0)->value, options.comment);
    decode_close(&video);
}

/* The mean difference between the Cr of a frame and the Cr of a ramp of reds. The reds grow by 8 with each pixel to the
 * right or downwards; at chroma sample 0 the red is `at_first`. Samples 2 to 12 lie within the ramp. */
static double ramp_error(const AVFrame *frame, bool downwards, double at_first)
{
    double sum = 0;
    for (int along = 2; along < 13; along++)
        for (int across = 2; across < 20; across++) {
            const int row = downwards ? along : across, column = downwards ? across : along;
            sum += frame->data[2][row * frame->linesize[2] + column] - bt709(2, at_first + 16 * along, 0, 0);
        }
    return sum / (11 * 18);
}

/* MPEG's chroma samples lie at the left pixel of two, and midway between two rows. */
static void chroma_lies_where_players_look_for_it(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    ith_video_writer *writer = NULL;
    uint8_t rgb[2][48 * 64 * 3] = {{0}};
    options.crf = 1;
    for (int at = 0; at < 48 * 64; at++) {
        const int x = at % 64, y = at / 64;
        rgb[0][3 * at] = (uint8_t)(8 * (x < 31 ? x : 31));
        rgb[1][3 * at] = (uint8_t)(8 * (y < 31 ? y : 31));
    }
    assert_int_equal(ith_video_open(f->context, video_path(f, "clip.mp4"), &options, &writer), ITH_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ith_video_add(writer, rgb[i]), ITH_OK);
    assert_int_equal(ith_video_finish(&writer), ITH_OK);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_int_equal(video.count, 2);
    const double right = ramp_error(video.frames[0], false, 0), down = ramp_error(video.frames[1], true, 4);
    print_message("Cr differs by %.2f and %.2f\n", right, down);
    assert_true(fabs(right) < 0.4 && fabs(down) < 0.4);
    decode_close(&video);
}

static bool stopped;

static bool should_stop(void)
{
    return stopped;
}

/* The encoder holds frames back, and encodes them when the video is finished. */
static void finishing_can_be_stopped(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif"};
    video_case *f = *state;
    ith_video_options options = video_options(f);
    options.should_stop = should_stop;
    for (int i = 0; i < 2; i++) {
        stopped = false;
        video_assert_written(f, video_path(f, names[i]), &options);
        assert_int_equal(unlink(f->path), 0);
        stopped = true;
        assert_int_equal(video_write(f, f->path, &options), ITH_ERR_INTERRUPTED);
        assert_non_null(strstr(ith_context_error(f->context), "was not finished"));
        assert_int_equal(temporary_count(f->folder), 0);
    }
}

/* The order of the outer boxes of the file. */
static void mp4_can_start_before_its_end(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    video_assert_written(f, video_path(f, "clip.mp4"), &options);
    FILE *file = fopen(f->path, "rb");
    assert_non_null(file);
    long moov = -1, mdat = -1;
    uint8_t head[8];
    for (long at = 0; fread(head, 1, 8, file) == 8;) {
        long bytes = (long)head[0] << 24 | (long)head[1] << 16 | (long)head[2] << 8 | (long)head[3];
        if (!memcmp(head + 4, "moov", 4))
            moov = at;
        if (!memcmp(head + 4, "mdat", 4))
            mdat = at;
        assert_true(bytes >= 8);
        at += bytes;
        fseek(file, at, SEEK_SET);
    }
    fclose(file);
    assert_true(moov > 0 && mdat > moov);
}

/* The bytes of a file, which free releases. */
static uint8_t *contents(const char *path, long bytes)
{
    uint8_t *out = malloc((size_t)bytes);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(out, 1, (size_t)bytes, file), bytes);
    fclose(file);
    return out;
}

static void crf_and_fps_are_obeyed(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    options.fps = 24000.0 / 1001;
    video_assert_written(f, video_path(f, "clip.mp4"), &options);
    long good = video_file_bytes(f->path);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_true(fabs(av_q2d(video.file->streams[0]->avg_frame_rate) - options.fps) < 1e-3);
    decode_close(&video);
    options.crf = 45;
    video_assert_written(f, f->path, &options); /* replaces the earlier file */
    const long bytes = video_file_bytes(f->path);
    assert_true(bytes < good);
    uint8_t *data = contents(f->path, bytes);
    if (memmem(data, (size_t)bytes, "x264 - core", strlen("x264 - core"))) /* x264 writes its settings into the file */
        assert_non_null(memmem(data, (size_t)bytes, " crf=45.0 ", strlen(" crf=45.0 ")));
    free(data);
}

/* No format reads beyond the end of a frame, where memory may be protected. */
static void frames_are_not_read_beyond_their_end(void **state)
{
    static const struct {
        const char *name;
        int64_t width, height;
    } cases[] = {
        {"narrow.mp4", 34, 18}, {"wide.mp4", 80, 46}, {"clip.gif", 33, 17}, {"frames/", 33, 17}, {"still.png", 33, 17}};
    video_case *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f->width = cases[i].width, f->height = cases[i].height;
        const ith_video_options options = video_options(f);
        uint8_t *rgb = guarded_new(3 * f->width * f->height, 1, true);
        ith_video_writer *writer = NULL;
        assert_int_equal(ith_video_open(f->context, video_path(f, cases[i].name), &options, &writer), ITH_OK);
        video_paint(f, 0, rgb);
        assert_int_equal(ith_video_add(writer, rgb), ITH_OK);
        assert_int_equal(ith_video_finish(&writer), ITH_OK);
    }
    guarded_free_all();
}

/* Writes an mp4 of VIDEO_FRAMES frames: a ramp that moves, with noise. */
static void write_noise(video_case *f, const char *path)
{
    const ith_video_options options = video_options(f);
    const int64_t numbers = 3 * f->width * f->height;
    uint8_t *rgb = malloc((size_t)numbers);
    uint32_t random = 1;
    ith_video_writer *writer = NULL;
    assert_int_equal(ith_video_open(f->context, path, &options, &writer), ITH_OK);
    for (int frame = 0; frame < VIDEO_FRAMES; frame++) {
        for (int64_t i = 0; i < numbers; i++) {
            const int64_t x = i / 3 % f->width, y = i / 3 / f->width;
            random = random * 1664525u + 1013904223u;
            rgb[i] = (uint8_t)(((x + 3 * frame) * (i % 3 + 1) + 2 * y) / 2 % 200 + (random >> 28));
        }
        assert_int_equal(ith_video_add(writer, rgb), ITH_OK);
    }
    assert_int_equal(ith_video_finish(&writer), ITH_OK);
    free(rgb);
}

/* The same frames give the same file, whatever the memory held before: malloc fills it with another byte each time. */
static void mp4_depends_on_its_frames_alone(void **state)
{
    static const int fillings[] = {0, 1, 85, 170};
    video_case *f = *state;
    f->width = 34, f->height = 18;
    uint8_t *first = NULL;
    long bytes = 0;
    for (size_t i = 0; i < sizeof fillings / sizeof *fillings; i++) {
        mallopt(M_PERTURB, fillings[i]);
        write_noise(f, video_path(f, "clip.mp4"));
        mallopt(M_PERTURB, 0);
        bytes = i ? bytes : video_file_bytes(f->path);
        assert_int_equal(video_file_bytes(f->path), bytes);
        uint8_t *now = contents(f->path, bytes);
        if (!i)
            first = now;
        else
            assert_memory_equal(now, first, (size_t)bytes);
        if (i)
            free(now);
    }
    free(first);
}

static void gif_holds_the_frames(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    video_assert_written(f, video_path(f, "CLIP.GIF"), &options);
    assert_int_equal(temporary_count(f->folder), 1);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_int_equal(video.count, VIDEO_FRAMES);
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    for (int i = 0; i < VIDEO_FRAMES; i++) {
        assert_int_equal(video.frames[i]->format, AV_PIX_FMT_BGRA);
        video_paint(f, i, rgb);
        double sum = 0;
        for (int64_t y = 0; y < f->height; y++)
            for (int64_t x = 0; x < f->width; x++)
                for (int c = 0; c < 3; c++) {
                    const uint8_t *row = video.frames[i]->data[0] + y * video.frames[i]->linesize[0];
                    sum += pow((double)row[4 * x + 2 - c] - (double)rgb[3 * (y * f->width + x) + c], 2);
                }
        assert_true(10 * log10(255 * 255 / (sum / (double)(3 * f->width * f->height))) > 40);
    }
    free(rgb);
    assert_true(fabs((double)video.file->duration / AV_TIME_BASE - VIDEO_FRAMES / 12.0) < 0.03);
    decode_close(&video);
}

/* A frame of 256 shades of one colour takes a whole palette, so three frames of three colours need three. The files
 * grow with each frame: none is held back. */
static void every_frame_of_a_gif_has_its_own_palette(void **state)
{
    enum { SIDE = 64, COLOURS = 3 };
    video_case *f = *state;
    f->width = f->height = SIDE;
    ith_video_options options = video_options(f);
    ith_video_writer *writer = NULL;
    uint8_t rgb[COLOURS][SIDE * SIDE * 3] = {{0}};
    assert_int_equal(ith_video_open(f->context, video_path(f, "clip.gif"), &options, &writer), ITH_OK);
    for (int i = 0; i < COLOURS; i++) {
        for (int at = 0; at < SIDE * SIDE; at++)
            rgb[i][3 * at + i] = (uint8_t)(at / 16);
        assert_int_equal(ith_video_add(writer, rgb[i]), ITH_OK);
    }
    assert_int_equal(ith_video_finish(&writer), ITH_OK);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_int_equal(video.count, COLOURS);
    for (int i = 0; i < COLOURS; i++) {
        const AVFrame *frame = video.frames[i];
        bool shown[256] = {false};
        int worst = 0, opaque = 0, shades = 0;
        for (int at = 0; at < SIDE * SIDE; at++) {
            const uint8_t *pixel = frame->data[0] + at / SIDE * frame->linesize[0] + at % SIDE * 4;
            opaque += pixel[3] == 255;
            shades += !shown[pixel[2 - i]];
            shown[pixel[2 - i]] = true;
            for (int c = 0; c < 3; c++) {
                const int error = abs(pixel[2 - c] - rgb[i][3 * at + c]);
                worst = error > worst ? error : worst;
            }
        }
        print_message("frame %d: %d shades, wrong by up to %d\n", i, shades, worst);
        assert_int_equal(opaque, SIDE * SIDE);
        assert_true(shades > 200); /* a palette for all frames would leave about 85 for each */
        assert_true(worst <= 3);
    }
    decode_close(&video);
}

static void pngs_are_exact(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    video_assert_written(f, video_path(f, "new//"), &options); /* a folder that does not exist yet */
    video_assert_pngs(f, f->path, VIDEO_FRAMES);
    assert_int_equal(temporary_count(f->folder), 1);
    assert_int_equal(mkdir(video_path(f, "old"), 0777), 0);
    video_assert_written(f, f->path, &options); /* an existing folder, without '/' */
    video_assert_pngs(f, f->path, VIDEO_FRAMES);
    assert_int_equal(temporary_count(f->folder), 2);
}

/* A .png holds one frame. A second one is refused, when the video is opened or when it comes. */
static void a_png_holds_one_frame(void **state)
{
    static const char words[] = "a .png holds one frame, and the video has more";
    video_case *f = *state;
    ith_video_options options = video_options(f);
    options.frames = 1;
    assert_int_equal(video_write_frames(f, video_path(f, "frame_0000.png"), &options, 1), ITH_OK);
    video_assert_pngs(f, f->folder, 1);
    options.frames = 0;
    assert_int_equal(video_write(f, f->path, &options), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(f->context), words));
    video_assert_pngs(f, f->folder, 1); /* the old file is whole */
    options.frames = VIDEO_FRAMES;
    assert_int_equal(ith_video_check(f->context, f->path, &options), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(f->context), words));
    assert_int_equal(ith_video_check(f->context, video_path(f, "clip.gif"), &options), ITH_OK);
}

static void odd_sizes(void **state)
{
    video_case *f = *state;
    f->width = 17, f->height = 15;
    ith_video_options options = video_options(f);
    video_assert_written(f, video_path(f, "odd/"), &options);
    video_assert_pngs(f, f->path, VIDEO_FRAMES);
    video_assert_written(f, video_path(f, "odd.gif"), &options);
    assert_int_equal(video_write(f, video_path(f, "odd.mp4"), &options), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(f->context), "even"));
    f->width = 2, f->height = 2;
    options = video_options(f);
    video_assert_written(f, video_path(f, "small.mp4"), &options);
    video_assert_written(f, video_path(f, "small.gif"), &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mp4_holds_the_frames, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(chroma_lies_where_players_look_for_it, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(finishing_can_be_stopped, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(mp4_can_start_before_its_end, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(crf_and_fps_are_obeyed, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(frames_are_not_read_beyond_their_end, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(mp4_depends_on_its_frames_alone, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(gif_holds_the_frames, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(every_frame_of_a_gif_has_its_own_palette, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(pngs_are_exact, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(a_png_holds_one_frame, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(odd_sizes, video_set_up, video_tear_down),
    };
    return cmocka_run_group_tests_name("video", tests, NULL, NULL);
}
