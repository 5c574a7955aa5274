/* SPDX-License-Identifier: Apache-2.0 */
/* Ithaca's engine: videos of Wan 2.1 / 2.2 from a text and images, on one rank or several.
 *
 *     ith_pipeline *pipeline = NULL;
 *     ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
 *     options.prompt = "A red circle moves to the right on a black background.";
 *     options.frames = 17, options.height = options.width = 128, options.steps = 16;
 *     options.on_frame = my_frame;
 *     if (ith_pipeline_open(ctx, "models/shapes", &pipeline) || ith_pipeline_generate(pipeline, NULL, &options, NULL))
 *         fprintf(stderr, "%s\n", ith_context_error(ctx));
 *     ith_pipeline_close(&pipeline);
 *
 * On several ranks every rank calls ith_pipeline_generate, with its communicator in the place of NULL. Ranks that are
 * threads of one process share the pipeline; each process opens its own. Four ranks in this process:
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
 * If the context uses a device (ith_context_use_device), the transformer and the decoder compute there, and all else on
 * the processor. Ranks of one process use the same device, which holds the weights of one expert for all of them.
 *
 * The rules of ithaca/ithaca.h on errors, ownership and threads hold here too: a pipeline holds a reference to its
 * context, so that either may be destroyed first. Both libraries must be of one version. */
#ifndef ITHACA_WAN_H
#define ITHACA_WAN_H

#include <ithaca/ithaca.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A picture: 8-bit RGB, row after row from the top. */
typedef struct ith_image {
    size_t struct_size;
    const uint8_t *rgb;    /* [height, width, 3]; belongs to the caller, and is valid during the call that gets it */
    int64_t height, width; /* pixels: 1 to 65536 */
} ith_image;
#define ITH_IMAGE_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(ith_image), NULL, 0, 0                                                                                  \
    }

/* The images from which a model makes a video, besides the text. */
typedef enum ith_image_use {
    ITH_IMAGE_UNUSED = 0, /* none */
    ITH_IMAGE_OPTIONAL,   /* the first frame may be given (TI2V) */
    ITH_IMAGE_NEEDED      /* the first frame must be given; ith_model_info says whether the last one may or must be */
} ith_image_use;

/* The properties of a model, from its configuration files or the shapes of its tensors. */
typedef struct ith_model_info {
    size_t struct_size;
    const char *kind; /* the name of the recognised model, "Wan2.2-T2V-A14B", ...; lives as long as the pipeline */
    int experts;      /* number of diffusion transformers: 1 or 2 */
    int64_t layers, heads, head_dim, ffn_dim, text_dim, text_layers, latent_channels;
    int64_t frame_stride, pixel_stride; /* video frames per latent frame, pixels per latent pixel */
    int64_t size_multiple;              /* the height and width of a video must be multiples of this number */
    /* The noise level at which the experts change, as a share of the training steps; 0 with one expert; NAN if the
     * checkpoint has two experts and gives no boundary. */
    double boundary;
    /* Defaults for options that are not given: from the checkpoint's configuration and the published code for the
     * model. The file ithaca.yaml of a model folder has defaults of the program ithaca; the library does not read it. A
     * small model gets the size of a large video here: give the size for which it was trained. */
    int64_t frames, height, width, steps;
    double fps, shift, guidance[2];
    const char *negative;
    const char *shift_source; /* where `shift` comes from, in words; lives as long as the pipeline */
    int64_t image_use;        /* an ith_image_use */
    /* The least and the greatest number of images: 1 is the first frame, 2 the first and the last one. */
    int64_t least_images, most_images;
} ith_model_info;
#define ITH_MODEL_INFO_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(ith_model_info), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}, NULL, NULL, 0, 0,  \
            0                                                                                                          \
    }

typedef struct ith_pipeline ith_pipeline;
/* Opens a checkpoint: reads and checks all of its configuration files. The tokenizer and the weights are read when they
 * are needed. ITH_ERR_IO for a file that cannot be read, ITH_ERR_FORMAT for a file with wrong contents,
 * ITH_ERR_UNSUPPORTED for another kind of model, or if libithaca and libithaca_wan have different versions. The caller
 * closes *out with ith_pipeline_close. */
