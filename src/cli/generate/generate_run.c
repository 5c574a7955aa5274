/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a run of ithaca generate: opens the model, completes and checks the settings, completes the video after
 * the computation, and says after a failure how to go on. */
#include "generate.h"

#include "../file/output_name.h"
#include "../launch/interrupt.h"
#include "../shared_option/device_option.h"
#include "../support/text_value.h"
#include "generate_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENCODER_THREADS (ITH_VIDEO_ENCODER_THREADS + 1) /* of libx264: one more looks ahead */

/* ---- Before the run -------------------------------------------------------------------------------------------- */

int ith_generate_check_names(ith_generation *g)
{
    if (!g->launch.leads)
        return ITH_EXIT_DONE;
    if (ith_context_clone(g->context, &g->media_context))
        return ith_cli_error("%s", ith_context_error(g->context));
    if (ith_media_load(g->media_context, &g->media) || g->media->video_check_path(g->media_context, g->settings.output))
        return ith_cli_error("%s", ith_context_error(g->media_context));
    const char *preview = g->settings.preview;
    int code = ith_cli_check_output(g->settings.dump);
    if (!code && preview && !ith_text_ends_in(preview, ".png"))
        return ith_cli_error("preview '%s' is written as a PNG: its name must end in .png", preview);
    if (!code)
        code = ith_cli_check_output(preview);
    return code ? code : ith_generate_check_saved(g);
}

/* Returns the source of the value of --shift in words, for the report. */
static const char *shift_source(const ith_generation *g)
{
    static const char *const sources[] = {[ITH_FROM_MODEL] = "ithaca.yaml of the model folder",
                                          [ITH_FROM_CONFIG] = "--config",
                                          [ITH_FROM_COMMAND] = "--shift"};
    const char *given = sources[ith_option_source_of(g->table, "shift")];
    if (g->settings.resume)
        return "the saved run";
    return given ? given : g->model.shift_source;
}

/* Describes the run, predicts its memory, and checks the video's size. */
static int describe_run(ith_generation *g)
{
    if (!g->settings.quiet)
        ith_generate_advise(g, stderr);
    if (ith_pipeline_info(g->pipeline, &g->model) ||
        ith_pipeline_predict(g->pipeline, &g->options, g->launch.all_ranks, g->launch.ranks, &g->predicted_bytes) ||
        ith_pipeline_predict_device(g->pipeline, &g->options, g->launch.all_ranks, g->launch.ranks,
                                    &g->predicted_device_bytes))
        return ith_cli_error("%s", ith_context_error(g->context));
    ith_device_in_use(g->context, &g->device);
    g->fps = g->settings.fps > 0 ? g->settings.fps : g->model.fps;
    g->shift_source = shift_source(g);
    int code = ith_generate_describe(g);
    ith_video_options options = ith_generate_video(g, g->options.width, g->options.height);
    if (!code && g->media->video_check(g->media_context, g->settings.output, &options))
        return ith_cli_error("%s", ith_context_error(g->media_context));
    return code;
}

void ith_generate_inspect_weights(ith_generation *g)
{
    if (ith_pipeline_check(g->pipeline))
        snprintf(g->weights_fault, sizeof g->weights_fault, "%s", ith_context_error(g->context));
}

void ith_generate_inspect_memory(ith_generation *g)
{
    if (ith_pipeline_check_memory(g->pipeline, &g->options, g->launch.all_ranks, g->launch.ranks, &g->free_bytes))
        ith_options_spell(g->table, ith_context_error(g->context), g->memory_lack, sizeof g->memory_lack);
}

ith_status ith_generate_share_model(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    const ith_generation *g = user;
    return g->settings.shard_weights && g->settings.files.folder ? ith_model_lend(comm, g->settings.files.folder)
                                                                 : ITH_OK;
}

/* Whether this process lacks a file that an option names. The message about a file that cannot be opened has its
 * path. */
