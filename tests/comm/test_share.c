/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks read and write one another's memory between `share` and `unshare`. They see the values that were shared, and no
 * memory is freed while a rank still reads it, whatever happens to the other ranks. */
#include "base/clock.h"
#include "comm/comm.h"
#include "support/in_rank.h"
#include "support/memory.h"
#include "support/times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 6
#define FIELD 64 /* the number of values that a rank writes into another rank's block */

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t h = (a + 0x9e3779b9u) * 0x85ebca6bu ^ (b + 0x7f4a7c15u) * 0xc2b2ae35u;
    h ^= h >> 15;
    return h * 0x2c1b3c6du ^ (h >> 13);
}

static ith_status run(int ranks, ith_rank_fn fn, void *user)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks, fn, user);
    if (status == ITH_ERR_INTERNAL || (!user && status))
        print_error("%d ranks: %s\n", ranks, ith_context_error(context));
    assert_int_equal(memory_of(context).current_bytes, 0);
    ith_context_destroy(&context);
    return status;
}

/* Opens a call. `all` receives the records of all ranks, of `bytes` bytes each. */
static ith_status share(ith_comm *comm, const void *mine, int64_t bytes, void *all)
{
    ith_status status = ith_comm_begin_call(comm, mine, bytes);
    for (int rank = 0; !status && rank < comm->size; rank++)
        memcpy((char *)all + rank * bytes, ith_comm_record(comm, rank), (size_t)bytes);
    return status;
}

static ith_status unshare(ith_comm *comm)
{
    float claim = (float)comm->rank;
    ith_status status = ith_comm_end_call(comm, &claim);
    return !status && claim != (float)(comm->size - 1) ? ITH_ERR_INTERNAL : status;
}

/* ---- Sharing that goes well ------------------------------------------------------------------------------------ */

/* A rank's block: FIELD values of its own, then FIELD for each rank of the group to fill in. */
typedef struct record {
    float *block;
    int64_t fields;
} record;

static float value_of(int group_tag, int rank, int64_t i)
{
    return (float)(mix((uint32_t)(group_tag * 64 + rank), (uint32_t)i) % 10000);
}

/* Reads the block of every rank of the group, and writes this rank's field in it. Each rank does so in another
 * order. */
static ith_status look_round(ith_context *context, ith_comm *comm, const record *records, int tag)
{
    for (int i = 0; i < comm->size; i++) {
        int peer = (comm->rank * 2 + i) % comm->size;
        RANK_CHECK(context, records[peer].fields == comm->size + 1);
        for (int64_t k = 0; k < FIELD; k++) {
            RANK_CHECK(context, records[peer].block[k] == value_of(tag, peer, k));
            records[peer].block[(comm->rank + 1) * FIELD + k] = value_of(tag, comm->rank, k) - value_of(tag, peer, k);
        }
    }
    return ITH_OK;
}

static ith_status share_block(ith_context *context, ith_comm *comm, int tag, record *mine, record *records)
{
    mine->fields = comm->size + 1;
    mine->block = ith_alloc(context, mine->fields * FIELD, sizeof(float), "a shared block");
    RANK_CHECK(context, mine->block);
    for (int64_t k = 0; k < FIELD; k++)
        mine->block[k] = value_of(tag, comm->rank, k);
    return share(comm, mine, sizeof *mine, records);
}

/* Closes the call, checks the values that the others wrote, and frees the block. */
static ith_status unshare_block(ith_context *context, ith_comm *comm, int tag, record *mine)
{
    RANK_TRY(unshare(comm));
    for (int peer = 0; peer < comm->size; peer++)
        for (int64_t k = 0; k < FIELD; k++)
            RANK_CHECK(context,
                       mine->block[(peer + 1) * FIELD + k] == value_of(tag, peer, k) - value_of(tag, comm->rank, k));
    memset(mine->block, 0xdd, (size_t)mine->fields * FIELD * sizeof(float));
    ith_free(context, mine->block);
    return ITH_OK;
}

/* Shares memory in the whole group and in a part of it, in turn or one inside the other, with other operations under
 * way. */
