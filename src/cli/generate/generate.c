/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca generate: makes a video from a prompt. Names, sizes, the model's files and the output are checked before the
 * long computation begins. */
#include "generate.h"

#include "../file/output_name.h"
#include "../launch/interrupt.h"
#include "../option/complaint.h"
#include "../shared_option/device_option.h"
#include "../support/text_value.h"
#include "generate_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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
    const char *preview = g->settings.preview, *ending = preview ? strrchr(preview, '.') : NULL;
    int code = ith_cli_check_output(g->settings.dump);
    if (!code && preview && (!ending || strcasecmp(ending, ".png") != 0))
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
    /* The size of a video from saved latents is known only when they are read. */
    if (!code && !g->settings.from_latents && g->media->video_check(g->media_context, g->settings.output, &options))
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
    const char *folder = g->settings.files.folder, *advice = "";
    char index[4096];
    snprintf(index, sizeof index, "%s/model_index.json", folder ? folder : "");
    if (!ith_launch_is_alone(&g->launch) && folder && access(index, F_OK) && !g->settings.shard_weights)
        advice = "; with --shard-weights rank 0 alone needs the model";
    else if (!ith_launch_is_alone(&g->launch) && lacks_named(g))
        advice = "; every process needs the files that options name: --shard-weights sends a --model folder in the "
                 "layout of diffusers, such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers, and no other files";
    const char *why = ith_context_error(g->context);
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

/* Makes all checks and opens the model (ith_launch_work.prepare). The options are translated twice: first without the
 * defaults of the model folder, so that errors on the command line show at once. */
static int prepare(void *user)
{
    ith_generation *g = user;
    int code = ith_generate_translate(g, g->command);
    if (!code)
        code = ith_generate_check_names(g);
    if (!code)
        code = ith_generate_begin(g);
    if (!code)
        code = ith_generate_open_model(g);
    if (!code)
        code = ith_generate_resolve(g);
    if (code || !g->launch.leads)
        return code;
    if (g->settings.dry_run) {
        ith_generate_inspect_weights(g);
        ith_generate_inspect_memory(g);
    }
    if (g->settings.dry_run || g->settings.json || !g->settings.quiet)
        ith_generate_predict(g);
    return ITH_EXIT_DONE;
}

/* ---- After the run --------------------------------------------------------------------------------------------- */

