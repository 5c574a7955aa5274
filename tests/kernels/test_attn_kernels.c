/* SPDX-License-Identifier: Apache-2.0 */
/* Compares every attention kernel of the table that this machine runs, with every softmax that it supports, with
 * float64 and with a plain computation in the same type: sizes at and around the tiles, extreme logits, masks, packing
 * in pieces, several KV blocks. ITHACA_KERNEL_STEP=3 takes a third of the sizes, of the head sizes with each type and
 * of the tiles, and half of the random problems, for machines that are emulated. */
#include "base/dtype.h"
#include "base/size.h"
#include "support/kernel_problem.h"
#include "support/machine.h"
#include "support/random.h"
#include "support/subnormal.h"

#include <float.h>
#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A kernel and a softmax that are tested. */
typedef struct subject {
    const ith_attn_kernel *kernel;
    ith_softmax softmax;
} subject;

static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const ith_mask masks[] = {ITH_MASK_NONE, ITH_MASK_BOOL, ITH_MASK_ADDITIVE};
enum { MASKS = sizeof masks / sizeof *masks };

/* 1 if all problems are wanted. */
static int wanted_step(void)
{
    const char *wanted = getenv("ITHACA_KERNEL_STEP");
    return wanted && atoi(wanted) > 1 ? atoi(wanted) : 1;
}

static bool takes(const subject *s, ith_dtype dtype, int64_t D)
{
    return s->kernel->supports(dtype, D, s->softmax);
}

/* Compares the kernel's result with float64. Does nothing if the kernel does not take the problem. */
static void check(const subject *s, problem *p, double bound)
{
    if (!takes(s, p->dtype, p->D))
        return;
    set_softmax(p, s->softmax);
    check_accuracy(s->kernel, p, bound);
}

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

static void sizes_around_tiles(const subject *s)
{
    ith_attn_tile_limits limits = s->kernel->tiles(8);
    int64_t block = limits.best.block_q, step = limits.step.block_q, tile = limits.best.block_kv_compute_in;
    int64_t rows[] = {0, 1, 2, step - 1, step, step + 1, 2 * step, 13, block - 1, block, block + 1, 2 * block + 1};
    int64_t compute = limits.best.block_kv_compute;
    int64_t keys[] = {
        0,  1,  7,  8,        9,    15,       16,       17,          31,      32,          33,
        63, 64, 65, tile - 1, tile, tile + 1, 3 * tile, compute - 1, compute, compute + 1, 2 * compute + 3};
    const size_t step_of_pairs = (size_t)wanted_step();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
            if ((i + 2 * j) % step_of_pairs) /* the others have each number of rows and of keys, and each type */
                continue;
            problem p = make_problem(s->kernel, dtypes[(i + j) % DTYPES], rows[i], keys[j],
                                     random_between(&random_state, 1, 12), 2.0f);
            check(s, &p, bound_of(p.dtype));
            free_problem(&p);
        }
}

static void head_sizes(const subject *s)
{
    static const int64_t dims[] = {1,  2,  3,  8,  15, 16,  17,  24,  31,  32,  33,  40,  48,  63,
                                   64, 65, 72, 80, 96, 100, 127, 128, 129, 160, 192, 255, 256, 300};
    const size_t step = (size_t)wanted_step();
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t t = 0; t < DTYPES; t++) {
            if ((i + t) % step)
                continue;
            problem p = make_problem(s->kernel, dtypes[t], random_between(&random_state, 1, 40),
                                     random_between(&random_state, 1, 300), dims[i], 3.0f);
            check(s, &p, bound_of(p.dtype));
            cut_somewhere(&p);
            p.piecemeal = true;
            check(s, &p, bound_of(p.dtype));
            free_problem(&p);
        }
}

/* A random multiple of `step`, mostly a small one. */
static int64_t random_tile(int64_t step, int64_t most)
{
    return ith_min64(step * random_between(&random_state, 1, 6), most);
}