ITH_API ith_status ith_pipeline_open(ith_context *context, const char *model_folder, ith_pipeline **out);

/* The transformers that a LoRA changes, in a model with two. HIGH and LOW are refused in a model with one. */
typedef enum ith_lora_expert {
    /* by the word "high" or "low" in the file's name, or else in its folder's name if that has "noise" too; both
     * transformers if neither name has such a word */
    ITH_LORA_BY_NAME = 0,
    ITH_LORA_BOTH,
    ITH_LORA_HIGH, /* for high noise */
    ITH_LORA_LOW   /* for low noise */
} ith_lora_expert;

/* A LoRA file: changes to the weights w of a transformer, w' = w + strength alpha / rank up down. It is a safetensors
 * file with the key names of PEFT, of kohya or of the original code, and holds low-rank matrices and plain differences
 * (docs/lora.md). */
typedef struct ith_lora_file {
    size_t struct_size;
    const char *file; /* its path */
    double strength;  /* any finite f32 number */
    int64_t expert;   /* an ith_lora_expert */
} ith_lora_file;
#define ITH_LORA_FILE_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(ith_lora_file), NULL, 1, ITH_LORA_BY_NAME                                                               \
    }

/* The files of a model. Members that are NULL are not given. `folder`, or dit, or dit_high and dit_low are needed.
 * Weight files are safetensors or GGUF, with the names of the original code, of Comfy, of llama.cpp or of diffusers;
 * they are recognised by their tensors. A member that names a file may also name its folder, if the folder holds no
 * other weights. If it names a checkpoint in the diffusers layout, its component is taken from there. Of weights in
 * shards, it names any shard or their index. The sizes of a model follow from its tensors. A config.json beside the
 * weights gives them instead; it is needed where the head size is not 128. The caller keeps all strings and arrays;
 * they may be freed after the call. */
typedef struct ith_model_files {
    size_t struct_size;
    /* A folder: a checkpoint in the diffusers layout, whose files the members below replace; or any folder whose weight
     * files belong to one model, such as a repository of original weights. */
    const char *folder;
    const char *dit;                /* the transformer of a model that has one, or an all-in-one file */
    const char *dit_high, *dit_low; /* the transformers for high and for low noise of a model that has two */
    const char *vae, *text_encoder; /* NULL: in `folder`, or in the file of `dit` */
    /* spiece.model or tokenizer.json, or their folder, or the model's; NULL: in `folder`, in the text encoder's file or
     * beside it */
    const char *tokenizer;
    /* A variant, such as "fp16": of a checkpoint in the diffusers layout, the files NAME.VARIANT.safetensors are taken,
     * in the components that have them. */
    const char *variant;
    /* [lora_count] LoRA files, at most 16 for each transformer; all with the struct_size of the first. The weight check
     * (ith_pipeline_check) refuses a LoRA with a tensor that fits no part of the transformer. */
    const ith_lora_file *loras;
    int64_t lora_count;
    const char *image_encoder; /* of Wan 2.1's models from images (CLIP); NULL: in `folder` */
} ith_model_files;
#define ITH_MODEL_FILES_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(ith_model_files), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL                         \
    }
/* As ith_pipeline_open, for a model whose files are named in *files. Reads the headers of weight files that no
 * configuration describes, and of LoRA files. Also ITH_ERR_ARGUMENT, for files that make no model together. */
