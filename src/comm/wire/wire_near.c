/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process: one copy from the sender's memory to the receiver's, and the use of one another's memory.
 *
 * Once sender and receiver have posted an exchange, the first of them that waits copies: it marks the flow as moving on
 * both sides, copies without the lock, and marks it as done. After the group has ended no copy begins. A function
 * returns the failure only when no copy uses its rank's memory any more (ith_wire_settle), because the caller may then
 * free that memory. */
#include "wire_state.h"

#include "../pairs.h"

ith_status ith_wire_settle(const wire_state *self)
{
    wire_world *world = self->group->world;
    int local = self->world_rank - world->first;
    while (world->busy[local])
        pthread_cond_wait(&world->wake[local], &world->lock);
    return ith_wire_ended(world);
}

/* Copies all data that `source` sends to `target` in an exchange that both have posted. mine: the request of the rank
 * that calls this. Releases the lock during a large copy. */
static void move(wire_state *source, wire_request *from, wire_state *target, wire_request *to, const wire_request *mine)
{
    wire_world *world = source->group->world;
    wire_flow *out = &from->out[target->rank], *in = &to->in[source->rank];
    int *busy[2] = {&world->busy[source->world_rank - world->first], &world->busy[target->world_rank - world->first]};
    char why[128];
    const ith_operation *one = &from->posted, *other = &to->posted;
    const ith_pairs_part sends = ith_pairs_with(one->sends, one->send_count, from->sorted, target->rank);
    const ith_pairs_part receives = ith_pairs_with(other->receives, other->receive_count, to->sorted, source->rank);
    int64_t bytes = ith_pairs_walk(sends, target->rank, receives, source->rank, false, why, sizeof why);
    if (bytes < 0) {
        char names[2][WIRE_NAME], operation[WIRE_OPERATION];
        ith_wire_end(world, ITH_ERR_ARGUMENT, "%s and %s disagree about data from the first in %s: %s",
                     ith_wire_name(world, source->world_rank, names[0]),
                     ith_wire_name(world, target->world_rank, names[1]), ith_wire_posted(source, from, operation), why);
        return;
    }
    out->progress = in->progress = WIRE_MOVING;
    if (bytes <= WIRE_SMALL) {
        ith_pairs_walk(sends, target->rank, receives, source->rank, true, why, sizeof why);
    } else {
        ++*busy[0], ++*busy[1];
        pthread_mutex_unlock(&world->lock);
        if (!ith_pairs_unwanted(&mine->posted))
            ith_pairs_walk(sends, target->rank, receives, source->rank, true, why, sizeof why);
        pthread_mutex_lock(&world->lock);
        --*busy[0], --*busy[1];
    }
    ith_wire_finish(source, from, out);
    ith_wire_finish(target, to, in);
    if (ith_wire_ended(world)) {
        ith_wire_rouse(world, source->world_rank);
        ith_wire_rouse(world, target->world_rank);
    }
}

/* Ends the group because two ranks have posted different operations as one exchange, or because the data that one of
 * them sends or receives are missing on the other. theirs: the other rank's request; NULL: it has none any more. */
static void end_by_difference(const wire_state *self, const wire_request *mine, const wire_state *other,
                              const wire_request *theirs, bool sending)
{
    wire_world *world = self->group->world;
    char names[2][WIRE_NAME], operation[WIRE_OPERATION];
    ith_wire_posted(self, mine, operation);
    if (theirs && theirs->posted.tag != mine->posted.tag)
        ith_wire_end(world, ITH_ERR_ARGUMENT,
                     "%s is in %s, and %s in %s%s: all ranks need the same operations in order",
                     ith_wire_name(world, self->world_rank, names[0]), operation,
                     ith_wire_name(world, other->world_rank, names[1]), theirs->posted.what,
                     ith_pairs_difference(&mine->posted, &theirs->posted));
    else
        ith_wire_end_unpaired(world, self->world_rank, other->world_rank, sending, operation);
}

/* Copies the data that this rank sends to a near peer (if `sending`) or receives from it, if both have posted the
 * exchange. Ends the group if the two ranks are in different operations. Returns whether it copied. */
static bool move_with(wire_state *self, wire_request *mine, int peer, bool sending)
{
    wire_world *world = self->group->world;
    wire_state *other = self->group->near[peer];
    int there = self->group->members[peer];
    if (!other || other->posted <= mine->number) {
        if (ith_wire_has_left(world, there))
            ith_wire_end_by_leaver(self, mine, there);
        return false;
    }
    wire_request *theirs = &other->requests[mine->number % WIRE_REQUESTS];
    bool same = theirs->number == mine->number;
    wire_progress progress = WIRE_NONE;
    if (same)
        progress = (sending ? theirs->in : theirs->out)[self->rank].progress;
    if (progress == WIRE_NONE || theirs->posted.tag != mine->posted.tag)
        end_by_difference(self, mine, other, same ? theirs : NULL, sending);
    if (ith_wire_ended(world) || progress != WIRE_OPEN)
        return false;
    if (sending)
        move(self, mine, other, theirs, mine);
    else
        move(other, theirs, self, mine, mine);
    return true;
}

bool ith_wire_copy_near(wire_state *self)
{
    const wire_group *group = self->group;
    const wire_world *world = group->world;
    bool any = false;
    for (int i = 0; i < WIRE_REQUESTS; i++) {
        wire_request *mine = &self->requests[i];
        /* Each rank begins with the next rank, so that few ranks read the same memory at once. */
        for (int j = 1; j < group->size && mine->in_flight && mine->pending; j++) {
            int peer = (self->rank + j) % group->size;
            if (!ith_wire_is_near(world, group->members[peer]))
                continue;
            if (mine->in[peer].progress == WIRE_OPEN && !ith_wire_ended(world))
                any |= move_with(self, mine, peer, false);
            if (mine->out[peer].progress == WIRE_OPEN && !ith_wire_ended(world))
                any |= move_with(self, mine, peer, true);
        }
    }
    return any;
}

/* ---- Sharing memory -------------------------------------------------------------------------------------------- */

/* The lock orders this call before or after the failure that ends the group. A rank that drains after the failure
 * therefore sees every rank that still uses its memory. */
ith_status ith_wire_share(void *state)
{
    wire_state *self = state;
    wire_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    ith_status status = ith_wire_ended(world) ? ith_wire_settle(self) : ITH_OK;
    self->sharing = !status;
    pthread_mutex_unlock(&world->lock);
    return status;
}

void ith_wire_unshare(void *state)
{
    wire_state *self = state;
    wire_group *group = self->group;
    pthread_mutex_lock(&group->world->lock);
    self->sharing = false;
    for (int peer = 0; peer < group->size; peer++)
        if (group->near[peer])
            ith_wire_rouse(group->world, group->members[peer]);
    pthread_mutex_unlock(&group->world->lock);
}

void ith_wire_drain(void *state)
{
    wire_state *self = state;
    const wire_group *group = self->group;
    wire_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    for (int peer = 0; peer < group->size; peer++)
        while (peer != self->rank && group->near[peer] && group->near[peer]->sharing)
            pthread_cond_wait(&world->wake[self->world_rank - world->first], &world->lock);
    pthread_mutex_unlock(&world->lock);
}
