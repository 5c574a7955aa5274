/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks that are threads of one process: made, split, left. Whoever leaves last frees. */
#include "local.h"

#include "../../base/size.h"
#include "../../base/team_limit.h"

#include <stdio.h>
#include <time.h>

#define DEFAULT_TIMEOUT_SECONDS 600

static void group_free(local_group *group)
{
    if (!group)
        return;
    ith_context *owner = group->owner;
    ith_free(owner, group->seats);
    ith_free(owner, group->posted);
    ith_free(owner, group->sharing);
    ith_free(owner, group->requests);
    ith_free(owner, group->ways);
    ith_free(owner, group);
    ith_context_release(owner);
}

/* From here on the group is freed by the last to leave it, or with the world. */
static void group_register(local_group *group)
{
    pthread_mutex_lock(&group->world->lock);
    group->next = group->world->groups;
    group->world->groups = group;
    pthread_mutex_unlock(&group->world->lock);
}

/* Under the lock. */
static void group_unregister(local_group *group)
{
    local_group **link = &group->world->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
}

static void world_free(local_world *world)
{
    if (!world)
        return;
    while (world->groups) {
        local_group *group = world->groups;
        world->groups = group->next;
        group_free(group);
    }
    for (int i = 0; i < world->wakes_made; i++)
        pthread_cond_destroy(&world->wake[i]);
    if (world->locks_made)
        pthread_mutex_destroy(&world->lock);
    ith_context *owner = world->owner;
    ith_free(owner, world->wake);
    ith_free(owner, world->busy);
    ith_free(owner, world->seat_handles);
    ith_free(owner, world->life);
    ith_free(owner, world);
    ith_context_release(owner);
}

/* The lock and the conditions; the C library may refuse them. */
static bool world_init_locks(local_world *world)
{
    if (pthread_mutex_init(&world->lock, NULL))
        return false;
    world->locks_made = 1;
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes))
        return false;
    bool made = !pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    for (int i = 0; made && i < world->size; i++) {
        made = !pthread_cond_init(&world->wake[i], &attributes);
        world->wakes_made += made;
    }
    pthread_condattr_destroy(&attributes);
    return made;
}

static ith_status world_create(ith_context *context, int ranks, local_world **out)
{
    ith_status status = ITH_ERR_MEMORY;
    local_world *world = ith_alloc_zero(context, 1, sizeof *world, "a group of ranks");
    if (!world)
        return status;
    world->owner = ith_context_hold(context);
    world->size = ranks;
    world->life = ith_alloc_zero(context, ranks, sizeof *world->life, "a group of ranks");
    world->busy = ith_alloc_zero(context, ranks, sizeof *world->busy, "a group of ranks");
    world->seat_handles = ith_alloc_zero(context, ranks, sizeof *world->seat_handles, "a group of ranks");
    world->wake = ith_alloc_zero(context, ranks, sizeof *world->wake, "a group of ranks");
    if (!world->busy || !world->seat_handles || !world->wake || !world->life)
        goto fail;
    if (!world_init_locks(world)) {
        status = ith_fail(context, ITH_ERR_MEMORY, "the system has no more locks for a group of %d ranks", ranks);
        goto fail;
    }
    *out = world;
    return ITH_OK;
fail:
    world_free(world);
    return status;
}

static ith_status group_create(ith_context *context, local_world *world, int ranks, local_group **out)
{
    int64_t slots = (int64_t)ranks * ITH_COMM_REQUESTS;
    local_group *group = ith_alloc_zero(context, 1, sizeof *group, "a group of ranks");
    if (!group)
        return ITH_ERR_MEMORY;
    group->world = world;
    group->owner = ith_context_hold(context);
    group->size = group->handles = ranks;
    group->seats = ith_alloc_zero(context, ranks, sizeof *group->seats, "a group of ranks");
    group->posted = ith_alloc_zero(context, ranks, sizeof *group->posted, "a group of ranks");
    group->sharing = ith_alloc_zero(context, ranks, sizeof *group->sharing, "a group of ranks");
    group->requests = ith_alloc_zero(context, slots, sizeof *group->requests, "the requests of a group of ranks");
    group->ways = ith_alloc_zero(context, 2 * slots, ranks, "the requests of a group of ranks");
    if (!group->seats || !group->posted || !group->sharing || !group->requests || !group->ways) {
        group_free(group);
        return ITH_ERR_MEMORY;
    }
    for (int64_t i = 0; i < slots; i++) {
        group->requests[i].sequence = -1;
        group->requests[i].to = group->ways + 2 * i * ranks;
        group->requests[i].from = group->ways + (2 * i + 1) * ranks;
    }
    *out = group;
    return ITH_OK;
}

