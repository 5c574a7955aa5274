/* SPDX-License-Identifier: Apache-2.0 */
#include "fixed_case.h"

#include "attention/fixed_m.h"
#include "base/dtype.h"
#include "support/fixture.h"
#include "support/in_rank.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- A problem, whole ------------------------------------------------------------------------------------------ */

static int64_t kv_heads(const fixed_case *c)
{
    return c->problem.kv_heads ? c->problem.kv_heads : c->problem.heads;
}

int64_t fixed_q_count(const fixed_case *c)
{
    return c->problem.batch * c->problem.q_len * c->problem.heads * c->problem.head_dim;
}

int64_t fixed_k_count(const fixed_case *c)
{
    return c->problem.batch * c->problem.kv_len * kv_heads(c) * c->problem.head_dim;
}

const float *fixed_q_row(const fixed_case *c, int64_t problem, int64_t row)
{
    const ith_attn_problem *p = &c->problem;
    return c->qf + ((problem / p->heads * p->q_len + row) * p->heads + problem % p->heads) * p->head_dim;
}

int64_t fixed_key_at(const fixed_case *c, int64_t problem, int64_t row)
{
    const ith_attn_problem *p = &c->problem;
    int64_t head = problem % p->heads / (p->heads / kv_heads(c));
    return ((problem / p->heads * p->kv_len + row) * kv_heads(c) + head) * p->head_dim;
}

bool fixed_key_counts(const fixed_case *c, int64_t problem, int64_t row)
{
    int64_t entry = problem / c->problem.heads;
    if (c->problem.has_kv_lengths && row >= c->kv_lengths[entry])
        return false;
    return !c->problem.has_key_bias || c->key_bias[entry * c->problem.kv_len + row] != -INFINITY;
}

/* Rounds to the problem's type. */
static void *tensor_of(const fixed_case *c, float *values, int64_t count)
{
    void *tensor = malloc((size_t)(count + 1) * sizeof(float));
    ith_from_f32(tensor, c->problem.dtype, values, count);
    ith_to_f32(values, tensor, c->problem.dtype, count);
    return tensor;
}

void fixed_case_alloc(fixed_case *c)
{
    c->qf = calloc((size_t)fixed_q_count(c) + 1, sizeof(float));
    c->kf = calloc((size_t)fixed_k_count(c) + 1, sizeof(float));
    c->vf = calloc((size_t)fixed_k_count(c) + 1, sizeof(float));
    c->key_bias = calloc((size_t)(c->problem.batch * c->problem.kv_len) + 1, sizeof(float));
    for (int rank = 0; rank < FIXED_MOST_RANKS; rank++) {
        c->m[rank] = calloc((size_t)(c->problem.batch * c->problem.heads * c->problem.q_len) + 1, sizeof(float));
        c->applies[rank] = calloc((size_t)(c->problem.batch * c->problem.heads), sizeof(bool));
    }
    c->ring = c->segments = c->threads = 1;
    c->count = c->problem.batch * c->problem.heads;
}

void fixed_case_round(fixed_case *c)
{
    free(c->q), free(c->k), free(c->v);
    c->q = tensor_of(c, c->qf, fixed_q_count(c));
    c->k = tensor_of(c, c->kf, fixed_k_count(c));
    c->v = tensor_of(c, c->vf, fixed_k_count(c));
}

void fixed_case_free(fixed_case *c)
{
    void *const all[] = {c->q, c->k, c->v, c->qf, c->kf, c->vf, c->key_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int rank = 0; rank < FIXED_MOST_RANKS; rank++)
        free(c->m[rank]), free(c->applies[rank]);
}

/* ---- Through the code under test ------------------------------------------------------------------------------- */

/* This rank's shard, cut into segments; every other one is a copy with another layout. */
typedef struct shard_parts {
    ith_kv_segment segments[FIXED_MOST_SEGMENTS];
    void *copies[2 * FIXED_MOST_SEGMENTS];
    ith_shard shard;
} shard_parts;

