/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of plans compared with the equations of docs/cost.md, which are computed here for even shares. */
#include "support/cost_bed.h"
#include "support/small_stack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

/* Compression takes time: all units read and write sent and received rows in both forms. */
static void test_compression(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    const double numbers = 2.0 * LENGTH * HEADS * DIM / 2; /* of k and v, that each rank sends and receives */
    b.problem.dtype = b.rate.dtype = ITH_F32;
    b.options.strategy = ITH_STRATEGY_RING, b.options.compress = ITH_COMPRESS_BF16;
    near(cost_of(&b, 2).copy_seconds, 0);
    b.machine.row_bytes_per_second = 1e9;
    near(cost_of(&b, 2).copy_seconds, 2 * numbers * (4 + 2) / 1e9);
    b.options.compress = ITH_COMPRESS_OFF;
    near(cost_of(&b, 2).copy_seconds, 0);
    ith_context_destroy(&b.context);
}

/* Of five heads the first of four ranks has two. In shares of the rows of one head of a tensor, it sends 3 x 3 and
 * receives 3 x 6 as inputs, and sends 6 and receives 3 as outputs; the other ranks send 3 x 4 as inputs. So the inputs
 * travel when the others have compressed theirs, and nobody sends outputs later than the first rank. */
static void test_compression_of_uneven_shares(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    const double numbers = (double)LENGTH / 4 * DIM, rows = numbers * (4 + 2) / 1e10, link = numbers * 2 / 1e9;
    b.problem.heads = 5, b.problem.dtype = b.rate.dtype = ITH_F32;
    b.machine.row_bytes_per_second = 1e10;
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1, b.options.compress = ITH_COMPRESS_BF16;
    const ith_cost cost = cost_of(&b, 4);
    near(cost.copy_seconds, (9 + 18 + 6 + 3) * rows);
    near(cost.seconds,
         (12 + 18 + 6 + 3) * rows + (18 + 6) * link + 2e-4 + 2 * compute_all / HEADS + cost.start_seconds);
    near(simulated(&b, 4).seconds, cost.seconds);
    ith_context_destroy(&b.context);
}

/* With 8 bits a row and head of v takes its numbers and a scale, and q, k and o of f32 take half of their bytes. Rows
 * of bf16 are copied. */
static void test_compression_to_8_bits(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    const double vectors = (double)LENGTH / 2 * HEADS; /* of a tensor of a rank */
    b.machine.row_bytes_per_second = 1e9;
    b.options.strategy = ITH_STRATEGY_RING, b.options.compress = ITH_COMPRESS_8BIT;
    near(cost_of(&b, 2).copy_seconds, 2 * vectors * (2 * 256 + 256 + 132) / 1e9);
    b.problem.dtype = b.rate.dtype = ITH_F32;
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1;
    near(cost_of(&b, 2).copy_seconds, 2 * vectors / 2 * (3 * (512 + 256) + 512 + 132) / 1e9);
    ith_context_destroy(&b.context);
}

/* A hop travels while a shard is computed. The time is R - 1 times the longer of the two, plus the computing once. */
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

/* U ranks of a ulysses axis exchange q, k, v, and the k, v of U shards travel along the ring. Only the hops are
 * hidden. */
static void test_ulysses_ring(void **state)
{
    (void)state;
    const int meshes[][2] = {{2, 2}, {4, 2}, {2, 4}, {8, 2}, {4, 4}};
    for (int i = 0; i < 5; i++) {
        const int u = meshes[i][0], r = meshes[i][1], ranks = u * r;
        bed b;
        make_bed(&b);
        b.options.strategy = ITH_STRATEGY_ULYSSES_RING, b.options.ulysses = u, b.options.chunks = 1;
        const double share = (double)LENGTH * HEADS * DIM * BYTES / ranks, sent = share * (u - 1) / u;
        const double part = compute_all / ranks / r, hop = 2 * share / 1e9 + 1e-4;
        ith_cost cost = cost_of(&b, ranks);
        near(cost.seconds, 4 * sent / 1e9 + 2e-4 + part + (r - 1) * fmax(part, hop) + cost.start_seconds);
        near((double)cost.sent_bytes, 4 * sent + 2 * share * (r - 1));
        ith_context_destroy(&b.context);
    }
}

