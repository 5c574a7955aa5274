/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions that get frames a few rows at a time, compared with sums in float64. */
#include "kernels/rowops.h"
#include "kernels/unpack.h"
#include "linear/conv.h"

#include "support/engine/kinds.h"

#include "support/memory.h"
#include "support/random.h"
#include "support/stop_at.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 7;

/* A convolution with its weights, and memory for it. */
typedef struct packed_conv {
    ith_context *context;
    ith_conv conv;
    char *memory, *scratch;
} packed_conv;

static ith_status packed_open(packed_conv *p, ith_context *context, const ith_conv_shape *shape, const void *w,
                              ith_dtype type, const float *bias)
{
    *p = (packed_conv){.context = context};
    ith_status status = ith_conv_create(context, shape, &p->conv);
    if (status)
        return status;
    ith_arena arena = {0};
    for (int i = 0; i < 2; i++) {
        ith_conv_lay_out_weights(&p->conv, &arena);
        ith_conv_lay_out_rows(&p->conv, &arena);
        if (!i)
            assert_int_equal(ith_arena_allocate(context, &arena, "packed weights"), ITH_OK);
    }
    p->memory = arena.base;
    int threads = omp_get_max_threads();
    int64_t scratch = ith_conv_scratch_bytes(&p->conv, threads), packing = ith_conv_packing_bytes(&p->conv, threads);
    p->scratch = ith_alloc(context, scratch > packing ? scratch : packing, 1, "scratch");
    status = ith_conv_pack(context, &p->conv, w, type, bias, p->scratch);
    ith_conv_clear(context, &p->conv);
    return status;
}

static void packed_close(packed_conv *p)
{
    ith_free(p->context, p->memory);
    ith_free(p->context, p->scratch);
}

/* The frames that a convolution has made, and how often each pixel came. */
typedef struct made_frames {
    const ith_conv *conv;
    float *y; /* [frames][height][width][out] of the newest frames */
    int *times;
} made_frames;

static void keep_pixels(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    made_frames *f = user;
    const ith_conv_shape *s = &f->conv->shape;
    const int64_t height = ith_conv_out_height(s), width = ith_conv_out_width(s);
    const int64_t least = f->conv->slots - ith_conv_out_frames(f->conv);
    assert_true(slot >= least && slot < f->conv->slots);
    assert_true(row >= 0 && row < height && first >= 0 && count > 0 && first + count <= width);
    int64_t place = ((slot - least) * height + row) * width + first;
    memcpy(f->y + place * s->out, pixels, (size_t)(count * s->out) * sizeof *pixels);
    for (int64_t i = 0; i < count; i++)
        f->times[place + i]++;
}

/* Writes a row of the input. */
static void put_row(const packed_conv *p, int64_t slot, int64_t row, const float *x)
{
    const ith_conv_shape *s = &p->conv.shape;
    char *to = ith_conv_row(&p->conv, slot, row);
    if (ith_conv_row_type(&p->conv) == ITH_BF16)
        ith_rowops_ref.bf16_from_f32((void *)to, x, s->width * s->in);
    else
        memcpy(to, x, (size_t)(s->width * s->in) * sizeof *x);
}

/* Feeds the next frame or pair, x [frames, height, width, in], in strips of `strip` rows, and computes
 * y [frames, height, width, out]. Adds the numbers of frames of x and y to *frames and *made_count. */
static ith_status packed_run(packed_conv *p, int64_t strip, const float *x, float *y, int64_t *frames,
                             int64_t *made_count)
{
    const ith_conv_shape *s = &p->conv.shape;
    const int64_t line = s->width * s->in;
    made_frames made = {&p->conv, y, calloc((size_t)(2 * s->height * s->width), sizeof(int))};
    const ith_conv_output output = {keep_pixels, &made};
    ith_status status = ITH_OK;
    ith_conv_begin(&p->conv);
    const int64_t count = p->conv.slots - p->conv.first;
    for (int64_t row = 0; row < s->height && !status; row += strip) {
        int64_t end = row + strip < s->height ? row + strip : s->height;
        for (int64_t i = row; i < end; i++)
            for (int64_t frame = 0; frame < count; frame++)
                put_row(p, p->conv.first + frame, i, x + (frame * s->height + i) * line);
        status = ith_conv_advance(p->context, &p->conv, end, &output, p->scratch);
    }
    const int64_t pixels = ith_conv_out_frames(&p->conv) * ith_conv_out_height(s) * ith_conv_out_width(s);
    for (int64_t i = 0; !status && i < pixels; i++)
        assert_int_equal(made.times[i], 1);
    free(made.times);
    *frames += count, *made_count += ith_conv_out_frames(&p->conv);
    return status;
}

