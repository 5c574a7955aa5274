/* SPDX-License-Identifier: Apache-2.0 */
/* The state of ith_wire_transport, and the functions that its files call of one another.
 *
 * A `world` is the state of one process: its link, all groups, and one lock. A `group` is the part of a group of ranks
 * that this process sees. A `state` is the view that one rank of this process has of a group. A rank is *near* if it
 * runs in this process, otherwise *far*.
 *
 * The data that a rank sends to one other rank in one exchange is a `flow`. Between near ranks a flow is one copy from
 * memory to memory (wire_near.c). To far ranks it travels in datagrams (wire_send.c, wire_take.c):
 *   WIRE_OFFER   The sender announces each flow. The offer of a flow of at most WIRE_SMALL bytes carries its data. An
 *                offer waits in the receiver's state until the receiver has posted the exchange. The receiver has
 *                room for WIRE_WINDOW offers of each rank. Every datagram tells how many offers its sender has
 *                taken, so a rank never sends an offer for which there is no room.
 *   WIRE_ASK     The receiver of a longer flow asks for the data when it has posted the exchange. An ask waits in
 *                the sender's state until the sender has posted the exchange. A rank has at most WIRE_REQUESTS
 *                exchanges in flight, so there is room for all asks.
 *   WIRE_DATA    Some data of a flow that has been asked for. The receiver has posted the memory for them.
 *   WIRE_SKIP    The sender keeps the rest of the flow, because its caller no longer wants the exchange.
 *   WIRE_CREDIT  Tells only how many offers its sender has taken.
 * So a process takes every datagram at once, whatever its ranks do, and allocates memory only to make a state. */
#ifndef ITH_COMM_WIRE_STATE_H
#define ITH_COMM_WIRE_STATE_H

#include "link.h"

#include <pthread.h>
#include <stdatomic.h>

/* The limits of the transport. */
enum {
    WIRE_REQUESTS = ITH_TRANSPORT_LEAST_REQUESTS,
    WIRE_WINDOW = 4,   /* offers of a rank that wait in the memory of another */
    WIRE_SMALL = 4096, /* bytes of the largest flow whose offer carries the data */
    WIRE_SENTENCE = 960
};

typedef enum wire_kind { WIRE_OFFER = 1, WIRE_ASK, WIRE_DATA, WIRE_SKIP, WIRE_CREDIT } wire_kind;

/* The head of every datagram. Data follow it in a WIRE_DATA and in the WIRE_OFFER of a small flow. */
typedef struct wire_head {
    int32_t kind;
    int32_t from, to; /* world ranks: the rank that sends the datagram and the rank that receives it */
    int32_t unused;
    int64_t group;               /* ith_subgroup.number; 0 for the group of all ranks */
    int64_t taken;               /* offers of `to` that `from` has taken in this group */
    int64_t exchange;            /* the number of the exchange in its group */
    int64_t number;              /* WIRE_OFFER: number of the offer from this rank; WIRE_DATA: offset in the flow */
    int64_t tag, regions, bytes; /* WIRE_OFFER, WIRE_ASK: of the whole flow; WIRE_DATA, WIRE_SKIP: bytes moved */
    uint64_t sizes;              /* WIRE_OFFER, WIRE_ASK: a hash of the sizes of all regions */
} wire_head;

/* Most bytes of data in one datagram, within a host and to another host. */
enum { WIRE_DATA_BYTES = ITH_LINK_BYTES - 128, WIRE_FAR_BYTES = ITH_LINK_FAR_BYTES - 128 };

/* How far a flow has come. */
typedef enum wire_progress {
    WIRE_NONE = 0, /* nothing is sent */
    WIRE_OPEN,     /* data are still to move */
    WIRE_MOVING,   /* near: a thread copies the data, without the lock */
    WIRE_SENT,     /* far: all datagrams are sent, but the link still needs calls for them */
    WIRE_DONE
} wire_progress;

/* One direction of the data between a rank and one peer in an exchange. */
typedef struct wire_flow {
    wire_progress progress;
    bool offered;           /* the offer has been sent */
    bool asked;             /* the ask has been sent, or has come */
    int64_t regions, bytes; /* of the whole flow */
    uint64_t sizes;
    int64_t at, offset, moved; /* index of the current transfer, its bytes that have moved, all bytes that have moved */
    int64_t ticket;            /* progress WIRE_SENT: the number of the last datagram, for ith_link.settled */
} wire_flow;

