/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca generate: makes a video from a prompt. Names, sizes, the model's files and the output are checked before the
 * long computation begins. */
#include "generate.h"

#include "interrupt.h"
#include "output_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LATENTS_NAMES 100 /* most names that are tried for the latents; the last one replaces an existing file */

/* The stages of the progress display, indexed by ith_stage. */
static const ith_progress_stage stages[] = {{"load", NULL, 1, ITH_LINES_TIMED},
                                            {"text", "prompt", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS},
                                            {"denoise", "step", ITH_PROGRESS_UNIT, ITH_LINES_UNITS},
                                            {"decode", "frame", ITH_PROGRESS_UNIT, ITH_LINES_TENTHS}};

/* ---- Before the run -------------------------------------------------------------------------------------------- */

/* Cancels the run; called by the thread that receives signals (ith_interrupt_target). */
static void cancel(void *pipeline)
{
    ith_pipeline_cancel(pipeline);
}

/* Checks that the latents can be written, and that no two options name the same file. */
static int check_distinct(const ith_generation *g)
{
    static const char *const options[] = {"--output", "--dump", "--trace", "--wisdom", "the latents"};
    const char *const paths[] = {g->settings.output, g->settings.dump, g->settings.choices.trace,
                                 g->settings.choices.wisdom, g->latents_path};
    int code = ith_cli_check_output(g->latents_path);
    return code ? code : ith_cli_check_distinct(paths, options, sizeof paths / sizeof *paths);
}

/* Chooses the name for the latents: OUTPUT.latents.safetensors. A run that removes its latents at the end uses
 * OUTPUT.latents-2.safetensors, and so on, if an earlier run has kept its latents under that name. */
static int name_latents(ith_generation *g)
{
    if (g->settings.from_latents)
        return ITH_EXIT_DONE;
    int length = (int)strlen(g->settings.output);
    while (length > 1 && g->settings.output[length - 1] == '/')
        length--;
    for (int number = 1; !g->latents_path; number++) {
        char suffix[16] = "";
        if (number > 1)
            snprintf(suffix, sizeof suffix, "-%d", number);
        if (asprintf(&g->latents_path, "%.*s.latents%s.safetensors", length, g->settings.output, suffix) < 0) {
            g->latents_path = NULL;
            return ith_cli_error("there is no memory for a name");
        }
        if (!g->settings.keep_latents && number < LATENTS_NAMES && !access(g->latents_path, F_OK)) {
            free(g->latents_path);
            g->latents_path = NULL;
        }
    }
    g->options.latents_file = g->latents_path;
    return check_distinct(g);
}

/* Checks the names of the video and of the dump before the model is opened. */
static int check_names(ith_generation *g)
{
    if (ith_context_clone(g->context, &g->media_context))
        return ith_cli_error("%s", ith_context_error(g->context));
    if (ith_video_check_path(g->media_context, g->settings.output))
        return ith_cli_error("%s", ith_context_error(g->media_context));
    return ith_cli_check_output(g->settings.dump);
}

/* Opens the model, fills in the options that the user left open, predicts the memory, and checks the video's size. */
static int open_model(ith_generation *g)
{
    g->asked_precision = g->options.precision;
    if (ith_pipeline_open(g->context, g->settings.model, &g->pipeline) || ith_pipeline_info(g->pipeline, &g->model) ||
        ith_pipeline_resolve(g->pipeline, &g->options) ||
        ith_pipeline_predict(g->pipeline, &g->options, g->ranks, g->ranks, &g->predicted_bytes))
        return ith_cli_error("%s", ith_context_error(g->context));
    g->fps = g->settings.fps > 0 ? g->settings.fps : g->model.fps;
    int code = ith_generate_describe(g);
    ith_video_options options = ith_generate_video(g, g->options.width, g->options.height);
    /* The size of a video from saved latents is known only when they are read. */
    if (!code && !g->settings.from_latents && ith_video_check(g->media_context, g->settings.output, &options))
        return ith_cli_error("%s", ith_context_error(g->media_context));
    return code;
}

