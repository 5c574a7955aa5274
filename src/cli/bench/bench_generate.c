/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench generate: times whole runs of a model by stage, without writing a video. */
#include "bench_engine.h"

#include "../generate/generate_files.h"
#include "../generate/generate_predict.h"
#include "../launch/interrupt.h"
#include "../shared_option/device_option.h"
#include "../support/json_print.h"
#include "bench_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS_MAX 1000

/* The stages of a run; `step` is the mean of its steps, and `whole` all stages after loading. */
enum { LOAD, TEXT, PLAN, DENOISE, STEP, DECODE, WHOLE, STAGES };
static const char *const stage_names[STAGES] = {"load", "text", "plan", "denoise", "step", "decode", "whole"};

/* The values of the command's options. */
typedef struct bench_settings {
    ith_generate_settings run;
    ith_bench_output output;
    int64_t repeats;
} bench_settings;

/* The command in this process. */
typedef struct bench_command {
    ith_generation g; /* its settings are a copy of settings->run */
    bench_settings *settings;
    double *seconds[STAGES]; /* [repeats] each */
} bench_command;

#define AT(member) offsetof(bench_settings, member)
static const ith_option own_rows[] = {
    {"repeat", "N", "Times that the model is run after a first one to warm up (3)", ITH_OPTION_WHOLE,
     .offset = AT(repeats), .least = 1, .most = REPEATS_MAX},
};

static const char doc[] =
    "Measure whole runs of a model, stage by stage. No video is written."
    "\v"
    "load opens the weights; text encodes the prompts and the images; plan makes the plans of attention and the "
    "buffers; denoise is all steps, and step their mean; decode makes frames of the latents; whole is everything but "
    "load. seconds is the median of the repeats, and spread the difference of the slowest and the fastest over it; "
    "predicted is the time that 'ithaca generate --dry-run' predicts. Options that are not given are the model's own, "
    "as in 'ithaca generate'.";

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

/* Predicts the run. The rates are measured for a second, as in a dry run, and in a separate context, so that their
 * memory does not count as the run's. */
static int predict(ith_generation *g)
{
    ith_context *of_run = g->context;
    if (ith_device_in_use(of_run, &g->device)) { /* nothing is measured */
        ith_generate_predict(g);
        return ITH_EXIT_DONE;
    }
    int code = ith_cli_context(ITH_TALK_QUIET, &g->context);
    g->settings.dry_run = true;
    if (!code)
        ith_generate_predict(g);
    ith_context_destroy(&g->context);
    g->context = of_run;
    return code;
}

/* Sends the model to processes that lack it (ith_launch_work.share). */
static ith_status share_model(ith_context *context, ith_comm *comm, void *user)
{
    return ith_generate_share_model(context, comm, &((bench_command *)user)->g);
}

/* Opens the model and fills in the options that the user left open (ith_launch_work.prepare). */
static int prepare(void *user)
{
    bench_command *c = user;
    ith_generation *g = &c->g;
    int code = ith_device_choose(g->context, g->command, c->settings->run.device);
    if (!code)
        code = ith_attend_begin(g->context, &g->settings.choices, &g->launch, 0);
    if (!code && g->launch.leads)
        code = ith_bench_output_begin(&c->settings->output, g->command);
    if (!code)
        code = ith_generate_parse_model(&c->settings->run, g->context, g->table);
    g->settings = c->settings->run;
    if (!code)
        code = ith_generate_translate(g, g->command);
    if (!code && g->launch.leads)
        code = ith_generate_check_distinct(g);
    if (code)
        return code;
    if (ith_generate_read_images(g) ||
        ith_lora_open_model(g->context, &g->settings.files, &g->settings.loras, &g->pipeline) ||
        ith_pipeline_resolve(g->pipeline, &g->options) || ith_pipeline_info(g->pipeline, &g->model)) {
        char advice[4096];
        ith_lora_advise(&g->settings.loras, ith_context_error(g->context), advice, sizeof advice);
        return ith_cli_error("%s%s", ith_context_error(g->context), advice);
    }
    if (g->launch.leads && !ith_pipeline_check(g->pipeline)) /* the run itself will say why */
        code = predict(g);
    if (code)
        return code;
    for (int i = 0; i < STAGES; i++)
        if (!(c->seconds[i] = calloc(REPEATS_MAX, sizeof *c->seconds[i])))
            return ith_cli_error("there is no memory for the times");
    return ITH_EXIT_DONE;
}

