/* SPDX-License-Identifier: Apache-2.0 */
/* The life of communicators: created from a transport's table and state, held, entered, left and freed.
 *
 * The communicator of a sub-group holds the communicator of the whole group, so that the transport's state of the whole
 * group is closed last. A rank leaves the group when the communicator of the whole group is destroyed, or, if a call is
 * in progress then, when that call ends. Plans that hold the communicator keep its memory. */
#include "comm_life.h"

#include "../base/arena.h"
#include "../base/host_name.h"
#include "../base/sized.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_TIMEOUT_SECONDS 600 /* time limit of a wait, unless ith_comm_set_timeout changes it */
#define MOST_REQUESTS 4096
/* The most values that one round of a reduction reduces, and the most values that it gathers from all ranks together.
 * In large groups a round still reduces ITH_COMM_LEAST_PIECE values. */
#define MOST_PIECE 256
#define MOST_GATHERED 1024

/* The bits of ith_comm.use. */
enum {
    IN_USE = 1,   /* a call is in progress */
    DESTROYED = 2 /* the communicator was destroyed; a call that is in progress is the last */
};

void ith_comm_set_timeout(ith_comm *comm, double seconds)
{
    if (comm)
        comm->timeout_seconds = seconds > 0 ? seconds : 0;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

/* Frees the memory of a communicator. Its transport state is closed already, or was never made. */
static void comm_free(ith_comm *comm)
{
    if (!comm)
        return;
    ith_context *context = comm->context;
    if (!comm->whole)
        ith_flight_close(comm->flight, context);
    ith_free(context, comm);
    ith_context_release(context);
}

/* Lays out a communicator and its arrays in one allocation. part: of a sub-group. Returns NULL while the arena only
 * counts bytes. */
static ith_comm *lay_out(int64_t requests, int size, bool one_process, bool part, ith_arena *arena)
{
    ith_comm *place = ith_arena_take(arena, 1, sizeof *place), counted;
    ith_comm *comm = place ? memset(place, 0, sizeof *place) : &counted;
    comm->one_process = one_process;
    comm->piece = ith_max64(ith_min64(MOST_GATHERED / size, MOST_PIECE), ITH_COMM_LEAST_PIECE);
    comm->requests = ith_arena_take(arena, requests, sizeof *comm->requests);
    comm->transfers = ith_arena_take(arena, size, 2 * sizeof *comm->transfers);
    comm->seen = ith_arena_take(arena, size, sizeof *comm->seen);
    comm->gathered = ith_arena_take(arena, size, comm->piece * (int64_t)sizeof(float));
    comm->said = ith_arena_take(arena, 1, ITH_COMM_RECORD_BYTES);
    comm->record = ith_arena_take(arena, 1, ITH_COMM_RECORD_BYTES);
    comm->records = ith_arena_take(arena, size, one_process ? (int64_t)sizeof(void *) : ITH_COMM_RECORD_BYTES);
    comm->host = ith_arena_take(arena, !part, ITH_PLACE_NAME);
    comm->members = part ? ith_arena_take(arena, size, sizeof *comm->members) : NULL;
    return place;
}

int64_t ith_comm_bytes(int64_t requests, int size, bool one_process, bool part)
{
    ith_arena arena = {0};
    lay_out(requests, size, one_process, part, &arena);
    return arena.used_bytes + ITH_ALLOC_HEADER;
}

/* Makes a communicator without a transport state, with one reference. Allocates all memory that its operations need.
 * like: transport, rank, size, whole (NULL: it will be the communicator of the whole group), members and host. */
static ith_comm *comm_new(ith_context *context, const ith_comm *like)
{
    ith_arena arena = {0};
    const bool one_process = ith_comm_find_one_process(like);
    lay_out(like->transport.requests, like->size, one_process, like->whole, &arena);
    if (ith_arena_allocate(context, &arena, "a communicator"))
        return NULL;
    ith_comm *comm = lay_out(like->transport.requests, like->size, one_process, like->whole, &arena);
    memset(comm->seen, 0, (size_t)like->size * sizeof *comm->seen);
    memset(comm->requests, 0, (size_t)like->transport.requests * sizeof *comm->requests);
    memset(comm->record, 0, ITH_COMM_RECORD_BYTES);
    if (like->whole)
        memcpy(comm->members, like->members, (size_t)like->size * sizeof *comm->members);
    else
        memcpy(comm->host, like->host, ITH_PLACE_NAME);
    comm->transport = like->transport;
    comm->context = ith_context_hold(context);
    comm->rank = like->rank, comm->size = like->size;
    comm->whole = like->whole;
    comm->several_hosts = ith_comm_find_several_hosts(like);
    comm->timeout_seconds = DEFAULT_TIMEOUT_SECONDS;
    atomic_init(&comm->holders, 1);
    for (int64_t i = 0; i < like->transport.requests; i++)
        comm->requests[i].number = i;
    comm->flight = like->whole ? like->whole->flight : ith_flight_open(context, like->rank, like->size);
    if (comm->flight)
        return comm;
    comm_free(comm);
    return NULL;
}

/* Checks a transport's table: required functions are present, functions that need one another are all present or all
 * absent, and numbers are within their limits. */
static ith_status check_table(ith_context *context, const ith_transport *t)
{
    const struct {
        const char *name;
        bool there;
    } required[] = {{"name", t->name},   {"exchange", t->exchange}, {"wait", t->wait},  {"failure", t->failure},
                    {"split", t->split}, {"abort", t->abort},       {"close", t->close}};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!required[i].there)
            return ith_fail(context, ITH_ERR_ARGUMENT, "%s of the ith_transport is NULL: every transport has one",
                            required[i].name);
    if (t->requests < ITH_TRANSPORT_LEAST_REQUESTS || t->requests > MOST_REQUESTS)
        return ith_fail(context, ITH_ERR_ARGUMENT, "requests of the transport %s is %lld: from %d to %d", t->name,
                        (long long)t->requests, ITH_TRANSPORT_LEAST_REQUESTS, MOST_REQUESTS);
    if (!t->notify != !t->noticed)
        return ith_fail(context, ITH_ERR_ARGUMENT, "the transport %s has one of notify and noticed: both or none",
                        t->name);
    if (!t->share != !t->unshare || !t->share != !t->drain)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "the transport %s has some of share, unshare and drain: all three or none", t->name);
    return ITH_OK;
}