/* An exchange that a rank has posted. */
typedef struct wire_request {
    ith_operation posted;
    int64_t number; /* of the exchange in its group; -1: the request was never used */
    bool in_flight;
    bool sorted;         /* both lists are sorted by peer */
    int pending;         /* flows that are not done */
    int unsent;          /* far flows for which a datagram is still to be sent */
    int unsettled;       /* flows whose progress is WIRE_SENT */
    wire_flow *in, *out; /* [group size]: the data from each rank, and to each */
} wire_request;

/* The datagrams between a state's rank and one far rank. */
typedef struct wire_peer {
    int64_t offered, taken_there;  /* offers sent to the peer; the number of these that it has taken */
    int64_t came, taken, known;    /* offers that came; the number taken here; the number that the peer knows of */
    int64_t last;                  /* the exchange of the last offer that came; -1: none */
    bool held;                     /* an offer to the peer waits: no later one may overtake it */
    bool served;                   /* this round of sending has sent the peer data */
    wire_head offers[WIRE_WINDOW]; /* offer number n waits at n % WIRE_WINDOW */
    wire_head asks[WIRE_REQUESTS]; /* the ask for exchange n waits at n % WIRE_REQUESTS; kind 0: none */
    char (*small)[WIRE_SMALL];     /* [WIRE_WINDOW]: the data of the offers */
} wire_peer;

/* The view that one rank of this process has of a group. */
typedef struct wire_state {
    struct wire_group *group;
    int rank, world_rank;
    int64_t posted; /* the number of exchanges posted so far */
    bool owes;      /* a peer may need a WIRE_CREDIT */
    bool sharing;   /* whether the rank may use the memory of other ranks (ith_transport.share) */
    wire_request requests[WIRE_REQUESTS];
    wire_peer *peers; /* [group size] */
    /* memory of requests[].in and .out, and of peers[].small */
    wire_flow *flows;
    char (*small)[WIRE_SMALL];
} wire_state;

/* The part of a group of ranks that this process sees. */
typedef struct wire_group {
    struct wire_group *next; /* in world.groups */
    struct wire_world *world;
    int64_t number;
    int size, states;       /* number of ranks; number of states of ranks of this process */
    int *members;           /* [size]: the world rank of each rank */
    int *index;             /* [world size]: the rank in this group of each world rank; -1: it is no member */
    wire_state **near;      /* [size]: the states of ranks of this process; NULL for others */
    _Atomic int64_t notice; /* the number that was sent or heard last (ith_transport.notify) */
} wire_group;

/* The signs of life of one rank of the whole group, as this process has seen them. Times in nanoseconds. */
typedef struct wire_life {
    _Atomic int64_t life;      /* when it last showed that it works: it posted, computed, or moved data */
    _Atomic int64_t heard;     /* when it last sent any sign, also while it waits for another rank */
    _Atomic int64_t signed_at; /* near: when the other processes were last sent a sign of it */
    _Atomic bool signed_wait;  /* near: the last sign said that it waits */
    _Atomic int waits_for;     /* the world rank that it waits for; -1: it does not wait */
    bool left;                 /* it has left the group, after `after` datagrams from its process */
    int64_t after;
} wire_life;

/* The datagrams between this process and another. */
typedef struct wire_process {
    int64_t sent, received; /* datagrams to it and from it */
} wire_process;

/* The state of this process. The lock protects every member that changes, except atomics. */
typedef struct wire_world {
    pthread_mutex_t lock;
    ith_link link;
    int size, states; /* number of all ranks; number of open states */
    int first, ranks; /* the ranks of this process */
    int wakes_made;
    int *process_of;  /* [size]: the process of each rank */
    wire_life *lives; /* [size] */
    wire_process *processes;
    wire_group *groups;
    /* [ranks]: of each rank of this process */
    pthread_cond_t *wake; /* wakes its threads; waits use the monotonic clock */
    int *busy;            /* copies in progress that use its memory */
    bool *waiting;        /* it sleeps in wait */
    int watcher;          /* the world rank whose thread rests in the link or polls it; -1: none */
    unsigned turn;        /* rotates the group that sends first */
    atomic_int status;    /* not ITH_OK: the group has ended */
    char sentence[WIRE_SENTENCE];
} wire_world;

static inline ith_status ith_wire_ended(const wire_world *world)
{
    return (ith_status)atomic_load_explicit(&world->status, memory_order_acquire);
}