/* Returns the source of the value of --shift in words, for the report. */
static const char *shift_source(const ith_generation *g, const ith_options *options)
{
    static const char *const sources[] = {[ITH_FROM_MODEL] = "ithaca.yaml of the model folder",
                                          [ITH_FROM_CONFIG] = "--config",
                                          [ITH_FROM_COMMAND] = "--shift"};
    const char *given = sources[options->source[ith_option_find(options, "shift")]];
    return given ? given : g->model.shift_source;
}

/* Makes all checks and opens the model. The options are translated twice: first without the defaults of the model
 * folder, so that errors on the command line show at once. */
static int prepare(ith_generation *g, const char *command, ith_options *options)
{
    int code = ith_generate_translate(g, command);
    if (!code)
        code = check_names(g);
    if (!code)
        code = ith_attend_begin(g->context, &g->settings.choices);
    if (!code)
        code = ith_generate_parse_model(&g->settings, options);
    if (!code)
        code = ith_generate_translate(g, command);
    if (!code)
        code = name_latents(g);
    if (!code)
        code = open_model(g);
    g->shift_source = shift_source(g, options);
    return code;
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

/* Prints why the run failed and, if latents are saved, the command that continues from them. */
static int explain_failure(const ith_generation *g)
{
    ith_cli_error("%s", ith_context_error(g->media_failed ? g->media_context : g->context));
    if (g->report.latents_saved)
        fprintf(stderr,
                "The latents are saved; to go on from there:\n"
                "  ithaca generate --model '%s' --from-latents '%s' --output '%s'\n",
                g->settings.model, g->latents_path, g->settings.output);
    else if (ith_interrupt_came())
        fprintf(stderr, "Nothing was written.\n");
    return ITH_EXIT_FAILED;
}

/* Writes the end of the video and gives the file its final name. */
static int finish_video(ith_generation *g)
{
    double start = ith_cli_seconds();
    ith_status status = ITH_ERR_INTERNAL;
    if (g->writer)
        status = ith_video_finish(&g->writer);
    g->media_failed = status != ITH_OK;
    g->finish_seconds = ith_cli_seconds() - start;
    return status ? ITH_EXIT_FAILED : ITH_EXIT_DONE;
}

/* Writes the trace and the wisdom, also after a run that failed or was stopped. Returns `code` if it is a failure. */
static int save_records(ith_generation *g, int code)
{
    int saved = ith_attend_end(g->context, &g->settings.choices);
    return code ? code : saved;
}

/* Runs the ranks, completes the video and prints the summary. */
static int run(ith_generation *g)
{
    if (!g->settings.quiet)
        ith_generate_announce(g);
    ith_interrupt_target(cancel, g->pipeline);
    ith_progress_begin(&g->progress, stages, sizeof stages / sizeof *stages, g->settings.quiet);
    ith_status status = ith_run_ranks(g->context, g->ranks, g->options.threads, ith_generate_rank, g);
    ith_progress_end(&g->progress);
    ith_interrupt_target(NULL, NULL);
    int code = status ? ITH_EXIT_FAILED : finish_video(g);
    ith_video_discard(&g->writer);
    if (code)
        return save_records(g, explain_failure(g));
    if (g->report.latents_saved && !g->settings.keep_latents)
        unlink(g->latents_path);
    g->total_seconds = ith_cli_seconds() - g->start;
    return save_records(g, ith_generate_summarise(g));
}

int ith_cli_generate(int argc, char **argv)
{
    ith_generation g = {.start = ith_cli_seconds(), .model = ITH_MODEL_INFO_INIT, .report = ITH_GENERATE_REPORT_INIT};
    ith_options options;
    int code = ith_generate_parse(argc, argv, &g.settings, &options);
    ith_cli_talk talk = g.settings.quiet ? ITH_TALK_QUIET : g.settings.verbose ? ITH_TALK_VERBOSE : ITH_TALK_NORMAL;
    if (!code)
        code = ith_cli_context(talk, &g.context);
    ith_interrupt_defer();
    if (!code)
        code = prepare(&g, argv[0], &options);
    if (!code)
        code = ith_interrupt_check();
    if (!code)
        code = run(&g);
    ith_pipeline_close(&g.pipeline);
    ith_context_destroy(&g.media_context);
    ith_context_destroy(&g.context);
    ith_options_free(&options);
    free(g.latents_path);
    free(g.title);
    free(g.comment);
    return code;
}