/* With C chunks, the inputs of the next chunk and the outputs of the chunk before travel while a chunk is computed. */
static void test_chunks(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 4;
    b.level.latency_seconds = 0;
    const double sent = (double)LENGTH * HEADS * DIM * BYTES / 4 / 4 * 3 / 1e9 / 4; /* time for one tensor of a chunk */
    const double part = compute_all / 4 / 4;
    assert_true(part > 4 * sent);
    near(cost_of(&b, 4).seconds, 3 * sent + 4 * part + sent);
    ith_context_destroy(&b.context);
}

/* Between hosts of four ranks, the ring is as slow as the hop from one host to the other. */
static void test_levels(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    ith_machine_level levels[2] = {b.level, b.level};
    levels[0].ranks = 4;
    levels[1].between_hosts = true, levels[1].bytes_per_second = 1e7, levels[1].latency_seconds = 1e-3;
    b.machine.levels = levels, b.machine.level_count = 2, b.machine.host_units = 4;
    b.options.strategy = ITH_STRATEGY_RING;
    const double shard = 2.0 * LENGTH * HEADS * DIM * BYTES / 8, part = compute_all / 64;
    near(cost_of(&b, 8).seconds, part + 7 * (shard / 1e7 + 1e-3) + 2e-3);
    /* all four ranks of a host send across at once, over one card */
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1;
    levels[1].group_bytes_per_second = 2e7;
    const double across = (double)LENGTH * HEADS * DIM * BYTES / 8 / 8 * 4; /* bytes of a tensor of a rank */
    ith_cost cost = cost_of(&b, 8);
    near(cost.seconds, compute_all / 8 + 4 * 4 * across / 2e7 + 2e-3 + 2e-3);
    near(cost.level_bytes[0], 4 * across / 4 * 3); /* to three ranks of this host, and to four of the other host */
    near(cost.level_bytes[1], 4 * across);
    near(cost.level_seconds[0], 4 * across / 4 * 3 / 1e9);
    near(cost.level_seconds[1], 4 * 4 * across / 2e7);
    /* of 2 x 4 ranks, two of each host send their hop to the other host, and two receive a hop from it */
    b.options.strategy = ITH_STRATEGY_ULYSSES_RING, b.options.ulysses = 2;
    levels[1].bytes_per_second = 4e7;
    const double inside = shard / 2 / 2 / 1e9; /* time for one tensor */
    near(cost_of(&b, 8).seconds, 4 * inside + 2e-4 + compute_all / 32 + 3 * (2 * shard / 2e7 + 1e-3) + 2e-3);
    levels[0].ranks = 1; /* a card for each rank */
    near(cost_of(&b, 8).seconds, 4 * shard / 2 / 2 / 2e7 + 2e-3 + compute_all / 32 + 3 * (shard / 2e7 + 1e-3) + 2e-3);
    levels[1].group_bytes_per_second = 1e12; /* it has room for more than its rank can send */
    near(cost_of(&b, 8).seconds, 4 * shard / 2 / 2 / 4e7 + 2e-3 + compute_all / 32 + 3 * (shard / 4e7 + 1e-3) + 2e-3);
    ith_context_destroy(&b.context);
}

/* Four ranks on two units take turns. With a fifth head only the rank with two heads is late. */
static void test_units(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.level.shares_memory = true, b.level.bytes_per_second = 0, b.level.latency_seconds = 0;
    b.machine.rank_units = 0, b.machine.host_units = 2, b.options.threads = 1;
    b.options.strategy = ITH_STRATEGY_ULYSSES;
    near(cost_of(&b, 2).seconds, compute_all / 2);
    near(cost_of(&b, 4).seconds, compute_all / 2);
    b.problem.heads = 5; /* 2, 1, 1, 1 */
    near(cost_of(&b, 4).imbalance, 8.0 / 5);
    near(cost_of(&b, 4).seconds, compute_all / HEADS * 2.5);
    b.problem.batch = 2, b.problem.kv_len = LENGTH / 2; /* ten heads in one exchange, 3, 3, 2, 2; the same work */
    near(cost_of(&b, 4).imbalance, 12.0 / 10);
    near(cost_of(&b, 4).seconds, compute_all / HEADS * 2.5);
    b.problem.batch = 1, b.problem.kv_len = LENGTH;
    b.machine.host_units = 4;
    near(cost_of(&b, 4).seconds, compute_all / HEADS * 2);
    b.machine.busy_share = 0.5; /* each unit is half as fast while all four compute */
    near(cost_of(&b, 4).seconds, compute_all / HEADS * 4);
    b.machine.busy_share = 1e-30; /* the smallest value of a description */
    near(cost_of(&b, 4).seconds, compute_all / HEADS * 2 * 1e30);
    b.options.strategy = ITH_STRATEGY_AUTO, b.options.threads = 2; /* five heads of 32 blocks on two units */
    b.machine.host_units = 2, b.machine.busy_share = 0;
    near(cost_of(&b, 1).seconds, compute_all / HEADS * 2.5);
    ith_context_destroy(&b.context);
}

