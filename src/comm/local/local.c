/* SPDX-License-Identifier: Apache-2.0 */
/* Operations among ranks that are threads of one process.
 *
 * A rank posts by writing its buffers' addresses into its slot of the group. Once both ends of a way are posted, either
 * of the two may carry it: it claims the way under the lock, copies straight from one caller's memory to the other's
 * without it, and ticks it off for both. So a wait depends on what its peers have posted and never on what they do
 * afterwards, also where they wait on another group meanwhile. An all-reduce is done for everybody by the first rank
 * that looks after all have posted: the same bits everywhere.
 *
 * When the world is over no new copy begins, and nobody is told so before the copies that touch its memory have ended:
 * whoever sees a failure may free its buffers.
 */
#include "local.h"

#include "../../base/clock.h"
#include "../region.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LONGEST_TIMEOUT_SECONDS 1e9 /* more is for ever */

static const char *kind_name(local_kind kind)
{
    static const char *const names[] = {"an exchange",
                                        "an all-gather",
                                        "a broadcast",
                                        "an all-reduce",
                                        "a barrier",
                                        "a sharing of memory",
                                        "the end of a sharing of memory"};
    return names[kind];
}

static bool reduces(local_kind kind)
{
    return kind == LOCAL_ALLREDUCE || kind == LOCAL_UNSHARE;
}

static bool is_whole(local_kind kind)
{
    return reduces(kind) || kind == LOCAL_BARRIER;
}

static bool is_gather(local_kind kind)
{
    return kind == LOCAL_ALLGATHER || kind == LOCAL_SHARE;
}

static void wake_all(local_world *world)
{
    for (int seat = 0; seat < world->size; seat++)
        pthread_cond_broadcast(&world->wake[seat]);
}

void ith_local_end(local_world *world, ith_status status, const char *format, ...)
{
    if (world->status)
        return;
    world->status = status;
    atomic_store(&world->over, true);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->sentence, sizeof world->sentence, format, arguments);
    va_end(arguments);
    wake_all(world);
}

void ith_local_drain(local_world *world, int seat)
{
    while (world->busy[seat])
        pthread_cond_wait(&world->wake[seat], &world->lock);
}

ith_status ith_local_ended(local_comm *self)
{
    local_world *world = self->group->world;
    ith_local_drain(world, self->seat);
    return ith_fail(self->base.context, world->status, "%s", world->sentence);
}

/* ---- Carrying -------------------------------------------------------------------------------------------------- */

/* The next block, from transfer *cursor on, that the request sends to (or receives from) peer. False: no more. */
static bool next_block(const ith_request *request, bool sending, int peer, int *cursor, ith_region *out)
{
    if (request->kind == LOCAL_EXCHANGE) {
        const ith_transfer *list = sending ? request->sends : request->receives;
        int count = sending ? request->send_count : request->receive_count;
        while (*cursor < count) {
            const ith_transfer *transfer = &list[(*cursor)++];
            if (transfer->peer == peer) {
                *out = transfer->region;
                return true;
            }
        }
        return false;
    }
    if ((*cursor)++)
        return false;
    *out = (ith_region){.data = request->data, .count = {1, 1}, .bytes = request->size};
    if (is_gather(request->kind))
        out->data = sending ? (void *)request->mine : (char *)request->data + peer * request->size;
    return true;
}

/* Whether what `from` sends is what `to` expects, block by block; if not, says why. */
static bool blocks_match(const ith_request *from, int source, const ith_request *to, int target, char *why,
                         size_t why_bytes)
{
    int from_cursor = 0, to_cursor = 0;
    for (int block = 0;; block++) {
        ith_region out, in;
        bool sent = next_block(from, true, target, &from_cursor, &out);
        bool expected = next_block(to, false, source, &to_cursor, &in);
        if (!sent && !expected)
            return true;
        if (sent && expected && ith_region_bytes(&out) == ith_region_bytes(&in))
            continue;
        snprintf(why, why_bytes, "block %d is of %lld bytes where it is sent and of %lld where it is expected", block,
                 sent ? (long long)ith_region_bytes(&out) : 0, expected ? (long long)ith_region_bytes(&in) : 0);
        return false;
    }
}

static void copy_blocks(const ith_request *from, int source, const ith_request *to, int target)
{
    int from_cursor = 0, to_cursor = 0;
    ith_region out, in;
    while (next_block(from, true, target, &from_cursor, &out) && next_block(to, false, source, &to_cursor, &in))
        ith_region_copy(&in, &out);
}