ith_status ith_comm_create(ith_context *context, const ith_transport *transport, void *state, int rank, int size,
                           ith_comm **out)
{
    ith_transport table = ITH_TRANSPORT_INIT;
    if (out)
        *out = NULL;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, out, "out");
    if (!status)
        status = ith_context_check_process(context);
    if (!status)
        status = ITH_SIZED_READ(context, ith_transport, ITH_TRANSPORT_INIT, transport, &table);
    if (!status)
        status = check_table(context, &table);
    if (!status && (size < 1 || size > ITH_MOST_RANKS || rank < 0 || rank >= size))
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "rank is %d and size is %d: a group has 1 to %d ranks, numbered from 0 to size - 1", rank,
                          size, ITH_MOST_RANKS);
    if (status)
        return status;
    char host[ITH_PLACE_NAME];
    ith_host_name(host, sizeof host);
    const ith_comm like = {.transport = table, .transport_state = state, .rank = rank, .size = size, .host = host};
    *out = comm_new(context, &like);
    if (!*out)
        return ITH_ERR_MEMORY;
    (*out)->transport_state = state;
    const ith_place place = ith_comm_place_of(*out, rank);
    ith_flight_set_place((*out)->flight, &place);
    ith_context_set_rank(context, rank);
    return ITH_OK;
}

ith_status ith_comm_create_all(ith_context *const *contexts, int count, const ith_transport *transport, void **states,
                               const int *numbers, int size, ith_comm **comms)
{
    ith_status status = ITH_OK;
    int made = 0;
    while (made < count && !status) {
        const int rank = numbers ? numbers[made] : made;
        status = ith_comm_create(contexts[made], transport, states[made], rank, size, &comms[made]);
        made += !status;
    }
    if (!status)
        return ITH_OK;
    ith_fail(contexts[0], status, "%s", ith_context_error(contexts[made]));
    for (int i = 0; i < count; i++)
        if (i < made)
            ith_comm_destroy(&comms[i]);
        else if (transport->close)
            transport->close(states[i]);
    return status;
}

ith_status ith_failure_of(ith_status status)
{
    return status < ITH_OK && status >= ITH_ERR_INTERNAL ? status : ITH_ERR_INTERNAL;
}

ith_status ith_comm_make_part(ith_comm *comm, int64_t number, int *members, int size, int rank, ith_comm **out)
{
    ith_comm *whole = ith_comm_whole(comm);
    const ith_comm like = {
        .transport = comm->transport, .rank = rank, .size = size, .whole = whole, .members = members};
    ith_comm *part = comm_new(comm->context, &like);
    if (!part)
        return ITH_ERR_MEMORY;
    part->number = number;
    part->timeout_seconds = comm->timeout_seconds;
    ith_subgroup subgroup = ITH_SUBGROUP_INIT;
    subgroup.number = number, subgroup.rank = rank, subgroup.size = size, subgroup.members = part->members;
    ith_status status = comm->transport.split(whole->transport_state, &subgroup, &part->transport_state);
    if (status) {
        comm_free(part);
        status = ith_failure_of(status);
        return ith_fail(comm->context, status, "%s: the transport %s made no sub-group of %d ranks",
                        status == ITH_ERR_MEMORY ? "out of memory" : ith_status_name(status), comm->transport.name,
                        size);
    }
    ith_comm_hold(whole);
    *out = part;
    return ITH_OK;
}

