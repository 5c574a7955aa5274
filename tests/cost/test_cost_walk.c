/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of the cost model. It counts equal hops once and multiplies, which gives the cost of a walk over every hop.
 * Its traffic of each level is the sum of the schedule's moves. A plan's memory holds the rows of every hop. */
#include "attention/run/execute.h"
#include "base/context.h"
#include "base/cpu.h"
#include "cost/walk.h"
#include "cost/walker.h"
#include "plan/wisdom.h"
#include "support/in_range.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct scene {
    ith_context *context;
    ith_machine machine;
    ith_machine_level levels[3];
    ith_machine_attention rate;
    ith_attn_problem problem;
    ith_attn_options options;
    ith_machine_view view;
    ith_price price;
} scene;

/* Hosts of 6 ranks in processes of 3, which share memory if `shared`. */
static void make_scene(scene *s, bool shared)
{
    const ith_machine_level level = ITH_MACHINE_LEVEL_INIT;
    *s = (scene){.machine = ITH_MACHINE_INIT,
                 .levels = {level, level, level},
                 .rate = ITH_MACHINE_ATTENTION_INIT,
                 .problem = ITH_ATTN_PROBLEM_INIT,
                 .options = ITH_ATTN_OPTIONS_INIT};
    assert_int_equal(ith_context_create(NULL, &s->context), ITH_OK);
    s->levels[0].ranks = 3, s->levels[0].shares_memory = shared, s->levels[0].copy_bytes_per_second = 5e9;
    s->levels[1].ranks = 6, s->levels[1].bytes_per_second = 2e9, s->levels[1].latency_seconds = 1e-5;
    s->levels[1].overlap = 0.5;
    s->levels[2].between_hosts = true, s->levels[2].bytes_per_second = 1e9, s->levels[2].latency_seconds = 1e-4;
    s->levels[2].group_bytes_per_second = 2e9;
    strcpy(s->rate.kernel, "flash");
    s->rate.dtype = ITH_F32, s->rate.head_dim = 32, s->rate.gflops = 100, s->rate.block_q = 64, s->rate.block_kv = 64;
    s->rate.call_seconds = 1e-6, s->rate.pack_bytes_per_second = 3e9;
    s->machine.host_units = 6, s->machine.levels = s->levels, s->machine.level_count = 3;
    s->machine.attention = &s->rate, s->machine.attention_count = 1;
    s->problem.heads = 8, s->problem.kv_heads = 4, s->problem.head_dim = 32;
    s->problem.q_len = s->problem.kv_len = 5000;
    s->options.threads = 1;
}

static void price(scene *s, int ranks)
{
    ith_status status = ith_price_plan(s->context, &s->problem, &s->options, &s->machine, ranks, &s->view, &s->price);
    if (status)
        fail_msg("%s", ith_context_error(s->context));
}

static void near(double a, double b, double tolerance, const char *what)
{
    if (!(fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b))))
        fail_msg("%s: %.12g and %.12g", what, a, b);
}

/* ---- Hops that repeat ------------------------------------------------------------------------------------------ */

static void compare_walks(const scene *s)
{
    ith_cost all, some;
    assert_int_equal(ith_model_cost(s->context, &s->price, true, &all), ITH_OK);
    assert_int_equal(ith_model_cost(s->context, &s->price, false, &some), ITH_OK);
    near(all.seconds, some.seconds, 1e-9, "seconds");
    near(all.compute_seconds, some.compute_seconds, 1e-9, "compute");
    near(all.pack_seconds, some.pack_seconds, 1e-9, "pack");
    near(all.copy_seconds, some.copy_seconds, 1e-9, "copy");
    near(all.waiting_seconds + 1e-6, some.waiting_seconds + 1e-6, 1e-6, "waiting");
    near(all.exchange_seconds, some.exchange_seconds, 1e-9, "exchange");
    near(all.imbalance, some.imbalance, 1e-9, "imbalance");
    assert_true(llabs(all.sent_bytes - some.sent_bytes) <= 1);
}

static void test_hops_that_repeat(void **state)
{
    (void)state;
    const int rings[] = {30, 96, 300};
    const int64_t lengths[] = {5000, 96 * 50, 301, 77};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            for (int variant = 0; variant < 8; variant++) {
                scene s;
                make_scene(&s, false);
                const int ulysses = variant & 1 ? 6 : 1;
                s.options.direction = variant & 2 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
                s.options.softmax = variant & 4 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
                s.options.ulysses = ulysses, s.options.chunks = 2;
                s.problem.q_len = 4000, s.problem.kv_len = lengths[j];
                price(&s, rings[i] * ulysses);
                compare_walks(&s);
                ith_context_destroy(&s.context);
            }
}