/* Feeds all frames of a video. */
static ith_status packed_run_all(packed_conv *p, int64_t strip, int64_t frames, const float *video, float *y)
{
    const ith_conv_shape *s = &p->conv.shape;
    const int64_t pixels = ith_conv_out_height(s) * ith_conv_out_width(s);
    ith_status status = ITH_OK;
    for (int64_t frame = 0, made = 0; frame < frames && !status;)
        status = packed_run(p, strip, video + frame * s->height * s->width * s->in, y + made * pixels * s->out, &frame,
                            &made);
    return status;
}

/* One number of the output of frame `last` of a video, at row y and column x of its input, and the sum of its terms
 * without signs. */
static double expected(const ith_conv_shape *s, int kind, const float *video, int64_t last, const float *w, int64_t y,
                       int64_t x, int64_t o, double *size)
{
    double sum = 0;
    for (int64_t t = 0; t < s->frames; t++)
        for (int64_t i = 0; i < s->kernel; i++)
            for (int64_t j = 0; j < s->kernel; j++) {
                int64_t row = y + i - s->kernel / 2, column = x + j - s->kernel / 2, frame = last - s->frames + 1 + t;
                if (row < 0 || row >= s->height || column < 0 || column >= s->width || frame < 0)
                    continue;
                for (int64_t c = 0; c < s->in; c++) {
                    float a = video[((frame * s->height + row) * s->width + column) * s->in + c];
                    float b = w[(((o * s->in + c) * s->frames + t) * s->kernel + i) * s->kernel + j];
                    double term = operand_value(a, kind) * operand_value(b, kind);
                    sum += term;
                    *size += fabs(term);
                }
            }
    return sum;
}

enum { VIDEO_FRAMES = 5 };

/* Random frames, weights and bias for a shape, and memory for the results. */
typedef struct numbers {
    float *video, *w, *b, *y;
    int64_t frame, made, count; /* numbers of an input frame and of an output frame; number of output frames */
} numbers;

static numbers numbers_of(const ith_conv_shape *s)
{
    numbers n = {.frame = s->height * s->width * s->in,
                 .made = ith_conv_out_height(s) * ith_conv_out_width(s) * s->out,
                 .count = s->halves_time ? VIDEO_FRAMES / 2 : VIDEO_FRAMES};
    n.video = random_floats(&seed, VIDEO_FRAMES * n.frame), n.y = random_floats(&seed, VIDEO_FRAMES * n.made);
    n.w = random_floats(&seed, s->out * s->in * s->frames * s->kernel * s->kernel), n.b = random_floats(&seed, s->out);
    return n;
}

static void numbers_free(numbers *n)
{
    free(n->video), free(n->w), free(n->b), free(n->y);
}

/* Compares the results of a shape with sums in float64. */
static void check_numbers(ith_conv_shape s, int kind, const numbers *from)
{
    const numbers n = *from;
    for (int64_t i = 0; i < n.count * n.made; i++) {
        int64_t o = i % s.out, x = i / s.out % ith_conv_out_width(&s), frame = i / n.made;
        int64_t y = i / s.out / ith_conv_out_width(&s) % ith_conv_out_height(&s);
        if (s.halves)
            x = 2 * x + 1, y = 2 * y + 1;
        if (s.halves_time)
            frame = 2 * frame + 2;
        double size = fabs((double)n.b[o]) + 1;
        double sum = (double)n.b[o] + expected(&s, kind, n.video, frame, n.w, y, x, o, &size);
        if (!(fabs(sum - (double)n.y[i]) < 1e-6 * size))
            fail_msg("%d to %d channels, %d x %d: frame %d, pixel %d, %d: %.9g, not %.9g", (int)s.in, (int)s.out,
                     (int)s.height, (int)s.width, (int)frame, (int)y, (int)x, (double)n.y[i], sum);
    }
}