static void tiles_within_limits(const subject *s)
{
    const int count = wanted_step() > 1 ? DTYPES * MASKS : 30;
    for (int n = 0; n < count; n++) {
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], random_between(&random_state, 1, 90),
                                 random_between(&random_state, 1, 400), random_between(&random_state, 1, 140), 3.0f);
        ith_attn_tile_limits limits = s->kernel->tiles(p.D);
        p.tiles.block_q = random_tile(limits.step.block_q, limits.most.block_q);
        p.tiles.block_kv_compute = random_tile(limits.step.block_kv_compute, limits.most.block_kv_compute);
        p.tiles.block_kv_compute_in = random_tile(limits.step.block_kv_compute_in, limits.most.block_kv_compute_in);
        add_mask(&p, masks[n / DTYPES % MASKS]);
        check(s, &p, bound_of(p.dtype));
        free_problem(&p);
    }
}

static void limits_are_sane(const subject *s)
{
    for (int64_t D = 1; D <= 300; D += 13) {
        ith_attn_tile_limits limits = s->kernel->tiles(D);
        const int64_t *best = &limits.best.block_q, *step = &limits.step.block_q, *most = &limits.most.block_q;
        for (int i = 0; i < 4; i++) {
            assert_true(step[i] >= 1 && step[i] <= best[i] && best[i] <= most[i]);
            assert_true(best[i] % step[i] == 0 && most[i] % step[i] == 0);
        }
        assert_true(limits.best.block_kv % limits.best.block_kv_compute == 0);
        assert_true(limits.most.block_kv_compute_in <= ITH_ATTN_PANEL_MAX);
        assert_true(s->kernel->scratch_bytes(D, &limits.step) > 0);
        assert_true(s->kernel->scratch_bytes(D, &limits.step) <= s->kernel->scratch_bytes(D, &limits.most));
    }
}

static void random_problems(const subject *s)
{
    const int count = wanted_step() > 1 ? 36 : 72; /* 36 have each mask, with and without a bias */
    for (int n = 0; n < count; n++) {
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], random_between(&random_state, 1, 70),
                                 random_between(&random_state, 1, 700), random_between(&random_state, 1, 140),
                                 6.0f * random_uniform(&random_state));
        p.piecemeal = random_below(&random_state, 2);
        if (n % 2)
            cut_somewhere(&p);
        if (n / 6 % 2)
            p.bias = random_array(ITH_F32, p.keys, 3.0f);
        add_mask(&p, masks[n / 12 % MASKS]);
        check(s, &p, bound_of(p.dtype));
        free_problem(&p);
    }
}

/* ---- Logits ---------------------------------------------------------------------------------------------------- */

/* Logits of +-30, logits of +-300 (without a bound of their own), equal logits, logits near 0, and logits that an
 * offset of all keys moves far from 0. */
static void hard_logits(const subject *s)
{
    static const float spreads[] = {8.0f, 80.0f, 0.0f, 1e-20f, -5.0f};
    const size_t step = (size_t)wanted_step();
    for (size_t t = 0; t < DTYPES; t++) {
        for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
            if (t && (i + t) % step) /* f32 has them all */
                continue;
            problem p = make_problem(s->kernel, dtypes[t], 30, 777, 64, spreads[i]);
            check(s, &p, spreads[i] == 80.0f ? 0.1 : bound_of(p.dtype));
            free_problem(&p);
        }
        problem p = make_problem(s->kernel, dtypes[t], 30, 777, 64, 1.0f);
        for (int64_t j = 0; j < p.keys * p.D; j++)
            p.k[j] = p.k[j % p.D];
        check(s, &p, bound_of(p.dtype));
        p.bias = allocate(p.keys, sizeof *p.bias);
        for (int64_t j = 0; j < p.keys; j++)
            p.bias[j] = -1e4f;
        check(s, &p, bound_of(p.dtype));
        free_problem(&p);
    }
}

/* If the first key has a row's maximum and all other keys lie far below it, the kernel takes no longer: probabilities
 * become zeros, not subnormal numbers. Afterwards the thread's mode for subnormal numbers is as before. */
