/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges over slow links hide behind computing. The links move data only while a rank calls its transport
 * (support/placed_group.h), so this also tests that a rank that computes calls it often enough. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/fixture.h"
#include "support/placed_group.h"
#include "support/times.h"

#include <cmocka.h>

enum { ATTEMPTS = 24, HEADS = 8, DIM = 64, SHORTEST = 64, LONGEST = 4096 };

typedef struct subject {
    ith_attn_problem problem;
    ith_attn_options options;
    ith_status seen[GROUP_RANKS];
    /* These members are rank 0's. */
    ith_plan_info info;
    ith_plan_counters counters;
    double cpu_seconds; /* processor time that the execution took */
} subject;

static void execute_in_rank(rank_group *g, int rank, void *user)
{
    subject *s = user;
    ith_plan *plan = NULL;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    size_t bytes = (size_t)(s->problem.q_len * HEADS * DIM) * sizeof(float);
    void *inputs = calloc(1, bytes), *o = calloc(1, bytes);
    tensors.q = tensors.k = tensors.v = inputs, tensors.o = o;
    s->seen[rank] = ith_plan_create(g->contexts[rank], &s->problem, &s->options, g->comms[rank], &plan);
    double begin = ith_clock_thread_seconds();
    if (!s->seen[rank])
        s->seen[rank] = ith_plan_execute(plan, &tensors);
    if (rank == 0)
        s->cpu_seconds = ith_clock_thread_seconds() - begin;
    if (!s->seen[rank] && rank == 0)
        s->seen[rank] = ith_plan_describe(plan, &s->info);
    if (!s->seen[rank] && rank == 0)
        s->seen[rank] = ith_plan_count(plan, &s->counters);
    ith_plan_destroy(&plan);
    free(inputs), free(o);
}

/* Executes a plan once, over links that cut an exchange into `slices`. */
static subject execute(const ith_attn_options *options, int ranks, int64_t length, int slices)
{
    subject s = {.problem = ITH_ATTN_PROBLEM_INIT,
                 .options = *options,
                 .info = ITH_PLAN_INFO_INIT,
                 .counters = ITH_PLAN_COUNTERS_INIT};
    rank_group g;
    s.problem.heads = HEADS, s.problem.head_dim = DIM, s.problem.q_len = s.problem.kv_len = length;
    s.problem.dtype = ITH_F32;
    s.options.kernel = "f32_ref"; /* so slow that computing takes many milliseconds on every machine */
    s.options.threads = 1;
    placed_slices = slices;
    assert_int_equal(group_create(&g, context, ranks), ITH_OK);
    group_run(&g, execute_in_rank, &s);
    group_destroy(&g);
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(s.seen[rank], ITH_OK);
    return s;
}

static int64_t length; /* of the sequences of an attempt, so that an execution takes long enough to be measured */

/* Pauses, and finds `length`: 50 ms of processor time on each rank. Other programs may load the machine for seconds, in
 * which no attempt succeeds. So each attempt begins after a longer pause and finds its own length, and all attempts
 * take at least half a minute. */
static void begin_attempt(int attempt)
{
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_RING;
    nap(0.1 * attempt);
    length = SHORTEST;
    while (length < LONGEST && execute(&options, 2, length, 0).cpu_seconds <= 0.05)
        length *= 2;
}

/* Returns a number of slices. The links move a slice in a millisecond, so these slices take three quarters of the time
 * in which rank 0 computes one of `parts` parts of an execution. */
static int slices_of_part(const ith_attn_options *options, int ranks, int parts)
{
    int slices = (int)(execute(options, ranks, length, 0).cpu_seconds * 1e3 / parts * 0.75);
    return slices > 1 ? slices : 1;
}

/* In a ring of two the one hop takes less time than computing with one shard of keys, and hides behind it. If data
 * moved only while a rank waits, much of the hop would not be hidden. A busy machine may stop one rank for so long that
 * another waits, so the best of a few attempts counts. */
static void expect_hidden(const ith_attn_options *options, int ranks, ith_exchange_mode exchange)
{
    double best = 0;
    for (int n = 0; n < ATTEMPTS && best <= 0.9; n++) {
        begin_attempt(n);
        subject s = execute(options, ranks, length, slices_of_part(options, ranks, 2));
        assert_int_equal(s.info.ring, 2);
        assert_int_equal(s.info.exchange, exchange);
        double hidden = 1 - s.counters.waiting_seconds / s.counters.exchange_seconds;
        best = hidden > best ? hidden : best;
    }
    if (best <= 0.9)
        fail_msg("strategy %s over %d ranks hides %.3f of its exchanges", ith_strategy_name(options->strategy), ranks,
                 best);
}

