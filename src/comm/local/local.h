/* SPDX-License-Identifier: Apache-2.0 */
/* A transport for ranks that are threads of one process: the memory that they share. A `world` per
 * ith_comm_create_local holds the lock and the failure that ended it. A `group` (all ranks of the world, or a
 * sub-group) holds what its ranks have posted. */
#ifndef ITH_COMM_LOCAL_H
#define ITH_COMM_LOCAL_H

#include "../../base/context.h"

#include <ithaca/transport.h>

#include <pthread.h>
#include <stdatomic.h>

#define LOCAL_REQUESTS 16

/* How far the transfers from one rank to another have come. */
typedef enum local_progress { LOCAL_NONE = 0, LOCAL_POSTED, LOCAL_MOVING, LOCAL_MOVED } local_progress;

/* One rank's part of one exchange. Read and written under the world's lock, but for the caller's arrays. */
typedef struct local_request {
    ith_operation posted;
    int64_t number; /* of the exchange in its group; -1: none yet */
    bool in_flight;
    int pending;        /* peers to or from whom transfers have not moved, each direction counted */
    uint8_t *to, *from; /* [group size] of local_progress: sends to, and receives from, each rank */
} local_request;

typedef struct local_world {
    pthread_mutex_t lock;
    ith_context *owner;
    int size, states; /* ranks; states of the whole group that are not closed */
    int locks_made, wakes_made;
    pthread_cond_t *wake;  /* [size]: one for each rank's thread, on the monotonic clock */
    int *busy;             /* [size]: copies under way from or to what the rank has posted */
    bool *left;            /* [size] */
    _Atomic int64_t *life; /* [size]: when each rank last gave a sign of life, in nanoseconds */
    atomic_int status;     /* an ith_status; the sentence is written before it */
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
    bool *sharing;           /* [size]: the rank looks at the memory of the others */
    _Atomic int64_t notice;  /* see ith_transport.notify */
    local_request *requests; /* [size][LOCAL_REQUESTS]; exchange n has number n % LOCAL_REQUESTS */
    uint8_t *progress;       /* the arrays of the requests */
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
