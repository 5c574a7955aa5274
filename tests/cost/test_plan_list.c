/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of plans, for up to 100,000 ranks: every legal plan, the fastest first, and then all others, each with the rule
 * that forbids it. Senseless machines are refused. A better machine is never slower. */
#include "base/context.h"
#include "support/memory.h"
#include "support/refused.h"
#include "support/sanitizers.h"
#include "support/times.h"

#include <ithaca/cost.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct scene {
    ith_context *context;
    ith_machine machine;
    ith_machine_level levels[2];
    ith_machine_attention rate;
    ith_machine_product product;
    ith_attn_problem problem;
    ith_attn_options options;
} scene;

/* Hosts of 8 devices. */
static void fill_scene(scene *s)
{
    *s = (scene){.machine = ITH_MACHINE_INIT,
                 .levels = {ITH_MACHINE_LEVEL_INIT, ITH_MACHINE_LEVEL_INIT},
                 .rate = ITH_MACHINE_ATTENTION_INIT,
                 .product = ITH_MACHINE_PRODUCT_INIT,
                 .problem = ITH_ATTN_PROBLEM_INIT,
                 .options = ITH_ATTN_OPTIONS_INIT};
    s->levels[0].ranks = 8, s->levels[0].bytes_per_second = 400e9, s->levels[0].latency_seconds = 1e-5;
    s->levels[1].between_hosts = true, s->levels[1].bytes_per_second = 50e9, s->levels[1].latency_seconds = 2e-5;
    s->levels[1].overlap = 0.9;
    strcpy(s->rate.kernel, "flash");
    s->rate.head_dim = 128, s->rate.gflops = 600e3, s->rate.block_q = 128, s->rate.block_kv = 128;
    s->product.gflops = 1;
    s->machine.host_units = 8, s->machine.rank_units = 1, s->machine.levels = s->levels, s->machine.level_count = 2;
    s->machine.attention = &s->rate, s->machine.attention_count = 1;
    s->machine.products = &s->product, s->machine.product_count = 1;
    s->problem.heads = 40, s->problem.head_dim = 128, s->problem.q_len = s->problem.kv_len = 75600;
    s->problem.dtype = ITH_BF16;
}

static void make_scene(scene *s)
{
    fill_scene(s);
    assert_int_equal(ith_context_create(NULL, &s->context), ITH_OK);
}