static bool lacks_named(const ith_generation *g)
{
    const ith_lora_lists *loras = &g->settings.loras;
    bool lacks = loras->by_name || loras->high || loras->low;
    for (int i = 0; i < ITH_MODEL_SINGLE_FILES; i++) {
        const char *path;
        ith_model_single_file(&g->settings.files, i, &path);
        lacks |= path && access(path, F_OK);
    }
    return lacks && strstr(ith_context_error(g->context), strerror(ENOENT));
}

/* Prints the reason why the model cannot be opened. If other processes may have the files, it adds which files
 * --shard-weights can send. */
static int complain_about_model(const ith_generation *g)
{
    const char *folder = g->settings.files.folder, *advice = "", *why = ith_context_error(g->context);
    char index[4096], lora[4096];
    snprintf(index, sizeof index, "%s/model_index.json", folder ? folder : "");
    ith_lora_advise(&g->settings.loras, why, lora, sizeof lora);
    if (*lora)
        advice = lora;
    else if (!ith_launch_is_alone(&g->launch) && folder && access(index, F_OK) && !g->settings.shard_weights)
        advice = "; with --shard-weights rank 0 alone needs the model";
    else if (!ith_launch_is_alone(&g->launch) && lacks_named(g))
        advice = "; every process needs the files that options name: --shard-weights sends a --model folder in the "
                 "layout of diffusers, such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers, and no other files";
    return ith_cli_error("%s%s", *why ? why : "there is no memory for the model's files", advice);
}

int ith_generate_open_model(ith_generation *g)
{
    return ith_lora_open_model(g->context, &g->settings.files, &g->settings.loras, &g->pipeline)
               ? complain_about_model(g)
               : ITH_EXIT_DONE;
}

/* The process of rank 0, which reports and writes, also describes the run. It alone needs saved latents. */
int ith_generate_resolve(ith_generation *g)
{
    bool resolves = g->launch.leads || !g->settings.from_latents;
    g->asked_precision = g->options.precision;
    int code = g->launch.leads ? ith_generate_name_latents(g) : ITH_EXIT_DONE;
    if (code)
        return code;
    if (ith_generate_read_images(g))
        return ith_cli_error("%s", ith_context_error(g->context));
    if (resolves && ith_pipeline_resolve(g->pipeline, &g->options))
        return complain_about_model(g);
    code = ith_generate_check_seed(g);
    if (code)
        return code;
    return g->launch.leads ? describe_run(g) : ITH_EXIT_DONE;
}

int ith_generate_begin(ith_generation *g)
{
    int code = ith_device_choose(g->context, g->command, g->settings.device);
    if (!code)
        code = ith_attend_begin(g->context, &g->settings.choices, &g->launch, ENCODER_THREADS);
    if (!code)
        code = ith_generate_parse_model(&g->settings, g->context, g->table);
    return code ? code : ith_generate_translate(g, g->command);
}

/* ---- After the run --------------------------------------------------------------------------------------------- */

/* Prints a number that the command line or --config has set. */
static void print_given(const ith_generation *g, const char *option, double value)
{
    char text[40];
    if (ith_option_source_of(g->table, option) < ITH_FROM_CONFIG)
        return;
    ith_text_of_number(value, text);
    ith_text_print_option(stderr, option, text);
}

/* Prints the end of a command: the file that it goes on from, and its output. */
static void print_end(const ith_generation *g, const char *option, const char *file)
{
    ith_text_print_option(stderr, option, file);
    if (!ith_generate_why_unused("fps", g->settings.output))
        print_given(g, "fps", g->settings.fps);
    if (!ith_generate_why_unused("crf", g->settings.output))
        print_given(g, "crf", (double)g->settings.crf);
    ith_text_print_option(stderr, "output", g->settings.output);
    fputc('\n', stderr);
}

