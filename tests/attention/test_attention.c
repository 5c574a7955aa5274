/* SPDX-License-Identifier: Apache-2.0 */
/* Compares every strategy on every mesh with attention computed in double, by its definition. The strategy ulysses must
 * give the bits of the strategy single. */
#include "kernels/kernel.h"
#include "support/attention_check.h"
#include "support/fixture.h"
#include "support/random_case.h"

#include <stdlib.h>
#include <string.h>

/* Runs one problem with all strategies and meshes of `fewest` to `most` ranks, by messages and in place. lines: also
 * with the meshes of ulysses_ring that have an axis of length one. */
static void check_all_meshes(attention_case *c, int fewest, int most, bool lines, uint32_t seed)
{
    int64_t rows = c->problem.batch * c->problem.heads * c->problem.q_len, count = rows * c->problem.head_dim;
    size_t bytes = (size_t)(count * ith_dtype_bytes(c->problem.dtype));
    float *o = malloc((size_t)(count + 1) * sizeof *o), *lse = malloc((size_t)(rows + 1) * sizeof *lse);
    char *single = malloc(bytes + 1);
    case_oracle(c, o, lse);
    check_run(context, c, 1);
    check_result(c, o, lse, seed);
    memcpy(single, c->o_bits, bytes);
    for (int ranks = fewest; ranks <= most; ranks++)
        for (int ulysses = 1; ulysses <= 2 * ranks; ulysses++) {
            c->options.ulysses = ulysses > ranks ? ulysses - ranks : ulysses;
            c->options.exchange = ulysses > ranks ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_AUTO;
            if (ranks % c->options.ulysses)
                continue;
            c->options.strategy = c->options.ulysses == ranks ? ITH_STRATEGY_ULYSSES
                                  : c->options.ulysses == 1   ? ITH_STRATEGY_RING
                                                              : ITH_STRATEGY_ULYSSES_RING;
            check_run(context, c, ranks);
            check_result(c, o, lse, seed);
            if (c->options.strategy == ITH_STRATEGY_ULYSSES || c->problem.replicated_kv)
                assert_memory_equal(single, c->o_bits, bytes);
            if (!lines || c->options.strategy == ITH_STRATEGY_ULYSSES_RING)
                continue;
            c->options.strategy = ITH_STRATEGY_ULYSSES_RING;
            check_run(context, c, ranks);
            check_result(c, o, lse, seed);
        }
    c->options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    free(o), free(lse), free(single);
}

static void random_problems_on_every_mesh(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        attention_case c = random_case(seed, 90);
        check_all_meshes(&c, 2 + (int)seed % 3, 2 + (int)seed % 5, true, seed);
        case_free(&c);
    }
}

/* Problems of many tiles: nearly 9,000 keys and, in the first problem, 801 queries. */
static void long_problems_on_every_mesh(void **state)
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
        c.options.softmax = seed == 3 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        case_fill(&c, seed, 1);
        check_all_meshes(&c, 2, seed == 3 ? 4 : 2, false, seed);
        case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems_on_every_mesh),
        cmocka_unit_test(long_problems_on_every_mesh),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
