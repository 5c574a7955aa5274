/* SPDX-License-Identifier: Apache-2.0 */
#include "support/placed_group.h"
#include "support/times.h"

#include "base/clock.h"
#include "comm/local/local.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = LOCAL_REQUESTS };
#define INVALID ((uint64_t)0x5a)
#define SLICE_SECONDS 1e-3

int placed_process[GROUP_RANKS], placed_host[GROUP_RANKS], placed_slices;
double placed_bytes_per_second, placed_burst;

void placed_evenly(int ranks_of_process, int processes_of_host)
{
    for (int rank = 0; rank < GROUP_RANKS; rank++) {
        placed_process[rank] = rank / ranks_of_process;
        placed_host[rank] = placed_process[rank] / processes_of_host;
    }
}

/* The data that all states of a rank share. */
typedef struct placed_rank {
    int slices;                 /* of an exchange */
    _Atomic int64_t moved;      /* slices that have moved so far */
    _Atomic int64_t last_moved; /* when the last one moved, in nanoseconds */
    double rate, burst;         /* of the link */
    double empty_at;            /* when all that was sent has left it at its rate, on ith_clock_seconds */
} placed_rank;

typedef struct placed_state {
    local_state *local;
    placed_rank *rank;
    bool whole;                   /* a state of the whole group, which frees `rank` */
    int64_t arrived_at[REQUESTS]; /* the value of rank->moved with which a request is done */
    double sent_at[REQUESTS];     /* when a request is done at the rate of the link */
    /* The records that a request receives; NULL if it receives none. */
    const ith_transfer *records[REQUESTS];
    int64_t record_count[REQUESTS];
} placed_state;

static local_state *local_of(void *state)
{
    return ((placed_state *)state)->local;
}

static int world_rank(const placed_state *s, int rank)
{
    return s->local->group->members[rank];
}

/* Whether a word may be an address of this program: it has the length of an address, and is no text. */
static bool looks_like_address(uint64_t word)
{
    bool text = true;
    for (uint64_t rest = word; rest; rest >>= 8)
        text &= (rest & 255) >= ' ' && (rest & 255) <= '~';
    return word >> 42 && !(word >> 48) && !text;
}

static void spoil_addresses(const ith_region *region)
{
    uint64_t *words = region->data;
    for (int64_t i = 0; i < region->bytes / (int64_t)sizeof *words; i++)
        if (looks_like_address(words[i]))
            words[i] = INVALID;
}

/* Moves a slice, unless the last one is still on its way. */
static void move_slice(placed_rank *rank)
{
    int64_t now = (int64_t)(ith_clock_seconds() * 1e9), last = atomic_load(&rank->last_moved);
    if (now - last >= (int64_t)(SLICE_SECONDS * 1e9) && atomic_compare_exchange_strong(&rank->last_moved, &last, now))
        atomic_fetch_add(&rank->moved, 1);
}

/* Whether an operation has transfers to or from ranks of other processes. */
static bool crosses_processes(const placed_state *s, const ith_operation *operation)
{
    int own = placed_process[s->local->world_rank];
    bool crosses = false;
    for (int64_t i = 0; i < operation->send_count; i++)
        crosses |= placed_process[world_rank(s, operation->sends[i].peer)] != own;
    for (int64_t i = 0; i < operation->receive_count; i++)
        crosses |= placed_process[world_rank(s, operation->receives[i].peer)] != own;
    return crosses;
}

/* The time at which the link has sent the data of an operation. Unused rate is saved up to the size of a burst. */
static double sent_at(placed_rank *rank, const ith_operation *operation)
{
    double bytes = 0;
    for (int64_t i = 0; i < operation->send_count; i++)
        bytes += (double)ith_region_bytes(&operation->sends[i].region);
    if (rank->rate == 0)
        return 0;
    rank->empty_at = fmax(rank->empty_at, ith_clock_seconds()) + bytes / rank->rate;
    return rank->empty_at - rank->burst / rank->rate;
}

static ith_status placed_exchange(void *state, const ith_operation *operation)
{
    placed_state *s = state;
    bool slow = !strcmp(operation->what, "an exchange") && crosses_processes(s, operation);
    s->arrived_at[operation->request] = slow ? atomic_load(&s->rank->moved) + s->rank->slices : 0;
    s->sent_at[operation->request] = slow ? sent_at(s->rank, operation) : 0;
    bool records = !strcmp(operation->what, "the opening of a call");
    s->records[operation->request] = records ? operation->receives : NULL;
    s->record_count[operation->request] = operation->receive_count;
    return ith_local_transport.exchange(s->local, operation);
}