/* Keeps the times of one run. */
static void keep(bench_command *c, int64_t repeat, const ith_generate_report *r)
{
    const double seconds[STAGES] = {[LOAD] = r->load_seconds,
                                    [TEXT] = r->text_seconds + r->image_seconds,
                                    [PLAN] = r->plan_seconds,
                                    [DENOISE] = r->denoise_seconds,
                                    [STEP] = r->steps_done ? r->denoise_seconds / (double)r->steps_done : 0,
                                    [DECODE] = r->decode_seconds,
                                    [WHOLE] = r->text_seconds + r->image_seconds + r->plan_seconds +
                                              r->denoise_seconds + r->decode_seconds};
    for (int i = 0; i < STAGES; i++)
        c->seconds[i][repeat] = seconds[i];
}

/* Runs the model once to warm up and then once for each repeat (ith_launch_work.compute). */
static ith_status measure(ith_context *context, ith_comm *comm, void *user)
{
    static const ith_progress_stage stage = {"bench", "run", 1, ITH_LINES_TENTHS};
    bench_command *c = user;
    ith_generation *g = &c->g;
    ith_generate_options options = g->options;
    const bool speaks = ith_comm_rank(comm) == 0;
    const int64_t repeats = c->settings->repeats;
    ith_status status = ith_generate_predict_links(g, context, comm);
    options.should_stop = ith_interrupt_stops;
    if (speaks)
        ith_progress_begin(&g->progress, &stage, 1, !ith_terminal_draws());
    for (int64_t repeat = -1; !status && repeat < repeats; repeat++) {
        ith_generate_report report = ITH_GENERATE_REPORT_INIT;
        status = ith_pipeline_generate(g->pipeline, comm, &options, speaks ? &report : NULL);
        if (!speaks || status)
            continue;
        g->report = report;
        if (repeat >= 0)
            keep(c, repeat, &report);
        ith_progress_show(&g->progress, 0, repeat + 2, repeats + 1);
    }
    if (speaks)
        ith_progress_end(&g->progress);
    return status;
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

/* The predicted time of a stage; NAN if there is none. */
static double predicted(const ith_generation *g, int stage)
{
    const ith_video_cost *cost = &g->prediction.cost;
    if (!g->prediction.known)
        return NAN;
    switch (stage) {
    case TEXT: return cost->text_seconds + cost->image_seconds;
    case DENOISE: return cost->denoise_seconds;
    case STEP: return cost->denoise_seconds / (double)g->options.steps;
    case DECODE: return cost->decode_seconds + cost->write_seconds;
    case WHOLE: return cost->seconds;
    default: return NAN;
    }
}

static json_t *row_json(const bench_command *c, int stage)
{
    const ith_generation *g = &c->g;
    const ith_generate_options *o = &g->options;
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:i, s:i, s:I}", "bench", "generate", "model",
                  g->model.kind, "stage", stage_names[stage], "frames", (json_int_t)o->frames, "height",
                  (json_int_t)o->height, "width", (json_int_t)o->width, "steps", (json_int_t)o->steps, "cfg",
                  ith_cfg_name(o->cfg), "precision", ith_precision_name(o->precision), "ranks", g->launch.all_ranks,
                  "threads", ith_generate_threads(g), "repeats", (json_int_t)c->settings->repeats);
    ith_bench_set_seconds(row, c->seconds[stage], (int)c->settings->repeats);
    json_object_set_new(row, "predicted_seconds", ith_cli_json_number(predicted(g, stage)));
    if (g->settings.device && strcmp(g->device.name, "cpu") != 0)
        json_object_set_new(row, "device", json_string(g->device.name));
    if (stage == WHOLE)
        json_object_update_new(row, json_pack("{s:I, s:I, s:I}", "memory_bytes", (json_int_t)g->report.peak_bytes,
                                              "predicted_memory_bytes", (json_int_t)g->report.predicted_bytes,
                                              "resident_bytes", (json_int_t)ith_cli_resident_bytes()));
    return row;
}

