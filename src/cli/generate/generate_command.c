/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca generate: makes a video from a prompt. Names, sizes, the model's files and the output are checked before the
 * long computation begins. */
#include "generate.h"

#include "../option/complaint.h"
#include "generate_predict.h"

#include <stdio.h>

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

/* The reason why the video could not be written (ith_launch_work.explain). */
static const char *explain(void *user)
{
    const ith_generation *g = user;
    return g->media_failed ? ith_context_error(g->media_context) : NULL;
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
        code = ith_generate_complete(g);
    if (code)
        ith_generate_discard(g);
    return save_wisdom(g, code);
}

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
        char advice[1024];
        ith_lora_advise(&g->settings.loras, ith_context_error(g->context), advice, sizeof advice);
        ith_error_print("the model's own values are left open: %s%s", ith_context_error(g->context), advice);
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
