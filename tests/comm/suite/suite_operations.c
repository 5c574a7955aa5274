/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that arrive are the bytes that were sent, for all sizes, layouts, orders of waits, and groups.
 *
 * Every byte is a function of its sender, receiver, round, region and position, so that a receiver can compute
 * the bytes that it should get. Bytes outside the runs of a region must stay as they are. */
#include "suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 4
#define MOST_REGIONS (SUITE_RANKS * 4)

/* ---- Exchanges of strided regions ------------------------------------------------------------------------------ */

typedef struct traffic {
    uint32_t seed;
    int64_t unit; /* the size of a region is 0, or up to 2 units and up to 6 bytes more */
} traffic;

/* The number of regions that rank a sends to rank b, and the size of each: both ranks can compute them. */
static int region_count(const traffic *t, int a, int b, int round)
{
    return (int)(suite_mix(t->seed + (uint32_t)round, (uint32_t)(a * 16 + b)) % 4);
}

static int64_t region_bytes(const traffic *t, int a, int b, int round, int i)
{
    uint32_t h = suite_mix(t->seed ^ 77u, (uint32_t)(((a * 16 + b) * 16 + round) * 16 + i));
    return h % 5 == 0 ? 0 : t->unit * (h % 3) + (h >> 8) % 7;
}

/* Byte number `position` of region i that rank a sends to rank b in a round. */
static uint8_t byte_at(int a, int b, int round, int i, int64_t position)
{
    return (uint8_t)suite_mix((uint32_t)(((a * 16 + b) * 16 + round) * 16 + i), (uint32_t)position);
}

/* A region of n bytes: runs with gaps between them, with a layout that depends on the seed. */
static ith_region make_region(int64_t n, uint32_t seed)
{
    static const int64_t factors[] = {1, 2, 3, 4, 5, 7, 64};
    int64_t run = factors[seed % 7], rows = factors[(seed >> 4) % 7];
    while (n % run)
        run--;
    while (n / run % rows)
        rows--;
    ith_region region = {.count = {n / run / rows, rows}, .bytes = run};
    region.stride[1] = run + (int64_t)(seed >> 8) % 3;
    region.stride[0] = rows * region.stride[1] + (int64_t)(seed >> 12) % 5;
    return region;
}

/* The bytes of memory that hold the region with a gap before and after it. */
static int64_t span(const ith_region *region)
{
    return (region->count[0] + 1) * region->stride[0] + 16;
}

/* The address of byte number `position`, by the definition of a region. */
static uint8_t *byte_of(const ith_region *region, int64_t position)
{
    int64_t run = position / region->bytes, i = run / region->count[1], j = run % region->count[1];
    return (uint8_t *)region->data + i * region->stride[0] + j * region->stride[1] + position % region->bytes;
}

static int64_t size_of(const ith_region *region)
{
    return region->count[0] * region->count[1] * region->bytes;
}

/* The regions that a rank sends, or receives, in a round. */
typedef struct parcel {
    ith_transfer list[MOST_REGIONS];
    int count;
} parcel;

/* All regions of a round that this rank sends, or receives. Every byte outside the runs is 0xee. */
static ith_status fill(ith_context *context, const traffic *t, ith_comm *comm, int round, bool sending, parcel *out)
{
    int rank = ith_comm_rank(comm);
    out->count = 0;
    for (int peer = 0; peer < ith_comm_size(comm); peer++) {
        int a = sending ? rank : peer, b = sending ? peer : rank;
        for (int i = 0; i < region_count(t, a, b, round); i++) {
            uint32_t seed = suite_mix(t->seed, (uint32_t)(a + 8 * b + sending));
            ith_region region = make_region(region_bytes(t, a, b, round, i), seed);
            char *memory = malloc((size_t)span(&region));
            SUITE_CHECK(context, memory);
            memset(memory, 0xee, (size_t)span(&region));
            region.data = memory + 8;
            for (int64_t p = 0; sending && p < size_of(&region); p++)
                *byte_of(&region, p) = byte_at(a, b, round, i, p);
            out->list[out->count++] = (ith_transfer){peer, region};
        }
    }
    return ITH_OK;
}