/* Carries what rank `source` sends to rank `target`, both posted. Lets go of the lock meanwhile. */
static void carry(const local_comm *self, ith_request *from, int source, ith_request *to, int target)
{
    local_group *group = self->group;
    local_world *world = group->world;
    const atomic_bool *discard = from->kind == LOCAL_EXCHANGE ? self->base.discard : NULL;
    int seats[2] = {group->seats[source], group->seats[target]};
    from->to[target] = to->from[source] = WAY_MOVING;
    world->busy[seats[0]]++, world->busy[seats[1]]++;
    pthread_mutex_unlock(&world->lock);

    char why[128];
    bool match = blocks_match(from, source, to, target, why, sizeof why);
    if (match && !(discard && atomic_load_explicit(discard, memory_order_relaxed)))
        copy_blocks(from, source, to, target);

    pthread_mutex_lock(&world->lock);
    world->busy[seats[0]]--, world->busy[seats[1]]--;
    if (!match)
        ith_local_end(world, ITH_ERR_ARGUMENT, "ranks %d and %d disagree about what the first sends in %s: %s",
                      seats[0], seats[1], kind_name(from->kind), why);
    from->to[target] = to->from[source] = WAY_MOVED;
    from->pending--, to->pending--;
    pthread_cond_broadcast(&world->wake[seats[0]]);
    pthread_cond_broadcast(&world->wake[seats[1]]);
}

/* Element by element, reading all ranks' values before writing any: the sum is in rank order and in place. */
static void reduce(const local_group *group, const ith_request *mine)
{
    for (int64_t i = 0; i < mine->size; i++) {
        float result = ((const float *)local_slot(group, 0, mine->sequence)->data)[i];
        for (int rank = 1; rank < group->size; rank++) {
            float value = ((const float *)local_slot(group, rank, mine->sequence)->data)[i];
            if (mine->operation == ITH_REDUCE_SUM)
                result += value;
            else if (value > result || isnan(value))
                result = value;
        }
        for (int rank = 0; rank < group->size; rank++)
            ((float *)local_slot(group, rank, mine->sequence)->data)[i] = result;
    }
}

/* Whether all ranks have posted the same operation as mine. Ends the world if some have posted another. */
static bool all_posted(const local_comm *self, const ith_request *mine)
{
    local_group *group = self->group;
    bool all = true;
    for (int rank = 0; rank < group->size; rank++) {
        if (group->posted[rank] <= mine->sequence) {
            if (!group->world->seat_handles[group->seats[rank]])
                ith_local_end(group->world, ITH_ERR_ABORTED, "rank %d left while rank %d waits for it in %s",
                              group->seats[rank], self->seat, kind_name(mine->kind));
            all = false;
            continue;
        }
        const ith_request *theirs = local_slot(group, rank, mine->sequence);
        if (theirs->sequence == mine->sequence && theirs->kind == mine->kind && theirs->size == mine->size &&
            theirs->operation == mine->operation)
            continue;
        ith_local_end(group->world, ITH_ERR_ARGUMENT, "rank %d is in %s (of %lld values), rank %d in another operation",
                      self->seat, kind_name(mine->kind), (long long)mine->size, group->seats[rank]);
        return false;
    }
    return all;
}

/* An operation that all do as one. True if it was done. */
static bool advance_whole(local_comm *self, ith_request *mine)
{
    local_group *group = self->group;
    local_world *world = group->world;
    if (mine->whole != WAY_POSTED || !all_posted(self, mine))
        return false;
    for (int rank = 0; rank < group->size; rank++) {
        local_slot(group, rank, mine->sequence)->whole = WAY_MOVING;
        world->busy[group->seats[rank]]++;
    }
    if (reduces(mine->kind)) {
        pthread_mutex_unlock(&world->lock);
        reduce(group, mine);
        pthread_mutex_lock(&world->lock);
    }
    for (int rank = 0; rank < group->size; rank++) {
        ith_request *theirs = local_slot(group, rank, mine->sequence);
        theirs->whole = WAY_MOVED;
        theirs->pending = 0;
        world->busy[group->seats[rank]]--;
        pthread_cond_broadcast(&world->wake[group->seats[rank]]);
    }
    return true;
}

