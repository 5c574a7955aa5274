/* SPDX-License-Identifier: Apache-2.0 */
/* The transport whose ranks are threads of one process: its data in their common memory.
 *
 * A `world` is all ranks of one ith_comm_create_local, with one lock and the failure that ended it. A `group`, of all
 * ranks of the world or some, holds the requests that its ranks have posted. A `state` is one rank's end of a group.
 */
#ifndef ITH_COMM_LOCAL_H
#define ITH_COMM_LOCAL_H

#include "../../base/context.h"

#include <ithaca/transport.h>

#include <pthread.h>
#include <stdatomic.h>

#define LOCAL_REQUESTS 16

/* The transfer state of all that one rank sends to another in an exchange. */
typedef enum local_transfer {
    LOCAL_NONE = 0, /* nothing is sent */
    LOCAL_POSTED,
    LOCAL_MOVING, /* a thread copies it, without the lock */
    LOCAL_MOVED
} local_transfer;

/* One rank's part of one exchange. The lock protects it; the caller's regions are copied without the lock. */
typedef struct local_request {
    ith_operation posted;
    int64_t number; /* exchanges that the rank posted before this one; -1: the request was never used */
    bool in_flight;
    int pending;        /* elements of `to` and `from` that are posted or moving */
    uint8_t *to, *from; /* [group size], local_transfer: what is sent to, and received from, each rank */
} local_request;

typedef struct local_world {
    pthread_mutex_t lock;
    ith_context *owner;
    int size, states; /* ranks; states of all groups that are not closed */
    int locks_made, wakes_made;
    pthread_cond_t *wake;  /* [size]: one for each rank's thread, on the monotonic clock */
    int *busy;             /* [size]: copies in progress that read or write the rank's memory */
    bool *left;            /* [size] */
    _Atomic int64_t *life; /* [size]: when each rank last gave a sign of life, in nanoseconds */
    atomic_int status;     /* an ith_status, set when the sentence is complete */
    char sentence[ITH_ERROR_BYTES];
    struct local_group *groups; /* all that are not freed yet */
} local_world;

typedef struct local_group {
    struct local_group *next; /* of the world's */
    local_world *world;
    ith_context *owner;
    int64_t number;
    int size, states;
    int *members;            /* [size]: world ranks */
    int64_t *exchanges;      /* [size]: posted so far */
    bool *sharing;           /* [size]: the rank uses the memory of the others (ith_transport.share) */
    _Atomic int64_t notice;  /* see ith_transport.notify */
    local_request *requests; /* [size][LOCAL_REQUESTS]; exchange n has number n % LOCAL_REQUESTS */
    uint8_t *transfers;      /* the arrays `to` and `from` of the requests */
} local_group;

typedef struct local_state {
    ith_context *context; /* of this rank, for its memory */
    local_group *group;
    int rank, world_rank;
} local_state;

/* local.c */
extern const ith_transport ith_local_transport;
/* Ends the world, unless it has ended. Under the lock. */
void ith_local_end(local_world *world, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* local_group.c */
/* The states of all ranks of a new world, each of which holds its rank's context. On failure the sentence is in
 * contexts[0]. */
ith_status ith_local_connect(ith_context *const *contexts, int ranks, void **states);
ith_status ith_local_split(void *state, const ith_subgroup *subgroup, void **out);
void ith_local_leave(void *state);
void ith_local_close(void *state);

#endif