/* Writes the model, the size and the choices of the run to `text`. */
static void describe_run(const ith_generation *g, char *text, size_t bytes)
{
    const ith_generate_options *o = &g->options;
    snprintf(text, bytes, "%s: %lld frame%s of %lld x %lld, %lld step%s, cfg %s, %s; %d rank%s", g->model.kind,
             (long long)o->frames, ith_cli_plural(o->frames), (long long)o->width, (long long)o->height,
             (long long)o->steps, ith_cli_plural(o->steps), ith_cfg_name(o->cfg), ith_precision_name(o->precision),
             g->launch.all_ranks, ith_cli_plural(g->launch.all_ranks));
}

/* Reports the stages and writes the wisdom (ith_launch_work.finish). */
static int finish(void *user, int code)
{
    static const ith_bench_column columns[] = {
        {"stage", "stage", NULL, 0, NULL},           {"seconds", "seconds", "%.4f", 1, NULL},
        {"spread", "spread", "%.1f%%", 100, NULL},   {"predicted", "predicted_seconds", "%.4f", 1, NULL},
        {"earlier", "old_seconds", "%.4f", 1, NULL}, {"change", "change", NULL, 0, NULL},
    };
    const bench_command *c = user;
    const ith_generation *g = &c->g;
    const ith_bench_output *output = &c->settings->output;
    const bool table = !output->json && !output->csv;
    char settings[512];
    if (code)
        return code;
    describe_run(g, settings, sizeof settings);
    if (table)
        puts(settings);
    const ith_bench_about about = {.title = "ithaca bench generate",
                                   .machine = "",
                                   .settings = settings,
                                   .columns = columns,
                                   .column_count = sizeof columns / sizeof *columns};
    json_t *rows = json_array();
    for (int i = 0; i < STAGES; i++)
        json_array_append_new(rows, row_json(c, i));
    code = ith_bench_output_end(output, rows, &about);
    if (table)
        printf("memory %.1f MB held (predicted %.1f MB), %.1f MB resident\n", ith_cli_megabytes(g->report.peak_bytes),
               ith_cli_megabytes(g->report.predicted_bytes), ith_cli_megabytes(ith_cli_resident_bytes()));
    const int saved = ith_attend_end(g->context, &g->settings.choices);
    return code ? code : saved;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* Runs the command after its options are parsed. */
static int run(bench_settings *settings, ith_options *options)
{
    bench_command c = {.g = {.settings = settings->run,
                             .table = options,
                             .command = options->command,
                             .model = ITH_MODEL_INFO_INIT,
                             .report = ITH_GENERATE_REPORT_INIT},
                       .settings = settings};
    static const char *const compared[] = {"repeat", "shard-weights", NULL};
    const ith_launch_work work = {.command = options->command,
                                  .options = options,
                                  .compared = compared,
                                  .share = share_model,
                                  .prepare = prepare,
                                  .compute = measure,
                                  .finish = finish,
                                  .user = &c};
    ith_generation *g = &c.g;
    int code =
        ith_launch_begin(&g->launch, options->command, &settings->run.choices.launch, ITH_TALK_NORMAL, &g->context);
    if (code)
        return code;
    code = ith_generate_check(&settings->run, options);
    if (!code && ith_option_source_of(options, "fps") == ITH_FROM_COMMAND)
        code = ith_cli_usage(options->command, "--fps is of a video, and none is written");
    ith_launch_set_ranks(&g->launch, settings->run.choices.ranks, settings->run.choices.threads);
    code = ith_launch_run(&g->launch, g->context, code, &work);
    ith_pipeline_close(&g->pipeline);
    ith_generate_free_images(g);
    ith_context_destroy(&g->context);
    for (int i = 0; i < STAGES; i++)
        free(c.seconds[i]);
    ith_bench_output_free(&settings->output);
    return code;
}

int ith_cli_bench_generate(int argc, char **argv)
{
    static ith_option table[ITH_OPTIONS_MAX];
    bench_settings settings = {.run = ITH_GENERATE_SETTINGS_INIT, .repeats = 3};
    settings.run.prompt = "A red circle moves to the right on a black background.";
    ith_options options = {.table = table, .settings = &settings, .command = argv[0]};
    memcpy(table, own_rows, sizeof own_rows);
    options.count = ith_generate_add_run_options(table, sizeof own_rows / sizeof *own_rows, AT(run));
    options.count = ith_bench_output_add_options(table, options.count, AT(output));
    ith_options_parse(&options, argc, argv, doc, NULL);
    int code = run(&settings, &options);
    ith_options_free(&options);
    return code;
}