static void check_shape(ith_context *context, ith_conv_shape s, int kind)
{
    s.types = operand_kinds[kind];
    numbers n = numbers_of(&s);
    packed_conv conv;
    assert_int_equal(packed_open(&conv, context, &s, n.w, ITH_F32, n.b), ITH_OK);
    int64_t peak = memory_of(context).peak_bytes;
    assert_int_equal(packed_run_all(&conv, s.strip, VIDEO_FRAMES, n.video, n.y), ITH_OK);
    check_numbers(s, kind, &n);
    assert_int_equal(memory_of(context).peak_bytes, peak);
    packed_close(&conv);
    numbers_free(&n);
}

/* Compares convolutions of many channels, depths, kernels, sizes and strips. */
static void test_against_float64(void **state)
{
    (void)state;
    static const int64_t shapes[][7] = {{16, 16, 3, 3, 9, 7, 2}, {3, 5, 3, 3, 4, 4, 4},   {16, 3, 3, 3, 8, 12, 3},
                                        {8, 32, 3, 1, 5, 6, 2},  {32, 16, 1, 3, 6, 6, 1}, {20, 24, 2, 3, 3, 5, 1},
                                        {1, 1, 3, 3, 1, 1, 1},   {64, 16, 1, 1, 2, 3, 2}, {12, 6, 3, 5, 7, 6, 2},
                                        {96, 97, 3, 3, 3, 1, 1}, {97, 96, 3, 3, 5, 2, 2}, {1, 96, 3, 3, 2, 3, 1},
                                        {3, 1, 1, 3, 7, 1, 3},   {97, 3, 3, 1, 3, 33, 1}, {1, 3, 3, 3, 1, 70, 1},
                                        {2, 2, 4, 3, 40, 2, 5},  {16, 1, 1, 5, 2, 2, 1},  {3, 16, 3, 3, 6, 291, 2},
                                        {257, 9, 3, 3, 5, 7, 2}, {290, 6, 1, 3, 3, 6, 3}, {256, 7, 3, 3, 2, 9, 2}};
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            const int64_t *n = shapes[i];
            for (int pairs = 0; pairs <= (n[2] % 2 ? 1 : 0); pairs++)
                check_shape(
                    context,
                    (ith_conv_shape){n[0], n[1], n[2], n[3], n[4], n[5], n[6], operand_kinds[kind], .pairs = pairs > 0},
                    kind);
        }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* The convolutions that the encoder halves pictures and frames with, and others that halve. */
static void halves_against_float64(void **state)
{
    (void)state;
    static const struct {
        int64_t sizes[7];
        bool space, time;
    } shapes[] = {{{16, 16, 1, 3, 8, 6, 2}, true, false}, {{16, 16, 1, 3, 9, 7, 3}, true, false},
                  {{97, 33, 1, 3, 2, 2, 1}, true, false}, {{8, 5, 1, 3, 12, 1030, 5}, true, false},
                  {{3, 1, 3, 3, 5, 4, 2}, true, false},   {{5, 20, 3, 5, 11, 13, 4}, true, false},
                  {{24, 40, 1, 1, 7, 6, 2}, true, false}, {{16, 16, 3, 1, 5, 6, 2}, false, true},
                  {{97, 33, 3, 1, 3, 3, 1}, false, true}, {{20, 24, 3, 3, 6, 5, 2}, false, true},
                  {{3, 1, 3, 3, 4, 9, 3}, false, true},   {{12, 6, 3, 3, 9, 10, 2}, true, true},
                  {{1, 1, 1, 1, 2, 3, 1}, true, true}};
    ith_context *context = NULL;
    const int threads = omp_get_max_threads();
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            const int64_t *n = shapes[i].sizes;
            ith_conv_shape s = {
                n[0], n[1], n[2], n[3], n[4], n[5], n[6], operand_kinds[kind], .halves = shapes[i].space};
            s.halves_time = shapes[i].time;
            omp_set_num_threads(1 + (int)i % 2);
            for (int pairs = s.halves_time; pairs < 2; pairs++) {
                s.pairs = pairs > 0;
                check_shape(context, s, kind);
            }
        }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    omp_set_num_threads(threads);
}

