/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator and its trace. If ranks do not disturb one another, it is compared with the cost model, otherwise with
 * sums that are computed here. Slow ranks are followed in test_simulate_slow.c. */
#include "base/context.h"
#include "base/observer.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/refused.h"
#include "support/sanitizers.h"
#include "support/simulated_scene.h"
#include "support/temporary.h"
#include "support/times.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- The model ------------------------------------------------------------------------------------------------- */

static void compare(scene *s, int ranks)
{
    const ith_cost model = predict(s, ranks), simulated = simulate(s, ranks);
    within(simulated.seconds, model.seconds, 0.02);
    within(simulated.compute_seconds, model.compute_seconds, 1e-6);
    within(simulated.pack_seconds, model.pack_seconds, 1e-6);
    assert_true(simulated.sent_bytes == model.sent_bytes && simulated.memory_bytes == model.memory_bytes);
}

static void test_as_the_model(void **state)
{
    (void)state;
    const int meshes[][2] = {{1, 1}, {2, 1},  {4, 1}, {8, 1}, {1, 2}, {1, 4},
                             {1, 8}, {1, 16}, {2, 2}, {4, 2}, {2, 8}, {4, 4}};
    const double rates[] = {1e8, 1e9, 1e11};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int variant = 0; variant < 24; variant++) {
            scene s;
            make_scene(&s);
            s.options.ulysses = meshes[i][0], s.options.ring = meshes[i][1];
            s.options.chunks = variant & 1 ? 4 : 1;
            s.options.direction = variant & 2 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
            s.options.softmax = variant & 4 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
            s.levels[0].bytes_per_second = s.levels[1].bytes_per_second = rates[variant / 8];
            compare(&s, meshes[i][0] * meshes[i][1]);
            ith_context_destroy(&s.context);
        }
}

/* Every rank has all keys, and the offsets of fixed_m are gathered from all ranks. */
static void test_replicated_keys(void **state)
{
    (void)state;
    for (int softmax = ITH_SOFTMAX_ONLINE; softmax <= ITH_SOFTMAX_FIXED_M; softmax++) {
        scene s;
        make_scene(&s);
        s.problem.replicated_kv = true, s.problem.kv_len = 512;
        s.options.softmax = (ith_softmax)softmax;
        s.levels[0].latency_seconds = s.levels[1].latency_seconds = 0.05;
        compare(&s, 8);
        ith_context_destroy(&s.context);
    }
}

/* A random number between two others. Its logarithm is uniformly distributed. */
static double between(uint64_t *random, double least, double most)
{
    return least * pow(most / least, (double)random_below(random, 1000001) / 1e6);
}

/* Levels of which an inner one may be the slowest, axes that end within hosts, and shares and heads that are uneven.
 * Each rank has a unit of its own, and no link is shared. */
static int draw_scene(scene *s, uint64_t *random)
{
    const int64_t heads[] = {1, 2, 5, 8, 16, 40};
    const int ranks = 1 + (int)random_below(random, 64);
    make_scene(s);
    s->machine.host_units = 64;
    s->levels[0].ranks = 1 + (int)random_below(random, 8);
    for (int level = 0; level < 2; level++) {
        s->levels[level].bytes_per_second = between(random, 1e8, 1e11);
        s->levels[level].latency_seconds = between(random, 1e-6, 3e-4);
        s->levels[level].overlap = random_below(random, 3) / 2.0;
        s->levels[level].copy_bytes_per_second = random_below(random, 4) ? 0 : between(random, 1e9, 1e11);
    }
    s->rate.gflops = between(random, 50, 5000);
    do
        s->options.ulysses = 1 + (int)random_below(random, ranks < 9 ? (uint32_t)ranks : 9);
    while (ranks % s->options.ulysses);
    s->options.ring = ranks / s->options.ulysses;
    s->options.chunks = 1 + (int)random_below(random, 4);
    s->options.direction = random_below(random, 2) ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    s->problem.heads = heads[random_below(random, 6)], s->problem.batch = 1 + random_below(random, 2);
    s->problem.q_len = (int64_t)between(random, 64, 60000);
    s->problem.kv_len = random_below(random, 4) ? s->problem.q_len : (int64_t)between(random, 64, 60000);
    return ranks;
}