static ith_status share_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    uint32_t seed = *(uint32_t *)user;
    int rank = comm->rank;
    ith_comm *part = NULL;
    RANK_TRY(ith_comm_split(comm, (int)(mix(seed, (uint32_t)rank) % 3), -rank, &part));
    for (int round = 0; round < 12; round++) {
        uint32_t h = mix(seed, 1000u + (uint32_t)round);
        bool whole = h % 4 != 0, inside = h % 3 == 0, early = h % 5 == 0;
        record mine[2], all[2][MOST_RANKS];
        float sent = (float)rank, received = -1;
        int next = (rank + 1) % comm->size, before = (rank + comm->size - 1) % comm->size;
        ith_transfer send = {next, {.data = &sent, .count = {1, 1}, .bytes = sizeof sent}};
        ith_transfer receive = {before, {.data = &received, .count = {1, 1}, .bytes = sizeof received}};
        ith_request *request = NULL;
        RANK_TRY(ith_comm_post(comm, &send, 1, &receive, 1, &request));
        if (early)
            RANK_TRY(ith_comm_wait(comm, &request));
        if (whole)
            RANK_TRY(share_block(context, comm, round, &mine[0], all[0]));
        if (inside || !whole)
            RANK_TRY(share_block(context, part, 100 + round, &mine[1], all[1]));
        if (mix(h, (uint32_t)rank) % 3 == 0)
            nap(0.001);
        if (whole)
            RANK_TRY(look_round(context, comm, all[0], round));
        if (inside || !whole) {
            RANK_TRY(look_round(context, part, all[1], 100 + round));
            RANK_TRY(unshare_block(context, part, 100 + round, &mine[1]));
        }
        RANK_TRY(ith_comm_wait(comm, &request));
        RANK_CHECK(context, received == (float)before);
        if (whole)
            RANK_TRY(unshare_block(context, comm, round, &mine[0]));
    }
    ith_comm_destroy(&part);
    return ITH_OK;
}

static void ranks_see_what_others_share(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 8; seed++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
            assert_int_equal(run(ranks, share_in_rank, &seed), ITH_OK);
}

/* ---- Sharing that ends badly ----------------------------------------------------------------------------------- */

/* Every rank shares two values, and reads the values of the other ranks for a while. One rank makes this mistake: */
typedef enum fault {
    FAULT_NONE,
    FAULT_ABORT,   /* ends the group, then unshares */
    FAULT_RETURN,  /* returns an error from its function without unsharing */
    FAULT_VANISH,  /* returns ITH_OK without unsharing */
    FAULT_DESTROY, /* destroys the communicator of the sub-group in which it shares */
    FAULT_ABSENT,  /* returns instead of sharing */
    FAULT_LATE,    /* reads for longer than the others wait */
    FAULTS
} fault;

typedef struct scene {
    fault fault;
    int rank;    /* the rank that does something wrong */
    double late; /* seconds for which a late rank reads */
    bool split, reduce;
    uint32_t seed;
    int memory[MOST_RANKS][2];
    atomic_bool looking[MOST_RANKS];
    atomic_int broken; /* how often a rank read memory that was gone, or unshared while others still read its memory */
    ith_status seen[MOST_RANKS];
    char sentences[MOST_RANKS][ITH_ERROR_BYTES];
} scene;

#define GONE (-1)

/* Reads the memory of all ranks several times, and counts values that are gone or half written. */
static void look_for_a_while(scene *s, int world_rank, int *const *records, int size, double seconds)
{
    atomic_store(&s->looking[world_rank], true);
    for (int glance = 0; glance < 4; glance++) {
        nap(seconds / 4);
        for (int peer = 0; peer < size; peer++)
            if (records[peer][0] == GONE || records[peer][1] != records[peer][0] * 3)
                atomic_fetch_add(&s->broken, 1);
    }
    atomic_store(&s->looking[world_rank], false);
}

/* Called when this rank's memory may be freed: no other rank may still read it. */
static void forget(scene *s, int world_rank, const int *first_and_count)
{
    for (int peer = first_and_count[0]; peer < first_and_count[0] + first_and_count[1]; peer++)
        if (atomic_load(&s->looking[peer]))
            atomic_fetch_add(&s->broken, 1);
    s->memory[world_rank][0] = s->memory[world_rank][1] = GONE;
}