static void far_keys(const subject *s)
{
    const bool takes_f16 = s->kernel->cpu & ITH_CPU_AVX512_FP16; /* then subnormal f16 numbers take no longer */
    for (int n = 0; n < 2 && s->kernel->cpu != ITH_CPU_BASELINE; n++) {
        problem p = make_problem(s->kernel, n ? ITH_BF16 : ITH_F32, 40, 777, 64, 30.0f);
        p.bias = allocate(p.keys, sizeof *p.bias);
        for (int64_t j = 0; j < p.keys; j++)
            p.bias[j] = j ? 0.0f : 150.0f;
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            forget_subnormals();
            answer mine = attend(s->kernel, &p);
            assert_true(takes_f16 || !met_subnormal(SUBNORMAL_OPERAND));
            assert_false(flushes_subnormals());
            free_answer(&mine);
        }
        free_problem(&p);
    }
}

/* Each row has one key that outweighs the others. All keys have a common offset, as in real models. */
static void peaked_and_offset(const subject *s)
{
    for (int n = 0; n < 6; n++) {
        int64_t D = n % 2 ? 128 : 64;
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], 30, 600, D, 1.0f);
        for (int64_t i = 0; i < p.rows; i++)
            for (int64_t d = 0; d < D; d++)
                p.k[i * 7 * D + d] = rounded(p.dtype, 2.0f * p.q[i * D + d]);
        for (int64_t j = 0; j < p.keys * D; j++)
            p.k[j] = rounded(p.dtype, p.k[j] + (j % D < 8 ? 3.0f : 0.0f));
        check(s, &p, bound_of(p.dtype));
        cut_somewhere(&p);
        check(s, &p, bound_of(p.dtype));
        free_problem(&p);
    }
}

/* Logits up to 10^36. Each row must take the value of its largest logit, found in double, and nothing may overflow. */
static void extreme_logits(const subject *s)
{
    for (int t = 0; t < DTYPES && s->softmax == ITH_SOFTMAX_ONLINE; t++) {
        if (!takes(s, dtypes[t], 32))
            continue;
        problem p = make_problem(s->kernel, dtypes[t], 50, 300, 32, 1.0f);
        for (float scale = 1e6f; scale < 1e36f; scale *= 1e6f) {
            p.scale = scale;
            answer truth = exact(&p), mine = attend(s->kernel, &p);
            assert_true(relative_error(&p, &mine, &truth) < (p.dtype == ITH_F32 ? 1e-6 : bound_of(p.dtype)));
            free_answer(&truth);
            free_answer(&mine);
        }
        free_problem(&p);
    }
}

/* ---- Masks ----------------------------------------------------------------------------------------------------- */

/* A bias or a mask of the lowest float is not -inf: the keys still count, and all equally. (lse may be limited to
 * numbers that it can have in base 2.) */
static void lowest_bias(const subject *s)
{
    if (s->softmax != ITH_SOFTMAX_ONLINE)
        return;
    for (int n = 0; n < 2 * DTYPES; n++) {
        problem p = make_problem(s->kernel, dtypes[n / 2], 9, 150, 16, 1.0f);
        float *lowest = allocate(p.rows * p.keys, sizeof *lowest);
        for (int64_t j = 0; j < p.rows * p.keys; j++)
            lowest[j] = -FLT_MAX;
        if (n % 2)
            p.bias = lowest;
        else
            p.added = lowest, p.mask_kind = ITH_MASK_ADDITIVE;
        if (takes(s, p.dtype, p.D)) {
            answer truth = exact(&p), mine = attend(s->kernel, &p);
            assert_true(relative_error(&p, &mine, &truth) <= bound_of(p.dtype));
            free_answer(&truth);
            free_answer(&mine);
        }
        free_problem(&p);
    }
}

/* Absent keys may hold anything, also if a whole KV block is absent: because of its bias, of a NULL pointer, or of
 * both. */
