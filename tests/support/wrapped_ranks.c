/* SPDX-License-Identifier: Apache-2.0 */
#include "support/wrapped_ranks.h"

#include "comm/local/local.h"
#include "support/fixture.h"

#include <omp.h>

static void *rank_main(void *argument)
{
    rank_thread *self = argument;
    omp_set_num_threads(1);
    ith_status status = self->fn(self->context, self->comm, self->user);
    self->failed = status != ITH_OK;
    if (status)
        ith_comm_abort(self->comm, status);
    ith_comm_destroy(&self->comm);
    return NULL;
}

void wrapped_connect(const wrapper *w, int ranks, ith_context **contexts, ith_comm **comms)
{
    void *states[WRAPPED_RANKS];
    for (int i = 0; i < ranks; i++)
        check(context, ith_context_clone(context, &contexts[i]));
    check(contexts[0], ith_local_connect(contexts, ranks, states));
    for (int i = 0; i < ranks; i++) {
        void *state = w->wrap ? w->wrap(states[i]) : states[i];
        check(contexts[i], ith_comm_create(contexts[i], w->table, state, i, ranks, &comms[i]));
    }
}

int wrapped_run(void *self, int ranks, ith_rank_fn fn, void *user)
{
    rank_thread all[WRAPPED_RANKS] = {{0}};
    ith_context *contexts[WRAPPED_RANKS] = {NULL};
    ith_comm *comms[WRAPPED_RANKS];
    int failed = 0;
    wrapped_connect(self, ranks, contexts, comms);
    for (int i = 0; i < ranks; i++)
        all[i] = (rank_thread){.context = contexts[i], .comm = comms[i], .fn = fn, .user = user};
    for (int i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, rank_main, &all[i]), 0);
    for (int i = 0; i < ranks; i++) {
        pthread_join(all[i].thread, NULL);
        failed += all[i].failed;
    }
    for (int i = 0; i < ranks; i++)
        ith_context_destroy(&contexts[i]);
    assert_int_equal(memory_of(context).current_bytes, 0);
    return failed;
}

ith_attn_problem wrapped_problem(void)
{
    return (ith_attn_problem){.struct_size = sizeof(ith_attn_problem),
                              .batch = 1,
                              .heads = 1,
                              .head_dim = 8,
                              .q_len = 4,
                              .kv_len = 4,
                              .dtype = ITH_F32};
}
