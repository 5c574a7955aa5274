/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator and its trace. If ranks do not disturb one another, it is compared with the cost model, otherwise with
 * sums that are computed here. */
#include "base/context.h"
#include "support/memory.h"
#include "support/refused.h"
#include "support/temporary.h"
#include "support/trace_file.h"

#include <ithaca/cost.h>

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

typedef struct scene {
    ith_context *context;
    ith_machine machine;
    ith_machine_level levels[2];
    ith_machine_attention rate;
    ith_attn_problem problem;
    ith_attn_options options;
    ith_simulation simulation;
} scene;

enum { HEADS = 16, DIM = 64, LENGTH = 4096 };

static void fill_scene(scene *s)
{
    *s = (scene){.machine = ITH_MACHINE_INIT,
                 .levels = {ITH_MACHINE_LEVEL_INIT, ITH_MACHINE_LEVEL_INIT},
                 .rate = ITH_MACHINE_ATTENTION_INIT,
                 .problem = ITH_ATTN_PROBLEM_INIT,
                 .options = ITH_ATTN_OPTIONS_INIT,
                 .simulation = ITH_SIMULATION_INIT};
    s->levels[0].ranks = 4, s->levels[0].bytes_per_second = 4e9, s->levels[0].latency_seconds = 1e-6;
    s->levels[1].between_hosts = true, s->levels[1].bytes_per_second = 1e9, s->levels[1].latency_seconds = 1e-5;
    s->levels[1].overlap = 0.8;
    strcpy(s->rate.kernel, "flash");
    s->rate.dtype = ITH_F32, s->rate.head_dim = DIM, s->rate.gflops = 100, s->rate.block_q = 64, s->rate.block_kv = 256;
    s->rate.call_seconds = 1e-7, s->rate.pack_bytes_per_second = 1e10, s->rate.offset_bytes_per_second = 1e10;
    s->machine.host_units = 4, s->machine.rank_units = 1;
    s->machine.levels = s->levels, s->machine.level_count = 2;
    s->machine.attention = &s->rate, s->machine.attention_count = 1;
    s->problem.heads = HEADS, s->problem.head_dim = DIM, s->problem.q_len = s->problem.kv_len = LENGTH;
}

static void make_scene(scene *s)
{
    fill_scene(s);
    assert_int_equal(ith_context_create(NULL, &s->context), ITH_OK);
}

static ith_cost simulate(scene *s, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    if (ith_plan_simulate(s->context, &s->problem, &s->options, &s->machine, ranks, &s->simulation, NULL, &cost))
        fail_msg("%s", ith_context_error(s->context));
    return cost;
}

static ith_cost predict(scene *s, int ranks)
{
    ith_cost cost = ITH_COST_INIT;
    if (ith_plan_cost(s->context, &s->problem, &s->options, &s->machine, ranks, NULL, &cost))
        fail_msg("%s", ith_context_error(s->context));
    return cost;
}

static void within(double found, double expected, double share)
{
    if (!(fabs(found - expected) <= share * fabs(expected)))
        fail_msg("%.9g, and expected %.9g", found, expected);
}

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

/* On a line too long to be walked rank by rank, the last shards travel on from the middle to the ends: with a latency
 * as long as their transfer, and beside short exchanges of heads. */
static void test_a_long_line(void **state)
{
    (void)state;
    for (int ulysses = 1; ulysses <= 2; ulysses++)
        for (int slow = 0; slow < 2; slow++) {
            scene s;
            make_scene(&s);
            s.options.ulysses = ulysses, s.options.ring = 40, s.options.chunks = 1;
            s.options.direction = ITH_DIRECTION_BIDIR;
            s.problem.q_len = s.problem.kv_len = 4000;
            s.levels[0].ranks = ulysses, s.levels[1].latency_seconds = slow ? 8e-4 / ulysses : 1e-5;
            compare(&s, 40 * ulysses);
            ith_context_destroy(&s.context);
        }
}

/* A piece of work in a trace. */
typedef struct piece {
    int rank;
    double begin, seconds;
} piece;

