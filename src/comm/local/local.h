/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process: the state they share. One `world` per ith_comm_create_local holds the lock and the
 * way it ended; a `group` (the world's ranks, or those of one colour of a split) holds what its ranks have posted. */
#ifndef ITH_COMM_LOCAL_H
#define ITH_COMM_LOCAL_H

#include "../comm.h"

#include <pthread.h>

typedef enum local_kind {
    LOCAL_EXCHANGE,
    LOCAL_ALLGATHER,
    LOCAL_BROADCAST,
    LOCAL_ALLREDUCE,
    LOCAL_BARRIER,
    LOCAL_SHARE,  /* an all-gather of cards */
    LOCAL_UNSHARE /* an all-reduce */
} local_kind;

/* The way of what one rank sends to another within one operation, and of an operation that all do as one. */
typedef enum local_way { WAY_NONE = 0, WAY_POSTED, WAY_MOVING, WAY_MOVED } local_way;

/* One rank's part of one operation. All but the caller's arrays is read and written under the world's lock. */
struct ith_request {
    int64_t sequence; /* the operation's number on its group */
    bool in_flight;   /* posted, and neither waited for nor tested to its end */
    local_kind kind;
    int pending;                          /* ways not yet WAY_MOVED */
    uint8_t *to, *from;                   /* [group size], local_way: to and from each rank */
    uint8_t whole;                        /* local_way of what all do as one: reduction, barrier, unshare */
    const ith_transfer *sends, *receives; /* LOCAL_EXCHANGE */
    int send_count, receive_count;
    const void *mine; /* LOCAL_ALLGATHER, LOCAL_SHARE */
    void *data;       /* LOCAL_ALLGATHER, LOCAL_SHARE: all; LOCAL_BROADCAST; LOCAL_ALLREDUCE: values */
    int64_t size;     /* bytes; LOCAL_ALLREDUCE: values */
    ith_reduce operation;
    int root;
};

typedef struct local_world {
    pthread_mutex_t lock;
    ith_context *owner;
    int size;
    int handles;       /* communicators not yet destroyed, of all groups and ranks */
    int *seat_handles; /* [size]: the same by rank; one that has none has left */
    int locks_made, wakes_made;
    pthread_cond_t *wake;  /* [size]: one per rank's thread, on the monotonic clock */
    int *busy;             /* [size]: copies under way from or to what the rank has posted */
    ith_status status;     /* not ITH_OK: all is over, and why */
    atomic_bool over;      /* the same without the lock */
    _Atomic int64_t *life; /* [size]: when each rank last gave a sign of life, in nanoseconds */
    char sentence[ITH_ERROR_BYTES];
    struct local_group *groups; /* all that are not freed yet */
} local_world;

typedef struct local_group {
    struct local_group *next; /* of the world's */
    local_world *world;
    ith_context *owner;
    int size, handles;
    int *seats;            /* [size]: the rank's number in the world */
    int64_t *posted;       /* [size]: operations posted so far */
    _Atomic int64_t stop;  /* ith_comm's */
    bool *sharing;         /* [size]: the rank looks at the memory of all others: between its share and its unshare */
    ith_request *requests; /* [size][ITH_COMM_REQUESTS]; operation n is in slot n % ITH_COMM_REQUESTS */
    uint8_t *ways;         /* storage of `to` and `from` */
} local_group;

typedef struct local_comm {
    ith_comm base;
    local_group *group;
    int seat;
    bool dependent, left; /* see ith_comm_ops */
} local_comm;

static inline local_comm *local_of(ith_comm *comm)
{
    return (local_comm *)comm;
}

static inline ith_request *local_slot(const local_group *group, int rank, int64_t sequence)
{
    return &group->requests[(int64_t)rank * ITH_COMM_REQUESTS + sequence % ITH_COMM_REQUESTS];
}

/* local.c */
extern const ith_comm_ops ith_local_ops;
/* The world is over, unless it was before. Under the lock. */
void ith_local_end(local_world *world, ith_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Waits until nobody copies from or to what this rank has posted; the world must be over, so that nobody begins. */
void ith_local_drain(local_world *world, int seat);
/* What every call returns once the world is over. Under the lock. */
ith_status ith_local_ended(local_comm *self);
ith_status ith_local_post(ith_comm *comm, const ith_request *wanted, ith_request **out);
void ith_local_alive(ith_comm *comm);
/* A wrong argument ends the world too: the peers would wait for an operation that never comes. */
ith_status ith_local_refuse(ith_comm *comm, local_kind kind, const char *reason);

/* local_share.c */
ith_status ith_local_share(ith_comm *comm, const void *mine, int64_t bytes, void *cards);
ith_status ith_local_unshare(ith_comm *comm, float *values, int64_t count);
/* A rank that leaves its group while it shares ends the world, and looks at nothing of the group's from here on;
 * returns when nobody looks at what it brought. Under the lock. */
void ith_local_forsake(local_comm *self);
/* A rank whose thread is about to end leaves all the groups that it is in: the same for each, without the wait, as its
 * thread's memory is gone by now. */
void ith_local_let_go(ith_comm *comm);

/* local_group.c */
ith_status ith_local_split(ith_comm *comm, int colour, int key, ith_comm **out);
void ith_local_depend(ith_comm *comm);
void ith_local_leave(ith_comm *comm);
void ith_local_release(ith_comm *comm);

#endif