static ith_rows copy_rows(const ith_attn_setting *s, const ith_rows *from, int64_t rows, void **copy)
{
    int64_t problems = s->problem.batch * s->problem.kv_heads;
    size_t bytes = (size_t)(s->problem.head_dim * s->element_bytes);
    *copy = malloc((size_t)(problems * rows) * bytes + 64);
    ith_rows to = ith_rows_in_buffer(s, *copy, 0, problems);
    for (int64_t n = 0; n < problems; n++)
        for (int64_t row = 0; row < rows; row++)
            memcpy(ith_rows_at(s, &to, n, row), ith_rows_at(s, from, n, row), bytes);
    return to;
}

static void make_shard(const fixed_case *c, const ith_attn_setting *s, const ith_attn_tensors *tensors, int rank,
                       shard_parts *out)
{
    memset(out, 0, sizeof *out);
    int64_t begin_key = c->problem.replicated_kv ? 0 : c->cuts[rank];
    int64_t end_key = c->problem.replicated_kv ? c->problem.kv_len : c->cuts[rank + 1];
    out->shard =
        (ith_shard){.segments = out->segments, .count = c->segments, .begin = begin_key, .rows = end_key - begin_key};
    for (int i = 0; i < c->segments; i++) {
        int64_t begin = out->shard.rows * i / c->segments, end = out->shard.rows * (i + 1) / c->segments;
        int64_t skip = (out->shard.begin + begin) * s->problem.kv_heads * s->problem.head_dim * s->element_bytes;
        ith_rows k = ith_rows_of(s, ITH_TENSOR_K, tensors), v = ith_rows_of(s, ITH_TENSOR_V, tensors);
        k.data = (char *)k.data + skip, v.data = (char *)v.data + skip;
        if (i % 2) {
            k = copy_rows(s, &k, end - begin, &out->copies[2 * i]);
            v = copy_rows(s, &v, end - begin, &out->copies[2 * i + 1]);
        }
        out->segments[i] = (ith_kv_segment){.k = k, .v = v, .begin = out->shard.begin + begin, .rows = end - begin};
    }
}

/* Computes the offsets of all queries, not only of this rank's. */
static void take_offsets(const fixed_case *c, const ith_attn_setting *s, const ith_fixed_m *fixed,
                         const ith_rows *all_q, float *m, bool *applies)
{
    const void **q = malloc((size_t)(c->problem.q_len + 1) * sizeof *q);
    for (int64_t n = c->first; n < c->first + c->count; n++) {
        applies[n] = ith_fixed_m_applies(fixed, n);
        for (int64_t i = 0; i < c->problem.q_len; i++)
            q[i] = ith_rows_at(s, all_q, n, i);
        int64_t cut = applies[n] ? c->problem.q_len / 3 : 0; /* a row's offset does not depend on the rows beside it */
        if (applies[n]) {
            ith_fixed_m_offsets(fixed, n, q, cut, m + n * c->problem.q_len);
            ith_fixed_m_offsets(fixed, n, q + cut, c->problem.q_len - cut, m + n * c->problem.q_len + cut);
        }
    }
    free(q);
}

