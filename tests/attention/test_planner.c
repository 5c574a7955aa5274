/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: how it resolves or refuses every option, chooses tiles, reads names, and describes a plan. */
#include "attention/schedule/chunk.h"
#include "kernels/kernel.h"
#include "plan/settle.h"
#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/plan_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- Options that no problem makes legal ----------------------------------------------------------------------- */

SPOIL(low_strategy, o->strategy = (ith_strategy)-1)
SPOIL(high_strategy, o->strategy = (ith_strategy)5)
SPOIL(low_direction, o->direction = (ith_direction)-2)
SPOIL(high_direction, o->direction = (ith_direction)3)
SPOIL(high_softmax, o->softmax = (ith_softmax)3)
SPOIL(high_exchange, o->exchange = (ith_exchange_mode)1000000)
SPOIL(high_effort, o->effort = (ith_effort)2)
SPOIL(high_overlap, o->overlap = 1LL << 32)
SPOIL(low_overlap, o->overlap = INT64_MIN)
SPOIL(negative_ulysses, o->ulysses = -1)
SPOIL(negative_ring, o->ring = INT32_MIN)
SPOIL(negative_chunks, o->chunks = -1)
SPOIL(negative_block_q, o->block_q = -1)
SPOIL(negative_block_kv, o->block_kv = INT64_MIN)
SPOIL(negative_compute, o->block_kv_compute = -64)
SPOIL(negative_compute_in, o->block_kv_compute_in = -64)
SPOIL(endless_entries, (p->batch = 1LL << 32, p->q_len = p->kv_len = 0, o->fold = ITH_CHOICE_OFF))
SPOIL(small_options, o->struct_size = 0)
SPOIL(large_options, o->struct_size++)