/* With the caller's hold. */
static local_comm *comm_new(ith_context *context)
{
    local_comm *comm = ith_alloc_zero(context, 1, sizeof *comm, "a communicator");
    if (comm) {
        comm->base.ops = &ith_local_ops;
        comm->base.context = ith_context_hold(context);
        comm->base.timeout_seconds = DEFAULT_TIMEOUT_SECONDS;
        atomic_init(&comm->base.holders, 1);
    }
    return comm;
}

static ith_status comm_make_board(local_comm *comm, int ranks)
{
    comm->base.records = ith_alloc(comm->base.context, ranks, ITH_COMM_RECORD_BYTES, "a communicator");
    return comm->base.records ? ITH_OK : ITH_ERR_MEMORY;
}

static void comm_free(local_comm *comm)
{
    if (!comm)
        return;
    ith_context *context = comm->base.context;
    ith_free(context, comm->base.records);
    ith_free(context, comm);
    ith_context_release(context);
}

/* Under the lock, once others know of the group. */
static void comm_join(local_comm *comm, local_group *group, int rank, int seat)
{
    comm->base.rank = rank;
    comm->base.size = group->size;
    comm->base.over = &group->world->over;
    comm->base.stop = &group->stop;
    comm->group = group;
    comm->seat = seat;
    group->world->handles++;
    group->world->seat_handles[seat]++;
}

static ith_status check_arguments(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    ith_context *first = contexts && ranks > 0 ? contexts[0] : NULL;
    ith_status status = ith_need(first, contexts, "contexts");
    if (!status)
        status = ith_need(first, comms, "comms");
    if (!status && ranks < 1)
        status = ith_fail(first, ITH_ERR_ARGUMENT, "ranks is %d, and must be at least 1", ranks);
    if (!status)
        status = ith_thread_limit_check(first, "ranks", ranks);
    if (status)
        return status;
    for (int i = 0; i < ranks; i++)
        comms[i] = NULL;
    for (int i = 0; i < ranks; i++)
        if (!contexts[i])
            return ith_fail(contexts[0], ITH_ERR_ARGUMENT, "contexts[%d] is NULL: every rank needs its own", i);
    for (int i = 1; i < ranks; i++)
        for (int before = 0; before < i; before++)
            if (contexts[i] == contexts[before])
                return ith_fail(contexts[0], ITH_ERR_ARGUMENT,
                                "contexts[%d] is contexts[%d]: every rank needs its own (ith_context_clone)", i,
                                before);
    return ith_context_check_process(contexts[0]);
}

ith_status ith_comm_create_local(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    local_world *world = NULL;
    local_group *group = NULL;
    ith_status status = check_arguments(contexts, ranks, comms);
    if (status)
        return status;
    status = world_create(contexts[0], ranks, &world);
    if (status)
        return status;
    status = group_create(contexts[0], world, ranks, &group);
    if (status)
        goto fail;
    group_register(group);
    for (int i = 0; i < ranks; i++) {
        local_comm *comm = comm_new(contexts[i]);
        if (!comm || comm_make_board(comm, ranks)) {
            comm_free(comm);
            char reason[ITH_ERROR_BYTES];
            snprintf(reason, sizeof reason, "%s", ith_context_error(contexts[i]));
            status = ith_fail(contexts[0], ITH_ERR_MEMORY, "%s", reason);
            goto fail;
        }
        ith_context_set_rank(contexts[i], i);
        comm_join(comm, group, i, i);
        group->seats[i] = i;
        comms[i] = &comm->base;
    }
    return ITH_OK;
fail:
    for (int i = 0; i < ranks; i++) {
        comm_free(comms[i] ? local_of(comms[i]) : NULL);
        comms[i] = NULL;
    }
    world_free(world);
    return status;
}

