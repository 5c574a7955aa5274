/* SPDX-License-Identifier: Apache-2.0 */
/* A random attention problem with its tensors, whole; what float64 makes of it; and its way through a plan. */
#ifndef ITH_TESTS_ATTENTION_CASE_H
#define ITH_TESTS_ATTENTION_CASE_H

#include "base/dtype.h"
#include "comm/comm.h"
#include "support/in_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the logits are like. */
typedef enum case_kind {
    CASE_NORMAL,     /* up to 30 or so */
    CASE_PEAKED,     /* one key takes nearly all of a row's weight */
    CASE_OFFSET,     /* all keys share a large part, so that a row's logits are far from 0 and near one another */
    CASE_CONSTANT,   /* all keys are the same */
    CASE_HUGE,       /* thousands */
    CASE_TINY,       /* 1e-6 and less */
    CASE_ORTHOGONAL, /* queries see nothing of keys that are long */
    CASE_UNEVEN,     /* from head to head all of it */
    CASE_KINDS
} case_kind;

typedef struct attention_case {
    ith_attn_problem problem;
    ith_attn_options options;
    case_kind kind;
    int64_t gap;     /* elements between the rows of every tensor, filled with NaN */
    void *q, *k, *v; /* [B, S, H, D], contiguous, of the problem's type */
    float *key_bias;
    int32_t *kv_lengths;
    void *mask;                        /* [mask_batch, mask_heads, Sq, Skv] */
    double plain_error, largest_logit; /* set by case_oracle */
    float *o, *lse;                    /* whole, filled in by the ranks: [B, Sq, H, D], [B, H, Sq] */
    void *o_bits;                      /* o as it was written */
    bool wants_lse;
    char plan[1024];
} attention_case;

static inline uint32_t case_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline float case_value(uint32_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)case_random(state) * 0x1p-24f - 0.5f;
    return sum * 1.7f;
}

static inline void *case_tensor(ith_dtype type, const float *values, int64_t count)
{
    void *tensor = malloc((size_t)(count + 1) * sizeof *values);
    ith_from_f32(tensor, type, values, count);
    return tensor;
}

static inline int64_t case_kv_heads(const attention_case *c)
{
    return c->problem.kv_heads ? c->problem.kv_heads : c->problem.heads;
}

static inline case_kind case_kind_of_head(const attention_case *c, int64_t kv_head)
{
    return c->kind == CASE_UNEVEN ? (case_kind)(kv_head % CASE_UNEVEN) : c->kind;
}

/* A query's or a key's numbers. A normal logit has a standard deviation of about 4 with scale 1/sqrt(D). */
static inline void case_row(float *x, int64_t D, case_kind kind, bool is_key, uint32_t *seed)
{
    float size = kind == CASE_HUGE ? 40.0f : kind == CASE_TINY ? 1e-4f : kind == CASE_PEAKED ? 3.5f : 2.0f;
    for (int64_t d = 0; d < D; d++) {
        float value = case_value(seed);
        x[d] = size * value;
        if (kind == CASE_OFFSET && is_key)
            x[d] = 0.5f * value + (d % 3 ? 6.0f : -9.0f);
        if (kind == CASE_CONSTANT && is_key)
            x[d] = d % 2 ? 1.5f : -0.75f;
        if (kind == CASE_ORTHOGONAL && (d < D / 2) == is_key)
            x[d] = D > 1 ? 0 : value;
        else if (kind == CASE_ORTHOGONAL)
            x[d] = 4.5f * value;
    }
}

/* [B, rows, heads, D], head by head of the kind that is asked for. */
static inline void *case_rows(const attention_case *c, int64_t rows, int64_t heads, bool is_key, uint32_t *seed)
{
    int64_t D = c->problem.head_dim, all = c->problem.batch * rows * heads;
    float *values = malloc((size_t)(all * D + 1) * sizeof *values);
    for (int64_t i = 0; i < all; i++)
        case_row(values + i * D, D, case_kind_of_head(c, i % heads / (heads / case_kv_heads(c))), is_key, seed);
    void *tensor = case_tensor(c->problem.dtype, values, all * D);
    free(values);
    return tensor;
}

