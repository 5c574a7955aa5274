/* A random attention problem with its tensors, whole; what float64 makes of it; and its way through a plan. */
#ifndef ITH_TESTS_ATTENTION_CASE_H
#define ITH_TESTS_ATTENTION_CASE_H

#include "base/dtype.h"
#include "comm/comm.h"
#include "support/in_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct attention_case {
    ith_attn_problem problem;
    ith_attn_options options;
    int64_t gap;     /* elements between the rows of every tensor, filled with NaN */
    void *q, *k, *v; /* [B, S, H, D], contiguous, of the problem's type */
    float *key_bias;
    float *o, *lse; /* whole, filled in by the ranks: [B, Sq, H, D], [B, H, Sq] */
    void *o_bits;   /* o as it was written */
    bool wants_lse;
    char plan[512];
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

static inline void *case_tensor(ith_dtype type, int64_t count, float size, uint32_t *state)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    void *tensor = malloc((size_t)(count + 1) * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = size * case_value(state);
    ith_from_f32(tensor, type, values, count);
    free(values);
    return tensor;
}

static inline int64_t case_kv_heads(const attention_case *c)
{
    return c->problem.kv_heads ? c->problem.kv_heads : c->problem.heads;
}

/* Fills in the tensors of a case whose problem is set. masked: of 8 keys how many have a bias of -inf. */
static inline void case_fill(attention_case *c, uint32_t seed, int masked)
{
    const ith_attn_problem *p = &c->problem;
    int64_t q = p->batch * p->q_len * p->heads * p->head_dim;
    int64_t k = p->batch * p->kv_len * case_kv_heads(c) * p->head_dim;
    c->q = case_tensor(p->dtype, q, 2, &seed);
    c->k = case_tensor(p->dtype, k, 2, &seed);
    c->v = case_tensor(p->dtype, k, 1, &seed);
    c->key_bias = malloc((size_t)(p->batch * p->kv_len + 1) * sizeof(float));
    for (int64_t i = 0; i < p->batch * p->kv_len; i++)
        c->key_bias[i] = (int)(case_random(&seed) % 8) < masked ? -INFINITY : case_value(&seed);
    c->o = malloc((size_t)(q + 1) * sizeof(float));
    c->o_bits = malloc((size_t)(q + 1) * sizeof(float));
    c->lse = malloc((size_t)(p->batch * p->heads * p->q_len + 1) * sizeof(float));
}

static inline void case_free(attention_case *c)
{
    void *const all[] = {c->q, c->k, c->v, c->key_bias, c->o, c->o_bits, c->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* o and lse in double, straight from the definition. */
static inline void case_oracle(const attention_case *c, float *o, float *lse)
{
    const ith_attn_problem *p = &c->problem;
    int64_t D = p->head_dim, H = p->heads, G = case_kv_heads(c), count = p->batch * p->q_len * H * D;
    int64_t kv_count = p->batch * p->kv_len * G * D;
    float *q = malloc((size_t)(count + 1) * sizeof *q), *k = malloc((size_t)(kv_count + 1) * sizeof *k);
    float *v = malloc((size_t)(kv_count + 1) * sizeof *v);
    double *s = malloc((size_t)(p->kv_len + 1) * sizeof *s), *sum = malloc((size_t)D * sizeof *sum);
    ith_to_f32(q, c->q, p->dtype, count);
    ith_to_f32(k, c->k, p->dtype, kv_count);
    ith_to_f32(v, c->v, p->dtype, kv_count);
    double scale = p->scale != 0 ? (double)p->scale : 1 / sqrt((double)D);
    for (int64_t row = 0; row < p->batch * p->q_len * H; row++) {
        int64_t h = row % H, i = row / H % p->q_len, b = row / H / p->q_len;
        double m = -INFINITY, l = 0;
        for (int64_t j = 0; j < p->kv_len; j++) {
            s[j] = 0;
            for (int64_t d = 0; d < D; d++)
                s[j] += (double)q[row * D + d] * (double)k[((b * p->kv_len + j) * G + h / (H / G)) * D + d];
            s[j] = s[j] * scale + (p->has_key_bias ? (double)c->key_bias[b * p->kv_len + j] : 0);
            m = s[j] > m ? s[j] : m;
        }
        memset(sum, 0, (size_t)D * sizeof *sum);
        for (int64_t j = 0; j < p->kv_len && m > -INFINITY; j++) {
            double weight = exp(s[j] - m);
            l += weight;
            for (int64_t d = 0; d < D; d++)
                sum[d] += weight * (double)v[((b * p->kv_len + j) * G + h / (H / G)) * D + d];
        }
        for (int64_t d = 0; d < D; d++)
            o[row * D + d] = l > 0 ? (float)(sum[d] / l) : 0;
        lse[(b * H + h) * p->q_len + i] = l > 0 ? (float)(m + log(l)) : -INFINITY;
    }
    free(q), free(k), free(v), free(s), free(sum);
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
    ith_attn_tensors tensors = {.q = q, .k = k, .v = v, .o = o, .lse = c->wants_lse ? lse : NULL};
    tensors.key_bias = problem.has_key_bias ? c->key_bias : NULL;
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