static void hops_over_slow_links_hide_behind_computing(void **state)
{
    (void)state;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    placed_evenly(1, 1);
    options.strategy = ITH_STRATEGY_RING;
    expect_hidden(&options, 2, ITH_EXCHANGE_COPY);
    options.direction = ITH_DIRECTION_BIDIR;
    expect_hidden(&options, 2, ITH_EXCHANGE_COPY);
    options.direction = ITH_DIRECTION_UNI;
    options.softmax = ITH_SOFTMAX_FIXED_M;
    expect_hidden(&options, 2, ITH_EXCHANGE_COPY);
    placed_evenly(2, 1);
    options.strategy = ITH_STRATEGY_AUTO;
    expect_hidden(&options, 4, ITH_EXCHANGE_MIXED);
}

/* With four chunks a rank waits only for the inputs of the first chunk and the outputs of the last. With one chunk it
 * waits for the whole exchange, four times as long. If data moved only while a rank waits, it would wait five eighths
 * of the time that one chunk takes. */
static void chunks_over_slow_links_hide_behind_one_another(void **state)
{
    (void)state;
    enum { CHUNKS = 4 };
    double best = 1;
    placed_evenly(1, 1);
    for (int n = 0; n < ATTEMPTS && best >= 0.5; n++) {
        begin_attempt(n);
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        options.strategy = ITH_STRATEGY_ULYSSES;
        options.chunks = CHUNKS;
        int slices = slices_of_part(&options, 2, CHUNKS);
        double chunked = execute(&options, 2, length, slices).counters.waiting_seconds;
        options.chunks = 1;
        double whole = execute(&options, 2, length, CHUNKS * slices).counters.waiting_seconds;
        assert_true(whole > 0);
        best = chunked / whole < best ? chunked / whole : best;
    }
    if (best >= 0.5)
        fail_msg("%d chunks wait for %.3f of the time of one", CHUNKS, best);
}

/* A busy machine may stop a rank before it waits, so the longest waiting of a few attempts counts. given: the length of
 * the sequences; 0: long enough to be measured. */
static void expect_waiting(const ith_attn_options *options, int ranks, int64_t given, double share)
{
    double most = 0;
    for (int n = 0; n < ATTEMPTS && most <= share; n++) {
        begin_attempt(n);
        subject s = execute(options, ranks, given ? given : length, 20);
        assert_int_equal(s.info.unhidden, options->overlap == ITH_CHOICE_OFF);
        assert_true(s.counters.exchange_seconds > 0);
        assert_true(s.counters.waiting_seconds <= s.counters.exchange_seconds);
        most = fmax(most, s.counters.waiting_seconds / s.counters.exchange_seconds);
    }
    if (most <= share)
        fail_msg("strategy %s waits for %.3f of its exchanges", ith_strategy_name(options->strategy), most);
}

/* waiting_seconds counts the part of an exchange that is not hidden. */
static void what_is_not_hidden_is_counted(void **state)
{
    (void)state;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    placed_evenly(1, 1);
    options.strategy = ITH_STRATEGY_RING;
    expect_waiting(&options, 2, 8, 0.5);
}

/* With overlap off a plan hides nothing, even if computing takes long enough to hide the exchange. */
static void nothing_is_hidden_if_so_wanted(void **state)
{
    (void)state;
    static const struct {
        ith_strategy strategy;
        int ranks, chunks;
    } rows[] = {{ITH_STRATEGY_RING, 2, 1}, {ITH_STRATEGY_ULYSSES, 2, 4}};
    placed_evenly(1, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        options.strategy = rows[i].strategy, options.chunks = rows[i].chunks, options.overlap = ITH_CHOICE_OFF;
        expect_waiting(&options, rows[i].ranks, 0, 0.9);
    }
}

int main(void)
{
    group_connect = placed_group_create;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hops_over_slow_links_hide_behind_computing),
        cmocka_unit_test(chunks_over_slow_links_hide_behind_one_another),
        cmocka_unit_test(what_is_not_hidden_is_counted),
        cmocka_unit_test(nothing_is_hidden_if_so_wanted),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