static void unknown_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        trial_spoiler spoil;
        const char *word;
    } rows[] = {
        {low_strategy, "strategy is -1, and must be from 0 (auto) to 4 (ulysses_ring), of which 0 is the nearest"},
        {high_strategy, "strategy is 5, and must be from 0 (auto) to 4 (ulysses_ring), of which 4 is the nearest"},
        {low_direction, "direction is -2, and must be from 0 (auto) to 2 (bidir), of which 0 is the nearest"},
        {high_direction, "direction is 3, and must be from 0 (auto) to 2 (bidir), of which 2 is the nearest"},
        {high_softmax, "softmax is 3, and must be from 0 (auto) to 2 (fixed_m), of which 2 is the nearest"},
        {high_exchange, "exchange is 1000000, and must be from 0 (auto) to 3 (mixed), of which 3 is the nearest"},
        {high_effort, "effort is 2, and must be from 0 (estimate) to 1 (measure), of which 1 is the nearest"},
        {high_overlap, "overlap is 4294967296, and must be from 0 (auto) to 2 (off), of which 2 is the nearest"},
        {low_overlap,
         "overlap is -9223372036854775808, and must be from 0 (auto) to 2 (off), of which 0 is the nearest"},
        {negative_ulysses, "ulysses is -1, and must be 0 (choose for me) or more"},
        {negative_ring, "ring is -2147483648, and must be 0"},
        {negative_chunks, "chunks is -1, and must be 0"},
        {negative_block_q, "block_q is -1, and must be 0"},
        {negative_block_kv, "block_kv is -9223372036854775808, and must be 0"},
        {negative_compute, "block_kv_compute is -64, and must be 0"},
        {negative_compute_in, "block_kv_compute_in is -64, and must be 0"},
        {small_options, "struct_size of the ith_attn_options is 0"},
        {large_options, "set the struct to ITH_ATTN_OPTIONS_INIT"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_refusals(rows[i].spoil, rows[i].word);
}

/* ---- What becomes of options ----------------------------------------------------------------------------------- */

static trial resolve(int ranks, trial_spoiler spoil)
{
    trial t = new_trial();
    t.spoil = spoil;
    ith_status status = run_trial(&t, ranks);
    if (status)
        print_error("%s\n", t.sentences[0]);
    assert_int_equal(status, ITH_OK);
    return t;
}

SPOIL(nothing, (void)0)
SPOIL(ring_bidir, (o->strategy = ITH_STRATEGY_RING, o->direction = ITH_DIRECTION_BIDIR))
SPOIL(ulysses_bidir, (o->strategy = ITH_STRATEGY_ULYSSES, o->direction = ITH_DIRECTION_BIDIR))
SPOIL(many_chunks, (o->strategy = ITH_STRATEGY_ULYSSES, o->chunks = 100))
SPOIL(chunks_of_entries, (o->strategy = ITH_STRATEGY_ULYSSES, o->chunks = 3, o->fold = ITH_CHOICE_OFF))
SPOIL(ring_chunks, (o->strategy = ITH_STRATEGY_RING, o->chunks = 2, o->fold = ITH_CHOICE_OFF))
SPOIL(most_chunks, o->chunks = INT32_MAX)
SPOIL(fixed_m, (o->softmax = ITH_SOFTMAX_FIXED_M, o->smooth = ITH_CHOICE_OFF))
SPOIL(online_without_smoothing, o->smooth = ITH_CHOICE_OFF)
SPOIL(copied, o->exchange = ITH_EXCHANGE_COPY)
SPOIL(in_place, o->exchange = ITH_EXCHANGE_IN_PLACE)
SPOIL(replicated, (p->replicated_kv = true, o->exchange = ITH_EXCHANGE_COPY, o->chunks = 2, o->fold = ITH_CHOICE_OFF))

static void options_are_resolved(void **state)
{
    (void)state;
    trial t = resolve(3, nothing);
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    assert_int_equal(t.info.ranks, 3);
    assert_int_equal(t.info.direction, ITH_DIRECTION_UNI);
    assert_int_equal(t.info.softmax, ITH_SOFTMAX_ONLINE);
    assert_int_equal(t.info.exchange, ITH_EXCHANGE_IN_PLACE);
    assert_int_equal(t.info.chunks, 1);
    assert_int_equal(t.info.threads, 1);
    assert_int_equal(resolve(3, ring_bidir).info.direction, ITH_DIRECTION_BIDIR);
    assert_int_equal(resolve(3, ulysses_bidir).info.direction, ITH_DIRECTION_UNI);
    assert_int_equal(resolve(1, nothing).info.exchange, ITH_EXCHANGE_AUTO);
    assert_int_equal(resolve(1, in_place).info.exchange, ITH_EXCHANGE_AUTO);
    assert_int_equal(resolve(1, ring_bidir).info.strategy, ITH_STRATEGY_SINGLE);
    assert_int_equal(resolve(1, ring_bidir).info.direction, ITH_DIRECTION_UNI);
    assert_int_equal(resolve(2, copied).info.exchange, ITH_EXCHANGE_COPY);
    assert_int_equal(resolve(2, in_place).info.exchange, ITH_EXCHANGE_IN_PLACE);
    assert_int_equal(resolve(3, many_chunks).info.chunks, 2); /* 6 heads with the batch, 3 ranks */
    assert_int_equal(resolve(1, most_chunks).info.chunks, 1);
    t = resolve(3, chunks_of_entries); /* 3 heads, 3 ranks: one chunk for each of two entries */
    assert_int_equal(t.info.chunks, 2);
    assert_false(t.info.folded);
    t = resolve(3, ring_chunks);
    assert_int_equal(t.info.chunks, 1);
    assert_true(t.info.folded);
    t = resolve(3, fixed_m);
    assert_int_equal(t.info.softmax, ITH_SOFTMAX_FIXED_M);
    assert_false(t.info.smoothed);
    assert_non_null(strstr(t.plan, "softmax fixed_m (not smoothed)"));
    assert_false(resolve(3, online_without_smoothing).info.smoothed);
    t = resolve(3, replicated);
    assert_int_equal(t.info.strategy, ITH_STRATEGY_SINGLE);
    assert_int_equal(t.info.exchange, ITH_EXCHANGE_AUTO);
    assert_int_equal(t.info.chunks, 1);
    assert_int_equal(t.info.sent_bytes, 0);
    assert_non_null(strstr(t.plan, "nothing exchanged"));
    t = new_trial();
    t.spoil = endless_entries;
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT,
                   "fold is off, which takes a batch of at most 2147483647, and batch is 4294967296");
}

