/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between processes: signs of life, notices, the end of the group, and ranks that leave. Finds the rank to
 * blame when another rank waits in vain.
 *
 * A rank that waits sends signs of life too, with the rank that it waits for. So a rank at the end of a chain of waits
 * does not blame its neighbour, which waits as well, but the rank at the beginning of the chain. If ranks wait for one
 * another in a circle, the rank whose last sign is oldest is to blame, because it may have died or stopped while it
 * waited. If all ranks of the circle give signs, each of them counts as silent since it last posted, computed or moved
 * data. */
#include "wire_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SIGN_NS 50000000    /* between two signs of life of a rank */
#define FRESH_NS 1000000000 /* a rank that said that it waits counts as waiting for this time after its last sign */
#define LATE_NS 250000000   /* a rank whose last sign is older may have stopped, if others wait for one another */

typedef enum message_kind { MESSAGE_LIFE = 1, MESSAGE_NOTICE, MESSAGE_END, MESSAGE_LEAVE } message_kind;

/* A message of a rank to another process. The comments name the kinds of messages that have a member. */
typedef struct message {
    int32_t kind, rank; /* rank: the world rank that sends the message */
    int32_t status;     /* MESSAGE_END */
    int32_t waits_for;  /* MESSAGE_LIFE: the world rank that the rank waits for; -1: it does not wait */
    int64_t group;      /* MESSAGE_NOTICE */
    int64_t number;     /* MESSAGE_NOTICE: the notice; MESSAGE_LEAVE: datagrams that its process has sent to yours */
    char sentence[WIRE_SENTENCE]; /* MESSAGE_END */
} message;

_Static_assert(sizeof(message) <= ITH_WATCH_BYTES, "a message is too long for the watch");

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static void tell(const wire_world *world, int process, const message *m)
{
    size_t bytes = offsetof(message, sentence) + (m->kind == MESSAGE_END ? strlen(m->sentence) + 1 : 0);
    if (process != world->link.process)
        world->link.tell(world->link.self, process, m, bytes, m->kind == MESSAGE_LIFE);
}

static void tell_all(const wire_world *world, const message *m)
{
    for (int process = 0; process < world->link.processes; process++)
        tell(world, process, m);
}

void ith_wire_rouse(wire_world *world, int world_rank)
{
    pthread_cond_broadcast(&world->wake[world_rank - world->first]);
    if (world->watcher == world_rank)
        world->link.wake(world->link.self);
}

static void rouse_all(wire_world *world)
{
    for (int i = 0; i < world->ranks; i++)
        ith_wire_rouse(world, world->first + i);
}

void ith_wire_end(wire_world *world, ith_status status, const char *format, ...)
{
    message m = {.kind = MESSAGE_END, .rank = world->first, .status = status};
    va_list arguments;
    if (ith_wire_ended(world))
        return;
    va_start(arguments, format);
    vsnprintf(world->sentence, sizeof world->sentence, format, arguments);
    va_end(arguments);
    atomic_store(&world->status, status);
    memcpy(m.sentence, world->sentence, sizeof m.sentence);
    tell_all(world, &m);
    rouse_all(world);
}

const char *ith_wire_name(const wire_world *world, int world_rank, char text[WIRE_NAME])
{
    const ith_link *link = &world->link;
    if (link->all[link->processes - 1].host > 0)
        snprintf(text, WIRE_NAME, "rank %d (host %.63s)", world_rank, link->all[world->process_of[world_rank]].name);
    else
        snprintf(text, WIRE_NAME, "rank %d", world_rank);
    return text;
}

const char *ith_wire_operation(const char *what, int64_t exchange, int64_t group, char text[WIRE_OPERATION])
{
    snprintf(text, WIRE_OPERATION, "%s (exchange %lld of group %lld)", what, (long long)exchange, (long long)group);
    return text;
}

const char *ith_wire_posted(const wire_state *self, const wire_request *request, char text[WIRE_OPERATION])
{
    return ith_wire_operation(request->posted.what, request->number, self->group->number, text);
}

void ith_wire_end_by_leaver(const wire_state *self, const wire_request *request, int left)
{
    wire_world *world = self->group->world;
    char names[2][WIRE_NAME], operation[WIRE_OPERATION];
    ith_wire_end(world, ITH_ERR_ABORTED, "%s left while %s waits for it in %s", ith_wire_name(world, left, names[0]),
                 ith_wire_name(world, self->world_rank, names[1]), ith_wire_posted(self, request, operation));
}