/* One rank's part: opens a call, reads, does its fault if it is the faulty rank, and closes the call. */
static ith_status share_and_look(ith_context *context, ith_comm **group, scene *s, int world_rank, bool faulty)
{
    ith_comm *comm = *group;
    int *mine = s->memory[world_rank], *records[MOST_RANKS], members[2] = {world_rank - comm->rank, comm->size};
    double seconds = (double)(mix(s->seed, (uint32_t)world_rank) % 5) * 1e-3;
    if (faulty && s->fault == FAULT_ABSENT)
        return ith_fail(context, ITH_ERR_IO, "rank %d lost its disk", world_rank);
    ith_status status = share(comm, &mine, sizeof mine, records);
    if (!status && faulty && s->fault == FAULT_ABORT) {
        ith_fail(context, ITH_ERR_IO, "rank %d lost its disk", world_rank);
        ith_comm_abort(comm, ITH_ERR_IO);
    }
    if (!status)
        look_for_a_while(s, world_rank, records, comm->size, faulty && s->fault == FAULT_LATE ? s->late : seconds);
    if (!status && faulty && s->fault == FAULT_RETURN)
        return ith_fail(context, ITH_ERR_IO, "rank %d lost its disk", world_rank);
    if (!status && faulty && s->fault == FAULT_VANISH)
        return ITH_OK;
    if (!status && faulty && s->fault == FAULT_DESTROY) {
        ith_comm_destroy(group);
        forget(s, world_rank, members);
        return ITH_OK;
    }
    float one = 1;
    ith_status reduced = !status && s->reduce ? ith_comm_allreduce(comm, &one, 1, ITH_REDUCE_SUM) : ITH_OK;
    if (!status)
        status = unshare(comm);
    forget(s, world_rank, members);
    return status ? status : reduced;
}

static ith_status act(ith_context *context, ith_comm *comm, void *user)
{
    scene *s = user;
    int rank = ith_comm_rank(comm), size = ith_comm_size(comm);
    bool faulty = rank == s->rank && s->fault != FAULT_NONE;
    ith_comm *part = NULL;
    s->memory[rank][0] = rank + 1;
    s->memory[rank][1] = (rank + 1) * 3;
    ith_comm_set_timeout(comm, s->fault == FAULT_LATE ? 0.03 : 60);
    ith_status status = s->split ? ith_comm_split(comm, rank >= size / 2, 0, &part) : ITH_OK;
    if (!status)
        status = share_and_look(context, s->split ? &part : &comm, s, rank, faulty);
    bool dies = faulty && (s->fault == FAULT_RETURN || s->fault == FAULT_VANISH);
    if (!status && s->split && !dies)
        status = ith_comm_barrier(comm);
    s->seen[rank] = status;
    snprintf(s->sentences[rank], ITH_ERROR_BYTES, "%s", ith_context_error(context));
    if (dies && status) /* before it destroys `part`, which would otherwise be the reason for the failure */
        ith_comm_abort(comm, status);
    ith_comm_destroy(&part);
    return status;
}

/* Every rank that failed has the same status and the same sentence, and no memory was used after its end. Returns the
 * status. */
static ith_status check_scene(int ranks, scene *s)
{
    ith_status status = run(ranks, act, s);
    assert_int_equal(atomic_load(&s->broken), 0);
    const char *sentence = NULL;
    for (int rank = 0; rank < ranks; rank++) {
        if (s->seen[rank] == ITH_OK) {
            /* With a fault only these may succeed: the rank that vanished; and, if a rank is late, a rank that the late
             * rank reached just before the time limit of another one ended the group. */
            assert_true(s->fault == FAULT_NONE || s->fault == FAULT_LATE ||
                        (s->fault == FAULT_VANISH && rank == s->rank));
            continue;
        }
        assert_int_equal(s->seen[rank], status);
        if (!sentence)
            sentence = s->sentences[rank];
        assert_string_equal(s->sentences[rank], sentence);
    }
    return status;
}

static void memory_stays_while_others_look(void **state)
{
    (void)state;
    static const ith_status expected[FAULTS] = {ITH_OK,          ITH_ERR_IO, ITH_ERR_IO,     ITH_ERR_ABORTED,
                                                ITH_ERR_ABORTED, ITH_ERR_IO, ITH_ERR_TIMEOUT};
    for (uint32_t seed = 0; seed < 160; seed++) {
        uint32_t h = mix(seed, 5);
        int ranks = 2 + (int)(h % (MOST_RANKS - 1));
        scene s = {.fault = (fault)(seed % FAULTS), .seed = seed, .rank = (int)((h >> 8) % (uint32_t)ranks)};
        s.reduce = (h >> 16) % 2;
        s.split = (h >> 20) % 2 || s.fault == FAULT_DESTROY;
        if (s.fault == FAULT_LATE && s.split && ranks < 4) /* its half would have no other rank that waits for it */
            s.split = false;
        s.late = 0.1;
        scene again = s;
        ith_status status = check_scene(ranks, &s);
        /* on a busy machine the others may be later than the late rank */
        for (; s.fault == FAULT_LATE && !status && again.late < 20; status = check_scene(ranks, &s))
            again.late *= 4, s = again;
        assert_int_equal(status, expected[s.fault]);
    }
}

