/* SPDX-License-Identifier: Apache-2.0 */
/* Takes datagrams. Every field of a datagram is checked before it is used: a datagram that no correct process sends
 * ends the group. Sizes and tags of two ranks are compared before data is written. */
#include "wire_state.h"

#include <string.h>

#define DATAGRAMS 32 /* datagrams that are taken before the transport sends again */

/* A datagram for a state, from a far rank of its group. */
typedef struct arrival {
    wire_state *self;
    wire_peer *from;
    int peer; /* the sender's rank in the group */
    wire_head head;
    const char *data;
    int64_t bytes; /* of data */
} arrival;

/* Ends the group because of a datagram that no correct process sends. */
static void reject(wire_world *world, int process, const char *reason)
{
    const ith_link_process *p = &world->link.all[process];
    ith_wire_end(world, ITH_ERR_INTERNAL, "rank %d got a wrong datagram from rank %d (host %s, pid %lld): %s",
                 world->first, p->first_rank, p->name, (long long)p->pid, reason);
}

static void reject_arrival(const arrival *a, const char *reason)
{
    wire_world *world = a->self->group->world;
    reject(world, world->process_of[a->head.from], reason);
}

/* Compares an offer or an ask of a peer with this rank's flow of the same exchange. Ends the group if they differ.
 * expects: whether the peer receives the flow. */
static bool agrees(const wire_state *self, const wire_request *request, int peer, const wire_head *head, bool expects)
{
    wire_world *world = self->group->world;
    const wire_flow *flow = expects ? &request->out[peer] : &request->in[peer];
    bool same_tag = head->tag == request->posted.tag;
    if (same_tag && head->regions == flow->regions && head->bytes == flow->bytes && head->sizes == flow->sizes)
        return true;
    char names[2][WIRE_NAME], operation[WIRE_OPERATION];
    const char *here = ith_wire_name(world, self->world_rank, names[0]);
    const char *there = ith_wire_name(world, self->group->members[peer], names[1]);
    ith_wire_posted(self, request, operation);
    if (!same_tag)
        ith_wire_end(world, ITH_ERR_ARGUMENT,
                     "%s is in %s, and %s in another operation: all ranks need the same operations in order", here,
                     operation, there);
    else
        ith_wire_end(world, ITH_ERR_ARGUMENT,
                     "%s and %s disagree about data from the %s in %s: %lld regions of %lld bytes in all at the first, "
                     "%lld of %lld at the second",
                     here, there, expects ? "first" : "second", operation, (long long)flow->regions,
                     (long long)flow->bytes, (long long)head->regions, (long long)head->bytes);
    return false;
}

/* ---- Offers ---------------------------------------------------------------------------------------------------- */

/* Takes an offer for an exchange that this rank has posted, with its data if the flow is small. */
static void accept_offer(wire_state *self, wire_request *request, int peer, const wire_head *offer, const char *data)
{
    wire_flow *flow = &request->in[peer];
    self->peers[peer].taken++;
    self->owes = true;
    if (!agrees(self, request, peer, offer, false))
        return;
    if (offer->bytes > WIRE_SMALL)
        return;
    ith_wire_stream(request, peer, false, (char *)data, offer->bytes);
    ith_wire_finish(self, request, flow);
}

/* Ends the group because a rank receives data that another rank does not send. */
static void end_by_missing(const wire_state *self, const wire_request *request, int peer)
{
    char operation[WIRE_OPERATION];
    ith_wire_end_unpaired(self->group->world, self->world_rank, self->group->members[peer], false,
                          ith_wire_posted(self, request, operation));
}

/* Ends the group because a rank sends or expects data in an exchange that is over on this rank. */
static void end_by_latecomer(const arrival *a)
{
    char operation[WIRE_OPERATION];
    ith_wire_end_unpaired(a->self->group->world, a->head.from, a->self->world_rank, a->head.kind == WIRE_OFFER,
                          ith_wire_operation("an operation", a->head.exchange, a->head.group, operation));
}

