/* SPDX-License-Identifier: Apache-2.0 */
/* The offsets and the gate of fixed_m, which are computed outside the kernels, compared with float64. Ranks, segments
 * and threads do not change them. */
#include "attention/fixed_m.h"
#include "base/dtype.h"
#include "support/fixture.h"
#include "support/in_rank.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 5
#define MOST_SEGMENTS 4

static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    return random_below(&random_state, below);
}

/* ---- A problem, whole ------------------------------------------------------------------------------------------ */

typedef struct fixed_case {
    ith_attn_problem problem;
    bool keeps_mean;     /* keys are not smoothed */
    void *q, *k, *v;     /* of the problem's type, [B, S, H, D] */
    float *qf, *kf, *vf; /* the same as f32 */
    int32_t kv_lengths[4];
    float *key_bias;
    /* How the case is run: */
    int ring, segments, threads;
    int64_t first, count; /* the query heads that are measured; `problem` below is the number of one of them */
    int64_t cuts[MOST_RANKS + 1];
    /* The results of each rank: m [problems, q_len] for all queries, applies [problems] */
    float *m[MOST_RANKS];
    bool *applies[MOST_RANKS];
} fixed_case;

static int64_t kv_heads(const fixed_case *c)
{
    return c->problem.kv_heads ? c->problem.kv_heads : c->problem.heads;
}

static int64_t q_count(const fixed_case *c)
{
    return c->problem.batch * c->problem.q_len * c->problem.heads * c->problem.head_dim;
}

static int64_t k_count(const fixed_case *c)
{
    return c->problem.batch * c->problem.kv_len * kv_heads(c) * c->problem.head_dim;
}

static const float *q_row(const fixed_case *c, int64_t problem, int64_t row)
{
    const ith_attn_problem *p = &c->problem;
    return c->qf + ((problem / p->heads * p->q_len + row) * p->heads + problem % p->heads) * p->head_dim;
}

/* The offset of a key of a query head, in elements. */
static int64_t key_at(const fixed_case *c, int64_t problem, int64_t row)
{
    const ith_attn_problem *p = &c->problem;
    int64_t head = problem % p->heads / (p->heads / kv_heads(c));
    return ((problem / p->heads * p->kv_len + row) * kv_heads(c) + head) * p->head_dim;
}

static bool key_counts(const fixed_case *c, int64_t problem, int64_t row)
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

static void case_alloc(fixed_case *c)
{
    c->qf = calloc((size_t)q_count(c) + 1, sizeof(float));
    c->kf = calloc((size_t)k_count(c) + 1, sizeof(float));
    c->vf = calloc((size_t)k_count(c) + 1, sizeof(float));
    c->key_bias = calloc((size_t)(c->problem.batch * c->problem.kv_len) + 1, sizeof(float));
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        c->m[rank] = calloc((size_t)(c->problem.batch * c->problem.heads * c->problem.q_len) + 1, sizeof(float));
        c->applies[rank] = calloc((size_t)(c->problem.batch * c->problem.heads), sizeof(bool));
    }
    c->ring = c->segments = c->threads = 1;
    c->count = c->problem.batch * c->problem.heads;
}

/* To be called when qf, kf and vf are filled in. */
static void case_round(fixed_case *c)
{
    free(c->q), free(c->k), free(c->v);
    c->q = tensor_of(c, c->qf, q_count(c));
    c->k = tensor_of(c, c->kf, k_count(c));
    c->v = tensor_of(c, c->vf, k_count(c));
}

static void case_free(fixed_case *c)
{
    void *const all[] = {c->q, c->k, c->v, c->qf, c->kf, c->vf, c->key_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int rank = 0; rank < MOST_RANKS; rank++)
        free(c->m[rank]), free(c->applies[rank]);
}

/* ---- Through the code under test ------------------------------------------------------------------------------- */

/* This rank's shard, cut into segments; every other one is a copy with another layout. */
typedef struct shard_parts {
    ith_kv_segment segments[MOST_SEGMENTS];
    void *copies[2 * MOST_SEGMENTS];
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
    for (int i = 0; i < 2 * MOST_SEGMENTS; i++)
        free(parts.copies[i]);
    return ITH_OK;
}

static void run_as_it_is(fixed_case *c)
{
    ith_status status = ith_run_ranks(context, c->ring, c->ring * c->threads, prepare_in_rank, c);
    if (status)
        print_error("%s\n", ith_context_error(context));
    assert_int_equal(status, ITH_OK);
}