/* Gives all pixels of each square of 2 x 2 the value of its upper left pixel. */
static void double_pixels(const ith_conv_shape *s, float *video)
{
    for (int64_t row = 0; row < VIDEO_FRAMES * s->height; row++)
        for (int64_t x = 0; x < s->width; x++) {
            float *pixel = video + (row * s->width + x) * s->in;
            memcpy(pixel, video + (row / 2 * 2 * s->width + x / 2 * 2) * s->in, (size_t)s->in * sizeof *pixel);
        }
}

/* Doubled pixels make some products zero, which are left out. The results agree with float64. They keep their bits if
 * the convolution has tiles of the same width when it computes all products. */
static void doubled_pixels(void **state)
{
    (void)state;
    static const int64_t shapes[][7] = {{16, 16, 1, 3, 10, 8, 2}, {33, 20, 1, 3, 6, 290, 6}, {16, 40, 3, 3, 4, 6, 4},
                                        {3, 5, 1, 3, 2, 2, 2},    {96, 3, 1, 3, 4, 4, 2},    {24, 24, 1, 5, 8, 4, 2},
                                        {260, 20, 1, 3, 4, 6, 3}, {257, 7, 3, 3, 4, 4, 1}};
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < operand_kinds_here(context); kind++) {
            const int64_t *n = shapes[i / 2];
            ith_conv_shape s = {n[0], n[1], n[2], n[3], n[4], n[5], n[6], operand_kinds[kind], .pairs = i % 2};
            numbers x = numbers_of(&s);
            float *plain = random_floats(&seed, VIDEO_FRAMES * x.made);
            int widths[2];
            double_pixels(&s, x.video);
            for (int doubled = 0; doubled < 2; doubled++) {
                packed_conv conv;
                s.doubled = doubled > 0;
                assert_int_equal(packed_open(&conv, context, &s, x.w, ITH_F32, x.b), ITH_OK);
                assert_int_equal(packed_run_all(&conv, s.strip, VIDEO_FRAMES, x.video, doubled ? x.y : plain), ITH_OK);
                widths[doubled] = conv.conv.winograd ? conv.conv.tile_width : 0;
                packed_close(&conv);
            }
            check_numbers(s, kind, &x);
            if (widths[0] == widths[1])
                assert_memory_equal(plain, x.y, (size_t)(VIDEO_FRAMES * x.made) * sizeof(float));
            free(plain), numbers_free(&x);
        }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

/* The root mean square of the error of frames 3 and 4, divided by the root mean square of the results. */
static double relative_error(ith_context *context, ith_conv_shape s)
{
    numbers n = numbers_of(&s);
    packed_conv conv;
    double errors = 0, squares = 0, size = 0;
    assert_int_equal(packed_open(&conv, context, &s, n.w, ITH_F32, n.b), ITH_OK);
    assert_int_equal(packed_run_all(&conv, s.strip, VIDEO_FRAMES, n.video, n.y), ITH_OK);
    for (int64_t i = 3 * n.made; i < VIDEO_FRAMES * n.made; i += 7) {
        int64_t o = i % s.out, x = i / s.out % s.width, y = i / s.out / s.width % s.height;
        double sum = (double)n.b[o] + expected(&s, OPERANDS_F32, n.video, i / n.made, n.w, y, x, o, &size);
        errors += (sum - (double)n.y[i]) * (sum - (double)n.y[i]);
        squares += sum * sum;
    }
    packed_close(&conv);
    numbers_free(&n);
    return sqrt(errors / squares);
}

/* The errors at the channels of the decoder. A direct sum in f32 in blocks has 3e-7, F(2x2, 3x3) about 5e-7, and
 * F(2x2x4, 3x3x3) about 7e-7; with the points 1 and 2 instead of 5/8 and 3/2 it would have 1e-6. */