/* Hosts that share units compute in turn, and wait for messages at the same time. */
static void test_hosts_share_units(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.level.between_hosts = true;
    b.machine.rank_units = 0, b.machine.host_units = 1, b.options.threads = 1, b.options.host_ranks = 1;
    b.options.strategy = ITH_STRATEGY_ULYSSES;
    const double alone = cost_of(&b, 4).seconds;
    b.machine.unit_hosts = 2;
    near(cost_of(&b, 4).seconds, alone + compute_all / 4);
    b.machine.unit_hosts = 8; /* there are only four hosts */
    near(cost_of(&b, 4).seconds, alone + 3 * compute_all / 4);
    ith_context_destroy(&b.context);
}

/* With even_heads a ulysses axis that does not divide the heads is refused. */
static void test_even_heads(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.problem.heads = b.problem.kv_heads = 40;
    b.options.strategy = ITH_STRATEGY_ULYSSES;
    assert_true(cost_of(&b, 16).seconds > 0);
    b.machine.even_heads = 1;
    ith_status status = ith_plan_cost(b.context, &b.problem, &b.options, &b.machine, 16, NULL, NULL);
    assert_int_equal(status, ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(b.context), "must divide the 40 heads"));
    b.problem.batch = 2; /* 80 heads in one exchange */
    assert_true(cost_of(&b, 16).seconds > 0);
    b.options.fold = ITH_CHOICE_OFF;
    assert_int_equal(ith_plan_cost(b.context, &b.problem, &b.options, &b.machine, 16, NULL, NULL), ITH_ERR_ARGUMENT);
    b.machine.even_heads = 2;
    assert_int_equal(ith_machine_check(b.context, &b.machine), ITH_ERR_ARGUMENT);
    ith_context_destroy(&b.context);
}

/* A mesh that the options leave open has an axis that divides the heads and the ranks: by the fixed rule it would be 9
 * of 26 or of 16 heads. Where every rank has all keys, nothing is exchanged. */
static void test_even_heads_of_an_open_mesh(void **state)
{
    (void)state;
    bed b;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    make_bed(&b);
    b.machine.even_heads = 1;
    for (int i = 0; i < 2 * (ITH_STRATEGY_ULYSSES_RING + 1); i++) {
        const ith_strategy strategy = (ith_strategy)(i / 2);
        b.problem.heads = b.problem.kv_heads = i % 2 ? 16 : 26;
        if (strategy == ITH_STRATEGY_SINGLE || strategy == ITH_STRATEGY_ULYSSES)
            continue;
        b.options.strategy = strategy;
        assert_int_equal(ith_plan_cost(b.context, &b.problem, &b.options, &b.machine, 18, &info, NULL), ITH_OK);
        assert_int_equal(info.ulysses, strategy == ITH_STRATEGY_RING ? 1 : 2);
        assert_int_equal(info.ulysses * info.ring, 18);
    }
    b.options.strategy = ITH_STRATEGY_AUTO, b.problem.replicated_kv = true;
    b.options.ulysses = 9;
    assert_int_equal(ith_plan_cost(b.context, &b.problem, &b.options, &b.machine, 18, &info, NULL), ITH_OK);
    assert_int_equal(info.strategy, ITH_STRATEGY_SINGLE);
    ith_context_destroy(&b.context);
}

/* In place a rank packs only its own shard. By messages it packs every shard that arrives. */
static void test_packing(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.level.shares_memory = true;
    b.rate.pack_bytes_per_second = 1e9;
    b.options.strategy = ITH_STRATEGY_RING;
    const double all = 2.0 * LENGTH * HEADS * DIM * BYTES / 1e9;
    near(cost_of(&b, 4).pack_seconds, all / 4);
    b.options.exchange = ITH_EXCHANGE_COPY;
    near(cost_of(&b, 4).pack_seconds, all);
    b.level.copy_bytes_per_second = 1e9;
    near(cost_of(&b, 4).copy_seconds, all * 3 / 4);
    b.rate.offset_bytes_per_second = 1e9;
    b.options.softmax = ITH_SOFTMAX_FIXED_M;
    near(cost_of(&b, 4).offset_seconds, all / 4 * 1.5);
    ith_context_destroy(&b.context);
}

