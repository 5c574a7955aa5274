/* A pipeline's insides; its interface is ithaca/wan.h. */
#ifndef ITH_WAN_PIPELINE_H
#define ITH_WAN_PIPELINE_H

#include "model.h"
#include "tokenizer.h"

struct ith_pipeline {
    ith_context *context;
    ith_model *model;
    ith_tokenizer *tokenizer;
};

/* Copies what a call was asked for, puts in what was left open, and checks it. options->attention is then attention. */
ith_status ith_request_read(ith_pipeline *pipeline, const ith_generate_options *given, ith_generate_options *options,
                            ith_attn_options *attention);

/* As ith_pipeline_predict, of options that ith_request_read made. */
ith_status ith_predict(ith_pipeline *pipeline, const ith_generate_options *options, int64_t *bytes);

#endif