/* Runs the case on `ring` ranks with equal shares. */
static void run(fixed_case *c, int ring)
{
    c->ring = ring;
    for (int rank = 0; rank <= ring; rank++)
        c->cuts[rank] = c->problem.kv_len * rank / ring;
    run_as_it_is(c);
}

/* ---- The definition in double ---------------------------------------------------------------------------------- */

/* The statistics of one query head, computed in double. */
typedef struct truth {
    double *mean;                                  /* k' [D] */
    double bound, magnitude, largest_q, largest_k; /* max |k_j - k'|, max |v|, max |q_i|, max |k_j| */
    int64_t keys;
    double gate; /* 2B or B, before ceil */
} truth;

static double norm(const float *x, const double *from, int64_t n)
{
    double square = 0;
    for (int64_t d = 0; d < n; d++)
        square += ((double)x[d] - (from ? from[d] : 0)) * ((double)x[d] - (from ? from[d] : 0));
    return sqrt(square);
}

static double base2_scale(const fixed_case *c)
{
    double scale = c->problem.scale != 0 ? (double)c->problem.scale : 1 / sqrt((double)c->problem.head_dim);
    return scale * M_LOG2E;
}

static truth truth_of(const fixed_case *c, int64_t problem)
{
    int64_t D = c->problem.head_dim;
    truth t = {.mean = calloc((size_t)D, sizeof(double))};
    for (int64_t j = 0; j < c->problem.kv_len; j++)
        t.keys += key_counts(c, problem, j);
    for (int64_t j = 0; j < c->problem.kv_len; j++)
        for (int64_t d = 0; d < D && !c->keeps_mean && key_counts(c, problem, j); d++)
            t.mean[d] += (double)c->kf[key_at(c, problem, j) + d] / (double)t.keys;
    for (int64_t j = 0; j < c->problem.kv_len; j++)
        if (key_counts(c, problem, j)) {
            t.bound = fmax(t.bound, norm(c->kf + key_at(c, problem, j), t.mean, D));
            t.largest_k = fmax(t.largest_k, norm(c->kf + key_at(c, problem, j), NULL, D));
            for (int64_t d = 0; d < D; d++)
                t.magnitude = fmax(t.magnitude, fabs((double)c->vf[key_at(c, problem, j) + d]));
        }
    for (int64_t i = 0; i < c->problem.q_len; i++)
        t.largest_q = fmax(t.largest_q, norm(q_row(c, problem, i), NULL, D));
    t.gate = (c->keeps_mean || c->problem.mask ? 2 : 1) * fabs(base2_scale(c)) * t.largest_q * t.bound;
    return t;
}

/* The gate as the specification writes it, on a gate value already rounded up. */
static bool spec_gate(const fixed_case *c, const truth *t, double gate)
{
    double kept = c->problem.dtype == ITH_BF16 ? 12 : 24, length = log2((double)c->problem.kv_len);
    return gate <= 88 + 126 - kept - ceil(length) + fmin(0, log2(t->magnitude)) &&
           88 + length + fmax(0, log2(t->magnitude)) < 127;
}

/* The query to check after query i: of many, every seventh and the last ones. */
static int64_t next_checked(const fixed_case *c, int64_t i)
{
    return i + (c->problem.q_len > 40 && i + 8 < c->problem.q_len ? 7 : 1);
}

/* Checks a head: no logit exceeds its offset by more than 88. With one shard, the offset and the gate equal the offset
 * and the gate of the specification. With several shards the bound may be larger. Then the offset is larger, and more
 * heads may fail the gate. */
