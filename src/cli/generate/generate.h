/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca generate: its settings, and the state of one run. */
#ifndef ITH_CLI_GENERATE_H
#define ITH_CLI_GENERATE_H

#include "../../media/load/media_load.h"
#include "../cli.h"
#include "../file/name_lock.h"
#include "../launch/launch.h"
#include "../launch/progress.h"
#include "../option/option.h"
#include "../shared_option/attend_options.h"
#include "../shared_option/lora_options.h"
#include "../shared_option/model_options.h"

#include <ithaca/video_cost.h>
#include <ithaca/wan.h>

#include <math.h>
#include <stdio.h>

/* The values of the command's options. */
typedef struct ith_generate_settings {
    ith_model_files files;
    ith_lora_lists loras;
    const char *prompt, *negative, *output, *noise, *dump, *from_latents, *checkpoint, *resume;
    const char *prompts, *preview, *device;
    const char *image, *last_image;
    int64_t frames, height, width, area, steps, crf, count, checkpoint_every, preview_every;
    int64_t device_memory; /* in megabytes; 0: all that is free */
    uint64_t seed;
    double shift, guidance[2], boundary, fps;
    ith_fit fit;
    ith_solver solver;
    ith_sigmas sigmas;
    ith_cfg cfg;
    ith_precision precision;
    ith_attend_choices choices;
    bool keep_latents, keep_packed, shard_weights, force, dry_run, json, quiet, verbose;
} ith_generate_settings;

#define ITH_GENERATE_SETTINGS_INIT                                                                                     \
    {                                                                                                                  \
        .files = ITH_MODEL_FILES_INIT, .output = "clip.mp4", .crf = 18, .guidance = {NAN, NAN}, .boundary = NAN        \
    }

/* Appends the options of a run that writes no video (of the model, the sampling and the computation) to a table that
 * has `count` rows. Returns the new count. offset: the position of an ith_generate_settings in the command's
 * settings. */
int ith_generate_add_run_options(ith_option *table, int count, size_t offset);
/* Options on which the course of a run depends (ith_launch_work.compared). The engine compares the options of a video,
 * once they are resolved. */
extern const char *const ith_generate_compared[];
/* Sets all options to their defaults. The caller frees them with ith_options_free. */
void ith_generate_open_options(ith_generate_settings *settings, ith_options *options);
/* Sets the defaults, and reads the command line and --config. Usage errors end the process. */
void ith_generate_parse(int argc, char **argv, ith_generate_settings *settings, ith_options *options);
/* Checks that --config could be read, that the required options are given, and that no two exclude each other. Prints
 * errors and returns an exit status. */
int ith_generate_check(const ith_generate_settings *settings, const ith_options *options);
/* The options that not every kind of output can use, ending with NULL. */
extern const char *const ith_generate_of_output[];
/* The purpose of an option, such as "is the quality of an mp4", if an output of this name cannot use the option; NULL
 * if it can. */
const char *ith_generate_why_unused(const char *option, const char *output);
/* With --shard-weights, sends the model to processes that lack it (ith_launch_work.share). user: an ith_generation. */
ith_status ith_generate_share_model(ith_context *context, ith_comm *comm, void *user);
/* Reads the defaults of the model from ithaca.yaml in its folder, which may be lent to the context (ith_model_lend). */
int ith_generate_parse_model(const ith_generate_settings *settings, ith_context *context, ith_options *options);

/* The prediction of a run before it begins. */
typedef struct ith_generate_prediction {
    bool known;        /* the run is predicted: all members but `unknown` are set */
    char source[160];  /* where the rates come from, in words */
    char unknown[512]; /* why nothing is predicted */
    ith_video_cost cost;
    ith_plan_info plan;
} ith_generate_prediction;

/* The state of one run of the command. */
typedef struct ith_generation {
    ith_generate_settings settings;
    ith_context *context;
    ith_context *media_context; /* context of the thread of rank 0 for writing frames */
    ith_pipeline *pipeline;
    ith_launch launch;
    ith_options *table; /* the options and their sources */
    const char *command;
    ith_model_info model;
    ith_attn_options attention;
    ith_generate_options options;  /* options of the engine; options.attention points to `attention` */
    ith_image image, last_image;   /* options.image and options.last_image, once they are read */
    ith_precision asked_precision; /* the value of --precision; options.precision is never `auto` */
    ith_generate_report report;
    ith_progress progress;
    const ith_media *media;   /* functions for pictures and videos, in the process of rank 0 */
    ith_video_writer *writer; /* NULL until the first frame has come */
    bool preview_failed;      /* a preview could not be written, which was said */
    bool complete;            /* the video is written and has its name */
    bool gone_wrong;          /* the latents were not finite */
    bool media_failed;        /* the video could not be written; media_context has the reason */
    int64_t height, width;    /* size of the written frames */
    double fps;
    const char *shift_source;                    /* which option, file or default has set the shift, in words */
    int64_t resumed_steps;                       /* steps that the run in --resume has done; 0 without it */
    int64_t predicted_bytes;                     /* predicted peak memory */
    int64_t predicted_device_bytes;              /* predicted memory on the device; 0 without one */
    ith_device_info device;                      /* the device on which the transformer computes */
    ith_generate_prediction prediction;          /* predicted time */
    char kernel[64];                             /* name of the kernel in prediction.plan */
    int64_t free_bytes;                          /* in a dry run: memory that this process can take */
    char memory_lack[512], weights_fault[512];   /* in a dry run: too little memory; a fault of the weight files */
    double start, finish_seconds, total_seconds; /* start of the run; time to finish the video; total time */
    char *latents_path;                          /* the file for latents before decoding; NULL: they are not saved */
    ith_name_lock latents_lock;                  /* held while the run has the name latents_path */
    char *title, *comment;                       /* metadata of the video: the prompt; seed and settings */
} ith_generation;

