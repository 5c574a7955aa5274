/* SPDX-License-Identifier: Apache-2.0 */
/* Sends datagrams: offers, asks, data and credits.
 *
 * A round of sending visits all requests of a rank, the oldest exchange first, and sends each peer at most one datagram
 * with data. So the data that is needed soonest goes first, and peers and groups share the link. Rounds repeat until
 * nothing is due or the link is full. */
#include "wire_state.h"

#include "../../base/size.h"
#include "../pairs.h"

#include <string.h>

#define ROUNDS 16 /* rounds of sending before the transport looks for datagrams that have come */

/* A datagram's buffer from the link, with its head filled in; NULL if the link is full. */
static wire_head *reserve(const wire_state *self, int peer, wire_kind kind, const wire_request *request, int64_t data)
{
    const wire_group *group = self->group;
    const ith_link *link = &group->world->link;
    int to = group->members[peer];
    wire_head *head = link->reserve(link->self, group->world->process_of[to], (int64_t)sizeof(wire_head) + data);
    if (!head)
        return NULL;
    *head = (wire_head){.kind = (int32_t)kind, .from = self->world_rank, .to = to, .group = group->number};
    head->taken = self->peers[peer].taken;
    if (request) {
        head->exchange = request->number;
        head->tag = request->posted.tag;
    }
    return head;
}

/* Sends the datagram that `reserve` returned. Returns its number among the datagrams to that process. */
static int64_t send(wire_state *self, int peer, int64_t data)
{
    wire_world *world = self->group->world;
    int process = world->process_of[self->group->members[peer]];
    world->link.send(world->link.self, process, (int64_t)sizeof(wire_head) + data);
    self->peers[peer].known = self->peers[peer].taken;
    return ++world->processes[process].sent;
}

static void describe(wire_head *head, const wire_flow *flow)
{
    head->regions = flow->regions, head->bytes = flow->bytes, head->sizes = flow->sizes;
}

/* All data of a flow have been given to the link. */
static void close_sent(wire_request *request, wire_flow *flow, int64_t ticket)
{
    flow->progress = WIRE_SENT;
    flow->ticket = ticket;
    request->unsent--;
    request->unsettled++;
}

/* Announces a flow, with its data if it is small. Returns false if the peer has no room for the offer or the link is
 * full: later offers to the peer then wait too. */
static bool send_offer(wire_state *self, wire_request *request, int peer)
{
    wire_peer *to = &self->peers[peer];
    wire_flow *flow = &request->out[peer];
    int64_t data = flow->bytes <= WIRE_SMALL ? flow->bytes : 0;
    if (to->offered - to->taken_there >= WIRE_WINDOW)
        return false;
    wire_head *head = reserve(self, peer, WIRE_OFFER, request, data);
    if (!head)
        return false;
    describe(head, flow);
    head->number = to->offered++;
    ith_wire_stream(request, peer, true, (char *)(head + 1), data);
    flow->offered = true;
    int64_t ticket = send(self, peer, data);
    if (flow->bytes <= WIRE_SMALL)
        close_sent(request, flow, ticket);
    return true;
}

static bool send_ask(wire_state *self, wire_request *request, int peer)
{
    wire_flow *flow = &request->in[peer];
    wire_head *head = reserve(self, peer, WIRE_ASK, request, 0);
    if (!head)
        return false;
    describe(head, flow);
    send(self, peer, 0);
    flow->asked = true;
    request->unsent--;
    return true;
}

/* The most bytes of data in a datagram to a peer. */
static int64_t most_data(const wire_state *self, int peer)
{
    const wire_world *world = self->group->world;
    const ith_link_process *all = world->link.all;
    int there = world->process_of[self->group->members[peer]];
    return all[there].host == all[world->link.process].host ? WIRE_DATA_BYTES : WIRE_FAR_BYTES;
}

/* Sends the next data of a flow, or tells that the rest does not come. */
static bool send_data(wire_state *self, wire_request *request, int peer)
{
    wire_flow *flow = &request->out[peer];
    const bool skip = ith_pairs_unwanted(&request->posted);
    int64_t left = flow->bytes - flow->moved, bytes = skip ? 0 : ith_min64(left, most_data(self, peer));
    wire_head *head = reserve(self, peer, skip ? WIRE_SKIP : WIRE_DATA, request, bytes);
    if (!head)
        return false;
    head->number = flow->moved;
    head->bytes = skip ? left : bytes;
    ith_wire_stream(request, peer, true, (char *)(head + 1), bytes);
    int64_t ticket = send(self, peer, bytes);
    /* The link has room again because the peer's process has taken earlier data: on a slow link that is a sign of life.
     */
    wire_life *life = &self->group->world->lives[self->group->members[peer]];
    atomic_store_explicit(&life->life, ith_watch_now_ns(), memory_order_relaxed);
    if (skip || bytes == left)
        close_sent(request, flow, ticket);
    return true;
}

