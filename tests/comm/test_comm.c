/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a communicator: what arrives is what was sent, whatever the sizes, layouts, order and group. */
#include "comm/comm.h"
#include "support/in_rank.h"
#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 7
#define ROUNDS 4

static void run(int ranks, ith_rank_fn fn, void *user)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks, fn, user);
    if (status)
        print_error("%d ranks: %s\n", ranks, ith_context_error(context));
    assert_int_equal(status, ITH_OK);
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t h = (a + 0x9e3779b9u) * 0x85ebca6bu ^ (b + 0x7f4a7c15u) * 0xc2b2ae35u;
    h ^= h >> 15;
    return h * 0x2c1b3c6du ^ (h >> 13);
}

/* ---- Exchanges of strided blocks ------------------------------------------------------------------------------- */

typedef struct traffic {
    uint32_t seed;
    int64_t unit; /* sizes are multiples of it, or not, or 0 */
} traffic;

/* How many blocks a sends to b, and the size of each: both sides know. */
static int block_count(const traffic *t, int a, int b, int round)
{
    return (int)(mix(t->seed + (uint32_t)round, (uint32_t)(a * 16 + b)) % 4);
}

static int64_t block_bytes(const traffic *t, int a, int b, int round, int i)
{
    uint32_t h = mix(t->seed ^ 77u, (uint32_t)(((a * 16 + b) * 16 + round) * 16 + i));
    return h % 5 == 0 ? 0 : t->unit * (h % 3) + (h >> 8) % 7;
}

static uint8_t byte_at(int a, int b, int round, int i, int64_t position)
{
    return (uint8_t)mix((uint32_t)(((a * 16 + b) * 16 + round) * 16 + i), (uint32_t)position);
}

/* n bytes as runs with gaps between them, laid out as the seed has it. The memory begins and ends with a gap. */
static ith_region make_block(int64_t n, uint32_t seed)
{
    static const int64_t factors[] = {1, 2, 3, 4, 5, 7, 64};
    int64_t run = factors[seed % 7], rows = factors[(seed >> 4) % 7];
    while (n % run)
        run--;
    while (n / run % rows)
        rows--;
    ith_region block = {.count = {n / run / rows, rows}, .bytes = run};
    block.stride[1] = run + (int64_t)(seed >> 8) % 3;
    block.stride[0] = rows * block.stride[1] + (int64_t)(seed >> 12) % 5;
    return block;
}

static int64_t span(const ith_region *block)
{
    return (block->count[0] + 1) * block->stride[0] + 16;
}

typedef struct mail {
    ith_transfer list[MOST_RANKS * 4];
    void *memory[MOST_RANKS * 4];
    int count;
} mail;

/* All blocks of a round that this rank sends, or receives. Every byte outside the runs is 0xee. */
static ith_status write_mail(ith_context *context, const traffic *t, int rank, int ranks, int round, bool sending,
                             mail *out)
{
    out->count = 0;
    for (int peer = 0; peer < ranks; peer++) {
        int a = sending ? rank : peer, b = sending ? peer : rank;
        for (int i = 0; i < block_count(t, a, b, round); i++) {
            ith_region block =
                make_block(block_bytes(t, a, b, round, i), mix(t->seed, (uint32_t)(a + 8 * b + sending)));
            char *memory = ith_alloc(context, 1, span(&block), "a block");
            RANK_CHECK(context, memory);
            memset(memory, 0xee, (size_t)span(&block));
            block.data = memory + 8;
            for (int64_t p = 0; sending && p < block.count[0] * block.count[1] * block.bytes; p++) {
                int64_t row = p / block.bytes;
                memory[8 + row / block.count[1] * block.stride[0] + row % block.count[1] * block.stride[1] +
                       p % block.bytes] = (char)byte_at(a, b, round, i, p);
            }
            out->memory[out->count] = memory;
            out->list[out->count++] = (ith_transfer){peer, block};
        }
    }
    return ITH_OK;
}

/* Whether all that was received is what was sent, and the gaps are what they were. */
static ith_status read_mail(ith_context *context, int rank, int round, const mail *in)
{
    int last_peer = -1, i = 0;
    for (int k = 0; k < in->count; k++) {
        const ith_region *block = &in->list[k].region;
        uint8_t *memory = in->memory[k];
        i = in->list[k].peer == last_peer ? i + 1 : 0;
        last_peer = in->list[k].peer;
        for (int64_t p = 0; p < block->count[0] * block->count[1] * block->bytes; p++) {
            int64_t row = p / block->bytes;
            uint8_t *byte = &memory[8 + row / block->count[1] * block->stride[0] +
                                    row % block->count[1] * block->stride[1] + p % block->bytes];
            RANK_CHECK(context, *byte == byte_at(last_peer, rank, round, i, p));
            *byte = 0xee;
        }
        for (int64_t p = 0; p < span(block); p++)
            RANK_CHECK(context, memory[p] == 0xee);
    }
    return ITH_OK;
}

