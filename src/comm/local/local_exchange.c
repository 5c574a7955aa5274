/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges among ranks that are threads of one process: one copy, from the sender's memory to the receiver's.
 *
 * A rank posts an exchange by writing the addresses of its lists into a request, where all ranks see them. The rank
 * that posts last copies small data between the two at once. Large data is copied by the first of them that waits: it
 * marks the transfers between the two ranks as moving, copies without the lock, and marks them as moved for both ranks.
 * So a wait depends only on the exchanges that the other ranks have posted, and not on anything that they do
 * afterwards.
 *
 * After the world has ended, no copy begins. A function returns the failure only when no copy uses its rank's memory
 * any more (ith_local_settle), because the caller may then free that memory.
 *
 * Each rank sleeps on its own condition. A rank wakes another when large data for it can move, when the last
 * transfer of the other's request has moved, when it leaves, and at the end of the world. */
#include "local.h"

#include "../../base/clock.h"
#include "../pairs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Transfers of at most this many bytes are copied while the lock is held: to release it and take it again would take
 * longer. */
#define SMALL_BYTES 4096

/* The request in which a rank has posted an exchange. Exchange number n always uses request n % LOCAL_REQUESTS. */
static local_request *request_of(const local_group *group, int rank, int64_t exchange)
{
    return &group->requests[(int64_t)rank * LOCAL_REQUESTS + exchange % LOCAL_REQUESTS];
}

/* Ends the work of all ranks with a failure and its error sentence, unless it has ended already. The lock must be
 * held. */
__attribute__((format(printf, 3, 4))) static void end_work(local_world *world, ith_status status, const char *format,
                                                           ...)
{
    if (ith_local_ended(world))
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->sentence, sizeof world->sentence, format, arguments);
    va_end(arguments);
    atomic_store(&world->status, status);
    for (int rank = 0; rank < world->size; rank++)
        pthread_cond_broadcast(&world->wake[rank]);
}

/* ---- Copying --------------------------------------------------------------------------------------------------- */

/* Copies all data that `source` sends to `target` in an exchange that both have posted. mine: the request of the rank
 * that calls this. The caller holds the lock, which is released during a large copy. small: leaves large data. Returns
 * whether it copied. */
static bool move(local_group *group, local_request *from, int source, local_request *to, int target,
                 const local_request *mine, bool small)
{
    local_world *world = group->world;
    const int ranks[2] = {group->members[source], group->members[target]};
    char why[128];
    const ith_operation *one = &from->posted, *other = &to->posted;
    const ith_pairs_part sends = ith_pairs_with(one->sends, one->send_count, from->sorted, target);
    const ith_pairs_part receives = ith_pairs_with(other->receives, other->receive_count, to->sorted, source);
    int64_t bytes = ith_pairs_walk(sends, target, receives, source, false, why, sizeof why);
    if (bytes < 0) {
        end_work(world, ITH_ERR_ARGUMENT,
                 "ranks %d and %d disagree about what the first sends in %s (exchange %lld of group %lld): %s",
                 ranks[0], ranks[1], from->posted.what, (long long)from->number, (long long)group->number, why);
        return false;
    }
    if (small && bytes > SMALL_BYTES)
        return false;
    from->to[target] = to->from[source] = LOCAL_MOVING;
    if (bytes <= SMALL_BYTES) {
        ith_pairs_walk(sends, target, receives, source, true, why, sizeof why);
    } else {
        world->busy[ranks[0]]++, world->busy[ranks[1]]++;
        pthread_mutex_unlock(&world->lock);
        if (!ith_pairs_unwanted(&mine->posted))
            ith_pairs_walk(sends, target, receives, source, true, why, sizeof why);
        pthread_mutex_lock(&world->lock);
        world->busy[ranks[0]]--, world->busy[ranks[1]]--;
    }
    from->to[target] = to->from[source] = LOCAL_MOVED;
    from->pending--, to->pending--;
    for (int i = 0; i < 2; i++)
        if ((i ? to : from)->pending == 0 || ith_local_ended(world))
            pthread_cond_broadcast(&world->wake[ranks[i]]);
    return true;
}

/* Copies the data that this rank sends to peer (if `sending`) or receives from it, if both have posted the exchange. If
 * the two ranks are in different operations, ends the work of all ranks with a failure. small: leaves large data.
 * Returns whether it copied. */
