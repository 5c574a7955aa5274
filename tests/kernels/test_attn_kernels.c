/* Every attention kernel of the table that this machine runs, held against float64 and against the plain way of
 * computing the same in the same type: sizes at and around the tiles, hostile logits, masks, strides, split runs. Every
 * array that a kernel writes to starts as NaNs and lies between guard bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../../src/base/cpu.h"
#include "../../src/base/dtype.h"
#include "../../src/base/size.h"
#include "../../src/kernels/kernel.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random numbers, guarded memory ------------------------------------------------------------------------------ */

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float uniform(void)
{
    return (float)(random_bits() >> 8) * 0x1p-24f;
}

static float normal(void)
{
    return sqrtf(-2.0f * logf(uniform() + 0x1p-25f)) * cosf(6.2831853f * uniform());
}

static int64_t random_between(int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits() % (uint32_t)(high - low + 1));
}

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* `bytes` of NaNs between two guards; aligned to 64. */
static void *guarded(int64_t bytes)
{
    assert_true(bytes >= 0);
    size_t whole = (size_t)ith_round_up(bytes + 2 * GUARD, 64);
    unsigned char *start = aligned_alloc(64, whole);
    assert_non_null(start);
    memset(start, GUARD_BYTE, whole);
    memset(start + GUARD, 0xff, (size_t)bytes);
    return start + GUARD;
}

static void release(void *array, int64_t bytes)
{
    unsigned char *start = (unsigned char *)array - GUARD;
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(start[i], GUARD_BYTE);
        assert_int_equal(start[GUARD + bytes + i], GUARD_BYTE);
    }
    free(start);
}

/* ---- A problem, and three answers to it -------------------------------------------------------------------------- */

enum { CUTS_MAX = 5 };

typedef struct problem {
    ith_dtype dtype;
    int64_t rows, keys, D;
    int64_t q_stride, k_stride, v_stride, o_stride;
    float scale;
    float *q, *k, *v; /* [rows or keys, D]: numbers that dtype holds */
    float *bias;      /* [keys] or NULL */
    int cuts;         /* runs are keys [cut[i], cut[i + 1]) */
    int64_t cut[CUTS_MAX + 1];
} problem;

typedef struct answer {
    float *o; /* [rows, D] */
    float *lse;
} answer;

static float rounded(ith_dtype dtype, float x)
{
    uint32_t storage = 0;
    ith_from_f32(&storage, dtype, &x, 1);
    ith_to_f32(&x, &storage, dtype, 1);
    return x;
}