/* ---- Lists ----------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int legal, illegal, after;
    double last, first;
    bool single_refused;
    ith_attn_options best;
    ith_status answer;
} seen;

static ith_status look(void *user, const ith_plan_candidate *c)
{
    seen *s = user;
    if (!c->legal) {
        assert_null(c->info);
        assert_null(c->cost);
        assert_true(strlen(c->rule) > 10);
        s->illegal++;
        s->single_refused |= c->options->strategy == ITH_STRATEGY_SINGLE && strstr(c->rule, "one rank");
        return s->answer;
    }
    assert_int_equal(s->illegal, 0);
    assert_string_equal(c->rule, "");
    assert_true(c->cost->seconds >= s->last);
    assert_true(c->info->ulysses == c->options->ulysses && c->info->ring == c->options->ring);
    assert_int_equal(c->info->strategy, c->options->strategy);
    assert_true(c->options->chunks >= c->info->chunks);
    assert_string_equal(c->info->kernel, "flash");
    assert_true(c->info->memory_bytes == c->cost->memory_bytes && c->cost->memory_bytes > 0);
    const double parts = c->cost->compute_seconds + c->cost->pack_seconds + c->cost->offset_seconds +
                         c->cost->copy_seconds + c->cost->waiting_seconds + c->cost->start_seconds;
    assert_true(fabs(parts - c->cost->seconds) < 1e-9 * parts);
    assert_true(c->cost->hidden_share >= 0 && c->cost->hidden_share <= 1);
    if (!s->legal++) {
        s->first = c->cost->seconds;
        s->best = *c->options;
    }
    s->last = c->cost->seconds;
    return s->answer;
}

static seen list(scene *s, int ranks)
{
    seen found = {0};
    ith_status status = ith_plan_list(s->context, &s->problem, &s->options, &s->machine, ranks, look, &found);
    if (status)
        fail_msg("%s", ith_context_error(s->context));
    return found;
}

static void test_all_plans(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    seen found = list(&s, 8);
    /* ring: 2 directions; 2 x 4 and 4 x 2: 2 directions, chunks 1, 2, 4, 8; 8 x 1: chunks 1, 2, 4, 5; all with 2
     * softmaxes */
    assert_int_equal(found.legal, 2 * (2 + 2 * 2 * 4 + 4));
    assert_int_equal(found.illegal, 1);
    assert_true(found.single_refused);
    /* a plan with the options of the best entry has its cost */
    ith_cost cost = ITH_COST_INIT;
    assert_int_equal(ith_plan_cost(s.context, &s.problem, &found.best, &s.machine, 8, NULL, &cost), ITH_OK);
    assert_true(cost.seconds == found.first);
    s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.softmax = ITH_SOFTMAX_ONLINE, s.options.chunks = 2;
    assert_int_equal(list(&s, 8).legal, 1);
    s.options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    s.options.ulysses = 3;
    found = list(&s, 8);
    assert_int_equal(found.legal, 0);
    assert_true(found.illegal > 0);
    s.options.ulysses = 0;
    assert_int_equal(list(&s, 1).legal, 2);
    s.problem.replicated_kv = true, s.options.strategy = ITH_STRATEGY_SINGLE;
    assert_true(list(&s, 8).legal > 0);
    ith_context_destroy(&s.context);
}

static void test_the_receiver_may_stop(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    seen found = {.answer = ITH_ERR_IO};
    assert_int_equal(ith_plan_list(s.context, &s.problem, NULL, &s.machine, 8, look, &found), ITH_ERR_IO);
    assert_int_equal(found.legal, 1);
    found = (seen){.answer = ITH_ERR_IO};
    REFUSED_AS(ITH_ERR_IO, s.context, "take returned ITH_ERR_IO for plan 0",
               ith_plan_list(s.context, &s.problem, NULL, &s.machine, 8, look, &found));
    found = (seen){.answer = (ith_status)42};
    REFUSED_AS(ITH_ERR_ABORTED, s.context, "take returned 42",
               ith_plan_list(s.context, &s.problem, NULL, &s.machine, 8, look, &found));
    REFUSED(s.context, "take", ith_plan_list(s.context, &s.problem, NULL, &s.machine, 8, NULL, NULL));
    REFUSED(s.context, "ranks", ith_plan_list(s.context, &s.problem, NULL, &s.machine, 0, look, &found));
    ith_context_destroy(&s.context);
}

static void test_many_ranks(void **state)
{
    (void)state;
    const int counts[] = {4096, 98280, 100000, 99991};
    scene s;
    make_scene(&s);
    for (int i = 0; i < (SANITIZED ? 2 : 4); i++) {
        const double begin = process_seconds();
        seen found = list(&s, counts[i]);
        const double seconds = process_seconds() - begin;
        assert_true(found.legal >= 4);
        assert_true(seconds < 1 || SANITIZED);
    }
    ith_context_destroy(&s.context);
}

/* ---- Machines -------------------------------------------------------------------------------------------------- */

static double seconds_of(scene *s, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    ith_status status = ith_plan_cost(s->context, &s->problem, &s->options, &s->machine, ranks, NULL, &cost);
    if (status)
        fail_msg("%s", ith_context_error(s->context));
    return cost.seconds;
}

