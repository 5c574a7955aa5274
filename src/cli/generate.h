/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca generate: its settings, and the state of one run. */
#ifndef ITH_CLI_GENERATE_H
#define ITH_CLI_GENERATE_H

#include "../media/media.h"
#include "attend_options.h"
#include "cli.h"
#include "option.h"
#include "progress.h"

#include <ithaca/wan.h>

typedef struct ith_generate_settings {
    const char *model, *prompt, *negative, *output, *noise, *dump, *from_latents, *config;
    int64_t frames, height, width, steps, crf;
    uint64_t seed;
    double shift, guidance[2], boundary, fps;
    ith_solver solver;
    ith_sigmas sigmas;
    ith_cfg cfg;
    ith_precision precision;
    ith_attend_choices choices;
    bool keep_latents, force, json, quiet, verbose;
} ith_generate_settings;

/* Reads the command line and --config, and returns an exit status. Usage errors on the command line end the process. */
int ith_generate_parse(int argc, char **argv, ith_generate_settings *settings, ith_options *options);
/* Reads the defaults in the model folder (ithaca.yaml). */
int ith_generate_parse_model(ith_generate_settings *settings, ith_options *options);

typedef struct ith_generation {
    ith_generate_settings settings;
    ith_context *context;
    ith_context *media_context; /* for rank 0's thread, which writes frames */
    ith_pipeline *pipeline;
    int ranks;
    ith_model_info model;
    ith_attn_options attention;
    ith_generate_options options; /* complete; its attention points to the member above */
    ith_precision asked_precision;
    ith_generate_report report;
    ith_progress progress;
    ith_video_writer *writer; /* opened by the first frame */
    bool media_failed;
    int64_t height, width; /* of the frames that were written */
    double fps;
    const char *shift_source; /* the source of the shift, in words */
    int64_t predicted_bytes;
    double start, finish_seconds, total_seconds;
    char *latents_path;    /* the file for latents before decoding; NULL: they are not saved */
    char *title, *comment; /* for the metadata of the video */
} ith_generation;

/* Translates the settings into options of the library; returns an exit status. */
int ith_generate_translate(ith_generation *generation, const char *command);
/* Fills title and comment: prompt, seed and settings, of this run or of the latents that are decoded. */
int ith_generate_describe(ith_generation *g);
/* The options of the video writer. */
ith_video_options ith_generate_video(const ith_generation *g, int64_t width, int64_t height);
/* The function of every rank. user: an ith_generation. */
ith_status ith_generate_rank(ith_context *context, ith_comm *comm, void *user);
/* Prints the settings of the run before it begins. */
void ith_generate_announce(const ith_generation *g);
/* Prints the summary of the run on standard output: a table of times, or one JSON object. */
int ith_generate_summarise(const ith_generation *g);

#endif