ITH_API ith_status ith_pipeline_open_files(ith_context *context, const ith_model_files *files, ith_pipeline **out);
/* Closes a pipeline, which must be in no run, and sets *pipeline to NULL. Accepts NULL and a NULL pipeline. */
ITH_API void ith_pipeline_close(ith_pipeline **pipeline);
/* For a model that lies on rank 0's disk alone. Collective over comm, before pipelines are opened: if model_index.json
 * is not in `folder` in some processes, rank 0's process sends them the parts of the model's files that they read,
 * except the matrices of the transformer's layers. In these processes `folder` then names a model in memory, for the
 * contexts of the communicator's family: ith_pipeline_open opens it, and ith_pipeline_generate works with
 * shard_weights, with the same bits. The memory is held until the family of contexts is destroyed, and predictions
 * count it. `folder` may differ between processes. Does nothing if no process lacks the model, if rank 0 lacks it, or
 * if comm is NULL. Files that ith_model_files names besides `folder` are not sent: every process has them.
 *
 * ITH_ERR_UNSUPPORTED on all ranks if `folder` has no model_index.json on rank 0 and is missing elsewhere. ITH_ERR_IO
 * if rank 0 cannot read a file, ITH_ERR_MEMORY; after such a failure on one rank the other ranks wait until the caller
 * ends the group (ith_comm_abort), as ith_run_ranks does when a rank fails. */
ITH_API ith_status ith_model_lend(ith_comm *comm, const char *folder);
/* The path under which a program can open a file of a model that may be lent, such as "FOLDER/notes.json": a path of
 * this process alone, or `path` itself. It lives as long as the context. */
ITH_API const char *ith_model_file(ith_context *context, const char *path);
/* Fills *info with the properties of the model. The strings live as long as the pipeline. */
ITH_API ith_status ith_pipeline_info(const ith_pipeline *pipeline, ith_model_info *info);
/* The weight files of one component of a model. */
typedef struct ith_model_part {
    size_t struct_size;
    /* "text_encoder", "transformer", "transformer_2", "vae" or "image_encoder"; NULL: there is no such part */
    const char *name;
    const char *path;       /* its folder, or its first file; lives as long as the pipeline */
    int64_t tensors, bytes; /* the number of its tensors, and the bytes of their data */
    char types[128];        /* their types, the one with the most bytes first: "f16, f32" */
} ith_model_part;
#define ITH_MODEL_PART_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(ith_model_part), NULL, NULL, 0, 0,                                                                      \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }
/* Fills *part with the description of component `index`, 0, 1, ..., from the headers of its files. For any other index
 * part->name becomes NULL. Errors as for ith_pipeline_open. */
ITH_API ith_status ith_pipeline_part(ith_pipeline *pipeline, int index, ith_model_part *part);
/* Reads the tokenizer and the header of every weight file, and checks that the files hold all tensors of the model, by
 * name, type and shape, and no others. ith_pipeline_generate makes this check too, before it computes; it skips files
 * that have not changed since the last check. Errors as for ith_pipeline_open. */
ITH_API ith_status ith_pipeline_check(ith_pipeline *pipeline);

/* Turns a text in UTF-8 into *count ids, at most 512. The last id is </s>. `ids` has room for 512. On failure *count is
 * 0. ITH_ERR_ARGUMENT for a text of more than 262,144 bytes. The first call reads the tokenizer. */
ITH_API ith_status ith_pipeline_tokenize(ith_pipeline *pipeline, const char *text, int32_t *ids, int64_t *count);

/* A tokenizer without a model. */
typedef struct ith_tokenizer ith_tokenizer;
/* Reads a tokenizer from spiece.model, tokenizer.json, their folder, the folder of a model, or the GGUF file of a text
 * encoder. ITH_ERR_IO if a file cannot be read, ITH_ERR_FORMAT or ITH_ERR_UNSUPPORTED for other contents. The caller
 * closes *out. */
ITH_API ith_status ith_tokenizer_open(ith_context *context, const char *path, ith_tokenizer **out);
/* As ith_pipeline_tokenize. */
ITH_API ith_status ith_tokenizer_ids(const ith_tokenizer *tokenizer, const char *text, int32_t *ids, int64_t *count);
/* Closes a tokenizer, and sets *tokenizer to NULL. Accepts NULL and a NULL tokenizer. */
ITH_API void ith_tokenizer_close(ith_tokenizer **tokenizer);

/* The method that solves the flow's differential equation. */
typedef enum ith_solver {
    ITH_SOLVER_AUTO = 0, /* the solver of the checkpoint's scheduler */
    ITH_SOLVER_UNIPC,    /* arXiv:2302.04867 */
    ITH_SOLVER_EULER,
    ITH_SOLVER_DPMPP /* DPM-Solver++ (arXiv:2211.01095) */
} ith_solver;
/* Returns "auto", "unipc", "euler" or "dpm++", and "unknown" for any other value. */
ITH_API const char *ith_solver_name(ith_solver solver);

