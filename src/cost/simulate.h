/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's state: all ranks, the events to come, and the links and units that ranks share. */
#ifndef ITH_COST_SIMULATE_H
#define ITH_COST_SIMULATE_H

#include "../base/arena.h"
#include "walker.h"

/* How many of a rank's latest posts the simulator keeps for its peers. */
enum {
    ITH_POSTS_KEPT = 8, /* a rank posts fewer all-to-alls than this before it waits for one */
    ITH_HOPS_KEPT = 2   /* neighbours are at most one hop apart */
};

/* The packing of a shard for all ranks. It begins when all ranks have finished with the chunk before. */
typedef enum ith_packing {
    ITH_PACKING_NONE, /* the rank does not pack */
    ITH_PACKING_NEXT, /* the rank waits for the other ranks, and packs next */
    ITH_PACKING_DONE  /* the rank has packed, and waits for the other ranks */
} ith_packing;

/* A rank of the simulation. */
typedef struct ith_simulated_rank {
    ith_walker walker;
    uint64_t random;
    bool stopped;                        /* the rank waits in a WAIT step whose exchange is not ready */
    int waits_for;                       /* the number of this exchange (ith_step.exchange); -1: none */
    ith_packing packing;                 /* how far the rank has come with the packing of its shard for all ranks */
    double begun;                        /* the time at which the rank began to wait in its present meeting */
    double other;                        /* seconds of its other work in all executions */
    bool posting;                        /* the rank has begun a POST step, and ends it next */
    ith_traffic traffic;                 /* of this step */
    int64_t axis_posts, hop_posts;       /* all-to-alls and hops that it has posted */
    bool with[2];                        /* whether its last hop exchanges rows with its left and right neighbour */
    ith_posted_part hops[ITH_HOPS_KEPT]; /* its parts of its last hops */
} ith_simulated_rank;

/* An all-to-all: the number of ranks of the axis that have posted it, and the latest of their parts. */
typedef struct ith_axis_post {
    int posted;
    ith_posted_part latest;
} ith_axis_post;

/* A point at which ranks wait for one another: the number of ranks that have reached it, and the time of the last. */
typedef struct ith_meeting {
    int come;
    double latest;
} ith_meeting;

/* A rank that takes its next step at some time. Events with the same time happen in the order of their numbers. */
typedef struct ith_event {
    double time;
    int64_t number;
    int rank;
} ith_event;

/* The state of a simulation. */
typedef struct ith_simulator {
    ith_context *context;
    const ith_price *price;
    ith_simulation wanted;
    int rank_count;
    double barrier; /* seconds that a meeting takes */
    ith_simulated_rank *ranks;
    ith_event *heap;            /* [rank_count], with heap_count events */
    int64_t heap_count, events; /* numbers of events in the heap, and of all events so far */
    int64_t unchecked;          /* steps since the last question whether to stop */
    bool stopped;               /* the caller wants the simulation to end */
    ith_axis_post *axes;        /* [ring][ITH_POSTS_KEPT] */
    ith_meeting all, *rings;    /* [ulysses] */
    int64_t host_slots;         /* ranks that can work on a host at the same time */
    double own_turns;           /* threads of a rank over the units of its host, at least 1: they take turns */
    double *slots;              /* [hosts][host_slots]: the time from which each is free; NULL: there are enough */
    double *links[ITH_MACHINE_LEVELS]; /* [groups]: the time from which the link of a group of ranks is free */
} ith_simulator;

/* Simulates executions of a priced plan on all ranks. memory_bytes of *cost is left 0. */
ith_status ith_simulator_run(ith_context *context, const ith_price *price, const ith_simulation *wanted,
                             ith_cost *cost);

#endif