/* With fewer kv heads, fewer keys are sent, packed and read in place, and have offsets. */
static void test_kv_heads(void **state)
{
    (void)state;
    enum { KV = 4 };
    bed b;
    make_bed(&b);
    b.problem.kv_heads = KV;
    b.rate.pack_bytes_per_second = b.rate.offset_bytes_per_second = 1e9;
    b.options.softmax = ITH_SOFTMAX_FIXED_M;
    const double row = (double)DIM * BYTES, keys = 2.0 * LENGTH * KV * row, queries = (double)LENGTH * HEADS * row;
    ith_cost cost = cost_of(&b, 1);
    near(cost.seconds, compute_all + keys / 1e9 + (queries + keys) / 1e9);
    near(cost.pack_seconds, keys / 1e9);
    near(cost.offset_seconds, (queries + keys) / 1e9);
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1;
    near((double)cost_of(&b, 4).sent_bytes, (2 * queries + keys) / 4 * 3 / 4);
    b.options.strategy = ITH_STRATEGY_RING;
    near((double)cost_of(&b, 4).sent_bytes, keys / 4 * 3);
    b.level.shares_memory = true; /* in place: other ranks read the rows that would be sent */
    cost = cost_of(&b, 4);
    near((double)cost.sent_bytes, keys / 4 * 3);
    near(cost.pack_seconds, keys / 4 / 1e9);
    /* Of ten heads two ranks have three and two have two; the second one needs both kv heads. The first two share a
     * host. The cost has the times of the busiest rank. */
    ith_machine_level levels[2] = {b.level, b.level};
    levels[0].ranks = 2, levels[0].shares_memory = levels[1].shares_memory = false;
    b.machine.levels = levels, b.machine.level_count = 2;
    b.problem.heads = 10, b.problem.kv_heads = 2;
    b.options.strategy = ITH_STRATEGY_ULYSSES;
    near(cost_of(&b, 4).pack_seconds, 2.0 * LENGTH * 2 * row / 1e9);
    /* a ring of 2731, 2731 and 2730 keys, of which one rank sends the first two shards */
    b.machine.levels = &levels[1], b.machine.level_count = 1;
    b.options.strategy = ITH_STRATEGY_RING;
    near((double)cost_of(&b, 3).sent_bytes, 2.0 * 2 * 2731 * 2 * row);
    ith_context_destroy(&b.context);
}

/* A kv head is packed, and its queries attend, before the next one is packed, if its queries give all units enough
 * tasks. The last block of each unit is cut into quarters, so a loop of n blocks takes ceil(4 n / units) quarters. */
static void test_heads_one_after_another(void **state)
{
    (void)state;
    static const struct {
        int ranks, units, kv_heads, heads, quarters; /* quarters in the loops over kv heads, unless noted */
        ith_strategy strategy;
    } cases[] = {{1, 3, 3, 3, 3 * 43, ITH_STRATEGY_RING}, /* 32 blocks of 3 x 43 quarters at least */
                 {1, 7, 3, 6, 3 * 37, ITH_STRATEGY_RING}, /* 64 */
                 /* on a ring in place all heads are packed at once: 48 blocks */
                 {2, 3, 3, 3, 4 * 48 / 3, ITH_STRATEGY_RING},
                 /* on an axis in place each rank packs its three heads one by one */
                 {2, 3, 6, 6, 3 * 43, ITH_STRATEGY_ULYSSES},
                 /* half as long: two heads of 16 blocks together, and one alone */
                 {0, 3, 3, 3, 43 + 22, ITH_STRATEGY_RING}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bed b;
        make_bed(&b);
        const bool half = !cases[i].ranks;
        b.problem.heads = cases[i].heads, b.problem.kv_heads = cases[i].kv_heads;
        b.problem.q_len = half ? LENGTH / 2 : LENGTH;
        b.level.shares_memory = true;
        b.machine.rank_units = cases[i].units, b.options.strategy = cases[i].strategy;
        const double quarter = compute_all / HEADS / (LENGTH / 256) / 4;
        near(cost_of(&b, half ? 1 : cases[i].ranks).compute_seconds, cases[i].quarters * quarter);
        ith_context_destroy(&b.context);
    }
}