/* Ends the group if this rank expects small data from a peer in an exchange before `exchange`, which the peer has
 * reached: its offers come in the order of exchanges. */
static void end_if_missing(const arrival *a)
{
    const wire_state *self = a->self;
    for (int i = 0; i < WIRE_REQUESTS; i++) {
        const wire_request *request = &self->requests[i];
        const wire_flow *flow = &request->in[a->peer];
        if (request->number < a->head.exchange && flow->progress == WIRE_OPEN && flow->bytes <= WIRE_SMALL)
            end_by_missing(self, request, a->peer);
    }
}

static void take_offer(const arrival *a)
{
    wire_state *self = a->self;
    const wire_head *head = &a->head;
    wire_peer *from = a->from;
    if (head->number != from->came || from->came - from->taken >= WIRE_WINDOW || head->exchange <= from->last)
        return reject_arrival(a, "an offer that is out of turn");
    if (head->regions < 1 || a->bytes != (head->bytes <= WIRE_SMALL ? head->bytes : 0))
        return reject_arrival(a, "an offer of another length than it says");
    from->last = head->exchange;
    from->came++;
    end_if_missing(a);
    wire_request *request = ith_wire_request(self, head->exchange);
    if (ith_wire_ended(self->group->world))
        return;
    if (request) { /* no offer waits before this one: the exchanges before have been posted */
        accept_offer(self, request, a->peer, head, a->data);
    } else if (head->exchange < self->posted) {
        end_by_latecomer(a);
    } else {
        from->offers[head->number % WIRE_WINDOW] = *head;
        memcpy(from->small[head->number % WIRE_WINDOW], a->data, (size_t)a->bytes);
    }
}

/* ---- Asks and data --------------------------------------------------------------------------------------------- */

/* Compares an ask with the request that it is for. Data may be sent if they agree. */
static void answer(wire_state *self, wire_request *request, int peer, wire_head *ask)
{
    request->out[peer].asked = agrees(self, request, peer, ask, true);
    ask->kind = 0;
}

static void take_ask(const arrival *a)
{
    wire_state *self = a->self;
    wire_head *ask = &a->from->asks[a->head.exchange % WIRE_REQUESTS];
    wire_request *request = ith_wire_request(self, a->head.exchange);
    if (ask->kind || a->bytes || a->head.regions < 1 || a->head.bytes <= WIRE_SMALL)
        return reject_arrival(a, "an ask that is wrong or comes twice");
    *ask = a->head;
    if (request && request->out[a->peer].asked)
        reject_arrival(a, "an ask for data that has been asked for");
    else if (request)
        answer(self, request, a->peer, ask);
    else if (a->head.exchange < self->posted)
        end_by_latecomer(a);
}

/* Takes data of a flow that this rank has asked for, or the news that the rest does not come. */
static void take_data(const arrival *a)
{
    wire_state *self = a->self;
    wire_request *request = ith_wire_request(self, a->head.exchange);
    wire_flow *flow = request ? &request->in[a->peer] : NULL;
    bool skip = a->head.kind == WIRE_SKIP;
    if (!flow || flow->progress != WIRE_OPEN || !flow->asked || a->head.number != flow->moved || a->head.bytes < 1 ||
        a->head.bytes > flow->bytes - flow->moved || a->bytes != (skip ? 0 : a->head.bytes) ||
        (skip && a->head.bytes != flow->bytes - flow->moved))
        return reject_arrival(a, "data that was not asked for");
    if (!skip)
        ith_wire_stream(request, a->peer, false, (char *)a->data, a->bytes);
    if (skip || flow->moved == flow->bytes)
        ith_wire_finish(self, request, flow);
}