static void test_accuracy(void **state)
{
    (void)state;
    const ith_conv_shape s = {96, 96, 3, 3, 16, 16, 16, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false};
    ith_conv_shape pairs = s;
    ith_context *context = NULL;
    pairs.pairs = true;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    double plane = relative_error(context, s), joint = relative_error(context, pairs);
    print_message("relative error %.2g, of pairs %.2g\n", plane, joint);
    assert_true(plane < 7e-7);
    assert_true(joint < 9e-7);
    ith_context_destroy(&context);
}

/* The same weights, stored in another type, give the same bits. */
static void check_weight_types(ith_context *context, int kind)
{
    ith_conv_shape s = {16, 16, 3, 3, 6, 6, 2, operand_kinds[kind], .pairs = false};
    numbers n = numbers_of(&s);
    enum { WEIGHTS = 16 * 16 * 27, FRAME = 36 * 16 };
    float z[FRAME];
    uint16_t narrow[WEIGHTS];
    static const ith_dtype types[] = {ITH_BF16, ITH_F16, ITH_F8_E4M3, ITH_I8};
    for (int i = 0; i < 4; i++) {
        ith_from_f32(narrow, ITH_F16, n.w, WEIGHTS);
        if (types[i] == ITH_BF16)
            ith_from_f32(narrow, ITH_BF16, n.w, WEIGHTS);
        for (size_t k = 0; ith_unpack_has(types[i]) && k < sizeof narrow;
             k++) /* the bytes of f16 numbers serve as codes; none is NaN */
            ((unsigned char *)narrow)[k] &= 0xbf;
        ith_unpack_ref(types[i], narrow, 0, WEIGHTS, n.w);
        packed_conv wide, conv;
        assert_int_equal(packed_open(&wide, context, &s, n.w, ITH_F32, n.b), ITH_OK);
        assert_int_equal(packed_open(&conv, context, &s, narrow, types[i], n.b), ITH_OK);
        assert_int_equal(packed_run_all(&wide, 2, 1, n.video, n.y), ITH_OK);
        assert_int_equal(packed_run_all(&conv, 2, 1, n.video, z), ITH_OK);
        assert_memory_equal(n.y, z, FRAME * sizeof *z);
        packed_close(&wide);
        packed_close(&conv);
    }
    numbers_free(&n);
}

static void test_weight_types(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        check_weight_types(context, kind);
    ith_context_destroy(&context);
}

/* The bits depend neither on the number of threads nor on the strips in which rows come. */
static void check_bits(ith_context *context, ith_conv_shape s)
{
    static const int64_t strips[] = {1, 2, 3, 5, 64};
    numbers n = numbers_of(&s);
    const size_t bytes = (size_t)(n.count * n.made) * sizeof(float);
    float *first = malloc(bytes);
    for (int i = 0; i < 5; i++) {
        packed_conv conv;
        s.strip = strips[i];
        omp_set_num_threads(i + 1);
        assert_int_equal(packed_open(&conv, context, &s, n.w, ITH_F32, n.b), ITH_OK);
        assert_int_equal(packed_run_all(&conv, strips[i], VIDEO_FRAMES, n.video, n.y), ITH_OK);
        if (!i)
            memcpy(first, n.y, bytes);
        assert_memory_equal(first, n.y, bytes);
        packed_close(&conv);
    }
    free(first);
    numbers_free(&n);
}

static void test_bits(void **state)
{
    (void)state;
    ith_context *context = NULL;
    const int threads = omp_get_max_threads();
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        check_bits(context, (ith_conv_shape){17, 40, 3, 3, 23, 37, .types = operand_kinds[kind]});
        check_bits(context, (ith_conv_shape){17, 30, 3, 3, 23, 37, .types = operand_kinds[kind], .pairs = true});
        check_bits(context, (ith_conv_shape){24, 50, 3, 1, 12, 70, .types = operand_kinds[kind]});
        check_bits(context, (ith_conv_shape){33, 20, 1, 5, 13, 21, .types = operand_kinds[kind]});
        check_bits(context, (ith_conv_shape){17, 40, 1, 3, 24, 70, .types = operand_kinds[kind], .halves = true});
        check_bits(context, (ith_conv_shape){24, 50, 3, 1, 12, 33, .types = operand_kinds[kind], .pairs = true,
                                             .halves_time = true});
    }
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    omp_set_num_threads(threads);
}

