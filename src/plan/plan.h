/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: a setting with every choice made, and the executor of its schedule, in one allocation. */
#ifndef ITH_PLAN_PLAN_H
#define ITH_PLAN_PLAN_H

#include "../attention/run/execute.h"

struct ith_plan {
    ith_attn_setting setting;
    ith_executor executor;
    bool owns_axes;
    int64_t memory_bytes;
    int64_t number, begun; /* of the plan on its communicator, and executions that all ranks began */
    ith_halt halt;
    atomic_int holders; /* the caller, and a thread that executes the plan */
    atomic_bool busy;   /* being executed */
};

/* Bytes that a plan for a setting takes, in one allocation; ITH_ERR_MEMORY if they are more than a size can hold. */
ith_status ith_plan_size(const ith_attn_setting *setting, int64_t *bytes);

#endif
