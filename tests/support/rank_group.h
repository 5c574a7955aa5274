/* SPDX-License-Identifier: Apache-2.0 */
/* A group of ranks whose contexts and communicators the test itself makes and destroys, in any order. */
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

/* The function that connects the ranks: ith_comm_create_local, unless a test sets another one. */
extern ith_status (*group_connect)(ith_context *const *contexts, int ranks, ith_comm **comms);

/* Makes a group. contexts[0] is `root`, which the caller destroys; the other contexts are clones of it. */
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

/* Calls fn for every rank, each in a separate thread with one OpenMP thread. Returns when all have returned. */
void group_run(rank_group *g, group_fn fn, void *user);

#endif
