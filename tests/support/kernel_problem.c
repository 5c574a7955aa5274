/* SPDX-License-Identifier: Apache-2.0 */
#include "support/kernel_problem.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/size.h"
#include "oracle/oracle.h"
#include "support/random.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t random_state = 1;

void *allocate(int64_t count, size_t size)
{
    void *array = calloc((size_t)count + 1, size);
    assert_non_null(array);
    return array;
}

void *guarded(int64_t bytes)
{
    assert_true(bytes >= 0);
    size_t whole = (size_t)ith_round_up(bytes + 2 * GUARD, 64);
    unsigned char *start = aligned_alloc(64, whole);
    assert_non_null(start);
    memset(start, GUARD_BYTE, whole);
    memset(start + GUARD, 0xff, (size_t)bytes);
    return start + GUARD;
}

void release(void *array, int64_t bytes)
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

float rounded(ith_dtype dtype, float x)
{
    uint32_t storage = 0;
    ith_from_f32(&storage, dtype, &x, 1);
    ith_to_f32(&x, &storage, dtype, 1);
    return x;
}

float *random_array(ith_dtype dtype, int64_t count, float size)
{
    float *x = allocate(count, sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = rounded(dtype, random_normal(&random_state) * size);
    return x;
}

problem make_problem(const ith_attn_kernel *kernel, ith_dtype dtype, int64_t rows, int64_t keys, int64_t D,
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

void free_problem(problem *p)
{
    void *all[] = {p->q, p->k, p->v, p->bias, p->absent, p->shown, p->added, p->m};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

bool sees(const problem *p, int64_t i, int64_t j)
{
    return !(p->absent && p->absent[j]) && !(p->bias && p->bias[j] == -INFINITY) &&
           !(p->shown && p->shown[i * p->keys + j] == 0) && !(p->added && p->added[i * p->keys + j] == -INFINITY);
}

void add_mask(problem *p, ith_mask kind)
{
    p->mask_kind = kind;
    if (kind == ITH_MASK_BOOL)
        p->shown = allocate(p->rows * p->keys, sizeof *p->shown);
    if (kind == ITH_MASK_ADDITIVE)
        p->added = allocate(p->rows * p->keys, sizeof *p->added);
    for (int64_t n = 0; kind != ITH_MASK_NONE && n < p->rows * p->keys; n++) {
        bool show = random_between(&random_state, 0, 3) != 0 && n / p->keys % 7 != 5;
        if (kind == ITH_MASK_BOOL)
            p->shown[n] = show ? (uint8_t)random_between(&random_state, 1, 255) : 0;
        else
            p->added[n] = show ? 2.0f * random_normal(&random_state) : -INFINITY;
    }
}

typedef bool oracle_fn(const ith_attn_problem *, const ith_attn_tensors *, ith_oracle_rows *);

static void *stored(const problem *p, const float *x, int64_t count)
{
    void *tensor = allocate(count, sizeof *x);
    ith_from_f32(tensor, p->dtype, x, count);
    return tensor;
}

/* The number of results of the oracle that are remembered, because most kernels get the same problems. */
enum { REMEMBERED = 4096 };

static struct {
    uint64_t key; /* 0: none */
    ith_oracle_rows rows;
} remembered[REMEMBERED];

static uint64_t key_of(const ith_attn_problem *whole, const ith_attn_tensors *t, oracle_fn *fn)
{
    const int64_t element = ith_dtype_bytes(whole->dtype), cells = whole->q_len * whole->kv_len;
    const int64_t sizes[] = {whole->q_len, whole->kv_len, whole->head_dim,
                             whole->dtype, whole->mask,   fn == ith_oracle_exact};
    uint64_t key = ith_hash(0, sizes, sizeof sizes);
    key = ith_hash(key, &whole->scale, sizeof whole->scale);
    key = ith_hash(key, t->q, whole->q_len * whole->head_dim * element);
    key = ith_hash(key, t->k, whole->kv_len * whole->head_dim * element);
    key = ith_hash(key, t->v, whole->kv_len * whole->head_dim * element);
    key = ith_hash(key, t->key_bias, whole->kv_len * (int64_t)sizeof(float));
    key = ith_hash(key, t->mask, t->mask ? cells * (whole->mask == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float)) : 0);
    return key ? key : 1;
}

/* Asks the oracle about a problem: one head, whose absent keys have a bias of -inf. The result belongs to the table of
 * remembered results. */
static const ith_oracle_rows *ask_oracle(const problem *p, oracle_fn *fn)
{
    ith_attn_problem whole = {.struct_size = sizeof whole, .batch = 1, .heads = 1, .kv_heads = 1, .head_dim = p->D};
    whole.q_len = p->rows, whole.kv_len = p->keys, whole.dtype = p->dtype, whole.scale = p->scale;
    whole.has_key_bias = true, whole.mask = p->mask_kind, whole.mask_batch = whole.mask_heads = 1;
    whole.q_row_stride = whole.k_row_stride = whole.v_row_stride = p->D;
    float *bias = allocate(p->keys, sizeof *bias);
    for (int64_t j = 0; j < p->keys; j++)
        bias[j] = p->absent && p->absent[j] ? -INFINITY : p->bias ? p->bias[j] : 0.0f;
    const ith_attn_tensors t = {.q = stored(p, p->q, p->rows * p->D),
                                .k = stored(p, p->k, p->keys * p->D),
                                .v = stored(p, p->v, p->keys * p->D),
                                .key_bias = bias,
                                .mask = p->shown ? (const void *)p->shown : p->added};
    if (p->scale == 0) /* for a kernel 0 is the scale itself; for the oracle it stands for the default scale, so q
                        * becomes 0 instead */
        memset((void *)t.q, 0, (size_t)(p->rows * p->D * ith_dtype_bytes(p->dtype)));
    const uint64_t key = key_of(&whole, &t, fn);
    ith_oracle_rows *rows = &remembered[key % REMEMBERED].rows;
    if (remembered[key % REMEMBERED].key != key) {
        ith_oracle_rows_free(rows);
        assert_true(ith_oracle_rows_create(&whole, p->rows, rows) && fn(&whole, &t, rows));
        remembered[key % REMEMBERED].key = key;
    }
    free((void *)t.q), free((void *)t.k), free((void *)t.v), free(bias);
    return rows;
}

void set_softmax(problem *p, ith_softmax softmax)
{
    p->softmax = softmax;
    free(p->m);
    p->m = NULL;
    if (softmax != ITH_SOFTMAX_FIXED_M)
        return;
    p->m = allocate(p->rows, sizeof *p->m);
    const ith_oracle_rows *rows = ask_oracle(p, ith_oracle_exact);
    for (int64_t i = 0; i < p->rows; i++) {
        float most = rows->max_logit[i] == -INFINITY ? 0.0f : (float)ceil(rows->max_logit[i] * M_LOG2E);
        p->m[i] = most - (float)random_between(&random_state, -40, 80);
    }
}

void cut_somewhere(problem *p)
{
    p->cuts = (int)random_between(&random_state, 2, CUTS_MAX);
    for (int i = 1; i < p->cuts; i++)
        p->cut[i] = random_between(&random_state, p->cut[i - 1], p->keys);
    p->cut[p->cuts] = p->keys;
}

answer make_answer(const problem *p)
{
    return (answer){allocate(p->rows * p->D, sizeof(float)), allocate(p->rows, sizeof(float))};
}

void free_answer(answer *a)
{
    free(a->o);
    free(a->lse);
}

static answer answer_of(const problem *p, oracle_fn *fn)
{
    answer a = make_answer(p);
    const ith_oracle_rows *rows = ask_oracle(p, fn);
    for (int64_t i = 0; i < p->rows * p->D; i++)
        a.o[i] = (float)rows->o[i];
    for (int64_t i = 0; i < p->rows; i++)
        a.lse[i] = (float)rows->lse[i];
    return a;
}

answer exact(const problem *p)
{
    return answer_of(p, ith_oracle_exact);
}

answer plain(const problem *p)
{
    return answer_of(p, ith_oracle_plain);
}

scattered make_rows(const problem *p, int64_t count, int64_t stride)
{
    int64_t size = ith_dtype_bytes(p->dtype);
    scattered r = {.row = allocate(count, sizeof *r.row), .count = count, .stride = stride};
    r.bytes = (count * stride + 1) * size;
    r.memory = guarded(r.bytes);
    for (int64_t j = 0; j < count; j++)
        r.row[j] = r.memory + (1 + (count - 1 - j) * stride) * size;
    return r;
}

scattered make_rows_of(const problem *p, const float *x, int64_t count, int64_t stride)
{
    scattered r = make_rows(p, count, stride);
    for (int64_t j = 0; j < count; j++)
        ith_from_f32(r.row[j], p->dtype, x + j * p->D, p->D);
    return r;
}

void free_rows(scattered *r)
{
    release(r->memory, r->bytes);
    free(r->row);
}

/* Checks that the memory between the rows of an output still holds NaN. */
static void check_gaps(const problem *p, const scattered *o)
{
    int64_t size = ith_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < o->bytes; i++) {
        int64_t element = i / size - 1;
        if (element < 0 || element % o->stride >= p->D)
            assert_int_equal((unsigned char)o->memory[i], 0xff);
    }
}

/* Packs a KV block by one call, or by several from its end to its beginning. */
static void call_pack(const ith_attn_kernel *kernel, const problem *p, ith_attn_pack whole)
{
    int64_t step = p->tiles.block_kv_compute_in, end = whole.keys;
    while (p->piecemeal && end > step) {
        int64_t from = random_between(&random_state, 1, (end - 1) / step) * step;
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

/* Packs keys [first, first + keys) and their values as a KV block, in new memory. */
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

saved_state make_state(const problem *p, int64_t count)
{
    saved_state s = {.bytes = count * (int64_t)sizeof(float), .o_bytes = count * p->D * (int64_t)sizeof(float)};
    s.m = guarded(s.bytes);
    s.l = guarded(s.bytes);
    s.o_sum = guarded(s.o_bytes);
    return s;
}

void free_state(saved_state *s)
{
    release(s->m, s->bytes);
    release(s->l, s->bytes);
    release(s->o_sum, s->o_bytes);
}

void attend_keys(const ith_attn_kernel *kernel, const problem *p, ith_attn_call call, int64_t begin, int64_t first)
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

ith_attn_call call_of(const problem *p, int64_t count)
{
    return (ith_attn_call){.dtype = p->dtype,
                           .q_rows = count,
                           .head_dim = p->D,
                           .tiles = p->tiles,
                           .scale = p->scale,
                           .softmax = p->softmax,
                           .mask_kind = p->mask_kind};
}

/* Computes rows [begin, begin + count) of the problem, at most block_q of them, and writes them to o and lse. */
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

answer attend_rows(const ith_attn_kernel *kernel, const problem *p, int64_t begin, int64_t count)
{
    problem part = *p;
    part.rows = count;
    answer a = make_answer(&part);
    for (int64_t i = 0; i == 0 || i < count; i += p->tiles.block_q)
        attend_block(kernel, p, begin + i, ith_min64(p->tiles.block_q, count - i), a.o + i * p->D, a.lse + i);
    return a;
}

answer attend(const ith_attn_kernel *kernel, const problem *p)
{
    return attend_rows(kernel, p, 0, p->rows);
}

double relative_error(const problem *p, const answer *a, const answer *b)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < p->rows * p->D; i++) {
        double d = (double)a->o[i] - (double)b->o[i];
        difference += d * d;
        norm += (double)b->o[i] * (double)b->o[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

double unit(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 0x1p-24 : dtype == ITH_BF16 ? 0x1p-9 : 0x1p-12;
}

double bound_of(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 5e-6 : dtype == ITH_BF16 ? 0x1p-8 : 0x1p-11;
}

void check_lse(const problem *p, const float *mine, const float *truth)
{
    float slack = p->dtype == ITH_F32 ? 0.0f : 0x1p-9f; /* lse may come from a sum of probabilities of 16 bits */
    for (int64_t i = 0; i < p->rows; i++) {
        if (truth[i] == -INFINITY)
            assert_true(mine[i] == -INFINITY);
        else
            assert_true(fabsf(mine[i] - truth[i]) <= slack + 4e-6f * fmaxf(4.0f, fabsf(truth[i])));
    }
}

void check_accuracy(const ith_attn_kernel *kernel, const problem *p, double bound)
{
    answer truth = exact(p), simple = plain(p), mine = attend(kernel, p);
    double error = relative_error(p, &mine, &truth), allowed = 2 * relative_error(p, &simple, &truth);
    bool few = p->rows < 16 || p->rows * p->D < 512; /* errors in few rows do not average out: all numbers of a row
                                                      * share the errors of its logits */
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

void assert_same_bits(const float *a, const float *b, int64_t count)
{
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
}
