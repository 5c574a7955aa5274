/* SPDX-License-Identifier: Apache-2.0 */
/* Ithaca's engine: Wan 2.1 / 2.2 text-to-video from a checkpoint in the diffusers layout, on one rank or several.
 *
 *     ith_pipeline *pipeline = NULL;
 *     ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
 *     options.prompt = "A red circle moves to the right on a black background.";
 *     options.on_frame = my_frame;
 *     if (ith_pipeline_open(ctx, "models/shapes", &pipeline) || ith_pipeline_generate(pipeline, NULL, &options, NULL))
 *         fprintf(stderr, "%s\n", ith_context_error(ctx));
 *     ith_pipeline_close(&pipeline);
 *
 * On several ranks every rank makes that call, with its communicator in the place of NULL. Ranks that are threads of one
 * process share the pipeline; each process opens its own. Four ranks in this process:
 *
 *     typedef struct job { ith_pipeline *pipeline; ith_generate_options options; } job;
 *     static ith_status rank(ith_context *context, ith_comm *comm, void *user)
 *     {
 *         job *j = user;
 *         return ith_pipeline_generate(j->pipeline, comm, &j->options, NULL);
 *     }
 *     ...
 *     status = ith_run_ranks(ctx, 4, 0, rank, &j);
 *
 * The rules of ithaca/ithaca.h on errors, ownership and threads hold here too: a pipeline keeps what it needs of its
 * context, so that either may be destroyed first. Both libraries must be of one version. */
#ifndef ITHACA_WAN_H
#define ITHACA_WAN_H

#include <ithaca/ithaca.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a checkpoint is, read from its configuration files. */
typedef struct ith_model_info {
    size_t struct_size;
    const char *kind; /* "Wan2.2-T2V", ...: what it was recognised as; lives as long as the pipeline */
    int experts;      /* 1 or 2 */
    int64_t layers, heads, head_dim, ffn_dim, text_dim, text_layers, latent_channels;
    int64_t frame_stride, pixel_stride; /* video frames per latent frame, pixels per latent pixel */
    int64_t size_multiple;              /* height and width must be multiples of it */
    double boundary; /* where the experts change, a fraction of the training steps; 0 with one expert, NAN if two have
                        none */
    /* Defaults for what is not asked for. */
    int64_t frames, height, width, steps;
    double fps, shift, guidance[2];
    const char *negative;
    const char *shift_source; /* where `shift` comes from, in words; lives as long as the pipeline */
} ith_model_info;
#define ITH_MODEL_INFO_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(ith_model_info), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}, NULL, NULL         \
    }

typedef struct ith_pipeline ith_pipeline;
/* Reads and checks every configuration file, and nothing else: tokenizer and weights wait until they are needed.
 * ITH_ERR_IO for a file that cannot be read, ITH_ERR_FORMAT for one that is wrong, ITH_ERR_UNSUPPORTED for another kind
 * of model and for a libithaca of another version than libithaca_wan. */
ITH_API ith_status ith_pipeline_open(ith_context *context, const char *model_folder, ith_pipeline **out);
ITH_API void ith_pipeline_close(ith_pipeline **pipeline);
/* Its texts live as long as the pipeline. */
ITH_API ith_status ith_pipeline_info(const ith_pipeline *pipeline, ith_model_info *info);
/* Reads the tokenizer and the header of every weight file, and checks that all tensors are there, by name, type and
 * shape, and no others. ith_pipeline_generate does this itself before it loads anything, unless it was done before.
 * Errors as ith_pipeline_open. */
ITH_API ith_status ith_pipeline_check(ith_pipeline *pipeline);

/* The ids of a text in UTF-8: *count of them, at most 512, of which </s> is the last. ids has room for 512. *count is 0
 * on failure. The first call reads the tokenizer. */
ITH_API ith_status ith_pipeline_tokenize(ith_pipeline *pipeline, const char *text, int32_t *ids, int64_t *count);

/* How the flow's differential equation is solved. */
typedef enum ith_solver {
    ITH_SOLVER_AUTO = 0, /* as the checkpoint's scheduler says */
    ITH_SOLVER_UNIPC,    /* arXiv:2302.04867 */
    ITH_SOLVER_EULER
} ith_solver;
/* "unipc", ...; "unknown". */
ITH_API const char *ith_solver_name(ith_solver solver);