/* The reason why the video could not be written (ith_launch_work.explain). */
static const char *explain(void *user)
{
    const ith_generation *g = user;
    return g->media_failed ? ith_context_error(g->media_context) : NULL;
}

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
    if (g->report.saved_step >= 0) {
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

/* Writes the wisdom, also after a run that failed or was stopped. Returns `code` if it is a failure. */
static int save_wisdom(ith_generation *g, int code)
{
    int saved = ith_attend_end(g->context, &g->settings.choices);
    return code ? code : saved;
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
    print_remains(g);
}

/* Completes the video and prints the summary (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    ith_generation *g = user;
    if (g->settings.dry_run)
        return code ? code : ith_generate_report_dry(g);
    if (!code)
        code = ith_generate_complete(g);
    if (code)
        ith_generate_discard(g);
    return save_wisdom(g, code);
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

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* The self-attention of one pass: S = latent frames * patches of a frame. */
static ith_attn_problem self_attention(const ith_generation *g)
{
    const ith_generate_options *o = &g->options;
    const ith_model_info *m = &g->model;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = o->cfg == ITH_CFG_BATCH && o->guidance[0] > 1 ? 2 : 1;
    problem.q_len = problem.kv_len =
        ((o->frames - 1) / m->frame_stride + 1) * (o->height / m->size_multiple) * (o->width / m->size_multiple);
    problem.heads = problem.kv_heads = m->heads, problem.head_dim = m->head_dim;
    problem.dtype = o->precision == ITH_PRECISION_BF16 ? ITH_BF16 : ITH_F32;
    return problem;
}

/* Fills in the choices of the plan of self-attention, for a run in this process alone. */
static int fill_plan(ith_generation *g)
{
    const int ranks = g->settings.choices.ranks ? (int)g->settings.choices.ranks : 1;
    const int parts = g->options.cfg == ITH_CFG_PARALLEL ? 2 : 1;
    const ith_attn_problem problem = self_attention(g);
    const ith_launch launch = {.ranks = ranks, .leads = true};
    ith_attn_options attention = g->attention;
    int code = ith_attend_begin(g->context, &g->settings.choices, &launch, 0);
    if (code || ranks < parts || !ith_launcher_is_alone(g->settings.choices.launch.transport))
        return code;
    attention.threads = g->options.threads > ranks ? g->options.threads / ranks : 1;
    return ith_attend_fill(g->context, &problem, &attention, ranks / parts, g->table);
}

/* Fills in the values that the model has for options that are not given. A model that cannot be read is named on
 * standard error: its values are left open. */
static int fill_from_model(ith_generation *g)
{
    int code = ith_generate_parse_model(&g->settings, g->context, g->table);
    if (!code)
        code = ith_generate_translate(g, g->command);
    if (code)
        return code;
    if (!g->options.prompt && !g->settings.resume)
        g->options.prompt = "";
    if (ith_generate_read_images(g) ||
        ith_lora_open_model(g->context, &g->settings.files, &g->settings.loras, &g->pipeline) ||
        ith_pipeline_resolve(g->pipeline, &g->options) || ith_pipeline_info(g->pipeline, &g->model)) {
        ith_error_print("the model's own values are left open: %s", ith_context_error(g->context));
        return ITH_EXIT_DONE;
    }
    ith_generate_fill(g);
    return fill_plan(g);
}

/* Prints the options that are in force (--print-config). Of several processes, the first one prints. */
static int print_config(ith_generation *g)
{
    int code = ith_options_check(g->table);
    if (!code)
        code = ith_cli_context(ITH_TALK_QUIET, &g->context);
    if (!code && ith_model_is_named(&g->settings.files))
        code = fill_from_model(g);
    if (!code)
        ith_options_printed(g->table);
    return code;
}

int ith_cli_generate(int argc, char **argv)
{
    ith_generation g = {.start = ith_cli_seconds(), .model = ITH_MODEL_INFO_INIT, .report = ITH_GENERATE_REPORT_INIT};
    ith_options options;
    const ith_launch_work work = {.command = argv[0],
                                  .options = &options,
                                  .compared = ith_generate_compared,
                                  .orderly = true,
                                  .share = ith_generate_share_model,
                                  .prepare = prepare,
                                  .compute = ith_generate_rank,
                                  .explain = explain,
                                  .finish = finish,
                                  .user = &g};
    ith_generate_parse(argc, argv, &g.settings, &options);
    g.table = &options, g.command = argv[0];
    ith_cli_talk talk = g.settings.quiet ? ITH_TALK_QUIET : g.settings.verbose ? ITH_TALK_VERBOSE : ITH_TALK_NORMAL;
    int code = options.print ? print_config(&g)
                             : ith_launch_begin(&g.launch, argv[0], &g.settings.choices.launch, talk, &g.context);
    if (!code && !options.print) {
        code = ith_generate_check(&g.settings, &options);
        ith_launch_set_ranks(&g.launch, g.settings.choices.ranks, g.settings.choices.threads);
        g.launch.choices.map |= g.settings.verbose && g.launch.launcher.module;
        code = ith_generate_is_batch(&g.settings) && !code ? ith_generate_run_batch(&g)
                                                           : ith_launch_run(&g.launch, g.context, code, &work);
    }
    if (code && g.complete) /* a trace, the wisdom or the summary could not be written */
        fprintf(stderr, "The video is complete: %s\n", g.settings.output);
    ith_generate_free(&g);
    ith_pipeline_close(&g.pipeline);
    ith_context_destroy(&g.context);
    ith_options_free(&options);
    return code;
}
