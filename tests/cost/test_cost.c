/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of plans against the equations of docs/cost.md, worked out here for even shares. */
#include <ithaca/cost.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A machine of devices on one link, with one kernel. Copies and packing take no time unless a test sets them. */
typedef struct bed {
    ith_context *context;
    ith_machine machine;
    ith_machine_level level;
    ith_machine_attention rate;
    ith_attn_problem problem;
    ith_attn_options options;
} bed;

enum { HEADS = 16, DIM = 128, LENGTH = 8192, BYTES = 2 };

static void make_bed(bed *b)
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

static ith_cost cost_of(bed *b, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    ith_status status = ith_plan_cost(b->context, &b->problem, &b->options, &b->machine, ranks, NULL, &cost);
    if (status)
        fail_msg("%s", ith_context_error(b->context));
    return cost;
}

static void near(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g, and expected %.12g", found, expected);
}

static const double compute_all = 4.0 * LENGTH * LENGTH * DIM * HEADS / 1e12;

static void test_single(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    near(cost_of(&b, 1).seconds, compute_all);
    b.rate.call_seconds = 1e-6;
    near(cost_of(&b, 1).seconds, compute_all + 1e-6 * HEADS * (LENGTH / 256) * (LENGTH / 256));
    b.rate.pack_bytes_per_second = 1e9;
    near(cost_of(&b, 1).pack_seconds, 2.0 * LENGTH * HEADS * DIM * BYTES / 1e9);
    ith_context_destroy(&b.context);
}

/* Everything is sent before and after computing: each rank sends (P - 1) / P of its share of q, k, v, and o. */
static void test_ulysses(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 16; ranks *= 2) {
        bed b;
        make_bed(&b);
        b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1;
        double share = (double)LENGTH * HEADS * DIM * BYTES / ranks, sent = share * (ranks - 1) / ranks;
        ith_cost cost = cost_of(&b, ranks);
        near(cost.seconds, compute_all / ranks + 4 * sent / 1e9 + 2e-4 + cost.start_seconds);
        near((double)cost.sent_bytes, 4 * sent);
        ith_context_destroy(&b.context);
    }
}

/* A hop travels while its shard is computed: R - 1 times the longer of the two, and once the computing. */
static void test_ring(void **state)
{
    (void)state;
    const double rates[] = {1e8, 1e9, 1e10};
    for (int i = 0; i < 3; i++)
        for (int ranks = 2; ranks <= 16; ranks *= 2) {
            bed b;
            make_bed(&b);
            b.options.strategy = ITH_STRATEGY_RING;
            b.level.bytes_per_second = rates[i];
            double shard = 2.0 * LENGTH * HEADS * DIM * BYTES / ranks, part = compute_all / ranks / ranks;
            ith_cost cost = cost_of(&b, ranks);
            near(cost.seconds, part + (ranks - 1) * fmax(part, shard / rates[i] + 1e-4) + cost.start_seconds);
            near((double)cost.sent_bytes, shard * (ranks - 1));
            b.level.overlap = 0;
            near(cost_of(&b, ranks).compute_seconds, compute_all / ranks);
            near(cost_of(&b, ranks).seconds,
                 ranks * part + (ranks - 1) * (shard / rates[i] + 1e-4) + cost.start_seconds);
            ith_context_destroy(&b.context);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_single), cmocka_unit_test(test_ulysses),
                                       cmocka_unit_test(test_ring)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