/* Carries what this rank sends to (or receives from) peer, if both have posted it. True if it did. */
static bool advance_pair(local_comm *self, ith_request *mine, int peer, bool sending)
{
    local_group *group = self->group;
    int rank = self->base.rank;
    if (group->posted[peer] <= mine->sequence) {
        if (!group->world->seat_handles[group->seats[peer]])
            ith_local_end(group->world, ITH_ERR_ABORTED, "rank %d left while rank %d waits for it in %s",
                          group->seats[peer], self->seat, kind_name(mine->kind));
        return false;
    }
    ith_request *theirs = local_slot(group, peer, mine->sequence);
    local_way way = WAY_NONE;
    if (theirs->sequence == mine->sequence && theirs->kind == mine->kind)
        way = sending ? theirs->from[rank] : theirs->to[rank];
    if (way == WAY_NONE)
        ith_local_end(group->world, ITH_ERR_ARGUMENT, "rank %d %s rank %d in %s, which that rank knows nothing of",
                      self->seat, sending ? "sends to" : "receives from", group->seats[peer], kind_name(mine->kind));
    if (way != WAY_POSTED)
        return false;
    if (sending)
        carry(self, mine, rank, theirs, peer);
    else
        carry(self, theirs, peer, mine, rank);
    return true;
}

/* Carries what can be carried of this rank's operations. True if there was something. Under the lock, which it lets go
 * of and takes again. */
static bool advance(local_comm *self)
{
    local_group *group = self->group;
    bool any = false;
    for (int slot = 0; slot < ITH_COMM_REQUESTS && !group->world->status; slot++) {
        ith_request *mine = local_slot(group, self->base.rank, slot);
        if (!mine->in_flight || !mine->pending)
            continue;
        if (is_whole(mine->kind)) {
            any |= advance_whole(self, mine);
            continue;
        }
        /* Each rank begins with itself and goes on with the next: two ranks seldom want the same source at once. */
        for (int i = 0; i < group->size && !group->world->status; i++) {
            int peer = (self->base.rank + i) % group->size;
            if (mine->from[peer] == WAY_POSTED)
                any |= advance_pair(self, mine, peer, false);
            if (mine->to[peer] == WAY_POSTED && !group->world->status)
                any |= advance_pair(self, mine, peer, true);
        }
    }
    return any;
}

/* ---- Posting --------------------------------------------------------------------------------------------------- */

/* Which ways the request has. */
static void mark_ways(ith_request *request, int rank, int ranks)
{
    memset(request->to, WAY_NONE, (size_t)ranks);
    memset(request->from, WAY_NONE, (size_t)ranks);
    request->whole = is_whole(request->kind) ? WAY_POSTED : WAY_NONE;
    request->pending = is_whole(request->kind) ? 1 : 0;
    for (int i = 0; i < request->send_count; i++)
        request->to[request->sends[i].peer] = WAY_POSTED;
    for (int i = 0; i < request->receive_count; i++)
        request->from[request->receives[i].peer] = WAY_POSTED;
    bool sends = is_gather(request->kind) || (request->kind == LOCAL_BROADCAST && rank == request->root);
    if (sends)
        memset(request->to, WAY_POSTED, (size_t)ranks);
    if (is_gather(request->kind))
        memset(request->from, WAY_POSTED, (size_t)ranks);
    if (request->kind == LOCAL_BROADCAST && sends)
        request->to[rank] = WAY_NONE;
    if (request->kind == LOCAL_BROADCAST && !sends)
        request->from[request->root] = WAY_POSTED;
    for (int peer = 0; peer < ranks; peer++)
        request->pending += (request->to[peer] == WAY_POSTED) + (request->from[peer] == WAY_POSTED);
}

/* Those that may be waiting for what was just posted. */
static void wake_peers(local_comm *self, const ith_request *mine)
{
    local_group *group = self->group;
    bool last = is_whole(mine->kind);
    for (int peer = 0; peer < group->size; peer++)
        last = last && group->posted[peer] > mine->sequence;
    for (int peer = 0; peer < group->size; peer++)
        if (last || mine->to[peer] == WAY_POSTED || mine->from[peer] == WAY_POSTED)
            pthread_cond_broadcast(&group->world->wake[group->seats[peer]]);
}

