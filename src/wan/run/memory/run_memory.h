/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the memory of a run, on the host and on a device, and compares it with the free memory. */
#ifndef ITH_WAN_RUN_MEMORY_H
#define ITH_WAN_RUN_MEMORY_H

#include "../../../base/machine_memory.h"
#include "../pipeline.h"
#include "../team.h"

/* Predicts the peak memory of the process in which the ranks of `team` run as threads. ith_request_read must have
 * filled in the options, and device_memory must be settled. denoised: all steps are done in the run that
 * options->resume_file holds (ith_saved_run_is_denoised); so in the functions below. */
ith_status ith_predict(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options, bool denoised,
                       const ith_team *team, int64_t *bytes);
/* As ith_predict. If the options leave open which layers keep their weights, and the run would take most of the
 * process's share of the free memory, sets them to keep none. */
ith_status ith_predict_settled(ith_pipeline *pipeline, ith_context *context, ith_generate_options *options,
                               bool denoised, const ith_team *team, const ith_machine_memory *memory, int64_t *bytes);

/* Limits options->device_memory to the free memory of the context's device; 0 becomes all of the free memory. */
ith_status ith_settle_device_memory(ith_context *context, ith_generate_options *options);
/* The memory that the ranks of a process take on the device of the context. */
typedef struct ith_device_need {
    int64_t bytes;       /* 0: the context uses no device */
    int64_t streamed[2]; /* of each expert: layers that are streamed, because options->device_memory has no room */
} ith_device_need;
/* Sets *need to the predicted memory on the device. options->device_memory must be settled. */
ith_status ith_predict_device(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                              bool denoised, const ith_team *team, ith_device_need *need);

/* The memory that a run takes, and the memory that is there. */
typedef struct ith_memory_balance {
    int64_t bytes;      /* predicted for this process */
    int64_t host_bytes; /* predicted for all processes of this host */
    ith_machine_memory machine;
} ith_memory_balance;
/* Returns ITH_ERR_MEMORY if this process, or all processes of its host, would take more than the free memory. The error
 * message names options that would fit. With options->force it always returns ITH_OK. */
ith_status ith_check_memory(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                            bool denoised, const ith_team *team, const ith_memory_balance *balance);

#endif