static void test_better_machines(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    for (int ranks = 2; ranks <= 32; ranks *= 2)
        for (int strategy = ITH_STRATEGY_ULYSSES; strategy <= ITH_STRATEGY_ULYSSES_RING; strategy++)
            for (int direction = ITH_DIRECTION_UNI; direction <= ITH_DIRECTION_BIDIR; direction++) {
                double *const numbers[] = {&s.levels[0].bytes_per_second, &s.levels[1].bytes_per_second,
                                           &s.levels[1].overlap,          &s.rate.gflops,
                                           &s.levels[0].latency_seconds,  &s.rate.call_seconds};
                const double factors[] = {2, 2, 1.1, 2, 0.5, 0.5};
                s.options.strategy = (ith_strategy)strategy, s.options.direction = (ith_direction)direction;
                s.rate.call_seconds = 1e-6;
                for (int i = 0; i < 6; i++) {
                    const double before = seconds_of(&s, ranks), kept = *numbers[i];
                    *numbers[i] *= factors[i];
                    assert_true(seconds_of(&s, ranks) <= before * (1 + 1e-12));
                    *numbers[i] = kept;
                }
            }
    ith_context_destroy(&s.context);
}

static void test_wrong_numbers(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    double *const numbers[] = {&s.levels[0].bytes_per_second,
                               &s.levels[1].group_bytes_per_second,
                               &s.levels[0].latency_seconds,
                               &s.levels[1].copy_bytes_per_second,
                               &s.levels[1].overlap,
                               &s.rate.gflops,
                               &s.rate.call_seconds,
                               &s.rate.pack_bytes_per_second,
                               &s.rate.offset_bytes_per_second,
                               &s.product.gflops,
                               &s.machine.busy_share,
                               &s.machine.memory_bytes,
                               &s.machine.row_bytes_per_second,
                               &s.machine.start_seconds};
    assert_int_equal(ith_machine_check(s.context, &s.machine), ITH_OK);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double wrong[] = {NAN, -1, INFINITY, -INFINITY, -1e-300, 1e-300, 1e300}, kept = *numbers[i];
        for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++) {
            *numbers[i] = wrong[j];
            REFUSED(s.context, "must be", ith_machine_check(s.context, &s.machine));
            REFUSED(s.context, "must be", ith_plan_cost(s.context, &s.problem, NULL, &s.machine, 8, NULL, NULL));
        }
        *numbers[i] = kept;
    }
    ith_context_destroy(&s.context);
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    int64_t *const sizes[] = {&s.machine.ranks,       &s.machine.host_units,      &s.machine.rank_units,
                              &s.machine.level_count, &s.machine.attention_count, &s.machine.product_count,
                              &s.levels[1].ranks,     &s.rate.head_dim,           &s.rate.block_q,
                              &s.product.rows};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t kept = *sizes[i];
        *sizes[i] = -1;
        REFUSED(s.context, "must be", ith_machine_check(s.context, &s.machine));
        *sizes[i] = INT64_MIN;
        REFUSED(s.context, "must be", ith_machine_check(s.context, &s.machine));
        *sizes[i] = kept;
    }
    s.machine.ranks = -1;
    REFUSED(s.context, "the machine's ranks is -1, and must be 0 or more", ith_machine_check(s.context, &s.machine));
    s.machine.ranks = 0, s.levels[1].ranks = -1;
    REFUSED(s.context, "ranks of level 1 (counted from 0) of the machine is -1, and must be 0 or more",
            ith_machine_check(s.context, &s.machine));
    s.levels[1].ranks = 0;
    for (int i = 1; i < 3; i++) { /* products of units and ranks need int64_t */
        const int64_t kept = *sizes[i];
        *sizes[i] = 1000001;
        REFUSED(s.context, "to 1000000", ith_plan_cost(s.context, &s.problem, NULL, &s.machine, 8, NULL, NULL));
        *sizes[i] = 1000000;
        assert_int_equal(ith_plan_cost(s.context, &s.problem, NULL, &s.machine, 8, NULL, NULL), ITH_OK);
        *sizes[i] = kept;
    }
    ith_context_destroy(&s.context);
}