static void printed_plans_name_every_choice(void **state)
{
    (void)state;
    trial t = new_trial();
    t.options.strategy = ITH_STRATEGY_ULYSSES_RING;
    t.options.exchange = ITH_EXCHANGE_COPY;
    t.options.direction = ITH_DIRECTION_BIDIR;
    t.options.chunks = 2;
    t.options.fold = ITH_CHOICE_OFF;
    t.options.softmax = ITH_SOFTMAX_FIXED_M;
    assert_int_equal(run_trial(&t, 4), ITH_OK);
    char expected[1024];
    snprintf(expected, sizeof expected,
             "ulysses_ring over 4 ranks, ulysses 2 x ring 2, exchange copy in 2 chunks, batch not folded, bidir\n"
             "softmax fixed_m, kernel %s (estimate), tiles of %lld queries and %lld/%lld/%lld keys, 1 thread\n"
             "rank 0 sends %.3f MiB in one execution and holds %.3f MiB",
             t.info.kernel, (long long)t.info.block_q, (long long)t.info.block_kv, (long long)t.info.block_kv_compute,
             (long long)t.info.block_kv_compute_in, (double)t.info.sent_bytes / 1048576.0,
             (double)t.info.memory_bytes / 1048576.0);
    assert_string_equal(t.plan, expected);
}

/* Ranks that do not share memory exchange by messages. */
static void memory_that_is_not_shared_is_copied(void **state)
{
    (void)state;
    ith_context *context = new_context();
    trial t = new_trial();
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    assert_int_equal(ith_plan_predict(context, &t.problem, NULL, 3, 1, false, &info), ITH_OK);
    assert_int_equal(info.exchange, ITH_EXCHANGE_COPY);
    assert_int_equal(info.chunks, 2);
    assert_int_equal(ith_plan_predict(context, &t.problem, NULL, 3, 1, true, &info), ITH_OK);
    assert_int_equal(info.exchange, ITH_EXCHANGE_IN_PLACE);
    t.options.host_ranks = 2; /* 2 processes, each on a host of its own */
    t.options.process_ranks = 2;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 4, 1, false, &info), ITH_OK);
    assert_int_equal(info.ulysses, 2);
    assert_int_equal(info.exchange, ITH_EXCHANGE_MIXED);
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 3, 1, false, &info), ITH_ERR_ARGUMENT);
    assert_non_null(
        strstr(ith_context_error(context), "process_ranks is 2, and must be 0 or divide the number of ranks"));
    assert_non_null(strstr(ith_context_error(context), "which is 3; the nearest that does is 1"));
    t.options.process_ranks = 3, t.options.host_ranks = 6; /* ranks 2 and 3 of an axis are of two processes */
    t.options.ulysses = 2;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 6, 1, false, &info), ITH_OK);
    assert_int_equal(info.exchange, ITH_EXCHANGE_COPY);
    t.options.exchange = ITH_EXCHANGE_MIXED;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 6, 1, false, &info), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "the 2 ranks of a ulysses axis do not share memory"));
    t.options.ulysses = 6, t.options.process_ranks = 6; /* without a ring, nothing is left to be copied */
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 6, 1, false, &info), ITH_OK);
    assert_int_equal(info.exchange, ITH_EXCHANGE_IN_PLACE);
    t.options.ulysses = 0, t.options.host_ranks = 2, t.options.exchange = ITH_EXCHANGE_AUTO;
    t.options.process_ranks = 0; /* the ranks of a host share memory, and a process runs on one host */
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 4, 1, true, &info), ITH_OK);
    assert_int_equal(info.ulysses, 2);
    assert_int_equal(info.exchange, ITH_EXCHANGE_MIXED);
    t.options.process_ranks = 8;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 24, 1, true, &info), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "host_ranks is 2, and must be 0 or a multiple of process_ranks, "
                                                       "which is 8, because a process runs on one host; the nearest "
                                                       "is 8"));
    t.options.process_ranks = 1;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 3, 1, false, &info), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "host_ranks is 2, and must be 0 or divide the number of ranks"));
    t.options.host_ranks = t.options.process_ranks = 0;
    t.options.exchange = ITH_EXCHANGE_IN_PLACE;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 3, 1, false, &info), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "exchange is in_place, and these ranks do not share memory"));
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 1, 0, false, &info), ITH_OK);
    t.problem.replicated_kv = true;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 3, 1, false, &info), ITH_OK);
    ith_context_destroy(&context);
}