/* Checks that the bytes that arrived are the bytes that were sent, and that the gaps have not changed. */
static ith_status inspect(ith_context *context, int rank, int round, const parcel *in)
{
    int last_peer = -1, i = 0;
    for (int k = 0; k < in->count; k++) {
        const ith_region *region = &in->list[k].region;
        const uint8_t *memory = (const uint8_t *)region->data - 8;
        i = in->list[k].peer == last_peer ? i + 1 : 0;
        last_peer = in->list[k].peer;
        for (int64_t p = 0; p < size_of(region); p++) {
            SUITE_CHECK(context, *byte_of(region, p) == byte_at(last_peer, rank, round, i, p));
            *byte_of(region, p) = 0xee;
        }
        for (int64_t p = 0; p < span(region); p++)
            SUITE_CHECK(context, memory[p] == 0xee);
    }
    return ITH_OK;
}

static void empty(parcel *p)
{
    for (int k = 0; k < p->count; k++)
        free((char *)p->list[k].region.data - 8);
}

/* Several exchanges are in flight. Each rank ends them in another order, by ith_comm_wait or by ith_comm_test. */
static ith_status exchange_all(ith_context *context, ith_comm *comm, const traffic *t)
{
    int rank = ith_comm_rank(comm);
    parcel sent[ROUNDS], received[ROUNDS];
    ith_request *requests[ROUNDS] = {NULL};
    for (int r = 0; r < ROUNDS; r++) {
        SUITE_TRY(context, fill(context, t, comm, r, true, &sent[r]));
        SUITE_TRY(context, fill(context, t, comm, r, false, &received[r]));
        SUITE_TRY(context,
                  ith_comm_post(comm, sent[r].list, sent[r].count, received[r].list, received[r].count, &requests[r]));
    }
    for (int k = 0; k < ROUNDS; k++) {
        int r = (k + rank) % ROUNDS;
        bool done = false;
        for (int asked = 0; asked < 3 && !done && rank % 2; asked++)
            SUITE_TRY(context, ith_comm_test(comm, &requests[r], &done));
        SUITE_TRY(context, ith_comm_wait(comm, &requests[r]));
        SUITE_CHECK(context, requests[r] == NULL);
        SUITE_TRY(context, inspect(context, rank, r, &received[r]));
    }
    for (int r = 0; r < ROUNDS; r++) {
        empty(&sent[r]);
        empty(&received[r]);
    }
    return ITH_OK;
}

static ith_status exchange_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    static const int64_t units[] = {0, 1, 3, 17, 1000, 5003};
    for (uint32_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        traffic t = {.seed = 1000u * u + (uint32_t)ith_comm_size(comm), .unit = units[u]};
        SUITE_TRY(context, exchange_all(context, comm, &t));
    }
    return ITH_OK;
}

static int regions_arrive(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 1; ranks <= suite_least(s->ranks, SUITE_RANKS); ranks++)
        failed += s->run(s->self, ranks, exchange_in_rank, NULL);
    return failed;
}

/* 16 MiB go round a ring, more than any socket buffers. The sender has them in one run, the receiver in many. */
static ith_status huge_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    int64_t bytes = (int64_t)16 << 20;
    int ranks = ith_comm_size(comm), next = (ith_comm_rank(comm) + 1) % ranks;
    int before = (ith_comm_rank(comm) + ranks - 1) % ranks;
    char *mine = malloc((size_t)bytes), *theirs = malloc((size_t)bytes);
    SUITE_CHECK(context, mine && theirs);
    memset(mine, 'a' + ith_comm_rank(comm), (size_t)bytes);
    ith_transfer send = suite_whole(next, mine, bytes);
    ith_transfer receive = {before, {.data = theirs, .count = {bytes / 4096, 1}, .stride = {4096, 0}, .bytes = 4096}};
    SUITE_TRY(context, ith_comm_exchange(comm, &send, 1, &receive, 1));
    SUITE_CHECK(context, theirs[0] == 'a' + before && !memcmp(theirs, theirs + 1, (size_t)bytes - 1));
    free(mine);
    free(theirs);
    return ITH_OK;
}

static int huge_regions_arrive(const suite_subject *s)
{
    return s->run(s->self, suite_least(s->ranks, 3), huge_in_rank, NULL);
}

/* The whole group and a sub-group have as many requests in flight as a transport allows, and wait for the last
 * first. */
