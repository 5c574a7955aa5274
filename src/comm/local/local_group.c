/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, leaves and closes worlds (all ranks of one ith_comm_create_local), groups of their ranks, and states (one
 * rank's view of a group).
 *
 * A world counts the states of all its groups, and a group counts its own states. Closing the last state of a group
 * frees the group; closing the last state of all frees the world. The memory of a world or a group belongs to the
 * context of the rank that made it. The world or group holds a reference to this context, because that rank may close
 * its state first. */
#include "local.h"

#include "../../base/arena.h"
#include "../../base/monotonic.h"
#include "../../base/team_limit.h"
#include "../comm.h"

/* Lays out a group and its arrays in one allocation. Returns NULL while the arena only counts bytes. */
static local_group *group_lay_out(int ranks, ith_arena *arena)
{
    const int64_t requests = (int64_t)ranks * LOCAL_REQUESTS;
    local_group *place = ith_arena_take(arena, 1, sizeof *place), group = {.size = ranks};
    group.members = ith_arena_take(arena, ranks, sizeof *group.members);
    group.exchanges = ith_arena_take(arena, ranks, sizeof *group.exchanges);
    group.sharing = ith_arena_take(arena, ranks, sizeof *group.sharing);
    group.requests = ith_arena_take(arena, requests, sizeof *group.requests);
    group.transfers = ith_arena_take(arena, 2 * requests, ranks);
    if (place)
        *place = group;
    return place;
}

/* Lays out a world and its arrays in the same way. */
static local_world *world_lay_out(int ranks, ith_arena *arena)
{
    local_world *place = ith_arena_take(arena, 1, sizeof *place), world = {.size = ranks};
    world.wake = ith_arena_take(arena, ranks, sizeof *world.wake);
    world.busy = ith_arena_take(arena, ranks, sizeof *world.busy);
    world.left = ith_arena_take(arena, ranks, sizeof *world.left);
    world.life = ith_arena_take(arena, ranks, sizeof *world.life);
    if (place)
        *place = world;
    return place;
}

int64_t ith_local_bytes(int ranks, bool whole)
{
    ith_arena arena = {0}, world = {0};
    group_lay_out(ranks, &arena);
    world_lay_out(ranks, &world);
    const int64_t state = sizeof(local_state) + ITH_ALLOC_HEADER;
    return arena.used_bytes + ITH_ALLOC_HEADER + (whole ? world.used_bytes + ITH_ALLOC_HEADER : 0) + ranks * state;
}

/* Frees a group, which must not be in the list local_world.groups. */
static void group_free(local_group *group)
{
    ith_context *owner = group->owner;
    ith_free(owner, group);
    ith_context_release(owner);
}

static void world_free(local_world *world)
{
    for (int i = 0; i < world->wakes_made; i++)
        pthread_cond_destroy(&world->wake[i]);
    if (world->locks_made)
        pthread_mutex_destroy(&world->lock);
    ith_context *owner = world->owner;
    ith_free(owner, world);
    ith_context_release(owner);
}

/* Makes the lock and the condition variables of a world. Returns false if the system has none left; world_free then
 * destroys the locks and conditions that were made. */
static bool world_init_locks(local_world *world)
{
    if (pthread_mutex_init(&world->lock, NULL))
        return false;
    world->locks_made = 1;
    world->wakes_made = ith_monotonic_conditions(world->wake, world->size);
    return world->wakes_made == world->size;
}

static ith_status world_create(ith_context *context, int ranks, local_world **out)
{
    ith_arena arena = {0};
    world_lay_out(ranks, &arena);
    ith_status status = ith_arena_allocate_zero(context, &arena, "a group of ranks");
    if (status)
        return status;
    local_world *world = world_lay_out(ranks, &arena);
    world->owner = ith_context_hold(context);
    if (!world_init_locks(world)) {
        world_free(world);
        return ith_fail(context, ITH_ERR_MEMORY, "the system has no more locks for a group of %d ranks", ranks);
    }
    *out = world;
    return ITH_OK;
}

/* Makes a group that no rank has joined yet, and adds it to the list local_world.groups. If subgroup->members is NULL,
 * all ranks of the world are in it. */
static local_group *group_create(ith_context *context, local_world *world, const ith_subgroup *subgroup)
{
    int ranks = subgroup->size;
    int64_t requests = (int64_t)ranks * LOCAL_REQUESTS;
    ith_arena arena = {0};
    group_lay_out(ranks, &arena);
    if (ith_arena_allocate_zero(context, &arena, "a group of ranks"))
        return NULL;
    local_group *group = group_lay_out(ranks, &arena);
    group->world = world;
    group->owner = ith_context_hold(context);
    group->number = subgroup->number;
    for (int rank = 0; rank < ranks; rank++)
        group->members[rank] = subgroup->members ? subgroup->members[rank] : rank;
    for (int64_t i = 0; i < requests; i++) {
        group->requests[i].number = -1;
        group->requests[i].to = group->transfers + 2 * i * ranks;
        group->requests[i].from = group->transfers + (2 * i + 1) * ranks;
    }
    group->next = world->groups;
    world->groups = group;
    return group;
}

/* Returns the group that a split makes for this rank: if another rank of the group has made it, finds it; otherwise
 * makes it. Groups of one split have the same number and different first members. The lock must be held. */
static local_group *find_group(ith_context *context, local_world *world, const ith_subgroup *subgroup)
{
    for (local_group *group = world->groups; group; group = group->next)
        if (group->number == subgroup->number && group->members[0] == subgroup->members[0])
            return group;
    return group_create(context, world, subgroup);
}

static void unlink_group(local_group *group)
{
    local_group **link = &group->world->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
}

/* Makes the state of one rank (local_state), which belongs to no group yet. */
static local_state *state_new(ith_context *context)
{
    local_state *state = ith_alloc_zero(context, 1, sizeof *state, "a communicator");
    if (state)
        state->context = ith_context_hold(context);
    return state;
}

static void state_free(local_state *state)
{
    if (!state)
        return;
    ith_context *context = state->context;
    ith_free(context, state);
    ith_context_release(context);
}

/* Makes `state` the state of rank `rank` of a group. The lock must be held if other ranks already have states in this
 * world. */
static void state_join(local_state *state, local_group *group, int rank)
{
    state->group = group;
    state->rank = rank;
    state->changes = -1;
    state->world_rank = group->members[rank];
    group->states++;
    group->world->states++;
}

/* Checks the arguments of ith_comm_create_local. Every rank needs its own context, because the context holds the
 * error sentences of the rank. */
static ith_status check_arguments(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    ith_context *first = contexts && ranks > 0 ? contexts[0] : NULL;
    ith_status status = ith_need(first, comms, "comms");
    if (!status && ranks < 1)
        status = ith_fail(first, ITH_ERR_ARGUMENT, "ranks is %d, and must be at least 1", ranks);
    if (!status)
        status = ith_thread_limit_check(first, "ranks", ranks);
    if (status)
        return status;
    for (int i = 0; i < ranks; i++)
        comms[i] = NULL;
    if (!contexts)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "contexts is NULL");
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

/* Reduces a group's count of open states by one. At zero the group is freed; the world (all ranks) is freed with its
 * last state. */
static void drop(local_group *group)
{
    local_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    bool last_of_group = --group->states == 0, last_of_world = --world->states == 0;
    if (last_of_group)
        unlink_group(group);
    pthread_mutex_unlock(&world->lock);
    if (last_of_group)
        group_free(group);
    if (last_of_world)
        world_free(world);
}

void ith_local_close(void *state)
{
    drop(((local_state *)state)->group);
    state_free(state);
}

void ith_local_leave(void *state)
{
    const local_state *self = state;
    local_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    world->left[self->world_rank] = true;
    world->leavers++;
    for (int rank = 0; rank < world->size; rank++)
        pthread_cond_broadcast(&world->wake[rank]);
    pthread_mutex_unlock(&world->lock);
}

ith_status ith_local_split(void *state, const ith_subgroup *subgroup, void **out)
{
    const local_state *self = state;
    local_world *world = self->group->world;
    local_state *part = state_new(self->context);
    if (!part)
        return ITH_ERR_MEMORY;
    pthread_mutex_lock(&world->lock);
    ith_status status = ith_local_ended(world) ? ith_local_settle(self) : ITH_OK;
    local_group *group = status ? NULL : find_group(self->context, world, subgroup);
    if (group)
        state_join(part, group, subgroup->rank);
    pthread_mutex_unlock(&world->lock);
    if (!group)
        state_free(part);
    *out = group ? part : NULL;
    return group || status ? status : ITH_ERR_MEMORY;
}

ith_status ith_local_connect(ith_context *const *contexts, int ranks, void **states)
{
    local_world *world = NULL;
    ith_subgroup all = ITH_SUBGROUP_INIT;
    all.size = ranks;
    ith_status status = world_create(contexts[0], ranks, &world);
    if (status)
        return status;
    local_group *group = group_create(contexts[0], world, &all);
    if (!group) {
        world_free(world);
        return ITH_ERR_MEMORY;
    }
    /* this function counts as an open state, so that group and world are not freed before it ends */
    group->states = world->states = 1;
    for (int i = 0; i < ranks; i++) {
        local_state *state = states[i] = state_new(contexts[i]);
        if (state)
            state_join(state, group, i);
        else if (!status)
            status = ith_fail(contexts[0], ITH_ERR_MEMORY, "%s", ith_context_error(contexts[i]));
    }
    for (int i = 0; status && i < ranks; i++)
        if (states[i])
            ith_local_close(states[i]);
    drop(group);
    return status;
}

ith_status ith_comm_create_local(ith_context *const *contexts, int ranks, ith_comm **comms)
{
    ith_status status = check_arguments(contexts, ranks, comms);
    if (status)
        return status;
    void **states = ith_alloc_zero(contexts[0], ranks, sizeof *states, "a group of ranks");
    if (!states)
        return ITH_ERR_MEMORY;
    status = ith_local_connect(contexts, ranks, states);
    if (!status)
        status = ith_comm_create_all(contexts, ranks, &ith_local_transport, states, NULL, ranks, comms);
    ith_free(contexts[0], states);
    return status;
}

ith_status ith_local_settle(const local_state *self)
{
    local_world *world = self->group->world;
    while (world->busy[self->world_rank])
        pthread_cond_wait(&world->wake[self->world_rank], &world->lock);
    return ith_local_ended(world);
}