static void predictions_check_their_arguments(void **state)
{
    (void)state;
    ith_context *context = new_context();
    trial t = new_trial();
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan *plan = NULL;
    static const struct {
        int ranks, rank;
        const char *word;
    } rows[] = {{0, 0, "ranks is 0, and must be at least 1"},
                {-3, 0, "ranks is -3"},
                {2, 2, "rank is 2, and must be from 0 to ranks - 1"},
                {2, -1, "rank is -1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ith_plan_predict(context, &t.problem, NULL, rows[i].ranks, rows[i].rank, true, &info),
                         ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), rows[i].word));
    }
    assert_int_equal(ith_plan_predict(NULL, &t.problem, NULL, 1, 0, true, &info), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_predict(context, NULL, NULL, 1, 0, true, &info), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "problem is NULL"));
    assert_int_equal(ith_plan_predict(context, &t.problem, NULL, 1, 0, true, NULL), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "info is NULL"));
    assert_int_equal(ith_plan_create(context, &t.problem, NULL, NULL, &plan), ITH_OK);
    assert_int_equal(ith_plan_describe(plan, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_describe(NULL, &info), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_count(plan, NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_plan_count(NULL, NULL), ITH_ERR_ARGUMENT);
    ith_plan_destroy(&plan);
    ith_context_destroy(&context);
}

/* ---- Tiles ----------------------------------------------------------------------------------------------------- */

/* The tiles that a plan for one rank has; all 0 if it is refused. */
static ith_attn_tiles tiles_for(ith_context *context, const ith_attn_kernel *kernel, int64_t q_len, int64_t kv_len,
                                ith_attn_tiles wanted)
{
    ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    p.heads = 2, p.head_dim = 64, p.q_len = q_len, p.kv_len = kv_len;
    p.dtype = ITH_BF16;
    if (!kernel->supports(p.dtype, 64, ITH_SOFTMAX_ONLINE))
        p.dtype = kernel->supports(ITH_F32, 64, ITH_SOFTMAX_ONLINE) ? ITH_F32 : ITH_F16;
    o.kernel = kernel->name;
    o.block_q = wanted.block_q, o.block_kv = wanted.block_kv;
    o.block_kv_compute = wanted.block_kv_compute, o.block_kv_compute_in = wanted.block_kv_compute_in;
    ith_status status = ith_plan_predict(context, &p, &o, 1, 0, true, &info);
    assert_true(status == ITH_OK || status == ITH_ERR_ARGUMENT);
    return (ith_attn_tiles){info.block_q, info.block_kv, info.block_kv_compute, info.block_kv_compute_in};
}

static void expect_tile(ith_context *context, const ith_attn_kernel *kernel, ith_attn_tiles wanted,
                        const char *sentence)
{
    assert_int_equal(tiles_for(context, kernel, 5000, 5000, wanted).block_q, 0);
    if (!strstr(ith_context_error(context), sentence))
        print_error("expected '%s': %s\n", sentence, ith_context_error(context));
    assert_non_null(strstr(ith_context_error(context), sentence));
}

/* For every kernel: the usual tiles, smaller tiles for small problems, and the limits of each size. */
static void tiles_keep_their_limits(void **state)
{
    (void)state;
    ith_context *context = new_context();
    const ith_attn_kernel *k;
    for (int i = 0; (k = ith_attn_kernel_at(i)); i++) {
        if (k->cpu & ~ith_context_cpu(context))
            continue;
        const ith_attn_tile_limits l = k->tiles(64);
        char text[256];
        ith_attn_tiles t = tiles_for(context, k, 1 << 20, 1 << 20, (ith_attn_tiles){0});
        assert_memory_equal(&t, &l.best, sizeof t);
        t = tiles_for(context, k, 1, 1, (ith_attn_tiles){0});
        assert_int_equal(t.block_q, l.step.block_q);
        assert_true(t.block_kv <= l.best.block_kv && t.block_kv % l.step.block_kv == 0);
        assert_true(t.block_kv_compute_in <= t.block_kv_compute && t.block_kv_compute <= t.block_kv);
        t = tiles_for(context, k, 0, 0, (ith_attn_tiles){0});
        assert_true(t.block_q > 0 && t.block_kv > 0);
        t = tiles_for(context, k, 10, 10, l.most);
        assert_memory_equal(&t, &l.most, sizeof t); /* sizes that the options name stay as they are */
        if (l.step.block_q > 1) {
            snprintf(text, sizeof text, "block_q is %lld, and must be a multiple of %lld up to %lld with kernel %s",
                     (long long)l.step.block_q + 1, (long long)l.step.block_q, (long long)l.most.block_q, k->name);
            expect_tile(context, k, (ith_attn_tiles){.block_q = l.step.block_q + 1}, text);
            snprintf(text, sizeof text, "the nearest is %lld", (long long)l.step.block_q);
            expect_tile(context, k, (ith_attn_tiles){.block_q = l.step.block_q + 1}, text);
            expect_tile(context, k, (ith_attn_tiles){.block_q = 1}, text);
            snprintf(text, sizeof text, "the nearest is %lld", 2LL * l.step.block_q);
            expect_tile(context, k, (ith_attn_tiles){.block_q = 2 * l.step.block_q - 1}, text);
        }
        snprintf(text, sizeof text, "the nearest is %lld", (long long)l.most.block_kv);
        expect_tile(context, k, (ith_attn_tiles){.block_kv = l.most.block_kv + l.step.block_kv}, text);
        expect_tile(context, k, (ith_attn_tiles){.block_kv = INT64_MAX}, text);
        snprintf(text, sizeof text, "block_kv is %lld, and must be at least block_kv_compute, which is %lld",
                 (long long)l.step.block_kv, (long long)l.most.block_kv_compute);
        if (l.step.block_kv < l.most.block_kv_compute)
            expect_tile(context, k,
                        (ith_attn_tiles){.block_kv = l.step.block_kv, .block_kv_compute = l.most.block_kv_compute},
                        text);
        t = tiles_for(context, k, 5000, 5000, (ith_attn_tiles){.block_kv = l.step.block_kv});
        assert_int_equal(t.block_kv, l.step.block_kv); /* the sizes inside it shrink */
        assert_true(t.block_kv_compute <= t.block_kv && t.block_kv_compute_in <= t.block_kv_compute);
        t = tiles_for(context, k, 10, 10, (ith_attn_tiles){.block_kv_compute = l.most.block_kv_compute});
        assert_int_equal(t.block_kv_compute, l.most.block_kv_compute); /* the size around it grows */
        assert_true(t.block_kv >= t.block_kv_compute);
    }
    ith_context_destroy(&context);
}

/* The tiles of keys decide the bits of a result, so they are the same on one rank and on many. */
static void tiles_of_keys_are_those_of_the_whole(void **state)
{
    (void)state;
    ith_context *context = new_context();
    for (int64_t length = 1; length < 20000; length = length * 3 + 7) {
        ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
        ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
        ith_plan_info alone = ITH_PLAN_INFO_INIT, info = ITH_PLAN_INFO_INIT;
        p.heads = 8, p.head_dim = 64, p.q_len = p.kv_len = length;
        assert_int_equal(ith_plan_predict(context, &p, &o, 1, 0, true, &alone), ITH_OK);
        for (int strategy = ITH_STRATEGY_ULYSSES; strategy <= ITH_STRATEGY_ULYSSES_RING; strategy++)
            for (int ranks = 2; ranks <= 6; ranks++) {
                o.strategy = (ith_strategy)strategy;
                assert_int_equal(ith_plan_predict(context, &p, &o, ranks, ranks - 1, ranks % 2, &info), ITH_OK);
                assert_int_equal(info.block_kv, alone.block_kv);
                assert_int_equal(info.block_kv_compute, alone.block_kv_compute);
                assert_int_equal(info.block_kv_compute_in, alone.block_kv_compute_in);
            }
    }
    ith_context_destroy(&context);
}

/* No plan has more than 65536 chunks for a list of heads, nor more chunks than an int counts. */
static void chunks_are_limited(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, heads;
        ith_choice fold;
        int chunks, expected;
    } rows[] = {{1, 200000, ITH_CHOICE_AUTO, 50000, 50000},
                {1, 200000, ITH_CHOICE_AUTO, 65536, 65536},
                {1, 200000, ITH_CHOICE_AUTO, 65537, 65536},
                {1, 200000, ITH_CHOICE_AUTO, INT32_MAX, 65536},
                {2, 200000, ITH_CHOICE_AUTO, INT32_MAX, 65536},
                {2, 200000, ITH_CHOICE_OFF, INT32_MAX, 2 * 65536},
                {100000, 200000, ITH_CHOICE_AUTO, INT32_MAX, 65536},
                {100000, 200000, ITH_CHOICE_OFF, INT32_MAX, INT32_MAX / 100000 * 100000},
                {INT32_MAX, 2, ITH_CHOICE_OFF, 5, INT32_MAX}};
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ith_group group = {.ranks = 2, .blocks = {2, 2}};
        ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
        ith_attn_options o = ITH_ATTN_OPTIONS_INIT, read;
        ith_attn_setting setting;
        p.batch = rows[i].batch, p.heads = rows[i].heads, p.head_dim = 1, p.q_len = p.kv_len = 2;
        o.strategy = ITH_STRATEGY_ULYSSES, o.fold = rows[i].fold, o.chunks = rows[i].chunks;
        assert_int_equal(ith_settle_request(context, &p, &o, &group, &read, &setting), ITH_OK);
        assert_int_equal(ith_settle_choices(&read, &group, &setting), ITH_OK);
        if (ith_chunk_count(&setting) != rows[i].expected)
            fail_msg("row %d: %d chunks", (int)i, ith_chunk_count(&setting));
    }
    ith_context_destroy(&context);
}