static ith_status many_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    enum { MANY = ITH_TRANSPORT_LEAST_REQUESTS };
    ith_comm *comms[2] = {comm, NULL};
    ith_request *requests[2][MANY] = {{NULL}};
    ith_transfer sends[2][MANY], receives[2][MANY];
    int out[MANY], in[2][MANY];
    SUITE_TRY(context, ith_comm_split(comm, 0, -ith_comm_rank(comm), &comms[1]));
    for (int i = 0; i < MANY; i++)
        out[i] = 100 * ith_comm_rank(comm) + i;
    for (int i = 0; i < MANY; i++)
        for (int g = 0; g < 2; g++) {
            int ranks = ith_comm_size(comms[g]), rank = ith_comm_rank(comms[g]);
            sends[g][i] = suite_whole((rank + 1 + i) % ranks, &out[i], sizeof(int));
            receives[g][i] = suite_whole((rank + 2 * ranks * MANY - 1 - i) % ranks, &in[g][i], sizeof(int));
            SUITE_TRY(context, ith_comm_post(comms[g], &sends[g][i], 1, &receives[g][i], 1, &requests[g][i]));
        }
    for (int i = MANY - 1; i >= 0; i--)
        for (int g = 0; g < 2; g++) {
            SUITE_TRY(context, ith_comm_wait(comms[g], &requests[g][i]));
            int from = receives[g][i].peer;
            int world = g ? ith_comm_size(comm) - 1 - from : from; /* the sub-group is numbered backwards */
            SUITE_CHECK(context, in[g][i] == 100 * world + i);
        }
    ith_comm_destroy(&comms[1]);
    return ITH_OK;
}

static int many_requests_are_in_flight(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 1; ranks <= suite_least(s->ranks, SUITE_RANKS); ranks++)
        failed += s->run(s->self, ranks, many_in_rank, NULL);
    return failed;
}

/* ---- Collectives ----------------------------------------------------------------------------------------------- */

/* Values whose sum depends on the order, so that a wrong order changes its bits. */
static float value_of(int rank, int64_t i)
{
    return ((float)(suite_mix((uint32_t)rank, (uint32_t)i) % 20000) - 10000.0f) * 1.37e-3f;
}

static ith_status reduce_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    static const int64_t counts[] = {0, 1, 2, 33, 4097};
    for (int k = 0; k < 10; k++) {
        int64_t count = counts[k / 2];
        float *mine = malloc(4097 * sizeof *mine);
        SUITE_CHECK(context, mine);
        for (int64_t i = 0; i < count; i++)
            mine[i] = value_of(ith_comm_rank(comm), i);
        SUITE_TRY(context, ith_comm_allreduce(comm, mine, count, k % 2 ? ITH_REDUCE_MAX : ITH_REDUCE_SUM));
        for (int64_t i = 0; i < count; i++) {
            float expected = value_of(0, i); /* the sum is made in the order of ranks, so its bits are known */
            for (int r = 1; r < ith_comm_size(comm); r++)
                if (k % 2)
                    expected = value_of(r, i) > expected ? value_of(r, i) : expected;
                else
                    expected += value_of(r, i);
            SUITE_CHECK(context, !memcmp(&mine[i], &expected, sizeof expected));
        }
        free(mine);
    }
    return ITH_OK;
}

/* Each rank in turn has a NaN among its values. Every rank gets the NaN, and the right results for the other values. */
static ith_status reduce_nan_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    for (int odd = 0; odd < ith_comm_size(comm); odd++)
        for (int operation = ITH_REDUCE_SUM; operation <= ITH_REDUCE_MAX; operation++) {
            const float nan = ith_comm_rank(comm) == odd ? NAN : 1;
            float values[3] = {1, nan, (float)ith_comm_rank(comm)};
            SUITE_TRY(context, ith_comm_allreduce(comm, values, 3, (ith_reduce)operation));
            SUITE_CHECK(context, isnan(values[1]) && !isnan(values[0]) && !isnan(values[2]));
        }
    return ITH_OK;
}

