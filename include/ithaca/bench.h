/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks of the engine's parts with random weights: no checkpoint is needed. Part of libithaca_wan.
 *
 *     static void print(void *user, const ith_bench_stage *stage)
 *     {
 *         printf("%-20s %8.3f s %6.1f GFLOP/s\n", stage->name, stage->seconds,
 *                1e-9 * stage->operations / stage->seconds);
 *     }
 *     ...
 *     ith_block_problem block = ITH_BLOCK_PROBLEM_INIT;
 *     ith_bench_options options = ITH_BENCH_OPTIONS_INIT;
 *     block.tokens = 2048, options.on_stage = print;
 *     if (ith_bench_block(ctx, &block, &options, NULL))
 *         fprintf(stderr, "%s\n", ith_context_error(ctx));
 *
 * The rules of ithaca/ithaca.h on errors, ownership and threads hold here too. */
#ifndef ITHACA_BENCH_H
#define ITHACA_BENCH_H

#include <ithaca/wan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The time and the work of one stage. The share of the peak that the stage reached in the mean is
 *
 *     1e-9 operations / seconds / peak_gflops,
 *
 * and the share that it reached while no other program disturbed it is 1e-9 operations / quiet_seconds / burst_gflops.
 * Operations are counted by the definition of the stage. So the share of a fast algorithm (convolutions as
 * F(2x2, 3x3)) may exceed 1. */
typedef struct ith_bench_stage {
    size_t struct_size;
    char name[32];     /* such as "qkv" */
    char peak[64];     /* names of the instructions that it multiplies with, such as "bf16_amx"; "" if it does not */
    double operations; /* multiplications and additions of one repeat */
    double seconds;    /* median of the repeats */
    double spread;     /* difference of the slowest and the fastest repeat, divided by the median */
    /* A repeat is a sequence of slices of time: about a millisecond each with one thread, otherwise a whole stage of a
     * block, or one convolution of a frame. The sum of each slice's fastest time in any repeat. */
    double quiet_seconds;
    double peak_gflops;  /* peak of these instructions on as many threads, measured after each repeat: the median */
    double burst_gflops; /* the highest peak in any two milliseconds of these measurements */
} ith_bench_stage;
#define ITH_BENCH_STAGE_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(ith_bench_stage), {0}, {0}, 0, 0, 0, 0, 0, 0                                                            \
    }

/* How a benchmark is run. */
typedef struct ith_bench_options {
    size_t struct_size;
    ith_precision precision; /* AUTO: as in ith_generate_options */
    ith_dtype weights;       /* type of the weights: F32, BF16 or F16; NONE: BF16, as in published checkpoints. The
                                matrices of a block may also have I8, fp8 or a type of GGUF files */
    int threads;             /* 0: ith_processor_count */
    int repeats;             /* 1 to 1000 measured repeats, after one to warm up; 0: 5 */
    bool force;              /* run even if the machine seems to have too little memory */
    const ith_attn_options *attention; /* for self-attention of a block, but not `threads`; NULL: choose everything */
    /* The thread that called the benchmark calls the callbacks. on_stage is called after the last repeat, for each
     * stage in the order of the computation, then for the time that belongs to no stage ("rest"), and at last for the
     * whole ("block", "decode" or "encode"). The struct is valid during the call. */
    void (*on_stage)(void *user, const ith_bench_stage *stage);
    /* Counts thousandths (ITH_PROGRESS_UNIT) of repeats, the first one included. */
    void (*on_progress)(void *user, int64_t done, int64_t total);
    bool (*should_stop)(void *user); /* called about 20 times a second */
    void *user;
} ith_bench_options;
#define ITH_BENCH_OPTIONS_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(ith_bench_options), ITH_PRECISION_AUTO, ITH_DTYPE_NONE, 0, 0, false, NULL, NULL, NULL, NULL, NULL       \
    }