/* ---- Names ----------------------------------------------------------------------------------------------------- */

static void strategies_have_many_names(void **state)
{
    (void)state;
    enum { U = ITH_DIRECTION_AUTO, B = ITH_DIRECTION_BIDIR, A = ITH_SOFTMAX_AUTO, F = ITH_SOFTMAX_FIXED_M };
    static const struct {
        const char *name;
        ith_strategy strategy;
        int direction, softmax;
    } rows[] = {
        {"auto", ITH_STRATEGY_AUTO, U, A},
        {"auto_fixed_m", ITH_STRATEGY_AUTO, U, F},
        {"single", ITH_STRATEGY_SINGLE, U, A},
        {"single_fixed_m", ITH_STRATEGY_SINGLE, U, F},
        {"dot_product", ITH_STRATEGY_SINGLE, U, A},
        {"flash", ITH_STRATEGY_SINGLE, U, A},
        {"flash_custom_fixed_m", ITH_STRATEGY_SINGLE, U, F},
        {"tokamax_flash", ITH_STRATEGY_SINGLE, U, A},
        {"ulysses", ITH_STRATEGY_ULYSSES, U, A},
        {"ulysses_custom", ITH_STRATEGY_ULYSSES, U, A},
        {"ulysses_custom_fixed_m", ITH_STRATEGY_ULYSSES, U, F},
        {"ulysses_fixed_m_custom", ITH_STRATEGY_ULYSSES, U, F},
        {"ring", ITH_STRATEGY_RING, U, A},
        {"ring_bidir", ITH_STRATEGY_RING, B, A},
        {"ring_custom_bidir_fixed_m", ITH_STRATEGY_RING, B, F},
        {"tokamax_ring", ITH_STRATEGY_RING, U, A},
        {"tokamax_ring_custom", ITH_STRATEGY_RING, U, A},
        {"tokamax_ring_custom_bidir", ITH_STRATEGY_RING, B, A},
        {"ulysses_ring", ITH_STRATEGY_ULYSSES_RING, U, A},
        {"ulysses_ring_custom", ITH_STRATEGY_ULYSSES_RING, U, A},
        {"ulysses_ring_custom_bidir", ITH_STRATEGY_ULYSSES_RING, B, A},
        {"ulysses_ring_custom_fixed_m", ITH_STRATEGY_ULYSSES_RING, U, F},
        {"ulysses_ring_fixed_m_bidir_custom", ITH_STRATEGY_ULYSSES_RING, B, F},
    };
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
        o.chunks = 7;
        assert_int_equal(ith_strategy_parse(context, rows[i].name, &o), ITH_OK);
        assert_int_equal(o.strategy, rows[i].strategy);
        assert_int_equal(o.direction, rows[i].direction);
        assert_int_equal(o.softmax, rows[i].softmax);
        assert_int_equal(o.chunks, 7);
    }
    ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
    o.direction = ITH_DIRECTION_BIDIR, o.softmax = ITH_SOFTMAX_ONLINE;
    assert_int_equal(ith_strategy_parse(context, "ring", &o), ITH_OK); /* sets neither direction nor softmax */
    assert_int_equal(o.direction, ITH_DIRECTION_BIDIR);
    assert_int_equal(o.softmax, ITH_SOFTMAX_ONLINE);
    ith_context_destroy(&context);
}