static float *random_array(ith_dtype dtype, int64_t count, float size)
{
    float *x = malloc((size_t)ith_max64(count, 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = rounded(dtype, normal() * size);
    return x;
}

/* Normal numbers, logits of about `spread`, odd strides, one run. */
static problem make_problem(ith_dtype dtype, int64_t rows, int64_t keys, int64_t D, float spread)
{
    problem p = {.dtype = dtype, .rows = rows, .keys = keys, .D = D, .cuts = 1, .cut = {0, keys}};
    p.q_stride = D + 3, p.k_stride = D + 1, p.v_stride = D + 5, p.o_stride = D + 7;
    p.scale = spread / sqrtf((float)D);
    p.q = random_array(dtype, rows * D, 1.0f);
    p.k = random_array(dtype, keys * D, 1.0f);
    p.v = random_array(dtype, keys * D, 1.0f);
    return p;
}

static void free_problem(problem *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->bias);
}

static answer make_answer(const problem *p)
{
    size_t rows = (size_t)p->rows + 1;
    answer a = {calloc(rows * (size_t)p->D, sizeof(float)), calloc(rows, sizeof(float))};
    assert_non_null(a.o);
    assert_non_null(a.lse);
    return a;
}

static void free_answer(answer *a)
{
    free(a->o);
    free(a->lse);
}

/* In float64. Keys with bias -inf are absent. */
static answer exact(const problem *p)
{
    answer a = make_answer(p);
    double *s = calloc((size_t)p->keys + 1, sizeof *s), *o = calloc((size_t)p->D, sizeof *o);
    for (int64_t i = 0; i < p->rows; i++) {
        double m = -INFINITY, l = 0;
        for (int64_t j = 0; j < p->keys; j++) {
            double dot = 0;
            for (int64_t d = 0; d < p->D; d++)
                dot += (double)p->q[i * p->D + d] * (double)p->k[j * p->D + d];
            s[j] = (double)p->scale * dot + (p->bias ? (double)p->bias[j] : 0.0);
            if (p->bias && p->bias[j] == -INFINITY)
                s[j] = -INFINITY;
            m = s[j] > m ? s[j] : m;
        }
        memset(o, 0, (size_t)p->D * sizeof *o);
        for (int64_t j = 0; j < p->keys; j++) {
            if (s[j] == -INFINITY)
                continue;
            double weight = exp(s[j] - m);
            l += weight;
            for (int64_t d = 0; d < p->D; d++)
                o[d] += weight * (double)p->v[j * p->D + d];
        }
        for (int64_t d = 0; d < p->D; d++)
            a.o[i * p->D + d] = l > 0 ? (float)(o[d] / l) : 0.0f;
        a.lse[i] = l > 0 ? (float)(m + log(l)) : -INFINITY;
    }
    free(s);
    free(o);
    return a;
}

/* f32 logits, weights rounded to the type of v, f32 sums, the output rounded to its type. No absent keys. */
static answer plain(const problem *p)
{
    answer a = make_answer(p);
    float *s = calloc((size_t)p->keys + 1, sizeof *s);
    for (int64_t i = 0; i < p->rows; i++) {
        float m = -INFINITY, l = 0, *o = a.o + i * p->D;
        for (int64_t j = 0; j < p->keys; j++) {
            float dot = 0;
            for (int64_t d = 0; d < p->D; d++)
                dot += p->q[i * p->D + d] * p->k[j * p->D + d];
            s[j] = p->scale * dot + (p->bias ? p->bias[j] : 0.0f);
            m = s[j] > m ? s[j] : m;
        }
        for (int64_t j = 0; j < p->keys; j++) {
            float weight = expf(s[j] - m);
            l += weight;
            weight = rounded(p->dtype, weight);
            for (int64_t d = 0; d < p->D; d++)
                o[d] += weight * p->v[j * p->D + d];
        }
        for (int64_t d = 0; d < p->D; d++)
            o[d] = rounded(p->dtype, o[d] / l);
        a.lse[i] = m + logf(l);
    }
    free(s);
    return a;
}

/* x [count, D] as the problem's type, rows `stride` apart, one element off any alignment. */
static char *laid_out(const problem *p, const float *x, int64_t count, int64_t stride, int64_t *bytes)
{
    int64_t size = ith_dtype_bytes(p->dtype);
    *bytes = (count * stride + 1) * size;
    char *rows = guarded(*bytes);
    for (int64_t j = 0; j < count; j++)
        ith_from_f32(rows + (1 + j * stride) * size, p->dtype, x + j * p->D, p->D);
    return rows;
}

static void *pack_keys(const ith_attn_kernel *kernel, const problem *p, int64_t first, int64_t keys)
{
    int64_t k_bytes, v_bytes, size = ith_dtype_bytes(p->dtype), bytes = kernel->packed_bytes(keys, p->D);
    char *k = laid_out(p, p->k + first * p->D, keys, p->k_stride, &k_bytes);
    char *v = laid_out(p, p->v + first * p->D, keys, p->v_stride, &v_bytes);
    ith_attn_pack pack = {.dtype = p->dtype, .keys = keys, .head_dim = p->D, .k = k + size, .v = v + size};
    pack.k_stride = p->k_stride, pack.v_stride = p->v_stride;
    pack.key_bias = p->bias ? p->bias + first : NULL;
    pack.packed = guarded(bytes);
    kernel->pack(&pack);
    release(k, k_bytes);
    release(v, v_bytes);
    return pack.packed;
}

/* What lies between the rows of an output is still NaN. */
static void check_gaps(const problem *p, const char *o, int64_t bytes)
{
    int64_t size = ith_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < bytes; i++) {
        int64_t element = i / size - 1, column = element % p->o_stride;
        if (element < 0 || column >= p->D)
            assert_int_equal((unsigned char)o[i], 0xff);
    }
}