/* The threads of all processes. */
static inline int ith_generate_threads(const ith_generation *g)
{
    return g->launch.all_threads ? g->launch.all_threads : g->options.threads;
}

/* Whether the command makes several videos (--prompts, --count). */
static inline bool ith_generate_is_batch(const ith_generate_settings *settings)
{
    return settings->prompts || settings->count > 1;
}
/* Makes several videos. g: the state of a command whose options are parsed, and which has begun to launch. Returns an
 * exit status. */
int ith_generate_run_batch(ith_generation *g);

/* The next five functions are the parts of a run. Each prints errors and returns an exit status. */

/* Translates the options, with the defaults of the model's folder. */
int ith_generate_begin(ith_generation *g);
/* Opens the model. */
int ith_generate_open_model(ith_generation *g);
/* Loads the functions that write videos, and checks the names of the files that the run writes, in the process of
 * rank 0. */
int ith_generate_check_names(ith_generation *g);
/* After ith_generate_begin and ith_generate_open_model: reads the images, names the latents, fills in the options that
 * the user left open, and describes the run. */
int ith_generate_resolve(ith_generation *g);
/* Further checks of a dry run: the headers of the weight files, and the memory of this machine. */
void ith_generate_inspect_weights(ith_generation *g);
void ith_generate_inspect_memory(ith_generation *g);
/* Completes the video after its last frame, removes files that were to be kept until then, and prints the summary. */
int ith_generate_complete(ith_generation *g);
/* After a failure: discards the unfinished video. */
void ith_generate_discard(ith_generation *g);
/* Frees the members that belong to one run; not its pipeline and its context. */
void ith_generate_free(ith_generation *g);
/* Collective: encodes texts and keeps them in the pipeline, with the options of the run. */
ith_status ith_generate_encode(ith_generation *g, ith_comm *comm, const char *const *texts, int64_t count);

/* Reads the images of the settings and sets them in the options. The error message is left in g->context. */
ith_status ith_generate_read_images(ith_generation *g);
void ith_generate_free_images(ith_generation *g);
/* Translates the settings into options of the library, except for images; returns an exit status. */
int ith_generate_translate(ith_generation *generation, const char *command);
/* Writes the values of the resolved options (ith_pipeline_resolve) and of the model (g->model) into the settings, for
 * --print-config. */
void ith_generate_fill(ith_generation *g);
/* Fills g->title with the prompt, and g->comment with seed and settings. With --from-latents both come from the file of
 * latents. */
int ith_generate_describe(ith_generation *g);
/* Checks the files of --checkpoint and --resume, and reads the number of steps that the saved run has done. Prints
 * errors and returns an exit status. */
int ith_generate_check_saved(ith_generation *g);
/* For a run that is resumed: checks that the seed equals the saved run's seed (g->options is resolved). The other
 * options are checked by the library. */
int ith_generate_check_seed(const ith_generation *g);
/* Removes the file of --checkpoint if this run has written it: nobody needs it any more. */
void ith_generate_forget_saved(const ith_generation *g);
/* Sets the options of the engine for --preview. */
void ith_generate_set_preview(ith_generation *g);
/* Returns the options of the video writer for frames of this size. */
ith_video_options ith_generate_video(const ith_generation *g, int64_t width, int64_t height);
/* Cancels a run; the thread that receives signals calls it (ith_interrupt_target). */
static inline void ith_generate_cancel(void *pipeline)
{
    ith_pipeline_cancel(pipeline);
}
/* Generates the video; every rank calls it (ith_launch_work.compute). user: the ith_generation. */
ith_status ith_generate_rank(ith_context *context, ith_comm *comm, void *user);
/* Prints the report of a dry run on standard output, and returns an exit status. */
int ith_generate_report_dry(const ith_generation *g);
/* Prints advice about LoRA files whose publishers recommend other settings. */
void ith_generate_advise(const ith_generation *g, FILE *to);
/* Prints the settings of the run before it begins. */
void ith_generate_announce(const ith_generation *g, FILE *to);
/* The prediction as a JSON object (json_t): seconds by stage, bytes, operations. */
struct json_t *ith_generate_prediction_json(const ith_generation *g);
/* Prints the summary of the run on standard output: a table of times, or one JSON object. */
int ith_generate_summarise(const ith_generation *g);

#endif
