/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the cost of a video on a machine from a description of the machine (ithaca/cost.h): the time of each stage,
 * the memory of a process, the bytes that are sent. No weights are read, and the machine need not be at hand. Part of
 * libithaca_wan.
 *
 *     ith_video_problem problem = ITH_VIDEO_PROBLEM_INIT;
 *     ith_video_cost cost = ITH_VIDEO_COST_INIT;
 *     if (ith_video_problem_named(ctx, "wan2.2-a14b-720p", &problem) ||
 *         ith_video_predict(ctx, &problem, NULL, ITH_CFG_BATCH, &machine, 64, NULL, NULL, &cost))
 *         fprintf(stderr, "%s\n", ith_context_error(ctx));
 *     else
 *         printf("%.1f s a step, %.0f s a video\n", cost.step_seconds, cost.seconds);
 *
 * The rules of ithaca/ithaca.h on errors, ownership, threads and structs hold here too. */
#ifndef ITHACA_VIDEO_COST_H
#define ITHACA_VIDEO_COST_H

#include <ithaca/cost.h>
#include <ithaca/wan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Problems ---------------------------------------------------------------------------------------------------- */

/* A video to be made: the sizes of the model, of the video and of the prompts. A field that is 0 in
 * ITH_VIDEO_PROBLEM_INIT and has no other comment must be set. */
typedef struct ith_video_problem {
    size_t struct_size;
    char name[64]; /* the name of the problem, for people; may be "" */
    /* The transformer. Both experts have the same sizes. A row is heads * head_dim numbers wide. */
    int64_t experts;                                              /* 1 or 2 */
    int64_t layers, heads, head_dim, ffn_dim, freq_dim, channels; /* channels: of the latents */
    /* The text encoder; text_dim is the width of its rows. */
    int64_t text_dim, text_layers, text_heads, text_head_dim, text_ffn_dim, text_vocab, text_buckets;
    /* The decoder of the autoencoder: channels at the largest picture; residual blocks of a level besides the first;
     * number of levels (picture sizes); for each level, from the largest picture to the smallest, the factor of its
     * channels; for each doubling of the picture, from the smallest picture on, 1 if it also doubles the frames, or 0.
     * decoder_levels 0: decoding is not counted. */
    int64_t decoder_dim, decoder_blocks, decoder_levels, decoder_factors[8], decoder_doubles[8];
    int64_t frame_stride, pixel_stride; /* video frames per latent frame, pixels per latent pixel */
    int64_t frames, height, width;
    int64_t steps;        /* denoising steps; 0: the video is decoded from saved latents, and all else is left out */
    int64_t guided_steps; /* the number of these steps that compute both guidance branches */
    int64_t prompt_rows, negative_rows; /* tokens of both prompts, at most 512; negative_rows 0: without guidance */
    int64_t solver_order;               /* order of UniPC or DPM-Solver++; 0: Euler */
    ith_precision precision;            /* AUTO: as in ith_generate_options, on this machine */
    int threads; /* of a process, as in ith_generate_options; 0: its ranks' share of the units of the host */
    int64_t keep_packed, shard_weights; /* as in ith_generate_options */
    int64_t dumps;                      /* not 0: rank 0 keeps the latents of all steps, and all frames, for a dump */
    int64_t decoder_patch; /* the last convolution makes squares of pixels of this height and width: 1; 2 in Wan 2.2 */
    int64_t decoder_residual; /* not 0: Wan 2.2, whose levels keep their channels when they double the picture */
    int64_t image_use;        /* an ith_image_use: the images that the model takes */
    int64_t images;           /* the number of images that are given, each of the video's size: 0, 1 or 2 */
    int64_t encoder_dim;      /* channels of the autoencoder's encoder at the largest picture; 0: without images */
    int64_t lora_rank; /* rank of a LoRA of all matrices of the layers (docs/lora.md): 0 (none) to 4096. Of LoRA files:
                          the mean rank, weighted with the sizes of the matrices */
    /* Memory of the lists of tensors in open weight files: of the text encoder, the first and the second transformer,
     * and the autoencoder. 0: a model without files. */
    int64_t list_bytes[4];
    /* The image encoder (CLIP) of Wan 2.1's models from images; vision_dim 0: there is none. It reads a square picture
     * of vision_image x vision_image pixels in squares of vision_patch x vision_patch. vision_list_bytes: as
     * list_bytes. */
    int64_t vision_dim, vision_layers, vision_heads, vision_ffn_dim, vision_image, vision_patch, vision_list_bytes;
    int64_t solver; /* an ith_solver; AUTO: Euler if solver_order is 0, or else UniPC */
    /* Of `steps`, the first ones, which a saved run (ith_generate_options.resume_file) has done: they cost nothing, and
     * guided_steps does not count them. If all are done, neither prompts nor images are encoded, except for an image
     * whose latents are a part of the result (TI2V). */
    int64_t steps_done;
} ith_video_problem;
#define ITH_VIDEO_PROBLEM_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(ith_video_problem), {0}, 1, 0, 0, 0, 0, 256, 16, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, {0}, {0}, 4, 8, 0, 0,   \
            0, 0, 0, 512, 512, 2, ITH_PRECISION_AUTO, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0     \
    }

