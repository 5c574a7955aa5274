/* SPDX-License-Identifier: Apache-2.0 */
/* The rates, the kernel and the units with which a plan is priced, chosen from a machine's description as docs/cost.md
 * says. */
#include "support/cost_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Of rates that are equally near to a plan the highest counts. Without options ranks have at least one unit. */
static void equally_near_rates_and_units(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    ith_machine_attention rates[3] = {b.rate, b.rate, b.rate};
    b.machine.attention = rates, b.machine.attention_count = 3;
    for (int fastest = 0; fastest < 3; fastest++) {
        for (int i = 0; i < 3; i++)
            rates[i].gflops = i == fastest ? 1000 : 100;
        near(cost_of(&b, 1).seconds, compute_all);
    }
    b.level.shares_memory = true, b.level.latency_seconds = 0;
    b.machine.rank_units = 0, b.machine.host_units = 2;
    b.options.strategy = ITH_STRATEGY_ULYSSES;
    near(cost_of(&b, 4).seconds, compute_all / 2);
    ith_context_destroy(&b.context);
}

/* The seconds of all attention at this rate. */
static double seconds_at(double gflops)
{
    return compute_all * 1000 / gflops;
}

/* Rows are compared by their softmax first, then by head size, then by tiles. */
static void the_nearest_row_counts(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    ith_machine_attention rows[2] = {b.rate, b.rate};
    b.machine.attention = rows, b.machine.attention_count = 2;
    rows[0].softmax = ITH_SOFTMAX_FIXED_M, rows[0].head_dim = DIM / 4, rows[0].gflops = 500, rows[1].gflops = 100;
    near(cost_of(&b, 1).seconds, seconds_at(100));
    b.options.softmax = ITH_SOFTMAX_FIXED_M;
    near(cost_of(&b, 1).seconds, seconds_at(500));
    b.options.softmax = ITH_SOFTMAX_ONLINE, rows[0].softmax = ITH_SOFTMAX_ONLINE;
    rows[0].head_dim = DIM / 2, rows[1].block_q = 16;
    b.options.block_q = 256;
    near(cost_of(&b, 1).seconds, seconds_at(100));
    ith_context_destroy(&b.context);
}

/* Each size of the tiles that the options set tells the rows of a foreign kernel apart. */
static void each_tile_counts(void **state)
{
    (void)state;
    for (int tile = 0; tile < 4; tile++) {
        bed b;
        make_bed(&b);
        ith_machine_attention rows[2] = {b.rate, b.rate};
        int64_t *const sizes[] = {&rows[0].block_q, &rows[0].block_kv, &rows[0].block_kv_compute,
                                  &rows[0].block_kv_compute_in};
        int64_t *const asked[] = {&b.options.block_q, &b.options.block_kv, &b.options.block_kv_compute,
                                  &b.options.block_kv_compute_in};
        for (int i = 0; i < 4; i++)
            *sizes[i] = 256;
        rows[1] = rows[0];
        *sizes[tile] = 64, rows[0].gflops = 100;
        b.machine.attention = rows, b.machine.attention_count = 2;
        *asked[tile] = 64;
        near(cost_of(&b, 1).seconds, seconds_at(100));
        *asked[tile] = 128 + 64;
        near(cost_of(&b, 1).seconds, seconds_at(1000));
        ith_context_destroy(&b.context);
    }
}

static ith_plan_info info_of(bed *b)
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    if (ith_plan_cost(b->context, &b->problem, &b->options, &b->machine, 1, &info, NULL))
        fail_msg("%s", ith_context_error(b->context));
    return info;
}

/* A kernel that the library lacks has the tiles that the options set, otherwise the tiles of its row, and whole
 * sequences where the row has none. No tile is longer than the sequence, or empty. */
static void a_foreign_kernel_has_the_tiles_of_its_row(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    assert_int_equal(info_of(&b).block_q, 256);
    b.options.block_q = 100, b.options.block_kv = 2 * LENGTH;
    assert_int_equal(info_of(&b).block_q, 100);
    assert_int_equal(info_of(&b).block_kv, LENGTH);
    b.options.block_q = b.options.block_kv = b.rate.block_q = b.rate.block_kv = 0;
    b.problem.q_len = LENGTH / 2;
    assert_int_equal(info_of(&b).block_q, LENGTH / 2);
    assert_int_equal(info_of(&b).block_kv, LENGTH);
    b.problem.q_len = b.problem.kv_len = 0;
    assert_int_equal(info_of(&b).block_q, 1);
    assert_int_equal(info_of(&b).block_kv, 1);
    ith_context_destroy(&b.context);
}

/* Rates of another type do not count, however near they are otherwise. */
static void rates_are_of_the_type(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    ith_machine_attention rows[2] = {b.rate, b.rate};
    rows[0].dtype = ITH_F32, rows[0].head_dim = DIM / 2, rows[0].gflops = 100;
    b.machine.attention = rows, b.machine.attention_count = 2;
    b.problem.dtype = ITH_F32;
    near(cost_of(&b, 1).seconds, seconds_at(100));
    b.problem.dtype = ITH_F16;
    assert_int_equal(ith_plan_cost(b.context, &b.problem, &b.options, &b.machine, 1, NULL, NULL), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(b.context), "no rate of any kernel for f16"));
    ith_context_destroy(&b.context);
}

#if defined(__x86_64__)
/* Of the library's kernels that a machine has rates of, the first in the table that pays is chosen. The products of
 * f32 with AMX do not pay for heads of 40, and no kernel of bf16 pays for heads of 4. Kernels in plain C come last. The
 * kernel has the library's tiles, whatever its rows say. */
static void the_kernel_is_the_first_that_pays(void **state)
{
    (void)state;
    static const char plain[] = "f32_ref", avx2[] = "f32_avx2", amx[] = "f32_amx", amx_bf16[] = "bf16_amx",
                      fp16[] = "bf16_avx512fp16";
    static const struct {
        const char *rates[2], *chosen;
        ith_dtype dtype;
        int64_t head_dim;
    } cases[] = {{{plain, plain}, plain, ITH_F32, 64},     {{plain, avx2}, avx2, ITH_F32, 64},
                 {{avx2, amx}, amx, ITH_F32, 64},          {{avx2, amx}, avx2, ITH_F32, 40},
                 {{plain, amx}, amx, ITH_F32, 40},         {{amx, amx}, amx, ITH_F32, 40},
                 {{fp16, amx_bf16}, amx_bf16, ITH_BF16, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bed b;
        make_bed(&b);
        ith_machine_attention rows[2] = {b.rate, b.rate};
        for (int j = 0; j < 2; j++) {
            strcpy(rows[j].kernel, cases[i].rates[j]);
            rows[j].dtype = cases[i].dtype, rows[j].head_dim = cases[i].head_dim, rows[j].block_q = 1;
        }
        b.machine.attention = rows, b.machine.attention_count = 2;
        b.problem.dtype = cases[i].dtype, b.problem.head_dim = cases[i].head_dim;
        const ith_plan_info info = info_of(&b);
        assert_string_equal(info.kernel, cases[i].chosen);
        assert_true(info.block_q > 1);
        ith_context_destroy(&b.context);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equally_near_rates_and_units),
        cmocka_unit_test(the_nearest_row_counts),
        cmocka_unit_test(each_tile_counts),
        cmocka_unit_test(a_foreign_kernel_has_the_tiles_of_its_row),
        cmocka_unit_test(rates_are_of_the_type),
#if defined(__x86_64__)
        cmocka_unit_test(the_kernel_is_the_first_that_pays),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