/* The rule for the list of noise levels (sigmas). */
typedef enum ith_sigmas {
    ITH_SIGMAS_AUTO = 0, /* the same as OFFICIAL */
    ITH_SIGMAS_OFFICIAL, /* as in the code that was published with the model */
    ITH_SIGMAS_DIFFUSERS /* as in diffusers */
} ith_sigmas;
/* Returns "auto", "official" or "diffusers", and "unknown" for any other value. */
ITH_API const char *ith_sigmas_name(ith_sigmas sigmas);

/* The linear layers that hold a converted copy of their weights in memory. */
typedef enum ith_keep {
    ITH_KEEP_AUTO = 0, /* layers with a merged LoRA, if a rank has few tokens, the weights are not shared out, and the
                        * run takes at most three quarters of its process's share of the free memory */
    ITH_KEEP_ALL,
    ITH_KEEP_NONE
} ith_keep;

/* How the ranks compute the two branches of classifier-free guidance: BATCH, all ranks compute both as one batch;
 * PARALLEL, each half of the ranks computes one branch; SEQUENTIAL, all ranks compute one branch after the other. AUTO
 * is BATCH. */
typedef enum ith_cfg { ITH_CFG_AUTO = 0, ITH_CFG_BATCH, ITH_CFG_PARALLEL, ITH_CFG_SEQUENTIAL } ith_cfg;
/* Returns "auto", "batch", "parallel" or "sequential", and "unknown" for any other value. */
ITH_API const char *ith_cfg_name(ith_cfg cfg);

/* The number type to which the operands of matrix products, of convolutions and of the transformer's attention are
 * rounded, to nearest, ties to even. Sums, norms, modulation, softmax and latents are f32, and so are the transformer's
 * first layer, last layer and time embedding. Weights of BF16 into which a LoRA is merged are rounded stochastically
 * (docs/lora.md). F32 and BF16 both work on every machine. */
typedef enum ith_precision {
    ITH_PRECISION_AUTO = 0, /* BF16 on a device, on processors with AMX, and on AMD's processors with AVX512-BF16, which
                             * multiply it faster than f32; F32 on all others. The choice measures nothing. */
    ITH_PRECISION_F32,      /* operands are not rounded */
    ITH_PRECISION_BF16
} ith_precision;
/* Returns "auto", "f32" or "bf16", and "unknown" for any other value. */
ITH_API const char *ith_precision_name(ith_precision precision);
/* Writes the precision that `asked` means on the context's machine, and the reason, as one line of at most `bytes`
 * bytes with its final 0. AUTO gives "bf16: chosen because ...", for example. A context of NULL gives "". `text` may be
 * NULL. */
ITH_API void ith_precision_describe(const ith_context *context, ith_precision asked, char *text, size_t bytes);

/* How an image of another size is fitted to the video. Both ways scale it with the Lanczos filter of Pillow. */
typedef enum ith_fit {
    ITH_FIT_AUTO = 0, /* the same as COVER */
    ITH_FIT_COVER,    /* the image keeps its shape, and the parts outside the video are cut off on both sides */
    ITH_FIT_STRETCH   /* the image is stretched to the video's shape, as diffusers does */
} ith_fit;
/* Returns "auto", "cover" or "stretch", and "unknown" for any other value. */
ITH_API const char *ith_fit_name(ith_fit fit);

/* The stages of a run, and the units in which on_progress counts them. LOAD counts bytes of the weights of the
 * component that is being opened; it passes at once, unless weights are converted (keep_packed). The other stages count
 * thousandths (ITH_PROGRESS_UNIT): TEXT of a prompt, DENOISE of a denoising step, DECODE and ENCODE of a frame, IMAGE
 * of an image. Each component begins at 0 again. */