/* Rows [begin, begin + count) of the problem, by the kernel. */
static answer attend_rows(const ith_attn_kernel *kernel, const problem *p, int64_t begin, int64_t count)
{
    int64_t size = ith_dtype_bytes(p->dtype), q_bytes, o_bytes = (count * p->o_stride + 1) * size;
    int64_t state_bytes = count * (int64_t)sizeof(float), scratch_bytes = kernel->scratch_bytes(p->D);
    char *q = laid_out(p, p->q + begin * p->D, count, p->q_stride, &q_bytes), *o = guarded(o_bytes);
    ith_attn_run run = {.dtype = p->dtype, .q_rows = count, .head_dim = p->D, .q = q + size, .o = o + size};
    run.q_stride = p->q_stride, run.o_stride = p->o_stride, run.scale = p->scale;
    run.lse = guarded(state_bytes);
    run.scratch = guarded(scratch_bytes);
    if (p->cuts > 1)
        run.m = guarded(state_bytes), run.l = guarded(state_bytes), run.o_sum = guarded(state_bytes * p->D);
    for (int i = 0; i < p->cuts; i++) {
        run.keys = p->cut[i + 1] - p->cut[i];
        run.first = i == 0, run.last = i == p->cuts - 1;
        void *packed = pack_keys(kernel, p, p->cut[i], run.keys);
        run.packed = packed;
        kernel->run(&run);
        release(packed, kernel->packed_bytes(run.keys, p->D));
    }
    problem part = *p;
    part.rows = count;
    answer a = make_answer(&part);
    for (int64_t i = 0; i < count; i++)
        ith_to_f32(a.o + i * p->D, o + (1 + i * p->o_stride) * size, p->dtype, p->D);
    memcpy(a.lse, run.lse, (size_t)state_bytes);
    check_gaps(p, o, o_bytes);
    release(q, q_bytes);
    release(o, o_bytes);
    release(run.lse, state_bytes);
    release(run.scratch, scratch_bytes);
    if (p->cuts > 1) {
        release(run.m, state_bytes);
        release(run.l, state_bytes);
        release(run.o_sum, state_bytes * p->D);
    }
    return a;
}

static answer attend(const ith_attn_kernel *kernel, const problem *p)
{
    return attend_rows(kernel, p, 0, p->rows);
}

/* ---- Comparing --------------------------------------------------------------------------------------------------- */