static void check_truth(const fixed_case *c, int64_t problem, int *passed, int *failed)
{
    truth t = truth_of(c, problem);
    double C = base2_scale(c), slack = 2e-4 * t.gate + 1e-30;
    bool applies = c->applies[0][problem];
    if (t.keys == 0 || t.magnitude == 0)
        assert_false(applies);
    else if (c->ring == 1 && fabs(C) * t.largest_q * t.largest_k < 1000) {
        if (spec_gate(c, &t, ceil(t.gate - slack)) == spec_gate(c, &t, ceil(t.gate + slack)))
            assert_int_equal(applies, spec_gate(c, &t, ceil(t.gate)));
    } else if (applies) /* the bound of a ring is larger */
        assert_true(spec_gate(c, &t, ceil(t.gate - slack)));
    *passed += applies, *failed += !applies;
    for (int64_t i = 0; applies && i < c->problem.q_len; i = next_checked(c, i)) {
        const float *q = q_row(c, problem, i);
        double m = (double)c->m[0][problem * c->problem.q_len + i], common = 0, exact = 0;
        for (int64_t j = 0; j < c->problem.kv_len; j++) {
            double s = 0;
            for (int64_t d = 0; d < c->problem.head_dim; d++)
                s += C * (double)q[d] * (double)c->kf[key_at(c, problem, j) + d];
            if (key_counts(c, problem, j))
                assert_true(s - m <= 88 + 1e-12 * fabs(s));
        }
        for (int64_t d = 0; d < c->problem.head_dim; d++)
            common += C * (double)q[d] * t.mean[d];
        exact = fabs(C) * norm(q, NULL, c->problem.head_dim) * t.bound;
        double error = 1e-4 * exact + 1e-4 * fabs(C) * norm(q, NULL, c->problem.head_dim) * t.largest_k + 3e-5;
        assert_true(m >= common + exact - 88 - error);
        if (c->ring == 1)
            assert_true(m <= common + ceil(exact + error) - 88 + error);
    }
    free(t.mean);
}

/* ---- Random problems ------------------------------------------------------------------------------------------- */

typedef enum data_kind {
    DATA_RANDOM,
    DATA_OFFSET, /* keys far from zero */
    DATA_HUGE,
    DATA_TINY,
    DATA_ORTHOGONAL, /* every query is at right angles to every key */
    DATA_CONSTANT,   /* all keys are the same */
    DATA_KINDS
} data_kind;

static void fill(fixed_case *c, data_kind kind)
{
    int64_t D = c->problem.head_dim;
    double size = kind == DATA_HUGE ? 1e15 : kind == DATA_TINY ? 1e-15 : 1;
    if (c->problem.dtype == ITH_F16)
        size = kind == DATA_HUGE ? 1e3 : kind == DATA_TINY ? 1e-6 : 1;
    for (int64_t i = 0; i < q_count(c); i++)
        c->qf[i] = kind == DATA_ORTHOGONAL && i % D < D / 2 ? 0 : random_signed(&random_state) * (float)size;
    for (int64_t i = 0; i < k_count(c); i++) {
        float common = kind == DATA_OFFSET ? 8 * sinf((float)(i % D)) : 0;
        c->kf[i] = (kind == DATA_CONSTANT ? cosf((float)(i % D)) : common + random_signed(&random_state)) * (float)size;
        if (kind == DATA_ORTHOGONAL && i % D >= D / 2)
            c->kf[i] = 0;
        c->vf[i] = random_signed(&random_state);
    }
    case_round(c);
}

/* A scale with which the largest B of the first problem is `wanted`. */
static void choose_scale(fixed_case *c, double wanted)
{
    c->problem.scale = 1;
    truth t = truth_of(c, 0);
    double scale = t.gate > 0 ? wanted / t.gate : 1;
    c->problem.scale = (float)fmin(fmax(scale, 1e-30), 1e37) * (draw(4) ? 1 : -1);
    free(t.mean);
}

static void mask_keys(fixed_case *c)
{
    c->problem.has_kv_lengths = draw(3) == 0;
    c->problem.has_key_bias = draw(3) == 0;
    uint32_t hidden = draw(5); /* of 4 keys, on average, so many are hidden by the bias */
    for (int64_t b = 0; b < c->problem.batch; b++)
        c->kv_lengths[b] = (int32_t)draw((uint32_t)c->problem.kv_len + 1);
    for (int64_t i = 0; i < c->problem.batch * c->problem.kv_len; i++)
        c->key_bias[i] = draw(4) < hidden ? -INFINITY : 0;
    for (int64_t j = 0; j < c->problem.kv_len; j++)
        if (!key_counts(c, 0, j)) /* hidden keys and their values may hold anything */
            c->kf[key_at(c, 0, j)] = c->vf[key_at(c, 0, j)] = j % 2 ? NAN : INFINITY;
}

