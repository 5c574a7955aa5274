/* SPDX-License-Identifier: Apache-2.0 */
/* A run whose memory is predicted. The model need not have a folder, so predictions of videos (cost/video_cost.c) use
 * it, too. */
#ifndef ITH_WAN_PREDICTED_RUN_H
#define ITH_WAN_PREDICTED_RUN_H

#include "../../dit/dit.h"
#include "../../part/precision.h"
#include "run_memory.h"

/* A run, and the sizes that follow from its options. */
typedef struct ith_predicted_run {
    const ith_model *model;
    ith_context *context;
    const ith_generate_options *options;
    bool denoised;        /* all steps are done in the saved run that goes on */
    const ith_team *team; /* the ranks of this process */
    int64_t counts[2];    /* numbers of token ids of the prompt and of the negative prompt; 0: there is none */
    ith_number_types types;
    ith_latent_size size;
    ith_dit_shape shape; /* of the transformer's passes */
    int sequence_ranks;  /* number of ranks that divide a sequence */
} ith_predicted_run;

/* Describes a run. options: filled in by ith_request_read, with a settled device_memory. options, team and model must
 * outlive the result. counts: as in ith_predicted_run. */
ith_predicted_run ith_predicted_run_of(const ith_model *model, ith_context *context,
                                       const ith_generate_options *options, bool denoised, const int64_t counts[2],
                                       const ith_team *team);
/* Sets *bytes to the peak memory of the process in which the ranks of run->team run as threads. encodes: the run
 * encodes its prompts; false: the pipeline keeps them. */
ith_status ith_predict_model(const ith_predicted_run *run, bool encodes, int64_t *bytes);

/* Sets *bytes to the peak memory of denoising: the memory of the larger expert, if a step is left, and the buffers of
 * every rank. */
ith_status ith_predict_denoising(const ith_predicted_run *run, int64_t *bytes);
/* Sets *bytes to the memory of the device that the process takes for one expert: for its weights, for the prompts' keys
 * and values, and for the workspaces of its ranks. Sets *streamed to the number of layers that are streamed, because
 * the device has no room for them. Both are 0 on the processor. */
ith_status ith_predict_expert_on_device(const ith_predicted_run *run, const ith_dit *dit, int64_t *streamed,
                                        int64_t *bytes);

#endif
