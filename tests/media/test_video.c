/* SPDX-License-Identifier: Apache-2.0 */
/* Videos are read back with libav's decoders and compared with the frames that were written. Colours are compared with
 * BT.709, computed here from ITU-R's definition. */
#include "media/media.h"
#include "support/engine/decode.h"
#include "support/guarded.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FRAMES 9

typedef struct fixture {
    ith_context *context;
    char *folder, path[320]; /* path: a name of up to 255 bytes in the folder */
    int64_t width, height;
    char last_log[256];
} fixture;

static void keep_log(void *user, ith_log_level level, const char *line)
{
    fixture *f = user;
    (void)level;
    snprintf(f->last_log, sizeof f->last_log, "%s", line);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.log = keep_log, options.log_user = f;
    f->folder = temporary_folder();
    f->width = 64, f->height = 48;
    *state = f;
    return ith_context_create(&options, &f->context);
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ith_context_destroy(&f->context);
    temporary_remove(f->folder);
    free(f);
    return 0;
}

static const char *in_folder(fixture *f, const char *name)
{
    snprintf(f->path, sizeof f->path, "%s/%s", f->folder, name);
    return f->path;
}

/* Four patches above a ramp of greys: red, green, blue and white; a dark square walks over the ramp. */
static void paint(const fixture *f, int index, uint8_t *rgb)
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

static ith_video_options options_for(const fixture *f)
{
    return (ith_video_options){f->width, f->height, 12, 4, "A red \"circle\", ünïcode", "seed 42; steps 16", NULL};
}

/* Writes FRAMES frames. Returns the first failure. */
static ith_status write_video(fixture *f, const char *path, const ith_video_options *options)
{
    ith_video_writer *writer = NULL;
    ith_status status = ith_video_open(f->context, path, options, &writer);
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    for (int i = 0; !status && i < FRAMES; i++) {
        paint(f, i, rgb);
        status = ith_video_add(writer, rgb);
    }
    free(rgb);
    if (!status)
        return ith_video_finish(&writer);
    ith_video_discard(&writer);
    assert_null(writer);
    return status;
}

static void assert_written(fixture *f, const char *path, const ith_video_options *options)
{
    ith_status status = write_video(f, path, options);
    if (status)
        fail_msg("%s", ith_context_error(f->context));
}

static double bt709(int plane, double r, double g, double b)
{
    double y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    if (plane == 0)
        return 16 + 219.0 / 255 * y;
    return 128 + 224.0 / 255 * (plane == 1 ? (b - y) / 1.8556 : (r - y) / 1.5748);
}

/* The mean square error of a plane, compared with the painted frame in BT.709 with chroma averaged over 2 x 2 pixels.
 * */
static double plane_error(const fixture *f, const AVFrame *frame, int index, int plane)
{
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    paint(f, index, rgb);
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

static void assert_patches(const fixture *f, const AVFrame *frame)
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
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_written(f, in_folder(f, "clip.mp4"), &options);
    assert_int_equal(temporary_count(f->folder), 1);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_int_equal(video.count, FRAMES);
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(video.frames[i]->format, AV_PIX_FMT_YUV420P);
        assert_patches(f, video.frames[i]);
        assert_true(10 * log10(255 * 255 / plane_error(f, video.frames[i], i, 0)) > 40);
        assert_true(10 * log10(255 * 255 / plane_error(f, video.frames[i], i, 1)) > 25);
        assert_true(10 * log10(255 * 255 / plane_error(f, video.frames[i], i, 2)) > 25);
    }
    const AVStream *track = video.file->streams[0];
    assert_true(fabs(av_q2d(track->avg_frame_rate) - 12) < 1e-6);
    assert_true(fabs((double)video.file->duration / AV_TIME_BASE - FRAMES / 12.0) < 0.01);
    assert_int_equal(track->codecpar->color_space, AVCOL_SPC_BT709);
    assert_int_equal(track->codecpar->color_primaries, AVCOL_PRI_BT709);
    assert_int_equal(track->codecpar->color_trc, AVCOL_TRC_BT709);
    assert_int_equal(track->codecpar->color_range, AVCOL_RANGE_MPEG);
    assert_true(av_q2d(track->codecpar->sample_aspect_ratio) == 1);
    assert_string_equal(av_dict_get(video.file->metadata, "title", NULL, 0)->value, options.title);
    assert_string_equal(av_dict_get(video.file->metadata, "comment", NULL, 0)->value, options.comment);
    decode_close(&video);
}