/* Inputs of the next chunk travel slowly inside hosts, and more slowly while the rank computes, when hops between hosts
 * are alike. */
static void test_hops_beside_slow_inputs(void **state)
{
    (void)state;
    const double rates[] = {2e5, 1e6, 1e7};
    for (int variant = 0; variant < 18; variant++) {
        scene s;
        make_scene(&s, false);
        s.levels[0].ranks = 1, s.levels[1].ranks = 3;
        s.levels[0].copy_bytes_per_second = 0;
        s.levels[1].bytes_per_second = rates[variant % 3], s.levels[1].overlap = variant / 3 % 3 * 0.4;
        s.levels[2].bytes_per_second = 1e7, s.levels[2].group_bytes_per_second = 0;
        s.options.direction = variant / 9 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
        s.options.strategy = ITH_STRATEGY_ULYSSES_RING, s.options.ulysses = 3, s.options.chunks = 2;
        s.problem.heads = s.problem.kv_heads = 12, s.problem.q_len = s.problem.kv_len = 3000;
        s.machine.host_units = 3;
        price(&s, 100 * 3);
        compare_walks(&s);
        ith_context_destroy(&s.context);
    }
}

static void test_hops_in_place(void **state)
{
    (void)state;
    scene s;
    make_scene(&s, true);
    s.levels[0].ranks = 0;
    s.options.strategy = ITH_STRATEGY_RING;
    price(&s, 200);
    assert_int_equal(s.price.setting.exchange, ITH_EXCHANGE_IN_PLACE);
    compare_walks(&s);
    ith_context_destroy(&s.context);
}

static int64_t steps_walked;

/* Counts the steps of a walk (-Wl,--wrap). */
ith_walk_stop __real_ith_walker_next(ith_walker *w);
ith_walk_stop __wrap_ith_walker_next(ith_walker *w);
ith_walk_stop __wrap_ith_walker_next(ith_walker *w)
{
    steps_walked++;
    return __real_ith_walker_next(w);
}

static int64_t count_steps(const scene *s, bool every_hop)
{
    ith_cost cost = ITH_COST_INIT;
    steps_walked = 0;
    assert_int_equal(ith_model_cost(s->context, &s->price, every_hop, &cost), ITH_OK);
    return steps_walked;
}

/* Of the 4000 hops of a long ring about 50 are walked, by messages and in place. */
static void test_hops_are_left_out(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        scene s;
        make_scene(&s, shared);
        s.levels[0].ranks = shared ? 0 : 3;
        s.options.strategy = ITH_STRATEGY_RING, s.problem.q_len = s.problem.kv_len = 4000 * 50;
        price(&s, 4000);
        assert_true(shared == (s.price.setting.exchange == ITH_EXCHANGE_IN_PLACE));
        compare_walks(&s);
        assert_true(count_steps(&s, true) >= 4000);
        assert_true(in_range(count_steps(&s, false), 1, 400));
        ith_context_destroy(&s.context);
    }
}

/* The most rows that each place holds, over every hop or over the hops that are not left out. Returns the number of
 * steps. */
static int most_rows(const scene *s, int rank, bool every_hop, int64_t most[ITH_PLACES])
{
    ith_schedule schedule = ith_schedule_of(&s->price.setting, rank);
    int steps = 0;
    memset(most, 0, ITH_PLACES * sizeof *most);
    for (ith_step step; ith_schedule_next(&schedule, &step); steps++) {
        for (int i = 0; step.kind == ITH_STEP_POST && i < step.moves; i++)
            for (int sent = 0; sent < 2; sent++) {
                ith_move move = ith_schedule_move(&schedule, &step, sent, i);
                int64_t size = (move.at + move.rows.rows) * move.heads;
                most[move.place] = size > most[move.place] ? size : most[move.place];
            }
        if (!every_hop)
            ith_schedule_skip_hops(&schedule, ith_schedule_hops_alike(&schedule));
    }
    return steps;
}

static void test_places_of_all_hops(void **state)
{
    (void)state;
    const int64_t lengths[] = {5000, 401, 77};
    for (int ring = 9; ring <= 400; ring += 23)
        for (int direction = 0; direction < 2; direction++)
            for (int j = 0; j < 3; j++) {
                scene s;
                int64_t all[ITH_PLACES], some[ITH_PLACES];
                make_scene(&s, false);
                s.options.strategy = ITH_STRATEGY_RING;
                s.options.direction = direction ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
                s.problem.kv_len = lengths[j];
                price(&s, ring);
                for (int rank = 0; rank<ring; rank += ring> 50 ? 7 : 1) {
                    int steps = most_rows(&s, rank, true, all);
                    assert_true(most_rows(&s, rank, false, some) < steps || ring < 100);
                    assert_memory_equal(all, some, sizeof all);
                }
                ith_context_destroy(&s.context);
            }
}