static void free_mail(ith_context *context, mail *m)
{
    for (int k = 0; k < m->count; k++)
        ith_free(context, m->memory[k]);
}

/* Several exchanges in flight, ended in another order on every rank, some by waiting and some by asking. */
static ith_status exchange_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    const traffic *t = user;
    int rank = ith_comm_rank(comm), ranks = ith_comm_size(comm);
    mail *sent = ith_alloc_zero(context, ROUNDS, sizeof *sent, "mail");
    mail *received = ith_alloc_zero(context, ROUNDS, sizeof *received, "mail");
    ith_request *requests[ROUNDS] = {NULL};
    for (int round = 0; round < ROUNDS; round++) {
        RANK_TRY(write_mail(context, t, rank, ranks, round, true, &sent[round]));
        RANK_TRY(write_mail(context, t, rank, ranks, round, false, &received[round]));
        RANK_TRY(ith_comm_post(comm, sent[round].list, sent[round].count, received[round].list, received[round].count,
                               &requests[round]));
    }
    for (int k = 0; k < ROUNDS; k++) {
        int round = (k + rank) % ROUNDS;
        bool done = false;
        for (int asked = 0; asked < 3 && !done && rank % 2; asked++)
            RANK_TRY(ith_comm_test(comm, &requests[round], &done));
        RANK_TRY(ith_comm_wait(comm, &requests[round]));
        RANK_CHECK(context, requests[round] == NULL);
        RANK_TRY(read_mail(context, rank, round, &received[round]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        free_mail(context, &sent[round]);
        free_mail(context, &received[round]);
    }
    ith_free(context, sent);
    ith_free(context, received);
    return ITH_OK;
}

static void blocks_arrive_whatever_their_layout(void **state)
{
    (void)state;
    static const int64_t units[] = {0, 1, 3, 17, 1000, 20001};
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (uint32_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            traffic t = {.seed = 1000u * u + (uint32_t)ranks, .unit = units[u]};
            run(ranks, exchange_in_rank, &t);
        }
}

static ith_status huge_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    int64_t bytes = (int64_t)40 << 20;
    char *mine = ith_alloc(context, bytes, 1, "a large block"), *theirs = ith_alloc(context, bytes, 1, "another");
    RANK_CHECK(context, mine && theirs);
    memset(mine, 'a' + ith_comm_rank(comm), (size_t)bytes);
    int next = (ith_comm_rank(comm) + 1) % ith_comm_size(comm);
    int before = (ith_comm_rank(comm) + ith_comm_size(comm) - 1) % ith_comm_size(comm);
    ith_transfer send = {next, {.data = mine, .count = {1, 1}, .bytes = bytes}};
    ith_transfer receive = {before, {.data = theirs, .count = {bytes / 4096, 1}, .stride = {4096, 0}, .bytes = 4096}};
    RANK_TRY(ith_comm_exchange(comm, &send, 1, &receive, 1));
    RANK_CHECK(context, theirs[0] == 'a' + before && theirs[bytes - 1] == 'a' + before);
    RANK_CHECK(context, !memcmp(theirs, theirs + 1, (size_t)bytes - 1));
    ith_free(context, mine);
    ith_free(context, theirs);
    return ITH_OK;
}

static void large_blocks_go_round(void **state)
{
    (void)state;
    run(3, huge_in_rank, NULL);
}

/* ---- Reductions, gathers, broadcasts --------------------------------------------------------------------------- */

static float value_of(int rank, int64_t i)
{
    return ((float)(mix((uint32_t)rank, (uint32_t)i) % 20000) - 10000.0f) * 1.37e-3f;
}

