/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees the state of a process (wire_world), its groups, and the states of its ranks.
 *
 * A world counts the states of all its groups, and a group counts its own. The last state of a group frees the group;
 * the last state of all closes the link and frees the world. */
#include "wire.h"
#include "wire_state.h"

#include "../../base/monotonic.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- States ---------------------------------------------------------------------------------------------------- */

static void state_free(wire_state *state)
{
    if (!state)
        return;
    free(state->peers);
    free(state->flows);
    free(state->small);
    free(state);
}

/* Makes the state of one rank of a group, which it does not join yet. Returns NULL if there is no memory. */
static wire_state *state_new(const wire_group *group, int rank)
{
    size_t size = (size_t)group->size, far = 0;
    wire_state *state = calloc(1, sizeof *state);
    if (!state)
        return NULL;
    for (int i = 0; i < group->size; i++)
        far += !ith_wire_is_near(group->world, group->members[i]);
    state->rank = rank;
    state->world_rank = group->members[rank];
    state->peers = calloc(size, sizeof *state->peers);
    state->flows = calloc(size * WIRE_REQUESTS * 2, sizeof *state->flows);
    state->small = far ? calloc(far * WIRE_WINDOW, sizeof *state->small) : NULL;
    if (!state->peers || !state->flows || (far && !state->small)) {
        state_free(state);
        return NULL;
    }
    for (int i = 0; i < WIRE_REQUESTS; i++) {
        state->requests[i].number = -1;
        state->requests[i].in = state->flows + (size_t)(2 * i) * size;
        state->requests[i].out = state->flows + (size_t)(2 * i + 1) * size;
    }
    char(*small)[WIRE_SMALL] = state->small;
    for (int i = 0; i < group->size; i++) {
        state->peers[i].last = -1;
        if (ith_wire_is_near(group->world, group->members[i]))
            continue;
        state->peers[i].small = small;
        small += WIRE_WINDOW;
    }
    return state;
}

static void state_join(wire_state *state, wire_group *group)
{
    state->group = group;
    group->near[state->rank] = state;
    group->states++;
    group->world->states++;
}

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

static void group_free(wire_group *group)
{
    if (!group)
        return;
    free(group->members);
    free(group->index);
    free(group->near);
    free(group);
}

/* Makes a group that no rank has joined yet, and adds it to the list of groups. members: NULL: all ranks. Returns NULL
 * if there is no memory. */
static wire_group *group_new(wire_world *world, int64_t number, int size, const int *members)
{
    wire_group *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    group->world = world, group->number = number, group->size = size;
    group->members = calloc((size_t)size, sizeof *group->members);
    group->index = calloc((size_t)world->size, sizeof *group->index);
    group->near = calloc((size_t)size, sizeof(wire_state *));
    if (!group->members || !group->index || !group->near) {
        group_free(group);
        return NULL;
    }
    for (int i = 0; i < world->size; i++)
        group->index[i] = -1;
    for (int i = 0; i < size; i++) {
        group->members[i] = members ? members[i] : i;
        group->index[group->members[i]] = i;
    }
    group->next = world->groups;
    world->groups = group;
    return group;
}

/* Finds a group that another rank of this process has made. Groups of one split have the same number and different
 * members. */
static wire_group *group_find(const wire_world *world, const ith_subgroup *subgroup)
{
    wire_group *group = world->groups;
    while (group && (group->number != subgroup->number || group->members[0] != subgroup->members[0]))
        group = group->next;
    return group;
}

/* Frees a group that no rank has joined, or that all have left. */
static void group_drop(wire_group *group)
{
    wire_group **link = &group->world->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    group_free(group);
}

ith_status ith_wire_split(void *state, const ith_subgroup *subgroup, void **out)
{
    wire_world *world = ((wire_state *)state)->group->world;
    wire_state *part = NULL;
    pthread_mutex_lock(&world->lock);
    ith_status status = ith_wire_ended(world) ? ith_wire_settle(state) : ITH_OK;
    wire_group *group = status ? NULL : group_find(world, subgroup);
    if (!status && !group)
        group = group_new(world, subgroup->number, subgroup->size, subgroup->members);
    if (group)
        part = state_new(group, subgroup->rank);
    if (part)
        state_join(part, group);
    else if (group && group->states == 0)
        group_drop(group);
    pthread_mutex_unlock(&world->lock);
    *out = part;
    return status ? status : part ? ITH_OK : ITH_ERR_MEMORY;
}