static void test_random_machines(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (int i = 0; i < 400; i++) {
        scene s;
        const int ranks = draw_scene(&s, &random);
        compare(&s, ranks);
        ith_context_destroy(&s.context);
    }
}

static void test_in_place(void **state)
{
    (void)state;
    const int meshes[][2] = {{4, 1}, {1, 4}, {2, 2}, {2, 4}};
    for (int i = 0; i < 4; i++)
        for (int chunks = 1; chunks <= 2; chunks++) {
            scene s;
            make_scene(&s);
            s.levels[0].ranks = 0, s.levels[0].shares_memory = true, s.machine.level_count = 1;
            s.levels[0].latency_seconds = 0.05; /* a meeting takes a good part of the time */
            s.machine.host_units = 8;
            s.options.ulysses = meshes[i][0], s.options.ring = meshes[i][1], s.options.chunks = chunks;
            compare(&s, meshes[i][0] * meshes[i][1]);
            ith_context_destroy(&s.context);
        }
}

/* ---- What the model leaves out ----------------------------------------------------------------------------------- */

/* The four ranks of a host send over one network card. It takes the time of all their bytes together. */
static void test_a_shared_link(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.chunks = 1;
    s.levels[1].group_bytes_per_second = 1e8;
    within(simulate(&s, 8).seconds, predict(&s, 8).seconds, 0.02);
    const double shared = simulate(&s, 8).seconds;
    s.levels[1].group_bytes_per_second = 0;
    const double sent = (double)LENGTH * HEADS * DIM * 4 / 8 / 8 * 4; /* a rank's bytes of a tensor to the other host */
    assert_true(shared > 4 * 4 * sent / 1e8 && simulate(&s, 8).seconds < 4 * 4 * sent / 1e8);
    s.options.strategy = ITH_STRATEGY_ULYSSES_RING, s.options.direction = ITH_DIRECTION_BIDIR;
    s.levels[1].group_bytes_per_second = 1e8; /* hosts in the middle of a line send both ways */
    for (s.options.ulysses = 1; s.options.ulysses <= 2; s.options.ulysses++)
        for (int ranks = 8; ranks <= 16; ranks *= 2)
            within(simulate(&s, ranks).seconds, predict(&s, ranks).seconds, 0.1);
    ith_context_destroy(&s.context);
}

/* Four ranks take turns on two units. */
static void test_turns(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.levels[0].shares_memory = true, s.levels[0].ranks = 0, s.machine.level_count = 1;
    s.options.strategy = ITH_STRATEGY_ULYSSES;
    const double four = simulate(&s, 4).seconds;
    s.machine.host_units = 2;
    within(simulate(&s, 4).seconds, 2 * four, 0.01);
    s.machine.rank_units = 2; /* each rank takes both units, and is twice as fast */
    within(simulate(&s, 4).seconds, 2 * four, 0.01);
    ith_context_destroy(&s.context);
}

/* A rank has more threads than its host has units: its threads take turns, too. */
static void test_turns_of_threads(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.levels[0].shares_memory = true, s.levels[0].ranks = 0, s.machine.level_count = 1;
    s.options.strategy = ITH_STRATEGY_ULYSSES;
    s.machine.host_units = 2, s.machine.rank_units = 2;
    const double four = simulate(&s, 4).seconds;
    s.machine.rank_units = 8;
    within(simulate(&s, 4).seconds, four, 0.01);
    s.options.strategy = ITH_STRATEGY_SINGLE;
    within(simulate(&s, 1).seconds, predict(&s, 1).seconds, 0.01);
    ith_context_destroy(&s.context);
}