/* The mean difference of Cr from that of a ramp of reds, 8 more for each pixel to the right or downwards, whose value
 * at chroma sample 0 is `at_first`. Samples 2 to 12 lie within the ramp. */
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
    fixture *f = *state;
    ith_video_options options = options_for(f);
    ith_video_writer *writer = NULL;
    uint8_t rgb[2][48 * 64 * 3] = {{0}};
    options.crf = 1;
    for (int at = 0; at < 48 * 64; at++) {
        const int x = at % 64, y = at / 64;
        rgb[0][3 * at] = (uint8_t)(8 * (x < 31 ? x : 31));
        rgb[1][3 * at] = (uint8_t)(8 * (y < 31 ? y : 31));
    }
    assert_int_equal(ith_video_open(f->context, in_folder(f, "clip.mp4"), &options, &writer), ITH_OK);
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
    fixture *f = *state;
    ith_video_options options = options_for(f);
    options.should_stop = should_stop;
    for (int i = 0; i < 2; i++) {
        stopped = false;
        assert_written(f, in_folder(f, names[i]), &options);
        assert_int_equal(unlink(f->path), 0);
        stopped = true;
        assert_int_equal(write_video(f, f->path, &options), ITH_ERR_INTERRUPTED);
        assert_non_null(strstr(ith_context_error(f->context), "was not finished"));
        assert_int_equal(temporary_count(f->folder), 0);
    }
}

/* The order of the outer boxes of the file. */
static void mp4_can_start_before_its_end(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_written(f, in_folder(f, "clip.mp4"), &options);
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

static long file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) ? -1 : (long)info.st_size;
}

static void crf_and_fps_are_obeyed(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    options.fps = 24000.0 / 1001;
    assert_written(f, in_folder(f, "clip.mp4"), &options);
    long good = file_bytes(f->path);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_true(fabs(av_q2d(video.file->streams[0]->avg_frame_rate) - options.fps) < 1e-3);
    decode_close(&video);
    options.crf = 45;
    assert_written(f, f->path, &options); /* replaces the earlier file */
    assert_true(file_bytes(f->path) < good);
}