void ith_local_leave(ith_comm *comm)
{
    local_comm *self = local_of(comm);
    local_group *group = self->group;
    local_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    ith_local_forsake(self);
    bool under_way = false;
    for (int slot = 0; slot < ITH_COMM_REQUESTS; slot++)
        under_way |= local_slot(group, self->base.rank, slot)->in_flight;
    if (under_way) {
        ith_local_end(world, ITH_ERR_ABORTED, "rank %d left with operations under way", self->seat);
        ith_local_drain(world, self->seat);
    }
    self->left = true;
    if (!self->dependent && --world->seat_handles[self->seat] == 0)
        for (int seat = 0; seat < world->size; seat++)
            pthread_cond_broadcast(&world->wake[seat]);
    pthread_mutex_unlock(&world->lock);
}

void ith_local_depend(ith_comm *comm)
{
    local_comm *self = local_of(comm);
    local_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    if (!self->dependent)
        world->seat_handles[self->seat]--;
    self->dependent = true;
    pthread_mutex_unlock(&world->lock);
}

void ith_local_release(ith_comm *comm)
{
    local_group *group = local_of(comm)->group;
    local_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    bool last_of_group = --group->handles == 0, last_of_world = --world->handles == 0;
    if (last_of_group)
        group_unregister(group);
    pthread_mutex_unlock(&world->lock);
    if (last_of_group)
        group_free(group);
    if (last_of_world)
        world_free(world);
    comm_free(local_of(comm));
}

/* ---- Splitting ------------------------------------------------------------------------------------------------- */

/* What a rank tells the others when its group is split. */
typedef struct split_card {
    int colour, key;
    local_group *group; /* of the first rank of the new group, which makes it */
} split_card;

/* This rank's place among those of its colour, how many they are, and which rank of the old group is their first. */
static void find_place(const split_card *cards, int ranks, int rank, int *place, int *size, int *first)
{
    *place = *size = 0;
    *first = rank;
    for (int i = 0; i < ranks; i++) {
        if (cards[i].colour != cards[rank].colour)
            continue;
        (*size)++;
        *place += cards[i].key < cards[rank].key || (cards[i].key == cards[rank].key && i < rank);
        if (cards[i].key < cards[*first].key || (cards[i].key == cards[*first].key && i < *first))
            *first = i;
    }
}

/* The new group of which this rank is the first: who sits where. */
static void seat_members(local_group *made, const local_group *old, const split_card *cards, int rank)
{
    for (int i = 0; i < old->size; i++) {
        int place, size, first;
        if (cards[i].colour != cards[rank].colour)
            continue;
        find_place(cards, old->size, i, &place, &size, &first);
        made->seats[place] = old->seats[i];
    }
}

ith_status ith_local_split(ith_comm *comm, int colour, int key, ith_comm **out)
{
    local_comm *self = local_of(comm);
    local_group *old = self->group, *made = NULL;
    int rank = comm->rank, place = 0, size = 0, first = 0;
    *out = NULL;
    local_comm *child = comm_new(comm->context);
    split_card *cards = ith_alloc(comm->context, comm->size, sizeof *cards, "the split of a group");
    ith_status status = ith_comm_agree(comm, child && cards ? ITH_OK : ITH_ERR_MEMORY);
    if (status)
        goto done;
    split_card card = {.colour = colour, .key = key};
    status = ith_comm_allgather(comm, &card, sizeof card, cards);
    if (status)
        goto done;
    find_place(cards, comm->size, rank, &place, &size, &first);
    if (first == rank) {
        status = group_create(comm->context, old->world, size, &made);
        if (!status)
            seat_members(made, old, cards, rank);
    }
    if (!status)
        status = comm_make_board(child, size);
    status = ith_comm_agree(comm, status);
    if (status)
        goto done;
    if (made) /* others may come to hold it even if this rank fails from here on */
        group_register(made);
    card.group = made;
    made = NULL;
    status = ith_comm_allgather(comm, &card, sizeof card, cards);
    if (status)
        goto done;
    child->base.timeout_seconds = comm->timeout_seconds;
    pthread_mutex_lock(&old->world->lock);
    comm_join(child, cards[first].group, place, self->seat);
    pthread_mutex_unlock(&old->world->lock);
    *out = &child->base;
    child = NULL;
done:
    group_free(made);
    comm_free(child);
    ith_free(comm->context, cards);
    return status;
}