static fixed_case random_case(uint32_t seed)
{
    static const int64_t dims[] = {1, 2, 3, 16, 17, 40, 64, 128, 200};
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    random_state = seed;
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.batch = 1 + draw(2);
    c.problem.kv_heads = 1 + draw(2);
    c.problem.heads = c.problem.kv_heads * (1 + draw(3));
    c.problem.head_dim = dims[draw(9)];
    c.problem.q_len = 1 + draw(seed % 8 ? 40 : 1100);
    c.problem.kv_len = 1 + draw(seed % 8 ? 300 : 1800);
    c.problem.dtype = types[seed % 3];
    c.keeps_mean = draw(4) == 0;
    c.problem.mask = draw(4) == 0 ? ITH_MASK_BOOL : ITH_MASK_NONE; /* the content of the mask is not read here */
    case_alloc(&c);
    fill(&c, (data_kind)draw(DATA_KINDS));
    choose_scale(&c, exp2(draw(1024) * 10.0 / 1024 - 1));
    mask_keys(&c);
    case_round(&c);
    return c;
}

static void assert_equal_ranks(const fixed_case *c)
{
    int64_t problems = c->problem.batch * c->problem.heads;
    for (int rank = 1; rank < c->ring; rank++) {
        assert_memory_equal(c->applies[rank], c->applies[0], (size_t)problems * sizeof(bool));
        for (int64_t n = 0; n < problems; n++)
            if (c->applies[0][n])
                assert_memory_equal(c->m[rank] + n * c->problem.q_len, c->m[0] + n * c->problem.q_len,
                                    (size_t)c->problem.q_len * sizeof(float));
    }
}

/* Runs cases with one shard, and on rings with shares of any size, some of them empty. */
static void random_problems_match_float64(void **state)
{
    (void)state;
    int passed[2] = {0}, failed[2] = {0};
    for (uint32_t seed = 1; seed <= 150; seed++) {
        fixed_case c = random_case(seed);
        run(&c, 1);
        for (int64_t n = 0; n < c.count; n++)
            check_truth(&c, n, &passed[0], &failed[0]);
        c.ring = 2 + (int)draw(MOST_RANKS - 1);
        c.cuts[c.ring] = c.problem.kv_len;
        for (int rank = c.ring - 1; rank > 0; rank--)
            c.cuts[rank] = (int64_t)draw((uint32_t)c.cuts[rank + 1] + 1);
        run_as_it_is(&c);
        assert_equal_ranks(&c);
        for (int64_t n = 0; n < c.count; n++)
            check_truth(&c, n, &passed[1], &failed[1]);
        case_free(&c);
    }
    for (int i = 0; i < 2; i++)
        assert_true(passed[i] > 100 && failed[i] > 100);
}

/* The bits do not depend on the cut into segments, on the number of threads, or on which heads a call measures. */
static void bits_do_not_depend_on_who_measures(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        fixed_case c = random_case(8 * seed);
        choose_scale(&c, 60);
        int64_t problems = c.count, rows = problems * c.problem.q_len;
        run(&c, 1);
        float *m = malloc((size_t)rows * sizeof *m);
        bool *applies = malloc((size_t)problems * sizeof *applies);
        memcpy(m, c.m[0], (size_t)rows * sizeof *m);
        memcpy(applies, c.applies[0], (size_t)problems * sizeof *applies);
        for (int variant = 0; variant < 6; variant++) {
            c.segments = 1 + variant % MOST_SEGMENTS;
            c.threads = 1 + variant % 3;
            memset(c.m[0], 0, (size_t)rows * sizeof *m);
            int64_t parts = variant > 3 ? 2 : 1;
            for (int64_t part = 0; part < parts; part++) {
                c.first = problems * part / parts;
                c.count = problems * (part + 1) / parts - c.first;
                run(&c, 1);
            }
            assert_memory_equal(c.m[0], m, (size_t)rows * sizeof *m);
            assert_memory_equal(c.applies[0], applies, (size_t)problems * sizeof *applies);
        }
        free(m), free(applies);
        case_free(&c);
    }
}

/* ---- The gate -------------------------------------------------------------------------------------------------- */

/* One query of length 1 along the first axis, keys at +1 and -1 on it: B = |scale| log2(e). */
static fixed_case edge_case(ith_dtype dtype, int64_t keys, float magnitude)
{
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.heads = 1, c.problem.head_dim = 2, c.problem.q_len = 1, c.problem.kv_len = keys;
    c.problem.dtype = dtype;
    case_alloc(&c);
    c.qf[0] = 1;
    for (int64_t j = 0; j < keys; j++) {
        c.kf[2 * j] = j == keys - 1 && keys % 2 ? 0 : j % 2 ? -1.0f : 1.0f;
        c.vf[2 * j] = magnitude / 2;
    }
    c.vf[2 * (keys / 2) + 1] = -magnitude;
    case_round(&c);
    return c;
}