/* ---- When exactly a call returns ------------------------------------------------------------------------------- */

typedef struct moments {
    atomic_int failed;      /* number of ranks whose reduction has failed */
    atomic_bool finished;   /* the slow rank no longer reads */
    bool early[MOST_RANKS]; /* the reduction failed before `finished` was set */
    bool late[MOST_RANKS];  /* unshare returned after `finished` was set */
} moments;

/* The last rank reads until the reduction of all others has failed, and a little longer. Their reductions fail in time,
 * although all ranks still share memory; but their unshare returns only when the last rank has finished. */
static ith_status outlast(ith_context *context, ith_comm *comm, void *user)
{
    moments *m = user;
    int rank = comm->rank;
    float one = 1;
    char none = 0, all[MOST_RANKS];
    RANK_TRY(share(comm, &none, 1, all));
    ith_comm_set_timeout(comm, 0.02);
    if (rank == comm->size - 1) {
        for (int n = 0; n < 30000 && atomic_load(&m->failed) < rank; n++)
            nap(0.001);
        nap(0.1);
        atomic_store(&m->finished, true);
    } else {
        RANK_CHECK(context, ith_comm_allreduce(comm, &one, 1, ITH_REDUCE_SUM) == ITH_ERR_TIMEOUT);
        m->early[rank] = !atomic_load(&m->finished);
        atomic_fetch_add(&m->failed, 1);
    }
    ith_status status = unshare(comm);
    m->late[rank] = atomic_load(&m->finished);
    return status;
}

static void a_failed_wait_returns_before_unshare(void **state)
{
    (void)state;
    for (int ranks = 3; ranks <= MOST_RANKS; ranks++) {
        moments m = {.failed = 0};
        assert_int_equal(run(ranks, outlast, &m), ITH_ERR_TIMEOUT);
        for (int rank = 0; rank < ranks - 1; rank++)
            assert_true(m.early[rank] && m.late[rank]);
    }
}

/* Ranks come to a share at random times around the time limit. The share succeeds or fails with a timeout on each rank,
 * and always ends. */
static ith_status come_late(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    int value = 7, *mine = &value, *all[MOST_RANKS];
    ith_comm_set_timeout(comm, 0.004);
    nap(0.0001 * (double)(mix(*(uint32_t *)user, (uint32_t)comm->rank) % 50));
    ith_status status = share(comm, &mine, sizeof mine, all);
    if (status)
        return status;
    int sum = 0;
    for (int peer = 0; peer < comm->size; peer++)
        sum += *all[peer];
    status = unshare(comm);
    return sum == 7 * comm->size ? status : ITH_ERR_INTERNAL;
}

static void late_shares_end(void **state)
{
    (void)state;
    int ended = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        ith_status status = run(2 + (int)(seed % 4), come_late, &seed);
        assert_true(status == ITH_OK || status == ITH_ERR_TIMEOUT);
        ended += status == ITH_ERR_TIMEOUT;
    }
    assert_true(ended > 0);
}

/* ---- Misuse ---------------------------------------------------------------------------------------------------- */

/* Rank 0 gathers while the others share memory, or it leaves without unsharing. */
static ith_status misuse(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    int value = 0, all[MOST_RANKS];
    if (*(int *)user == 0)
        return comm->rank ? share(comm, &value, 4, all) : ith_comm_allgather(comm, &value, 4, all);
    RANK_TRY(share(comm, &value, 4, all));
    return comm->rank ? unshare(comm) : ith_comm_barrier(comm); /* rank 0 then leaves */
}

static void misuse_is_an_error(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int which = 0; which < 2; which++)
            assert_int_equal(run(ranks, misuse, &which), ITH_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_see_what_others_share),
        cmocka_unit_test(memory_stays_while_others_look),
        cmocka_unit_test(a_failed_wait_returns_before_unshare),
        cmocka_unit_test(late_shares_end),
        cmocka_unit_test(misuse_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
