/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process look at one another's memory, between a gather of cards and a barrier.
 *
 * A rank that shares holds a lease on the memory of every other rank of its group until it gives it back, which its
 * unshare does first of all, whatever has become of the world. A rank's unshare then waits for the others', and if that
 * wait fails it waits on until no lease is left that another holds: a rank that is still computing has seen nothing of
 * the end, and comes to its own unshare when it is done. Nobody holds back a lease while waiting for one of the same
 * group, so that these waits come to an end. For the same reason other failing calls wait for copies alone: whoever has
 * a share still has an unshare to call, and only after that may its memory go.
 *
 * A share that fails has taken no lease, but others may have: it waits for them as unshare does.
 */
#include "local.h"

static void wake_members(const local_group *group)
{
    for (int rank = 0; rank < group->size; rank++)
        pthread_cond_broadcast(&group->world->wake[group->seats[rank]]);
}

/* Under the lock. True if there was something to give. */
static bool give_back(local_group *group, int rank)
{
    if (!group->sharing[rank])
        return false;
    group->sharing[rank] = false;
    wake_members(group);
    return true;
}

/* Waits until no other rank looks at this one's memory. Under the lock, with the world over, so that nobody begins. */
static void drain_lookers(const local_group *group, int rank)
{
    for (int peer = 0; peer < group->size; peer++)
        while (peer != rank && group->sharing[peer])
            pthread_cond_wait(&group->world->wake[group->seats[rank]], &group->world->lock);
}

ith_status ith_local_share(ith_comm *comm, const void *mine, int64_t bytes, void *cards)
{
    local_comm *self = local_of(comm);
    local_group *group = self->group;
    local_world *world = group->world;
    if (bytes < 0 || (bytes > 0 && (!mine || !cards)))
        return ith_local_refuse(comm, LOCAL_SHARE, "bytes is negative, or a pointer is NULL");
    if (group->sharing[comm->rank])
        return ith_local_refuse(comm, LOCAL_SHARE, "the rank shares already; call unshare first");
    ith_request wanted = {.kind = LOCAL_SHARE, .mine = mine, .size = bytes, .data = cards}, *request = NULL;
    ith_status status = ith_local_post(comm, &wanted, &request);
    if (!status)
        status = comm->ops->wait(comm, &request);
    pthread_mutex_lock(&world->lock);
    if (!status && world->status)
        status = ith_local_ended(self);
    if (status)
        drain_lookers(group, comm->rank);
    group->sharing[comm->rank] = !status;
    pthread_mutex_unlock(&world->lock);
    return status;
}

ith_status ith_local_unshare(ith_comm *comm, float *values, int64_t count)
{
    local_group *group = local_of(comm)->group;
    local_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    bool shared = give_back(group, comm->rank);
    pthread_mutex_unlock(&world->lock);
    if (!shared)
        return ith_local_refuse(comm, LOCAL_UNSHARE, "the rank does not share; call share first");
    ith_request wanted = {.kind = LOCAL_UNSHARE, .data = values, .size = count, .operation = ITH_REDUCE_MAX};
    ith_request *request = NULL;
    ith_status status = ith_local_post(comm, &wanted, &request);
    if (!status)
        status = comm->ops->wait(comm, &request);
    if (status) {
        pthread_mutex_lock(&world->lock);
        drain_lookers(group, comm->rank);
        pthread_mutex_unlock(&world->lock);
    }
    return status;
}

static void end_for_leaving(local_comm *self)
{
    ith_local_end(self->group->world, ITH_ERR_ABORTED, "rank %d left while it looked at the memory of other ranks",
                  self->seat);
}

void ith_local_forsake(local_comm *self)
{
    local_group *group = self->group;
    if (!give_back(group, self->base.rank))
        return;
    end_for_leaving(self);
    drain_lookers(group, self->base.rank);
}

void ith_local_let_go(ith_comm *comm)
{
    local_comm *self = local_of(comm);
    local_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    bool any = false;
    for (local_group *group = world->groups; group; group = group->next)
        for (int rank = 0; rank < group->size; rank++)
            any |= group->seats[rank] == self->seat && give_back(group, rank);
    if (any)
        end_for_leaving(self);
    pthread_mutex_unlock(&world->lock);
}
