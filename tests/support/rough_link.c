/* SPDX-License-Identifier: Apache-2.0 */
/* A link that is slow, full or late at random. Datagrams of different processes overtake one another; datagrams of one
 * process keep their order. */
#include "support/socket_link.h"

#include "base/clock.h"
#include "support/times.h"

#include <stdlib.h>
#include <string.h>

enum { HELD = 8 }; /* the most datagrams of a process that are late at a time */

typedef struct late {
    double due;
    int64_t bytes;
    char *data;
} late;

typedef struct rough_link {
    ith_link link, inner;
    roughness how;
    unsigned random;
    int first[LINK_PROCESSES], held[LINK_PROCESSES];
    late queue[LINK_PROCESSES][HELD];
    int64_t settled[LINK_PROCESSES];
    double next_long[LINK_PROCESSES]; /* when the next long datagram to each process may be sent */
    char *memory, *arrived;
} rough_link;

static unsigned draw(rough_link *r, unsigned below)
{
    r->random = r->random * 1664525u + 1013904223u;
    return (r->random >> 8) % below;
}

static void *rough_reserve(void *self, int process, int64_t bytes)
{
    rough_link *r = self;
    bool paused = bytes > ITH_LINK_SHORT && ith_clock_seconds() < r->next_long[process];
    return paused || (int)draw(r, 100) < r->how.full ? NULL : r->inner.reserve(r->inner.self, process, bytes);
}

static void rough_send(void *self, int process, int64_t bytes)
{
    rough_link *r = self;
    if (bytes > ITH_LINK_SHORT)
        r->next_long[process] = ith_clock_seconds() + r->how.pause;
    r->inner.send(r->inner.self, process, bytes);
}

static int64_t rough_settled(void *self, int process)
{
    rough_link *r = self;
    int64_t settled = r->inner.settled(r->inner.self, process);
    if (r->settled[process] < settled)
        r->settled[process]++; /* each call lets one more datagram count as settled */
    return r->how.unsettled ? r->settled[process] : settled;
}

static int64_t rough_receive(void *self, int *process, const void **data)
{
    rough_link *r = self;
    const void *came;
    int64_t bytes;
    int from;
    bool room = true;
    for (int p = 0; p < r->link.processes; p++)
        room = room && r->held[p] < HELD;
    if (room && (bytes = r->inner.receive(r->inner.self, &from, &came)) != 0) {
        if (bytes < 0 || r->how.late_seconds <= 0) {
            *process = from, *data = came;
            return bytes;
        }
        late *l = &r->queue[from][(r->first[from] + r->held[from]++) % HELD];
        memcpy(l->data, came, (size_t)bytes);
        l->bytes = bytes;
        l->due = ith_clock_seconds() + r->how.late_seconds * draw(r, 1000) / 1000;
    }
    unsigned begin = draw(r, (unsigned)r->link.processes);
    for (int i = 0; i < r->link.processes; i++) {
        int p = ((int)begin + i) % r->link.processes;
        const late *l = &r->queue[p][r->first[p]];
        if (!r->held[p] || l->due > ith_clock_seconds())
            continue;
        memcpy(r->arrived, l->data, (size_t)l->bytes);
        r->first[p] = (r->first[p] + 1) % HELD;
        r->held[p]--;
        *process = p, *data = r->arrived;
        return l->bytes;
    }
    return 0;
}

static bool rough_tell(void *self, int process, const void *data, size_t bytes, bool droppable)
{
    const rough_link *r = self;
    return r->inner.tell(r->inner.self, process, data, bytes, droppable);
}

static ith_watch_event rough_hear(void *self, int *process, const void **data, size_t *bytes)
{
    rough_link *r = self;
    return r->inner.hear(r->inner.self, process, data, bytes);
}

/* Late datagrams do not wake anybody, so a rest is short. */
static void rough_rest(void *self, double seconds)
{
    const rough_link *r = self;
    double most = r->how.late_seconds > 0 ? 2e-4 : seconds;
    if (most < seconds)
        nap(2e-4);
    else
        r->inner.rest(r->inner.self, seconds);
}

static void rough_wake(void *self)
{
    const rough_link *r = self;
    r->inner.wake(r->inner.self);
}

static void rough_close(void *self, bool failed)
{
    rough_link *r = self;
    r->inner.close(r->inner.self, failed);
    free(r->memory);
    free(r);
}

ith_link *rough_link_new(ith_link *inner, const roughness *how)
{
    rough_link *r = calloc(1, sizeof *r);
    char *memory = malloc((size_t)(LINK_PROCESSES * HELD + 1) * ITH_LINK_BYTES);
    if (!r || !memory) {
        free(r), free(memory);
        return NULL;
    }
    r->inner = *inner;
    r->how = *how;
    r->random = how->seed;
    r->memory = memory;
    for (int i = 0; i < LINK_PROCESSES * HELD; i++)
        r->queue[i / HELD][i % HELD].data = memory + (size_t)i * ITH_LINK_BYTES;
    r->arrived = memory + (size_t)(LINK_PROCESSES * HELD) * ITH_LINK_BYTES;
    r->link = *inner;
    r->link.self = r, r->link.name = "rough";
    r->link.reserve = rough_reserve, r->link.send = rough_send, r->link.settled = rough_settled;
    r->link.receive = rough_receive, r->link.tell = rough_tell, r->link.hear = rough_hear;
    r->link.rest = rough_rest, r->link.wake = rough_wake, r->link.close = rough_close;
    return &r->link;
}
