/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a pipeline, and the functions of a pipeline that runs call. The public interface is ithaca/wan.h. */
#ifndef ITH_WAN_PIPELINE_H
#define ITH_WAN_PIPELINE_H

#include "../dit/dit_shards.h"
#include "../model/model.h"
#include "../text/tokenizer.h"
#include "saved_run.h"

#include <pthread.h>
#include <stdatomic.h>

/* The data of a run that the ranks of one pipeline share. The lowest of these ranks, their leader, writes it, and all
 * of them read it (rank.h). */
typedef struct ith_shared {
    uint64_t run;           /* a random number that identifies the run */
    int ranks;              /* number of ranks (threads of this process) that have joined the run and not left it */
    float *text[2];         /* rows of the encoded prompt and negative prompt; text[1] is NULL without guidance */
    int64_t text_count[2];  /* number of rows in each of `text` */
    float *latents;         /* the noise at first; after denoising, the result, on rank 0 only */
    float *condition;       /* the condition from the images (condition.h); NULL: there are none */
    float *image_rows;      /* the image encoder's rows of the images (image_rows.h); NULL: there are none */
    ith_dit *dit;           /* weights of the expert in use */
    ith_dit_shards *shards; /* loads the layers of `dit`, of which each process keeps a part; NULL: there are none */
    ith_dit_text *keys[2];  /* the prompts' keys and values for cross-attention: of both guidance branches in keys[0] if
                               they run as a batch, otherwise of one branch in each */
    ith_dit_image *images;  /* the images' keys and values for cross-attention; NULL: there are none */
} ith_shared;

/* A text that a pipeline has encoded for later runs. */
typedef struct ith_kept_text {
    char *text;
    ith_operand_types types; /* the types of the products that have encoded it */
    int64_t count;           /* number of rows */
    float *rows;             /* [count, the model's text.dim] */
} ith_kept_text;

/* An open model. */
struct ith_pipeline {
    ith_context *context;
    ith_model *model;
    ith_tokenizer *tokenizer; /* loaded when it is first needed; NULL before */
    uint64_t number;          /* a random number that identifies the pipeline among all processes */
    bool lent;                /* rank 0's process has sent the model (lend.h) */
    atomic_bool cancelled;    /* its run, or its next one, is to end (ith_pipeline_cancel) */
    pthread_mutex_t lock;     /* protects shared.run and shared.ranks */
    ith_saved_run **resolved; /* [resolved_count] files whose strings ith_pipeline_resolve has returned */
    int64_t resolved_count;
    ith_kept_text *kept; /* [kept_count] encoded texts for later runs (ith_pipeline_encode) */
    int64_t kept_count;
    ith_shared shared;
};

/* Withdraws the pipeline's cancellation, if there is one: a run of the pipeline has ended. */
void ith_pipeline_end_cancellation(ith_pipeline *pipeline);
/* Loads the pipeline's tokenizer, unless it is loaded already. */
ith_status ith_pipeline_need_tokenizer(ith_pipeline *pipeline, ith_context *context);
/* As ith_pipeline_check, but the error message is left in `context`. */
ith_status ith_pipeline_check_in(ith_pipeline *pipeline, ith_context *context);

#endif