static void absent_keys(const subject *s)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int n = 0; n < 24; n++) {
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], 31, 400, 48, 2.0f);
        cut_somewhere(&p);
        p.bias = allocate(p.keys, sizeof *p.bias);
        p.absent = allocate(p.keys, sizeof *p.absent);
        int64_t from = n % 2 ? p.cut[1] : p.keys / 3;
        for (int64_t j = 0; j < p.keys; j++) {
            if (j >= from && (n % 3 != 0 || random_below(&random_state, 2)))
                continue;
            p.absent[j] = random_below(&random_state, 2);
            p.bias[j] = p.absent[j] && random_below(&random_state, 2) ? 0.0f : -INFINITY;
        }
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            answer truth = exact(&p);
            for (int64_t i = 0; i < p.keys * p.D; i++) {
                if (!sees(&p, 0, i / p.D))
                    p.k[i] = p.v[i] = poison[n % 4];
            }
            answer mine = attend(s->kernel, &p);
            assert_true(relative_error(&p, &mine, &truth) <= bound_of(p.dtype));
            check_lse(&p, mine.lse, truth.lse);
            free_answer(&truth);
            free_answer(&mine);
        }
        free_problem(&p);
    }
}

/* If a logit overflows, even to NaN, and a mask hides its key, the result is not changed. */
static void hidden_scores_overflow(const subject *s)
{
    for (int n = 0; n < 4; n++) {
        ith_dtype dtype = n % 2 ? ITH_BF16 : ITH_F32;
        problem p = make_problem(s->kernel, dtype, 30, 300, 40, 1.0f);
        add_mask(&p, n / 2 ? ITH_MASK_BOOL : ITH_MASK_ADDITIVE);
        for (int64_t j = 5; j < p.keys; j += 9) {
            for (int64_t i = 0; i < p.rows && n / 2; i++)
                p.shown[i * p.keys + j] = 0;
            for (int64_t i = 0; i < p.rows && !(n / 2); i++)
                p.added[i * p.keys + j] = -INFINITY;
            for (int64_t d = 0; d < p.D; d++)
                p.k[j * p.D + d] = rounded(dtype, d % 2 ? 3e38f : -3e38f);
        }
        for (int64_t i = 0; i < p.rows * p.D; i++)
            p.q[i] = rounded(dtype, 4.0f + p.q[i]);
        check(s, &p, bound_of(dtype));
        free_problem(&p);
    }
}

/* Tensors of very large or very small numbers, whose logits are ordinary all the same. */
static void far_magnitudes(const subject *s)
{
    static const struct {
        int q, k, v;
    } exponents[] = {{100, -100, 0}, {-100, 100, 0},  {-60, -60, 0},  {60, 60, 0},
                     {0, 0, 100},    {110, -110, 30}, {-110, 110, 0}, {0, 0, -60}};
    for (size_t n = 0; n < 2 * sizeof exponents / sizeof *exponents; n++) {
        ith_dtype dtype = n % 2 ? ITH_BF16 : ITH_F32;
        if (exponents[n / 2].v > 40 && s->softmax == ITH_SOFTMAX_FIXED_M)
            continue; /* the gate fails: probabilities above 1 times such values overflow */
        problem p = make_problem(s->kernel, dtype, 20, 300, 40, 1.0f);
        for (int64_t i = 0; i < p.rows * p.D; i++)
            p.q[i] = rounded(dtype, ldexpf(p.q[i], exponents[n / 2].q));
        for (int64_t i = 0; i < p.keys * p.D; i++) {
            p.k[i] = rounded(dtype, ldexpf(p.k[i], exponents[n / 2].k));
            p.v[i] = rounded(dtype, ldexpf(p.v[i], exponents[n / 2].v));
        }
        p.v[0] = rounded(dtype, ldexpf(1.9f, exponents[n / 2].v + 3));
        p.scale = ldexpf(p.scale, -exponents[n / 2].q - exponents[n / 2].k);
        check(s, &p, bound_of(dtype));
        free_problem(&p);
    }
}

