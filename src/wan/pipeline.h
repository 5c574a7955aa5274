/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline's insides; its interface is ithaca/wan.h. */
#ifndef ITH_WAN_PIPELINE_H
#define ITH_WAN_PIPELINE_H

#include "../base/machine_memory.h"
#include "model.h"
#include "text/tokenizer.h"

#include <pthread.h>

/* What the ranks that share a pipeline share of a run. Their leader makes it (rank.h), all read it. */
typedef struct ith_shared {
    uint64_t run;   /* a number that only the ranks of this run know */
    int ranks;      /* that have joined the run and not left it */
    float *text[2]; /* rows of the prompt and of the negative prompt; the second NULL where it is not needed */
    int64_t text_count[2];
    float *latents;        /* before denoising: noise. After it, for rank 0: what is decoded */
    ith_dit *dit;          /* the expert in use */
    ith_dit_text *keys[2]; /* of the prompts: both branches in the first, or one branch in each */
} ith_shared;

struct ith_pipeline {
    ith_context *context;
    ith_model *model;
    ith_tokenizer *tokenizer; /* NULL until it is needed */
    bool checked;             /* by ith_pipeline_check */
    uint64_t number;          /* drawn at random, tells the pipelines of all processes apart */
    pthread_mutex_t lock;     /* of shared.run and shared.ranks */
    ith_shared shared;
};

/* Which ranks of a run share a pipeline. */
typedef struct ith_team {
    int ranks;          /* of the run */
    int count;          /* of the team */
    const int *members; /* [count], ascending; NULL: the first ones */
    bool shares_memory; /* all ranks of the run do */
} ith_team;

/* A number at random; `place` is an address that is the caller's alone. */
uint64_t ith_draw_number(const void *place);

/* Copies what a call was asked for, puts in what was left open, and checks it. options->attention is then attention.
 * sized: from_latents is read for the size of the video. */
ith_status ith_request_read(const ith_pipeline *pipeline, ith_context *context, const ith_generate_options *given,
                            bool sized, ith_generate_options *options, ith_attn_options *attention);
/* Whether the guidance branches can be computed on so many ranks. */
ith_status ith_request_check_ranks(ith_context *context, const ith_generate_options *options, int ranks);

/* Nothing if the tokenizer was read before. */
ith_status ith_pipeline_need_tokenizer(ith_pipeline *pipeline, ith_context *context);
/* As ith_pipeline_check, with the sentence in the context. */
ith_status ith_pipeline_check_in(ith_pipeline *pipeline, ith_context *context);

/* The bytes that the process of a team holds at the peak of a run with these options, which ith_request_read made. */
ith_status ith_predict(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                       const ith_team *team, int64_t *bytes);
/* ITH_ERR_MEMORY, with a sentence that names what would fit, if a run that was predicted to hold so many bytes is more
 * than the machine's free ones; ITH_OK for any with `force`. */
ith_status ith_check_memory(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                            const ith_team *team, int64_t bytes, const ith_machine_memory *memory);

#endif