/* Puts a NaN at place `at` of frame 1 or 2. In this frame and the two after it, pixels of y within 2 rows and 3 columns
 * may become NaN; no others may. */
static void check_nan(ith_context *context, ith_conv_shape s, int64_t nan_frame, int64_t at)
{
    numbers n = numbers_of(&s);
    packed_conv conv;
    float *clean = random_floats(&seed, VIDEO_FRAMES * n.made);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(packed_open(&conv, context, &s, n.w, ITH_F32, n.b), ITH_OK);
        assert_int_equal(packed_run_all(&conv, 3, VIDEO_FRAMES, n.video, i ? n.y : clean), ITH_OK);
        packed_close(&conv);
        n.video[nan_frame * n.frame + at * s.in + 2] = NAN;
    }
    for (int64_t i = 0; i < VIDEO_FRAMES * n.made; i++) {
        int64_t pixel = i % n.made / s.out, frame = i / n.made;
        int64_t down = llabs(pixel / s.width - at / s.width), across = llabs(pixel % s.width - at % s.width);
        bool reads = frame >= nan_frame && frame < nan_frame + s.frames;
        if (reads && down <= 1 && across <= 1)
            assert_true(isnan(n.y[i]));
        if (!reads || down > 2 || across > 3)
            assert_true(n.y[i] == clean[i]);
    }
    free(clean);
    numbers_free(&n);
}

static void test_nan(void **state)
{
    (void)state;
    ith_context *context = NULL;
    static const int64_t channels[][2] = {{5, 4}, {5, 20}, {257, 6}}; /* with and without tiles of each width */
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int i = 0; i < 6; i++) {
        const int64_t *n = channels[i / 2];
        const ith_conv_shape s = {n[0], n[1], 3, 3, 12, 13, 3, {ITH_F32, ITH_F32, ITH_F32}, .pairs = i % 2};
        for (int64_t at = 0; at < s.height * s.width; at += n[0] < 100 ? 11 : 50)
            for (int64_t frame = 1; frame <= 2; frame++)
                check_nan(context, s, frame, at);
    }
    ith_context_destroy(&context);
}

static void test_interruption(void **state)
{
    (void)state;
    ith_context *context = NULL;
    const ith_conv_shape s = {8, 8, 3, 3, 16, 16, 16, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false};
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    numbers n = numbers_of(&s);
    packed_conv conv;
    assert_int_equal(packed_open(&conv, context, &s, n.w, ITH_F32, n.b), ITH_OK);
    ith_context_interrupt(context);
    assert_int_equal(packed_run_all(&conv, 16, 1, n.video, n.y), ITH_ERR_INTERRUPTED);
    assert_int_equal(ith_conv_pack(context, &conv.conv, n.w, ITH_F32, n.b, conv.scratch), ITH_ERR_INTERRUPTED);
    ith_context_end_interruption(context);
    packed_close(&conv);
    numbers_free(&n);
    ith_context_destroy(&context);
}

/* The pixels that a convolution has made, and the number of calls of should_stop before the first of them. */
typedef struct stopped_output {
    int64_t pixels;
    int questions;
} stopped_output;

static void count_pixels(void *user, int64_t slot, int64_t row, int64_t first, int64_t count, const float *pixels)
{
    stopped_output *o = user;
    (void)slot, (void)row, (void)first, (void)pixels;
    assert_false(stop_was_told());
    if (!o->pixels)
        o->questions = stop_questions();
    o->pixels += count;
}

/* Computes a convolution of one frame, which stops at call number n of should_stop, or at none if n is 0. */
static ith_status advance_until(packed_conv *conv, int n, stopped_output *made)
{
    const ith_conv_output output = {count_pixels, made};
    *made = (stopped_output){0};
    ith_conv_clear(conv->context, &conv->conv);
    ith_conv_begin(&conv->conv);
    stop_at(n);
    const ith_status status =
        ith_conv_advance(conv->context, &conv->conv, conv->conv.shape.height, &output, conv->scratch);
    return status;
}

