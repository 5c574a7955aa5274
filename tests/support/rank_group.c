/* SPDX-License-Identifier: Apache-2.0 */
#include "support/rank_group.h"

#include <omp.h>
#include <pthread.h>

ith_status (*group_connect)(ith_context *const *contexts, int ranks, ith_comm **comms) = ith_comm_create_local;

ith_status group_create(rank_group *g, ith_context *root, int ranks)
{
    ith_status status = ITH_OK;
    *g = (rank_group){.ranks = ranks, .contexts = {root}};
    for (int i = 1; i < ranks && !status; i++)
        status = ith_context_clone(root, &g->contexts[i]);
    return status ? status : group_connect(g->contexts, ranks, g->comms);
}

void group_destroy(rank_group *g)
{
    for (int i = 0; i < g->ranks; i++)
        ith_comm_destroy(&g->comms[i]);
    for (int i = 1; i < g->ranks; i++)
        ith_context_destroy(&g->contexts[i]);
}

static void *group_thread_main(void *argument)
{
    group_thread *self = argument;
    omp_set_num_threads(1);
    self->fn(self->group, self->rank, self->user);
    return NULL;
}

void group_run(rank_group *g, group_fn fn, void *user)
{
    group_thread threads[GROUP_RANKS];
    for (int i = 0; i < g->ranks; i++) {
        threads[i] = (group_thread){.group = g, .rank = i, .fn = fn, .user = user};
        pthread_create(&threads[i].thread, NULL, group_thread_main, &threads[i]);
    }
    for (int i = 0; i < g->ranks; i++)
        pthread_join(threads[i].thread, NULL);
}
