/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of ithaca generate: before the run, after it, and in the metadata of the video. */
#include "../support/json_print.h"
#include "../support/text_value.h"
#include "generate.h"

#include <ithaca/files.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define LORA_BYTES 16384 /* of the lines about LoRA files */

/* Writes the settings that determine the contents of the video into one line, and returns its length. */
static int sampling_text(const ith_generation *g, char *text, size_t bytes)
{
    const ith_generate_options *o = &g->options;
    char source[512];
    if (o->noise_file)
        snprintf(source, sizeof source, "noise %s", o->noise_file);
    else
        snprintf(source, sizeof source, "seed %llu", (unsigned long long)o->seed);
    int length = snprintf(text, bytes, "%s; steps %lld; shift %g; guidance %g", source, (long long)o->steps, o->shift,
                          o->guidance[0]);
    if (g->model.experts == 2)
        length += snprintf(text + length, bytes - (size_t)length, ",%g; boundary %g", o->guidance[1], o->boundary);
    return length + snprintf(text + length, bytes - (size_t)length, "; solver %s; sigmas %s; precision %s",
                             ith_solver_name(o->solver), ith_sigmas_name(o->sigmas), ith_precision_name(o->precision));
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* Reads the prompt and the settings from the metadata of saved latents. */
static int describe_latents(ith_generation *g)
{
    ith_tensor_file *file = NULL;
    if (ith_tensor_file_open(g->context, g->settings.from_latents, &file))
        return ith_cli_error("%s", ith_context_error(g->context));
    const char *prompt = ith_tensor_file_metadata(file, "prompt");
    if (prompt)
        g->title = strdup(prompt);
    int written = asprintf(
        &g->comment, "ithaca %s; %s; seed %s; steps %s; shift %s; negative: %s", ith_version(), g->model.kind,
        or_empty(ith_tensor_file_metadata(file, "seed")), or_empty(ith_tensor_file_metadata(file, "steps")),
        or_empty(ith_tensor_file_metadata(file, "shift")), or_empty(ith_tensor_file_metadata(file, "negative")));
    if (written < 0)
        g->comment = NULL;
    bool whole = g->comment && (g->title || !prompt);
    ith_tensor_file_close(&file);
    return whole ? ITH_EXIT_DONE : ith_cli_error("there is no memory for the video's metadata");
}

int ith_generate_describe(ith_generation *g)
{
    char sampling[1024];
    if (g->settings.from_latents)
        return describe_latents(g);
    sampling_text(g, sampling, sizeof sampling);
    g->title = strdup(g->options.prompt);
    if (asprintf(&g->comment, "ithaca %s; %s; %s; negative: %s", ith_version(), g->model.kind, sampling,
                 or_empty(g->options.negative)) < 0)
        g->comment = NULL;
    if (!g->title || !g->comment)
        return ith_cli_error("there is no memory for the video's metadata");
    return ITH_EXIT_DONE;
}

static void announce_image(FILE *to, const char *which, const char *path, const ith_image *image)
{
    if (image)
        fprintf(to, "%s image %s of %lld x %lld\n", which, path, (long long)image->width, (long long)image->height);
}

/* Names the settings that no option has set, and whose values are the model's defaults. */
static void announce_defaults(const ith_generation *g, FILE *to)
{
    static const char *const names[] = {"frames", "height",   "width",    "fps",
                                        "steps",  "guidance", "boundary", "negative"};
    bool first = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bool is_size = !strcmp(names[i], "height") || !strcmp(names[i], "width");
        const bool counts = strcmp(names[i], "boundary") ? !is_size || !g->options.image : g->model.experts == 2;
        if (!counts || ith_option_source_of(g->table, names[i]) != ITH_FROM_DEFAULT)
            continue;
        if (first)
            fprintf(to, "defaults of %s: ", g->model.kind);
        fprintf(to, "%s%s", first ? "" : ", ", names[i]);
        first = false;
    }
    if (!first)
        fputc('\n', to);
}

/* Prints lines about LoRA files. Their paths may have bytes that a terminal takes for commands. */
static void print_lines(FILE *to, char *text)
{
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        ith_text_clean(line);
        fprintf(to, "%s\n", line);
    }
}

/* Prints which LoRA files are used. */
static void announce_loras(const ith_generation *g, FILE *to)
{
    char text[LORA_BYTES];
    if (!ith_pipeline_describe_loras(g->pipeline, text, sizeof text))
        print_lines(to, text);
}

void ith_generate_advise(const ith_generation *g, FILE *to)
{
    char text[LORA_BYTES];
    if (!ith_pipeline_advise(g->pipeline, &g->options, text, sizeof text))
        print_lines(to, text);
}