/* The results of a whole benchmark. The results of its stages come through on_stage. */
typedef struct ith_bench_report {
    size_t struct_size;
    ith_precision precision; /* the precision that AUTO meant */
    int threads;
    int64_t weights_bytes;   /* bytes of the random weights, which a run keeps in its mapped files instead */
    int64_t predicted_bytes; /* predicted peak memory, weights included */
    int64_t peak_bytes;      /* measured peak memory of the context's allocator, minus the bytes held before the call */
} ith_bench_report;
#define ITH_BENCH_REPORT_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(ith_bench_report), ITH_PRECISION_AUTO, 0, 0, 0, 0                                                       \
    }

/* The sizes of one block of the diffusion transformer. The defaults are Wan 2.1 1.3B's. */
typedef struct ith_block_problem {
    size_t struct_size;
    int64_t heads, head_dim; /* the width of a row is heads * head_dim */
    int64_t ffn_dim;         /* hidden width of the feed-forward network */
    int64_t tokens;          /* rows of the sequence */
    int64_t text_rows;       /* rows of the prompt that cross-attention attends to: 1 to 512 */
    int64_t lora_rank;       /* rank of a LoRA of all matrices of the block (docs/lora.md): 0 (none) to 4096 */
} ith_block_problem;
#define ITH_BLOCK_PROBLEM_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(ith_block_problem), 12, 128, 8960, 8192, 512, 0                                                         \
    }

/* Measures one block of the transformer on one rank, in the stages "qkv" (norm, modulation, q, k and v, their norms and
 * RoPE), "self attention", "project" (the output of self-attention and the q of cross-attention), "cross attention" and
 * "ffn" (the output of cross-attention and the feed-forward network). `options` and `report` may be NULL. The report is
 * filled as far as the benchmark came, also on failure.
 *
 * ITH_ERR_ARGUMENT for sizes that no model has, ITH_ERR_MEMORY before anything is allocated if the machine has too
 * little memory (the sentence names a number of tokens that fits), ITH_ERR_INTERRUPTED after should_stop returned
 * true. Nothing else may use the context or its clones during the call. */
ITH_API ith_status ith_bench_block(ith_context *context, const ith_block_problem *problem,
                                   const ith_bench_options *options, ith_bench_report *report);

/* The sizes of a video that is decoded or encoded. The defaults are the published Wan 2.1 autoencoder at 480 x 832. The
 * published Wan 2.2 autoencoder has vae 22 and base_dim 256, or 160 in its encoder. */
typedef struct ith_decode_problem {
    size_t struct_size;
    int64_t base_dim;      /* channels at the size of the picture; 2 and 4 times as many at smaller sizes */
    int64_t res_blocks;    /* residual blocks of a level, in the decoder besides the first */
    int64_t frames;        /* one more than a multiple of 4 */
    int64_t height, width; /* pixels, multiples of 8, or of 16 with vae 22 */
    int64_t vae;           /* 21: the kind of autoencoder of Wan 2.1; 22: of Wan 2.2 */
} ith_decode_problem;
#define ITH_DECODE_PROBLEM_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(ith_decode_problem), 96, 2, 5, 480, 832, 21                                                             \
    }

/* Measures the decoder of the autoencoder, as ith_bench_block measures a block. The stages: "latents" is the
 * convolutions at the size of the latents, "attention" the attention between them with its products, "level 1" to
 * "level 4" the convolutions at each size of picture and the convolution that enlarges it, "picture" the last
 * convolution, and "norms" the norms before convolutions and the rounding of their inputs. The name of the whole is
 * "decode". */
ITH_API ith_status ith_bench_decode(ith_context *context, const ith_decode_problem *problem,
                                    const ith_bench_options *options, ith_bench_report *report);
/* Measures the encoder of the autoencoder in the same way, with the same errors and names of stages: "picture" is the
 * first convolution, and "level 1" has the largest picture. The name of the whole is "encode". */
ITH_API ith_status ith_bench_encode(ith_context *context, const ith_decode_problem *problem,
                                    const ith_bench_options *options, ith_bench_report *report);

#ifdef __cplusplus
}
#endif
#endif