/* Gathers and broadcasts of 0 to 2,953 bytes, from every root. */
static ith_status gather_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    int ranks = ith_comm_size(comm), rank = ith_comm_rank(comm);
    for (int64_t bytes = 0; bytes < 3000; bytes = bytes * 3 + 1) {
        uint8_t mine[3000], all[SUITE_RANKS * 3000];
        memset(mine, rank + 1, sizeof mine);
        SUITE_TRY(context, ith_comm_allgather(comm, mine, bytes, all));
        for (int64_t i = 0; i < ranks * bytes; i++)
            SUITE_CHECK(context, all[i] == 1 + i / bytes);
        for (int root = 0; root < ranks; root++) {
            memset(mine, 100 + rank, sizeof mine);
            SUITE_TRY(context, ith_comm_broadcast(comm, mine, bytes, root));
            for (int64_t i = 0; i < (int64_t)sizeof mine; i++)
                SUITE_CHECK(context, mine[i] == 100 + (i < bytes ? root : rank));
        }
        SUITE_TRY(context, ith_comm_barrier(comm));
    }
    return ITH_OK;
}

static int every_rank_gets_the_same_bits(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 1; ranks <= suite_least(s->ranks, SUITE_RANKS); ranks++) {
        failed += s->run(s->self, ranks, reduce_in_rank, NULL);
        failed += s->run(s->self, ranks, reduce_nan_in_rank, NULL);
        failed += s->run(s->self, ranks, gather_in_rank, NULL);
    }
    return failed;
}

/* No rank leaves a barrier before the last rank has come to it. All ranks read the same clock. */
static ith_status barrier_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    double came[SUITE_RANKS];
    for (int late = 0; late < ith_comm_size(comm); late++) {
        if (ith_comm_rank(comm) == late)
            suite_nap(0.02);
        double now = suite_seconds();
        SUITE_TRY(context, ith_comm_barrier(comm));
        double left = suite_seconds();
        SUITE_TRY(context, ith_comm_allgather(comm, &now, sizeof now, came));
        for (int rank = 0; rank < ith_comm_size(comm); rank++)
            SUITE_CHECK(context, left >= came[rank]);
    }
    return ITH_OK;
}

static int a_barrier_waits_for_the_last(const suite_subject *s)
{
    return s->run(s->self, suite_least(s->ranks, 4), barrier_in_rank, NULL);
}

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

/* Splits the group into rows and into columns. A rank sends its number to the next rank of its row, and meanwhile takes
 * part in a reduction of its column. */
static ith_status split_by(ith_context *context, ith_comm *comm, int columns)
{
    int rank = ith_comm_rank(comm), ranks = ith_comm_size(comm);
    ith_comm *row = NULL, *column = NULL, *pair = NULL;
    SUITE_TRY(context, ith_comm_split(comm, rank / columns, -rank, &row)); /* numbered backwards */
    SUITE_TRY(context, ith_comm_split(comm, rank % columns, 0, &column));
    int begin = rank / columns * columns, size = suite_least(ranks - begin, columns);
    int place = size - 1 - (rank - begin);
    SUITE_CHECK(context, ith_comm_size(row) == size && ith_comm_rank(row) == place);
    SUITE_CHECK(context, ith_comm_rank(column) == rank / columns);
    int theirs = -1;
    float all = 1;
    ith_request *request = NULL;
    ith_transfer send = suite_whole((place + 1) % size, &rank, sizeof rank);
    ith_transfer receive = suite_whole((place + size - 1) % size, &theirs, sizeof theirs);
    SUITE_TRY(context, ith_comm_post(row, &send, 1, &receive, 1, &request));
    SUITE_TRY(context, ith_comm_allreduce(column, &all, 1, ITH_REDUCE_SUM));
    SUITE_CHECK(context, all == (float)ith_comm_size(column));
    SUITE_TRY(context, ith_comm_wait(row, &request));
    SUITE_CHECK(context, theirs == begin + size - 1 - receive.peer);
    SUITE_TRY(context, ith_comm_split(row, ith_comm_rank(row) / 2, 0, &pair));
    SUITE_CHECK(context, ith_comm_size(pair) <= 2);
    ith_comm_destroy(&row); /* `pair`, which was made of `row`, can be used after it */
    SUITE_TRY(context, ith_comm_barrier(pair));
    ith_comm_destroy(&pair);
    ith_comm_destroy(&column);
    return ith_comm_barrier(comm);
}

static ith_status split_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    for (int columns = 1; columns <= ith_comm_size(comm); columns++)
        SUITE_TRY(context, split_by(context, comm, columns));
    return ITH_OK;
}

static int groups_split(const suite_subject *s)
{
    int failed = 0;
    for (int ranks = 1; ranks <= suite_least(s->ranks, SUITE_RANKS); ranks++)
        failed += s->run(s->self, ranks, split_in_rank, NULL);
    return failed;
}