/* Of five heads one rank has two, and three have one. All ranks agree before the execution and after it. */
static void test_uneven_work(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.problem.heads = 5;
    s.options.strategy = ITH_STRATEGY_ULYSSES;
    s.levels[0].shares_memory = true, s.levels[0].latency_seconds = 1e-3;
    within(simulate(&s, 4).imbalance, 8.0 / 5, 1e-9);
    within(simulate(&s, 4).start_seconds, 2e-3, 1e-9);
    s.machine.start_seconds = 5e-3;
    within(simulate(&s, 4).start_seconds, 7e-3, 1e-9);
    s.problem.heads = 4; /* all begin late, and then nobody waits */
    assert_true(simulate(&s, 4).waiting_seconds < 1e-9);
    assert_true(simulate(&s, 1).start_seconds == 0);
    ith_context_destroy(&s.context);
}

/* On a ring every rank waits for the slow one. */
static void test_a_slow_rank(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.options.strategy = ITH_STRATEGY_RING;
    s.levels[0].bytes_per_second = s.levels[1].bytes_per_second = 1e12, s.levels[1].overlap = 1;
    const double before = simulate(&s, 8).seconds;
    s.simulation.slow_rank = 3, s.simulation.slow_factor = 1.5;
    within(simulate(&s, 8).seconds, 1.5 * before, 0.02);
    ith_context_destroy(&s.context);
}

/* One unit of a rank copies messages while its other units compute, even if the peers post later, as in a long ring. */
static void test_copies_while_computing(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.machine.rank_units = 8, s.machine.host_units = 8;
    s.levels[0].ranks = 1, s.levels[0].copy_bytes_per_second = s.levels[1].copy_bytes_per_second = 5e8;
    for (s.options.ulysses = 1; s.options.ulysses <= 2; s.options.ulysses++) {
        s.options.strategy = ITH_STRATEGY_ULYSSES_RING, s.options.ring = 32 / s.options.ulysses;
        const ith_cost model = predict(&s, 32), simulated = simulate(&s, 32);
        within(simulated.seconds, model.seconds, 0.02);
        within(simulated.copy_seconds, model.copy_seconds, 0.02);
    }
    ith_context_destroy(&s.context);
}

/* On a line too long to be walked rank by rank, the last shards travel on from the middle to the ends, and then the
 * ends begin the next chunk: with a latency as long as a transfer, and beside short exchanges of heads. */
static void test_a_long_line(void **state)
{
    (void)state;
    const int rings[] = {40, 100, 150};
    for (int variant = 0; variant < 3 * 8; variant++) {
        const int ring = rings[variant / 8], ulysses = 1 + variant % 2, slow = variant / 2 % 2;
        scene s;
        make_scene(&s);
        s.options.ulysses = ulysses, s.options.ring = ring, s.options.chunks = variant / 4 % 2 ? 4 : 1;
        s.options.direction = ITH_DIRECTION_BIDIR;
        s.problem.q_len = s.problem.kv_len = 100 * ring;
        s.levels[0].ranks = ulysses, s.levels[1].latency_seconds = slow ? 8e-4 / ulysses : 1e-5;
        compare(&s, ring * ulysses);
        ith_context_destroy(&s.context);
    }
}

/* ---- Other work and jitter --------------------------------------------------------------------------------------- */

/* The ranks' other work comes before attention, takes longer on a slow rank, and uses the units that ranks of a host
 * share. */
static void test_other_work(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.options.strategy = ITH_STRATEGY_ULYSSES;
    const ith_cost before = simulate(&s, 8);
    s.simulation.work_seconds = 10 * before.seconds, s.simulation.executions = 3;
    ith_cost after = simulate(&s, 8);
    within(after.seconds, 11 * before.seconds, 1e-9);
    within(after.waiting_seconds, before.waiting_seconds, 1e-6);
    within(after.compute_seconds, before.compute_seconds, 1e-9);
    assert_true(after.sent_bytes == before.sent_bytes);
    s.simulation.slow_rank = 3, s.simulation.slow_factor = 2;
    assert_true(simulate(&s, 8).seconds > 21 * before.seconds && simulate(&s, 8).seconds <= 22.001 * before.seconds);
    s.simulation.slow_rank = -1;
    s.levels[0].shares_memory = true, s.levels[0].ranks = 0, s.machine.level_count = 1, s.machine.host_units = 2;
    const double shared = simulate(&s, 4).seconds;
    s.machine.host_units = 4;
    within(shared, 2 * simulate(&s, 4).seconds, 0.01);
    ith_context_destroy(&s.context);
}