static inline void case_fill_mask(attention_case *c, uint32_t *seed)
{
    const ith_attn_problem *p = &c->problem;
    int64_t Mb = p->mask_batch ? p->mask_batch : 1, Mh = p->mask_heads ? p->mask_heads : 1;
    int64_t count = p->mask == ITH_MASK_NONE ? 0 : Mb * Mh * p->q_len * p->kv_len;
    c->mask = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        uint32_t draw = case_random(seed) % 8;
        bool hidden = draw < 3 || (p->kv_len && i / p->kv_len % 13 == 5); /* every 13th row wholly */
        if (p->mask == ITH_MASK_BOOL)
            ((uint8_t *)c->mask)[i] = hidden ? 0 : (uint8_t)(1 + draw);
        else
            ((float *)c->mask)[i] = hidden ? -INFINITY : draw == 3 ? -3e38f : case_value(seed);
    }
}

/* Fills in the tensors of a case whose problem is set. masked: of 8 keys how many have a bias of -inf. The other biases
 * are 0 if the seed is even. */
static inline void case_fill(attention_case *c, uint32_t seed, int masked)
{
    const ith_attn_problem *p = &c->problem;
    bool plain_bias = seed % 2 == 0;
    int64_t q = p->batch * p->q_len * p->heads * p->head_dim;
    int64_t v = p->batch * p->kv_len * case_kv_heads(c) * p->head_dim;
    c->q = case_rows(c, p->q_len, p->heads, false, &seed);
    c->k = case_rows(c, p->kv_len, case_kv_heads(c), true, &seed);
    float *values = malloc((size_t)(v + 1) * sizeof *values);
    for (int64_t i = 0; i < v; i++)
        values[i] = case_value(&seed);
    c->v = case_tensor(p->dtype, values, v);
    free(values);
    c->key_bias = malloc((size_t)(p->batch * p->kv_len + 1) * sizeof(float));
    for (int64_t i = 0; i < p->batch * p->kv_len; i++) {
        float bias = case_value(&seed);
        c->key_bias[i] = (int)(case_random(&seed) % 8) < masked ? -INFINITY : plain_bias ? 0 : bias;
    }
    c->kv_lengths = malloc((size_t)(p->batch + 1) * sizeof *c->kv_lengths);
    for (int64_t b = 0; b < p->batch; b++)
        c->kv_lengths[b] = (int32_t)(case_random(&seed) % (uint32_t)(p->kv_len + 1));
    case_fill_mask(c, &seed);
    c->o = malloc((size_t)(q + 1) * sizeof(float));
    c->o_bits = malloc((size_t)(q + 1) * sizeof(float));
    c->lse = malloc((size_t)(p->batch * p->heads * p->q_len + 1) * sizeof(float));
}