/* ---- Worlds ---------------------------------------------------------------------------------------------------- */

static void world_free(wire_world *world)
{
    if (!world)
        return;
    for (int i = 0; i < world->wakes_made; i++)
        pthread_cond_destroy(&world->wake[i]);
    pthread_mutex_destroy(&world->lock);
    free(world->process_of);
    free(world->lives);
    free(world->processes);
    free(world->wake);
    free(world->busy);
    free(world->waiting);
    free(world);
}

void ith_wire_close(void *state)
{
    wire_state *self = state;
    wire_group *group = self->group;
    wire_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    group->near[self->rank] = NULL;
    if (--group->states == 0)
        group_drop(group);
    bool last = --world->states == 0;
    pthread_mutex_unlock(&world->lock);
    state_free(self);
    if (!last)
        return;
    world->link.close(world->link.self, ith_wire_ended(world) != ITH_OK);
    world_free(world);
}

/* Makes the condition variables of a world. Returns false if the system has none left. */
static bool make_conditions(wire_world *world)
{
    world->wakes_made = ith_monotonic_conditions(world->wake, world->ranks);
    return world->wakes_made == world->ranks;
}

/* The number of all ranks; -1 if the link's processes contradict one another. */
static int count_ranks(const ith_link *link)
{
    int size = 0;
    if (link->process < 0 || link->process >= link->processes)
        return -1;
    for (int i = 0; i < link->processes; i++) {
        if (link->all[i].first_rank != size || link->all[i].ranks < 1 || link->all[i].ranks > INT32_MAX - size)
            return -1;
        size += link->all[i].ranks;
    }
    return size;
}

/* Makes the state of a process, without groups. Returns NULL if there is no memory. */
static wire_world *world_new(const ith_link *link, int size)
{
    wire_world *world = calloc(1, sizeof *world);
    if (!world || pthread_mutex_init(&world->lock, NULL)) {
        free(world);
        return NULL;
    }
    world->link = *link;
    world->size = size;
    world->first = link->all[link->process].first_rank, world->ranks = link->all[link->process].ranks;
    world->watcher = -1;
    size_t ranks = (size_t)world->ranks;
    world->process_of = calloc((size_t)size, sizeof *world->process_of);
    world->lives = calloc((size_t)size, sizeof *world->lives);
    world->processes = calloc((size_t)link->processes, sizeof *world->processes);
    world->wake = calloc(ranks, sizeof *world->wake);
    world->busy = calloc(ranks, sizeof *world->busy);
    world->waiting = calloc(ranks, sizeof *world->waiting);
    if (!world->process_of || !world->lives || !world->processes || !world->wake || !world->busy || !world->waiting ||
        !make_conditions(world)) {
        world_free(world);
        return NULL;
    }
    int64_t now = ith_watch_now_ns();
    for (int process = 0; process < link->processes; process++)
        for (int i = 0; i < link->all[process].ranks; i++) {
            int rank = link->all[process].first_rank + i;
            world->process_of[rank] = process;
            atomic_init(&world->lives[rank].life, now);
            atomic_init(&world->lives[rank].heard, now);
            atomic_init(&world->lives[rank].waits_for, -1);
        }
    return world;
}

ith_status ith_wire_open(const ith_link *link, void **states, int *numbers, int *size, char *sentence, size_t bytes)
{
    int ranks = 0;
    *size = count_ranks(link);
    if (*size < 0) {
        snprintf(sentence, bytes, "the numbers of the ranks of %d processes contradict one another", link->processes);
        return ITH_ERR_ARGUMENT;
    }
    wire_world *world = world_new(link, *size);
    wire_group *group = world ? group_new(world, 0, *size, NULL) : NULL;
    for (; group && ranks < world->ranks; ranks++) {
        wire_state *state = state_new(group, world->first + ranks);
        if (!state)
            break;
        state_join(state, group);
        states[ranks] = state;
        numbers[ranks] = world->first + ranks;
    }
    if (group && ranks == world->ranks)
        return ITH_OK;
    snprintf(sentence, bytes, "out of memory for a group of %d ranks", *size);
    while (ranks > 0)
        state_free(states[--ranks]);
    group_free(group);
    world_free(world);
    return ITH_ERR_MEMORY;
}
