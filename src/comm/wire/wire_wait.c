/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the transport over a link: posting and waiting.
 *
 * The transport starts no thread: `exchange`, `wait` and `alive` of any rank move the data of all ranks of the process
 * (pump). While ranks wait, the thread of one of them watches the link: it polls for a short time, then rests
 * in the link. The other threads sleep on conditions. The watcher wakes a thread whose request is done, and wakes
 * another to watch when it stops. */
#include "wire.h"
#include "wire_state.h"

#include "../pairs.h"

#include <sched.h>

#define POLL_NS 50000 /* a watcher polls for this time after the last datagram before it rests */

/* Moves everything that can move without waiting. Returns whether any datagram moved. */
static bool pump(wire_world *world)
{
    ith_wire_hear(world);
    bool any = !ith_wire_ended(world) && ith_wire_take(world);
    return (!ith_wire_ended(world) && ith_wire_send(world)) || any;
}

static ith_status wire_exchange(void *state, const ith_operation *operation)
{
    wire_state *self = state;
    wire_world *world = self->group->world;
    wire_request *request = &self->requests[operation->request];
    ith_wire_give_life(world, self->world_rank, -1);
    pthread_mutex_lock(&world->lock);
    pump(world); /* first: an earlier failure counts more than a mismatch that this exchange shows */
    if (!ith_wire_ended(world)) {
        request->posted = *operation;
        request->sorted = ith_pairs_sorted(operation);
        request->number = self->posted++;
        request->in_flight = true;
        ith_wire_open_flows(self, request);
        ith_wire_take_waiting(self, request);
    }
    if (!ith_wire_ended(world))
        ith_wire_send(world);
    ith_status status = ith_wire_ended(world) ? ith_wire_settle(self) : ITH_OK;
    pthread_mutex_unlock(&world->lock);
    return status;
}

/* Ends the group if a far rank has left while the request waits for it. */
static void look_for_leavers(const wire_state *self, const wire_request *request)
{
    const wire_world *world = self->group->world;
    for (int peer = 0; peer < self->group->size; peer++) {
        int there = self->group->members[peer];
        bool open = request->in[peer].progress == WIRE_OPEN || request->out[peer].progress == WIRE_OPEN;
        if (open && !ith_wire_is_near(world, there) && ith_wire_has_left(world, there))
            ith_wire_end_by_leaver(self, request, there);
    }
}

/* Sleeps on the condition of the rank until `deadline`. */
static void sleep_until(wire_state *self, int64_t deadline)
{
    wire_world *world = self->group->world;
    int local = self->world_rank - world->first;
    struct timespec time = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    world->waiting[local] = true;
    pthread_cond_timedwait(&world->wake[local], &world->lock, &time);
    world->waiting[local] = false;
}

/* Watches the link for a moment: lets other threads run, or rests if nothing has moved since `moved`. */
static void watch(wire_world *world, int64_t now, int64_t moved, int64_t deadline)
{
    pthread_mutex_unlock(&world->lock);
    if (now - moved < POLL_NS)
        sched_yield();
    else
        world->link.rest(world->link.self, (double)(deadline - now) * 1e-9);
    pthread_mutex_lock(&world->lock);
}

/* Wakes a thread that sleeps, so that it watches the link from now on. */
static void hand_over_link(wire_world *world)
{
    world->watcher = -1;
    for (int i = 0; i < world->ranks; i++)
        if (world->waiting[i])
            return ith_wire_rouse(world, world->first + i);
}

/* Moves data until the request is done, the group has ended, or `deadline` has passed. */
static void await(wire_state *self, const wire_request *request, int64_t deadline)
{
    wire_world *world = self->group->world;
    int64_t now = ith_watch_now_ns(), moved = now;
    for (;;) {
        bool any = pump(world);
        any |= ith_wire_copy_near(self);
        if (!ith_wire_ended(world) && request->pending)
            look_for_leavers(self, request);
        if (ith_wire_ended(world) || !request->pending)
            break;
        now = ith_watch_now_ns();
        moved = any ? now : moved;
        if (now >= deadline)
            break;
        if (any)
            continue;
        ith_wire_give_life(world, self->world_rank, ith_wire_awaited(self, request));
        if (world->watcher < 0)
            world->watcher = self->world_rank;
        if (world->watcher == self->world_rank)
            watch(world, now, moved, deadline);
        else
            sleep_until(self, deadline);
    }
    if (world->watcher == self->world_rank)
        hand_over_link(world);
}

static ith_status wire_wait(void *state, int64_t number, double seconds, bool *done)
{
    wire_state *self = state;
    wire_world *world = self->group->world;
    wire_request *request = &self->requests[number];
    pthread_mutex_lock(&world->lock);
    await(self, request, ith_watch_now_ns() + (int64_t)(seconds * 1e9));
    ith_status status = ith_wire_ended(world) ? ith_wire_settle(self) : ITH_OK;
    *done = !status && !request->pending;
    request->in_flight = !status && !*done;
    if (*done)
        ith_wire_give_life(world, self->world_rank, -1);
    pthread_mutex_unlock(&world->lock);
    return status;
}

static void wire_alive(void *state)
{
    const wire_state *self = state;
    wire_world *world = self->group->world;
    ith_wire_give_life(world, self->world_rank, -1);
    if (pthread_mutex_trylock(&world->lock) == 0) {
        pump(world);
        pthread_mutex_unlock(&world->lock);
    }
}

static void wire_abort(void *state, ith_status status, const char *sentence)
{
    const wire_state *self = state;
    wire_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    ith_wire_end(world, status, "%s", sentence);
    ith_wire_settle(self);
    pthread_mutex_unlock(&world->lock);
}

static ith_status wire_failure(void *state, const char **sentence)
{
    const wire_world *world = ((const wire_state *)state)->group->world;
    ith_status status = ith_wire_ended(world);
    *sentence = status ? world->sentence : "";
    return status;
}

static void wire_place(void *state, int rank, ith_place *place)
{
    const wire_group *group = ((const wire_state *)state)->group;
    const wire_world *world = group->world;
    int process = world->process_of[group->members[rank]];
    const ith_link_process *p = &world->link.all[process];
    place->process = process, place->host = p->host, place->pid = p->pid;
    for (int i = 0; i < ITH_PLACE_NAME; i++)
        place->name[i] = i < ITH_PLACE_NAME - 1 ? p->name[i] : 0;
}

const ith_transport ith_wire_transport = {
    .struct_size = sizeof(ith_transport),
    .name = "wire",
    .requests = WIRE_REQUESTS,
    .exchange = wire_exchange,
    .wait = wire_wait,
    .failure = wire_failure,
    .split = ith_wire_split,
    .abort = wire_abort,
    .close = ith_wire_close,
    .leave = ith_wire_leave,
    .alive = wire_alive,
    .silence = ith_wire_silence,
    .notify = ith_wire_notify,
    .noticed = ith_wire_noticed,
    .share = ith_wire_share,
    .unshare = ith_wire_unshare,
    .drain = ith_wire_drain,
    .place = wire_place,
};