/* Jitter makes an execution longer, since every wait is for the latest; the same seed gives the same times. */
static void test_jitter(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.options.strategy = ITH_STRATEGY_RING;
    const double before = simulate(&s, 8).seconds;
    s.simulation.jitter = 0.1, s.simulation.executions = 20;
    const double after = simulate(&s, 8).seconds;
    assert_true(after > before && after < 1.5 * before);
    assert_true(simulate(&s, 8).seconds == after);
    s.simulation.seed = 1;
    assert_true(simulate(&s, 8).seconds != after);
    s.simulation.jitter = 0;
    within(simulate(&s, 8).seconds, before, 1e-9);
    ith_context_destroy(&s.context);
}

/* The mean and the standard deviation of the time of one piece of work over its price. */
static void measure_jitter(double jitter, double *mean, double *deviation, double *least)
{
    enum { SEEDS = 10000 };
    scene s;
    double sum = 0, squares = 0;
    make_even_scene(&s, 1);
    s.simulation.jitter = jitter, *least = 1;
    for (int seed = 0; seed < SEEDS; seed++) {
        s.simulation.seed = seed;
        const double factor = simulate(&s, 1).seconds / all_attention;
        sum += factor, squares += factor * factor, *least = fmin(*least, factor);
    }
    *mean = sum / SEEDS, *deviation = sqrt(squares / SEEDS - *mean * *mean);
    ith_context_destroy(&s.context);
}

/* Work takes at least a tenth of its price, also with the most jitter. */
static void test_jitter_is_normal(void **state)
{
    (void)state;
    double mean, deviation, least;
    measure_jitter(0.1, &mean, &deviation, &least);
    within(mean, 1, 0.004);
    within(deviation, 0.1, 0.03);
    measure_jitter(1, &mean, &deviation, &least);
    within(least, 0.1, 1e-9);
    within(mean, 0.1 * 0.184060 + 0.815940 + 0.266085,
           0.03); /* of max(1 + x, 0.1), with x from a normal distribution */
}

/* No two pieces of work of all ranks have the same jitter. */
static void test_ranks_have_jitter_of_their_own(void **state)
{
    (void)state;
    enum { RANKS = 6 };
    scene s;
    piece pieces[RANKS * RANKS];
    make_even_scene(&s, RANKS);
    s.options.strategy = ITH_STRATEGY_RING, s.simulation.jitter = 0.1;
    const int count = list_attention(&s, RANKS, pieces, RANKS * RANKS);
    assert_int_equal(count, RANKS * RANKS);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            assert_true(fabs(pieces[i].seconds - pieces[j].seconds) > 1e-7 * pieces[i].seconds);
    ith_context_destroy(&s.context);
}

/* ---- Sizes, traces and errors ------------------------------------------------------------------------------------ */

/* Simulates `ranks` ranks, and checks that the result is near the prediction. Returns the seconds of processor time. */
static double simulating_seconds(scene *s, int ranks)
{
    const double begin = process_seconds();
    within(simulate(s, ranks).seconds, predict(s, ranks).seconds, 0.02);
    return process_seconds() - begin;
}

/* Four times as many ranks take four times as many steps each. So the time grows 16 times, or up to 8 times more
 * because of caches and other programs. It would grow much more if each step looped over all ranks or all steps. */
static void test_many_ranks(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.options.ulysses = 8;
    s.machine.host_units = 8, s.levels[0].ranks = 8;
    s.problem.q_len = s.problem.kv_len = 1 << 16;
    const int ranks = SANITIZED ? 128 : 512;
    const double fewer = simulating_seconds(&s, ranks), many = simulating_seconds(&s, 4 * ranks);
    print_message("%d ranks %.2f s, four times as many %.2f s\n", ranks, fewer, many);
    assert_true(many < 128 * fewer || SANITIZED);
    ith_context_destroy(&s.context);
}