void ith_wire_end_unpaired(wire_world *world, int rank, int other, bool sends, const char *operation)
{
    char names[2][WIRE_NAME];
    ith_wire_end(world, ITH_ERR_ARGUMENT,
                 sends ? "%s sends to %s in %s, where that rank receives nothing from it: every send needs a receive"
                       : "%s receives from %s in %s, where that rank sends nothing to it: every receive needs a send",
                 ith_wire_name(world, rank, names[0]), ith_wire_name(world, other, names[1]), operation);
}

void ith_wire_give_life(wire_world *world, int world_rank, int waits_for)
{
    wire_life *life = &world->lives[world_rank];
    int64_t now = ith_watch_now_ns(), before = atomic_load(&life->signed_at);
    message m = {.kind = MESSAGE_LIFE, .rank = world_rank, .waits_for = waits_for};
    atomic_store_explicit(&life->heard, now, memory_order_relaxed);
    atomic_store_explicit(&life->waits_for, waits_for, memory_order_relaxed);
    if (waits_for < 0)
        atomic_store_explicit(&life->life, now, memory_order_relaxed);
    /* the end of a wait is shown at once, because others look past a rank that waits */
    bool due = now - before >= SIGN_NS || (waits_for < 0 && atomic_load(&life->signed_wait));
    if (!due || !atomic_compare_exchange_strong(&life->signed_at, &before, now))
        return;
    atomic_store(&life->signed_wait, waits_for >= 0);
    tell_all(world, &m);
}

void ith_wire_notify(void *state, int64_t number)
{
    const wire_state *self = state;
    wire_group *group = self->group;
    const wire_world *world = group->world;
    message m = {.kind = MESSAGE_NOTICE, .rank = self->world_rank, .group = group->number, .number = number};
    atomic_store(&group->notice, number);
    for (int peer = 0, last = -1; peer < group->size; peer++) {
        int process = world->process_of[group->members[peer]];
        if (process != last)
            tell(world, process, &m);
        last = process;
    }
}

int64_t ith_wire_noticed(void *state)
{
    return atomic_load_explicit(&((const wire_state *)state)->group->notice, memory_order_relaxed);
}

void ith_wire_leave(void *state)
{
    const wire_state *self = state;
    wire_world *world = self->group->world;
    pthread_mutex_lock(&world->lock);
    world->lives[self->world_rank].left = true;
    for (int process = 0; process < world->link.processes; process++)
        tell(world, process,
             &(message){.kind = MESSAGE_LEAVE, .rank = self->world_rank, .number = world->processes[process].sent});
    rouse_all(world);
    pthread_mutex_unlock(&world->lock);
}

/* ---- Hearing --------------------------------------------------------------------------------------------------- */

bool ith_wire_has_left(const wire_world *world, int world_rank)
{
    const wire_life *life = &world->lives[world_rank];
    return life->left && world->processes[world->process_of[world_rank]].received >= life->after;
}

/* Whether a request still waits for a peer to do something. */
static bool awaits(const wire_state *self, const wire_request *request, int peer)
{
    const wire_flow *flows[2] = {&request->in[peer], &request->out[peer]};
    const wire_state *near = self->group->near[peer];
    for (int i = 0; i < 2; i++)
        if (flows[i]->progress == WIRE_SENT ||
            (flows[i]->progress == WIRE_OPEN && !(near && near->posted > request->number)))
            return true;
    return false;
}

/* Finds an operation in which a rank of this process waits for a process. Returns false if there is none. */
static bool find_victim(const wire_world *world, int process, const wire_state **who, const wire_request **request)
{
    for (const wire_group *group = world->groups; group; group = group->next)
        for (int i = 0; i < group->size * WIRE_REQUESTS; i++) {
            const wire_state *state = group->near[i / WIRE_REQUESTS];
            if (!state || !state->requests[i % WIRE_REQUESTS].in_flight)
                continue;
            *who = state;
            *request = &state->requests[i % WIRE_REQUESTS];
            for (int peer = 0; peer < group->size; peer++)
                if (world->process_of[group->members[peer]] == process && awaits(state, *request, peer))
                    return true;
        }
    return false;
}