/* No format reads beyond the end of a frame, where memory may be protected. */
static void frames_are_not_read_beyond_their_end(void **state)
{
    static const struct {
        const char *name;
        int64_t width, height;
    } cases[] = {{"narrow.mp4", 34, 18}, {"wide.mp4", 80, 46}, {"clip.gif", 33, 17}, {"frames/", 33, 17}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f->width = cases[i].width, f->height = cases[i].height;
        const ith_video_options options = options_for(f);
        uint8_t *rgb = guarded_new(3 * f->width * f->height, 1, true);
        ith_video_writer *writer = NULL;
        assert_int_equal(ith_video_open(f->context, in_folder(f, cases[i].name), &options, &writer), ITH_OK);
        paint(f, 0, rgb);
        assert_int_equal(ith_video_add(writer, rgb), ITH_OK);
        assert_int_equal(ith_video_finish(&writer), ITH_OK);
    }
    guarded_free_all();
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

/* Writes an mp4 of FRAMES frames: a ramp that moves, with noise. */
static void write_noise(fixture *f, const char *path)
{
    const ith_video_options options = options_for(f);
    const int64_t numbers = 3 * f->width * f->height;
    uint8_t *rgb = malloc((size_t)numbers);
    uint32_t random = 1;
    ith_video_writer *writer = NULL;
    assert_int_equal(ith_video_open(f->context, path, &options, &writer), ITH_OK);
    for (int frame = 0; frame < FRAMES; frame++) {
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
    fixture *f = *state;
    f->width = 34, f->height = 18;
    uint8_t *first = NULL;
    long bytes = 0;
    for (size_t i = 0; i < sizeof fillings / sizeof *fillings; i++) {
        mallopt(M_PERTURB, fillings[i]);
        write_noise(f, in_folder(f, "clip.mp4"));
        mallopt(M_PERTURB, 0);
        bytes = i ? bytes : file_bytes(f->path);
        assert_int_equal(file_bytes(f->path), bytes);
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
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_written(f, in_folder(f, "CLIP.GIF"), &options);
    assert_int_equal(temporary_count(f->folder), 1);
    decoded video;
    assert_true(decode_open(&video, f->path));
    assert_int_equal(video.count, FRAMES);
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(video.frames[i]->format, AV_PIX_FMT_BGRA);
        paint(f, i, rgb);
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
    assert_true(fabs((double)video.file->duration / AV_TIME_BASE - FRAMES / 12.0) < 0.03);
    decode_close(&video);
}

/* A frame of 256 shades of one colour takes a whole palette, so three frames of three colours need three. The files
 * grow with each frame: none is held back. */
static void every_frame_of_a_gif_has_its_own_palette(void **state)
{
    enum { SIDE = 64, COLOURS = 3 };
    fixture *f = *state;
    f->width = f->height = SIDE;
    ith_video_options options = options_for(f);
    ith_video_writer *writer = NULL;
    uint8_t rgb[COLOURS][SIDE * SIDE * 3] = {{0}};
    assert_int_equal(ith_video_open(f->context, in_folder(f, "clip.gif"), &options, &writer), ITH_OK);
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
        int worst = 0, opaque = 0;
        for (int at = 0; at < SIDE * SIDE; at++) {
            const uint8_t *pixel = frame->data[0] + at / SIDE * frame->linesize[0] + at % SIDE * 4;
            opaque += pixel[3] == 255;
            for (int c = 0; c < 3; c++) {
                const int error = abs(pixel[2 - c] - rgb[i][3 * at + c]);
                worst = error > worst ? error : worst;
            }
        }
        print_message("frame %d: %d\n", i, worst);
        assert_int_equal(opaque, SIDE * SIDE);
        assert_true(worst <= 2);
    }
    decode_close(&video);
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

static void assert_pngs(fixture *f, const char *folder)
{
    assert_int_equal(temporary_count(folder), FRAMES);
    uint8_t *rgb = malloc((size_t)(3 * f->width * f->height));
    for (int i = 0; i < FRAMES; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/frame_%04d.png", folder, i);
        decoded picture;
        assert_true(decode_open(&picture, path));
        assert_int_equal(picture.count, 1);
        assert_true(holds_chunk(path, "sRGB"));
        assert_int_equal(picture.frames[0]->format, AV_PIX_FMT_RGB24);
        assert_int_equal(picture.frames[0]->width, f->width);
        assert_int_equal(picture.frames[0]->height, f->height);
        paint(f, i, rgb);
        for (int64_t y = 0; y < f->height; y++)
            assert_memory_equal(picture.frames[0]->data[0] + y * picture.frames[0]->linesize[0], rgb + 3 * y * f->width,
                                (size_t)(3 * f->width));
        decode_close(&picture);
    }
    free(rgb);
}

static void pngs_are_exact(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_written(f, in_folder(f, "new//"), &options); /* a folder that does not exist yet */
    assert_pngs(f, f->path);
    assert_int_equal(temporary_count(f->folder), 1);
    assert_int_equal(mkdir(in_folder(f, "old"), 0777), 0);
    assert_written(f, f->path, &options); /* an existing folder, without '/' */
    assert_pngs(f, f->path);
    assert_int_equal(temporary_count(f->folder), 2);
}

static void odd_sizes(void **state)
{
    fixture *f = *state;
    f->width = 17, f->height = 15;
    ith_video_options options = options_for(f);
    assert_written(f, in_folder(f, "odd/"), &options);
    assert_pngs(f, f->path);
    assert_written(f, in_folder(f, "odd.gif"), &options);
    assert_int_equal(write_video(f, in_folder(f, "odd.mp4"), &options), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(f->context), "even"));
    f->width = 2, f->height = 2;
    options = options_for(f);
    assert_written(f, in_folder(f, "small.mp4"), &options);
    assert_written(f, in_folder(f, "small.gif"), &options);
}

/* Fails with a sentence that names the path and has the words in it. */
static void assert_refused(fixture *f, const char *path, const ith_video_options *options, ith_status status,
                           const char *words)
{
    assert_int_equal(ith_video_check(f->context, path, options), status);
    assert_non_null(strstr(ith_context_error(f->context), words));
    assert_non_null(strstr(ith_context_error(f->context), path));
}

static void names_that_cannot_be_written(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_refused(f, in_folder(f, "clip.avi"), &options, ITH_ERR_ARGUMENT, ".mp4");
    assert_refused(f, in_folder(f, ".mp4"), &options, ITH_ERR_ARGUMENT, "no known kind");
    assert_refused(f, "", &options, ITH_ERR_ARGUMENT, "no known kind");
    assert_refused(f, in_folder(f, "none/clip.mp4"), &options, ITH_ERR_IO, "folder does not exist");
    assert_refused(f, in_folder(f, "none/frames/"), &options, ITH_ERR_IO, "folder does not exist");
    assert_refused(f, "/dev/full/clip.mp4", &options, ITH_ERR_IO, "Not a directory");
    assert_refused(f, "//", &options, ITH_ERR_ARGUMENT, "root folder");
    assert_refused(f, "/proc/clip.gif", &options, ITH_ERR_IO, "cannot be written");
    assert_int_equal(symlink("/dev/full", in_folder(f, "full.mp4")), 0);
    assert_refused(f, f->path, &options, ITH_ERR_IO, "not an ordinary file");
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(ith_video_check_path(f->context, in_folder(f, "clip.mp4")), ITH_OK);
    assert_int_equal(ith_video_check_path(f->context, in_folder(f, "frames/")), ITH_OK);
    assert_int_equal(ith_video_check_path(f->context, in_folder(f, "clip.mpeg")), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_video_check(f->context, in_folder(f, "clip.mp4"), &options), ITH_OK);
    assert_int_equal(temporary_count(f->folder), 0);
}

static void options_that_make_no_video(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    options.fps = NAN;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "frames a second");
    options.fps = 0.0099;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "frames a second");
    options.fps = 1001;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "frames a second");
    options.fps = 200;
    assert_refused(f, in_folder(f, "clip.gif"), &options, ITH_ERR_ARGUMENT, "at most 100");
    options.fps = 100;
    assert_int_equal(write_video(f, in_folder(f, "clip.gif"), &options), ITH_OK);
    unlink(f->path);
    options = options_for(f), options.crf = 52;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "crf");
    options = options_for(f), options.width = INT64_MAX;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "pixels");
    options = options_for(f), options.height = 16386;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "pixels is not between");
    options = options_for(f), options.width = 16386;
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "pixels is not between");
    f->height = 15;
    options = options_for(f);
    assert_refused(f, in_folder(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "even width and height");
    f->height = 48;
    options.width = options.height = 16384;
    assert_refused(f, in_folder(f, "clip.gif"), &options, ITH_ERR_ARGUMENT, "not 16384 x 16384");
    assert_refused(f, in_folder(f, "clip/"), &options, ITH_ERR_ARGUMENT, "not 16384 x 16384");
    options = options_for(f), options.width = 0;
    assert_refused(f, in_folder(f, "clip/"), &options, ITH_ERR_ARGUMENT, "pixels");
    ith_video_writer *writer = NULL;
    options = options_for(f);
    assert_int_equal(ith_video_open(f->context, in_folder(f, "clip.mp4"), &options, &writer), ITH_OK);
    assert_int_equal(ith_video_finish(&writer), ITH_ERR_ARGUMENT); /* without a frame */
    assert_null(writer);
    ith_video_discard(&writer);
    ith_video_discard(NULL);
    assert_int_equal(temporary_count(f->folder), 0);
}