static ith_status reduce_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    int ranks = ith_comm_size(comm), rank = ith_comm_rank(comm);
    static const int64_t counts[] = {0, 1, 2, 33, 4097};
    float *values = ith_alloc(context, 4097, sizeof *values, "values");
    for (int c = 0; c < 5; c++)
        for (int operation = 0; operation < 2; operation++) {
            for (int64_t i = 0; i < counts[c]; i++)
                values[i] = value_of(rank, i);
            RANK_TRY(ith_comm_allreduce(comm, values, counts[c], operation ? ITH_REDUCE_MAX : ITH_REDUCE_SUM));
            for (int64_t i = 0; i < counts[c]; i++) {
                float expected = value_of(0, i); /* in rank order, so that the bits are known */
                for (int r = 1; r < ranks; r++)
                    if (operation)
                        expected = value_of(r, i) > expected ? value_of(r, i) : expected;
                    else
                        expected += value_of(r, i);
                RANK_CHECK(context, !memcmp(&values[i], &expected, sizeof expected));
            }
        }
    ith_free(context, values);
    return ITH_OK;
}

static ith_status gather_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    int ranks = ith_comm_size(comm), rank = ith_comm_rank(comm);
    for (int64_t bytes = 0; bytes < 3000; bytes = bytes * 3 + 1) {
        uint8_t mine[3000], all[MOST_RANKS * 3000];
        memset(mine, rank + 1, sizeof mine);
        RANK_TRY(ith_comm_allgather(comm, mine, bytes, all));
        for (int64_t i = 0; i < ranks * bytes; i++)
            RANK_CHECK(context, all[i] == 1 + i / bytes);
        for (int root = 0; root < ranks; root++) {
            memset(mine, 100 + rank, sizeof mine);
            RANK_TRY(ith_comm_broadcast(comm, mine, bytes, root));
            for (int64_t i = 0; i < (int64_t)sizeof mine; i++)
                RANK_CHECK(context, mine[i] == 100 + (i < bytes ? root : rank));
        }
    }
    return ITH_OK;
}

static void every_rank_gets_the_same_bits(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        run(ranks, reduce_in_rank, NULL);
        run(ranks, gather_in_rank, NULL);
    }
}

static ith_status barrier_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int *seen = user;
    for (int round = 0; round < 20; round++) {
        seen[ith_comm_rank(comm)] = round;
        RANK_TRY(ith_comm_barrier(comm));
        for (int r = 0; r < ith_comm_size(comm); r++)
            RANK_CHECK(context, seen[r] == round);
        RANK_TRY(ith_comm_barrier(comm));
    }
    return ITH_OK;
}

static void barriers_order_memory(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        int seen[MOST_RANKS] = {0};
        run(ranks, barrier_in_rank, seen);
    }
}

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

static ith_status split_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int columns = *(int *)user, rank = ith_comm_rank(comm), ranks = ith_comm_size(comm);
    ith_comm *row = NULL, *column = NULL, *pair = NULL;
    RANK_TRY(ith_comm_split(comm, rank / columns, -rank, &row)); /* in reverse order */
    RANK_TRY(ith_comm_split(comm, rank % columns, 0, &column));
    int begin = rank / columns * columns, size = ranks - begin < columns ? ranks - begin : columns;
    RANK_CHECK(context, ith_comm_size(row) == size && ith_comm_rank(row) == size - 1 - (rank - begin));
    RANK_CHECK(context, ith_comm_rank(column) == rank / columns);
    /* In flight on one group while the other is waited for, in an order that differs between ranks. */
    float mine = (float)rank, theirs[MOST_RANKS] = {0}, all = 1;
    ith_transfer sends[MOST_RANKS], receives[MOST_RANKS];
    for (int r = 0; r < size; r++) {
        sends[r] = (ith_transfer){r, {.data = &mine, .count = {1, 1}, .bytes = sizeof mine}};
        receives[r] = (ith_transfer){r, {.data = &theirs[r], .count = {1, 1}, .bytes = sizeof mine}};
    }
    ith_request *request = NULL;
    RANK_TRY(ith_comm_post(row, sends, size, receives, size, &request));
    RANK_TRY(ith_comm_allreduce(column, &all, 1, ITH_REDUCE_SUM));
    RANK_CHECK(context, all == (float)ith_comm_size(column));
    RANK_TRY(ith_comm_wait(row, &request));
    for (int r = 0; r < size; r++)
        RANK_CHECK(context, theirs[r] == (float)(begin + size - 1 - r));
    RANK_TRY(ith_comm_split(row, ith_comm_rank(row) / 2, 0, &pair));
    RANK_CHECK(context, ith_comm_size(pair) <= 2);
    ith_comm_destroy(&row); /* a group outlives the one that it was made of */
    RANK_TRY(ith_comm_barrier(pair));
    ith_comm_destroy(&pair);
    ith_comm_destroy(&column);
    return ith_comm_barrier(comm);
}