/* Prints the options that say where the steps that are left are computed. */
static void print_place(const ith_generation *g)
{
    if (g->settings.device)
        ith_text_print_option(stderr, "device", g->settings.device);
    print_given(g, "ranks", (double)g->settings.choices.ranks);
    if (g->settings.shard_weights)
        fputs(" --shard-weights", stderr);
}

/* Called after a failure. Prints the command that continues from the latents if they are saved, and after a signal
 * otherwise that nothing was written. A batch names the videos that were not made. */
static void print_remains(const ith_generation *g)
{
    if (g->report.saved_step >= 0 && g->gone_wrong) {
        fprintf(
            stderr,
            "'%s' holds step %lld of %lld. A run that goes on from there would go wrong again: remove the file, and "
            "begin with other options or another model.\n",
            g->options.checkpoint_file, (long long)g->report.saved_step, (long long)g->options.steps);
    } else if (g->report.saved_step >= 0) {
        fprintf(stderr, "Step %lld of %lld is saved; to go on from there:\n  ithaca generate",
                (long long)g->report.saved_step, (long long)g->options.steps);
        ith_model_print_options(&g->settings.files, stderr);
        ith_lora_print_options(&g->settings.loras, stderr);
        if (g->settings.image)
            ith_text_print_option(stderr, "image", g->settings.image);
        if (g->settings.last_image)
            ith_text_print_option(stderr, "last-image", g->settings.last_image);
        print_place(g);
        print_end(g, "resume", g->options.checkpoint_file);
    } else if (g->report.latents_saved) {
        fprintf(stderr, "The latents are saved; to go on from there:\n  ithaca generate");
        ith_model_print_options(&g->settings.files, stderr);
        ith_lora_print_options(&g->settings.loras, stderr);
        if (g->settings.device)
            ith_text_print_option(stderr, "device", g->settings.device);
        print_end(g, "from-latents", g->latents_path);
    } else if (!g->complete && !ith_generate_is_batch(&g->settings) &&
               (g->launch.interrupted || ith_interrupt_came())) {
        fprintf(stderr, "Nothing was written.\n");
    }
}

/* Writes the end of the video and gives the file its final name. */
static int finish_video(ith_generation *g)
{
    double start = ith_cli_seconds();
    if (!g->writer)
        return ith_cli_error("the engine has made no frame");
    g->media_failed = g->media->video_finish(&g->writer) != ITH_OK;
    g->finish_seconds = ith_cli_seconds() - start;
    return g->media_failed ? ith_cli_error("%s", ith_context_error(g->media_context)) : ITH_EXIT_DONE;
}

int ith_generate_complete(ith_generation *g)
{
    int code = finish_video(g);
    if (code)
        return code;
    g->complete = true;
    if (g->report.latents_saved && !g->settings.keep_latents)
        unlink(g->latents_path);
    ith_name_lock_release(&g->latents_lock);
    ith_generate_forget_saved(g);
    g->report.latents_saved = false, g->report.saved_step = -1; /* there is nothing to go on from */
    g->total_seconds = ith_cli_seconds() - g->start;
    return ith_generate_summarise(g);
}

static void free_writer(ith_generation *g)
{
    if (g->writer)
        g->media->video_discard(&g->writer);
}

void ith_generate_discard(ith_generation *g)
{
    free_writer(g);
    /* a saved run of all steps has the same latents */
    if (g->report.latents_saved && g->report.saved_step == g->options.steps && !g->settings.keep_latents)
        unlink(g->latents_path);
    ith_name_lock_release(&g->latents_lock);
    if (g->gone_wrong && g->report.saved_step == 0 && !g->settings.resume) {
        ith_generate_forget_saved(g);
        g->report.saved_step = -1; /* the file had no step, and would go wrong again */
    }
    print_remains(g);
}

void ith_generate_free(ith_generation *g)
{
    free_writer(g);
    ith_generate_free_images(g);
    ith_context_destroy(&g->media_context);
    ith_name_lock_release(&g->latents_lock);
    free(g->latents_path);
    free(g->title);
    free(g->comment);
}