static double relative_error(const problem *p, const answer *a, const answer *b)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < p->rows * p->D; i++) {
        double d = (double)a->o[i] - (double)b->o[i];
        difference += d * d;
        norm += (double)b->o[i] * (double)b->o[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

/* Half a unit in the last place. */
static double unit(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 0x1p-24 : dtype == ITH_BF16 ? 0x1p-9 : 0x1p-12;
}

/* o and lse of the kernel against float64: within the type's bound, and at most twice as far as the plain way, which
 * on a few numbers may be right by luck, so that some units are always granted. */
static void check_accuracy(const ith_attn_kernel *kernel, const problem *p, double bound)
{
    answer truth = exact(p), simple = plain(p), mine = attend(kernel, p);
    double error = relative_error(p, &mine, &truth), allowed = 2 * relative_error(p, &simple, &truth);
    double luck = p->rows * p->D < 512 ? 16 * unit(p->dtype) : 0;
    if (!(error <= bound && error <= fmax(allowed, luck)))
        fail_msg("%s %s rows %lld keys %lld D %lld runs %d: error %.3g, bound %.3g, twice the plain one's %.3g",
                 kernel->name, ith_dtype_name(p->dtype), (long long)p->rows, (long long)p->keys, (long long)p->D,
                 p->cuts, error, bound, allowed);
    for (int64_t i = 0; i < p->rows; i++) {
        if (truth.lse[i] == -INFINITY)
            assert_true(mine.lse[i] == -INFINITY);
        else
            assert_true(fabsf(mine.lse[i] - truth.lse[i]) <= 4e-6f * fmaxf(4.0f, fabsf(truth.lse[i])));
    }
    free_answer(&truth);
    free_answer(&simple);
    free_answer(&mine);
}

static double bound_of(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 5e-6 : dtype == ITH_BF16 ? 0x1p-8 : 0x1p-11;
}

static void assert_same_bits(const float *a, const float *b, int64_t count)
{
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

/* ---- The tests, each for one kernel ------------------------------------------------------------------------------ */

static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Up to CUTS_MAX runs, some of them empty. */
static void cut_somewhere(problem *p)
{
    p->cuts = (int)random_between(2, CUTS_MAX);
    for (int i = 1; i < p->cuts; i++)
        p->cut[i] = random_between(p->cut[i - 1], p->keys);
    p->cut[p->cuts] = p->keys;
}

static void sizes_around_tiles(const ith_attn_kernel *kernel)
{
    int64_t block = kernel->q_block;
    int64_t rows[] = {0, 1, 2, 5, 6, 7, 11, 12, 13, block - 1, block, block + 1, 2 * block + 1};
    int64_t keys[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 257, 513};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
            problem p = make_problem(dtypes[(i + j) % DTYPES], rows[i], keys[j], random_between(1, 12), 2.0f);
            check_accuracy(kernel, &p, bound_of(p.dtype));
            free_problem(&p);
        }
}

static void head_sizes(const ith_attn_kernel *kernel)
{
    static const int64_t dims[] = {1,  2,  3,  8,  15, 16,  17,  24,  31,  32,  33,  40,  48,  63,
                                   64, 65, 72, 80, 96, 100, 127, 128, 129, 160, 192, 255, 256, 300};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int t = 0; t < DTYPES; t++) {
            problem p = make_problem(dtypes[t], random_between(1, 40), random_between(1, 300), dims[i], 3.0f);
            check_accuracy(kernel, &p, bound_of(p.dtype));
            cut_somewhere(&p);
            check_accuracy(kernel, &p, bound_of(p.dtype));
            free_problem(&p);
        }
}

static void random_problems(const ith_attn_kernel *kernel)
{
    for (int n = 0; n < 60; n++) {
        problem p = make_problem(dtypes[n % DTYPES], random_between(1, 70), random_between(1, 700),
                                 random_between(1, 140), 6.0f * uniform());
        if (n % 2)
            cut_somewhere(&p);
        if (n % 3 == 0)
            p.bias = random_array(ITH_F32, p.keys, 3.0f);
        check_accuracy(kernel, &p, bound_of(p.dtype));
        free_problem(&p);
    }
}

/* Logits of +-30, of +-300 (no bound of its own), all the same, nearly 0; far from 0 by an offset of all keys. */
static void hard_logits(const ith_attn_kernel *kernel)
{
    static const float spreads[] = {8.0f, 80.0f, 0.0f, 1e-20f, -5.0f};
    for (int t = 0; t < DTYPES; t++) {
        for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
            problem p = make_problem(dtypes[t], 100, 777, 64, spreads[i]);
            check_accuracy(kernel, &p, spreads[i] == 80.0f ? 0.1 : bound_of(p.dtype));
            free_problem(&p);
        }
        problem p = make_problem(dtypes[t], 100, 777, 64, 1.0f);
        for (int64_t j = 0; j < p.keys * p.D; j++)
            p.k[j] = p.k[j % p.D];
        check_accuracy(kernel, &p, bound_of(p.dtype));
        p.bias = malloc((size_t)p.keys * sizeof *p.bias);
        for (int64_t j = 0; j < p.keys; j++)
            p.bias[j] = -1e4f;
        check_accuracy(kernel, &p, bound_of(p.dtype));
        free_problem(&p);
    }
}