static void test_trace(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "trace.json");
    s.options.strategy = ITH_STRATEGY_RING;
    assert_int_equal(ith_trace_start(s.context, 1000), ITH_OK);
    simulate(&s, 4);
    assert_int_equal(ith_trace_save(s.context, path), ITH_OK);
    char *text = temporary_read(path, NULL);
    const char *const words[] = {"\"attend\"", "\"pack\"", "\"under way\""};
    for (int i = 0; i < 3; i++) {
        int count = 0;
        for (const char *at = text; (at = strstr(at, words[i])); at++)
            count++;
        assert_int_equal(count, i < 2 ? 16 : 12); /* four ranks, four shards, three hops */
    }
    free(text);
    temporary_remove(folder);
    ith_context_destroy(&s.context);
}

static void test_nonsense(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
#define TRY(word)                                                                                                      \
    REFUSED(s.context, word, ith_plan_simulate(s.context, &s.problem, NULL, &s.machine, 4, &s.simulation, NULL, NULL))
    s.simulation.jitter = NAN;
    TRY("jitter");
    s.simulation.jitter = 0, s.simulation.slow_rank = 4;
    TRY("slow_rank");
    s.simulation.slow_rank = -1, s.simulation.slow_factor = 0.5;
    TRY("slow_factor");
    s.simulation.slow_factor = 1, s.simulation.executions = -1;
    TRY("executions");
    s.simulation.executions = 0, s.simulation.work_seconds = -1;
    TRY("work_seconds");
    s.simulation.work_seconds = 0;
    const int no_ranks[] = {0, -3, INT_MAX};
    for (int i = 0; i < 3; i++)
        REFUSED(s.context, i < 2 ? "at least 1" : "at most 1048576",
                ith_plan_simulate(s.context, &s.problem, NULL, &s.machine, no_ranks[i], &s.simulation, NULL, NULL));
    REFUSED(NULL, "context", ith_plan_simulate(NULL, &s.problem, NULL, &s.machine, 4, NULL, NULL, NULL));
    REFUSED(s.context, "ith_machine", ith_plan_simulate(s.context, &s.problem, NULL, NULL, 4, NULL, NULL, NULL));
    ith_context_destroy(&s.context);
}

/* Each execution takes few steps, and there are many executions: the simulation stops in the middle. */
static void test_many_short_executions_stop(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    s.simulation.executions = 100000;
    ith_context_interrupt(s.context);
    assert_int_equal(ith_plan_simulate(s.context, &s.problem, NULL, &s.machine, 4, &s.simulation, NULL, NULL),
                     ITH_ERR_INTERRUPTED);
    ith_context_destroy(&s.context);
}

/* A should_stop that answers with yes at its last call. */
static bool stops_at_last(void *user)
{
    int *calls_left = user;
    return --*calls_left <= 0;
}

/* A million executions take minutes. should_stop ends them, and is not called again. */
static void test_should_stop(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    ith_cost before = ITH_COST_INIT;
    before.seconds = 7;
    for (int calls = 1; calls <= 3; calls++) {
        int calls_left = calls;
        s.simulation.executions = 1000000;
        s.simulation.should_stop = stops_at_last, s.simulation.user = &calls_left;
        assert_int_equal(ith_plan_simulate(s.context, &s.problem, NULL, &s.machine, 4, &s.simulation, NULL, &before),
                         ITH_ERR_INTERRUPTED);
        assert_int_equal(calls_left, 0);
        assert_true(before.seconds == 7);
    }
    int many = INT_MAX;
    s.simulation.executions = 20, s.simulation.user = &many;
    const ith_cost asked = simulate(&s, 4);
    assert_true(many < INT_MAX);
    s.simulation.should_stop = NULL;
    const ith_cost plain = simulate(&s, 4);
    assert_memory_equal(&asked, &plain, sizeof plain);
    ith_context_destroy(&s.context);
}

/* Memory that is handed out full of ones, and how many of its bytes are ones when it is released. */
typedef struct marked_memory {
    char *block; /* the largest */
    size_t bytes, left;
} marked_memory;