static inline void case_free(attention_case *c)
{
    void *const all[] = {c->q, c->k, c->v, c->key_bias, c->kv_lengths, c->mask, c->o, c->o_bits, c->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* What is added to the logit of query i and key j; -inf: hidden. */
static inline double case_bias(const attention_case *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const ith_attn_problem *p = &c->problem;
    double bias = p->has_key_bias ? (double)c->key_bias[b * p->kv_len + j] : 0;
    if (p->has_kv_lengths && j >= c->kv_lengths[b])
        return -INFINITY;
    int64_t entry = p->mask_batch > 1 ? b : 0, head = p->mask_heads > 1 ? h : 0;
    int64_t at = ((entry * (p->mask_heads > 1 ? p->mask_heads : 1) + head) * p->q_len + i) * p->kv_len + j;
    if (p->mask == ITH_MASK_BOOL && !((const uint8_t *)c->mask)[at])
        return -INFINITY;
    return bias + (p->mask == ITH_MASK_ADDITIVE ? (double)((const float *)c->mask)[at] : 0);
}

/* The problem in f32, with its rows' places. */
typedef struct case_numbers {
    const attention_case *c;
    float *q, *k, *v;
    double scale;
} case_numbers;

static inline const float *case_key(const case_numbers *n, const float *x, int64_t b, int64_t h, int64_t j)
{
    const ith_attn_problem *p = &n->c->problem;
    int64_t G = case_kv_heads(n->c);
    return x + ((b * p->kv_len + j) * G + h / (p->heads / G)) * p->head_dim;
}

/* A row of o [D] and its lse in double, straight from the definition. s [Skv] is scratch. */
static inline double case_row_exact(const case_numbers *n, int64_t b, int64_t i, int64_t h, double *s, double *o)
{
    const ith_attn_problem *p = &n->c->problem;
    const float *q = n->q + ((b * p->q_len + i) * p->heads + h) * p->head_dim;
    double m = -INFINITY, l = 0;
    for (int64_t j = 0; j < p->kv_len; j++) {
        const float *k = case_key(n, n->k, b, h, j);
        s[j] = 0;
        for (int64_t d = 0; d < p->head_dim; d++)
            s[j] += (double)q[d] * (double)k[d];
        s[j] = s[j] * n->scale + case_bias(n->c, b, h, i, j);
        m = s[j] > m ? s[j] : m;
    }
    memset(o, 0, (size_t)p->head_dim * sizeof *o);
    for (int64_t j = 0; j < p->kv_len && m > -INFINITY; j++) {
        const float *v = case_key(n, n->v, b, h, j);
        double weight = exp(s[j] - m);
        l += weight;
        for (int64_t d = 0; d < p->head_dim; d++)
            o[d] += weight * (double)v[d];
    }
    for (int64_t d = 0; d < p->head_dim; d++)
        o[d] = l > 0 ? o[d] / l : 0;
    return l > 0 ? m + log(l) : -INFINITY;
}

/* The same as it is plainly done in the problem's type: logits and sums in f32, p rounded to the type of v, o rounded.
 * Adds the largest logit of a key that counts to *largest. */
static inline void case_row_plain(const case_numbers *n, int64_t b, int64_t i, int64_t h, double *s, float *o,
                                  double *largest)
{
    const ith_attn_problem *p = &n->c->problem;
    const float *q = n->q + ((b * p->q_len + i) * p->heads + h) * p->head_dim;
    float m = -INFINITY, l = 0;
    for (int64_t j = 0; j < p->kv_len; j++) {
        const float *k = case_key(n, n->k, b, h, j);
        float dot = 0;
        for (int64_t d = 0; d < p->head_dim; d++)
            dot += q[d] * k[d];
        double bias = case_bias(n->c, b, h, i, j);
        float logit = dot * (float)n->scale + (float)bias;
        *largest = bias > -1e30 ? fmax(*largest, fabs((double)(dot * (float)n->scale))) : *largest;
        s[j] = (double)logit;
        m = logit > m ? logit : m;
    }
    memset(o, 0, (size_t)p->head_dim * sizeof *o);
    for (int64_t j = 0; j < p->kv_len && m > -INFINITY; j++) {
        const float *v = case_key(n, n->v, b, h, j);
        float weight = expf((float)s[j] - m), rounded;
        uint32_t bits;
        l += weight;
        ith_from_f32(&bits, p->dtype, &weight, 1);
        ith_to_f32(&rounded, &bits, p->dtype, 1);
        for (int64_t d = 0; d < p->head_dim; d++)
            o[d] += rounded * v[d];
    }
    for (int64_t d = 0; d < p->head_dim; d++)
        o[d] = l > 0 ? o[d] / l : 0;
    uint32_t *bits = malloc((size_t)p->head_dim * sizeof *bits);
    ith_from_f32(bits, p->dtype, o, p->head_dim);
    ith_to_f32(o, bits, p->dtype, p->head_dim);
    free(bits);
}

/* o [B, Sq, H, D] and lse [B, H, Sq] in double, then rounded to f32; and how far the plain implementation is from them.
 */
static inline void case_oracle(attention_case *c, float *o, float *lse)
{
    const ith_attn_problem *p = &c->problem;
    int64_t D = p->head_dim, count = p->batch * p->q_len * p->heads * D;
    int64_t kv_count = p->batch * p->kv_len * case_kv_heads(c) * D;
    case_numbers n = {.c = c, .scale = p->scale != 0 ? (double)p->scale : 1 / sqrt((double)D)};
    n.q = malloc((size_t)(count + 1) * sizeof(float));
    n.k = malloc((size_t)(kv_count + 1) * sizeof(float));
    n.v = malloc((size_t)(kv_count + 1) * sizeof(float));
    ith_to_f32(n.q, c->q, p->dtype, count);
    ith_to_f32(n.k, c->k, p->dtype, kv_count);
    ith_to_f32(n.v, c->v, p->dtype, kv_count);
    double *s = malloc((size_t)(p->kv_len + 1) * sizeof *s), *exact = malloc((size_t)D * sizeof *exact);
    float *plain = malloc((size_t)D * sizeof *plain);
    double error = 0, norm = 0;
    c->largest_logit = 0;
    for (int64_t row = 0; row < p->batch * p->q_len * p->heads; row++) {
        int64_t h = row % p->heads, i = row / p->heads % p->q_len, b = row / p->heads / p->q_len;
        lse[(b * p->heads + h) * p->q_len + i] = (float)case_row_exact(&n, b, i, h, s, exact);
        case_row_plain(&n, b, i, h, s, plain, &c->largest_logit);
        for (int64_t d = 0; d < D; d++) {
            o[row * D + d] = (float)exact[d];
            error += ((double)plain[d] - exact[d]) * ((double)plain[d] - exact[d]);
            norm += exact[d] * exact[d];
        }
    }
    c->plain_error = norm > 0 ? sqrt(error / norm) : 0;
    free(n.q), free(n.k), free(n.v), free(s), free(exact), free(plain);
}

/* The largest relative L2 error that is accepted: twice that of the plain implementation, which on few numbers may have
 * been lucky: not less than what the rounding of o, and of logits in f32, comes to. And, with logits up to 30, 2^-8 for
 * bf16, 5e-6 for f32. */
static inline double case_bound(const attention_case *c)
{
    ith_dtype type = c->problem.dtype;
    double unit = type == ITH_F32 ? 0x1p-24 : type == ITH_BF16 ? 0x1p-9 : 0x1p-11;
    double chance = 2 * unit + (2 + c->largest_logit) * 0x1p-23;
    double bound = fmax(2 * c->plain_error, chance);
    double absolute = type == ITH_F32 ? 5e-6 : type == ITH_BF16 ? 0x1p-8 : 0x1p-10;
    /* Where values cancel out, the plain implementation itself is beyond the absolute bound. */
    return c->largest_logit <= 30 ? fmin(bound, fmax(absolute, c->plain_error)) : bound;
}

/* This rank's rows of a whole tensor, each followed by the gap. */
static inline void *case_share(const attention_case *c, const void *whole, int64_t length, int64_t width, int64_t begin,
                               int64_t rows)
{
    size_t size = (size_t)ith_dtype_bytes(c->problem.dtype);
    int64_t stride = width + c->gap;
    char *share = malloc((size_t)(c->problem.batch * rows * stride + 1) * size);
    memset(share, 0xff, (size_t)(c->problem.batch * rows * stride + 1) * size); /* NaN in every type */
    for (int64_t i = 0; whole && i < c->problem.batch * rows; i++)
        memcpy(share + (size_t)(i * stride) * size,
               (const char *)whole + (size_t)((i / rows * length + begin + i % rows) * width) * size,
               (size_t)width * size);
    return share;
}

/* Puts this rank's rows of o and lse in their place; checks that nothing was written between rows. */
static inline ith_status case_collect(ith_context *context, attention_case *c, const char *o, const float *lse,
                                      int64_t begin, int64_t rows)
{
    const ith_attn_problem *p = &c->problem;
    int64_t width = p->heads * p->head_dim, stride = width + c->gap;
    size_t size = (size_t)ith_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < p->batch * rows; i++) {
        const char *row = o + (size_t)(i * stride) * size;
        int64_t at = (i / rows * p->q_len + begin + i % rows) * width;
        ith_to_f32(c->o + at, row, p->dtype, width);
        memcpy((char *)c->o_bits + (size_t)at * size, row, (size_t)width * size);
        for (size_t byte = (size_t)width * size; byte < (size_t)stride * size; byte++)
            RANK_CHECK(context, (uint8_t)row[byte] == 0xff);
    }
    for (int64_t n = 0; lse && n < p->batch * p->heads; n++)
        memcpy(c->lse + n * p->q_len + begin, lse + n * rows, (size_t)rows * sizeof *lse);
    return ITH_OK;
}

/* One rank's part: its rows, a plan, two executions with the same bits and no allocation. For ith_run_ranks. */
static inline ith_status case_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    attention_case *c = user;
    ith_attn_problem problem = c->problem;
    int64_t width = problem.heads * problem.head_dim, kv_width = case_kv_heads(c) * problem.head_dim;
    int64_t begin, rows, kv_begin = 0, kv_rows = problem.kv_len;
    ith_share(problem.q_len, ith_comm_size(comm), ith_comm_rank(comm), &begin, &rows);
    if (!problem.replicated_kv)
        ith_share(problem.kv_len, ith_comm_size(comm), ith_comm_rank(comm), &kv_begin, &kv_rows);
    if (c->gap) {
        problem.q_row_stride = problem.o_row_stride = width + c->gap;
        problem.k_row_stride = problem.v_row_stride = kv_width + c->gap;
    }
    void *q = case_share(c, c->q, problem.q_len, width, begin, rows);
    void *k = case_share(c, c->k, problem.kv_len, kv_width, kv_begin, kv_rows);
    void *v = case_share(c, c->v, problem.kv_len, kv_width, kv_begin, kv_rows);
    void *o = case_share(c, NULL, problem.q_len, width, begin, rows), *again = NULL;
    size_t o_bytes = (size_t)(problem.batch * rows * (width + c->gap)) * (size_t)ith_dtype_bytes(problem.dtype);
    float *lse = malloc((size_t)(problem.batch * problem.heads * rows + 1) * sizeof *lse);
    ith_attn_tensors tensors = {
        .struct_size = sizeof(ith_attn_tensors), .q = q, .k = k, .v = v, .o = o, .lse = c->wants_lse ? lse : NULL};
    tensors.key_bias = problem.has_key_bias ? c->key_bias : NULL;
    tensors.kv_lengths = problem.has_kv_lengths ? c->kv_lengths : NULL;
    tensors.mask = problem.mask != ITH_MASK_NONE ? c->mask : NULL;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, &c->options, comm, &plan);
    if (!status) {
        if (ith_comm_rank(comm) == 0)
            ith_plan_print(plan, c->plan, sizeof c->plan);
        status = ith_plan_execute(plan, &tensors);
    }
    if (!status) {
        again = malloc(o_bytes + 1);
        memcpy(again, o, o_bytes);
        status = ith_plan_execute(plan, &tensors);
        if (!status && memcmp(again, o, o_bytes))
            status = ith_fail(context, ITH_ERR_INTERNAL, "two executions differ");
    }
    if (!status)
        status = case_collect(context, c, o, tensors.lse, begin, rows);
    ith_plan_destroy(&plan);
    free(q), free(k), free(v), free(o), free(again), free(lse);
    return status;
}

#endif