/* Values of f32 so small that their products with probabilities are subnormal numbers: they are not lost. */
static void tiny_values(const subject *s)
{
    static const int exponents[] = {-90, -110, -120, -124};
    for (size_t n = 0; n < sizeof exponents / sizeof *exponents; n++) {
        if (s->softmax == ITH_SOFTMAX_FIXED_M)
            continue; /* the gate fails */
        problem p = make_problem(s->kernel, ITH_F32, 20, 300, 40, 1.0f);
        for (int64_t i = 0; i < p.keys * p.D; i++)
            p.v[i] = ldexpf(p.v[i], exponents[n]);
        check(s, &p, bound_of(ITH_F32));
        free_problem(&p);
    }
}

/* Rows whose keys are all hidden. Some queries are NaN or infinity; then the row may be NaN, and lse must be NaN
 * too. */
static void check_hidden_from_specials(const subject *s, problem *p)
{
    const float specials[] = {NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < p->rows; i += 2)
        p->q[i * p->D + i] = specials[i / 2 % 3];
    answer mine = attend(s->kernel, p);
    for (int64_t i = 0; i < p->rows; i++) {
        assert_true(mine.lse[i] == -INFINITY || (i % 2 == 0 && isnan(mine.lse[i])));
        for (int64_t d = 0; d < p->D; d++)
            assert_true(mine.o[i * p->D + d] == 0.0f || isnan(mine.lse[i]));
    }
    free_answer(&mine);
}

static void all_hidden(const subject *s)
{
    for (int n = 0; n < 36; n++) {
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], 13, n % 4 ? 200 : 0, 40, 1.0f);
        add_mask(&p, masks[n / 12]);
        for (int64_t j = 0; j < p.rows * p.keys; j++) {
            if (p.shown)
                p.shown[j] = 0;
            if (p.added)
                p.added[j] = -INFINITY;
        }
        p.absent = allocate(p.keys, sizeof *p.absent);
        for (int64_t j = 0; j < p.keys; j++)
            p.absent[j] = p.mask_kind == ITH_MASK_NONE;
        if (n % 2)
            cut_somewhere(&p);
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            answer mine = attend(s->kernel, &p);
            for (int64_t i = 0; i < p.rows * p.D; i++)
                assert_true(mine.o[i] == 0.0f);
            for (int64_t i = 0; i < p.rows; i++)
                assert_true(mine.lse[i] == -INFINITY);
            free_answer(&mine);
            check_hidden_from_specials(s, &p);
        }
        free_problem(&p);
    }
}

static void nan_stays_in_its_row(const subject *s)
{
    for (int n = 0; n < 6; n++) {
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], 40, 200, 33, 1.0f);
        if (n % 2)
            cut_somewhere(&p);
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            answer clean = attend(s->kernel, &p);
            int64_t row = random_between(&random_state, 0, p.rows - 1);
            p.q[row * p.D + random_between(&random_state, 0, p.D - 1)] = NAN;
            if (p.m && n % 3)
                p.m[row] = NAN;
            answer mine = attend(s->kernel, &p);
            for (int64_t d = 0; d < p.D; d++)
                assert_true(isnan(mine.o[row * p.D + d]));
            assert_true(isnan(mine.lse[row]));
            assert_same_bits(mine.o, clean.o, row * p.D);
            assert_same_bits(mine.o + (row + 1) * p.D, clean.o + (row + 1) * p.D, (p.rows - row - 1) * p.D);
            free_answer(&clean);
            free_answer(&mine);
        }
        free_problem(&p);
    }
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