static void *allocate_marked(void *user, size_t bytes, size_t alignment)
{
    marked_memory *m = user;
    void *block = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (!block || bytes <= m->bytes)
        return block;
    m->block = block, m->bytes = bytes;
    return memset(block, 1, bytes);
}

static void release_marked(void *user, void *pointer)
{
    marked_memory *m = user;
    if (m->block && pointer == m->block) {
        for (size_t i = 0; i < m->bytes; i++)
            m->left += m->block[i] == 1;
        m->block = NULL; /* later memory may have this address */
    }
    free(pointer);
}

static bool stops_at_once(void *user)
{
    (void)user;
    return true;
}

/* A million ranks need gigabytes, which take seconds to clear. The caller is asked meanwhile. */
static void test_stop_while_memory_is_cleared(void **state)
{
    (void)state;
    enum { RANKS = 1 << 14 };
    marked_memory memory = {.bytes = 1 << 20};
    ith_allocator allocator = ITH_ALLOCATOR_INIT;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    scene s;
    fill_scene(&s);
    allocator.allocate = allocate_marked, allocator.release = release_marked, allocator.user = &memory;
    options.allocator = &allocator;
    s.problem.q_len = s.problem.kv_len = RANKS;
    s.simulation.should_stop = stops_at_once;
    assert_int_equal(ith_context_create(&options, &s.context), ITH_OK);
    assert_int_equal(ith_plan_simulate(s.context, &s.problem, NULL, &s.machine, RANKS, &s.simulation, NULL, NULL),
                     ITH_ERR_INTERRUPTED);
    assert_true(memory.bytes > 16 << 20);
    assert_true(memory.left > memory.bytes / 2);
    ith_context_destroy(&s.context);
}

static void count_tick(void *user)
{
    ++*(int64_t *)user;
}

/* A rank of a ring in place takes all hops without waiting for another rank. Between them the caller is asked too. */
static void test_questions_between_hops(void **state)
{
    (void)state;
    enum { RANKS = 512 };
    scene s;
    int64_t questions = 0;
    ith_observer observer = {.tick = count_tick, .user = &questions};
    make_even_scene(&s, RANKS);
    s.levels[0].shares_memory = true;
    s.options.strategy = ITH_STRATEGY_RING;
    ith_observer_open(&observer);
    ith_context_set_observer(s.context, &observer);
    simulate(&s, RANKS);
    ith_context_set_observer(s.context, NULL);
    ith_observer_close(&observer);
    assert_true(questions > RANKS * RANKS / 100);
    ith_context_destroy(&s.context);
}

static ith_status simulate_without_memory(ith_context *context, void *user)
{
    (void)user;
    scene s;
    fill_scene(&s);
    return ith_plan_simulate(context, &s.problem, NULL, &s.machine, 8, NULL, NULL, NULL);
}

static void test_refused_memory(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(simulate_without_memory, NULL, 1) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_the_model),
                                       cmocka_unit_test(test_random_machines),
                                       cmocka_unit_test(test_other_work),
                                       cmocka_unit_test(test_copies_while_computing),
                                       cmocka_unit_test(test_a_long_line),
                                       cmocka_unit_test(test_in_place),
                                       cmocka_unit_test(test_replicated_keys),
                                       cmocka_unit_test(test_a_shared_link),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_turns_of_threads),
                                       cmocka_unit_test(test_uneven_work),
                                       cmocka_unit_test(test_a_slow_rank),
                                       cmocka_unit_test(test_jitter),
                                       cmocka_unit_test(test_jitter_is_normal),
                                       cmocka_unit_test(test_ranks_have_jitter_of_their_own),
                                       cmocka_unit_test(test_many_ranks),
                                       cmocka_unit_test(test_trace),
                                       cmocka_unit_test(test_nonsense),
                                       cmocka_unit_test(test_many_short_executions_stop),
                                       cmocka_unit_test(test_should_stop),
                                       cmocka_unit_test(test_stop_while_memory_is_cleared),
                                       cmocka_unit_test(test_questions_between_hops),
                                       cmocka_unit_test(test_refused_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
