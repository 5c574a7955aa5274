/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: a setting with every choice made, and the executor of its schedule, in one allocation. */
#ifndef ITH_PLAN_PLAN_H
#define ITH_PLAN_PLAN_H

#include "../attention/extents.h"
#include "../attention/run/execute.h"

/* The sizes of a plan's memory. */
typedef struct ith_plan_sizes {
    int64_t host_bytes;   /* the plan's allocation, and its pinned memory */
    int64_t pinned_bytes; /* of these, memory for copies from and to the device */
    int64_t device_bytes;
} ith_plan_sizes;

/* One rank's plan. */
struct ith_plan {
    ith_attn_setting setting;
    ith_executor executor;
    bool owns_axes; /* whether the plan made the communicators of the axes, and so destroys them */
    ith_plan_sizes sizes;
    void *on_device, *pinned; /* the memory of the executor on a device; NULL on the processor */
    /* number of the plan on its communicator; number of executions that all ranks began */
    int64_t number, begun;
    bool has_neighbours; /* some ranks of the group are threads of one process */
    ith_extents extents; /* the memory of this rank's tensors; its neighbours read it while an execution opens */
    ith_halt halt;       /* the request to stop an execution */
    atomic_int holders;  /* number of references to the plan: one of the caller, one of a thread that executes it */
    atomic_bool busy;    /* whether a thread is executing the plan */
};

/* Sets *sizes to the sizes of a plan for a setting. ITH_ERR_MEMORY if a size does not fit into an int64_t. */
ith_status ith_plan_size(const ith_attn_setting *setting, ith_plan_sizes *sizes);
/* The public description of a setting. sent_bytes, sizes: the predicted cost of its plan. */
ith_plan_info ith_plan_info_of(const ith_attn_setting *setting, int64_t sent_bytes, const ith_plan_sizes *sizes);

#endif