/* The seconds of one query of one head. */
static const double query_seconds = 4.0 * LENGTH * DIM / 1e12;

/* The unit that ends last determines the time. Of 266 queries the last ten are a block of their own, which has only one
 * part with queries: one unit computes 64, 64 and 10 queries, the other one 64 and 64. */
static void test_a_short_block(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.problem.heads = 1, b.problem.q_len = 266, b.machine.rank_units = 2;
    near(cost_of(&b, 1).compute_seconds, 138 * query_seconds);
    ith_context_destroy(&b.context);
}

/* With many tasks or units, all queries are shared out evenly, and half of the last tasks, 64 queries long, are left
 * over for all units but one. A block of 64 queries is cut into four parts, and no further. */
static void test_many_tasks(void **state)
{
    (void)state;
    static const int all_units[] = {6, 30, 300};
    bed b;
    make_bed(&b);
    b.machine.host_units = 300;
    b.problem.kv_heads = 1; /* all heads attend in one loop */
    for (int i = 0; i < 3; i++) {
        const int units = all_units[i];
        b.machine.rank_units = units;
        const double even = (double)HEADS * LENGTH / units, left_over = 64.0 / 2 * (units - 1) / units;
        if (units != 30) /* 30 units have few enough tasks to be followed */
            near(cost_of(&b, 1).compute_seconds, (even + left_over) * query_seconds);
        else
            assert_true(fabs(cost_of(&b, 1).compute_seconds - even * query_seconds) <= 64 * query_seconds);
    }
    b.problem.heads = b.problem.kv_heads = 1, b.problem.q_len = 64;
    near(cost_of(&b, 1).compute_seconds, 16 * query_seconds);
    ith_context_destroy(&b.context);
}

/* The overhead of a call is proportional to its queries, so shorter blocks have the same overhead all together. */
static void test_calls_of_other_blocks(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.rate.call_seconds = 1e-6;
    const double before = cost_of(&b, 1).compute_seconds;
    b.options.block_q = 64;
    near(cost_of(&b, 1).compute_seconds, before);
    ith_context_destroy(&b.context);
}

/* A shard without keys takes a call too: of three keys on four ranks each block of queries attends four times. */
static void test_calls_without_keys(void **state)
{
    (void)state;
    for (int by_messages = 0; by_messages < 2; by_messages++) {
        bed b;
        make_bed(&b);
        b.problem.kv_len = 3, b.level.shares_memory = !by_messages;
        b.rate.call_seconds = 1e-3;
        b.options.strategy = ITH_STRATEGY_RING;
        const double keys = compute_all / LENGTH * 3 / 4, blocks = HEADS * LENGTH / 4 / 256;
        near(cost_of(&b, 4).compute_seconds, keys + 4 * blocks * 1e-3);
        ith_context_destroy(&b.context);
    }
}

/* If each unit has half of its rate while all compute, all work takes twice as long. */
static void test_busy_units(void **state)
{
    (void)state;
    for (int strategy = ITH_STRATEGY_ULYSSES; strategy <= ITH_STRATEGY_RING; strategy++) {
        bed b;
        make_bed(&b);
        b.level.copy_bytes_per_second = b.rate.pack_bytes_per_second = b.rate.offset_bytes_per_second = 1e9;
        b.machine.host_units = 2, b.machine.row_bytes_per_second = 1e9;
        b.problem.dtype = b.rate.dtype = ITH_F32;
        b.options.strategy = (ith_strategy)strategy, b.options.softmax = ITH_SOFTMAX_FIXED_M;
        for (int compress = ITH_COMPRESS_OFF; compress <= ITH_COMPRESS_BF16; compress++) {
            b.options.compress = (ith_compress)compress, b.machine.busy_share = 1;
            const ith_cost fast = cost_of(&b, 2);
            b.machine.busy_share = 0.5;
            const ith_cost slow = cost_of(&b, 2);
            assert_true(fast.copy_seconds > 0 && fast.pack_seconds > 0 && fast.offset_seconds > 0);
            near(slow.compute_seconds, 2 * fast.compute_seconds);
            near(slow.copy_seconds, 2 * fast.copy_seconds);
            near(slow.pack_seconds, 2 * fast.pack_seconds);
            near(slow.offset_seconds, 2 * fast.offset_seconds);
        }
        ith_context_destroy(&b.context);
    }
}