/* Lists the problems that have names: returns the name of problem number `index`, 0, 1, ..., such as
 * "wan2.2-a14b-720p", and NULL behind the last. Names are valid as long as the process. */
ITH_API const char *ith_video_problem_list(int index);
/* Fills in the problem of this name: a published model with the sizes, steps and guidance of its reference code, and
 * prompts of 512 tokens, and with a first image if the model needs one or the name has "image". ITH_ERR_ARGUMENT with
 * all names for any other name. */
ITH_API ith_status ith_video_problem_named(ith_context *context, const char *name, ith_video_problem *problem);
/* Fills in the problem that ith_pipeline_generate would solve with these options. Reads the tokenizer, to count the
 * tokens of the prompts, and no weights. The same errors as ith_pipeline_resolve, and ITH_ERR_UNSUPPORTED if the two
 * experts of the model have different sizes. */
ITH_API ith_status ith_video_problem_read(ith_pipeline *pipeline, const ith_generate_options *options,
                                          ith_video_problem *problem);

/* ---- Cost ------------------------------------------------------------------------------------------------------- */

/* The predicted cost of a video. Times are seconds of wall time, of the rank that takes longest. These sums hold:
 *
 *     seconds         = text + image + denoise + decode + write
 *     denoise_seconds = guided_steps * (step with both branches) + the other steps that are left
 *     step_seconds    = passes * pass_seconds + exchange_seconds,  pass_seconds = layers * layer_seconds + ends_seconds
 *     layer_seconds   = attention + linear + cross + row
 *
 * step_seconds and its parts are of a step with both guidance branches, if the run has one. Opening files, making plans
 * and the codec of the video file are not counted. */
typedef struct ith_video_cost {
    size_t struct_size;
    double seconds;
    double text_seconds;      /* the text encoder, and the keys and values of prompts and images in each expert */
    double denoise_seconds;   /* all steps that are left */
    double decode_seconds;    /* latents to frames */
    double write_seconds;     /* rows of frames rounded to 8 bits, and gathered on rank 0 */
    double step_seconds;      /* one denoising step */
    double exchange_seconds;  /* in a step: exchange of the guidance branches, agreement of the ranks, solver */
    double pass_seconds;      /* one forward pass of the transformer */
    double ends_seconds;      /* in a pass: the work before the first layer and after the last one */
    double layer_seconds;     /* one layer of the transformer */
    double attention_seconds; /* in a layer: self-attention (ith_plan_cost) */
    double linear_seconds;    /* in a layer: products of linear layers, or the load of a layer if that takes longer */
    double cross_seconds;     /* in a layer: cross-attention */
    double row_seconds;       /* in a layer: norms, RoPE, activations and sums on rows */
    int64_t passes;           /* forward passes of a rank in a step */
    double operations;        /* multiplications and additions of all ranks for the video, as each stage defines them */
    int64_t sent_bytes;       /* bytes that a rank sends for the video */
    int64_t memory_bytes;     /* peak of the process of rank 0, as ith_pipeline_predict counts it */
    int64_t host_bytes;       /* the same for all processes of the host of rank 0 */
    double image_seconds;     /* on rank 0: images to latents, and to the rows of an image encoder */
} ith_video_cost;
#define ITH_VIDEO_COST_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(ith_video_cost), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                             \
    }

/* Predicts the cost of a video on `ranks` ranks of a machine. options (NULL: choose everything): of the self-attention,
 * as in ith_generate_options.attention; process_ranks and host_ranks say how the ranks are started. cfg AUTO: BATCH.
 * *info becomes the plan of the self-attention, and *attention its cost for one layer and pass; both may be NULL. If no
 * step is left, they become ITH_PLAN_INFO_INIT and ITH_COST_INIT.
 *
 * The rate of a linear layer is the row of machine->products with the nearest features and rows, in the precision's
 * type if there is one. If a machine has no rows for convolutions, they have the rates of linear layers, and the other
 * way round.
 *
 * The same errors as ith_plan_cost, ITH_ERR_ARGUMENT for sizes that no model has, for cfg PARALLEL on an odd number of
 * ranks and for more ranks than the process may have threads in the machine, and ITH_ERR_UNSUPPORTED if the machine has
 * no rate of products. */
