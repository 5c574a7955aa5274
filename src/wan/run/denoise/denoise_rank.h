/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one rank in the denoising loop. */
#ifndef ITH_WAN_DENOISE_RANK_H
#define ITH_WAN_DENOISE_RANK_H

#include "../../../base/arena.h"
#include "../../../comm/comm.h"
#include "../../dit/dit.h"
#include "../../sample/sampler.h"
#include "../rank.h"

/* A rank's share of the tokens, and its buffers for the whole denoising loop. */
typedef struct ith_denoise_buffers {
    int64_t begin, count, width; /* first token and number of tokens of this rank; numbers per token */
    int64_t known_count;         /* number of this rank's tokens whose latents are known */
    int64_t condition_width;     /* numbers of a token's condition; 0: there is none */
    float *x;                    /* the latents of this rank's tokens, [count, width] */
    float *known;                /* the image's latents of this rank's known tokens, [known_count, width] */
    float *condition;            /* the condition of this rank's tokens, [count, condition_width] */
    float *velocity;             /* [2, count, width], a guidance branch each */
    float *whole;                /* on rank 0: numbers of all S tokens, [S, width] */
    ith_transfer *receives;      /* on rank 0: one transfer from every rank */
    /* On rank 0 of a run that is saved: the latents and the solver's arrays between two steps, as latents. One copy is
     * complete while the other one is filled. */
    float *kept[2][ITH_SAVED_MOST_TENSORS];
    uint8_t *preview; /* on rank 0 of a run with previews: the picture (preview.h) */
} ith_denoise_buffers;

/* The state of one rank during the denoising loop. */
typedef struct ith_denoiser {
    ith_rank *rank;
    ith_context *context;
    ith_comm *comm;     /* all ranks of the run */
    ith_comm *sequence; /* the ranks that split the tokens: comm, or this rank's half of comm */
    ith_comm *half;     /* this rank's half of comm; NULL unless the guidance branches run in parallel */
    ith_denoise_buffers b;
    ith_arena arena;      /* memory of the buffers */
    ith_sampler *sampler; /* the solver for this rank's tokens, with the history of its earlier predictions */
    int complete;         /* index of the copy in b.kept that is complete */
    int64_t kept_step;    /* number of steps that were done when it was made; -1: there is none yet */
    char attention[ITH_SAVED_ATTENTION_BYTES]; /* the choices of the plan of self-attention that change bits */
    /* The members below are for the expert that is open at present. */
    int expert;
    int64_t first_step, end_step; /* the expert computes denoising steps first_step .. end_step - 1 */
    double guidance;              /* the factor g of guidance; if it is at most 1, the negative prompt is left out */
    ith_dit_shape shape;
    ith_dit_workspace *workspace;
} ith_denoiser;

#endif