/* By messages, for every shard after the first, all units of a rank load and store its partial results. */
static void test_partial_results(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.problem.kv_heads = 4;
    b.machine.rank_units = 2;
    b.level.copy_bytes_per_second = 1e9;
    b.options.strategy = ITH_STRATEGY_RING;
    const double results = 4.0 * HEADS * LENGTH / 4 * (DIM + 2);
    near(cost_of(&b, 4).compute_seconds, compute_all / 4 / 2 + 3 * results / (2 * 1e9));
    ith_context_destroy(&b.context);
}

/* All ranks agree before and after an execution, and meet where they read the memory of others. */
static void test_meetings(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.machine.start_seconds = 3e-3, b.rate.pack_bytes_per_second = 1e12, b.level.setup_seconds = 5e-3;
    b.level.shares_memory = true;
    const double latency = b.level.latency_seconds, pack = 2.0 * LENGTH * HEADS * DIM * BYTES / 1e12;
    near(cost_of(&b, 1).seconds, compute_all + pack);
    b.options.strategy = ITH_STRATEGY_ULYSSES;
    ith_cost cost = cost_of(&b, 4);
    near(cost.start_seconds, 3e-3 + 2 * latency);
    near(cost.seconds, compute_all / 4 + pack / 4 + cost.start_seconds);
    b.options.strategy = ITH_STRATEGY_RING; /* shards are packed before anyone reads them */
    near(cost_of(&b, 4).seconds, compute_all / 4 + pack / 4 + latency + cost.start_seconds);
    b.options.strategy = ITH_STRATEGY_ULYSSES_RING, b.options.ulysses = 2, b.options.chunks = 2;
    /* shards of the next chunk are packed when nobody reads the old shards any more */
    near(cost_of(&b, 4).seconds, compute_all / 4 + pack / 4 + 3 * latency + cost.start_seconds);
    b.options.softmax = ITH_SOFTMAX_FIXED_M; /* the ranks gather statistics for each chunk */
    near(cost_of(&b, 4).seconds, compute_all / 4 + pack / 4 + 5 * latency + cost.start_seconds);
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.ulysses = 0, b.options.chunks = 0;
    near(cost_of(&b, 4).seconds, compute_all / 4 + pack / 4 + cost.start_seconds);
    b.problem.replicated_kv = true; /* no exchanges, but the ranks gather statistics */
    const double gathered = cost_of(&b, 4).seconds;
    b.options.softmax = ITH_SOFTMAX_ONLINE;
    near(gathered, cost_of(&b, 4).seconds + latency);
    b.problem.replicated_kv = false;
    b.options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT; /* an exchange by messages has the setup time too */
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.exchange = ITH_EXCHANGE_COPY, b.options.chunks = 1;
    const double sent = (double)LENGTH * HEADS * DIM * BYTES / 4 / 4 * 3 / 1e9;
    near(cost_of(&b, 4).seconds, compute_all / 4 + pack / 4 + 4 * sent + 2 * (latency + 5e-3) + cost.start_seconds);
    ith_context_destroy(&b.context);
}

/* The hidden share is the share of the time of exchanges in which the rank does not wait for them. The time of
 * exchanges that are under way together counts once. */
static void test_hidden_share(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.level.latency_seconds = 0;
    near(cost_of(&b, 1).hidden_share, 1);
    b.options.strategy = ITH_STRATEGY_RING; /* hops take as long as the computing of a shard, or longer */
    const double shard = 2.0 * LENGTH * HEADS * DIM * BYTES / 4, part = compute_all / 16;
    for (int times = 1; times <= 4; times *= 2) {
        b.level.bytes_per_second = shard / part / times;
        near(cost_of(&b, 4).exchange_seconds, 3 * part * times);
        near(cost_of(&b, 4).hidden_share, 1.0 / times);
    }
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 4; /* it waits for the first and the last tensors */
    b.level.bytes_per_second = 1e9;
    const double sent = (double)LENGTH * HEADS * DIM * BYTES / 4 / 4 * 3 / 1e9 / 4; /* time for one tensor of a chunk */
    ith_cost cost = cost_of(&b, 4);
    near(cost.exchange_seconds, 4 * 4 * sent);
    near(cost.waiting_seconds, 4 * sent);
    near(cost.hidden_share, 0.75);
    b.options.chunks = 1;
    near(cost_of(&b, 4).hidden_share, 0);
    /* two chunks, whose tensors follow one another inside hosts, while short hops go from host to host */
    ith_machine_level levels[2] = {b.level, b.level};
    levels[0].ranks = 2, levels[1].bytes_per_second = 1e11;
    b.machine.levels = levels, b.machine.level_count = 2;
    b.rate.gflops = 1e12;
    b.options.strategy = ITH_STRATEGY_ULYSSES_RING, b.options.ulysses = 2, b.options.chunks = 2;
    cost = cost_of(&b, 4);
    near(cost.exchange_seconds, 4.0 * LENGTH * HEADS * DIM * BYTES / 4 / 2 / 1e9);
    assert_true(cost.hidden_share >= 0 && cost.hidden_share < 1e-3);
    ith_context_destroy(&b.context);
}