static void frames_of_others_are_kept(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_int_equal(mkdir(in_folder(f, "frames"), 0777), 0);
    fclose(fopen(in_folder(f, "frames/notes.txt"), "w"));
    assert_written(f, in_folder(f, "frames/"), &options); /* other files in the folder do not matter */
    assert_int_equal(temporary_count(f->path), FRAMES + 1);
    assert_refused(f, f->path, &options, ITH_ERR_IO, "already holds frames");
    assert_int_equal(temporary_count(f->path), FRAMES + 1);
    assert_refused(f, in_folder(f, "frames/notes.txt/"), &options, ITH_ERR_IO, "a file, not a folder");
}

/* A folder with other files is refused if it is named without '/', because the name may be a mistake; with '/' it is
 * taken. */
static void a_folder_named_by_mistake_is_refused(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_int_equal(mkdir(in_folder(f, "models"), 0777), 0);
    fclose(fopen(in_folder(f, "models/.hidden"), "w"));
    assert_refused(f, in_folder(f, "models"), &options, ITH_ERR_IO, "models/' writes frames");
    assert_int_equal(ith_video_check_path(f->context, f->path), ITH_ERR_IO);
    assert_int_equal(temporary_count(f->path), 1);
    assert_written(f, in_folder(f, "models/"), &options);
    assert_int_equal(temporary_count(f->path), FRAMES + 1);
}

