/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cost_bed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void make_bed(bed *b)
{
    *b = (bed){.machine = ITH_MACHINE_INIT,
               .level = ITH_MACHINE_LEVEL_INIT,
               .rate = ITH_MACHINE_ATTENTION_INIT,
               .problem = ITH_ATTN_PROBLEM_INIT,
               .options = ITH_ATTN_OPTIONS_INIT};
    assert_int_equal(ith_context_create(NULL, &b->context), ITH_OK);
    strcpy(b->rate.kernel, "flash");
    b->rate.head_dim = DIM, b->rate.gflops = 1000, b->rate.block_q = 256, b->rate.block_kv = 256;
    b->level.bytes_per_second = 1e9, b->level.latency_seconds = 1e-4;
    b->machine.host_units = 64, b->machine.rank_units = 1;
    b->machine.levels = &b->level, b->machine.level_count = 1;
    b->machine.attention = &b->rate, b->machine.attention_count = 1;
    b->problem.heads = HEADS, b->problem.head_dim = DIM, b->problem.q_len = b->problem.kv_len = LENGTH;
    b->problem.dtype = ITH_BF16;
}

ith_cost cost_of(bed *b, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    ith_status status = ith_plan_cost(b->context, &b->problem, &b->options, &b->machine, ranks, NULL, &cost);
    if (status)
        fail_msg("%s", ith_context_error(b->context));
    return cost;
}

ith_cost simulated(bed *b, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    if (ith_plan_simulate(b->context, &b->problem, &b->options, &b->machine, ranks, NULL, NULL, &cost))
        fail_msg("%s", ith_context_error(b->context));
    return cost;
}

void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g, and expected %.12g", found, expected);
}