/* A row has the same bits alone, in any block of any size and in the whole. */
static void rows_alone(const subject *s)
{
    for (int n = 0; n < 12; n++) {
        int64_t D = n % 2 ? 64 : 37;
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], s->kernel->tiles(D).best.block_q + 9, 333, D, 3.0f);
        if (n % 4 >= 2)
            cut_somewhere(&p);
        add_mask(&p, masks[n / 2 % MASKS]);
        if (takes(s, p.dtype, D)) {
            set_softmax(&p, s->softmax);
            answer whole = attend(s->kernel, &p);
            for (int i = 0; i < 12; i++) {
                int64_t begin = random_between(&random_state, 0, p.rows - 1);
                int64_t count = i < 6 ? 1 : random_between(&random_state, 1, p.rows - begin);
                ith_attn_tile_limits limits = s->kernel->tiles(D);
                p.tiles.block_q = i % 2 ? limits.best.block_q : random_tile(limits.step.block_q, limits.most.block_q);
                answer part = attend_rows(s->kernel, &p, begin, count);
                assert_same_bits(part.o, whole.o + begin * D, count * D);
                assert_same_bits(part.lse, whole.lse + begin, count);
                free_answer(&part);
            }
            free_answer(&whole);
        }
        free_problem(&p);
    }
}

/* Packing in several calls gives the same bytes as packing in one. */
static void packed_in_pieces(const subject *s)
{
    for (int n = 0; n < 12; n++) {
        problem p = make_problem(s->kernel, dtypes[n % DTYPES], 21, random_between(&random_state, 1, 600),
                                 n % 2 ? 64 : 37, 3.0f);
        if (n % 4 >= 2)
            p.bias = random_array(ITH_F32, p.keys, 1.0f);
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            answer whole = attend(s->kernel, &p);
            p.piecemeal = true;
            for (int i = 0; i < 4; i++) {
                answer pieces = attend(s->kernel, &p);
                assert_same_bits(pieces.o, whole.o, p.rows * p.D);
                assert_same_bits(pieces.lse, whole.lse, p.rows);
                free_answer(&pieces);
            }
            free_answer(&whole);
        }
        free_problem(&p);
    }
}

/* ---- Calls that continue one another -------------------------------------------------------------------------- */

/* Many KV blocks give a result as good as one. */
static void many_kv_blocks(const subject *s)
{
    for (int t = 0; t < DTYPES; t++) {
        problem p = make_problem(s->kernel, dtypes[t], 20, 2000, 64, 4.0f);
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            answer truth = exact(&p), once = attend(s->kernel, &p);
            p.cuts = CUTS_MAX;
            for (int i = 0; i <= p.cuts; i++)
                p.cut[i] = p.keys * i / p.cuts;
            answer split = attend(s->kernel, &p);
            double error = relative_error(&p, &once, &truth);
            assert_true(relative_error(&p, &split, &truth) <= 1.1 * error + unit(p.dtype));
            free_answer(&truth);
            free_answer(&once);
            free_answer(&split);
        }
        free_problem(&p);
    }
}

/* Checks the state that a call leaves if it is not the last: o_sum / l is o, and m + log2 l is lse in base 2. With the
 * same m (fixed_m) the states of parts of the keys can be added. */
static void state_is_what_it_says(const subject *s)
{
    for (int t = 0; t < DTYPES; t++) {
        problem p = make_problem(s->kernel, dtypes[t], 5, 500, 48, 3.0f);
        if (takes(s, p.dtype, p.D)) {
            set_softmax(&p, s->softmax);
            answer truth = exact(&p), mine = make_answer(&p);
            scattered q = make_rows_of(&p, p.q, p.rows, p.D + 3);
            saved_state part[2] = {make_state(&p, p.rows), make_state(&p, p.rows)};
            int64_t cut[] = {0, s->softmax == ITH_SOFTMAX_FIXED_M ? 170 : p.keys, p.keys};
            for (int n = 0; n < 2; n++) {
                ith_attn_call call = call_of(&p, p.rows);
                call.q = (const void *const *)q.row, call.keys = cut[n + 1] - cut[n], call.first = true;
                call.m = part[n].m, call.l = part[n].l, call.o_sum = part[n].o_sum;
                if (p.m)
                    memcpy(call.m, p.m, (size_t)part[n].bytes);
                attend_keys(s->kernel, &p, call, 0, cut[n]);
            }
            for (int64_t i = 0; i < p.rows; i++) {
                float l = part[0].l[i] + part[1].l[i];
                for (int64_t d = 0; d < p.D; d++)
                    mine.o[i * p.D + d] = (part[0].o_sum[i * p.D + d] + part[1].o_sum[i * p.D + d]) / l;
                mine.lse[i] = (part[0].m[i] + log2f(l)) * (float)M_LN2;
            }
            assert_true(relative_error(&p, &mine, &truth) <= bound_of(p.dtype));
            check_lse(&p, mine.lse, truth.lse);
            free_state(&part[0]);
            free_state(&part[1]);
            free_rows(&q);
            free_answer(&truth);
            free_answer(&mine);
        }
        free_problem(&p);
    }
}

