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

/* ---- Before the run -------------------------------------------------------------------------------------------- */

/* Checks that the latents can be written, and that no two options name the same file. */
static int check_distinct(const ith_generation *g)
{
    static const char *const options[] = {"--output", "--dump",          "--trace",
                                          "--wisdom", "--flight-record", "the latents"};
    const char *const paths[] = {g->settings.output,
                                 g->settings.dump,
                                 g->settings.choices.launch.trace,
                                 g->settings.choices.wisdom,
                                 g->settings.choices.launch.flight_record,
                                 g->latents_path};
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

/* Returns the source of the value of --shift in words, for the report. */
static const char *shift_source(const ith_generation *g)
{
    static const char *const sources[] = {[ITH_FROM_MODEL] = "ithaca.yaml of the model folder",
                                          [ITH_FROM_CONFIG] = "--config",
                                          [ITH_FROM_COMMAND] = "--shift"};
    const char *given = sources[g->table->source[ith_option_find(g->table, "shift")]];
    return given ? given : g->model.shift_source;
}

/* Describes the run, predicts its memory, and checks the video's size. */
static int describe_run(ith_generation *g)
{
    if (ith_pipeline_info(g->pipeline, &g->model) ||
        ith_pipeline_predict(g->pipeline, &g->options, g->launch.all_ranks, g->launch.ranks, &g->predicted_bytes))
        return ith_cli_error("%s", ith_context_error(g->context));
    g->fps = g->settings.fps > 0 ? g->settings.fps : g->model.fps;
    g->shift_source = shift_source(g);
    int code = ith_generate_describe(g);
    ith_video_options options = ith_generate_video(g, g->options.width, g->options.height);
    /* The size of a video from saved latents is known only when they are read. */
    if (!code && !g->settings.from_latents && ith_video_check(g->media_context, g->settings.output, &options))
        return ith_cli_error("%s", ith_context_error(g->media_context));
    return code;
}

/* Further checks of a dry run: the headers of the weight files, and the memory of this machine. */
static void inspect(ith_generation *g)
{
    if (ith_pipeline_check(g->pipeline))
        snprintf(g->weights_fault, sizeof g->weights_fault, "%s", ith_context_error(g->context));
    if (ith_pipeline_check_memory(g->pipeline, &g->options, g->launch.all_ranks, g->launch.ranks, &g->free_bytes))
        snprintf(g->memory_lack, sizeof g->memory_lack, "%s", ith_context_error(g->context));
}

/* Sends the model to processes that lack it (ith_launch_work.share). */
static ith_status share_model(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    const ith_generation *g = user;
    return g->settings.shard_weights && g->settings.model ? ith_model_lend(comm, g->settings.model) : ITH_OK;
}

/* Prints why the model cannot be opened. */
static int complain_about_model(const ith_generation *g)
{
    char index[4096];
    snprintf(index, sizeof index, "%s/model_index.json", g->settings.model);
    const bool lacks = g->launch.all_ranks > g->launch.ranks && access(index, F_OK) && !g->settings.shard_weights;
    return ith_cli_error("%s%s", ith_context_error(g->context),
                         lacks ? "; with --shard-weights rank 0 alone needs the model" : "");
}

/* Opens the model and fills in the options that the user left open. The process of rank 0, which reports and writes,
 * also describes the run. It alone needs saved latents. */
static int open_model(ith_generation *g)
{
    bool resolves = g->launch.leads || !g->settings.from_latents;
    g->asked_precision = g->options.precision;
    if (ith_pipeline_open(g->context, g->settings.model, &g->pipeline) ||
        (resolves && ith_pipeline_resolve(g->pipeline, &g->options)))
        return complain_about_model(g);
    return g->launch.leads ? describe_run(g) : ITH_EXIT_DONE;
}

/* Makes all checks and opens the model (ith_launch_work.prepare). The options are translated twice: first without the
 * defaults of the model folder, so that errors on the command line show at once. */
static int prepare(void *user)
{
    ith_generation *g = user;
    int code = ith_generate_translate(g, g->command);
    if (!code && g->launch.leads)
        code = check_names(g);
    if (!code)
        code = ith_attend_begin(g->context, &g->settings.choices, &g->launch);
    if (!code)
        code = ith_generate_parse_model(&g->settings, g->context, g->table);
    if (!code)
        code = ith_generate_translate(g, g->command);
    if (!code && g->launch.leads)
        code = name_latents(g);
    if (!code)
        code = open_model(g);
    if (code || !g->launch.leads)
        return code;
    if (g->settings.dry_run)
        inspect(g);
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

/* Called after a failure. Prints the command that continues from the latents if they are saved, and after a signal
 * otherwise that nothing was written. */
static void print_remains(const ith_generation *g)
{
    if (g->report.latents_saved)
        fprintf(stderr,
                "The latents are saved; to go on from there:\n"
                "  ithaca generate --model '%s' --from-latents '%s' --output '%s'\n",
                g->settings.model, g->latents_path, g->settings.output);
    else if (g->launch.interrupted || ith_interrupt_came())
        fprintf(stderr, "Nothing was written.\n");
}

/* Writes the end of the video and gives the file its final name. */
static int finish_video(ith_generation *g)
{
    double start = ith_cli_seconds();
    if (!g->writer)
        return ith_cli_error("the engine has made no frame");
    g->media_failed = ith_video_finish(&g->writer) != ITH_OK;
    g->finish_seconds = ith_cli_seconds() - start;
    return g->media_failed ? ith_cli_error("%s", ith_context_error(g->media_context)) : ITH_EXIT_DONE;
}

/* Writes the wisdom, also after a run that failed or was stopped. Returns `code` if it is a failure. */
static int save_wisdom(ith_generation *g, int code)
{
    int saved = ith_attend_end(g->context, &g->settings.choices);
    return code ? code : saved;
}

/* Completes the video and prints the summary (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    ith_generation *g = user;
    if (g->settings.dry_run)
        return code ? code : ith_generate_report_dry(g);
    if (!code)
        code = finish_video(g);
    ith_video_discard(&g->writer);
    if (code) {
        print_remains(g);
        return save_wisdom(g, code);
    }
    if (g->report.latents_saved && !g->settings.keep_latents)
        unlink(g->latents_path);
    g->total_seconds = ith_cli_seconds() - g->start;
    return save_wisdom(g, ith_generate_summarise(g));
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
    int code = ith_attend_begin(g->context, &g->settings.choices, &launch);
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
    g->options.prompt = g->options.prompt ? g->options.prompt : "";
    if (ith_pipeline_open(g->context, g->settings.model, &g->pipeline) ||
        ith_pipeline_resolve(g->pipeline, &g->options) || ith_pipeline_info(g->pipeline, &g->model)) {
        fprintf(stderr, "ithaca: the model's own values are left open: %s\n", ith_context_error(g->context));
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
    if (!code && g->settings.model)
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
                                  .orderly = true,
                                  .share = share_model,
                                  .prepare = prepare,
                                  .compute = ith_generate_rank,
                                  .explain = explain,
                                  .finish = finish,
                                  .user = &g};
    ith_generate_parse(argc, argv, &g.settings, &options);
    g.table = &options, g.command = argv[0];
    ith_cli_talk talk = g.settings.quiet ? ITH_TALK_QUIET : g.settings.verbose ? ITH_TALK_VERBOSE : ITH_TALK_NORMAL;
    int code = options.print ? print_config(&g) : ith_launch_begin(&g.launch, argv[0], &g.settings.choices.launch);
    if (!code && !options.print) {
        code = ith_generate_check(&g.settings, &options);
        ith_launch_set_ranks(&g.launch, g.settings.choices.ranks, g.settings.choices.threads);
        g.launch.choices.map |= g.settings.verbose && g.launch.launcher.module;
        int made = ith_cli_context(talk, &g.context);
        code = ith_launch_run(&g.launch, g.context, code ? code : made, &work);
    }
    ith_pipeline_close(&g.pipeline);
    ith_context_destroy(&g.media_context);
    ith_context_destroy(&g.context);
    ith_options_free(&options);
    free(g.latents_path);
    free(g.title);
    free(g.comment);
    return code;
}
