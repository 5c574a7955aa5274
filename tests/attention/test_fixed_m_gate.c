/* SPDX-License-Identifier: Apache-2.0 */
/* Where the gate of fixed_m stands: heads up to it use fixed_m, and lose nothing that counts by flushed probabilities;
 * heads beyond it do not. */
#include "support/fixed_case.h"
#include "support/fixture.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state = 1;

/* One query of length 1 along the first axis, keys at +1 and -1 on it: B = |scale| log2(e). */
static fixed_case edge_case(ith_dtype dtype, int64_t keys, float magnitude)
{
    fixed_case c = {.problem = ITH_ATTN_PROBLEM_INIT};
    c.problem.heads = 1, c.problem.head_dim = 2, c.problem.q_len = 1, c.problem.kv_len = keys;
    c.problem.dtype = dtype;
    fixed_case_alloc(&c);
    c.qf[0] = 1;
    for (int64_t j = 0; j < keys; j++) {
        c.kf[2 * j] = j == keys - 1 && keys % 2 ? 0 : j % 2 ? -1.0f : 1.0f;
        c.vf[2 * j] = magnitude / 2;
    }
    c.vf[2 * (keys / 2) + 1] = -magnitude;
    fixed_case_round(&c);
    return c;
}

static bool passes_at(fixed_case *c, double gate)
{
    double sides = c->keeps_mean || c->problem.mask ? 2 : 1;
    c->problem.scale = (float)(gate / sides / M_LOG2E);
    fixed_case_run(c, 1);
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
        fixed_case_free(&c);
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
        fixed_case_free(&below), fixed_case_free(&at);
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
    c.problem.heads = 1, c.problem.head_dim = 3, c.problem.q_len = 64,
    c.problem.kv_len = 500 + random_below(&random_state, 525);
    c.problem.dtype = dtype;
    fixed_case_alloc(&c);
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
    fixed_case_round(&c);
    return c;
}

/* Sets s to the logits of query i in base 2, and v to the first number of each value, in a case of one head. */
static void logits_of(const fixed_case *c, int64_t i, double *s, float *v)
{
    int64_t D = c->problem.head_dim;
    for (int64_t j = 0; j < c->problem.kv_len; j++) {
        s[j] = 0;
        for (int64_t d = 0; d < D; d++)
            s[j] += fixed_base2_scale(c) * (double)c->qf[i * D + d] * (double)c->kf[j * D + d];
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
        fixed_truth t = fixed_truth_of(&c, 0);
        double gate = floor(88 + 126 - kept - ceil(log2((double)c.problem.kv_len)) + fmin(0, log2(t.magnitude)));
        c.problem.scale = (float)((gate - 0.1) / t.largest_q / t.bound / M_LOG2E);
        fixed_case_run(&c, 1);
        assert_true(c.applies[0][0]);
        for (int64_t i = 0; i < c.problem.q_len; i++) {
            logits_of(&c, i, s, v);
            double m = (double)c.m[0][i], lost = lost_share(s, v, c.problem.kv_len, m);
            assert_true(lost <= exp2(-kept));
            most_lost = fmax(most_lost, lost * exp2(kept));
            /* The same logits under a looser gate, 213, would lose more than rounding does. */
            most_lost_beyond = fmax(most_lost_beyond, lost_share(s, v, c.problem.kv_len, m + 213 - gate));
        }
        free(t.mean);
        fixed_case_free(&c);
    }
    assert_true(most_lost > 1e-6 && most_lost_beyond > 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_stands_where_it_should),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(what_is_flushed_does_not_matter),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