static bool move_with(const local_state *self, local_request *mine, int peer, bool sending, bool small)
{
    local_group *group = self->group;
    local_world *world = group->world;
    int there = group->members[peer];
    if (group->exchanges[peer] <= mine->number) {
        if (world->left[there])
            end_work(world, ITH_ERR_ABORTED,
                     "rank %d left while rank %d waits for it in %s (exchange %lld of group %lld)", there,
                     self->world_rank, mine->posted.what, (long long)mine->number, (long long)group->number);
        return false;
    }
    local_request *theirs = request_of(group, peer, mine->number);
    bool same = theirs->number == mine->number;
    local_transfer progress = LOCAL_NONE;
    if (same)
        progress = sending ? theirs->from[self->rank] : theirs->to[self->rank];
    if (same && theirs->posted.tag != mine->posted.tag)
        end_work(world, ITH_ERR_ARGUMENT, "rank %d is in %s, rank %d in %s%s (exchange %lld of group %lld)",
                 self->world_rank, mine->posted.what, there, theirs->posted.what,
                 ith_pairs_difference(&mine->posted, &theirs->posted), (long long)mine->number,
                 (long long)group->number);
    else if (progress == LOCAL_NONE)
        end_work(world, ITH_ERR_ARGUMENT,
                 sending ? "rank %d sends to rank %d in %s (exchange %lld of group %lld), where that rank receives "
                           "nothing from it: every send needs a receive"
                         : "rank %d receives from rank %d in %s (exchange %lld of group %lld), where that rank "
                           "sends nothing to it: every receive needs a send",
                 self->world_rank, there, mine->posted.what, (long long)mine->number, (long long)group->number);
    if (ith_local_ended(world) || progress != LOCAL_POSTED)
        return false;
    if (sending)
        return move(group, mine, self->rank, theirs, peer, mine, small);
    return move(group, theirs, peer, mine, self->rank, mine, small);
}

/* Copies the data of each transfer of this rank that sender and receiver have both posted. Returns whether there was
 * any. The caller holds the lock. Large copies release it for their time, so other ranks may change the group: the
 * caller must read the group's state again. */
static bool advance(const local_state *self)
{
    local_group *group = self->group;
    bool any = false;
    for (int slot = 0; slot < LOCAL_REQUESTS; slot++) {
        local_request *mine = request_of(group, self->rank, slot);
        if (!mine->pending)
            continue;
        /* Each rank begins with the next rank, so that few ranks read the same memory at once. */
        for (int i = 1; i < group->size && !ith_local_ended(group->world); i++) {
            int peer = (self->rank + i) % group->size;
            if (mine->from[peer] == LOCAL_POSTED)
                any |= move_with(self, mine, peer, false, false);
            if (mine->to[peer] == LOCAL_POSTED && !ith_local_ended(group->world))
                any |= move_with(self, mine, peer, true, false);
        }
    }
    return any;
}

/* ---- Posting and waiting --------------------------------------------------------------------------------------- */

static void local_alive(void *state)
{
    const local_state *self = state;
    int64_t now = (int64_t)(ith_clock_seconds() * 1e9);
    atomic_store_explicit(&self->group->world->life[self->world_rank], now, memory_order_relaxed);
}

/* Sets the transfer states of a new request: posted for each rank that data are sent to or received from. Data that the
 * rank sends to itself are not counted, because the library has copied them. */
static void mark(local_request *request, int rank, int ranks)
{
    const ith_operation *e = &request->posted;
    memset(request->to, LOCAL_NONE, (size_t)ranks);
    memset(request->from, LOCAL_NONE, (size_t)ranks);
    for (int64_t i = 0; i < e->send_count; i++)
        request->to[e->sends[i].peer] = LOCAL_POSTED;
    for (int64_t i = 0; i < e->receive_count; i++)
        request->from[e->receives[i].peer] = LOCAL_POSTED;
    request->to[rank] = request->from[rank] = LOCAL_NONE;
    request->sorted = ith_pairs_sorted(e);
    request->pending = 0;
    for (int peer = 0; peer < ranks; peer++)
        request->pending += (request->to[peer] == LOCAL_POSTED) + (request->from[peer] == LOCAL_POSTED);
}

/* Serves the peers that have posted the exchange before this rank: copies small data, so that no peer need wake up for
 * it, and wakes the peers that have large data to copy. A peer that posts later finds this rank's request. */
static void serve(const local_state *self, local_request *mine)
{
    local_group *group = self->group;
    for (int i = 1; i < group->size && mine->pending && !ith_local_ended(group->world); i++) {
        int peer = (self->rank + i) % group->size;
        if (group->exchanges[peer] <= mine->number)
            continue;
        if (mine->from[peer] == LOCAL_POSTED)
            move_with(self, mine, peer, false, true);
        if (mine->to[peer] == LOCAL_POSTED && !ith_local_ended(group->world))
            move_with(self, mine, peer, true, true);
        if (mine->from[peer] == LOCAL_POSTED || mine->to[peer] == LOCAL_POSTED)
            pthread_cond_broadcast(&group->world->wake[group->members[peer]]);
    }
}

