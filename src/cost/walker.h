/* SPDX-License-Identifier: Apache-2.0 */
/* One rank on its walk over its schedule, with a clock. A step of computing moves the clock by its price. A step that
 * concerns other ranks ends the walk until its owner knows enough about them: the cost model (walk.h) walks a few ranks
 * side by side, the simulator (simulate.c) all ranks.
 *
 * An exchange can begin when this rank and its peers have posted it. Over one level the exchanges of a rank follow one
 * another in the order of their posts. While the rank computes, a link transfers at the share `overlap` of its rate.
 * The link is followed when the rank waits, because only then it is known when the peers have posted. */
#ifndef ITH_COST_WALKER_H
#define ITH_COST_WALKER_H

#include "price.h"

/* Seconds, bytes and work of a rank so far. All are double, so that hops which repeat are multiplied in one loop. */
typedef struct ith_walk_sums {
    double now; /* the rank's clock */
    double compute, pack, offset, copy;
    double exchange, waiting; /* as ith_plan_counters counts them */
    double sent;              /* bytes, as ith_schedule_sent_bytes counts them */
    double work;              /* pairs of queries and keys */
    double rows, blocks;      /* keys and KV blocks of the last COMPUTE step; in place, of all since the first hop */
    double level_bytes[ITH_MACHINE_LEVELS], level_seconds[ITH_MACHINE_LEVELS]; /* messages, as in ith_cost */
} ith_walk_sums;
enum { ITH_WALK_SUMS = sizeof(ith_walk_sums) / sizeof(double), ITH_WALK_HOPS = 4 };

/* An exchange that has been posted. */
typedef struct ith_walk_exchange {
    bool active;
    int64_t number;       /* exchanges of a rank are numbered in the order of their posts */
    double posted, ready; /* when this rank has posted it, and when its peers have too; infinite: not known */
    bool used[ITH_MACHINE_LEVELS];
    double work[ITH_MACHINE_LEVELS];  /* seconds for which it still occupies the link of each level */
    double end[ITH_MACHINE_LEVELS];   /* when `work` reached 0 there */
    double least[ITH_MACHINE_LEVELS]; /* it ends no earlier, because a link of several ranks is occupied; 0: no limit */
    double copies;                    /* copies that this rank still has to make */
    double restore;                   /* time to restore compressed messages when they have arrived */
} ith_walk_exchange;

/* One rank's part of an exchange: the time of its post, and for each level the end of its use of a link that several
 * ranks share. */
typedef struct ith_posted_part {
    double time, group_end[ITH_MACHINE_LEVELS];
} ith_posted_part;

/* Adds another rank's part to *sum: the latest times of both. */
void ith_posted_combine(ith_posted_part *sum, const ith_posted_part *part);

/* Why a walk has stopped. */
typedef enum ith_walk_stop {
    ITH_WALK_COMPUTED, /* it has computed and may go on */
    ITH_WALK_HOP,      /* a hop in place has ended, and it may go on */
    ITH_WALK_POST,     /* a message exchange is to be posted */
    ITH_WALK_WAIT,     /* a message exchange is to be waited for */
    ITH_WALK_GATHER,   /* statistics were computed, and are gathered on the ring */
    ITH_WALK_PACK,     /* a ring in place: the rank packs its shard for all, between two meetings */
    ITH_WALK_END
} ith_walk_stop;

/* Called when a rank begins some work, before its clock moves. It may change *seconds, the time of the work, and
 * returns how long the rank waits before it can begin. */
typedef struct ith_walker ith_walker;
typedef double (*ith_walk_work_fn)(void *user, const ith_walker *walker, const char *name, double *seconds);

/* A rank on its walk: the place in its schedule, its sums, and its exchanges. */
struct ith_walker {
    const ith_price *price;
    ith_schedule schedule;
    ith_step step; /* the step at which the walk has stopped */
    ith_walk_sums sum;
    ith_walk_sums before[ITH_WALK_HOPS + 1]; /* the sums at the ends of the last hops, the last one first */
    int64_t posts;
    double covered; /* end of the time in which exchanges were under way */
    ith_walk_exchange exchanges[ITH_EXCHANGES];
    double cursor[ITH_MACHINE_LEVELS]; /* the time up to which each link has been followed */
    /* the last attention that was priced, and its price: most hops are alike */
    struct {
        int64_t heads, kv_heads;
        double keys, seconds;
    } priced;
    ith_walk_work_fn work; /* NULL: work takes its price */
    void *user;
};

/* The walk of a rank from its first step, at time `now`. */
ith_walker ith_walker_of(const ith_price *price, int rank, double now);
/* Walks one step further. */
ith_walk_stop ith_walker_next(ith_walker *walker);
/* Performs a POST step. group: whether links that several ranks share are priced as if all of them sent as much at the
 * same time. The exchange is then ready when it is posted; the caller may move that to a later time. */
ith_walk_exchange *ith_walker_post(ith_walker *walker, bool group, ith_traffic *traffic);
/* Performs a WAIT step, whose exchange is ready. Returns the time at which the wait begins. */
double ith_walker_wait(ith_walker *walker);
/* Packs this rank's shard for all ranks. */
void ith_walker_pack(ith_walker *walker);
/* Performs a COMPUTE step; in a ring in place, after the second meeting. */
void ith_walker_compute(ith_walker *walker);
/* The rank works for some seconds, which are added to *sum too. */
void ith_walker_work(ith_walker *walker, const char *name, double seconds, double *sum);
/* The rank has nothing to do until the time `until`. */
void ith_walker_idle(ith_walker *walker, double until);
/* Writes the means over `executions` walks of a rank to *cost: its work and its exchanges. */
void ith_walker_report(const ith_walker *walker, double executions, ith_cost *cost);
/* Seconds in which the rank works. */
double ith_walker_busy(const ith_walker *walker);
/* Whether a rank works longer than another one, and not by rounding alone. */
bool ith_walker_is_busier(const ith_walker *walker, const ith_walker *other);

/* Whether the last two hops have added the same sums as the two hops before them. The result has a meaning only where
 * the next hops are like the last ones (ith_schedule_hops_alike): there four hops or more have ended. */
bool ith_walker_repeats(const ith_walker *walker);
/* A hop has ended: leaves out the next `skipped` hops, which add as much as the last ones. */
void ith_walker_end_hop(ith_walker *walker, int skipped);

#endif