void ith_wire_take_waiting(wire_state *self, wire_request *request)
{
    wire_world *world = self->group->world;
    for (int peer = 0; peer < self->group->size && !ith_wire_ended(world); peer++) {
        wire_peer *from = &self->peers[peer];
        wire_head *ask = &from->asks[request->number % WIRE_REQUESTS];
        int slot = (int)(from->taken % WIRE_WINDOW);
        if (ask->kind && ask->exchange == request->number)
            answer(self, request, peer, ask);
        if (ith_wire_ended(world) || from->came == from->taken)
            continue;
        const wire_flow *flow = &request->in[peer];
        if (from->offers[slot].exchange == request->number)
            accept_offer(self, request, peer, &from->offers[slot], from->small[slot]);
        else if (flow->progress == WIRE_OPEN && flow->bytes <= WIRE_SMALL) /* the peer is further than this exchange */
            end_by_missing(self, request, peer);
    }
}

/* ---- All datagrams --------------------------------------------------------------------------------------------- */

/* Finds the state that a datagram is for. Returns false if there is none. */
static bool find_state(wire_world *world, arrival *a)
{
    const wire_head *head = &a->head;
    for (wire_group *group = world->groups; group; group = group->next) {
        int to = group->index[head->to], from = group->index[head->from];
        if (group->number != head->group || to < 0)
            continue;
        if (from < 0 || !group->near[to])
            return false;
        a->self = group->near[to];
        a->from = &a->self->peers[from];
        a->peer = from;
        return true;
    }
    return false;
}

/* Notes that the sender of a datagram lives, and how many of this rank's offers it has taken. */
static bool note_sender(const arrival *a)
{
    wire_life *life = &a->self->group->world->lives[a->head.from];
    wire_peer *from = a->from;
    int64_t now = ith_watch_now_ns();
    if (a->head.taken < from->taken_there || a->head.taken > from->offered)
        return false;
    from->taken_there = a->head.taken;
    atomic_store_explicit(&life->life, now, memory_order_relaxed);
    atomic_store_explicit(&life->heard, now, memory_order_relaxed);
    atomic_store_explicit(&life->waits_for, -1, memory_order_relaxed);
    return true;
}

static void take_datagram(wire_world *world, int process, const char *data, int64_t bytes)
{
    arrival a = {.data = data + sizeof(wire_head), .bytes = bytes - (int64_t)sizeof(wire_head)};
    wire_head *head = &a.head;
    if (a.bytes < 0)
        return reject(world, process, "it is too short");
    memcpy(head, data, sizeof *head);
    if (head->from < 0 || head->from >= world->size || world->process_of[head->from] != process ||
        !ith_wire_is_near(world, head->to))
        return reject(world, process, "its ranks are wrong");
    if (head->kind < WIRE_OFFER || head->kind > WIRE_CREDIT || head->exchange < 0)
        return reject(world, process, "its kind is unknown");
    if (!find_state(world, &a))
        return; /* the rank has closed its state */
    if (!note_sender(&a))
        return reject(world, process, "it counts offers that were not sent");
    switch ((wire_kind)head->kind) {
    case WIRE_OFFER: take_offer(&a); break;
    case WIRE_ASK: take_ask(&a); break;
    case WIRE_DATA:
    case WIRE_SKIP: take_data(&a); break;
    case WIRE_CREDIT: break;
    }
}

bool ith_wire_take(wire_world *world)
{
    const ith_link *link = &world->link;
    const void *data = NULL;
    int taken = 0, process = -1;
    for (; taken < DATAGRAMS && link->processes > 1 && !ith_wire_ended(world); taken++) {
        int64_t bytes = link->receive(link->self, &process, &data);
        if (bytes == 0)
            break;
        if (bytes > 0 && process >= 0 && process < link->processes && process != link->process) {
            world->processes[process].received++;
            take_datagram(world, process, data, bytes);
        } else {
            ith_wire_end(world, ITH_ERR_IO, "rank %d lost its link over %s: %s", world->first, link->name,
                         bytes < 0 && data ? (const char *)data : "a datagram from no process");
        }
    }
    return taken > 0;
}