/* Ranks 0 and 1 have been in more groups than ranks 2 and 3. Then a split joins rank 0 with 2, and 1 with 3. */
static ith_status split_unevenly_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    const int rank = ith_comm_rank(comm);
    ith_comm *half = NULL, *alone = NULL, *column = NULL;
    float sum = (float)rank;
    ith_comm_set_timeout(comm, 5);
    SUITE_TRY(context, ith_comm_split(comm, rank / 2, 0, &half));
    if (rank < 2)
        SUITE_TRY(context, ith_comm_split(half, rank, 0, &alone));
    SUITE_TRY(context, ith_comm_split(comm, rank % 2, 0, &column));
    SUITE_TRY(context, ith_comm_allreduce(column, &sum, 1, ITH_REDUCE_SUM));
    SUITE_CHECK(context, sum == (float)(2 * (rank % 2) + 2));
    ith_comm_destroy(&alone);
    ith_comm_destroy(&half);
    ith_comm_destroy(&column);
    return ITH_OK;
}

static int groups_split_unevenly(const suite_subject *s)
{
    return s->ranks < 4 ? 0 : s->run(s->self, 4, split_unevenly_in_rank, NULL);
}

/* Rank 0 waits in a second group for rank 1, and rank 1 waits in the first group for data that rank 0 has posted. Both
 * waits end, because the data only need to be posted. */
static ith_status crossed_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    ith_comm *other = NULL;
    SUITE_TRY(context, ith_comm_split(comm, 0, 0, &other));
    float mine = (float)ith_comm_rank(comm), theirs = -1;
    int peer = 1 - ith_comm_rank(comm);
    ith_transfer send = suite_whole(peer, &mine, sizeof mine), receive = suite_whole(peer, &theirs, sizeof theirs);
    ith_request *request = NULL;
    SUITE_TRY(context, ith_comm_post(comm, &send, 1, &receive, 1, &request));
    if (ith_comm_rank(comm) == 0)
        SUITE_TRY(context, ith_comm_barrier(other));
    SUITE_TRY(context, ith_comm_wait(comm, &request));
    if (ith_comm_rank(comm) == 1)
        SUITE_TRY(context, ith_comm_barrier(other));
    SUITE_CHECK(context, theirs == (float)peer);
    ith_comm_destroy(&other);
    return ITH_OK;
}

static int a_wait_needs_no_more_than_posting(const suite_subject *s)
{
    return s->run(s->self, 2, crossed_in_rank, NULL);
}

/* The sender leaves as soon as its request is done; the receiver has not waited yet. */
static ith_status leave_early_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)user;
    char data[5000];
    memset(data, ith_comm_rank(comm) ? 0 : 'x', sizeof data);
    ith_transfer transfer = suite_whole(1 - ith_comm_rank(comm), data, sizeof data);
    ith_request *request = NULL;
    bool sends = ith_comm_rank(comm) == 0;
    SUITE_TRY(context, ith_comm_post(comm, &transfer, sends, &transfer, !sends, &request));
    if (!sends)
        suite_nap(0.02);
    SUITE_TRY(context, ith_comm_wait(comm, &request));
    for (size_t i = 0; i < sizeof data; i++)
        SUITE_CHECK(context, data[i] == 'x');
    return ITH_OK;
}

static int data_of_a_rank_that_left_arrives(const suite_subject *s)
{
    int failed = 0;
    for (int i = 0; i < 5; i++)
        failed += s->run(s->self, 2, leave_early_in_rank, NULL);
    return failed;
}

const suite_test suite_operations[] = {
    {"regions_arrive", regions_arrive},
    {"huge_regions_arrive", huge_regions_arrive},
    {"many_requests_are_in_flight", many_requests_are_in_flight},
    {"every_rank_gets_the_same_bits", every_rank_gets_the_same_bits},
    {"a_barrier_waits_for_the_last", a_barrier_waits_for_the_last},
    {"groups_split", groups_split},
    {"groups_split_unevenly", groups_split_unevenly},
    {"a_wait_needs_no_more_than_posting", a_wait_needs_no_more_than_posting},
    {"data_of_a_rank_that_left_arrives", data_of_a_rank_that_left_arrives},
    {NULL, NULL},
};