/* Simulates, and lists the attention of all ranks in the order of the trace. Returns the number of pieces. */
static int list_attention(scene *s, int ranks, piece *pieces, int most)
{
    trace_file trace = {0};
    int count = 0;
    char *folder = temporary_folder();
    const char *path = temporary_path(folder, "trace.json");
    assert_int_equal(ith_trace_start(s->context, 1000), ITH_OK);
    simulate(s, ranks);
    assert_int_equal(ith_trace_save(s->context, path), ITH_OK);
    char *text = temporary_read(path, NULL);
    assert_true(trace_file_parse(text, &trace));
    for (int i = 0; i < trace.count; i++) {
        const trace_event *e = &trace.events[i];
        if (!strcmp(e->name, "attend") && count < most)
            pieces[count++] = (piece){(int)e->pid, e->ts * 1e-6, e->dur * 1e-6};
    }
    free(text);
    free(trace.events);
    temporary_remove(folder);
    return count;
}

/* ---- A slow rank, followed step by step -------------------------------------------------------------------------- */

enum { MOST = 6, EVEN_LENGTH = 3840 }; /* the length is divisible by every number of ranks here */

/* Makes a scene of `ranks` ranks on one level, each on a unit of its own. Only attention and messages take time. */
static void make_even_scene(scene *s, int ranks)
{
    make_scene(s);
    s->levels[0].ranks = 0, s->levels[0].latency_seconds = 1e-3, s->machine.level_count = 1;
    s->machine.host_units = ranks;
    s->rate.call_seconds = s->rate.pack_bytes_per_second = 0;
    s->problem.q_len = s->problem.kv_len = EVEN_LENGTH;
}

static const double all_attention = 4.0 * EVEN_LENGTH * EVEN_LENGTH * DIM * HEADS / 1e11;
static const double tensor_bytes = (double)EVEN_LENGTH * HEADS * DIM * 4;

static double largest(const double *values, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, values[i]);
    return most;
}

/* The seconds of a ring, and the time at which each rank has computed (done). A hop moves when the neighbours with
 * which the rank exchanges shards have begun it too. While the rank computes, the link has the share `overlap` of its
 * rate. */
static double follow_ring(const scene *s, int ranks, double done[MOST])
{
    const bool line = s->options.direction == ITH_DIRECTION_BIDIR;
    const double rate = s->levels[0].bytes_per_second, latency = s->levels[0].latency_seconds;
    const double share = s->levels[0].overlap, shard = rate > 0 ? 2 * tensor_bytes / ranks / rate : 0;
    double now[MOST] = {0}, posted[MOST];
    for (int hop = 0; hop < ranks; hop++) {
        memcpy(posted, now, sizeof posted);
        for (int r = 0; r < ranks; r++) {
            const int left = (r + ranks - 1) % ranks, right = (r + 1) % ranks;
            /* shards that come from the left and from the right, and that leave to the right and to the left */
            const int come[2] = {!line || r - 1 - hop >= 0, line && r + 1 + hop < ranks};
            const int leave[2] = {!line || (r - hop >= 0 && r + 1 < ranks), line && r + hop < ranks && r > 0};
            const int here = !line || hop == 0 ? 1 : (r - hop >= 0) + (r + hop < ranks);
            const double factor = r == s->simulation.slow_rank ? s->simulation.slow_factor : 1;
            now[r] += here * factor * all_attention / ranks / ranks;
            done[r] = here ? now[r] : done[r];
            if (hop == ranks - 1 || !(come[0] || come[1] || leave[0] || leave[1]))
                continue;
            double ready = posted[r];
            if (!line || come[0] || leave[1])
                ready = fmax(ready, posted[left]);
            if (!line || come[1] || leave[0])
                ready = fmax(ready, posted[right]);
            const double time = shard * fmax(come[0] + come[1], leave[0] + leave[1]);
            const double meanwhile = share * fmax(now[r] - ready, 0);
            double end = fmax(now[r], ready) + time - meanwhile;
            if (meanwhile >= time)
                end = time > 0 ? ready + time / share : ready;
            now[r] = fmax(now[r], end + latency);
        }
    }
    return largest(now, ranks) + 2 * latency;
}

static void test_a_slow_rank_on_a_ring(void **state)
{
    (void)state;
    const double rates[] = {0, 2e7, 1e8, 1e9}, shares[] = {1, 0.5, 0};
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int variant = 0; variant < 2 * 4 * 3 * MOST; variant++) {
            scene s;
            double done[MOST];
            make_even_scene(&s, ranks);
            s.options.strategy = ITH_STRATEGY_RING;
            s.options.direction = variant & 1 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
            s.levels[0].bytes_per_second = rates[variant / 2 % 4], s.levels[0].overlap = shares[variant / 8 % 3];
            s.simulation.slow_rank = variant / 24 < ranks ? variant / 24 : -1, s.simulation.slow_factor = 2.5;
            s.simulation.executions = 3;
            within(simulate(&s, ranks).seconds, follow_ring(&s, ranks, done), 1e-9);
            ith_context_destroy(&s.context);
        }
}