static bool passes_at(fixed_case *c, double gate)
{
    double sides = c->keeps_mean || c->problem.mask ? 2 : 1;
    c->problem.scale = (float)(gate / sides / M_LOG2E);
    run(c, 1);
    return c->applies[0][0];
}

static void gate_stands_where_it_should(void **state)
{
    (void)state;
    const struct {
        ith_dtype dtype;
        int64_t keys;
        float magnitude;
        bool keeps_mean; /* keys are not smoothed */
        ith_mask mask;
        int most;
    } edges[] = {
        {ITH_F32, 1000, 1, false, ITH_MASK_NONE, 88 + 126 - 24 - 10},
        {ITH_F32, 1024, 1, false, ITH_MASK_NONE, 88 + 126 - 24 - 10},
        {ITH_F32, 1025, 1, false, ITH_MASK_NONE, 88 + 126 - 24 - 11},
        {ITH_F16, 1000, 1, false, ITH_MASK_NONE, 88 + 126 - 24 - 10},
        {ITH_BF16, 1000, 1, false, ITH_MASK_NONE, 88 + 126 - 12 - 10},
        {ITH_BF16, 2, 1, false, ITH_MASK_NONE, 88 + 126 - 12 - 1},
        {ITH_BF16, 1000, 64, false, ITH_MASK_NONE, 88 + 126 - 12 - 10},
        {ITH_F32, 600, 0.125f, false, ITH_MASK_NONE, 88 + 126 - 24 - 10 - 3},
        {ITH_F32, 600, 0.124f, false, ITH_MASK_NONE, 88 + 126 - 24 - 10 - 4},
        {ITH_F32, 600, 0x1p-100f, false, ITH_MASK_NONE, 88 + 126 - 24 - 10 - 100},
        {ITH_F32, 1000, 1, true, ITH_MASK_NONE, 88 + 126 - 24 - 10},
        {ITH_F32, 1000, 1, false, ITH_MASK_BOOL, 88 + 126 - 24 - 10},
        {ITH_BF16, 1000, 1, true, ITH_MASK_BOOL, 88 + 126 - 12 - 10},
    };
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        fixed_case c = edge_case(edges[i].dtype, edges[i].keys, edges[i].magnitude);
        c.keeps_mean = edges[i].keeps_mean, c.problem.mask = edges[i].mask;
        assert_true(passes_at(&c, edges[i].most - 0.02));
        assert_false(passes_at(&c, edges[i].most + 0.02));
        assert_false(passes_at(&c, 1e30));
        case_free(&c);
    }
}

/* The second condition of the gate is 88 + log2 Skv + max(0, log2 max|v|) < 127. */
static void sums_do_not_overflow(void **state)
{
    (void)state;
    for (int power = 2; power <= 10; power += 4) {
        int64_t keys = (int64_t)1 << power;
        fixed_case below = edge_case(ITH_F32, keys, 0x1.fp38f / (float)keys),
                   at = edge_case(ITH_F32, keys, 0x1p39f / (float)keys);
        assert_true(passes_at(&below, 1));
        assert_false(passes_at(&at, 1));
        case_free(&below), case_free(&at);
    }
}

/* The share of a row's sum or output that is lost if probabilities, or their products with v, become 0 where they are
 * below 2^-126. s: the logits of the row. v: a number of each value. */
static double lost_share(const double *s, const float *v, int64_t keys, double m)
{
    double l = 0, lost_l = 0, lost_o = 0, magnitude = 0;
    for (int64_t j = 0; j < keys; j++) {
        double p = exp2(s[j] - m), product = p * fabs((double)v[j]);
        l += p;
        lost_l += p < 0x1p-126 ? p : 0;
        lost_o += p < 0x1p-126 || product < 0x1p-126 ? product : 0;
        magnitude = fmax(magnitude, fabs((double)v[j]));
    }
    return fmax(lost_l / l, lost_o / (l * magnitude));
}

/* Keys are unit vectors in a plane. Queries are unit vectors nearly or exactly at right angles to it. So every query
 * has the same bound, and logits far below it. */