/* Handles the end of a process's channel of messages. All ranks of the process should have left before. */
static void take_end_of_process(wire_world *world, int process, const char *reason)
{
    const ith_link_process *p = &world->link.all[process];
    const wire_state *victim = NULL;
    const wire_request *request = NULL;
    char ranks[48], operation[WIRE_OPERATION], during[WIRE_OPERATION + 48] = "";
    bool all_left = true;
    for (int i = 0; i < p->ranks; i++)
        all_left = all_left && world->lives[p->first_rank + i].left;
    if (all_left)
        return;
    snprintf(ranks, sizeof ranks, p->ranks == 1 ? "rank %d" : "ranks %d to %d", p->first_rank,
             p->first_rank + p->ranks - 1);
    if (find_victim(world, process, &victim, &request))
        snprintf(during, sizeof during, ", while rank %d waited for it in %s", victim->world_rank,
                 ith_wire_posted(victim, request, operation));
    ith_wire_end(world, ITH_ERR_ABORTED, "%s (host %s, pid %lld) died: %s%s", ranks, p->name, (long long)p->pid, reason,
                 during);
}

static void take_life(wire_world *world, const message *m)
{
    wire_life *life = &world->lives[m->rank];
    int64_t now = ith_watch_now_ns();
    atomic_store_explicit(&life->heard, now, memory_order_relaxed);
    atomic_store_explicit(&life->waits_for, m->waits_for, memory_order_relaxed);
    if (m->waits_for < 0)
        atomic_store_explicit(&life->life, now, memory_order_relaxed);
}

/* A process that is still being connected waits for process number `awaited`. So its ranks count as waiting, too. */
static void take_wait(wire_world *world, int process, int32_t awaited)
{
    const ith_link *link = &world->link;
    for (int i = 0; i < link->all[process].ranks && awaited >= 0 && awaited < link->processes; i++)
        take_life(world,
                  &(message){.rank = link->all[process].first_rank + i, .waits_for = link->all[awaited].first_rank});
}

static void take_notice(wire_world *world, const message *m)
{
    for (wire_group *group = world->groups; group; group = group->next)
        if (group->number == m->group && group->index[m->rank] >= 0)
            atomic_store(&group->notice, m->number);
}

/* Whether the fields of a message are in their ranges. */
static bool valid(const wire_world *world, int process, const message *m, size_t bytes)
{
    return bytes >= offsetof(message, sentence) && m->rank >= 0 && m->rank < world->size &&
           world->process_of[m->rank] == process && m->waits_for >= -1 && m->waits_for < world->size &&
           (m->kind != MESSAGE_END || (m->status < ITH_OK && m->status >= ITH_ERR_INTERNAL));
}

static void take_message(wire_world *world, int process, const void *data, size_t bytes)
{
    message m = {0};
    memcpy(&m, data, bytes < sizeof m ? bytes : sizeof m);
    m.sentence[sizeof m.sentence - 1] = 0;
    if (!valid(world, process, &m, bytes)) {
        ith_wire_end(world, ITH_ERR_INTERNAL,
                     "rank %d got a control message of a wrong form from process %d on host %s", world->first, process,
                     world->link.all[process].name);
        return;
    }
    switch (m.kind) {
    case MESSAGE_LIFE: take_life(world, &m); break;
    case MESSAGE_NOTICE: take_notice(world, &m); break;
    /* Every process passes the end on, so that the others learn of it before its ranks leave. */
    case MESSAGE_END: ith_wire_end(world, (ith_status)m.status, "%s", m.sentence); break;
    case MESSAGE_LEAVE:
        world->lives[m.rank].left = true;
        world->lives[m.rank].after = m.number;
        rouse_all(world);
        break;
    default:
        ith_wire_end(world, ITH_ERR_INTERNAL,
                     "rank %d got a control message of an unknown kind from process %d on host %s", world->first,
                     process, world->link.all[process].name);
    }
}