/* The state of all ranks of a ulysses axis. */
typedef struct axis {
    int ranks;
    double latency, now[MOST], free[MOST]; /* free: when the link of a rank is free */
    double end[3][MOST];                   /* when the last exchange of each buffer has ended */
} axis;

/* All ranks post an exchange, which moves when the last of them has posted it. */
static void post_on_links(axis *a, int buffer, double seconds)
{
    const double ready = largest(a->now, a->ranks);
    for (int r = 0; r < a->ranks; r++)
        a->free[r] = a->end[buffer][r] = fmax(a->free[r], ready) + seconds;
}

static void wait_for_link(axis *a, int buffer)
{
    for (int r = 0; r < a->ranks; r++)
        a->now[r] = fmax(a->now[r], a->end[buffer][r] + a->latency);
}

/* The seconds of ulysses with some chunks (docs/attention.md): the inputs of the next chunk, and the outputs of the
 * chunk before, travel while a chunk is computed. There are three buffers at most. */
static double follow_chunks(const scene *s, int ranks, int chunks)
{
    axis a = {.ranks = ranks, .latency = s->levels[0].latency_seconds};
    const double tensor = tensor_bytes / ranks * (ranks - 1) / ranks / s->levels[0].bytes_per_second / chunks;
    const int buffers = chunks < 3 ? chunks : 3;
    post_on_links(&a, 0, 3 * tensor);
    for (int chunk = 0; chunk < chunks; chunk++) {
        wait_for_link(&a, chunk % buffers);
        if (chunk + 1 >= buffers && chunk + 1 < chunks)
            wait_for_link(&a, (chunk + 1) % buffers);
        if (chunk + 1 < chunks)
            post_on_links(&a, (chunk + 1) % buffers, 3 * tensor);
        for (int r = 0; r < ranks; r++)
            a.now[r] += all_attention / ranks / chunks * (r == s->simulation.slow_rank ? s->simulation.slow_factor : 1);
        post_on_links(&a, chunk % buffers, tensor);
    }
    for (int buffer = 0; buffer < buffers; buffer++)
        wait_for_link(&a, buffer);
    return largest(a.now, ranks) + 2 * a.latency;
}

static void test_a_slow_rank_on_an_axis(void **state)
{
    (void)state;
    const double rates[] = {1e7, 1e8, 1e9};
    for (int variant = 0; variant < 3 * 3 * 5; variant++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            scene s;
            make_even_scene(&s, ranks);
            s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.chunks = 1 << variant % 3;
            s.levels[0].bytes_per_second = rates[variant / 3 % 3];
            s.simulation.slow_rank = variant / 9 < ranks ? variant / 9 : -1, s.simulation.slow_factor = 2.5;
            s.simulation.executions = 3;
            within(simulate(&s, ranks).seconds, follow_chunks(&s, ranks, s.options.chunks), 1e-9);
            ith_context_destroy(&s.context);
        }
}

/* The card of a host sends the outputs of three ranks, and then of the slow one when it has computed. */
static void test_a_slow_rank_behind_a_shared_link(void **state)
{
    (void)state;
    for (int slow = 0; slow < 8; slow++)
        for (int times = 2; times <= 20; times += 9) {
            scene s;
            make_even_scene(&s, 8);
            s.machine.level_count = 2, s.machine.host_units = s.levels[0].ranks = 4;
            s.levels[0].bytes_per_second = s.levels[0].latency_seconds = s.levels[1].bytes_per_second = 0;
            s.levels[1].latency_seconds = 1e-3;
            s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.chunks = 1;
            s.simulation.slow_rank = slow, s.simulation.slow_factor = times;
            const double part = all_attention / 8, across = tensor_bytes / 8 / 2, rate = 8 * across / part;
            s.levels[1].group_bytes_per_second =
                rate; /* all outputs of three ranks take 3/8 of the time of computing */
            const double late = fmax(3 * across / rate, (times - 1) * part);
            within(simulate(&s, 8).seconds, 2e-3 + 12 * across / rate + 1e-3 + part + late + across / rate + 1e-3,
                   1e-9);
            ith_context_destroy(&s.context);
        }
}