static void other_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *word;
    } rows[] = {
        {"Ulysses", "is none of auto, single, ulysses, ring and ulysses_ring"},
        {"", "strategy '' is none of"},
        {"_fixed_m", "none of"},
        {"ulysses_", "none of"},
        {"ulysses_rings", "none of"},
        {"ulyssesring", "none of"},
        {"ring_ulysses", "none of"},
        {"ulysses_ring_fixed", "none of"},
        {"ring_custom_custom", "none of"},
        {"ring_bidir_bidir", "none of"},
        {"ring ", "none of"},
        {"tokamax_", "none of"},
        {"tokamax_auto", "none of"},
        {"tokamax_tokamax_ring", "none of"},
        {"single_custom", "none of"},
        {"dot_product_custom", "none of"},
        {"ulysses_bidir", "has no ring: ring_bidir and ulysses_ring_bidir have one"},
        {"single_bidir", "has no ring"},
        {NULL, "name is NULL"},
    };
    ith_context *context = new_context();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ith_attn_options o = ITH_ATTN_OPTIONS_INIT, before;
        memset(&before, 0, sizeof before);
        before = o;
        assert_int_equal(ith_strategy_parse(context, rows[i].name, &o), ITH_ERR_ARGUMENT);
        assert_int_equal(o.strategy, before.strategy);
        assert_int_equal(o.direction, before.direction);
        assert_int_equal(o.softmax, before.softmax);
        assert_non_null(strstr(ith_context_error(context), rows[i].word));
    }
    assert_int_equal(ith_strategy_parse(context, "ring", NULL), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_strategy_parse(NULL, "ring", NULL), ITH_ERR_ARGUMENT);
    ith_context_destroy(&context);
}

