/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks made by hand, with their contexts and communicators at hand: what outlives what is up to the test. */
#ifndef ITH_TESTS_RANK_GROUP_H
#define ITH_TESTS_RANK_GROUP_H

#include <ithaca/ithaca.h>

#include <pthread.h>

#define GROUP_RANKS 6

typedef struct rank_group {
    int ranks;
    ith_context *contexts[GROUP_RANKS];
    ith_comm *comms[GROUP_RANKS];
} rank_group;

/* Connects the ranks: ith_comm_create_local unless a test sets another function. */
extern ith_status (*group_connect)(ith_context *const *contexts, int ranks, ith_comm **comms);

/* The first context is the caller's, who destroys it; the others are clones. */
ith_status group_create(rank_group *g, ith_context *root, int ranks);

void group_destroy(rank_group *g);

typedef void (*group_fn)(rank_group *g, int rank, void *user);

typedef struct group_thread {
    pthread_t thread;
    rank_group *group;
    int rank;
    group_fn fn;
    void *user;
} group_thread;

/* fn for every rank, each in a thread of its own with one thread of OpenMP; returns when all have. */
void group_run(rank_group *g, group_fn fn, void *user);

#endif