static inline bool ith_wire_is_near(const wire_world *world, int world_rank)
{
    return world_rank >= world->first && world_rank < world->first + world->ranks;
}

/* The functions of the table ith_wire_transport, whose first argument is `void *state`, take the lock themselves where
 * they need it. The caller of each other function below holds the lock, unless its comment says otherwise. */

/* ---- wire_groups.c */

void ith_wire_close(void *state);
ith_status ith_wire_split(void *state, const ith_subgroup *subgroup, void **out);

/* ---- wire_life.c: messages, signs of life, failures */

#define WIRE_NAME 96
#define WIRE_OPERATION 128

/* Writes the name of a rank for sentences: "rank 3 (host b)", or "rank 3" if all ranks are on one host. Returns text.
 * Without the lock. */
const char *ith_wire_name(const wire_world *world, int world_rank, char text[WIRE_NAME]);
/* Writes an operation for sentences: "a barrier (exchange 17 of group 2)". Returns text. Without the lock. */
const char *ith_wire_operation(const char *what, int64_t exchange, int64_t group, char text[WIRE_OPERATION]);
/* The same for an operation that a rank has posted. */
const char *ith_wire_posted(const wire_state *self, const wire_request *request, char text[WIRE_OPERATION]);
/* Ends the group because the rank `left` has left, and this rank waits for it in an operation. */
void ith_wire_end_by_leaver(const wire_state *self, const wire_request *request, int left);
/* Ends the group because a rank sends data (if `sends`) that another rank does not receive, or receives data that the
 * other does not send. Both are world ranks. */
void ith_wire_end_unpaired(wire_world *world, int rank, int other, bool sends, const char *operation);

/* Ends the group with a failure and tells all processes, unless it has ended already. */
void ith_wire_end(wire_world *world, ith_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Takes all messages that have come. */
void ith_wire_hear(wire_world *world);
/* Wakes the threads of a rank of this process. */
void ith_wire_rouse(wire_world *world, int world_rank);
/* Tells the other processes that a rank of this process lives, at most once in 50 ms. waits_for: the world rank that it
 * waits for, or -1. Without the lock, from any thread. */
void ith_wire_give_life(wire_world *world, int world_rank, int waits_for);
/* Whether a rank has left the group and all its datagrams have come. */
bool ith_wire_has_left(const wire_world *world, int world_rank);
/* Finds the world rank that a request has waited for longest; -1: none. */
int ith_wire_awaited(const wire_state *self, const wire_request *request);
double ith_wire_silence(void *state, int64_t request, int *rank);
void ith_wire_leave(void *state);
void ith_wire_notify(void *state, int64_t number);
int64_t ith_wire_noticed(void *state);

/* ---- wire_flows.c: flows and their memory */

/* Sets up the flows of a request. `posted` and `number` are set. */
void ith_wire_open_flows(wire_state *self, wire_request *request);
/* Copies the next `bytes` bytes of a flow from its regions to `buffer` (`out`), or from `buffer` to its regions. */
void ith_wire_stream(const wire_request *request, int peer, bool out, char *buffer, int64_t bytes);
/* Marks a flow as done, and wakes the rank if it was the last of the request. */
void ith_wire_finish(wire_state *self, wire_request *request, wire_flow *flow);
/* The request of exchange `number` that is in flight; NULL if there is none. */
wire_request *ith_wire_request(wire_state *self, int64_t number);

/* ---- wire_send.c, wire_take.c: datagrams */

/* Sends the datagrams that are due, as far as the link has room. Returns whether it sent any. */
bool ith_wire_send(wire_world *world);
/* Takes the datagrams that have come. Returns whether there were any. */
bool ith_wire_take(wire_world *world);
/* Takes the offers and asks for a request that came before it was posted. */
void ith_wire_take_waiting(wire_state *self, wire_request *request);

/* ---- wire_near.c: copies between ranks of this process */

/* Copies all data between this rank and other ranks of this process that both have posted. Returns whether there was
 * any. Releases the lock during large copies. */
bool ith_wire_copy_near(wire_state *self);
/* Waits until no thread copies from or to this rank's memory. Returns the failure that ended the group. */
ith_status ith_wire_settle(const wire_state *self);
ith_status ith_wire_share(void *state);
void ith_wire_unshare(void *state);
void ith_wire_drain(void *state);

#endif