void ith_wire_hear(wire_world *world)
{
    const void *data = NULL;
    size_t bytes = 0;
    int process = 0;
    while (!ith_wire_ended(world))
        switch (world->link.hear(world->link.self, &process, &data, &bytes)) {
        case ITH_WATCH_MESSAGE: take_message(world, process, data, bytes); break;
        case ITH_WATCH_BYE: take_end_of_process(world, process, "it closed its connections"); break;
        case ITH_WATCH_LOST: take_end_of_process(world, process, data); break;
        case ITH_WATCH_AWAITS: take_wait(world, process, *(const int32_t *)data); break;
        case ITH_WATCH_FAILED: ith_wire_end(world, ITH_ERR_ABORTED, "%s", (const char *)data); break;
        default: return;
        }
}

/* ---- Silence --------------------------------------------------------------------------------------------------- */

/* Finds the rank whose last sign is oldest among a rank, the rank that it waits for, and so on. Returns the age of that
 * sign in nanoseconds. */
static int64_t find_latest(const wire_world *world, int64_t now, int *rank)
{
    int64_t longest = -1;
    for (int steps = 0, at = *rank; steps < world->size && at >= 0; steps++) {
        int64_t age = now - atomic_load_explicit(&world->lives[at].heard, memory_order_relaxed);
        if (age > longest)
            longest = age, *rank = at;
        at = atomic_load_explicit(&world->lives[at].waits_for, memory_order_relaxed);
    }
    return longest;
}

/* Follows the chain of waits from a rank to the rank that is to blame for it: sets *blamed, and returns for how many
 * nanoseconds that rank has been silent. *circle: all ranks give signs, and wait for one another. */
static int64_t follow(const wire_world *world, int rank, int *blamed, bool *circle)
{
    int64_t now = ith_watch_now_ns();
    *blamed = rank;
    *circle = false;
    for (int steps = 0; steps <= world->size; steps++) {
        const wire_life *life = &world->lives[*blamed];
        int64_t heard = atomic_load_explicit(&life->heard, memory_order_relaxed);
        int waits_for = atomic_load_explicit(&life->waits_for, memory_order_relaxed);
        if (waits_for < 0)
            return now - atomic_load_explicit(&life->life, memory_order_relaxed);
        if (now - heard > FRESH_NS)
            return now - heard;
        *blamed = waits_for;
    }
    *blamed = rank;
    int64_t age = find_latest(world, now, blamed);
    if (age > LATE_NS)
        return age;
    *blamed = rank;
    *circle = true;
    return now - atomic_load_explicit(&world->lives[rank].life, memory_order_relaxed);
}

/* Among the ranks that the request waits for, the choice is the late rank with the oldest sign of life; if no rank is
 * late, the rank that moved data least recently. */
int ith_wire_awaited(const wire_state *self, const wire_request *request)
{
    const wire_group *group = self->group;
    int64_t now = ith_watch_now_ns(), oldest = INT64_MAX;
    bool late = false;
    int found = -1;
    for (int peer = 0; peer < group->size; peer++) {
        const wire_life *life = &group->world->lives[group->members[peer]];
        int64_t heard = atomic_load_explicit(&life->heard, memory_order_relaxed);
        int64_t moved = atomic_load_explicit(&life->life, memory_order_relaxed);
        bool is_late = now - heard > LATE_NS;
        int64_t time = is_late ? heard : moved;
        if ((late && !is_late) || (late == is_late && time >= oldest) || !awaits(self, request, peer))
            continue;
        oldest = time, late = is_late, found = group->members[peer];
    }
    return found;
}

double ith_wire_silence(void *state, int64_t number, int *rank)
{
    const wire_state *self = state;
    const wire_group *group = self->group;
    wire_world *world = group->world;
    bool circles = true; /* all chains so far end in circles; a chain that ends at one rank counts more */
    int64_t longest = -1;
    *rank = -1;
    pthread_mutex_lock(&world->lock);
    const wire_request *request = &self->requests[number];
    for (int peer = 0; peer < group->size; peer++) {
        bool circle;
        int blamed;
        if (!awaits(self, request, peer))
            continue;
        int64_t silence = follow(world, group->members[peer], &blamed, &circle);
        bool member = group->index[blamed] >= 0;
        if (!member) /* the rank that waits for it tells the others */
            silence = 0;
        if (circles && !circle)
            circles = false, longest = -1;
        if (circle == circles && silence > longest)
            longest = silence, *rank = member ? group->index[blamed] : peer;
    }
    pthread_mutex_unlock(&world->lock);
    return longest > 0 ? (double)longest * 1e-9 : 0;
}
