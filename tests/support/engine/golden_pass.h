/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of a transformer over a batch of two. A golden file has its latents, time steps and prompts, and the output
 * of diffusers. */
#ifndef ITH_TESTS_GOLDEN_PASS_H
#define ITH_TESTS_GOLDEN_PASS_H

#include "wan/dit/dit.h"

#include <ithaca/files.h>

/* Two small transformers of odd sizes. In the second one cross_attn_norm is false. */
#define SMALL_DIT "golden/dit_small"
#define NO_CROSS_NORM "golden/dit_no_cross_norm"

/* A small transformer of Wan 2.1 that attends to the rows of an image encoder, and its golden file. */
#define IMAGE_DIT "golden/i2v21/transformer"
#define IMAGE_GOLDEN "golden/i2v21/dit.safetensors"

enum { PASS_BATCH = 2 };

typedef struct golden_pass {
    ith_tensor_file *file;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_image *image; /* of the rows "image_embeds" in the file; NULL: it has none */
    ith_dit_shape shape;
    int64_t tokens, in, out; /* S; numbers of a token's latents before and after the pass */
    float t[PASS_BATCH];
    const float *latents;     /* [2, channels, frames, height, width] */
    const float *want;        /* the latents that diffusers computes */
    float *result;            /* the latents that golden_pass_run computes */
    ith_attn_options options; /* for golden_pass_run; at first ITH_ATTN_OPTIONS_INIT */
    int repeats;              /* passes with one workspace; at first 2 */
    bool watched;             /* golden_pass_run compares the stages with the file's; only for one rank */
    int seen;                 /* number of stages that were compared */
    double worst, limit;      /* the largest relative error of a stage, and the largest that may be */
} golden_pass;

/* Opens the golden file and the model, in the context of the fixture (support/fixture.h). kind: as in kinds.h. */
void golden_pass_open(golden_pass *p, const char *golden, const char *model, int kind);

/* As golden_pass_open, with a LoRA, and with layers that are streamed to the context's device (open_dit_with). */
void golden_pass_open_with(golden_pass *p, const char *golden, const char *model, ith_lora *lora, int kind,
                           int64_t streamed);

/* Opens an expert of the demo's model: of low noise or of high noise. */
void golden_pass_open_expert(golden_pass *p, bool low, int kind);

/* Opens SMALL_DIT or NO_CROSS_NORM. */
void golden_pass_open_odd(golden_pass *p, const char *model, int kind);

void golden_pass_close(golden_pass *p);

/* The prompts of the file, without the rows of zeros after them. */
void golden_pass_prompts(const golden_pass *p, const float *rows[PASS_BATCH], int64_t counts[PASS_BATCH]);

/* The number of floats of the result. */
int64_t golden_pass_numbers(const golden_pass *p);

/* The relative error of the result. */
double golden_pass_error(const golden_pass *p);

/* Computes the part of a rank, for ith_run_ranks. comm: NULL for the whole pass. user: the golden_pass. */
ith_status golden_pass_run(ith_context *own, ith_comm *comm, void *user);

/* Checks that the guidance branches, computed one after the other with the shorter text padded, give the same as in a
 * batch. tolerance: of the relative difference; 0: the bits are the same. */
void golden_pass_check_branches(golden_pass *p, double tolerance);

#endif