/* After very many keys the sums l and o are so large that a single probability would be lost in their rounding. The
 * probabilities of a call are therefore summed before they are added. All logits here are 0, all values 1. */
static void sums_of_many_keys_grow(const subject *s)
{
    enum { KEYS = 4096, HEAD = 48 };
    const float before = 0x1p25f, lost = 64; /* of 4096 */
    for (int t = 0; t < DTYPES; t++) {
        problem p = make_problem(s->kernel, dtypes[t], 5, KEYS, HEAD, 1.0f);
        if (takes(s, p.dtype, p.D)) {
            for (int64_t i = 0; i < p.rows * p.D; i++)
                p.q[i] = 0;
            for (int64_t i = 0; i < p.keys * p.D; i++)
                p.v[i] = 1;
            saved_state sums = make_state(&p, p.rows);
            scattered q = make_rows_of(&p, p.q, p.rows, p.D);
            ith_attn_call call = call_of(&p, p.rows);
            call.q = (const void *const *)q.row, call.keys = KEYS;
            call.softmax = s->softmax, call.m = sums.m, call.l = sums.l, call.o_sum = sums.o_sum;
            for (int64_t i = 0; i < p.rows; i++) {
                sums.m[i] = 0, sums.l[i] = before;
                for (int64_t d = 0; d < p.D; d++)
                    sums.o_sum[i * p.D + d] = before;
            }
            attend_keys(s->kernel, &p, call, 0, 0);
            for (int64_t i = 0; i < p.rows; i++) {
                assert_true(sums.m[i] == 0);
                assert_true(fabsf(sums.l[i] - before - KEYS) <= lost);
                for (int64_t d = 0; d < p.D; d++)
                    assert_true(fabsf(sums.o_sum[i * p.D + d] - before - KEYS) <= lost);
            }
            free_state(&sums);
            free_rows(&q);
        }
        free_problem(&p);
    }
}

static void no_lse_wanted(const subject *s)
{
    problem p = make_problem(s->kernel, ITH_BF16, 1, 1, 32, 1.0f);
    if (takes(s, p.dtype, p.D)) {
        set_softmax(&p, s->softmax);
        scattered q = make_rows_of(&p, p.q, 1, p.D), o = make_rows(&p, 1, p.D);
        ith_attn_call call = call_of(&p, 1);
        call.q = (const void *const *)q.row, call.o = (void *const *)o.row;
        call.keys = 1, call.first = call.last = true, call.m = p.m;
        attend_keys(s->kernel, &p, call, 0, 0);
        float mine[32];
        ith_to_f32(mine, o.row[0], p.dtype, p.D);
        for (int64_t d = 0; d < p.D; d++)
            assert_true(fabsf(mine[d] - p.v[d]) <= 0x1p-8f * fabsf(p.v[d]));
        free_rows(&q);
        free_rows(&o);
    }
    free_problem(&p);
}