typedef enum ith_stage {
    ITH_STAGE_LOAD = 0,
    ITH_STAGE_TEXT,
    ITH_STAGE_DENOISE,
    ITH_STAGE_DECODE,
    ITH_STAGE_ENCODE, /* images, or the test picture for the colours of previews, become latents, before denoising */
    ITH_STAGE_IMAGE   /* images become rows for the attention of models with an image encoder, before denoising */
} ith_stage;
#define ITH_PROGRESS_UNIT 1000

/* The work of one rank in a run. The lowest rank of a process opens weights, encodes prompts and decodes. */
typedef struct ith_generate_report {
    size_t struct_size;
    /* load_seconds includes the packing of the decoder's weights, and decode_seconds does not */
    double load_seconds, plan_seconds, text_seconds, denoise_seconds, decode_seconds;
    double decode_sink_seconds; /* time in on_frame, which decode_seconds does not include */
    bool latents_saved;         /* whether this run has written options.latents_file */
    int64_t steps_done, frames_done;
    int64_t predicted_bytes; /* predicted peak memory of this process; set on the lowest of its ranks */
    /* the most memory that the context's allocator has held since the context was made, other runs included; without
     * pinned memory */
    int64_t peak_bytes;
    char plan[512]; /* the plan of the self-attention, as ith_plan_print writes it */
    /* Bytes of the weights that the run reads from mapped files; set on the lowest rank of a process. Their pages are
     * in the system's cache once for all processes. They count neither as held nor as predicted, because the system may
     * drop them. */
    int64_t mapped_bytes;
    double compression_error; /* ith_plan_counters.compression_error of self-attention; the larger of two experts' */
    int64_t steps_resumed;    /* of steps_done, the steps that options.resume_file already had */
    int64_t saved_step;       /* steps done in the run that options.checkpoint_file holds; -1: this run wrote no file */
    double image_seconds;     /* scaling and encoding of the images, with the opening of the autoencoder; on rank 0 */
    /* Predicted memory of this process on the device of its context, 0 without one; set on the lowest of its ranks */
    int64_t predicted_device_bytes;
    int64_t streamed_layers; /* of an expert: layers for which the device has no room (device_memory); set there too */
} ith_generate_report;
#define ITH_GENERATE_REPORT_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(ith_generate_report), 0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, {0}, 0, 0, 0, -1, 0, 0, 0                    \
    }

/* The options of a run. Every rank gives the same options, except where a comment says that an option belongs to a
 * process (`threads`, `force`, `keep_packed`, `device_memory`). Zero and NULL mean "the model's default" or "none"
 * unless a comment says otherwise. */