static ith_status prepare_in_rank(ith_context *rank_context, ith_comm *comm, void *user)
{
    fixed_case *c = user;
    int rank = ith_comm_rank(comm);
    ith_attn_setting s;
    RANK_TRY(ith_attn_setting_init(rank_context, &c->problem, 1, 0, &s));
    s.threads = c->threads, s.ring = c->ring, s.ulysses = 1, s.smoothed = !c->keeps_mean;
    s.softmax = ITH_SOFTMAX_FIXED_M, s.comm = s.ring_comm = c->ring > 1 ? comm : NULL;
    if (c->problem.replicated_kv)
        s.ring = 1, s.ring_comm = NULL, s.ulysses = c->ring;
    ith_attn_tensors tensors = {.struct_size = sizeof(ith_attn_tensors),
                                .q = c->q,
                                .k = c->k,
                                .v = c->v,
                                .kv_lengths = c->kv_lengths,
                                .key_bias = c->key_bias};
    shard_parts parts;
    make_shard(c, &s, &tensors, rank, &parts);
    int64_t q_begin, q_rows; /* this rank's queries, in one segment: this test does not divide them */
    ith_share(c->problem.q_len, c->ring, rank, &q_begin, &q_rows);
    ith_rows all_q = ith_rows_of(&s, ITH_TENSOR_Q, &tensors), own_q = all_q;
    own_q.data = (char *)own_q.data + q_begin * c->problem.heads * c->problem.head_dim * s.element_bytes;
    ith_q_segment q_segment = {.q = own_q, .begin = q_begin, .rows = q_rows};
    ith_queries queries = {&q_segment, 1, q_rows};
    ith_heads heads = ith_heads_of(&s.problem, c->first, c->count);
    ith_fixed_m_shape shape = {heads.count, heads.kv_heads, q_rows + 5, parts.shard.rows + 700};
    ith_arena arena = {0};
    ith_fixed_m fixed;
    ith_fixed_m_lay_out(&s, &shape, &arena, &fixed);
    int64_t bytes = arena.used_bytes;
    arena = (ith_arena){.base = aligned_alloc(64, (size_t)bytes + 64)};
    memset(arena.base, 0xff, (size_t)bytes);
    ith_fixed_m_lay_out(&s, &shape, &arena, &fixed);
    RANK_CHECK(rank_context, arena.used_bytes == bytes && !arena.overflow);
    for (int again = 0; again < 2; again++) /* the second call finds the memory of the first */
        RANK_TRY(ith_fixed_m_prepare(&fixed, &heads, &queries, &parts.shard, &tensors));
    take_offsets(c, &s, &fixed, &all_q, c->m[rank], c->applies[rank]);
    free(arena.base);
    for (int i = 0; i < 2 * FIXED_MOST_SEGMENTS; i++)
        free(parts.copies[i]);
    return ITH_OK;
}

void fixed_case_run_cuts(fixed_case *c)
{
    ith_status status = ith_run_ranks(context, c->ring, c->ring * c->threads, prepare_in_rank, c);
    if (status)
        print_error("%s\n", ith_context_error(context));
    assert_int_equal(status, ITH_OK);
}

void fixed_case_run(fixed_case *c, int ring)
{
    c->ring = ring;
    for (int rank = 0; rank <= ring; rank++)
        c->cuts[rank] = c->problem.kv_len * rank / ring;
    fixed_case_run_cuts(c);
}

/* ---- The definition in double ---------------------------------------------------------------------------------- */

double fixed_norm(const float *x, const double *from, int64_t n)
{
    double square = 0;
    for (int64_t d = 0; d < n; d++)
        square += ((double)x[d] - (from ? from[d] : 0)) * ((double)x[d] - (from ? from[d] : 0));
    return sqrt(square);
}

double fixed_base2_scale(const fixed_case *c)
{
    double scale = c->problem.scale != 0 ? (double)c->problem.scale : 1 / sqrt((double)c->problem.head_dim);
    return scale * M_LOG2E;
}

fixed_truth fixed_truth_of(const fixed_case *c, int64_t problem)
{
    int64_t D = c->problem.head_dim;
    fixed_truth t = {.mean = calloc((size_t)D, sizeof(double))};
    for (int64_t j = 0; j < c->problem.kv_len; j++)
        t.keys += fixed_key_counts(c, problem, j);
    for (int64_t j = 0; j < c->problem.kv_len; j++) {
        const float *key = c->kf + fixed_key_at(c, problem, j);
        for (int64_t d = 0; d < D && !c->keeps_mean && fixed_key_counts(c, problem, j); d++)
            t.mean[d] += (double)key[d] / (double)t.keys;
    }
    for (int64_t j = 0; j < c->problem.kv_len; j++)
        if (fixed_key_counts(c, problem, j)) {
            const int64_t at = fixed_key_at(c, problem, j);
            t.bound = fmax(t.bound, fixed_norm(c->kf + at, t.mean, D));
            t.largest_k = fmax(t.largest_k, fixed_norm(c->kf + at, NULL, D));
            for (int64_t d = 0; d < D; d++)
                t.magnitude = fmax(t.magnitude, fabs((double)c->vf[at + d]));
        }
    for (int64_t i = 0; i < c->problem.q_len; i++)
        t.largest_q = fmax(t.largest_q, fixed_norm(fixed_q_row(c, problem, i), NULL, D));
    t.gate = (c->keeps_mean || c->problem.mask ? 2 : 1) * fabs(fixed_base2_scale(c)) * t.largest_q * t.bound;
    return t;
}