/* The list of noise levels. */
typedef enum ith_sigmas {
    ITH_SIGMAS_AUTO = 0, /* official */
    ITH_SIGMAS_OFFICIAL, /* as in the code that was published with the model */
    ITH_SIGMAS_DIFFUSERS /* as in diffusers */
} ith_sigmas;
/* "official", ...; "unknown". */
ITH_API const char *ith_sigmas_name(ith_sigmas sigmas);

/* How the guidance branches share the ranks: as one batch, on two halves of them, or one after the other. */
typedef enum ith_cfg { ITH_CFG_AUTO = 0, ITH_CFG_BATCH, ITH_CFG_PARALLEL, ITH_CFG_SEQUENTIAL } ith_cfg;
/* "batch", ...; "unknown". */
ITH_API const char *ith_cfg_name(ith_cfg cfg);

/* The type to which the operands of matrix products, of convolutions and of the transformer's attention are rounded: to
 * nearest, ties to even. Sums are f32. So are norms, modulation, softmax, latents, and the transformer's first and last
 * layer and time embedding. Both work on every machine. BF16 halves the weights of the text encoder and the
 * transformer. */
typedef enum ith_precision {
    ITH_PRECISION_AUTO = 0, /* BF16 on processors with AMX, and on AMD's with AVX512-BF16: they multiply it faster than
                             * f32. F32 on all others. Nothing is measured. */
    ITH_PRECISION_F32,      /* not rounded */
    ITH_PRECISION_BF16
} ith_precision;
/* "auto", "f32", "bf16"; "unknown". */
ITH_API const char *ith_precision_name(ith_precision precision);
/* What `asked` means on the context's machine, and why: one line of at most `bytes` bytes with its 0. For AUTO
 * "bf16: chosen because ...". "" for a context of NULL; text may be NULL. */
ITH_API void ith_precision_describe(const ith_context *context, ith_precision asked, char *text, size_t bytes);

/* What is going on, and in which units on_progress counts it: bytes of the weights of the component that is being
 * loaded; thousandths (ITH_PROGRESS_UNIT) of a prompt, a step, a frame. Each component begins at 0 again. */
typedef enum ith_stage { ITH_STAGE_LOAD = 0, ITH_STAGE_TEXT, ITH_STAGE_DENOISE, ITH_STAGE_DECODE } ith_stage;
#define ITH_PROGRESS_UNIT 1000

/* What a rank did itself: the lowest of a process loads and encodes, rank 0 decodes. */
typedef struct ith_generate_report {
    size_t struct_size;
    double load_seconds, plan_seconds, text_seconds, denoise_seconds, decode_seconds;
    double decode_sink_seconds; /* in on_frame, and not in decode_seconds */
    bool latents_saved;         /* to options.latents_file, by this run */
    int64_t steps_done, frames_done;
    int64_t predicted_bytes; /* of this process; on the lowest of its ranks */
    int64_t peak_bytes;      /* of the context's allocator */
    char plan[512];                      /* ith_plan_print of the self-attention */
} ith_generate_report;
#define ITH_GENERATE_REPORT_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(ith_generate_report), 0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, {0}                                          \
    }

/* Every rank gives the same options, except where a comment says that an option belongs to a rank or to a process
 * (`threads`, `force`). Zero and NULL mean "the model's default" or "none" unless a comment says otherwise. */
