/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline's insides; its interface is ithaca/wan.h. */
#ifndef ITH_WAN_PIPELINE_H
#define ITH_WAN_PIPELINE_H

#include "../base/machine_memory.h"
#include "model.h"
#include "text/tokenizer.h"

struct ith_pipeline {
    ith_context *context;
    ith_model *model;
    ith_tokenizer *tokenizer; /* NULL until it is needed */
    bool checked;             /* by ith_pipeline_check */
};

/* Copies what a call was asked for, puts in what was left open, and checks it. options->attention is then attention. */
ith_status ith_request_read(ith_pipeline *pipeline, const ith_generate_options *given, ith_generate_options *options,
                            ith_attn_options *attention);

/* As ith_pipeline_predict, of options that ith_request_read made. */
ith_status ith_predict(ith_pipeline *pipeline, const ith_generate_options *options, int64_t *bytes);
/* ITH_ERR_MEMORY, with a sentence that names what would fit, if a run that was predicted to hold so many bytes is more
 * than the machine's free ones; ITH_OK for any with `force`. */
ith_status ith_pipeline_check_memory(ith_pipeline *pipeline, const ith_generate_options *options, int64_t bytes,
                                     const ith_machine_memory *memory);

#endif