/* Each rank ends when it has its shards, also a rank that is not the last. The trace shows all of them. */
static void test_ends_on_a_ring(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2 * MOST; variant++) {
        scene s;
        piece pieces[2 * MOST * MOST];
        double done[MOST], end[MOST] = {0}, begin = INFINITY;
        make_even_scene(&s, MOST);
        s.options.strategy = ITH_STRATEGY_RING;
        s.options.direction = variant & 1 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
        s.levels[0].bytes_per_second = 1e9;
        s.simulation.slow_rank = variant / 2, s.simulation.slow_factor = 2.5;
        const int count = list_attention(&s, MOST, pieces, 2 * MOST * MOST);
        assert_true(count >= MOST * MOST);
        for (int i = 0; i < count; i++) {
            begin = fmin(begin, pieces[i].begin);
            end[pieces[i].rank] = fmax(end[pieces[i].rank], pieces[i].begin + pieces[i].seconds);
        }
        follow_ring(&s, MOST, done);
        for (int r = 0; r < MOST; r++)
            within(end[r] - begin, done[r], 1e-5);
        ith_context_destroy(&s.context);
    }
}

/* Rank 2 of a ring of three is slow, and posts its second hop while rank 0 computes. Nobody knew when rank 0 began, so
 * rank 0 copies the shard when it has computed, and before it computes again. */
static void test_copies_after_a_late_post(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    scene s;
    piece pieces[RANKS * RANKS];
    double begin[RANKS];
    int mine = 0;
    make_even_scene(&s, RANKS);
    s.machine.level_count = 2, s.levels[0].ranks = 1; /* level 0 joins nobody, so that only messages are copied */
    s.levels[1].bytes_per_second = s.levels[1].latency_seconds = 0;
    const double part = all_attention / RANKS / RANKS, copy = 0.3 * part;
    s.levels[1].copy_bytes_per_second = 2 * tensor_bytes / RANKS / copy;
    s.options.strategy = ITH_STRATEGY_RING;
    s.simulation.slow_rank = 2, s.simulation.slow_factor = 1.2;
    const int count = list_attention(&s, RANKS, pieces, RANKS * RANKS);
    assert_int_equal(count, RANKS * RANKS);
    for (int i = 0; i < count; i++)
        if (pieces[i].rank == 0)
            begin[mine++] = pieces[i].begin;
    assert_int_equal(mine, RANKS);
    within(begin[1] - begin[0], part + copy, 1e-4);
    within(begin[2] - begin[0], 2 * (part + copy), 1e-4);
    ith_context_destroy(&s.context);
}

/* The host whose ranks have more rows occupies its card longer, and all wait for it. */
static void test_uneven_hosts(void **state)
{
    (void)state;
    scene s;
    make_even_scene(&s, 8);
    s.machine.level_count = 2, s.machine.host_units = s.levels[0].ranks = 4;
    s.levels[0].bytes_per_second = s.levels[0].latency_seconds = s.levels[1].bytes_per_second = 0;
    s.levels[1].latency_seconds = 1e-3, s.levels[1].group_bytes_per_second = 1e6;
    s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.chunks = 1;
    s.problem.heads = 8, s.problem.q_len = s.problem.kv_len = 9; /* rows: 2, 1, 1, 1 and 1, 1, 1, 1 */
    const double row = DIM * 4 / 1e6, compute = 4.0 * 9 * 9 * DIM / 1e11;
    within(simulate(&s, 8).seconds, 2e-3 + 3 * 5 * 4 * row + 1e-3 + compute + 4 * 5 * row + 1e-3, 1e-9);
    ith_context_destroy(&s.context);
}

/* Ranks take units in the order in which they want them. The queue is followed here with the times of the trace. */
static void test_a_queue_for_units(void **state)
{
    (void)state;
    enum { RANKS = 8, UNITS = 3, CHUNKS = 4, PIECES = RANKS * CHUNKS };
    scene s;
    piece pieces[PIECES], own[RANKS][CHUNKS];
    double ready[RANKS], free_at[UNITS], begin = INFINITY;
    int taken[RANKS] = {0}, listed[RANKS] = {0};
    make_even_scene(&s, UNITS);
    s.levels[0].shares_memory = true;
    s.problem.heads = PIECES;
    s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.chunks = CHUNKS;
    s.simulation.jitter = 0.3;
    assert_int_equal(list_attention(&s, RANKS, pieces, PIECES), PIECES);
    for (int i = 0; i < PIECES; i++)
        begin = fmin(begin, pieces[i].begin);
    for (int r = 0; r < RANKS; r++)
        ready[r] = begin;
    for (int u = 0; u < UNITS; u++)
        free_at[u] = begin;
    for (int i = 0; i < PIECES; i++) { /* of each rank in the order of times */
        piece *of = own[pieces[i].rank];
        int at = listed[pieces[i].rank]++;
        for (; at > 0 && of[at - 1].begin > pieces[i].begin; at--)
            of[at] = of[at - 1];
        of[at] = pieces[i];
    }
    for (int i = 0; i < PIECES; i++) {
        int rank = -1, unit = 0;
        for (int r = 0; r < RANKS; r++)
            if (taken[r] < CHUNKS && (rank < 0 || ready[r] < ready[rank]))
                rank = r;
        for (int u = 1; u < UNITS; u++)
            unit = free_at[u] < free_at[unit] ? u : unit;
        const piece *p = &own[rank][taken[rank]++];
        const double expected = fmax(ready[rank], free_at[unit]);
        assert_true(fabs(p->begin - expected) < 1e-6);
        ready[rank] = free_at[unit] = p->begin + p->seconds;
    }
    ith_context_destroy(&s.context);
}

