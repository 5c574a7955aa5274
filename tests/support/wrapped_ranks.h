/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads, whose communicators are made one by one from a table of functions around the local transport. */
#ifndef ITH_TESTS_WRAPPED_RANKS_H
#define ITH_TESTS_WRAPPED_RANKS_H

#include <ithaca/transport.h>

#include <pthread.h>

/* How a table makes its state of a rank from the local transport's. */
typedef struct wrapper {
    const ith_transport *table;
    void *(*wrap)(void *local); /* NULL: the local transport's state itself */
} wrapper;

typedef struct rank_thread {
    pthread_t thread;
    ith_context *context;
    ith_comm *comm;
    ith_rank_fn fn;
    void *user;
    bool failed;
} rank_thread;

enum { WRAPPED_RANKS = 8 }; /* the most ranks of a group */

/* Makes the contexts and the communicators of some ranks, clones of the fixture's context (support/fixture.h). */
void wrapped_connect(const wrapper *w, int ranks, ith_context **contexts, ith_comm **comms);

/* Runs fn on each rank of a group; self is a wrapper. Returns the number of ranks that failed. A rank that fails ends
 * the group, so that no other rank waits for it. */
int wrapped_run(void *self, int ranks, ith_rank_fn fn, void *user);

/* A small attention problem for these ranks. */
ith_attn_problem wrapped_problem(void);

#endif