/* Logits up to 10^36: each row picks its largest, found in double, and nothing overflows. */
static void extreme_logits(const ith_attn_kernel *kernel)
{
    problem p = make_problem(ITH_F32, 50, 300, 32, 1.0f);
    for (float scale = 1e6f; scale < 1e36f; scale *= 1e6f) {
        p.scale = scale;
        answer truth = exact(&p), mine = attend(kernel, &p);
        assert_true(relative_error(&p, &mine, &truth) < 1e-6);
        free_answer(&truth);
        free_answer(&mine);
    }
    free_problem(&p);
}

/* A bias as low as a float goes is not -inf: the keys stay, and all alike. (lse may be cut to what base 2 can hold.) */
static void lowest_bias(const ith_attn_kernel *kernel)
{
    problem p = make_problem(ITH_F32, 9, 150, 16, 1.0f);
    p.bias = malloc((size_t)p.keys * sizeof *p.bias);
    for (int64_t j = 0; j < p.keys; j++)
        p.bias[j] = -FLT_MAX;
    answer truth = exact(&p), mine = attend(kernel, &p);
    assert_true(relative_error(&p, &mine, &truth) <= 5e-6);
    free_answer(&truth);
    free_answer(&mine);
    free_problem(&p);
}

/* A row has the same bits alone, in any block and in the whole. */
static void rows_alone(const ith_attn_kernel *kernel)
{
    for (int n = 0; n < 12; n++) {
        problem p = make_problem(dtypes[n % DTYPES], kernel->q_block + 9, 333, n % 2 ? 64 : 37, 3.0f);
        if (n % 4 >= 2)
            cut_somewhere(&p);
        answer whole = attend(kernel, &p);
        for (int i = 0; i < 12; i++) {
            int64_t begin = random_between(0, p.rows - 1);
            int64_t count = i < 6 ? 1 : random_between(1, p.rows - begin);
            answer part = attend_rows(kernel, &p, begin, count);
            assert_same_bits(part.o, whole.o + begin * p.D, count * p.D);
            assert_same_bits(part.lse, whole.lse + begin, count);
            free_answer(&part);
        }
        free_answer(&whole);
        free_problem(&p);
    }
}

/* Whatever lies in absent keys does no harm, also where a whole run is absent. */
static void masked_keys(const ith_attn_kernel *kernel)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (int n = 0; n < 24; n++) {
        problem p = make_problem(dtypes[n % DTYPES], 31, 400, 48, 2.0f);
        cut_somewhere(&p);
        p.bias = calloc((size_t)p.keys, sizeof *p.bias);
        int64_t from = n % 2 ? p.cut[1] : p.keys / 3;
        for (int64_t j = 0; j < p.keys; j++) {
            if (j < from || (n % 3 == 0 && random_bits() % 2))
                p.bias[j] = -INFINITY;
        }
        answer truth = exact(&p);
        for (int64_t i = 0; i < p.keys * p.D; i++) {
            if (p.bias[i / p.D] == -INFINITY)
                p.k[i] = p.v[i] = poison[n % 4];
        }
        answer mine = attend(kernel, &p);
        assert_true(relative_error(&p, &mine, &truth) <= bound_of(p.dtype));
        for (int64_t i = 0; i < p.rows; i++)
            assert_true(mine.lse[i] == truth.lse[i] || fabsf(mine.lse[i] - truth.lse[i]) < 1e-5f);
        free_answer(&truth);
        free_answer(&mine);
        free_problem(&p);
    }
}