static void test_broken_rules(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.rate.gflops = 0;
    REFUSED(s.context, "gflops", ith_machine_check(s.context, &s.machine));
    s.rate.gflops = 1, s.rate.dtype = ITH_I8;
    REFUSED(s.context, "dtype", ith_machine_check(s.context, &s.machine));
    s.rate.dtype = ITH_BF16, s.rate.softmax = ITH_SOFTMAX_AUTO;
    REFUSED(s.context, "softmax", ith_machine_check(s.context, &s.machine));
    s.rate.softmax = ITH_SOFTMAX_ONLINE, s.levels[0].ranks = 8, s.levels[1].ranks = 12;
    REFUSED(s.context, "multiple", ith_machine_check(s.context, &s.machine));
    s.levels[1].ranks = 0, s.levels[1].shares_memory = true;
    REFUSED(s.context, "shares memory", ith_machine_check(s.context, &s.machine));
    s.levels[1].shares_memory = false, s.levels[0].between_hosts = true, s.levels[1].between_hosts = false;
    REFUSED(s.context, "joins hosts", ith_machine_check(s.context, &s.machine));
    s.levels[0].between_hosts = false, s.levels[1].between_hosts = true;
    memset(s.rate.kernel, 'x', sizeof s.rate.kernel);
    REFUSED(s.context, "has no end", ith_machine_check(s.context, &s.machine));
    memset(s.rate.kernel, 0, sizeof s.rate.kernel);
    REFUSED(s.context, "names no kernel", ith_machine_check(s.context, &s.machine));
    strcpy(s.rate.kernel, "flash");
    assert_int_equal(ith_machine_check(s.context, &s.machine), ITH_OK);
    REFUSED_SIZES(s.context, s.machine, "ith_machine", ith_machine_check(s.context, &s.machine));
    REFUSED_SIZES(s.context, s.rate, "attention", ith_machine_check(s.context, &s.machine));
    REFUSED_SIZES(s.context, s.levels[0], "level", ith_machine_check(s.context, &s.machine));
    s.machine.levels = NULL;
    REFUSED(s.context, "level", ith_machine_check(s.context, &s.machine));
    REFUSED(s.context, "NULL", ith_machine_check(s.context, NULL));
    REFUSED(NULL, "context", ith_machine_check(NULL, &s.machine));
    ith_context_destroy(&s.context);
}

/* Numbers at the ends of their ranges give a finite cost that is not negative. */
static void test_huge_numbers(void **state)
{
    (void)state;
    const double ends[] = {1e-30, 1e30};
    scene s;
    make_scene(&s);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            s.levels[0].bytes_per_second = ends[i], s.rate.gflops = ends[j];
            s.levels[0].latency_seconds = ends[j], s.rate.call_seconds = ends[i];
            s.machine.host_units = 1000000;
            seen found = list(&s, 8);
            assert_true(found.first >= 0 && !isnan(found.last));
        }
    ith_context_destroy(&s.context);
}

static void test_what_is_missing(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.problem.dtype = ITH_F32;
    REFUSED_AS(ITH_ERR_UNSUPPORTED, s.context, "f32",
               ith_plan_cost(s.context, &s.problem, NULL, &s.machine, 8, NULL, NULL));
    s.problem.dtype = ITH_BF16, s.options.kernel = "f32_ref";
    REFUSED_AS(ITH_ERR_UNSUPPORTED, s.context, "f32_ref",
               ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL));
    s.options.kernel = "flash";
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    assert_int_equal(ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, &info, NULL), ITH_OK);
    assert_ptr_equal(info.kernel, s.rate.kernel);
    assert_int_equal(info.block_q, 128);
    s.machine.ranks = 4;
    REFUSED(s.context, "at most 4", ith_plan_cost(s.context, &s.problem, NULL, &s.machine, 8, NULL, NULL));
    s.machine.ranks = 0, s.machine.level_count = 1;
    REFUSED_AS(ITH_ERR_UNSUPPORTED, s.context, "joins",
               ith_plan_cost(s.context, &s.problem, NULL, &s.machine, 16, NULL, NULL));
    /* the library's own rule */
    s.machine.level_count = 2, s.options.exchange = ITH_EXCHANGE_IN_PLACE;
    REFUSED_AS(ITH_ERR_UNSUPPORTED, s.context, "share memory",
               ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL));
    s.options.exchange = ITH_EXCHANGE_AUTO, s.options.process_ranks = 3;
    REFUSED(s.context, "process_ranks", ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL));
    ith_context_destroy(&s.context);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static ith_status count_plans(void *user, const ith_plan_candidate *candidate)
{
    (void)candidate;
    ++*(int *)user;
    return ITH_OK;
}