static fixed_case plane_case(ith_dtype dtype, float magnitude)
{
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.heads = 1, c.problem.head_dim = 3, c.problem.q_len = 64, c.problem.kv_len = 500 + draw(525);
    c.problem.dtype = dtype;
    case_alloc(&c);
    for (int64_t i = 0; i < c.problem.q_len; i++) {
        float angle = 3.2f * random_signed(&random_state),
              tilt = i == 0 ? 0 : exp2f(6 * random_signed(&random_state) - 6);
        c.qf[3 * i] = tilt * cosf(angle), c.qf[3 * i + 1] = tilt * sinf(angle);
        c.qf[3 * i + 2] = sqrtf(1 - tilt * tilt);
    }
    for (int64_t j = 0; j < c.problem.kv_len; j++) {
        float angle = 3.2f * random_signed(&random_state);
        c.kf[3 * j] = cosf(angle), c.kf[3 * j + 1] = sinf(angle);
        c.vf[3 * j] =
            magnitude * random_signed(&random_state) * exp2f(j % 2 ? 0 : 14 * random_signed(&random_state) - 14);
    }
    c.vf[0] = magnitude;
    case_round(&c);
    return c;
}

/* Sets s to the logits of query i in base 2, and v to the first number of each value, in a case of one head. */
static void logits_of(const fixed_case *c, int64_t i, double *s, float *v)
{
    int64_t D = c->problem.head_dim;
    for (int64_t j = 0; j < c->problem.kv_len; j++) {
        s[j] = 0;
        for (int64_t d = 0; d < D; d++)
            s[j] += base2_scale(c) * (double)c->qf[i * D + d] * (double)c->kf[j * D + d];
        v[j] = c->vf[j * D];
    }
}

static void what_is_flushed_does_not_matter(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    double s[1100], most_lost = 0, most_lost_beyond = 0;
    float v[1100];
    for (int trial = 0; trial < 60; trial++) {
        fixed_case c = plane_case(types[trial % 3], trial % 4 ? 1 : 0.01f);
        double kept = c.problem.dtype == ITH_BF16 ? 12 : 24;
        truth t = truth_of(&c, 0);
        double gate = floor(88 + 126 - kept - ceil(log2((double)c.problem.kv_len)) + fmin(0, log2(t.magnitude)));
        c.problem.scale = (float)((gate - 0.1) / t.largest_q / t.bound / M_LOG2E);
        run(&c, 1);
        assert_true(c.applies[0][0]);
        for (int64_t i = 0; i < c.problem.q_len; i++) {
            logits_of(&c, i, s, v);
            double m = (double)c.m[0][i], lost = lost_share(s, v, c.problem.kv_len, m);
            assert_true(lost <= exp2(-kept));
            most_lost = fmax(most_lost, lost * exp2(kept));
            /* The same logits under a looser gate, 213, would lose what counts. */
            most_lost_beyond = fmax(most_lost_beyond, lost_share(s, v, c.problem.kv_len, m + 213 - gate));
        }
        free(t.mean);
        case_free(&c);
    }
    assert_true(most_lost > 1e-6 && most_lost_beyond > 0.1);
}

/* Keys that are near one another and far from zero have a small bound, but large logits. A head with logits of 2^20 has
 * an error in f32 of more than the room above the largest logit; a head with logits of 2^13 does not. */
static void logits_with_large_errors_fail(void **state)
{
    (void)state;
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.heads = 2, c.problem.head_dim = 3, c.problem.q_len = c.problem.kv_len = 20, c.problem.scale = 1;
    case_alloc(&c);
    fill(&c, DATA_RANDOM);
    for (int64_t i = 0; i < q_count(&c); i++)
        c.qf[i] = 1;
    for (int64_t n = 0; n < 2; n++)
        for (int64_t j = 0; j < 20; j++)
            c.kf[key_at(&c, n, j)] += n ? 0x1p20f : 0x1p13f;
    case_round(&c);
    run(&c, 1);
    assert_true(c.applies[0][0]);
    assert_false(c.applies[0][1]);
    case_free(&c);
}

/* ---- Masked, empty and not finite ------------------------------------------------------------------------------ */

/* A case with two batch entries of four heads over two kv heads. Every head passes the gate. */
static fixed_case mild_case(ith_dtype dtype)
{
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.batch = 2, c.problem.heads = 4, c.problem.kv_heads = 2, c.problem.head_dim = 20;
    c.problem.q_len = 21, c.problem.kv_len = 61, c.problem.dtype = dtype;
    case_alloc(&c);
    fill(&c, DATA_RANDOM);
    return c;
}

/* Checks on one rank and on three, of which one has an empty shard, that the expected heads pass the gate. `expected`
 * has a bit for each of the eight (batch entry, head) pairs. */