/* While all units compute, one of them copies the messages that have arrived, and the others go on. A rank that waits
 * copies with one unit. */
static void test_one_unit_copies(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.machine.rank_units = 2;
    b.level.bytes_per_second = b.level.latency_seconds = 0, b.level.copy_bytes_per_second = 1e9;
    b.options.strategy = ITH_STRATEGY_RING;
    const double tensor = (double)LENGTH * HEADS * DIM * BYTES, results = 4.0 * HEADS * LENGTH / 2 * (DIM + 2) / 2e9;
    ith_cost cost = cost_of(&b, 2);
    near(cost.copy_seconds, 2 * tensor / 2 / 1e9 / 2);
    near(cost.seconds, compute_all / 4 + results + cost.copy_seconds);
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1;
    cost = cost_of(&b, 2); /* of each tensor a rank keeps a quarter, and gets a quarter */
    near(cost.copy_seconds, 2 * 4 * tensor / 4 / 1e9);
    near(cost.seconds, compute_all / 4 + cost.copy_seconds);
    near(cost.exchange_seconds, 4 * tensor / 4 / 1e9); /* an exchange ends when the rank has copied its data */
    near(cost.hidden_share, 0);
    near(simulated(&b, 2).seconds, cost.seconds);
    b.options.strategy = ITH_STRATEGY_RING, b.problem.q_len = 1; /* the second rank has nothing to compute meanwhile */
    near(cost_of(&b, 2).copy_seconds, 2 * tensor / 2 / 1e9);
    ith_context_destroy(&b.context);
}

/* A rank copies the rows that it keeps as they lie in memory, and the rows that arrive as they travel. */
static void test_copies_of_compressed_rows(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.problem.dtype = b.rate.dtype = ITH_F32;
    b.level.copy_bytes_per_second = 1e9;
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1, b.options.compress = ITH_COMPRESS_BF16;
    near(cost_of(&b, 2).copy_seconds, 4 * (double)LENGTH * HEADS * DIM / 4 * (4 + 2) / 1e9);
    ith_context_destroy(&b.context);
}

/* A link transfers in both directions at the same time. Of five heads the first rank has two: it receives more inputs
 * than it sends, and sends more outputs than it receives. */
static void test_uneven_traffic(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.problem.heads = 5;
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 1;
    const double rows = LENGTH / 4.0 * DIM * BYTES / 1e9; /* seconds for a rank's rows of one head of a tensor */
    const ith_cost cost = cost_of(&b, 4);
    near(cost.level_seconds[0], 3 * 3 * 2 * rows + 3 * 2 * rows);
    near(cost.seconds, 2 * compute_all / HEADS + 24 * rows + 2e-4 + cost.start_seconds);
    ith_context_destroy(&b.context);
}

/* Chunks of a rank may have the same kv head and different numbers of heads. Ranks may have no head, or no query. */
static void test_few_heads(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    const double head = compute_all / HEADS;
    b.problem.heads = 6, b.problem.kv_heads = 1; /* a rank has two heads, and then one */
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 2;
    near(cost_of(&b, 2).compute_seconds, 3 * head);
    b.problem.heads = b.problem.kv_heads = 1, b.options.chunks = 1;
    near(cost_of(&b, 2).compute_seconds, head);
    b.options.strategy = ITH_STRATEGY_RING, b.problem.q_len = 1;
    near(cost_of(&b, 4).compute_seconds, head / LENGTH);
    b.problem.q_len = LENGTH; /* shards of 2731, 2731 and 2730 keys */
    near(cost_of(&b, 3).compute_seconds, head * 2731 / LENGTH);
    ith_context_destroy(&b.context);
}

/* In two chunks of 12 heads the third of four ranks has three heads: first of two kv heads, packed one after the other,
 * and then of one. The loops over 2, 1 and 3 heads of 16 blocks take 43, 22 and 64 quarters on three units. */
