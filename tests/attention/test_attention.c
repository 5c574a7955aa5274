/* Every strategy on every mesh against the definition in double; ulysses against single, bit for bit. */
#include "kernels/kernel.h"
#include "support/attention_case.h"
#include "support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MOST_RANKS 6

static void run_case(attention_case *c, int ranks)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks == 1 ? 2 : ranks, case_in_rank, c);
    if (status)
        print_error("%d ranks: %s\n", ranks, ith_context_error(context));
    assert_int_equal(status, ITH_OK);
    assert_int_equal(ith_context_memory(context).current_bytes, 0);
    ith_context_destroy(&context);
}

static double bound(ith_dtype type)
{
    return type == ITH_F32 ? 5e-6 : type == ITH_BF16 ? 0x1p-8 : 0x1p-11;
}

static void check_case(const attention_case *c, const float *o, const float *lse, const char *what)
{
    const ith_attn_problem *p = &c->problem;
    int64_t rows = p->batch * p->heads * p->q_len, count = rows * p->head_dim;
    double error = relative_l2(c->o, o, count);
    if (!(error <= bound(p->dtype)))
        print_error("%s: B %d H %d/%d D %d Sq %d Skv %d %s: %.3g\n%s\n", what, (int)p->batch, (int)p->heads,
                    (int)p->kv_heads, (int)p->head_dim, (int)p->q_len, (int)p->kv_len, ith_dtype_name(p->dtype), error,
                    c->plan);
    assert_true(error <= bound(p->dtype));
    for (int64_t i = 0; c->wants_lse && i < rows; i++) {
        if (isinf(lse[i]))
            assert_true(c->lse[i] == lse[i]);
        else
            assert_true(fabs((double)c->lse[i] - (double)lse[i]) <= 1e-4);
    }
}

/* A problem of odd sizes; some with strides, grouped queries, biases, fully masked. */
static attention_case random_case(uint32_t seed, int64_t longest)
{
    static const int64_t dims[] = {1, 7, 16, 32, 64, 72, 128};
    static const ith_dtype types[] = {ITH_F32, ITH_F32, ITH_BF16, ITH_F16};
    uint32_t r = seed * 2654435761u;
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
    ith_attn_problem *p = &c.problem;
    int64_t groups = 1 + case_random(&r) % 4, kv_heads = 1 + case_random(&r) % 3;
    p->batch = 1 + case_random(&r) % 3;
    p->heads = kv_heads * groups;
    p->kv_heads = groups == 1 ? 0 : kv_heads;
    p->head_dim = dims[case_random(&r) % 7];
    p->q_len = case_random(&r) % 4 ? (int64_t)case_random(&r) % longest : (int64_t)case_random(&r) % 4;
    p->kv_len = case_random(&r) % 4 ? (int64_t)case_random(&r) % longest : (int64_t)case_random(&r) % 4;
    p->dtype = types[case_random(&r) % 4];
    p->has_key_bias = case_random(&r) % 2;
    p->replicated_kv = case_random(&r) % 6 == 0;
    p->scale = case_random(&r) % 3 == 0 ? 0.25f : 0;
    c.gap = case_random(&r) % 3 == 0 ? 1 + case_random(&r) % 9 : 0;
    c.wants_lse = case_random(&r) % 4 != 0;
    case_fill(&c, r, case_random(&r) % 5 == 0 ? 8 : (int)(case_random(&r) % 4));
    return c;
}

/* All strategies and meshes of up to MOST_RANKS ranks on one problem. */
static void check_all_plans(attention_case *c, int fewest, int most)
{
    int64_t rows = c->problem.batch * c->problem.heads * c->problem.q_len, count = rows * c->problem.head_dim;
    size_t bytes = (size_t)(count * ith_dtype_bytes(c->problem.dtype));
    float *o = malloc((size_t)(count + 1) * sizeof *o), *lse = malloc((size_t)(rows + 1) * sizeof *lse);
    char *single = malloc(bytes + 1);
    case_oracle(c, o, lse);
    run_case(c, 1);
    check_case(c, o, lse, "single");
    memcpy(single, c->o_bits, bytes);
    for (int ranks = fewest; ranks <= most; ranks++)
        for (int ulysses = 1; ulysses <= ranks; ulysses++) {
            if (ranks % ulysses)
                continue;
            c->options.strategy = ulysses == ranks ? ITH_STRATEGY_ULYSSES
                                  : ulysses == 1   ? ITH_STRATEGY_RING
                                                   : ITH_STRATEGY_ULYSSES_RING;
            c->options.ulysses = ulysses;
            run_case(c, ranks);
            check_case(c, o, lse, ith_strategy_name(c->options.strategy));
            if (c->options.strategy == ITH_STRATEGY_ULYSSES || c->problem.replicated_kv)
                assert_memory_equal(single, c->o_bits, bytes);
            if (ulysses > 1 && ulysses < ranks)
                continue;
            c->options.strategy = ITH_STRATEGY_ULYSSES_RING; /* with an axis of length one */
            run_case(c, ranks);
            check_case(c, o, lse, "ulysses_ring");
        }
    c->options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    free(o), free(lse), free(single);
}

static void random_problems_meet_the_oracle(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 120; seed++) {
        attention_case c = random_case(seed, 90);
        check_all_plans(&c, 2 + (int)seed % 3, 2 + (int)seed % 5);
        case_free(&c);
    }
}

/* Longer than any kernel's runs of keys (4096) and blocks of queries (384), also after a cut in two. */
static void long_problems_meet_the_oracle(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 3; seed++) {
        attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
        c.problem.heads = seed == 1 ? 4 : 3;
        c.problem.kv_heads = seed == 1 ? 2 : 1;
        c.problem.batch = seed == 2 ? 2 : 1;
        c.problem.head_dim = 16;
        c.problem.q_len = seed == 1 ? 801 : 31 * seed;
        c.problem.kv_len = 9001 - 100 * (int64_t)seed;
        c.problem.dtype = seed == 3 ? ITH_BF16 : ITH_F32;
        c.problem.has_key_bias = seed == 2;
        case_fill(&c, seed, 1);
        check_all_plans(&c, 2, seed == 3 ? 4 : 2);
        case_free(&c);
    }
}

/* Every kernel that this machine runs, under the strategy that keeps partial results and the one that must not differ.
 */
static void every_kernel_serves(void **state)
{
    (void)state;
    ith_context *context = NULL;
    ith_context_create(NULL, &context);
    const char *name;
    bool usable;
    for (int i = 0; (name = ith_kernel_list(context, i, &usable)); i++) {
        if (!usable)
            continue;
        attention_case c = random_case(5, 300);
        c.options.kernel = name;
        int64_t rows = c.problem.batch * c.problem.heads * c.problem.q_len, count = rows * c.problem.head_dim;
        float *o = malloc((size_t)(count + 1) * sizeof *o), *lse = malloc((size_t)(rows + 1) * sizeof *lse);
        case_oracle(&c, o, lse);
        c.options.strategy = ITH_STRATEGY_RING;
        run_case(&c, 3);
        check_case(&c, o, lse, name);
        assert_non_null(strstr(c.plan, name));
        free(o), free(lse);
        case_free(&c);
    }
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems_meet_the_oracle),
        cmocka_unit_test(long_problems_meet_the_oracle),
        cmocka_unit_test(every_kernel_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
