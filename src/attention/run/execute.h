/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: walks the steps of this rank's schedule and executes each. It reaches rows of other ranks by messages
 * (message.h), or reads and writes them in place (in_place.h). The processor computes (cpu/sweep.h), or a device
 * (device/device_sweep.h). */
#ifndef ITH_ATTENTION_EXECUTE_H
#define ITH_ATTENTION_EXECUTE_H

#include "device/device_sweep.h"
#include "in_place.h"
#include "message.h"

/* The executor of one rank's schedule, with its memory. */
typedef struct ith_executor {
    const ith_attn_setting *setting;
    ith_sweep sweep;         /* used on the processor */
    ith_device_sweep device; /* used on a device */
    ith_messages messages;   /* used if some exchange is made by messages: COPY and MIXED */
    ith_in_place in_place;   /* used if tensors of other ranks are used in place: IN_PLACE and MIXED */
    ith_plan_counters counters;
    /* bytes that this rank has sent in the execution under way; if the exchange is in place, other ranks add to it */
    _Atomic int64_t sent;
} ith_executor;

/* Takes all memory of an executor from the plan's memory. It is called twice: first the arenas only count bytes, then
 * they have memory. */
void ith_executor_lay_out(const ith_attn_setting *setting, ith_plan_memory *memory, ith_executor *executor);
/* ith_executor_open makes the streams of the device, ith_executor_destroy frees them. On the processor they do nothing.
 * The setting's communicators must exist before. */
ith_status ith_executor_open(ith_executor *executor);
void ith_executor_destroy(ith_executor *executor);

/* If tensors of other ranks are used in place, ranks show one another records with addresses at the opening of an
 * execution. The first function returns the record of this rank, the second takes the record of rank `rank`. */
ith_in_place_record ith_executor_record(ith_executor *executor, const ith_attn_tensors *tensors);
void ith_executor_meet(ith_executor *executor, int rank, const ith_in_place_record *record);

/* Runs one execution on tensors that have been checked. Allocates nothing. Collective over the setting's groups. */
ith_status ith_executor_run(ith_executor *executor, const ith_attn_tensors *tensors);
/* Adds the bytes that this rank has sent to its counters. To be called when all ranks have ended the execution, because
 * in place other ranks count bytes for this rank. */
void ith_executor_close(ith_executor *executor);

#endif