static ith_status local_exchange(void *state, const ith_operation *operation)
{
    const local_state *self = state;
    local_group *group = self->group;
    local_world *world = group->world;
    ith_status status = ITH_OK;
    pthread_mutex_lock(&world->lock);
    local_alive(state);
    if (ith_local_ended(world)) {
        status = ith_local_settle(self);
    } else {
        local_request *mine = request_of(group, self->rank, operation->request);
        mine->posted = *operation;
        mine->number = group->exchanges[self->rank]++;
        mark(mine, self->rank, group->size);
        group->changes++;
        serve(self, mine);
        status = ith_local_ended(world) ? ith_local_settle(self) : ITH_OK;
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

static ith_status local_wait(void *state, int64_t request, double seconds, bool *done)
{
    local_state *self = state;
    local_world *world = self->group->world;
    local_request *mine = request_of(self->group, self->rank, request);
    double until = seconds > 0 ? ith_clock_seconds() + seconds : 0, whole = floor(until);
    struct timespec deadline = {.tv_sec = (time_t)whole, .tv_nsec = (long)((until - whole) * 1e9)};
    bool late = false;
    pthread_mutex_lock(&world->lock);
    while (!ith_local_ended(world) && mine->pending && !late) {
        const int64_t changes = self->group->changes + world->leavers;
        if (self->changes != changes) { /* otherwise there is nothing new to copy */
            self->changes = changes;
            if (advance(self) || ith_local_ended(world))
                continue;
        }
        late = seconds <= 0 || pthread_cond_timedwait(&world->wake[self->world_rank], &world->lock, &deadline);
    }
    ith_status status = ith_local_ended(world) ? ith_local_settle(self) : ITH_OK;
    *done = !status && !mine->pending;
    pthread_mutex_unlock(&world->lock);
    return status;
}

/* Finds the peer that has been silent for longest, among the peers that have not posted their part of the exchange.
 * Stores its rank in *rank and returns the seconds since its last sign of life. Peers that have posted are left out,
 * because copying needs no action of theirs. */
static double local_silence(void *state, int64_t request, int *rank)
{
    const local_state *self = state;
    const local_group *group = self->group;
    int64_t oldest = INT64_MAX;
    *rank = -1;
    pthread_mutex_lock(&group->world->lock);
    const local_request *mine = request_of(group, self->rank, request);
    for (int peer = 0; peer < group->size; peer++) {
        int64_t life = atomic_load_explicit(&group->world->life[group->members[peer]], memory_order_relaxed);
        bool open = mine->to[peer] == LOCAL_POSTED || mine->from[peer] == LOCAL_POSTED;
        if (open && group->exchanges[peer] <= mine->number && life < oldest) {
            oldest = life;
            *rank = peer;
        }
    }
    pthread_mutex_unlock(&group->world->lock);
    return *rank < 0 ? 0 : ith_clock_seconds() - (double)oldest * 1e-9;
}

/* ---- Failures and notices -------------------------------------------------------------------------------------- */

static void local_abort(void *state, ith_status status, const char *sentence)
{
    const local_state *self = state;
    local_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    end_work(world, status, "%s", sentence);
    ith_local_settle(self);
    pthread_mutex_unlock(&world->lock);
}

static ith_status local_failure(void *state, const char **sentence)
{
    const local_world *world = ((const local_state *)state)->group->world;
    ith_status status = ith_local_ended(world);
    *sentence = status ? world->sentence : "";
    return status;
}

static void local_notify(void *state, int64_t number)
{
    atomic_store(&((const local_state *)state)->group->notice, number);
}

static int64_t local_noticed(void *state)
{
    return atomic_load_explicit(&((const local_state *)state)->group->notice, memory_order_relaxed);
}

/* ---- Sharing memory -------------------------------------------------------------------------------------------- */

/* group->sharing marks the ranks that may use other ranks' memory. local_share takes the lock, so it runs either before
 * or after the failure that ends the work of all ranks. A rank that waits in local_drain after this failure therefore
 * sees every rank that still uses its memory. */

static ith_status local_share(void *state)
{
    const local_state *self = state;
    local_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    ith_status status = ith_local_ended(world) ? ith_local_settle(self) : ITH_OK;
    self->group->sharing[self->rank] = !status;
    pthread_mutex_unlock(&world->lock);
    return status;
}

static void local_unshare(void *state)
{
    const local_state *self = state;
    local_group *group = self->group;
    pthread_mutex_lock(&group->world->lock);
    group->sharing[self->rank] = false;
    for (int rank = 0; rank < group->size && group->world->drainers; rank++)
        pthread_cond_broadcast(&group->world->wake[group->members[rank]]);
    pthread_mutex_unlock(&group->world->lock);
}

/* Waits until no other rank uses this rank's memory. Every rank calls local_unshare before local_drain, so no two ranks
 * wait for each other. */
static void local_drain(void *state)
{
    const local_state *self = state;
    local_group *group = self->group;
    pthread_mutex_lock(&group->world->lock);
    group->world->drainers++;
    for (int peer = 0; peer < group->size; peer++)
        while (peer != self->rank && group->sharing[peer])
            pthread_cond_wait(&group->world->wake[self->world_rank], &group->world->lock);
    group->world->drainers--;
    pthread_mutex_unlock(&group->world->lock);
}

const ith_transport ith_local_transport = {
    .struct_size = sizeof(ith_transport),
    .name = "local",
    .requests = LOCAL_REQUESTS,
    .exchange = local_exchange,
    .wait = local_wait,
    .failure = local_failure,
    .split = ith_local_split,
    .abort = local_abort,
    .close = ith_local_close,
    .leave = ith_local_leave,
    .alive = local_alive,
    .silence = local_silence,
    .notify = local_notify,
    .noticed = local_noticed,
    .share = local_share,
    .unshare = local_unshare,
    .drain = local_drain,
};
