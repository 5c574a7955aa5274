/* SPDX-License-Identifier: Apache-2.0 */
/* Problems for attention kernels, and three answers to each: float64, the plain way of computing the same in the same
 * type, and the kernel's. Every array that a kernel reads or writes lies between guard bytes, what it writes starts as
 * NaNs, and rows stand in memory in reverse order, some elements apart and one off any alignment. */
#ifndef ITH_TESTS_ATTN_PROBLEM_H
#define ITH_TESTS_ATTN_PROBLEM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../../src/base/dtype.h"
#include "../../src/base/size.h"
#include "../../src/kernels/kernel.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random numbers, guarded memory ---------------------------------------------------------------------------- */

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

static void *allocate(int64_t count, size_t size)
{
    void *array = calloc((size_t)count + 1, size);
    assert_non_null(array);
    return array;
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
    if (array == NULL)
        return;
    unsigned char *start = (unsigned char *)array - GUARD;
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(start[i], GUARD_BYTE);
        assert_int_equal(start[GUARD + bytes + i], GUARD_BYTE);
    }
    free(start);
}

/* ---- A problem ------------------------------------------------------------------------------------------------- */

enum { CUTS_MAX = 5 };

typedef struct problem {
    ith_dtype dtype;
    ith_softmax softmax;
    int64_t rows, keys, D;
    float scale;
    float *q, *k, *v; /* [rows or keys, D]: numbers that dtype holds */
    float *bias;      /* [keys] or NULL */
    bool *absent;     /* [keys] or NULL */
    ith_mask mask_kind;
    uint8_t *shown; /* [rows, keys], BOOL */
    float *added;   /* [rows, keys], ADDITIVE */
    float *m;       /* [rows], FIXED_M */
    ith_attn_tiles tiles;
    bool piecemeal; /* packed in several calls, in any order */
    int cuts;       /* KV blocks are keys [cut[i], cut[i + 1]) */
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
    float *x = allocate(count, sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = rounded(dtype, normal() * size);
    return x;
}

/* Normal numbers, logits of about `spread`, one KV block, the tiles that the kernel likes best. */
static problem make_problem(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t rows, int64_t keys, int64_t D,
                            float spread)
{
    problem p = {.dtype = dtype, .rows = rows, .keys = keys, .D = D, .cuts = 1, .cut = {0, keys}};
    p.softmax = ITH_SOFTMAX_ONLINE;
    p.tiles = kernel->tiles(D).best;
    p.scale = spread / sqrtf((float)D);
    p.q = random_array(dtype, rows * D, 1.0f);
    p.k = random_array(dtype, keys * D, 1.0f);
    p.v = random_array(dtype, keys * D, 1.0f);
    return p;
}

static void free_problem(problem *p)
{
    void *all[] = {p->q, p->k, p->v, p->bias, p->absent, p->shown, p->added, p->m};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static bool sees(const problem *p, int64_t i, int64_t j)
{
    return !(p->absent && p->absent[j]) && !(p->bias && p->bias[j] == -INFINITY) &&
           !(p->shown && p->shown[i * p->keys + j] == 0) && !(p->added && p->added[i * p->keys + j] == -INFINITY);
}

/* In natural units; -inf where the key is hidden. */
static double exact_logit(const problem *p, int64_t i, int64_t j)
{
    if (!sees(p, i, j))
        return -INFINITY;
    double dot = 0;
    for (int64_t d = 0; d < p->D; d++)
        dot += (double)p->q[i * p->D + d] * (double)p->k[j * p->D + d];
    double s = (double)p->scale * dot + (p->bias ? (double)p->bias[j] : 0.0);
    return s + (p->added ? (double)p->added[i * p->keys + j] : 0.0);
}

static float plain_logit(const problem *p, int64_t i, int64_t j)
{
    if (!sees(p, i, j))
        return -INFINITY;
    float dot = 0;
    for (int64_t d = 0; d < p->D; d++)
        dot += p->q[i * p->D + d] * p->k[j * p->D + d];
    float s = p->scale * dot + (p->bias ? p->bias[j] : 0.0f);
    return s + (p->added ? p->added[i * p->keys + j] : 0.0f);
}

/* A random mask of that kind, with a few rows that see nothing. */
static void add_mask(problem *p, ith_mask kind)
{
    p->mask_kind = kind;
    if (kind == ITH_MASK_BOOL)
        p->shown = allocate(p->rows * p->keys, sizeof *p->shown);
    if (kind == ITH_MASK_ADDITIVE)
        p->added = allocate(p->rows * p->keys, sizeof *p->added);
    for (int64_t n = 0; kind != ITH_MASK_NONE && n < p->rows * p->keys; n++) {
        bool show = random_between(0, 3) != 0 && n / p->keys % 7 != 5;
        if (kind == ITH_MASK_BOOL)
            p->shown[n] = show ? (uint8_t)random_between(1, 255) : 0;
        else
            p->added[n] = show ? 2.0f * normal() : -INFINITY;
    }
}

/* Turns the problem into one of that softmax: offsets from which a row's largest logit is between 2^-40 and 2^80. */
static void set_softmax(problem *p, ith_softmax softmax)
{
    p->softmax = softmax;
    free(p->m);
    p->m = NULL;
    if (softmax != ITH_SOFTMAX_FIXED_M)
        return;
    p->m = allocate(p->rows, sizeof *p->m);
    for (int64_t i = 0; i < p->rows; i++) {
        double most = -INFINITY;
        for (int64_t j = 0; j < p->keys; j++)
            most = fmax(most, exact_logit(p, i, j));
        p->m[i] = (most == -INFINITY ? 0.0f : (float)ceil(most * M_LOG2E)) - (float)random_between(-40, 80);
    }
}

/* Up to CUTS_MAX KV blocks, some of them empty. */
static void cut_somewhere(problem *p)
{
    p->cuts = (int)random_between(2, CUTS_MAX);
    for (int i = 1; i < p->cuts; i++)
        p->cut[i] = random_between(p->cut[i - 1], p->keys);
    p->cut[p->cuts] = p->keys;
}

/* ---- The exact and the plain answer ---------------------------------------------------------------------------- */

static answer make_answer(const problem *p)
{
    return (answer){allocate(p->rows * p->D, sizeof(float)), allocate(p->rows, sizeof(float))};
}

static void free_answer(answer *a)
{
    free(a->o);
    free(a->lse);
}

/* In float64. */
static answer exact(const problem *p)
{
    answer a = make_answer(p);
    double *s = allocate(p->keys, sizeof *s), *o = allocate(p->D, sizeof *o);
    for (int64_t i = 0; i < p->rows; i++) {
        double m = -INFINITY, l = 0;
        for (int64_t j = 0; j < p->keys; j++) {
            s[j] = exact_logit(p, i, j);
            m = fmax(m, s[j]);
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

/* f32 logits, weights rounded to the type of v, f32 sums, the output rounded to its type. */
static answer plain(const problem *p)
{
    answer a = make_answer(p);
    float *s = allocate(p->keys, sizeof *s);
    for (int64_t i = 0; i < p->rows; i++) {
        float m = -INFINITY, l = 0, *o = a.o + i * p->D;
        for (int64_t j = 0; j < p->keys; j++) {
            s[j] = plain_logit(p, i, j);
            m = fmaxf(m, s[j]);
        }
        for (int64_t j = 0; j < p->keys; j++) {
            if (s[j] == -INFINITY)
                continue;
            float weight = expf(s[j] - m);
            l += weight;
            weight = rounded(p->dtype, weight);
            for (int64_t d = 0; d < p->D; d++)
                o[d] += weight * p->v[j * p->D + d];
        }
        for (int64_t d = 0; d < p->D; d++)
            o[d] = l > 0 ? rounded(p->dtype, o[d] / l) : 0.0f;
        a.lse[i] = l > 0 ? m + logf(l) : -INFINITY;
    }
    free(s);
    return a;
}

/* ---- The kernel's answer --------------------------------------------------------------------------------------- */

/* Rows of D numbers somewhere in memory. */
typedef struct scattered {
    void **row;
    char *memory;
    int64_t bytes, count, stride;
} scattered;

static scattered make_rows(const problem *p, int64_t count, int64_t stride)
{
    int64_t size = ith_dtype_bytes(p->dtype);
    scattered r = {.row = allocate(count, sizeof *r.row), .count = count, .stride = stride};
    r.bytes = (count * stride + 1) * size;
    r.memory = guarded(r.bytes);
    for (int64_t j = 0; j < count; j++)
        r.row[j] = r.memory + (1 + (count - 1 - j) * stride) * size;
    return r;
}

static scattered make_rows_of(const problem *p, const float *x, int64_t count, int64_t stride)
{
    scattered r = make_rows(p, count, stride);
    for (int64_t j = 0; j < count; j++)
        ith_from_f32(r.row[j], p->dtype, x + j * p->D, p->D);
    return r;
}

static void free_rows(scattered *r)
{
    release(r->memory, r->bytes);
    free(r->row);
}

/* What lies between the rows of an output is still NaN. */
static void check_gaps(const problem *p, const scattered *o)
{
    int64_t size = ith_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < o->bytes; i++) {
        int64_t element = i / size - 1;
        if (element < 0 || element % o->stride >= p->D)
            assert_int_equal((unsigned char)o->memory[i], 0xff);
    }
}

/* The calls that pack a KV block: one, or several from the last to the first. */
static void call_pack(const ith_attn_kernel *kernel, const problem *p, ith_attn_pack whole)
{
    int64_t step = p->tiles.block_kv_compute_in, end = whole.keys;
    while (p->piecemeal && end > step) {
        int64_t from = random_between(1, (end - 1) / step) * step;
        ith_attn_pack piece = whole;
        piece.first = from, piece.keys = end - from;
        piece.k += from, piece.v += from;
        piece.key_bias = whole.key_bias ? whole.key_bias + from : NULL;
        kernel->pack(&piece);
        end = from;
    }
    whole.keys = end;
    kernel->pack(&whole);
}

/* Keys [first, first + keys) packed. */
static void *pack_block(const ith_attn_kernel *kernel, const problem *p, int64_t first, int64_t keys)
{
    scattered k = make_rows_of(p, p->k + first * p->D, keys, p->D + 1);
    scattered v = make_rows_of(p, p->v + first * p->D, keys, p->D + 5);
    for (int64_t j = 0; p->absent && j < keys; j++) {
        if (p->absent[first + j])
            k.row[j] = v.row[j] = NULL;
    }
    ith_attn_pack pack = {.dtype = p->dtype, .head_dim = p->D, .keys = keys};
    pack.k = (const void *const *)k.row, pack.v = (const void *const *)v.row;
    pack.key_bias = p->bias ? p->bias + first : NULL;
    pack.packed = guarded(kernel->packed_bytes(keys, p->D));
    call_pack(kernel, p, pack);
    free_rows(&k);
    free_rows(&v);
    return pack.packed;
}

/* State between calls, in guarded memory. */
typedef struct saved_state {
    int64_t bytes, o_bytes;
    float *m, *l, *o_sum;
} saved_state;

static saved_state make_state(const problem *p, int64_t count)
{
    saved_state s = {.bytes = count * (int64_t)sizeof(float), .o_bytes = count * p->D * (int64_t)sizeof(float)};
    s.m = guarded(s.bytes);
    s.l = guarded(s.bytes);
    s.o_sum = guarded(s.o_bytes);
    return s;
}

static void free_state(saved_state *s)
{
    release(s->m, s->bytes);
    release(s->l, s->bytes);
    release(s->o_sum, s->o_bytes);
}

/* One call: keys [first, first + keys), and queries from row `begin` on. */
static void attend_keys(const ith_attn_kernel *kernel, const problem *p, ith_attn_call call, int64_t begin,
                        int64_t first)
{
    const void **mask = allocate(call.q_rows, sizeof *mask);
    for (int64_t i = 0; i < call.q_rows; i++) {
        int64_t at = (begin + i) * p->keys + first;
        mask[i] = p->mask_kind == ITH_MASK_BOOL ? (const void *)(p->shown + at) : (const void *)(p->added + at);
    }
    if (p->mask_kind != ITH_MASK_NONE)
        call.mask = mask;
    int64_t scratch_bytes = kernel->scratch_bytes(p->D, &p->tiles);
    void *packed = pack_block(kernel, p, first, call.keys);
    call.packed = packed;
    call.scratch = guarded(scratch_bytes);
    kernel->attend(&call);
    release(call.scratch, scratch_bytes);
    release(packed, kernel->packed_bytes(call.keys, p->D));
    free(mask);
}

static ith_attn_call call_of(const problem *p, int64_t count)
{
    return (ith_attn_call){.dtype = p->dtype,
                           .q_rows = count,
                           .head_dim = p->D,
                           .tiles = p->tiles,
                           .scale = p->scale,
                           .softmax = p->softmax,
                           .mask_kind = p->mask_kind};
}

/* Rows [begin, begin + count) of the problem, at most block_q of them, written from o and lse on. */
static void attend_block(const ith_attn_kernel *kernel, const problem *p, int64_t begin, int64_t count, float *o,
                         float *lse)
{
    scattered q = make_rows_of(p, p->q + begin * p->D, count, p->D + 3), out = make_rows(p, count, p->D + 7);
    saved_state between = make_state(p, count);
    ith_attn_call call = call_of(p, count);
    call.q = (const void *const *)q.row, call.o = (void *const *)out.row;
    call.lse = guarded(between.bytes);
    if (p->cuts > 1)
        call.m = between.m, call.l = between.l, call.o_sum = between.o_sum;
    if (p->m) {
        call.m = between.m;
        memcpy(call.m, p->m + begin, (size_t)between.bytes);
    }
    for (int i = 0; i < p->cuts; i++) {
        call.keys = p->cut[i + 1] - p->cut[i];
        call.first = i == 0, call.last = i == p->cuts - 1;
        attend_keys(kernel, p, call, begin, p->cut[i]);
    }
    if (p->m)
        assert_memory_equal(call.m, p->m + begin, (size_t)between.bytes);
    for (int64_t i = 0; i < count; i++)
        ith_to_f32(o + i * p->D, out.row[i], p->dtype, p->D);
    memcpy(lse, call.lse, (size_t)between.bytes);
    check_gaps(p, &out);
    release(call.lse, between.bytes);
    free_state(&between);
    free_rows(&q);
    free_rows(&out);
}

static answer attend_rows(const ith_attn_kernel *kernel, const problem *p, int64_t begin, int64_t count)
{
    problem part = *p;
    part.rows = count;
    answer a = make_answer(&part);
    for (int64_t i = 0; i == 0 || i < count; i += p->tiles.block_q)
        attend_block(kernel, p, begin + i, ith_min64(p->tiles.block_q, count - i), a.o + i * p->D, a.lse + i);
    return a;
}

static answer attend(const ith_attn_kernel *kernel, const problem *p)
{
    return attend_rows(kernel, p, 0, p->rows);
}

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

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

static double bound_of(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 5e-6 : dtype == ITH_BF16 ? 0x1p-8 : 0x1p-11;
}

static void check_lse(const problem *p, const float *mine, const float *truth)
{
    float slack = p->dtype == ITH_F32 ? 0.0f : 0x1p-9f; /* sums of weights of 16 bits */
    for (int64_t i = 0; i < p->rows; i++) {
        if (truth[i] == -INFINITY)
            assert_true(mine[i] == -INFINITY);
        else
            assert_true(fabsf(mine[i] - truth[i]) <= slack + 4e-6f * fmaxf(4.0f, fabsf(truth[i])));
    }
}

/* o and lse of the kernel against float64: within the type's bound, and at most twice as far as the plain way, which
 * for a lone key may be right to the bit. On a few numbers that may be so by luck, and o so small a difference of large
 * v that no bound holds: only some units are asked for then. */
static void check_accuracy(const ith_attn_kernel *kernel, const problem *p, double bound)
{
    answer truth = exact(p), simple = plain(p), mine = attend(kernel, p);
    double error = relative_error(p, &mine, &truth), allowed = 2 * relative_error(p, &simple, &truth);
    bool few = p->rows < 16 || p->rows * p->D < 512; /* a row errs as its logits do, all the same way */
    double luck = few ? 16 * unit(p->dtype) : unit(ITH_F32);
    if (few && p->dtype == ITH_F32)
        luck = 128 * unit(ITH_F32);
    if (!((few || error <= bound) && error <= fmax(allowed, luck)))
        fail_msg(
            "%s %s softmax %d mask %d rows %lld keys %lld D %lld KV blocks %d: error %.3g, bound %.3g, twice the plain "
            "one's %.3g",
            kernel->name, ith_dtype_name(p->dtype), (int)p->softmax, (int)p->mask_kind, (long long)p->rows,
            (long long)p->keys, (long long)p->D, p->cuts, error, bound, allowed);
    check_lse(p, mine.lse, truth.lse);
    free_answer(&truth);
    free_answer(&simple);
    free_answer(&mine);
}

static void assert_same_bits(const float *a, const float *b, int64_t count)
{
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

#endif