void ith_generate_announce(const ith_generation *g, FILE *to)
{
    const ith_generate_options *o = &g->options;
    char sampling[1024], precision[160], time[32];
    const int threads = ith_generate_threads(g);
    fprintf(to, "%s, %d expert%s, %d rank%s, %d thread%s\n", g->model.kind, g->model.experts,
            ith_cli_plural(g->model.experts), g->launch.all_ranks, ith_cli_plural(g->launch.all_ranks), threads,
            ith_cli_plural(threads));
    if (!o->from_latents) {
        sampling_text(g, sampling, sizeof sampling);
        fprintf(to, "%lld frame%s of %lld x %lld; %s\n", (long long)o->frames, ith_cli_plural(o->frames),
                (long long)o->width, (long long)o->height, sampling);
        fprintf(to, "shift %g: %s\n", o->shift, g->shift_source);
        announce_defaults(g, to);
        if (o->prompt && !o->prompt[strspn(o->prompt, " \t\r\n")])
            fputs("the prompt is empty: no text says what the video shows\n", to);
    }
    announce_loras(g, to);
    announce_image(to, "first", g->settings.image, o->image);
    announce_image(to, "last", g->settings.last_image, o->last_image);
    ith_precision_describe(g->context, g->asked_precision, precision, sizeof precision);
    fprintf(to, "precision %s\n", precision);
    if (g->predicted_device_bytes)
        fprintf(to, "device %s, %s: transformer and prompts' keys, predicted %.0f MB of %.0f MB that are free\n",
                g->device.name, g->device.description, ith_cli_megabytes(g->predicted_device_bytes),
                ith_cli_megabytes(g->device.free_bytes));
    if (g->settings.resume)
        fprintf(to, "goes on after step %lld of %lld\n", (long long)g->resumed_steps, (long long)o->steps);
    fprintf(to, "predicted peak memory %.0f MB", ith_cli_megabytes(g->predicted_bytes));
    if (g->prediction.known)
        fprintf(to, ", predicted time %s\n", ith_duration_text(g->prediction.cost.seconds, time, sizeof time));
    else if (g->prediction.unknown[0])
        fprintf(to, "\nno time is predicted: %s\n", g->prediction.unknown);
    else
        fputc('\n', to);
}

/* The number of denoising steps that this run has computed. */
static int64_t own_steps(const ith_generate_report *r)
{
    return r->steps_done - r->steps_resumed;
}

/* The mean duration of a denoising step. */
static double per_step(const ith_generate_report *r)
{
    return own_steps(r) ? r->denoise_seconds / (double)own_steps(r) : 0;
}

/* The time spent on encoding and writing the video. */
static double writing_seconds(const ith_generation *g)
{
    return g->report.decode_sink_seconds + g->finish_seconds;
}

/* The time from the prompt to the finished video, without loading and planning. */
static double inference_seconds(const ith_generation *g)
{
    return g->report.text_seconds + g->report.image_seconds + g->report.denoise_seconds + g->report.decode_seconds +
           writing_seconds(g);
}

/* A predicted time as text, returned by value. */
typedef struct predicted_text {
    char text[48];
} predicted_text;

/* "  (predicted 1.234 s)", or "" if nothing is predicted. */
static predicted_text predicted(const ith_generation *g, double seconds)
{
    predicted_text out = {""};
    if (g->prediction.known)
        snprintf(out.text, sizeof out.text, "  (predicted %.3f s)", seconds);
    return out;
}

/* Prints the summary as a table of times per stage, with the memory of the process. */
static void print_text(const ith_generation *g)
{
    const ith_generate_report *r = &g->report;
    const ith_video_cost *c = &g->prediction.cost;
    char sampling[1024];
    printf("%s: %lld frame%s of %lld x %lld", g->settings.output, (long long)r->frames_done,
           ith_cli_plural(r->frames_done), (long long)g->width, (long long)g->height);
    if (!ith_generate_why_unused("fps", g->settings.output))
        printf(" at %g frames a second", g->fps);
    putchar('\n');
    if (!g->settings.from_latents) {
        sampling_text(g, sampling, sizeof sampling);
        printf("%s; cfg %s\n", sampling, ith_cfg_name(g->options.cfg));
    }
    if (*r->plan)
        printf("%s%s", r->plan, r->plan[strlen(r->plan) - 1] == '\n' ? "" : "\n");
    if (r->compression_error > 0)
        printf("compression changed the messages of rank 0 by %.1e (relative error)\n", r->compression_error);
    printf("load            %9.3f s\n", r->load_seconds);
    printf("plan            %9.3f s\n", r->plan_seconds);
    printf("inference       %9.3f s%s\n", inference_seconds(g), predicted(g, c->seconds).text);
    printf("  conditioning  %9.3f s%s\n", r->text_seconds, predicted(g, c->text_seconds).text);
    if (r->image_seconds > 0)
        printf("  image encode  %9.3f s%s\n", r->image_seconds, predicted(g, c->image_seconds).text);
    printf("  denoise       %9.3f s  (%lld step%s, %.3f s each)%s\n", r->denoise_seconds, (long long)own_steps(r),
           ith_cli_plural(own_steps(r)), per_step(r), predicted(g, c->denoise_seconds).text);
    printf("  VAE decode    %9.3f s  (compute %.3f s, writing %.3f s)%s\n", r->decode_seconds + writing_seconds(g),
           r->decode_seconds, writing_seconds(g), predicted(g, c->decode_seconds + c->write_seconds).text);
    printf("total           %9.3f s\n", g->total_seconds);
    printf("peak memory     %9.0f MB held (predicted %.0f MB), %.0f MB resident\n", ith_cli_megabytes(r->peak_bytes),
           ith_cli_megabytes(g->predicted_bytes), ith_cli_megabytes(ith_cli_resident_bytes()));
    if (r->streamed_layers)
        printf("streamed        %9lld layers, which each pass copied from pinned memory to %s\n",
               (long long)r->streamed_layers, g->device.name);
    printf("weight files    %9.0f MB mapped, in the system's cache as far as it has room\n",
           ith_cli_megabytes(r->mapped_bytes));
}