static void assert_passing(fixed_case *c, unsigned expected)
{
    case_round(c);
    for (int ring = 1; ring <= 4; ring += 3) {
        run(c, ring);
        if (ring > 1)
            c->cuts[2] = c->cuts[1], run_as_it_is(c);
        for (int rank = 0; rank < ring; rank++)
            for (int64_t n = 0; n < c->problem.batch * c->problem.heads; n++)
                assert_int_equal(c->applies[rank][n], expected >> n & 1);
        assert_equal_ranks(c);
    }
}

static void masks_count_as_they_should(void **state)
{
    (void)state;
    fixed_case c = mild_case(ITH_BF16);
    assert_passing(&c, 0xff);
    c.problem.has_key_bias = true;
    c.key_bias[3] = -0.0f, c.key_bias[4] = -INFINITY;
    assert_passing(&c, 0xff);
    const float added[] = {1, -1e-30f, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        c.key_bias[61 + 60] = added[i]; /* entry 1, in the shard of the last rank */
        assert_passing(&c, 0x0f);
    }
    c.problem.has_kv_lengths = true;
    c.kv_lengths[0] = 61, c.kv_lengths[1] = 60; /* the bias of a key beyond the length does not count */
    assert_passing(&c, 0xff);
    c.kv_lengths[0] = 0;
    assert_passing(&c, 0xf0);
    for (int j = 61; j < 61 + 60; j++)
        c.key_bias[j] = -INFINITY;
    assert_passing(&c, 0x00);
    c.problem.has_kv_lengths = c.problem.has_key_bias = false;
    c.problem.mask = ITH_MASK_ADDITIVE;
    assert_passing(&c, 0x00);
    c.problem.mask = ITH_MASK_BOOL;
    assert_passing(&c, 0xff);
    case_free(&c);
}

static void nothing_at_all_goes_online(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
        c.problem.batch = 2, c.problem.heads = 4, c.problem.head_dim = 3;
        c.problem.q_len = which == 0 ? 0 : 5;
        c.problem.kv_len = which == 1 ? 0 : 5;
        c.keeps_mean = which == 2;
        case_alloc(&c);
        fill(&c, DATA_RANDOM);
        assert_passing(&c, which == 1 ? 0x00 : 0xff);
        c.first = 3, c.count = 0; /* a rank without heads */
        run(&c, 2);
        case_free(&c);
    }
}

static void what_is_not_finite_fails_its_heads_everywhere(void **state)
{
    (void)state;
    const float wild[] = {NAN, -NAN, INFINITY, -INFINITY, 1e38f};
    for (int i = 0; i < 20; i++) {
        fixed_case c = mild_case(i % 2 ? ITH_F32 : ITH_BF16);
        c.problem.replicated_kv = i > 9;
        c.keeps_mean = i % 3 == 0;
        int64_t q = q_row(&c, 2, 20) - c.qf, key = key_at(&c, 5, 60); /* heads 4 and 5 share this key */
        float old_q = c.qf[q + 7], old_k = c.kf[key], old_v = c.vf[key + 19], value = wild[i % 5];
        c.qf[q + 7] = value;
        assert_passing(&c, 0xfb);
        c.qf[q + 7] = old_q, c.kf[key] = value;
        assert_passing(&c, 0xcf);
        c.kf[key] = old_k, c.vf[key + 19] = value;
        assert_passing(&c, 0xcf);
        c.vf[key + 19] = old_v;
        assert_passing(&c, 0xff);
        case_free(&c);
    }
}

/* Rows are measured in pieces of 512, on each rank of a ring. One row decides, in whichever piece or shard it lies. */
static void one_row_of_any_piece_fails_its_head(void **state)
{
    (void)state;
    enum { ROWS = 1100, RINGS = 3, SPOILS = 7 };
    static const int64_t rows[] = {5, 600, ROWS - 1};
    for (int i = 0; i < 2 * RINGS * 3 * SPOILS; i++) {
        const int spoil = i % SPOILS;
        const int64_t row = rows[i / SPOILS % 3];
        fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
        c.problem.heads = 1, c.problem.head_dim = 3, c.problem.q_len = c.problem.kv_len = ROWS;
        case_alloc(&c);
        c.keeps_mean = i / SPOILS / 3 % 2;
        fill(&c, DATA_RANDOM);
        run(&c, 1 + i / SPOILS / 6);
        assert_true(c.applies[0][0]);
        c.problem.has_key_bias = spoil == 6;
        float *const spoiled[] = {c.qf + 3 * row, c.qf + 3 * row, c.kf + 3 * row,  c.kf + 3 * row,
                                  c.vf + 3 * row, c.vf + 3 * row, c.key_bias + row};
        static const float values[] = {NAN, 1e4f, NAN, 1e4f, NAN, 0x1p38f, 1};
        *spoiled[spoil] = values[spoil];
        case_round(&c);
        run(&c, 1 + i / SPOILS / 6);
        for (int rank = 0; rank < c.ring; rank++)
            if (c.applies[rank][0])
                fail_msg("spoil %d of row %lld passes on %d ranks", spoil, (long long)row, c.ring);
        case_free(&c);
    }
}

