/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: walks the steps of this rank's schedule and performs each. How rows of other ranks are reached is its
 * business: by messages (message.h), or where they lie (in_place.h). */
#ifndef ITH_ATTENTION_EXECUTE_H
#define ITH_ATTENTION_EXECUTE_H

#include "in_place.h"
#include "message.h"

typedef struct ith_executor {
    const ith_attn_setting *setting;
    ith_sweep sweep;
    ith_messages messages; /* unless the exchange is in place */
    ith_in_place in_place;
    ith_plan_counters counters;
    _Atomic int64_t sent; /* bytes of the execution under way; in place other ranks add to it */
} ith_executor;

/* Takes all memory from an arena. Called twice: to count it, and then with it. */
void ith_executor_lay_out(const ith_attn_setting *setting, ith_arena *arena, ith_executor *executor);

/* In place, at the opening of an execution: the record that this rank shows, and the records of all ranks. */
ith_in_place_record ith_executor_record(ith_executor *executor, const ith_attn_tensors *tensors);
void ith_executor_meet(ith_executor *executor, int rank, const ith_in_place_record *record);

/* One execution, on tensors that have been checked. Allocates nothing. Collective over the setting's groups. */
ith_status ith_executor_run(ith_executor *executor, const ith_attn_tensors *tensors);
/* When the other ranks have ended it too: brings the counters up to date. */
void ith_executor_close(ith_executor *executor);

#endif
