/* SPDX-License-Identifier: Apache-2.0 */
/* The offsets of fixed_m and its gate, which are computed outside the kernels, compared with float64. Ranks, segments
 * and threads do not change them. test_fixed_m_gate.c tests where the gate stands. */
#include "attention/fixed_m.h"
#include "support/fixed_case.h"
#include "support/fixture.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    return random_below(&random_state, below);
}

/* ---- Compared with float64 ------------------------------------------------------------------------------------- */

/* The gate as the specification writes it, on a gate value already rounded up. */
static bool spec_gate(const fixed_case *c, const fixed_truth *t, double gate)
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
    fixed_truth t = fixed_truth_of(c, problem);
    double C = fixed_base2_scale(c), slack = 2e-4 * t.gate + 1e-30;
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
        const float *q = fixed_q_row(c, problem, i);
        double m = (double)c->m[0][problem * c->problem.q_len + i], common = 0, exact = 0;
        for (int64_t j = 0; j < c->problem.kv_len; j++) {
            const float *key = c->kf + fixed_key_at(c, problem, j);
            double s = 0;
            for (int64_t d = 0; d < c->problem.head_dim; d++)
                s += C * (double)q[d] * (double)key[d];
            if (fixed_key_counts(c, problem, j))
                assert_true(s - m <= 88 + 1e-12 * fabs(s));
        }
        for (int64_t d = 0; d < c->problem.head_dim; d++)
            common += C * (double)q[d] * t.mean[d];
        exact = fabs(C) * fixed_norm(q, NULL, c->problem.head_dim) * t.bound;
        double error = 1e-4 * exact + 1e-4 * fabs(C) * fixed_norm(q, NULL, c->problem.head_dim) * t.largest_k + 3e-5;
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
    for (int64_t i = 0; i < fixed_q_count(c); i++)
        c->qf[i] = kind == DATA_ORTHOGONAL && i % D < D / 2 ? 0 : random_signed(&random_state) * (float)size;
    for (int64_t i = 0; i < fixed_k_count(c); i++) {
        float common = kind == DATA_OFFSET ? 8 * sinf((float)(i % D)) : 0;
        c->kf[i] = (kind == DATA_CONSTANT ? cosf((float)(i % D)) : common + random_signed(&random_state)) * (float)size;
        if (kind == DATA_ORTHOGONAL && i % D >= D / 2)
            c->kf[i] = 0;
        c->vf[i] = random_signed(&random_state);
    }
    fixed_case_round(c);
}

/* A scale with which the largest B of the first problem is `wanted`. */
static void choose_scale(fixed_case *c, double wanted)
{
    c->problem.scale = 1;
    fixed_truth t = fixed_truth_of(c, 0);
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
        if (!fixed_key_counts(c, 0, j)) /* hidden keys and their values may hold anything */
            c->kf[fixed_key_at(c, 0, j)] = c->vf[fixed_key_at(c, 0, j)] = j % 2 ? NAN : INFINITY;
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
    fixed_case_alloc(&c);
    fill(&c, (data_kind)draw(DATA_KINDS));
    choose_scale(&c, exp2(draw(1024) * 10.0 / 1024 - 1));
    mask_keys(&c);
    fixed_case_round(&c);
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
        fixed_case_run(&c, 1);
        for (int64_t n = 0; n < c.count; n++)
            check_truth(&c, n, &passed[0], &failed[0]);
        c.ring = 2 + (int)draw(FIXED_MOST_RANKS - 1);
        c.cuts[c.ring] = c.problem.kv_len;
        for (int rank = c.ring - 1; rank > 0; rank--)
            c.cuts[rank] = (int64_t)draw((uint32_t)c.cuts[rank + 1] + 1);
        fixed_case_run_cuts(&c);
        assert_equal_ranks(&c);
        for (int64_t n = 0; n < c.count; n++)
            check_truth(&c, n, &passed[1], &failed[1]);
        fixed_case_free(&c);
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
        fixed_case_run(&c, 1);
        float *m = malloc((size_t)rows * sizeof *m);
        bool *applies = malloc((size_t)problems * sizeof *applies);
        memcpy(m, c.m[0], (size_t)rows * sizeof *m);
        memcpy(applies, c.applies[0], (size_t)problems * sizeof *applies);
        for (int variant = 0; variant < 6; variant++) {
            c.segments = 1 + variant % FIXED_MOST_SEGMENTS;
            c.threads = 1 + variant % 3;
            memset(c.m[0], 0, (size_t)rows * sizeof *m);
            int64_t parts = variant > 3 ? 2 : 1;
            for (int64_t part = 0; part < parts; part++) {
                c.first = problems * part / parts;
                c.count = problems * (part + 1) / parts - c.first;
                fixed_case_run(&c, 1);
            }
            assert_memory_equal(c.m[0], m, (size_t)rows * sizeof *m);
            assert_memory_equal(c.applies[0], applies, (size_t)problems * sizeof *applies);
        }
        free(m), free(applies);
        fixed_case_free(&c);
    }
}

/* Keys that are near one another and far from zero have a small bound, but large logits. A head with logits of 2^20 has
 * an error in f32 of more than the room above the largest logit; a head with logits of 2^13 does not. */