static ith_status placed_wait(void *state, int64_t request, double seconds, bool *done)
{
    placed_state *s = state;
    double until = ith_clock_seconds() + seconds;
    move_slice(s->rank);
    while (atomic_load(&s->rank->moved) < s->arrived_at[request] && ith_clock_seconds() < until) {
        nap(SLICE_SECONDS);
        move_slice(s->rank);
    }
    double left = fmin(s->sent_at[request], until) - ith_clock_seconds();
    if (left > 0)
        nap(left);
    *done = false;
    if (atomic_load(&s->rank->moved) < s->arrived_at[request] || ith_clock_seconds() < s->sent_at[request])
        return ITH_OK;
    ith_status status = ith_local_transport.wait(s->local, request, fmax(until - ith_clock_seconds(), 0), done);
    if (status || !*done || !s->records[request])
        return status;
    int own = placed_process[s->local->world_rank];
    for (int64_t i = 0; i < s->record_count[request]; i++)
        if (placed_process[world_rank(s, s->records[request][i].peer)] != own)
            spoil_addresses(&s->records[request][i].region);
    return status;
}

static ith_status placed_failure(void *state, const char **sentence)
{
    return ith_local_transport.failure(local_of(state), sentence);
}

static placed_state *wrap(void *local, placed_rank *rank)
{
    placed_state *s = calloc(1, sizeof *s);
    if (s)
        s->local = local, s->rank = rank;
    return s;
}

static ith_status placed_split(void *state, const ith_subgroup *subgroup, void **out)
{
    void *local = NULL;
    ith_status status = ith_local_transport.split(local_of(state), subgroup, &local);
    if (status)
        return status;
    *out = wrap(local, ((placed_state *)state)->rank);
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

static void placed_abort(void *state, ith_status status, const char *sentence)
{
    ith_local_transport.abort(local_of(state), status, sentence);
}

static void placed_close(void *state)
{
    placed_state *s = state;
    ith_local_transport.close(s->local);
    if (s->whole)
        free(s->rank);
    free(s);
}

static void placed_leave(void *state)
{
    ith_local_transport.leave(local_of(state));
}

static void placed_alive(void *state)
{
    move_slice(((placed_state *)state)->rank);
    ith_local_transport.alive(local_of(state));
}

static double placed_silence(void *state, int64_t request, int *rank)
{
    return ith_local_transport.silence(local_of(state), request, rank);
}

static void placed_notify(void *state, int64_t number)
{
    ith_local_transport.notify(local_of(state), number);
}

static int64_t placed_noticed(void *state)
{
    return ith_local_transport.noticed(local_of(state));
}

static ith_status placed_share(void *state)
{
    return ith_local_transport.share(local_of(state));
}

static void placed_unshare(void *state)
{
    ith_local_transport.unshare(local_of(state));
}

static void placed_drain(void *state)
{
    ith_local_transport.drain(local_of(state));
}

static void placed_place(void *state, int rank, ith_place *place)
{
    int number = world_rank(state, rank);
    place->process = placed_process[number];
    place->host = placed_host[number];
}

static const ith_transport table = {
    .struct_size = sizeof(ith_transport),
    .name = "placed",
    .requests = REQUESTS,
    .exchange = placed_exchange,
    .wait = placed_wait,
    .failure = placed_failure,
    .split = placed_split,
    .abort = placed_abort,
    .close = placed_close,
    .leave = placed_leave,
    .alive = placed_alive,
    .silence = placed_silence,
    .notify = placed_notify,
    .noticed = placed_noticed,
    .share = placed_share,
    .unshare = placed_unshare,
    .drain = placed_drain,
    .place = placed_place,
};

ith_status placed_group_create(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    void *states[GROUP_RANKS] = {NULL};
    ith_status status = ith_local_connect(contexts, ranks, states);
    for (int i = 0; i < ranks && !status; i++) {
        placed_rank *rank = calloc(1, sizeof *rank);
        placed_state *state = rank ? wrap(states[i], rank) : NULL;
        if (!state)
            return ITH_ERR_MEMORY;
        rank->slices = placed_slices;
        rank->rate = placed_bytes_per_second, rank->burst = placed_burst;
        state->whole = true;
        status = ith_comm_create(contexts[i], &table, state, i, ranks, &comms[i]);
    }
    return status;
}
