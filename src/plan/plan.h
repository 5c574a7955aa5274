/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: a setting with every choice made, and the executor of its schedule, in one allocation. */
#ifndef ITH_PLAN_PLAN_H
#define ITH_PLAN_PLAN_H

#include "../attention/run/execute.h"

struct ith_plan {
    ith_attn_setting setting;
    ith_executor executor;
    bool owns_axes;       /* whether the plan made the communicators of the axes, and so destroys them */
    int64_t memory_bytes; /* size of the plan's allocation */
    /* number of the plan on its communicator; number of executions that all ranks began */
    int64_t number, begun;
    ith_halt halt;      /* the request to stop an execution */
    atomic_int holders; /* number of references to the plan: one of the caller, one of a thread that executes it */
    atomic_bool busy;   /* whether a thread is executing the plan */
};

/* Sets *bytes to the size of a plan for a setting. ITH_ERR_MEMORY if the size does not fit into an int64_t. */
ith_status ith_plan_size(const ith_attn_setting *setting, int64_t *bytes);
/* The public description of a setting. sent_bytes, memory_bytes: the predicted cost of its plan. */
ith_plan_info ith_plan_info_of(const ith_attn_setting *setting, int64_t sent_bytes, int64_t memory_bytes);

#endif