typedef struct ith_generate_options {
    size_t struct_size;
    const char *prompt;   /* UTF-8, at most 262,144 bytes; required unless from_latents is given */
    const char *negative; /* the negative prompt; NULL: the model's default; "": none */
    /* Frames of the video: one more than a multiple of ith_model_info.frame_stride. Pixels of a side: a multiple of
     * ith_model_info.size_multiple. Denoising steps: at most 10000. */
    int64_t frames, height, width, steps;
    double shift;       /* sigma becomes shift sigma / (1 + (shift - 1) sigma): 0.001 to 1000 */
    double guidance[2]; /* for high noise, for low noise; -100 to 100; NAN: default; 1 or less: no negative branch */
    double boundary;    /* as in ith_model_info; NAN: default */
    ith_solver solver;
    ith_sigmas sigmas;
    ith_cfg cfg;
    ith_precision precision;
    uint64_t seed;
    /* .safetensors with `noise`, of the latents' shape [channels, frames, height, width]; NULL: noise from seed */
    const char *noise_file;
    /* Rank 0 writes .safetensors with f32 `noise` and `final`, both of this shape, `latents` [steps, ...] after each
     * step, and 8-bit `frames` [frames, height, width, 3]; with an image also its latents: `condition` of a model that
     * needs one, `first_latent` of a model to which one may be given. NULL: no file */
    const char *dump_file;
    const char *latents_file; /* rank 0 saves the latents here before it decodes them; NULL: they are not saved */
    /* A file with latents: rank 0 reads and decodes it, and nothing else is done. Not together with dump_file,
     * latents_file, checkpoint_file and resume_file. */
    const char *from_latents;
    int threads;                       /* of this process, divided among its ranks; 0: ith_processor_count */
    bool force;                        /* of a process: run even if the machine seems to have too little memory */
    const ith_attn_options *attention; /* for the self-attention, except for `threads`; NULL: choose everything */
    /* The thread that called ith_pipeline_generate calls the callbacks. on_progress and on_frame are called on rank 0
     * only. should_stop is called on every rank; threads that have the same function call it at the same time.
     * on_progress is called whenever a part of the work is done (a tensor is opened, or a part of a layer, a step or a
     * frame is computed). In between it is called about once a second with the same numbers, while the run is alive.
     * Callbacks may call the library, also with the run's context, and run another pipeline. With the run's context
     * such a run may compute on the processor although a device was chosen; it needs a context of its own for a device.
     * A further run of the same pipeline is refused. The pipeline must not be closed. A clone of the context that a
     * callback makes must be destroyed before the run ends. */
    void (*on_progress)(void *user, ith_stage stage, int64_t done, int64_t total);
    /* Gets finished frames in order: [height, width, 3] 8-bit RGB, valid during the call. A failure that it returns
     * ends the run with this status; a number that is no ith_status counts as ITH_ERR_ABORTED. Other ranks wait
     * meanwhile. A callback that may take as long as their time limit (ith_comm_set_timeout) must call ith_comm_alive
     * now and then. */
    ith_status (*on_frame)(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width);
    bool (*should_stop)(void *user); /* called before every step and frame, and about 20 times a second in between */
    void *user;
    /* Of a process, an ith_keep: the linear layers that convert their weights once, when their component is opened, and
     * keep them in memory, which the prediction counts. The others convert them from the mapped files whenever they are
     * applied. The results have the same bits. */
    int64_t keep_packed;
    /* Not 0: each of H hosts reads 1/H of the weights of every layer of the transformer from its files, and sends this
     * part to the other hosts. The next layer arrives while one is computed, so a host holds two layers in memory. Its
     * processes share them, and the prediction of its first process counts them. For hosts with slow disks, or with
     * less free memory than the weights take. Processes are on one host if the transport says so (ith_transport.place).
     * No effect on one host; not together with keep_packed. A model that was lent to a process (ith_model_lend) needs
     * it, also on one host. The results have the same bits. */
    int64_t shard_weights;
    /* Rank 0 saves the run in this .safetensors file: before the first denoising step, then after every
     * checkpoint_every steps (0: every step) and after the last one, and when a failure or an interruption ends the
     * denoising, with the state before the step that was not finished. The file is written beside its name and renamed,
     * so it is always whole. If the first write fails, the run ends; a later failure is a warning in the log, and the
     * next save tries again. To save, the run holds two copies of latents and solver state, which the prediction
     * counts. NULL: the run is not saved. Not together with from_latents. */
    const char *checkpoint_file;
    int64_t checkpoint_every;
    /* The file of a saved run (checkpoint_file), which goes on after its last step. All options that shape the result
     * come from the file, on every rank. If the caller also gives one of them, so that it differs from
     * ITH_GENERATE_OPTIONS_INIT, it must equal the option in the file.
     * The result has the bits of a run that was not interrupted, also on another number of ranks with the ulysses
     * strategy, on machines that choose the same kernel; a log line says if the choice differs. ITH_ERR_ARGUMENT if the
     * saved run began with other files of the model or with another noise_file, ITH_ERR_UNSUPPORTED if another version
     * of the library has saved it. NULL: the run begins with noise. Not together with dump_file and from_latents. */
    const char *resume_file;
    /* The first and the last frame, for models that make videos from images (ith_model_info.image_use). All ranks give
     * the same pixels. Without a height and a width, the video has the image's shape within `area` pixels; with one of
     * the two, the other follows from the image's shape. */
    const ith_image *image, *last_image;
    /* pixels of a frame, at most, if height and width are 0: 1 to 2^32; 0: the model's own area. Both sides are
     * multiples of ith_model_info.size_multiple, at least one: an extremely long image may get more pixels and another
     * shape */
    int64_t area;
    int64_t fit; /* an ith_fit */
    /* Gets a small preview of the video after every preview_every steps (0: never) and after the last one:
     * [height, width, 3] 8-bit RGB, a pixel for each latent of the first, the middle and the last latent frame, side by
     * side, valid during the call. `step` is the number of steps that are done. On rank 0 only, as on_frame.
     * The colours are a linear map of the latents, which is fitted to the model's autoencoder when the run begins. A
     * failure that it returns ends the run. */
    ith_status (*on_preview)(void *user, int64_t step, const uint8_t *rgb, int64_t height, int64_t width);
    int64_t preview_every;
    /* Of a process: the most bytes of its device that the run takes; 0: all that are free there when it begins. If the
     * layers of an expert need more, some of them are streamed, as few as possible: their weights lie in pinned memory
     * of the host, which the prediction counts, and each pass copies them to the device while it computes other layers.
     * The results have the same bits. No effect on the processor. */
    int64_t device_memory;
} ith_generate_options;
#define ITH_GENERATE_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(ith_generate_options), NULL, NULL, 0, 0, 0, 0, 0, {NAN, NAN}, NAN, ITH_SOLVER_AUTO, ITH_SIGMAS_AUTO,    \
            ITH_CFG_AUTO, ITH_PRECISION_AUTO, 0, NULL, NULL, NULL, NULL, 0, false, NULL, NULL, NULL, NULL, NULL, 0, 0, \
            NULL, 0, NULL, NULL, NULL, 0, 0, NULL, 0, 0                                                                \
    }