/* ---- Traffic --------------------------------------------------------------------------------------------------- */

/* Computes the result of ith_price_traffic move by move. */
static ith_traffic count_moves(const scene *s, const ith_schedule *schedule, const ith_step *step, int rank)
{
    const ith_attn_setting *set = &s->price.setting;
    ith_traffic t = {0};
    for (int i = 0; i < step->moves; i++)
        for (int sent = 0; sent < 2; sent++) {
            ith_move move = ith_schedule_move(schedule, step, sent, i);
            if (move.tensor == ITH_TENSOR_LSE || move.heads == 0)
                continue;
            bool hop = step->exchange == ITH_EXCHANGE_HOP;
            int peer =
                hop ? move.peer * set->ulysses + rank % set->ulysses : rank / set->ulysses * set->ulysses + move.peer;
            double bytes = (double)move.rows.rows * (double)move.heads * (double)ith_travel_bytes(set, move.tensor);
            int level = 0;
            while (peer / s->view.joined[level] != rank / s->view.joined[level])
                level++;
            if (peer != rank)
                *(sent ? &t.sent[level] : &t.received[level]) += bytes;
            else if (sent)
                t.kept += bytes;
        }
    return t;
}

static void test_traffic(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int i = 0; i < 200; i++) {
        scene s;
        make_scene(&s, false);
        const int ulysses = 1 + (int)random_below(&random, 9), ring = 1 + (int)random_below(&random, 7);
        s.problem.batch = 1 + (int64_t)random_below(&random, 3);
        s.problem.kv_heads = 1 + (int64_t)random_below(&random, 6);
        s.problem.heads = s.problem.kv_heads * (1 + (int64_t)random_below(&random, 4));
        s.problem.q_len = (int64_t)random_below(&random, 300), s.problem.kv_len = (int64_t)random_below(&random, 300);
        s.options.ulysses = ulysses, s.options.ring = ring, s.options.chunks = 1 + (int)random_below(&random, 4);
        s.options.fold = random_below(&random, 2) ? ITH_CHOICE_ON : ITH_CHOICE_OFF;
        s.options.direction = random_below(&random, 2) ? ITH_DIRECTION_UNI : ITH_DIRECTION_BIDIR;
        s.options.exchange = ITH_EXCHANGE_COPY;
        price(&s, ulysses * ring);
        const int rank = (int)random_below(&random, (uint32_t)(ulysses * ring));
        double sent = 0;
        ith_schedule schedule = ith_schedule_of(&s.price.setting, rank);
        for (ith_step step; ith_schedule_next(&schedule, &step);) {
            if (step.kind != ITH_STEP_POST)
                continue;
            const ith_traffic expected = count_moves(&s, &schedule, &step, rank);
            const ith_traffic found = ith_price_traffic(&s.price, &schedule, &step);
            assert_memory_equal(expected.sent, found.sent, sizeof found.sent);
            assert_memory_equal(expected.received, found.received, sizeof found.received);
            assert_true(expected.kept == found.kept);
            sent += ith_traffic_sent(&found);
        }
        assert_true(sent == (double)ith_schedule_sent_bytes(&s.price.setting, rank));
        ith_context_destroy(&s.context);
    }
}

/* The bytes that the group of a rank, `size` consecutive ranks, sends over a level in a step. */
static double count_group(const scene *s, const ith_step *step, int rank, int size, int level)
{
    double sum = 0;
    for (int other = 0; other < s->view.ranks; other++) {
        const ith_schedule its = ith_schedule_of(&s->price.setting, other);
        if (other / size == rank / size)
            sum += count_moves(s, &its, step, other).sent[level];
    }
    return sum;
}

/* The traffic of a group of ranks over their common link is the sum of their moves, with even and uneven shares, and
 * however the axes lie in the groups. */