typedef struct ith_generate_options {
    size_t struct_size;
    const char *prompt;   /* UTF-8; required unless from_latents */
    const char *negative; /* NULL: the model's default; "" for none */
    int64_t frames, height, width, steps;
    double shift;
    double guidance[2]; /* high noise, low noise; NAN: default. 1 or less leaves out the negative branch */
    double boundary;    /* NAN: default */
    ith_solver solver;
    ith_sigmas sigmas;
    ith_cfg cfg; /* AUTO: batch */
    ith_precision precision;
    uint64_t seed;
    const char *noise_file;   /* .safetensors with `noise` [channels, frames, height, width]; NULL: from seed */
    const char *dump_file;    /* .safetensors: noise, latents [steps, ...], final, frames. Of rank 0 */
    const char *latents_file; /* where latents are saved before they are decoded; NULL: nowhere. Of rank 0 */
    const char *from_latents; /* such a file: decode it and do nothing else. Rank 0 reads it */
    int threads;              /* of this process, shared out to its ranks; 0: as many as it has processors */
    bool force;               /* go on although the machine seems to have less memory than the run will hold */
    const ith_attn_options *attention; /* of the self-attention; NULL: choose everything. Its threads are not used */
    /* The callbacks are called by the thread that called ith_pipeline_generate. on_progress and on_frame of rank 0 count,
     * should_stop of every rank: ranks that share it call it at the same time.
     * Progress: whenever a part is done (a tensor loaded, a part of a layer computed, a step, a frame), and about once
     * a second in between with the numbers of before, for as long as the run is alive. */
    void (*on_progress)(void *user, ith_stage stage, int64_t done, int64_t total);
    /* A finished frame, [height, width, 3] 8-bit RGB, in order; valid during the call. A failure that it returns ends
     * the run with this status; a number that is no ith_status counts as ITH_ERR_ABORTED. */
    ith_status (*on_frame)(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width);
    bool (*should_stop)(void *user); /* asked before every step and frame, and about 20 times a second in between */
    void *user;
} ith_generate_options;
#define ITH_GENERATE_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(ith_generate_options), NULL, NULL, 0, 0, 0, 0, 0, {NAN, NAN}, NAN, ITH_SOLVER_AUTO, ITH_SIGMAS_AUTO,    \
            ITH_CFG_AUTO, ITH_PRECISION_AUTO, 0, NULL, NULL, NULL, NULL, 0, false, NULL, NULL, NULL, NULL, NULL        \
    }

/* Puts the model's defaults where nothing was asked for, the size of saved latents where these are to be decoded, and
 * the precision that AUTO means on this machine, and checks everything that can be checked without weights. On failure
 * options stay as they were. Texts that it puts there live as long as the pipeline. */
ITH_API ith_status ith_pipeline_resolve(ith_pipeline *pipeline, ith_generate_options *options);
/* The bytes that a run with these options on `ranks` ranks will hold at its peak in a process that has the first
 * `ranks_here` of them, computed from sizes: the tokenizer is read, weight files are not. Options need not be resolved. */
ITH_API ith_status ith_pipeline_predict(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                        int ranks_here, int64_t *bytes);
/* Prompt to frames. Collective over comm (NULL: one rank): every rank calls it, with a pipeline that was opened on the
 * same checkpoint. report may be NULL; it is filled as far as the run came, also on failure. options may not.
 *
 * Ranks are the caller's: threads that ith_run_ranks or the caller starts, or processes. A rank works with the context of
 * its communicator, which has the sentence of a failure, and which is the pipeline's or a clone of its family. Ranks that
 * call with the same pipeline share the weights, encoded prompts and threads of their process; the lowest of them loads
 * and encodes for all with all of the threads, while the others wait. Rank 0 decodes, and alone has frames and files.
 *
 * In this order: options are resolved and compared, and all ranks return ITH_ERR_ARGUMENT with the name of an option that
 * differs; memory is predicted, and ITH_ERR_MEMORY returned if a machine does not have it (see force); every weight file
 * is checked (ith_pipeline_check) and compared. Until here a failure leaves the group as it was. A failure after this
 * ends the group (see Ranks in ithaca.h), and all ranks return the status and the sentence of the rank that failed first.
 * Prompts are encoded; latents denoised; latents saved, if latents_file is given; frames decoded and handed to on_frame,
 * one after the other; the dump written.
 *
 * ITH_ERR_INTERRUPTED within a second, on all ranks, if should_stop of any rank said so or ith_pipeline_cancel was called
 * in any process; the sentence says where the run was. Then: before denoising was done, no file has been written. After
 * it, latents_file is there and whole (report->latents_saved; once begun, saving it is not interrupted), on_frame has had
 * report->frames_done frames, and from_latents gives the same frames again. The dump is whole or not there.
 * ITH_ERR_NUMERIC names the step if latents became NaN. ITH_ERR_ARGUMENT if the pipeline is in a run of other ranks. */
ITH_API ith_status ith_pipeline_generate(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                                         ith_generate_report *report);
/* Ends the run of ith_pipeline_generate that the pipeline is in; if there is none, the next one. All of its ranks return
 * ITH_ERR_INTERRUPTED. May be called from any thread and from a signal handler. NULL does nothing. */
ITH_API void ith_pipeline_cancel(ith_pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
