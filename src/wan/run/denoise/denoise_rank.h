/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one rank in the denoising loop, and the parts of the loop: buffers, passes, saved runs. */
#ifndef ITH_WAN_DENOISE_RANK_H
#define ITH_WAN_DENOISE_RANK_H

#include "../../../base/arena.h"
#include "../../../comm/comm.h"
#include "denoise.h"

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

/* ---- Choices (denoise_choice.c) -------------------------------------------------------------------------------- */

/* Whether the high-noise expert computes the denoising step at this time step. A single expert computes all steps. */
bool ith_denoise_step_is_high(const ith_model *model, const ith_generate_options *options, double timestep);

/* ---- Buffers (denoise_buffers.c) ------------------------------------------------------------------------------- */

/* Makes the buffers of this rank and its solver. */
ith_status ith_denoise_make_buffers(ith_denoiser *w);
/* The numbers of this rank's tokens. */
int64_t ith_denoise_share_numbers(const ith_denoiser *w);
/* The number of tensors in the file of a saved run: the latents and the solver's arrays. */
int64_t ith_denoise_saved_tensors(const ith_model *model, const ith_generate_options *options);
/* Describes contiguous numbers as the memory of a transfer. */
ith_region ith_denoise_region(float *numbers, int64_t count);
/* Gathers numbers of all ranks' tokens in b.whole on rank 0, and converts them to latents there. share: the numbers of
 * this rank's tokens. latents: used on rank 0 alone; NULL: the numbers are not converted. */
ith_status ith_denoise_gather(ith_denoiser *w, float *share, float *latents);

/* ---- A step's prediction (denoise_pass.c) ---------------------------------------------------------------------- */

/* Predicts the velocity of this rank's tokens at a step, and applies guidance. It is the first half of b.velocity. */
ith_status ith_denoise_predict(ith_denoiser *w, int64_t step);

/* ---- Saved runs (denoise_saves.c) ------------------------------------------------------------------------------ */

/* Brings the latents and the solver's arrays to rank 0, `step` steps being done. */
ith_status ith_denoise_keep_state(ith_denoiser *w, int64_t step);
/* Saves the run before its first step, so that a place that cannot be written fails now (ith_rank_first). */
ith_status ith_denoise_save_first(ith_rank *rank, void *denoiser);
/* Saves the run after a step, if it is to be saved. A file that cannot be written is a warning: the run goes on. */
ith_status ith_denoise_save_after_step(ith_denoiser *w, int64_t step);
/* After a failure: saves the state before the step that was not finished, unless the file has it. The group has ended,
 * and no rank waits. Appends to the error message if that fails. Returns `failure`. */
ith_status ith_denoise_save_at_failure(ith_denoiser *w, ith_status failure);
/* Reads the state of the saved run into the buffers of this rank. */
ith_status ith_denoise_read_state(ith_denoiser *w);
/* Logs a warning if the saved run had another plan, so that the bits may differ. */
void ith_denoise_compare_attention(const ith_denoiser *w);

#endif
