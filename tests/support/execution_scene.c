/* SPDX-License-Identifier: Apache-2.0 */
#include "support/execution_scene.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/context.h"

#define UNTOUCHED (-77.0f)

ith_attn_problem problem_of(const sample *s)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = s->heads, problem.head_dim = s->dim;
    problem.q_len = problem.kv_len = s->length;
    problem.has_kv_lengths = true;
    problem.has_key_bias = s->bias != NULL;
    problem.mask = s->mask ? ITH_MASK_BOOL : ITH_MASK_NONE;
    return problem;
}

void sample_create(sample *s, int64_t length, int64_t heads, int64_t dim)
{
    int64_t row = heads * dim;
    size_t count = (size_t)(length * row);
    *s = (sample){.length = length, .heads = heads, .dim = dim, .kv_length = (int32_t)length};
    s->q = calloc(count, sizeof(float)), s->k = calloc(count, sizeof(float));
    s->v = calloc(count, sizeof(float)), s->o = calloc(count, sizeof(float));
    s->lse = calloc((size_t)(length * heads), sizeof(float));
    for (size_t i = 0; i < count; i++) {
        s->v[i] = (float)((int64_t)i / row);
        s->o[i] = UNTOUCHED;
    }
}

void sample_destroy(sample *s)
{
    free(s->q), free(s->k), free(s->v), free(s->o), free(s->lse), free(s->bias), free(s->mask);
}

ith_attn_tensors tensors_of(sample *s, int rank, int ranks, int32_t *lengths)
{
    int64_t begin, rows, row = s->heads * s->dim;
    ith_share(s->length, ranks, rank, &begin, &rows);
    *lengths = s->kv_length;
    return (ith_attn_tensors){.struct_size = sizeof(ith_attn_tensors),
                              .q = s->q + begin * row,
                              .k = s->k + begin * row,
                              .v = s->v + begin * row,
                              .o = s->o + begin * row,
                              .kv_lengths = lengths,
                              .key_bias = s->bias,
                              .mask = s->mask};
}

bool untouched(const sample *s)
{
    for (int64_t i = 0; i < s->length * s->heads * s->dim; i++)
        if (s->o[i] != UNTOUCHED)
            return false;
    return true;
}

void expect_mean(sample *s)
{
    double mean = (double)(s->kv_length - 1) / 2;
    for (int64_t i = 0; i < s->length * s->heads * s->dim; i++) {
        if (!(fabs((double)s->o[i] - mean) <= 1e-4 * mean))
            fail_msg("o[%lld] is %g, not %g", (long long)i, (double)s->o[i], mean);
        s->o[i] = UNTOUCHED;
    }
}

void plan_in_rank(rank_group *g, int rank, void *user)
{
    scene *s = user;
    for (int i = 0; i < 2; i++) {
        ith_attn_problem problem = problem_of(&s->samples[i]);
        s->seen[rank] = ith_plan_create(g->contexts[rank], &problem, &s->options, g->comms[rank], &s->plans[i][rank]);
        if (s->seen[rank])
            return;
    }
}

void note(const rank_group *g, int rank, scene *s, ith_status status)
{
    s->seen[rank] = status;
    snprintf(s->sentences[rank], SENTENCE, "%s", ith_context_error(g->contexts[rank]));
}

void execute_in_rank(rank_group *g, int rank, void *user)
{
    scene *s = user;
    int plan = rank == s->odd ? 1 - s->first_plan : s->first_plan;
    int32_t lengths;
    ith_attn_tensors tensors = tensors_of(&s->samples[plan], rank, g->ranks, &lengths);
    note(g, rank, s, ith_plan_execute(s->plans[plan][rank], &tensors));
}

void expect_all_refused(const rank_group *g, const scene *s, ith_status status, const char *words, const char *more)
{
    for (int rank = 0; rank < g->ranks; rank++) {
        if (s->seen[rank] != status || !strstr(s->sentences[rank], words) || !strstr(s->sentences[rank], more))
            print_error("rank %d of %d: %s: %s\n", rank, g->ranks, ith_status_name(s->seen[rank]), s->sentences[rank]);
        assert_int_equal(s->seen[rank], status);
        assert_non_null(strstr(s->sentences[rank], words));
        assert_non_null(strstr(s->sentences[rank], more));
        assert_string_equal(s->sentences[rank], s->sentences[0]);
    }
    assert_true(untouched(&s->samples[0]) && untouched(&s->samples[1]));
}

void expect_right(rank_group *g, scene *s)
{
    s->odd = -1;
    for (s->first_plan = 0; s->first_plan < 2; s->first_plan++) {
        group_run(g, execute_in_rank, s);
        for (int rank = 0; rank < g->ranks; rank++)
            if (s->seen[rank])
                fail_msg("rank %d: %s", rank, s->sentences[rank]);
        expect_mean(&s->samples[s->first_plan]);
    }
    s->first_plan = 0;
}

void for_each_way(int64_t lengths[2], bool bias, bool mask, scene_fn act)
{
    for (int strategy = ITH_STRATEGY_ULYSSES; strategy <= ITH_STRATEGY_ULYSSES_RING; strategy++)
        for (int exchange = ITH_EXCHANGE_IN_PLACE; exchange <= ITH_EXCHANGE_MIXED; exchange++)
            for (int ranks = 2; ranks <= 4; ranks++) {
                scene s = {.options = ITH_ATTN_OPTIONS_INIT, .odd = -1};
                rank_group g;
                ith_context *root = NULL;
                s.options.strategy = (ith_strategy)strategy;
                s.options.exchange = (ith_exchange_mode)exchange;
                s.options.softmax = ranks % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
                assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
                assert_int_equal(group_create(&g, root, ranks), ITH_OK);
                for (int i = 0; i < 2; i++) {
                    sample_create(&s.samples[i], lengths[i], 4, 8);
                    if (bias)
                        s.samples[i].bias = calloc((size_t)lengths[i], sizeof(float));
                    if (mask)
                        s.samples[i].mask =
                            memset(malloc((size_t)(lengths[i] * lengths[i])), 1, (size_t)(lengths[i] * lengths[i]));
                }
                group_run(&g, plan_in_rank, &s);
                for (int rank = 0; rank < ranks; rank++)
                    assert_int_equal(s.seen[rank], ITH_OK);
                act(&g, &s);
                expect_right(&g, &s);
                for (int i = 0; i < 2; i++) {
                    for (int rank = 0; rank < ranks; rank++)
                        ith_plan_destroy(&s.plans[i][rank]);
                    sample_destroy(&s.samples[i]);
                }
                group_destroy(&g);
                assert_int_equal(ith_context_bytes(root), 0);
                ith_context_destroy(&root);
            }
}