static void test_chunks_with_different_kv_heads(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    ith_machine_level levels[2] = {b.level, b.level};
    levels[0].ranks = 3; /* the third rank is the last of its host, and is walked */
    b.machine.levels = levels, b.machine.level_count = 2, b.machine.rank_units = 3;
    b.rate.pack_bytes_per_second = 1e9;
    b.problem.heads = 24, b.problem.kv_heads = 3, b.problem.q_len = LENGTH / 2;
    b.options.strategy = ITH_STRATEGY_ULYSSES, b.options.chunks = 2;
    const double quarter = compute_all / HEADS / (LENGTH / 256) / 4;
    const ith_cost cost = cost_of(&b, 4);
    near(cost.pack_seconds, 3 * 2.0 * LENGTH * DIM * BYTES / 3e9);
    near(cost.compute_seconds, (43 + 22 + 64) * quarter);
    ith_context_destroy(&b.context);
}

/* The offsets of fixed_m do not cover an additive mask, so they are not computed. */
static void test_no_offsets_with_an_additive_mask(void **state)
{
    (void)state;
    bed b;
    make_bed(&b);
    b.rate.offset_bytes_per_second = 1e9;
    b.options.softmax = ITH_SOFTMAX_FIXED_M;
    near(cost_of(&b, 1).offset_seconds, 3.0 * LENGTH * HEADS * DIM * BYTES / 1e9);
    b.problem.mask = ITH_MASK_ADDITIVE;
    near(cost_of(&b, 1).offset_seconds, 0);
    ith_context_destroy(&b.context);
}

/* ---- Stack ----------------------------------------------------------------------------------------------------- */

/* An ith_plan_candidate_fn. */
static ith_status count_candidate(void *user, const ith_plan_candidate *candidate)
{
    *(int *)user += candidate->legal;
    return ITH_OK;
}

/* The cost of a plan, its simulation, and the list of all plans. user: a bed. */
static void *predict_all(void *user)
{
    bed *b = user;
    int candidates = 0;
    ith_cost cost = ITH_COST_INIT;
    cost_of(b, 8);
    assert_int_equal(ith_plan_simulate(b->context, &b->problem, &b->options, &b->machine, 8, NULL, NULL, &cost),
                     ITH_OK);
    assert_int_equal(ith_plan_list(b->context, &b->problem, &b->options, &b->machine, 8, count_candidate, &candidates),
                     ITH_OK);
    assert_true(candidates > 0);
    return NULL;
}

static void test_small_stack(void **state)
{
    (void)state;
    bed b;
    if (!stack_is_usual())
        skip();
    make_bed(&b);
    run_on_stack(SMALL_STACK_BYTES, predict_all, &b);
    ith_context_destroy(&b.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_single),
                                       cmocka_unit_test(test_ulysses),
                                       cmocka_unit_test(test_compression),
                                       cmocka_unit_test(test_compression_of_uneven_shares),
                                       cmocka_unit_test(test_compression_to_8_bits),
                                       cmocka_unit_test(test_ring),
                                       cmocka_unit_test(test_ulysses_ring),
                                       cmocka_unit_test(test_chunks),
                                       cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_units),
                                       cmocka_unit_test(test_packing),
                                       cmocka_unit_test(test_even_heads),
                                       cmocka_unit_test(test_even_heads_of_an_open_mesh),
                                       cmocka_unit_test(test_hosts_share_units),
                                       cmocka_unit_test(test_kv_heads),
                                       cmocka_unit_test(test_heads_one_after_another),
                                       cmocka_unit_test(test_a_short_block),
                                       cmocka_unit_test(test_many_tasks),
                                       cmocka_unit_test(test_calls_of_other_blocks),
                                       cmocka_unit_test(test_calls_without_keys),
                                       cmocka_unit_test(test_busy_units),
                                       cmocka_unit_test(test_partial_results),
                                       cmocka_unit_test(test_meetings),
                                       cmocka_unit_test(test_hidden_share),
                                       cmocka_unit_test(test_one_unit_copies),
                                       cmocka_unit_test(test_copies_of_compressed_rows),
                                       cmocka_unit_test(test_uneven_traffic),
                                       cmocka_unit_test(test_few_heads),
                                       cmocka_unit_test(test_chunks_with_different_kv_heads),
                                       cmocka_unit_test(test_no_offsets_with_an_additive_mask),
                                       cmocka_unit_test(test_small_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