static void all_masked(const ith_attn_kernel *kernel)
{
    for (int n = 0; n < 12; n++) {
        problem p = make_problem(dtypes[n % DTYPES], 13, n % 4 ? 200 : 0, 40, 1.0f);
        p.bias = malloc((size_t)p.keys * sizeof *p.bias + 1);
        for (int64_t j = 0; j < p.keys; j++)
            p.bias[j] = -INFINITY;
        if (n % 2)
            cut_somewhere(&p);
        answer mine = attend(kernel, &p);
        for (int64_t i = 0; i < p.rows * p.D; i++)
            assert_true(mine.o[i] == 0.0f);
        for (int64_t i = 0; i < p.rows; i++)
            assert_true(mine.lse[i] == -INFINITY);
        free_answer(&mine);
        free_problem(&p);
    }
}

static void nan_stays_in_its_row(const ith_attn_kernel *kernel)
{
    for (int n = 0; n < 6; n++) {
        problem p = make_problem(dtypes[n % DTYPES], 40, 200, 33, 1.0f);
        if (n % 2)
            cut_somewhere(&p);
        answer clean = attend(kernel, &p);
        int64_t row = random_between(0, p.rows - 1);
        p.q[row * p.D + random_between(0, p.D - 1)] = NAN;
        answer mine = attend(kernel, &p);
        for (int64_t d = 0; d < p.D; d++)
            assert_true(isnan(mine.o[row * p.D + d]));
        assert_true(isnan(mine.lse[row]));
        assert_same_bits(mine.o, clean.o, row * p.D);
        assert_same_bits(mine.o + (row + 1) * p.D, clean.o + (row + 1) * p.D, (p.rows - row - 1) * p.D);
        free_answer(&clean);
        free_answer(&mine);
        free_problem(&p);
    }
}

/* Many runs are as good as one. */
static void many_runs(const ith_attn_kernel *kernel)
{
    problem p = make_problem(ITH_F32, 20, 2000, 64, 4.0f);
    answer truth = exact(&p), once = attend(kernel, &p);
    p.cuts = CUTS_MAX;
    for (int i = 0; i <= p.cuts; i++)
        p.cut[i] = p.keys * i / p.cuts;
    answer split = attend(kernel, &p);
    assert_true(relative_error(&p, &split, &once) < 1e-6);
    assert_true(relative_error(&p, &split, &truth) <= 2 * relative_error(&p, &once, &truth));
    free_answer(&truth);
    free_answer(&once);
    free_answer(&split);
    free_problem(&p);
}

static void no_lse_wanted(const ith_attn_kernel *kernel)
{
    float q[2] = {1, 2}, k[2] = {3, 4}, v[2] = {5, 6}, o[2] = {0, 0};
    ith_attn_pack pack = {.dtype = ITH_F32, .keys = 1, .head_dim = 2, .k = k, .v = v, .k_stride = 2, .v_stride = 2};
    void *packed = guarded(kernel->packed_bytes(1, 2)), *scratch = guarded(kernel->scratch_bytes(2));
    pack.packed = packed;
    kernel->pack(&pack);
    ith_attn_run run = {.dtype = ITH_F32, .q_rows = 1, .keys = 1, .head_dim = 2, .q = q, .q_stride = 2, .scale = 1};
    run.packed = packed, run.first = run.last = true, run.o = o, run.o_stride = 2, run.scratch = scratch;
    kernel->run(&run);
    assert_true(o[0] == 5.0f && o[1] == 6.0f);
    release(packed, kernel->packed_bytes(1, 2));
    release(scratch, kernel->scratch_bytes(2));
}

static void what_is_supported(const ith_attn_kernel *kernel)
{
    for (int t = 0; t < DTYPES; t++) {
        assert_true(kernel->supports(dtypes[t], 1));
        assert_true(kernel->supports(dtypes[t], 1000));
        assert_false(kernel->supports(dtypes[t], 0));
        assert_false(kernel->supports(dtypes[t], -3));
        assert_false(kernel->supports(dtypes[t], INT64_MAX));
    }
    assert_false(kernel->supports(ITH_F64, 64));
    assert_false(kernel->supports(ITH_I8, 64));
    assert_int_equal(kernel->packed_bytes(INT64_MAX, 128), -1);
    assert_int_equal(kernel->packed_bytes(INT64_MAX / 256, 128), -1);
    assert_true(kernel->q_block > 0 && kernel->kv_block > 0);
}

