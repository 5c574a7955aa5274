/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations of a slow rank and of ranks that take turns, followed step by step. */
#include "support/simulated_scene.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 6 }; /* ranks */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_after_a_late_post), cmocka_unit_test(test_a_slow_rank_on_a_ring),
        cmocka_unit_test(test_a_slow_rank_on_an_axis),   cmocka_unit_test(test_a_slow_rank_behind_a_shared_link),
        cmocka_unit_test(test_a_slow_rank_in_place),     cmocka_unit_test(test_a_slow_rank_takes_its_turn),
        cmocka_unit_test(test_ends_on_a_ring),           cmocka_unit_test(test_uneven_hosts),
        cmocka_unit_test(test_a_queue_for_units)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
