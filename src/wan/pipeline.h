/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a pipeline, and the functions that prepare a run. The public interface is ithaca/wan.h. */
#ifndef ITH_WAN_PIPELINE_H
#define ITH_WAN_PIPELINE_H

#include "../base/machine_memory.h"
#include "model.h"
#include "text/tokenizer.h"

#include <pthread.h>

/* The data of a run that the ranks of one pipeline share. Their leader writes it, and all read it (rank.h). */
typedef struct ith_shared {
    uint64_t run;   /* a random number that identifies the run */
    int ranks;      /* number of ranks that have joined the run and not left it */
    float *text[2]; /* encoded prompt and negative prompt; the second is NULL if it is not needed */
    int64_t text_count[2];
    float *latents;        /* the noise; after denoising, on rank 0, the result */
    ith_dit *dit;          /* the expert in use */
    ith_dit_text *keys[2]; /* text keys: of both branches in the first, or of one branch in each */
} ith_shared;

struct ith_pipeline {
    ith_context *context;
    ith_model *model;
    ith_tokenizer *tokenizer; /* loaded when it is first needed; NULL before */
    bool checked;             /* ith_pipeline_check has succeeded */
    uint64_t number;          /* a random number that identifies the pipeline among all processes */
    pthread_mutex_t lock;     /* protects shared.run and shared.ranks */
    ith_shared shared;
};

/* The ranks of a run that share a pipeline. */
typedef struct ith_team {
    int ranks;          /* of the run */
    int count;          /* of the team */
    const int *members; /* [count], ascending; NULL: the first ones */
    bool shares_memory; /* all ranks of the run do */
} ith_team;

/* A random number. `address` is one that no other caller passes at the same time. */
uint64_t ith_draw_number(const void *address);

/* Copies the options of a call, fills in defaults, and checks them. options->attention then points to `attention`.
 * sized: from_latents is read for the size of the video. */
ith_status ith_request_read(const ith_pipeline *pipeline, ith_context *context, const ith_generate_options *given,
                            bool sized, ith_generate_options *options, ith_attn_options *attention);
/* Checks that the guidance branches can be distributed over that many ranks. */
ith_status ith_request_check_ranks(ith_context *context, const ith_generate_options *options, int ranks);

/* Loads the tokenizer unless that has been done. */
ith_status ith_pipeline_need_tokenizer(ith_pipeline *pipeline, ith_context *context);
/* ith_pipeline_check with the sentence in `context`. */
ith_status ith_pipeline_check_in(ith_pipeline *pipeline, ith_context *context);

/* Predicts the peak memory of a team's process in a run with these options, which ith_request_read has filled in. */
ith_status ith_predict(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                       const ith_team *team, int64_t *bytes);
/* ITH_ERR_MEMORY, with a sentence that names options that would fit, if the predicted bytes exceed the machine's free
 * memory; always ITH_OK with `force`. */
ith_status ith_check_memory(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                            const ith_team *team, int64_t bytes, const ith_machine_memory *memory);

#endif