/* ---- Life ------------------------------------------------------------------------------------------------------ */

ith_comm *ith_comm_hold(ith_comm *comm)
{
    if (comm)
        atomic_fetch_add_explicit(&comm->holders, 1, memory_order_relaxed);
    return comm;
}

void ith_comm_release(ith_comm *comm)
{
    if (!comm || atomic_fetch_sub(&comm->holders, 1) > 1)
        return;
    ith_comm *whole = comm->whole;
    comm->transport.close(comm->transport_state);
    comm_free(comm);
    ith_comm_release(whole);
}

bool ith_comm_has_left(const ith_comm *comm)
{
    const ith_comm *whole = comm->whole ? comm->whole : comm;
    return (atomic_load(&whole->use) & (DESTROYED | IN_USE)) == DESTROYED;
}

/* Ends the group because of an action of this rank. reason: the action, as the end of a sentence. */
static void end(ith_comm *comm, const char *reason)
{
    char self[ITH_RANK_NAME], sentence[128 + ITH_RANK_NAME];
    if (comm->whole && ith_comm_has_left(comm))
        return;
    snprintf(sentence, sizeof sentence, "%s %s", ith_comm_name_rank(comm, comm->rank, self), reason);
    comm->transport.abort(comm->transport_state, ITH_ERR_ABORTED, sentence);
}

/* Leaves the group and removes the creator's reference. If requests are in flight, or this rank uses other ranks'
 * memory, the group is ended first, so that the transport no longer uses this rank's memory. */
static void leave_group(ith_comm *comm)
{
    const ith_transport *t = &comm->transport;
    if (comm->sharing) {
        end(comm, "left while it looked at the memory of other ranks");
        t->unshare(comm->transport_state);
        t->drain(comm->transport_state);
    } else if (comm->in_flight) {
        end(comm, "left with operations in flight");
    }
    if (!comm->whole && t->leave)
        t->leave(comm->transport_state);
    ith_comm_release(comm);
}

void ith_comm_destroy(ith_comm **comm)
{
    if (!comm || !*comm)
        return;
    ith_comm *self = *comm;
    *comm = NULL;
    /* keeps the communicator in memory: a call on another thread may end now and remove the creator's reference */
    ith_comm_hold(self);
    int before = atomic_fetch_or(&self->use, DESTROYED);
    if (!(before & IN_USE))
        leave_group(self);
    else
        end(self, "destroyed its communicator during a call on it");
    ith_comm_release(self);
}

/* Removes the mark of a call. If the communicator was destroyed during the call, the rank leaves the group now. */
static void unmark(ith_comm *comm)
{
    if (comm && atomic_fetch_and(&comm->use, ~IN_USE) & DESTROYED)
        leave_group(comm);
}

/* Marks a communicator, and the communicator of the whole group, as used by a call. If one of the two is used already,
 * or was destroyed, marks neither and returns that one. Returns NULL if both are marked. */
static ith_comm *mark(ith_comm *comm)
{
    int idle = 0;
    if (!atomic_compare_exchange_strong(&comm->use, &idle, IN_USE))
        return comm;
    ith_comm *taken = comm->whole ? mark(comm->whole) : NULL;
    if (taken)
        unmark(comm);
    return taken;
}

ith_status ith_comm_enter(ith_comm *comm, ith_context *context)
{
    ith_comm *taken = comm ? mark(comm) : NULL;
    if (!taken)
        return ITH_OK;
    if (atomic_load(&taken->use) & DESTROYED)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "the plan's communicator was destroyed: the plan can only be destroyed");
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "rank %d's communicator is in another call, on another thread: calls on one follow one another",
                    ith_comm_world_rank(comm, comm->rank));
}

void ith_comm_exit(ith_comm *comm)
{
    ith_comm *whole = comm ? comm->whole : NULL;
    unmark(comm);
    unmark(whole);
}

bool ith_comm_enter_operation(ith_comm *comm)
{
    return comm && !mark(comm);
}

ith_status ith_comm_exit_operation(ith_comm *comm, bool entered, ith_status status)
{
    if (entered)
        ith_comm_exit(comm);
    return status;
}