/* Sends the datagrams of a request that are due to one peer. Returns whether it sent any. */
static bool send_to(wire_state *self, wire_request *request, int peer)
{
    wire_peer *to = &self->peers[peer];
    wire_flow *in = &request->in[peer], *out = &request->out[peer];
    bool any = false;
    if (in->progress == WIRE_OPEN && in->bytes > WIRE_SMALL && !in->asked)
        any |= send_ask(self, request, peer);
    if (out->progress != WIRE_OPEN)
        return any;
    if (!out->offered && !out->asked) { /* a peer that has asked needs no offer */
        bool sent = !to->held && send_offer(self, request, peer);
        to->held = !sent;
        return any || sent;
    }
    if (out->asked && out->bytes > WIRE_SMALL && !to->served) {
        to->served = send_data(self, request, peer);
        any |= to->served;
    }
    return any;
}

/* Tells peers how many of their offers this rank has taken, unless they know of most of them. */
static bool send_credits(wire_state *self)
{
    bool any = false;
    self->owes = false;
    for (int peer = 0; peer < self->group->size; peer++) {
        const wire_peer *to = &self->peers[peer];
        if (to->taken - to->known < WIRE_WINDOW / 2)
            continue;
        if (!reserve(self, peer, WIRE_CREDIT, NULL, 0)) {
            self->owes = true;
            continue;
        }
        send(self, peer, 0);
        any = true;
    }
    return any;
}

/* One round of sending. Returns whether it sent anything. */
static bool send_round(wire_state *self)
{
    const wire_group *group = self->group;
    bool any = false;
    for (int peer = 0; peer < group->size; peer++)
        self->peers[peer].held = self->peers[peer].served = false;
    for (int64_t number = ith_max64(self->posted - WIRE_REQUESTS, 0); number < self->posted; number++) {
        wire_request *request = ith_wire_request(self, number);
        for (int i = 1; request && request->unsent && i < group->size; i++) {
            int peer = (self->rank + i) % group->size;
            if (!ith_wire_is_near(group->world, group->members[peer]))
                any |= send_to(self, request, peer);
        }
    }
    return any;
}

/* Marks a flow as done if its datagrams need no more calls, or if its receiver has left. */
static void settle_flows(wire_state *self)
{
    const wire_group *group = self->group;
    const wire_world *world = group->world;
    for (int i = 0; i < WIRE_REQUESTS; i++) {
        wire_request *request = &self->requests[i];
        for (int peer = 0; request->in_flight && request->unsettled && peer < group->size; peer++) {
            wire_flow *flow = &request->out[peer];
            int process = world->process_of[group->members[peer]];
            if (flow->progress != WIRE_SENT || (world->link.settled(world->link.self, process) < flow->ticket &&
                                                !world->lives[group->members[peer]].left))
                continue;
            request->unsettled--;
            ith_wire_finish(self, request, flow);
        }
    }
}

/* Calls a function for the states of all ranks of this process. Begins with another group each time. */
static bool visit(wire_world *world, bool (*visitor)(wire_state *self))
{
    bool any = false;
    unsigned groups = 0;
    for (const wire_group *group = world->groups; group; group = group->next)
        groups++;
    wire_group *group = world->groups;
    for (unsigned i = 0; groups && i < world->turn % groups; i++)
        group = group->next;
    for (unsigned i = 0; i < groups; i++) {
        for (int rank = 0; rank < world->ranks; rank++) {
            int member = group->index[world->first + rank];
            if (member >= 0 && group->near[member])
                any |= visitor(group->near[member]);
        }
        group = group->next ? group->next : world->groups;
    }
    return any;
}

static bool send_state(wire_state *self)
{
    bool any = send_round(self);
    return (self->owes && send_credits(self)) || any;
}

static bool settle_state(wire_state *self)
{
    settle_flows(self);
    return false;
}

bool ith_wire_send(wire_world *world)
{
    bool any = false, more = world->link.processes > 1;
    for (int i = 0; more && i < ROUNDS; i++) {
        more = visit(world, send_state);
        any |= more;
        world->turn++;
    }
    if (world->link.processes > 1)
        visit(world, settle_state);
    return any;
}