static void what_is_supported(const subject *s)
{
    const ith_attn_kernel *kernel = s->kernel;
    bool any = false;
    for (int t = 0; t < DTYPES; t++) {
        any = any || kernel->supports(dtypes[t], 128, s->softmax);
        assert_false(kernel->supports(dtypes[t], 0, s->softmax));
        assert_false(kernel->supports(dtypes[t], -3, s->softmax));
        assert_false(kernel->supports(dtypes[t], INT64_MAX, s->softmax));
        assert_false(kernel->supports(dtypes[t], 64, ITH_SOFTMAX_AUTO));
    }
    assert_true(any);
    assert_false(kernel->supports(ITH_F64, 64, s->softmax));
    assert_false(kernel->supports(ITH_I8, 64, s->softmax));
    assert_int_equal(kernel->packed_bytes(INT64_MAX, 128), -1);
    assert_int_equal(kernel->packed_bytes(INT64_MAX / 128, 128), -1);
    assert_ptr_equal(ith_attn_kernel_named(kernel->name), kernel);
}

/* ---- Running each test for each kernel ------------------------------------------------------------------------- */

/* With ITHACA_TEST_KERNEL only the kernels are tested whose names contain it. */
static void for_each_subject(void (*test)(const subject *s))
{
    const char *only = getenv("ITHACA_TEST_KERNEL");
    uint32_t machine = machine_sets();
    int tested = 0;
    for (int i = 0; ith_attn_kernel_at(i) != NULL; i++) {
        const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
        if ((kernel->cpu & ~machine) != 0 || (only && !strstr(kernel->name, only)))
            continue;
        for (int n = 0; n < 2; n++) {
            subject s = {kernel, n ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE};
            random_state = 1;
            test(&s);
            tested++;
        }
    }
    assert_true(tested >= 2);
}

#define TEST_LIST(X)                                                                                                   \
    X(sizes_around_tiles)                                                                                              \
    X(head_sizes)                                                                                                      \
    X(tiles_within_limits)                                                                                             \
    X(limits_are_sane)                                                                                                 \
    X(random_problems)                                                                                                 \
    X(hard_logits)                                                                                                     \
    X(far_keys)                                                                                                        \
    X(peaked_and_offset)                                                                                               \
    X(extreme_logits)                                                                                                  \
    X(lowest_bias)                                                                                                     \
    X(absent_keys)                                                                                                     \
    X(hidden_scores_overflow)                                                                                          \
    X(far_magnitudes)                                                                                                  \
    X(tiny_values)                                                                                                     \
    X(all_hidden)                                                                                                      \
    X(nan_stays_in_its_row)                                                                                            \
    X(rows_alone)                                                                                                      \
    X(packed_in_pieces)                                                                                                \
    X(many_kv_blocks)                                                                                                  \
    X(state_is_what_it_says)                                                                                           \
    X(sums_of_many_keys_grow)                                                                                          \
    X(no_lse_wanted)                                                                                                   \
    X(what_is_supported)

#define DEFINE_TEST(name)                                                                                              \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for_each_subject(name);                                                                                        \
    }
TEST_LIST(DEFINE_TEST)

/* Counts as skipped if there are kernels that this machine cannot run. */
static void kernels_that_do_not_run_here(void **state)
{
    (void)state;
    const ith_attn_kernel *kernel;
    int lacking = 0;
    for (int i = 0; (kernel = ith_attn_kernel_at(i)) != NULL; i++)
        lacking += !machine_has(kernel->name, kernel->cpu);
    if (lacking)
        skip();
}

static void test_table(void **state)
{
    (void)state;
    assert_null(ith_attn_kernel_at(-1));
    assert_null(ith_attn_kernel_named("abacus"));
    assert_non_null(ith_attn_kernel_named("f32_ref"));
    bool plain_c = false;
    for (int i = 0; ith_attn_kernel_at(i) != NULL; i++)
        plain_c = plain_c || ith_attn_kernel_at(i)->cpu == ITH_CPU_BASELINE;
    assert_true(plain_c);
}

int main(void)
{
#define NAME_TEST(name) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {TEST_LIST(NAME_TEST) cmocka_unit_test(test_table),
                                       cmocka_unit_test(kernels_that_do_not_run_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