/* With replicated keys each rank has all keys and its own queries. The gate and the offsets are the same as on one rank,
 * because the largest query of all ranks decides about the gate. */
static void replicated_keys_are_counted_once(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        fixed_case c = random_case(seed);
        int64_t rows = c.count * c.problem.q_len;
        run(&c, 1);
        float *m = malloc((size_t)rows * sizeof *m);
        bool *applies = malloc((size_t)c.count * sizeof *applies);
        memcpy(m, c.m[0], (size_t)rows * sizeof *m);
        memcpy(applies, c.applies[0], (size_t)c.count * sizeof *applies);
        c.problem.replicated_kv = true;
        run(&c, 3);
        for (int rank = 0; rank < 3; rank++) {
            assert_memory_equal(c.applies[rank], applies, (size_t)c.count * sizeof *applies);
            for (int64_t n = 0; n < c.count; n++)
                if (applies[n])
                    assert_memory_equal(c.m[rank] + n * c.problem.q_len, m + n * c.problem.q_len,
                                        (size_t)c.problem.q_len * sizeof *m);
        }
        free(m), free(applies);
        case_free(&c);
    }
}

/* If an execution stops while keys are measured, statistics are missing. Then the rank sends zeros, and not numbers of
 * uninitialised memory. */
static void a_stopped_rank_sends_zeros(void **state)
{
    (void)state;
    enum { LENGTH = 20, DIM = 8 };
    float x[LENGTH * DIM] = {0};
    ith_halt halt = {.stopped = true};
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_attn_setting s;
    problem.heads = 1, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    assert_int_equal(ith_attn_setting_init(context, &problem, 1, 0, &s), ITH_OK);
    s.threads = s.ring = s.ulysses = 1, s.softmax = ITH_SOFTMAX_FIXED_M, s.halt = &halt;
    tensors.q = tensors.k = tensors.v = x, tensors.o = x;
    ith_q_segment q = {.q = ith_rows_of(&s, ITH_TENSOR_Q, &tensors), .rows = LENGTH};
    ith_kv_segment kv = {
        .k = ith_rows_of(&s, ITH_TENSOR_K, &tensors), .v = ith_rows_of(&s, ITH_TENSOR_V, &tensors), .rows = LENGTH};
    const ith_queries queries = {&q, 1, LENGTH};
    const ith_shard shard = {.segments = &kv, .count = 1, .rows = LENGTH};
    const ith_heads heads = ith_heads_of(&s.problem, 0, 1);
    const ith_fixed_m_shape shape = {1, 1, LENGTH, LENGTH};
    ith_arena arena = {0};
    ith_fixed_m fixed;
    ith_fixed_m_lay_out(&s, &shape, &arena, &fixed);
    const size_t bytes = (size_t)arena.used_bytes;
    arena = (ith_arena){.base = aligned_alloc(64, bytes)};
    memset(arena.base, 0xff, bytes);
    ith_fixed_m_lay_out(&s, &shape, &arena, &fixed);
    assert_int_equal(ith_fixed_m_prepare(&fixed, &heads, &queries, &shard, &tensors), ITH_OK);
    for (int i = 0; i < DIM + 3 + 1; i++) /* the mean key, three statistics, and |q| */
        assert_true(fixed.own[i] == 0);
    free(arena.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems_match_float64),
        cmocka_unit_test(bits_do_not_depend_on_who_measures),
        cmocka_unit_test(gate_stands_where_it_should),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(what_is_flushed_does_not_matter),
        cmocka_unit_test(masks_count_as_they_should),
        cmocka_unit_test(nothing_at_all_goes_online),
        cmocka_unit_test(what_is_not_finite_fails_its_heads_everywhere),
        cmocka_unit_test(logits_with_large_errors_fail),
        cmocka_unit_test(one_row_of_any_piece_fails_its_head),
        cmocka_unit_test(replicated_keys_are_counted_once),
        cmocka_unit_test(a_stopped_rank_sends_zeros),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