/* A list of many plans ends before the next plan, and the walk over a plan of many steps in the middle. */
static void test_lists_and_walks_stop(void **state)
{
    (void)state;
    scene s;
    int plans = 0;
    make_scene(&s);
    ith_context_interrupt(s.context);
    s.problem.heads = 5040;
    assert_int_equal(ith_plan_list(s.context, &s.problem, NULL, &s.machine, 5040, count_plans, &plans),
                     ITH_ERR_INTERRUPTED);
    assert_int_equal(plans, 0);
    s.problem.heads = 8, s.problem.batch = 20000, s.options.fold = ITH_CHOICE_OFF, s.options.ulysses = 8;
    assert_int_equal(ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL), ITH_ERR_INTERRUPTED);
    ith_context_end_interruption(s.context);
    assert_int_equal(ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL), ITH_OK);
    ith_context_destroy(&s.context);
}

/* A million batch entries, each with chunks of its own, are counted without a loop over them. Where the model and the
 * simulation walk them, they stop at once. */
static void test_many_entries(void **state)
{
    (void)state;
    scene s;
    ith_plan_info one = ITH_PLAN_INFO_INIT, all = ITH_PLAN_INFO_INIT;
    const double begin = process_seconds();
    make_scene(&s);
    s.problem.q_len = s.problem.kv_len = 64;
    s.options.fold = ITH_CHOICE_OFF, s.options.strategy = ITH_STRATEGY_ULYSSES;
    assert_int_equal(ith_plan_predict(s.context, &s.problem, &s.options, 8, 0, false, &one), ITH_OK);
    s.problem.batch = 1000000;
    assert_int_equal(ith_plan_predict(s.context, &s.problem, &s.options, 8, 0, false, &all), ITH_OK);
    assert_true(all.sent_bytes == 1000000 * one.sent_bytes);
    ith_context_interrupt(s.context);
    assert_int_equal(ith_plan_cost(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL), ITH_ERR_INTERRUPTED);
    assert_int_equal(ith_plan_simulate(s.context, &s.problem, &s.options, &s.machine, 8, NULL, NULL, NULL),
                     ITH_ERR_INTERRUPTED);
    assert_true(process_seconds() - begin < 1);
    ith_context_destroy(&s.context);
}

static ith_status list_without_memory(ith_context *context, void *user)
{
    scene s;
    int plans = 0;
    (void)user;
    fill_scene(&s);
    return ith_plan_list(context, &s.problem, NULL, &s.machine, 8, count_plans, &plans);
}

static void test_refused_memory(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(list_without_memory, NULL, 1) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_plans),       cmocka_unit_test(test_the_receiver_may_stop),
        cmocka_unit_test(test_many_ranks),      cmocka_unit_test(test_better_machines),
        cmocka_unit_test(test_wrong_numbers),   cmocka_unit_test(test_wrong_sizes),
        cmocka_unit_test(test_broken_rules),    cmocka_unit_test(test_huge_numbers),
        cmocka_unit_test(test_what_is_missing), cmocka_unit_test(test_lists_and_walks_stop),
        cmocka_unit_test(test_many_entries),    cmocka_unit_test(test_refused_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