/* In place all ranks wait for the slow one whenever they meet. */
static void test_a_slow_rank_in_place(void **state)
{
    (void)state;
    for (int slow = 0; slow < 4; slow++)
        for (int chunks = 1; chunks <= 2; chunks++) {
            scene s;
            make_even_scene(&s, 4);
            s.levels[0].shares_memory = true, s.rate.pack_bytes_per_second = 1e9;
            s.options.ulysses = s.options.ring = 2, s.options.chunks = chunks;
            s.simulation.slow_rank = slow, s.simulation.slow_factor = 3;
            const double pack = 2 * tensor_bytes / 4 / 1e9, meetings = 2 * chunks - 1;
            within(simulate(&s, 4).seconds, 3 * (pack + all_attention / 4) + (2 + meetings) * 1e-3, 1e-9);
            ith_context_destroy(&s.context);
        }
}

/* Four ranks of each host take turns on two units, in the order of ranks: the slow rank comes first or last. */
static void test_a_slow_rank_takes_its_turn(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= 2; hosts++)
        for (int slow = 0; slow < 4 * hosts; slow++) {
            scene s;
            make_even_scene(&s, 2);
            s.levels[0].ranks = 4, s.machine.level_count = 2;
            for (int level = 0; level < 2; level++)
                s.levels[level].bytes_per_second = 0, s.levels[level].latency_seconds = 1e-3;
            s.options.strategy = ITH_STRATEGY_ULYSSES, s.options.chunks = 1;
            s.simulation.slow_rank = slow, s.simulation.slow_factor = 3;
            const double part = all_attention / 4 / hosts;
            within(simulate(&s, 4 * hosts).seconds, (slow % 4 < 2 ? 3 : 4) * part + 4e-3, 1e-9);
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
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    within(simulate(s, ranks).seconds, predict(s, ranks).seconds, 0.02);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
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
    const double fewer = simulating_seconds(&s, 1024), many = simulating_seconds(&s, 4096);
    print_message("1024 ranks %.2f s, 4096 ranks %.2f s\n", fewer, many);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(many < 128 * fewer);
#endif
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
                                       cmocka_unit_test(test_other_work),
                                       cmocka_unit_test(test_copies_while_computing),
                                       cmocka_unit_test(test_a_long_line),
                                       cmocka_unit_test(test_copies_after_a_late_post),
                                       cmocka_unit_test(test_in_place),
                                       cmocka_unit_test(test_replicated_keys),
                                       cmocka_unit_test(test_a_shared_link),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_uneven_work),
                                       cmocka_unit_test(test_a_slow_rank),
                                       cmocka_unit_test(test_a_slow_rank_on_a_ring),
                                       cmocka_unit_test(test_a_slow_rank_on_an_axis),
                                       cmocka_unit_test(test_a_slow_rank_behind_a_shared_link),
                                       cmocka_unit_test(test_a_slow_rank_in_place),
                                       cmocka_unit_test(test_a_slow_rank_takes_its_turn),
                                       cmocka_unit_test(test_ends_on_a_ring),
                                       cmocka_unit_test(test_uneven_hosts),
                                       cmocka_unit_test(test_a_queue_for_units),
                                       cmocka_unit_test(test_jitter),
                                       cmocka_unit_test(test_jitter_is_normal),
                                       cmocka_unit_test(test_ranks_have_jitter_of_their_own),
                                       cmocka_unit_test(test_many_ranks),
                                       cmocka_unit_test(test_trace),
                                       cmocka_unit_test(test_nonsense),
                                       cmocka_unit_test(test_many_short_executions_stop),
                                       cmocka_unit_test(test_refused_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