static void choices_have_names(void **state)
{
    (void)state;
    assert_string_equal(ith_strategy_name(ITH_STRATEGY_ULYSSES_RING), "ulysses_ring");
    assert_string_equal(ith_strategy_name((ith_strategy)50), "unknown");
    assert_string_equal(ith_softmax_name(ITH_SOFTMAX_AUTO), "auto");
    assert_string_equal(ith_softmax_name(ITH_SOFTMAX_FIXED_M), "fixed_m");
    assert_string_equal(ith_softmax_name((ith_softmax)3), "unknown");
    assert_string_equal(ith_direction_name(ITH_DIRECTION_BIDIR), "bidir");
    assert_string_equal(ith_direction_name((ith_direction)-1), "unknown");
    assert_string_equal(ith_exchange_mode_name(ITH_EXCHANGE_IN_PLACE), "in_place");
    assert_string_equal(ith_exchange_mode_name((ith_exchange_mode)77), "unknown");
    assert_string_equal(ith_effort_name(ITH_EFFORT_MEASURE), "measure");
    assert_string_equal(ith_effort_name((ith_effort)-1), "unknown");
    assert_string_equal(ith_kernel_origin_name(ITH_KERNEL_RECALLED), "wisdom");
    assert_string_equal(ith_kernel_origin_name((ith_kernel_origin)4), "unknown");
    ith_context *context = new_context();
    bool usable = false, plain_is_usable = false;
    const char *kernel;
    for (int i = 0; (kernel = ith_kernel_list(context, i, &usable)); i++)
        plain_is_usable = plain_is_usable || (!strcmp(kernel, "f32_ref") && usable);
    assert_true(plain_is_usable);
    assert_null(ith_kernel_list(context, -1, NULL));
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_values_are_refused),
        cmocka_unit_test(options_are_resolved),
        cmocka_unit_test(chunks_are_limited),
        cmocka_unit_test(printed_plans_name_every_choice),
        cmocka_unit_test(memory_that_is_not_shared_is_copied),
        cmocka_unit_test(predictions_check_their_arguments),
        cmocka_unit_test(tiles_keep_their_limits),
        cmocka_unit_test(tiles_of_keys_are_those_of_the_whole),
        cmocka_unit_test(strategies_have_many_names),
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(choices_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
