/* SPDX-License-Identifier: Apache-2.0 */
/* A row without any key to attend to has o = 0 and lse = -infinity. In a row with keys, a query with NaN gives NaN.
 * This holds with every kernel that the machine runs, every softmax, strategy and exchange, on random problems.
 * ITHACA_KEYLESS_PROBLEMS: the number of problems of each type (40). */
#include "kernels/kernel.h"
#include "support/fixture.h"
#include "support/keyless_case.h"
#include "support/random_case.h"

#include <stdlib.h>

enum { PLANS_PER_PROBLEM = 4, LONGEST = 300 };

static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Makes the tiles of a plan fit its kernel. Small tiles are of the kernel's steps, so that some KV blocks have no key
 * that is present. */
static void set_tiles(const ith_attn_kernel *kernel, int tiles, attention_case *c)
{
    const ith_attn_tiles step = kernel->tiles(c->problem.head_dim).step;
    c->options.block_q = tiles == 1 ? step.block_q : 0;
    c->options.block_kv_compute = tiles == 2 ? step.block_kv_compute : 0;
    c->options.block_kv = tiles == 2 ? step.block_kv : 0;
}

/* Runs a random plan of a kernel that takes the case. */
static void run_random_plan(draw_table *table, keyless_case *k, uint64_t *r)
{
    for (;;) {
        int ranks;
        drawn_plan plan = draw_plan(table, r);
        k->c.options = draw_options(table, &plan, &ranks);
        const ith_attn_kernel *kernel = ith_attn_kernel_named(k->c.options.kernel);
        draw_mark(table, &plan);
        if (!kernel->supports(k->c.problem.dtype, k->c.problem.head_dim, k->c.options.softmax))
            continue;
        set_tiles(kernel, plan.value[DRAW_TILES], &k->c);
        keyless_case_check(context, k, ranks);
        return;
    }
}

static void rows_without_keys(void **state)
{
    (void)state;
    draw_table *table = malloc(sizeof *table);
    const char *wanted = getenv("ITHACA_KEYLESS_PROBLEMS");
    const uint32_t problems = wanted ? (uint32_t)atoi(wanted) : 40;
    uint64_t r = 23;
    for (int t = 0; t < DTYPES; t++) {
        draw_init(context, table);
        for (uint32_t n = 0; n < problems; n++) {
            keyless_case k = keyless_case_make(n + 1, dtypes[t], LONGEST);
            for (int i = 0; i < PLANS_PER_PROBLEM; i++)
                run_random_plan(table, &k, &r);
            keyless_case_free(&k);
        }
    }
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_without_keys)};
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