static void logits_with_large_errors_fail(void **state)
{
    (void)state;
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.heads = 2, c.problem.head_dim = 3, c.problem.q_len = c.problem.kv_len = 20, c.problem.scale = 1;
    fixed_case_alloc(&c);
    fill(&c, DATA_RANDOM);
    for (int64_t i = 0; i < fixed_q_count(&c); i++)
        c.qf[i] = 1;
    for (int64_t n = 0; n < 2; n++)
        for (int64_t j = 0; j < 20; j++)
            c.kf[fixed_key_at(&c, n, j)] += n ? 0x1p20f : 0x1p13f;
    fixed_case_round(&c);
    fixed_case_run(&c, 1);
    assert_true(c.applies[0][0]);
    assert_false(c.applies[0][1]);
    fixed_case_free(&c);
}

/* ---- Masked, empty and not finite ------------------------------------------------------------------------------ */

/* A case with two batch entries of four heads over two kv heads. Every head passes the gate. */
static fixed_case mild_case(ith_dtype dtype)
{
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.batch = 2, c.problem.heads = 4, c.problem.kv_heads = 2, c.problem.head_dim = 20;
    c.problem.q_len = 21, c.problem.kv_len = 61, c.problem.dtype = dtype;
    fixed_case_alloc(&c);
    fill(&c, DATA_RANDOM);
    return c;
}

/* Checks on one rank and on three, of which one has an empty shard, that the expected heads pass the gate. `expected`
 * has a bit for each of the eight (batch entry, head) pairs. */
static void assert_passing(fixed_case *c, unsigned expected)
{
    fixed_case_round(c);
    for (int ring = 1; ring <= 4; ring += 3) {
        fixed_case_run(c, ring);
        if (ring > 1)
            c->cuts[2] = c->cuts[1], fixed_case_run_cuts(c);
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
    fixed_case_free(&c);
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
        fixed_case_alloc(&c);
        fill(&c, DATA_RANDOM);
        assert_passing(&c, which == 1 ? 0x00 : 0xff);
        c.first = 3, c.count = 0; /* a rank without heads */
        fixed_case_run(&c, 2);
        fixed_case_free(&c);
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
        int64_t q = fixed_q_row(&c, 2, 20) - c.qf, key = fixed_key_at(&c, 5, 60); /* heads 4 and 5 share this key */
        float old_q = c.qf[q + 7], old_k = c.kf[key], old_v = c.vf[key + 19], value = wild[i % 5];
        c.qf[q + 7] = value;
        assert_passing(&c, 0xfb);
        c.qf[q + 7] = old_q, c.kf[key] = value;
        assert_passing(&c, 0xcf);
        c.kf[key] = old_k, c.vf[key + 19] = value;
        assert_passing(&c, 0xcf);
        c.vf[key + 19] = old_v;
        assert_passing(&c, 0xff);
        fixed_case_free(&c);
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
        fixed_case_alloc(&c);
        c.keeps_mean = i / SPOILS / 3 % 2;
        fill(&c, DATA_RANDOM);
        fixed_case_run(&c, 1 + i / SPOILS / 6);
        assert_true(c.applies[0][0]);
        c.problem.has_key_bias = spoil == 6;
        float *const spoiled[] = {c.qf + 3 * row, c.qf + 3 * row, c.kf + 3 * row,  c.kf + 3 * row,
                                  c.vf + 3 * row, c.vf + 3 * row, c.key_bias + row};
        static const float values[] = {NAN, 1e4f, NAN, 1e4f, NAN, 0x1p38f, 1};
        *spoiled[spoil] = values[spoil];
        fixed_case_round(&c);
        fixed_case_run(&c, 1 + i / SPOILS / 6);
        for (int rank = 0; rank < c.ring; rank++)
            if (c.applies[rank][0])
                fail_msg("spoil %d of row %lld passes on %d ranks", spoil, (long long)row, c.ring);
        fixed_case_free(&c);
    }
}

/* With replicated keys each rank has all keys and its own queries. The gate and the offsets are the same as on one
 * rank, because the largest query of all ranks decides about the gate. */
static void replicated_keys_are_counted_once(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        fixed_case c = random_case(seed);
        int64_t rows = c.count * c.problem.q_len;
        fixed_case_run(&c, 1);
        float *m = malloc((size_t)rows * sizeof *m);
        bool *applies = malloc((size_t)c.count * sizeof *applies);
        memcpy(m, c.m[0], (size_t)rows * sizeof *m);
        memcpy(applies, c.applies[0], (size_t)c.count * sizeof *applies);
        c.problem.replicated_kv = true;
        fixed_case_run(&c, 3);
        for (int rank = 0; rank < 3; rank++) {
            assert_memory_equal(c.applies[rank], applies, (size_t)c.count * sizeof *applies);
            for (int64_t n = 0; n < c.count; n++)
                if (applies[n])
                    assert_memory_equal(c.m[rank] + n * c.problem.q_len, m + n * c.problem.q_len,
                                        (size_t)c.problem.q_len * sizeof *m);
        }
        free(m), free(applies);
        fixed_case_free(&c);
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