ith_status ith_local_post(ith_comm *comm, const ith_request *wanted, ith_request **out)
{
    local_comm *self = local_of(comm);
    local_group *group = self->group;
    local_world *world = group->world;
    ith_status status = ITH_OK;
    pthread_mutex_lock(&world->lock);
    int64_t sequence = group->posted[comm->rank];
    ith_request *mine = local_slot(group, comm->rank, sequence);
    if (mine->in_flight)
        ith_local_end(world, ITH_ERR_ARGUMENT, "rank %d posts %s while its operation %d before is still under way",
                      self->seat, kind_name(wanted->kind), ITH_COMM_REQUESTS);
    if (self->left)
        ith_local_end(world, ITH_ERR_ARGUMENT, "rank %d posts %s on a communicator that it has destroyed", self->seat,
                      kind_name(wanted->kind));
    ith_local_alive(comm);
    if (world->status) {
        status = ith_local_ended(self);
    } else {
        uint8_t *to = mine->to, *from = mine->from;
        *mine = *wanted;
        mine->to = to, mine->from = from;
        mine->sequence = sequence;
        mine->in_flight = true;
        mark_ways(mine, comm->rank, group->size);
        group->posted[comm->rank]++;
        wake_peers(self, mine);
        *out = mine;
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

ith_status ith_local_refuse(ith_comm *comm, local_kind kind, const char *reason)
{
    local_world *world = local_of(comm)->group->world;
    pthread_mutex_lock(&world->lock);
    ith_local_end(world, ITH_ERR_ARGUMENT, "rank %d, in %s: %s", local_of(comm)->seat, kind_name(kind), reason);
    ith_status status = ith_local_ended(local_of(comm));
    pthread_mutex_unlock(&world->lock);
    return status;
}

static const char *wrong_transfer(const ith_transfer *list, int count, int ranks)
{
    if (count < 0 || (count > 0 && !list))
        return "the number of transfers is negative, or the list is NULL";
    for (int i = 0; i < count; i++) {
        if (list[i].peer < 0 || list[i].peer >= ranks)
            return "a transfer's peer is not a rank of the group";
        int64_t bytes = ith_region_bytes(&list[i].region);
        if (bytes < 0 || (bytes > 0 && !list[i].region.data))
            return "a block has negative or overflowing sizes, or is NULL";
    }
    return NULL;
}

static ith_status local_exchange(ith_comm *comm, const ith_transfer *sends, int send_count,
                                 const ith_transfer *receives, int receive_count, ith_request **out)
{
    *out = NULL;
    const char *wrong = wrong_transfer(sends, send_count, comm->size);
    if (!wrong)
        wrong = wrong_transfer(receives, receive_count, comm->size);
    if (wrong)
        return ith_local_refuse(comm, LOCAL_EXCHANGE, wrong);
    ith_request wanted = {.kind = LOCAL_EXCHANGE,
                          .sends = sends,
                          .send_count = send_count,
                          .receives = receives,
                          .receive_count = receive_count};
    ith_status status = ith_local_post(comm, &wanted, out);
    for (int i = 0; !status && i < send_count; i++)
        if (sends[i].peer != comm->rank)
            comm->exchanged_bytes += ith_region_bytes(&sends[i].region);
    return status;
}

static ith_status local_allreduce(ith_comm *comm, float *values, int64_t count, ith_reduce operation, ith_request **out)
{
    *out = NULL;
    if (count < 0 || (count > 0 && !values))
        return ith_local_refuse(comm, LOCAL_ALLREDUCE, "count is negative, or values is NULL");
    ith_request wanted = {.kind = LOCAL_ALLREDUCE, .data = values, .size = count, .operation = operation};
    return ith_local_post(comm, &wanted, out);
}

static ith_status local_allgather(ith_comm *comm, const void *mine, int64_t bytes, void *all, ith_request **out)
{
    *out = NULL;
    if (bytes < 0 || (bytes > 0 && (!mine || !all)))
        return ith_local_refuse(comm, LOCAL_ALLGATHER, "bytes is negative, or a pointer is NULL");
    ith_request wanted = {.kind = LOCAL_ALLGATHER, .mine = mine, .size = bytes, .data = all};
    return ith_local_post(comm, &wanted, out);
}

static ith_status local_broadcast(ith_comm *comm, void *data, int64_t bytes, int root, ith_request **out)
{
    *out = NULL;
    if (bytes < 0 || (bytes > 0 && !data) || root < 0 || root >= comm->size)
        return ith_local_refuse(comm, LOCAL_BROADCAST,
                                "bytes is negative, data is NULL, or root is not a rank of the group");
    ith_request wanted = {.kind = LOCAL_BROADCAST, .data = data, .size = bytes, .root = root};
    return ith_local_post(comm, &wanted, out);
}

static ith_status local_barrier(ith_comm *comm, ith_request **out)
{
    *out = NULL;
    ith_request wanted = {.kind = LOCAL_BARRIER};
    return ith_local_post(comm, &wanted, out);
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

void ith_local_alive(ith_comm *comm)
{
    local_comm *self = local_of(comm);
    int64_t now = (int64_t)(ith_clock_seconds() * 1e9);
    atomic_store_explicit(&self->group->world->life[self->seat], now, memory_order_relaxed);
}

/* Of the ranks that `mine` waits for the one that has given no sign of life for longest, and when it last did; not
 * before `since`. -1: all have posted, and what is left is being carried. */
static int quietest_rank(const local_comm *self, const ith_request *mine, double since, double *last)
{
    const local_group *group = self->group;
    int found = -1;
    for (int peer = 0; peer < group->size; peer++) {
        bool open = is_whole(mine->kind) || mine->to[peer] == WAY_POSTED || mine->from[peer] == WAY_POSTED;
        if (!open || group->posted[peer] > mine->sequence)
            continue;
        int64_t life = atomic_load_explicit(&group->world->life[group->seats[peer]], memory_order_relaxed);
        double alive = fmax((double)life * 1e-9, since);
        if (found >= 0 && alive >= *last)
            continue;
        found = peer;
        *last = alive;
    }
    return found;
}

static struct timespec moment(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
}

/* Waits until something happens, or until the time limit of the rank that has been quiet for longest, which then ends
 * the group. Under the lock. */
static void wait_for_peers(const local_comm *self, const ith_request *mine, double since)
{
    local_world *world = self->group->world;
    double limit = self->base.timeout_seconds, last = since;
    if (!(limit > 0 && limit < LONGEST_TIMEOUT_SECONDS)) {
        pthread_cond_wait(&world->wake[self->seat], &world->lock);
        return;
    }
    int quiet = quietest_rank(self, mine, since, &last);
    if (quiet >= 0 && ith_clock_seconds() >= last + limit) {
        ith_local_end(world, ITH_ERR_TIMEOUT,
                      "rank %d waited in vain for rank %d in %s: no sign of life for %.3g s (ith_comm_set_timeout)",
                      self->seat, self->group->seats[quiet], kind_name(mine->kind), limit);
        return;
    }
    struct timespec deadline = moment(quiet >= 0 ? last + limit : ith_clock_seconds() + limit);
    pthread_cond_timedwait(&world->wake[self->seat], &world->lock, &deadline);
}

static ith_status local_wait(ith_comm *comm, ith_request **request)
{
    ith_request *mine = *request;
    *request = NULL;
    if (!mine)
        return ITH_OK;
    local_comm *self = local_of(comm);
    local_world *world = self->group->world;
    double since = ith_clock_seconds();
    pthread_mutex_lock(&world->lock);
    while (!world->status && mine->pending)
        if (!advance(self) && !world->status)
            wait_for_peers(self, mine, since);
    mine->in_flight = false;
    ith_status status = world->status ? ith_local_ended(self) : ITH_OK;
    pthread_mutex_unlock(&world->lock);
    return status;
}

static ith_status local_test(ith_comm *comm, ith_request **request, bool *done)
{
    *done = false;
    ith_request *mine = *request;
    if (!mine)
        return ITH_OK;
    local_comm *self = local_of(comm);
    local_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    if (!world->status && mine->pending)
        advance(self);
    ith_status status = world->status ? ith_local_ended(self) : ITH_OK;
    if (status || !mine->pending) {
        mine->in_flight = false;
        *request = NULL;
        *done = !status;
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

static void local_abort(ith_comm *comm, ith_status status, const char *sentence)
{
    local_world *world = local_of(comm)->group->world;
    pthread_mutex_lock(&world->lock);
    ith_local_end(world, status, "%s", sentence);
    ith_local_drain(world, local_of(comm)->seat);
    pthread_mutex_unlock(&world->lock);
}

const ith_comm_ops ith_local_ops = {
    .name = "local",
    .exchange = local_exchange,
    .allreduce = local_allreduce,
    .allgather = local_allgather,
    .broadcast = local_broadcast,
    .barrier = local_barrier,
    .test = local_test,
    .wait = local_wait,
    .share = ith_local_share,
    .unshare = ith_local_unshare,
    .abort = local_abort,
    .split = ith_local_split,
    .alive = ith_local_alive,
    .depend = ith_local_depend,
    .leave = ith_local_leave,
    .release = ith_local_release,
};