/* If an output is a link, the file behind it is written, whether it exists or not, and the link stays. */
static void links_are_followed(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "frames/"};
    fixture *f = *state;
    ith_video_options options = options_for(f);
    struct stat info;
    assert_int_equal(mkdir(in_folder(f, "far"), 0777), 0);
    for (int i = 0; i < 3; i++) {
        char link[32], target[32];
        snprintf(link, sizeof link, "%.*s", (int)strcspn(names[i], "/"), names[i]);
        snprintf(target, sizeof target, "far/%s", names[i]);
        assert_int_equal(symlink(target, in_folder(f, link)), 0);
        assert_written(f, in_folder(f, names[i]), &options);
        assert_int_equal(lstat(in_folder(f, link), &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(temporary_count(in_folder(f, "far")), i + 1);
    }
}

static void the_longest_name_will_do(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    char name[256];
    memset(name, 'n', sizeof name);
    strcpy(name + sizeof name - 5, ".mp4");
    assert_written(f, in_folder(f, name), &options);
    strcpy(name + sizeof name - 2, "/");
    assert_written(f, in_folder(f, name), &options);
    assert_int_equal(temporary_count(f->folder), 2);
}

/* A path that the system cannot take is not cut to one that it can: the first 4095 bytes of this one name clip.mp4. */
static void a_path_that_is_too_long_is_refused(void **state)
{
    static const char last[] = "x.mp4";
    fixture *f = *state;
    ith_video_options options = options_for(f);
    static char path[PATH_MAX + sizeof last];
    const char *first = in_folder(f, "clip.mp4");
    memset(path, '/', PATH_MAX);
    memcpy(path, first, strlen(first));
    memcpy(path + PATH_MAX, last, sizeof last);
    assert_int_equal(write_video(f, path, &options), ITH_ERR_IO);
    assert_int_equal(temporary_count(f->folder), 0);
}

/* A folder that exists may be a mount point, so its frames are made in it, where they can be renamed. */
static void frames_are_made_in_the_folder_that_exists(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    ith_video_writer *writer = NULL;
    assert_int_equal(mkdir(in_folder(f, "old"), 0777), 0);
    assert_int_equal(ith_video_open(f->context, f->path, &options, &writer), ITH_OK);
    assert_int_equal(temporary_count(f->folder), 1);
    assert_int_equal(temporary_count(f->path), 1);
    ith_video_discard(&writer);
    assert_int_equal(temporary_count(f->path), 0);
}

/* A limit on the size of files takes the place of a full disk: write fails in the middle of the file, too. */
static void full_disk(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"clip.mp4", "clip.gif", "clip/"};
    ith_video_options options = options_for(f);
    struct rlimit limit, old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (rlim_t bytes = 0; bytes < 500; bytes += 100) {
            limit = (struct rlimit){bytes, old.rlim_max};
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
            ith_status status = write_video(f, in_folder(f, names[i]), &options);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
            if (i == 2 && !status)
                break; /* the PNGs are smaller than the limit */
            assert_int_equal(status, ITH_ERR_IO);
            assert_non_null(strstr(ith_context_error(f->context), strerror(EFBIG)));
            assert_int_equal(temporary_count(f->folder), 0);
        }
    }
}

static void a_failure_keeps_the_old_file(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_written(f, in_folder(f, "clip.mp4"), &options);
    long before = file_bytes(f->path);
    assert_int_equal(symlink("clip.mp4", in_folder(f, "link.mp4")), 0);
    ith_video_writer *writer = NULL;
    assert_int_equal(ith_video_open(f->context, f->path, &options, &writer), ITH_OK);
    assert_int_equal(temporary_count(f->folder), 3);
    ith_video_discard(&writer);
    assert_int_equal(temporary_count(f->folder), 2);
    assert_int_equal(file_bytes(in_folder(f, "clip.mp4")), before);
    options.crf = 40;
    assert_written(f, in_folder(f, "link.mp4"), &options); /* through the link, which stays */
    assert_true(file_bytes(in_folder(f, "clip.mp4")) < before);
    assert_int_equal(temporary_count(f->folder), 2);
}

typedef struct trial {
    fixture *fixture;
    const char *name;
    int entries; /* number of entries in the folder before the video */
} trial;