/* A stop ends a block of pixels while it is computed, with tiles and without. A block calls should_stop more than once,
 * and makes no pixel after it returned true. */
static void test_stop_in_a_block(void **state)
{
    (void)state;
    ith_context *context = NULL;
    const int threads = omp_get_max_threads();
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    omp_set_num_threads(1);
    for (int wide = 0; wide < 2; wide++) {
        const ith_conv_shape s = {8, wide ? 40 : 4, 3, 3, 24, 24, 24, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false};
        numbers n = numbers_of(&s);
        packed_conv conv;
        stopped_output made;
        assert_int_equal(packed_open(&conv, context, &s, n.w, ITH_F32, n.b), ITH_OK);
        assert_int_equal(advance_until(&conv, 0, &made), ITH_OK);
        assert_int_equal(made.pixels, s.height * s.width);
        const int all = stop_questions();
        assert_true(made.questions > 3);
        for (int i = 1; i <= all; i++) {
            assert_int_equal(advance_until(&conv, i, &made), ITH_ERR_INTERRUPTED);
            assert_true(made.pixels < s.height * s.width || i == all);
        }
        stop_at(0);
        conv.conv.rows[0] = 77;
        stop_at(1);
        ith_conv_clear(context, &conv.conv);
        assert_int_equal(conv.conv.rows[0], 77);
        stop_at(0);
        packed_close(&conv);
        numbers_free(&n);
    }
    omp_set_num_threads(threads);
    ith_context_destroy(&context);
}

static void test_refusals(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    float w[9] = {0}, b[1] = {0};
    packed_conv conv;
    const ith_conv_shape bad[] = {
        {1, 1, 1, 2, 3, 3, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false},
        {1, 1, 1, 3, 0, 3, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false},
        {1, 1, 1, 3, 3, 3, 0, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false},
        {1, 1, 1, 3, 3, 3, 1, {ITH_F32, ITH_F32, ITH_DTYPE_NONE}, .pairs = false},
        {1, 1, 1, INT64_MAX, 3, 3, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false},
        {1, 1, 2, 3, 3, 3, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = true},
        {1, 1, 1, 3, 1, 4, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false, .halves = true},
        {1, 1, 1, 3, 4, 1, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false, .halves = true},
        {1, 1, 3, 1, 4, 4, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false, .halves_time = true},
        {1, 1, 1, 3, 4, 5, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false, .doubled = true},
        {1, 1, 1, 3, 5, 4, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false, .doubled = true},
        {INT32_MAX, 1, 1, 3, 3, INT32_MAX, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false}};
    const ith_conv_shape good = {1, 1, 1, 3, 3, 3, 1, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(packed_open(&conv, context, &bad[i], w, ITH_F32, b), ITH_ERR_ARGUMENT);
    assert_int_equal(packed_open(&conv, context, &good, w, ITH_I32, b), ITH_ERR_ARGUMENT);
    packed_close(&conv);
    assert_int_equal(packed_open(&conv, context, &good, w, ITH_F32, b), ITH_OK);
    const ith_conv_output output = {keep_pixels, NULL};
    ith_conv_begin(&conv.conv);
    assert_int_equal(ith_conv_advance(context, &conv.conv, 4, &output, conv.scratch), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_conv_advance(context, &conv.conv, 1, &output, conv.scratch), ITH_OK);
    assert_int_equal(ith_conv_advance(context, &conv.conv, 0, &output, conv.scratch), ITH_ERR_ARGUMENT);
    packed_close(&conv);
    const ith_conv_shape endless = {1, 1, 1, 3, 3, 3, INT64_MAX, {ITH_F32, ITH_F32, ITH_F32}, .pairs = false};
    assert_int_equal(packed_open(&conv, context, &endless, w, ITH_F32, b), ITH_OK);
    packed_close(&conv);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_float64), cmocka_unit_test(halves_against_float64),
                                       cmocka_unit_test(test_accuracy),        cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_weight_types),    cmocka_unit_test(test_nan),
                                       cmocka_unit_test(doubled_pixels),       cmocka_unit_test(test_interruption),
                                       cmocka_unit_test(test_stop_in_a_block), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
