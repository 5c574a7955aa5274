/* SPDX-License-Identifier: Apache-2.0 */
/* The transport whose ranks are threads of one process: its data in their common memory.
 *
 * A `world` stands for all ranks of one ith_comm_create_local, with one lock and the failure that ended it. A `group`,
 * of all ranks of the world or some of them, holds the requests that its ranks have posted. A `state` is one rank's
 * view of a group. */
#ifndef ITH_COMM_LOCAL_H
#define ITH_COMM_LOCAL_H

#include "../../base/context.h"

#include <ithaca/transport.h>

#include <pthread.h>
#include <stdatomic.h>

#define LOCAL_REQUESTS 16 /* operations of a rank that may be in flight at a time, in one group */

/* The transfer state of the data that one rank sends to another in an exchange. */
typedef enum local_transfer {
    LOCAL_NONE = 0, /* nothing is sent */
    LOCAL_POSTED,   /* the data is not copied yet */
    LOCAL_MOVING,   /* a thread is copying it, without holding the lock */
    LOCAL_MOVED     /* the data is copied */
} local_transfer;

/* One rank's part of one exchange. local_world.lock protects it, but not the data that it sends and receives. */
typedef struct local_request {
    ith_operation posted;
    /* number of exchanges that the rank posted before this one; -1: the request was never used */
    int64_t number;
    bool sorted; /* both lists are sorted by peer */
    int pending; /* number of elements of `to` and `from` that are posted or moving */
    /* [group size]: states (local_transfer) of data sent to, and received from, each rank */
    uint8_t *to, *from;
} local_request;

/* All ranks of one ith_comm_create_local: the world. */
typedef struct local_world {
    pthread_mutex_t lock;
    ith_context *owner;
    int size, states;           /* number of ranks; number of open states (local_state), in all groups */
    int locks_made, wakes_made; /* how many locks and conditions have been initialised */
    pthread_cond_t *wake;       /* [size]: wakes the thread of each rank; waits use the monotonic clock */
    int *busy;                  /* [size]: number of copies in progress that use each rank's memory */
    bool *left;                 /* [size]: whether each rank has left the group */
    _Atomic int64_t *life;      /* [size]: when each rank last gave a sign of life, in nanoseconds */
    /* the failure that ended the work of all ranks, an ith_status; set when the error sentence is complete */
    atomic_int status;
    char sentence[ITH_ERROR_BYTES];
    int leavers;                /* number of ranks that have left */
    int drainers;               /* number of ranks in ith_transport.drain */
    struct local_group *groups; /* list of all groups that are not freed yet */
} local_world;

/* A group: all ranks of a local_world, or some of them. */
typedef struct local_group {
    struct local_group *next; /* next element of the list local_world.groups */
    local_world *world;
    ith_context *owner;
    int64_t number;
    int size, states;
    int *members;            /* [size]: the world rank of each rank (its number among all ranks) */
    int64_t changes;         /* number of exchanges that all ranks have posted so far */
    int64_t *exchanges;      /* [size]: number of exchanges that each rank has posted so far */
    bool *sharing;           /* [size]: whether each rank may use the memory of others (ith_transport.share) */
    _Atomic int64_t notice;  /* the number that was sent last by ith_transport.notify */
    local_request *requests; /* [size][LOCAL_REQUESTS]; exchange n of a rank has request n % LOCAL_REQUESTS */
    uint8_t *transfers;      /* memory of the arrays `to` and `from` of all requests */
} local_group;

/* One rank's view of a group, which its communicator passes to each function of this transport. */
typedef struct local_state {
    ith_context *context; /* the rank's context, which allocates the state */
    local_group *group;
    int rank, world_rank;
    int64_t changes; /* group->changes + world->leavers when this rank has last looked for data to copy */
} local_state;

/* The failure that ended the work of all ranks; ITH_OK: none has. */
static inline ith_status ith_local_ended(const local_world *world)
{
    return (ith_status)atomic_load_explicit(&world->status, memory_order_acquire);
}

/* The functions of this transport. This table is in local_exchange.c. */
extern const ith_transport ith_local_transport;
/* Makes a new world (local_world) and a state for each of its ranks, which holds the rank's context. On failure the
 * error sentence is in contexts[0]. This function and the next ones are in local_group.c. */
ith_status ith_local_connect(ith_context *const *contexts, int ranks, void **states);
ith_status ith_local_split(void *state, const ith_subgroup *subgroup, void **out);
void ith_local_leave(void *state);
void ith_local_close(void *state);
/* The bytes that a group of `ranks` ranks holds with all their states. whole: it is all ranks of a world, with which it
 * is made. */
int64_t ith_local_bytes(int ranks, bool whole);
/* Waits until no thread copies from or to this rank's memory, and returns the failure that ended the group. To be
 * called after a failure, with the lock held. */
ith_status ith_local_settle(const local_state *self);

#endif