/* Fills in the model's defaults for options that are not given, the size of the saved latents if from_latents is given,
 * and the precision that AUTO means on this machine. Checks everything that can be checked without weights. On failure
 * the options stay as they were. Strings that it fills in live as long as the pipeline. */
ITH_API ith_status ith_pipeline_resolve(ith_pipeline *pipeline, ith_generate_options *options);
/* Writes advice about the known distilled LoRAs of the model: a line for each file whose publisher recommends settings
 * that the options do not have. The text takes at most `bytes` bytes with its final 0; it is "" if there is no advice.
 * A LoRA is recognised by the names of its file and of the two folders above. The options must be resolved.
 * ITH_ERR_ARGUMENT for NULL. */
ITH_API ith_status ith_pipeline_advise(const ith_pipeline *pipeline, const ith_generate_options *options, char *text,
                                       size_t bytes);
/* Writes a line for each use of a LoRA file: "LoRA FILE: strength S", and in a model with two transformers the
 * transformers that the file changes. A LoRA for an I2V model of Wan 2.1 has tensors for an image encoder. An I2V model
 * of Wan 2.2 has no image encoder and leaves these tensors out; the line then says how many. The text takes at most
 * `bytes` bytes with its final 0; it is "" if there is no LoRA. ITH_ERR_ARGUMENT for NULL. */
ITH_API ith_status ith_pipeline_describe_loras(const ith_pipeline *pipeline, char *text, size_t bytes);
/* Predicts the peak memory of a run with these options on `ranks` ranks, for a process that has the first `ranks_here`
 * of them. The bytes are computed from sizes: the tokenizer and the headers of weight files are read, weights are not.
 * Weight files that are not there, or that a run would refuse, count as nothing; a tokenizer that cannot be read is a
 * failure, as in a run. The options need not be resolved. */
ITH_API ith_status ith_pipeline_predict(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                        int ranks_here, int64_t *bytes);
/* Predicts in the same way the memory that this process takes on the device of the pipeline's context
 * (ith_context_use_device): for an expert its weights, the prompts' keys and the memory in which its ranks compute, or
 * the memory of the decoder if that is more. 0 if the context uses no device. */
ITH_API ith_status ith_pipeline_predict_device(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                               int ranks_here, int64_t *bytes);
/* Sets *free_bytes to the memory that the process can still take within the limits of the machine, of its address space
 * and of its control groups. Compares the prediction of ith_pipeline_predict with it. ITH_ERR_MEMORY if the prediction
 * is larger; the sentence names options that fit. The prediction of ith_pipeline_predict_device is compared with the
 * memory of the context's device in the same way. With `force` the memory always suffices. */