static ith_status write_one(ith_context *poor, void *user)
{
    trial *t = user;
    fixture f = *t->fixture;
    f.context = poor;
    ith_video_options video = options_for(&f);
    ith_status status = write_video(&f, in_folder(&f, t->name), &video);
    assert_int_equal(temporary_count(f.folder), t->entries + (status ? 0 : 1));
    return status;
}

static int syncs, sync_error;
static const char *sync_path; /* a file that must not exist yet while the new file is flushed to the disk */

int __real_fsync(int file);
int __wrap_fsync(int file);
int __wrap_fsync(int file)
{
    if (sync_path)
        assert_true(access(sync_path, F_OK) != 0);
    syncs++;
    errno = sync_error;
    return sync_error ? -1 : __real_fsync(file);
}

/* A disk may refuse the data only in fsync. */
static void videos_reach_the_disk_before_they_have_their_name(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "frames/"};
    fixture *f = *state;
    const ith_video_options options = options_for(f);
    for (int i = 0; i < 3; i++) {
        sync_path = in_folder(f, names[i]), sync_error = ENOSPC;
        assert_int_equal(write_video(f, sync_path, &options), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(f->context), strerror(ENOSPC)));
        assert_true(access(sync_path, F_OK) != 0);
        syncs = sync_error = 0;
        assert_int_equal(write_video(f, sync_path, &options), ITH_OK);
        assert_true(syncs > 0);
        assert_int_equal(access(sync_path, F_OK), 0);
    }
    sync_path = NULL;
}

static size_t most_written; /* the most bytes that one call of write takes; 0: all */
static int close_error;

ssize_t __real_write(int file, const void *data, size_t bytes);
ssize_t __wrap_write(int file, const void *data, size_t bytes);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    static int calls;
    if (most_written && calls++ % 3 == 1) {
        errno = EINTR;
        return -1;
    }
    return __real_write(file, data, most_written && most_written < bytes ? most_written : bytes);
}

int __real_close(int file);
int __wrap_close(int file);
int __wrap_close(int file)
{
    const int result = __real_close(file);
    if (!close_error)
        return result;
    errno = close_error;
    return -1;
}

/* A system may take a part of the bytes at a time, be interrupted by a signal, and report a full disk only in close. */
static void frames_are_written_whole(void **state)
{
    fixture *f = *state;
    ith_video_options options = options_for(f);
    most_written = 100;
    assert_written(f, in_folder(f, "frames/"), &options);
    most_written = 0;
    assert_pngs(f, f->path);
    close_error = ENOSPC;
    const ith_status status = write_video(f, in_folder(f, "others/"), &options);
    close_error = 0;
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(f->context), strerror(ENOSPC)));
    assert_int_equal(temporary_count(f->folder), 1);
}

static void no_descriptor_stays_open(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "new/", "old", "none/clip.gif"};
    fixture *f = *state;
    ith_video_options options = options_for(f);
    assert_int_equal(mkdir(in_folder(f, "old"), 0777), 0);
    assert_written(f, in_folder(f, "first.mp4"), &options); /* libav may keep some of its own */
    const int before = temporary_count("/proc/self/fd");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(write_video(f, in_folder(f, names[i]), &options), i < 4 ? ITH_OK : ITH_ERR_IO);
        assert_int_equal(temporary_count("/proc/self/fd"), before);
    }
}

static void every_allocation_may_fail(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "clip/"};
    for (int i = 0; i < 3; i++) {
        trial t = {*state, names[i], i};
        assert_true(refuse_every_allocation(write_one, &t, 1) > 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(mp4_holds_the_frames, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chroma_lies_where_players_look_for_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(finishing_can_be_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mp4_can_start_before_its_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(crf_and_fps_are_obeyed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mp4_depends_on_its_frames_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(frames_are_not_read_beyond_their_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gif_holds_the_frames, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_frame_of_a_gif_has_its_own_palette, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pngs_are_exact, set_up, tear_down),
        cmocka_unit_test_setup_teardown(odd_sizes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_that_cannot_be_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(options_that_make_no_video, set_up, tear_down),
        cmocka_unit_test_setup_teardown(frames_of_others_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_named_by_mistake_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_are_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_longest_name_will_do, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_path_that_is_too_long_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(frames_are_made_in_the_folder_that_exists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_keeps_the_old_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(videos_reach_the_disk_before_they_have_their_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(frames_are_written_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_descriptor_stays_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("video", tests, NULL, NULL);
}