/* ---- Running each test for each kernel --------------------------------------------------------------------------- */

static void for_each_kernel(void (*test)(const ith_attn_kernel *kernel))
{
    int tested = 0;
    for (int i = 0; ith_attn_kernel_at(i) != NULL; i++) {
        const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
        if ((kernel->cpu & ~ith_cpu_detect()) != 0)
            continue;
        random_state = 1;
        test(kernel);
        tested++;
    }
    assert_true(tested >= 1);
}

#define TEST_LIST(X)                                                                                                   \
    X(sizes_around_tiles)                                                                                              \
    X(head_sizes)                                                                                                      \
    X(random_problems)                                                                                                 \
    X(hard_logits)                                                                                                     \
    X(extreme_logits)                                                                                                  \
    X(lowest_bias)                                                                                                     \
    X(rows_alone)                                                                                                      \
    X(masked_keys)                                                                                                     \
    X(all_masked)                                                                                                      \
    X(nan_stays_in_its_row)                                                                                            \
    X(many_runs)                                                                                                       \
    X(no_lse_wanted)                                                                                                   \
    X(what_is_supported)

#define DEFINE_TEST(name)                                                                                              \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for_each_kernel(name);                                                                                         \
    }
TEST_LIST(DEFINE_TEST)

/* Instruction sets are taken away one after the other: the best of what is left is chosen. */
static void test_choice_by_cpu(void **state)
{
    (void)state;
    static const uint32_t masks[] = {ITH_CPU_BASELINE, ITH_CPU_BASELINE | ITH_CPU_AVX2,
                                     ITH_CPU_BASELINE | ITH_CPU_AVX2 | ITH_CPU_AVX512, 0};
    for (size_t n = 0; n < sizeof masks / sizeof *masks; n++) {
        ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
        options.cpu_mask = masks[n];
        ith_context *ctx = NULL;
        assert_int_equal(ith_context_create(&options, &ctx), ITH_OK);
        const ith_attn_kernel *best = ith_attn_kernel_choose(ctx, NULL, ITH_BF16, 128);
        assert_non_null(best);
        bool before = true;
        for (int i = 0; ith_attn_kernel_at(i) != NULL; i++) {
            const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
            bool runs = (kernel->cpu & ~ith_context_cpu(ctx)) == 0;
            assert_true(kernel != best || runs);
            before = before && kernel != best;
            assert_false(before && runs);
            assert_ptr_equal(ith_attn_kernel_choose(ctx, kernel->name, ITH_F32, 64), runs ? kernel : NULL);
        }
        if (masks[n] == ITH_CPU_BASELINE)
            assert_int_equal(best->cpu, ITH_CPU_BASELINE);
        ith_context_destroy(&ctx);
    }
}

static void test_choice_refused(void **state)
{
    (void)state;
    ith_context *ctx = NULL;
    assert_int_equal(ith_context_create(NULL, &ctx), ITH_OK);
    assert_null(ith_attn_kernel_choose(ctx, "abacus", ITH_F32, 64));
    assert_non_null(strstr(ith_context_error(ctx), "abacus"));
    assert_non_null(strstr(ith_context_error(ctx), "f32_ref"));
    assert_null(ith_attn_kernel_choose(ctx, NULL, ITH_F64, 64));
    assert_non_null(strstr(ith_context_error(ctx), "f64"));
    assert_null(ith_attn_kernel_choose(ctx, "f32_ref", ITH_F32, 0));
    assert_non_null(strstr(ith_context_error(ctx), "head_dim 0"));
    assert_null(ith_attn_kernel_at(-1));
    ith_context_destroy(&ctx);
}

int main(void)
{
#define NAME_TEST(name) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {TEST_LIST(NAME_TEST) cmocka_unit_test(test_choice_by_cpu),
                                       cmocka_unit_test(test_choice_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