ITH_API ith_status ith_video_predict(ith_context *context, const ith_video_problem *problem,
                                     const ith_attn_options *options, ith_cfg cfg, const ith_machine *machine,
                                     int ranks, ith_plan_info *info, ith_cost *attention, ith_video_cost *cost);

/* Like ith_video_predict, but the layers of a pass are simulated on all ranks (ith_plan_simulate): self-attention with
 * the products, cross-attention and rows of a layer as the other work of each rank. simulation may be NULL, and its
 * work_seconds has no effect; executions is the number of layers, 0: all layers of the model; slow_rank is a rank of
 * one branch if cfg is PARALLEL. attention_seconds of the cost includes the waits for ranks whose other work takes
 * longer. If the context records a trace, the layers are added to it. The errors of ith_video_predict and
 * ith_plan_simulate. */
ITH_API ith_status ith_video_simulate(ith_context *context, const ith_video_problem *problem,
                                      const ith_attn_options *options, ith_cfg cfg, const ith_machine *machine,
                                      int ranks, const ith_simulation *simulation, ith_plan_info *info,
                                      ith_cost *attention, ith_video_cost *cost);

/* Receives one plan of a list of a video's plans. cost: NULL if the plan is not legal. The pointers are valid during
 * the call. A status other than ITH_OK ends the list; a number that is no ith_status counts as ITH_ERR_ABORTED. */
typedef ith_status (*ith_video_candidate_fn)(void *user, const ith_plan_candidate *plan, const ith_video_cost *cost);

/* Calls `take` for every plan of the self-attention of a video, in the order of ith_plan_list, with the cost of the
 * video under this plan. This cost equals the result of ith_video_predict with options that name the plan, but is found
 * in a small part of the time. The first plan has the fastest attention. Returns the status of `take` if that was not
 * ITH_OK; otherwise the errors of ith_video_predict that concern the video or the machine rather than one plan. */
ITH_API ith_status ith_video_list(ith_context *context, const ith_video_problem *problem,
                                  const ith_attn_options *options, ith_cfg cfg, const ith_machine *machine, int ranks,
                                  ith_video_candidate_fn take, void *user);

/* ---- Rates of this machine --------------------------------------------------------------------------------------- */

#define ITH_VIDEO_RATES 64 /* the most rows that ith_video_measure writes */

typedef struct ith_video_measure_options {
    size_t struct_size;
    double seconds; /* time that the measurement takes, about; 0: 1 */
    /* Called about 20 times a second, by one thread at a time, which need not be the caller's. NULL: not called. */
    bool (*should_stop)(void *user);
    void *user;
} ith_video_measure_options;
#define ITH_VIDEO_MEASURE_OPTIONS_INIT                                                                                 \
    {                                                                                                                  \
        sizeof(ith_video_measure_options), 0, NULL, NULL                                                               \
    }

/* Measures the rates of this machine for a problem: of linear layers and convolutions at the sizes that the problem has
 * on `ranks` ranks with this cfg, and of the kernel of self-attention. It runs the functions that a run calls, with
 * random weights. Wide layers, long sequences and large pictures are measured in part, so that neither the model's
 * memory nor its time are needed.
 *
 * options (NULL: choose everything): of the self-attention; kernel, softmax and tiles count. machine: the known facts
 * of this machine, of which host_units, busy_share and row_bytes_per_second are used. If row_bytes_per_second is 0, the
 * operations on rows count as part of the products. measuring may be NULL. Writes the rates of one unit to products
 * [ITH_VIDEO_RATES], their number to *count, and to *attention (NULL: not wanted) the rate of the kernel, packing and
 * waiting included. All products have the struct_size of the first one. No other call may use the context or its clones
 * meanwhile.
 *
 * ITH_ERR_ARGUMENT, ITH_ERR_MEMORY, or ITH_ERR_INTERRUPTED after should_stop returned true; *count is then 0. */
ITH_API ith_status ith_video_measure(ith_context *context, const ith_video_problem *problem,
                                     const ith_attn_options *options, ith_cfg cfg, const ith_machine *machine,
                                     int ranks, const ith_video_measure_options *measuring,
                                     ith_machine_product *products, int64_t *count, ith_machine_attention *attention);

#ifdef __cplusplus
}
#endif
#endif