/* The durations of all stages as a JSON object. */
static json_t *seconds_json(const ith_generation *g)
{
    const ith_generate_report *r = &g->report;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "load", r->load_seconds, "plan",
                     r->plan_seconds, "inference", inference_seconds(g), "conditioning", r->text_seconds, "image",
                     r->image_seconds, "denoise", r->denoise_seconds, "denoise_per_step", per_step(r), "decode",
                     r->decode_seconds + writing_seconds(g), "decode_compute", r->decode_seconds, "decode_writing",
                     writing_seconds(g), "total", g->total_seconds);
}

json_t *ith_generate_prediction_json(const ith_generation *g)
{
    const ith_video_cost *c = &g->prediction.cost;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:I, s:I}", "source",
                     g->prediction.source, "inference", c->seconds, "conditioning", c->text_seconds, "image",
                     c->image_seconds, "denoise", c->denoise_seconds, "denoise_per_step", c->step_seconds,
                     "decode_compute", c->decode_seconds, "decode_writing", c->write_seconds, "layer", "seconds",
                     c->layer_seconds, "self_attention", c->attention_seconds, "linear", c->linear_seconds,
                     "cross_attention", c->cross_seconds, "rows", c->row_seconds, "operations", c->operations,
                     "sent_bytes", (json_int_t)c->sent_bytes, "host_bytes", (json_int_t)c->host_bytes);
}

/* The predicted and the measured memory as a JSON object. */
static json_t *memory_json(const ith_generation *g)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "predicted_bytes", (json_int_t)g->predicted_bytes,
                     "predicted_device_bytes", (json_int_t)g->predicted_device_bytes, "streamed_layers",
                     (json_int_t)g->report.streamed_layers, "peak_bytes", (json_int_t)g->report.peak_bytes,
                     "resident_bytes", (json_int_t)ith_cli_resident_bytes(), "mapped_bytes",
                     (json_int_t)g->report.mapped_bytes);
}

/* The settings of the run as a JSON object. A seed above INT64_MAX becomes text, because Jansson's integers end
 * there. */
static json_t *sampling_json(const ith_generation *g)
{
    const ith_generate_options *o = &g->options;
    json_t *all =
        json_pack("{s:s, s:s, s:I, s:f, s:s, s:[f, f], s:f, s:s, s:s, s:s}", "prompt", o->prompt, "negative",
                  or_empty(o->negative), "steps", (json_int_t)o->steps, "shift", o->shift, "shift_source",
                  g->shift_source, "guidance", o->guidance[0], o->guidance[1], "boundary", o->boundary, "solver",
                  ith_solver_name(o->solver), "sigmas", ith_sigmas_name(o->sigmas), "cfg", ith_cfg_name(o->cfg));
    if (g->settings.resume)
        json_object_set_new(all, "resumed_steps", json_integer((json_int_t)g->report.steps_resumed));
    if (o->noise_file)
        json_object_set_new(all, "noise", ith_cli_json_text(o->noise_file));
    else if (o->seed <= INT64_MAX)
        json_object_set_new(all, "seed", json_integer((json_int_t)o->seed));
    else
        json_object_set_new(all, "seed", json_sprintf("%llu", (unsigned long long)o->seed));
    return all;
}

/* Prints the summary as one JSON object. */
static int print_json(const ith_generation *g)
{
    json_t *all =
        json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:f, s:i, s:i, s:s, s:s, s:f, s:o, s:o}", "version", ith_version(),
                  "model", g->model.kind, "output", ith_cli_json_text(g->settings.output), "frames",
                  (json_int_t)g->report.frames_done, "height", (json_int_t)g->height, "width", (json_int_t)g->width,
                  "fps", g->fps, "ranks", g->launch.all_ranks, "threads", ith_generate_threads(g), "precision",
                  ith_precision_name(g->options.precision), "plan", g->report.plan, "compression_error",
                  g->report.compression_error, "seconds", seconds_json(g), "memory", memory_json(g));
    if (all && !g->settings.from_latents)
        json_object_set_new(all, "sampling", sampling_json(g));
    if (all && g->prediction.known)
        json_object_set_new(all, "predicted_seconds", ith_generate_prediction_json(g));
    return ith_cli_json_print(all, "the summary", JSON_INDENT(2));
}

int ith_generate_summarise(const ith_generation *g)
{
    if (g->settings.json)
        return print_json(g);
    if (!g->settings.quiet)
        print_text(g);
    return ITH_EXIT_DONE;
}