static void test_traffic_of_groups(void **state)
{
    (void)state;
    uint64_t random = 11;
    int compared = 0;
    for (int i = 0; i < 100; i++) {
        scene s;
        make_scene(&s, false);
        const int ulysses = 1 + (int)random_below(&random, 9), ring = 1 + (int)random_below(&random, 5);
        const int host = 2 + (int)random_below(&random, 4), sizes[3] = {1, host, 2 * host};
        s.levels[0].ranks = sizes[1], s.levels[1].ranks = sizes[2];
        for (int level = 0; level < 3; level++)
            s.levels[level].group_bytes_per_second = 1e9;
        s.problem.kv_heads = 1 + (int64_t)random_below(&random, 6);
        s.problem.heads = s.problem.kv_heads * (1 + (int64_t)random_below(&random, 4));
        s.problem.q_len = 1 + (int64_t)random_below(&random, 300), s.problem.kv_len = s.problem.q_len;
        s.options.ulysses = ulysses, s.options.ring = ring, s.options.chunks = 1 + (int)random_below(&random, 3);
        s.options.exchange = ITH_EXCHANGE_COPY;
        s.options.direction = random_below(&random, 2) ? ITH_DIRECTION_UNI : ITH_DIRECTION_BIDIR;
        price(&s, ulysses * ring);
        const int rank = (int)random_below(&random, (uint32_t)(ulysses * ring));
        ith_schedule schedule = ith_schedule_of(&s.price.setting, rank);
        for (ith_step step; ith_schedule_next(&schedule, &step);) {
            if (step.kind != ITH_STEP_POST)
                continue;
            const ith_traffic found = ith_price_traffic(&s.price, &schedule, &step);
            for (int level = 0; level < 3; level++)
                if (ith_traffic_uses(&found, level)) {
                    near(found.group_sent[level], count_group(&s, &step, rank, sizes[level], level), 1e-9, "a group");
                    compared++;
                }
        }
        ith_context_destroy(&s.context);
    }
    assert_true(compared > 500);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* The names of the first and the last kernel of f32 that run here and are not in plain C. Returns false if there are
 * fewer than two. */
static bool find_kernels(const ith_context *context, const char **first, const char **last)
{
    const ith_attn_kernel *kernel;
    *first = *last = NULL;
    for (int i = 0; (kernel = ith_attn_kernel_at(i)); i++)
        if (kernel->cpu != ITH_CPU_BASELINE && ith_cpu_has(ith_context_cpu(context), kernel->cpu) &&
            kernel->supports(ITH_F32, 32, ITH_SOFTMAX_ONLINE) && (!kernel->pays || kernel->pays(32))) {
            *first = *first ? *first : kernel->name;
            *last = kernel->name;
        }
    return *first != *last;
}

/* Wisdom prefers the last of all kernels. It tells about this machine, and not about others with the same kernels. */
static void test_wisdom_of_another_machine(void **state)
{
    (void)state;
    const char *first, *last;
    ith_wisdom_entry entry = {.subject = "attention f32 head_dim=32 softmax=online", .count = 1};
    ith_wisdom *wisdom;
    scene s;
    make_scene(&s, false);
    if (!find_kernels(s.context, &first, &last)) {
        ith_context_destroy(&s.context);
        skip();
    }
    ith_machine_attention rates[2] = {s.rate, s.rate};
    snprintf(rates[0].kernel, sizeof rates[0].kernel, "%s", first);
    snprintf(rates[1].kernel, sizeof rates[1].kernel, "%s", last);
    s.machine.attention = rates, s.machine.attention_count = 2;
    snprintf(entry.figures[0].name, sizeof entry.figures[0].name, "%s", last);
    entry.figures[0].value = 1;
    assert_int_equal(ith_wisdom_open(s.context, &wisdom), ITH_OK);
    ith_wisdom_put(wisdom, &entry);
    ith_wisdom_close(s.context);
    price(&s, 1);
    assert_string_equal(s.price.kernel, first);
    assert_int_equal(s.price.setting.kernel_origin, ITH_KERNEL_ESTIMATED);
    ith_cpu_model(s.machine.name, sizeof s.machine.name);
    price(&s, 1);
    assert_string_equal(s.price.kernel, last);
    assert_int_equal(s.price.setting.kernel_origin, ITH_KERNEL_RECALLED);
    s.machine.attention_count = 1; /* no rate of the kernel that wisdom prefers */
    price(&s, 1);
    assert_string_equal(s.price.kernel, first);
    ith_context_destroy(&s.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hops_that_repeat),
                                       cmocka_unit_test(test_hops_in_place),
                                       cmocka_unit_test(test_hops_beside_slow_inputs),
                                       cmocka_unit_test(test_wisdom_of_another_machine),
                                       cmocka_unit_test(test_hops_are_left_out),
                                       cmocka_unit_test(test_places_of_all_hops),
                                       cmocka_unit_test(test_traffic),
                                       cmocka_unit_test(test_traffic_of_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