static void groups_split(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int columns = 1; columns <= ranks; columns++)
            run(ranks, split_in_rank, &columns);
}

/* A rank may wait on one group for a peer that waits on another group for what both have posted here. */
static ith_status crossed_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    ith_comm *other = NULL;
    RANK_TRY(ith_comm_split(comm, 0, 0, &other));
    float mine = (float)ith_comm_rank(comm), theirs = -1;
    int peer = 1 - ith_comm_rank(comm);
    ith_transfer send = {peer, {.data = &mine, .count = {1, 1}, .bytes = sizeof mine}};
    ith_transfer receive = {peer, {.data = &theirs, .count = {1, 1}, .bytes = sizeof theirs}};
    ith_request *request = NULL;
    RANK_TRY(ith_comm_post(comm, &send, 1, &receive, 1, &request));
    if (ith_comm_rank(comm) == 0) {
        RANK_TRY(ith_comm_barrier(other));
        RANK_TRY(ith_comm_wait(comm, &request));
    } else {
        RANK_TRY(ith_comm_wait(comm, &request));
        RANK_TRY(ith_comm_barrier(other));
    }
    RANK_CHECK(context, theirs == (float)peer);
    ith_comm_destroy(&other);
    return ITH_OK;
}

static void a_wait_needs_no_more_than_posting(void **state)
{
    (void)state;
    run(2, crossed_in_rank, NULL);
}

static ith_status agree_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    int failing = *(int *)user, rank = ith_comm_rank(comm); /* bits */
    ith_status mine = ITH_OK;
    if (failing & (1 << rank))
        mine = ith_fail(context, rank ? ITH_ERR_IO : ITH_ERR_FORMAT, "rank %d is to blame", rank);
    ith_status status = ith_comm_agree(comm, mine);
    if (!failing) {
        RANK_CHECK(context, status == ITH_OK);
        return ITH_OK;
    }
    int lowest = __builtin_ctz((unsigned)failing);
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d is to blame", lowest);
    RANK_CHECK(context, status == (lowest ? ITH_ERR_IO : ITH_ERR_FORMAT));
    RANK_CHECK(context, !strcmp(ith_context_error(context), expected));
    return ith_comm_barrier(comm); /* the group lives on */
}

static void ranks_agree(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int failing = 0; failing < 1 << ranks; failing++)
            run(ranks, agree_in_rank, &failing);
}

static void one_rank_needs_no_communicator(void **state)
{
    (void)state;
    char from[6] = "abcde", to[12] = "-----------";
    ith_transfer send = {0, {.data = from, .count = {1, 1}, .bytes = 4}};
    ith_transfer receive = {0, {.data = to, .count = {2, 2}, .stride = {5, 2}, .bytes = 1}};
    assert_int_equal(ith_comm_exchange(NULL, &send, 1, &receive, 1), ITH_OK);
    assert_string_equal(to, "a-b--c-d---");
    assert_int_equal(ith_comm_exchange(NULL, &send, 1, &receive, 0), ITH_ERR_ARGUMENT);
    receive.region.bytes = 2;
    assert_int_equal(ith_comm_exchange(NULL, &send, 1, &receive, 1), ITH_ERR_ARGUMENT);
    float value = 3;
    assert_int_equal(ith_comm_allreduce(NULL, &value, 1, ITH_REDUCE_SUM), ITH_OK);
    assert_true(value == 3);
    assert_int_equal(ith_comm_allgather(NULL, from, 2, to), ITH_OK);
    assert_memory_equal(to, "ab", 2);
    assert_int_equal(ith_comm_broadcast(NULL, from, 2, 0), ITH_OK);
    assert_int_equal(ith_comm_barrier(NULL), ITH_OK);
    assert_int_equal(ith_comm_agree(NULL, ITH_ERR_IO), ITH_ERR_IO);
    assert_int_equal(ith_comm_rank(NULL), 0);
    assert_int_equal(ith_comm_size(NULL), 1);
    ith_comm_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_arrive_whatever_their_layout),
        cmocka_unit_test(large_blocks_go_round),
        cmocka_unit_test(every_rank_gets_the_same_bits),
        cmocka_unit_test(barriers_order_memory),
        cmocka_unit_test(groups_split),
        cmocka_unit_test(a_wait_needs_no_more_than_posting),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(one_rank_needs_no_communicator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