ITH_API ith_status ith_pipeline_check_memory(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                             int ranks_here, int64_t *free_bytes);
/* Generates a video: from the prompt to the frames. Collective over comm (NULL: one rank): every rank calls it, with a
 * pipeline that was opened on the same model. `report` may be NULL; it is filled as far as the run came, also on
 * failure. `options` may not be NULL.
 *
 * Ranks are the caller's: threads that ith_run_ranks or the caller starts, or processes. A rank works with the context
 * of its communicator, which gets the sentence of a failure. This context must be the pipeline's or a clone of its
 * family. Ranks that call with the same pipeline share the weights, encoded prompts and threads of their process. The
 * lowest of them opens, encodes and decodes for all, with all of the threads, while the others wait. Each process
 * decodes some rows of every frame; with from_latents the process of rank 0 decodes alone. Rank 0 gathers the frames:
 * it alone calls on_frame and on_preview and writes files, so that dump_file, latents_file, checkpoint_file,
 * checkpoint_every and preview_every count on rank 0 alone, and noise_file on the lowest rank of each pipeline.
 *
 * A run has these stages. Options are resolved and compared; if one differs, all ranks return ITH_ERR_ARGUMENT with its
 * name. Memory is predicted; if a machine has less, all ranks fail with ITH_ERR_MEMORY (see `force`). Every weight file
 * is checked (ith_pipeline_check) and compared. Rank 0 checks that the files it will write can be written, and that
 * none of them is another file of the run or a file of the model. Until here a failure leaves the group as it was. A
 * later failure ends the group (see Ranks in ithaca.h), and all ranks return the status and the sentence of the rank
 * that failed first. Then prompts are encoded; latents are denoised, and saved if latents_file is given; frames are
 * decoded and handed to on_frame one after the other; and the dump is written.
 *
 * Weights are read from their files during the whole run (files.h). If a weight file is cut, replaced, overwritten or
 * removed during the run, all ranks return ITH_ERR_IO with its name, at the latest before the next denoising step.
 *
 * ITH_ERR_INTERRUPTED is returned by all ranks within a second after should_stop of any rank returned true, or
 * ith_pipeline_cancel was called in any process. The sentence says where the run was. If denoising was not finished,
 * only checkpoint_file has been written, with the state after the last complete step. Otherwise latents_file is there
 * and whole (report->latents_saved; saving is not interrupted once it has begun), on_frame has had report->frames_done
 * frames, and a run with from_latents gives the same frames again. The dump is whole or not there. ITH_ERR_NUMERIC
 * names the denoising step after which latents were NaN or infinite. ITH_ERR_ARGUMENT is also returned if the pipeline
 * is in a run of other ranks. */
ITH_API ith_status ith_pipeline_generate(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                                         ith_generate_report *report);
/* Encodes the prompts and negative prompts of later runs, texts [count] in UTF-8, and keeps the results in the pipeline
 * until it is closed. Runs with these texts and the same precision then open no text encoder. Collective over comm,
 * with the rules and errors of ith_pipeline_generate; all ranks give the same texts. Only the options of how to compute
 * have an effect (precision, threads, keep_packed, shard_weights, force, the callbacks); the others, the prompt
 * included, must be legal for a run. Predictions count the memory of the results. */
ITH_API ith_status ith_pipeline_encode(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                                       const char *const *texts, int64_t count);
/* Ends the run that the pipeline is in; if it is in none, its next run. All ranks of the run return
 * ITH_ERR_INTERRUPTED, unless its last frame has been handed over already. A call of ith_pipeline_generate or
 * ith_pipeline_encode that is refused because of its arguments is no run. Until that run has ended or the pipeline is
 * closed, other work with the pipeline's context and its clones (plans, runs of other pipelines) returns
 * ITH_ERR_INTERRUPTED too: give a pipeline a context of its own. May be called from any thread and from a signal
 * handler. NULL does nothing. */
ITH_API void ith_pipeline_cancel(ith_pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
