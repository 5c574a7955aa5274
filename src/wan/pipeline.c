/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt to frames: the main path of the engine.
 *
 *   encode the prompts -> make noise -> denoise -> save the latents -> decode
 *
 * Each stage loads what it needs and frees it before the next begins. */
#include "pipeline.h"

#include "../base/clock.h"
#include "../base/context.h"
#include "../base/observer.h"
#include "../base/sized.h"
#include "../base/trace.h"
#include "../base/version.h"
#include "sample/denoise.h"
#include "sample/noise.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* One call of ith_pipeline_generate. */
typedef struct run {
    ith_pipeline *pipeline;
    ith_context *context;
    ith_generate_options options; /* all of them, checked */
    ith_attn_options attention;
    ith_generate_report *report;
    ith_number_types types;
    ith_latent_size size;
    float *latents;
    float *text[2];
    int64_t text_count[2];
    ith_dump *dump;
    uint8_t *rgb; /* one frame */
} run;

/* ---- Open and close -------------------------------------------------------------------------------------------- */

/* Nothing if it is there already. */
static ith_status need_tokenizer(ith_pipeline *pipeline)
{
    if (pipeline->tokenizer)
        return ITH_OK;
    char *path = ith_model_path(pipeline->context, pipeline->model, "tokenizer");
    if (!path)
        return ITH_ERR_MEMORY;
    ith_status status = ith_tokenizer_load(pipeline->context, path, &pipeline->tokenizer);
    ith_free(pipeline->context, path);
    if (status || ith_tokenizer_vocab(pipeline->tokenizer) <= pipeline->model->text.vocab)
        return status;
    int64_t pieces = ith_tokenizer_vocab(pipeline->tokenizer);
    ith_tokenizer_free(pipeline->context, &pipeline->tokenizer);
    return ith_fail(pipeline->context, ITH_ERR_FORMAT,
                    "%s/tokenizer/spiece.model: %lld pieces are more than the text encoder's vocabulary of %lld",
                    pipeline->model->folder, (long long)pieces, (long long)pipeline->model->text.vocab);
}

/* Both libraries know how a context looks inside, so they must be of one version. */
static ith_status check_library(ith_context *context)
{
    if (!strcmp(ith_version(), ITH_VERSION_TEXT))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "libithaca_wan is version %s and libithaca, which it stands on, %s: install both of one version",
                    ITH_VERSION_TEXT, ith_version());
}

ith_status ith_pipeline_open(ith_context *context, const char *model_folder, ith_pipeline **out)
{
    if (out)
        *out = NULL;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, model_folder, "model_folder");
    if (!status)
        status = ith_need(context, out, "out");
    if (!status)
        status = check_library(context);
    if (status)
        return status;
    ith_pipeline *pipeline = ith_alloc_zero(context, 1, sizeof *pipeline, "a pipeline");
    if (!pipeline)
        return ITH_ERR_MEMORY;
    pipeline->context = ith_context_hold(context);
    status = ith_model_read(context, model_folder, &pipeline->model);
    if (status) {
        ith_pipeline_close(&pipeline);
        return status;
    }
    *out = pipeline;
    return ITH_OK;
}

void ith_pipeline_close(ith_pipeline **pipeline)
{
    if (!pipeline || !*pipeline)
        return;
    ith_context *context = (*pipeline)->context;
    ith_tokenizer_free(context, &(*pipeline)->tokenizer);
    ith_model_free(context, &(*pipeline)->model);
    ith_free(context, *pipeline);
    ith_context_release(context);
    *pipeline = NULL;
}

ith_status ith_pipeline_info(const ith_pipeline *pipeline, ith_model_info *info)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    return ITH_SIZED_FILL(pipeline->context, ith_model_info, ITH_MODEL_INFO_INIT, info, &pipeline->model->info);
}

ith_status ith_pipeline_check(ith_pipeline *pipeline)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    if (pipeline->checked)
        return ITH_OK;
    ith_status status = need_tokenizer(pipeline);
    if (!status)
        status = ith_model_check_weights(pipeline->context, pipeline->model);
    pipeline->checked = !status;
    return status;
}

ith_status ith_pipeline_tokenize(ith_pipeline *pipeline, const char *text, int32_t *ids, int64_t *count)
{
    if (count)
        *count = 0;
    ith_status status = ith_need(NULL, pipeline, "pipeline");
    if (!status)
        status = ith_need(pipeline->context, text, "text");
    if (!status)
        status = ith_need(pipeline->context, ids, "ids");
    if (!status)
        status = ith_need(pipeline->context, count, "count");
    if (!status)
        status = need_tokenizer(pipeline);
    return status ? status : ith_tokenizer_encode(pipeline->context, pipeline->tokenizer, text, ids, count);
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* Puts before the sentence of an interruption where it came; other failures say it themselves. */
static ith_status say_where(const run *r, ith_status status, const char *where)
{
    return status == ITH_ERR_INTERRUPTED ? ith_fail_in(r->context, status, "%s", where) : status;
}

static ith_status encode_prompt(run *r, const ith_text_encoder *encoder, const char *text, int which, int prompts)
{
    const ith_span span = {ITH_STAGE_TEXT, which * ITH_PROGRESS_UNIT, (which + 1) * ITH_PROGRESS_UNIT,
                           prompts * ITH_PROGRESS_UNIT};
    int32_t ids[ITH_TEXT_LEN];
    int64_t dim = r->pipeline->model->text.dim;
    ith_status status = ith_pipeline_tokenize(r->pipeline, text, ids, &r->text_count[which]);
    if (status)
        return status;
    r->text[which] = ith_alloc(r->context, r->text_count[which] * dim, sizeof(float), "an encoded prompt");
    if (!r->text[which])
        return ITH_ERR_MEMORY;
    return ith_text_encode(r->context, encoder, ids, r->text_count[which], r->text[which], &span);
}

static ith_status encode_prompts(run *r)
{
    ith_text_encoder *encoder = NULL;
    double start = ith_clock_seconds(), traced = ith_trace_begin(r->context);
    char *path = ith_model_path(r->context, r->pipeline->model, "text_encoder");
    ith_status status = path ? ith_text_encoder_load(r->context, path, r->types.products, &encoder) : ITH_ERR_MEMORY;
    ith_free(r->context, path);
    ith_trace_end(r->context, traced, "load text encoder", "load");
    r->report->load_seconds += ith_clock_seconds() - start;
    if (status)
        return say_where(r, status, "loading the text encoder");
    int prompts = ith_denoise_is_guided(r->pipeline->model, &r->options) ? 2 : 1;
    const char *const texts[2] = {r->options.prompt, r->options.negative};
    start = ith_clock_seconds();
    for (int i = 0; i < prompts && !status; i++) {
        traced = ith_trace_begin(r->context);
        status = encode_prompt(r, encoder, texts[i], i, prompts);
        ith_trace_end(r->context, traced, "text", "compute");
    }
    r->report->text_seconds += ith_clock_seconds() - start;
    ith_text_encoder_free(r->context, &encoder);
    return status;
}

static ith_status make_noise(run *r)
{
    static const char *const names[] = {"noise", NULL};
    int64_t count = ith_latent_count(&r->size);
    if (r->options.noise_file) {
        ith_status status = ith_latents_read(r->context, r->options.noise_file, names, &r->size, &r->latents);
        if (status)
            return status;
    } else {
        r->latents = ith_alloc(r->context, count, sizeof(float), "latents");
        if (!r->latents)
            return ITH_ERR_MEMORY;
        ith_status status = ith_noise_make(r->context, r->options.seed, 0, count, r->latents);
        if (status)
            return say_where(r, status, "making noise");
    }
    if (r->dump)
        memcpy(r->dump->noise, r->latents, (size_t)count * sizeof(float));
    return ITH_OK;
}

static ith_status denoise(run *r)
{
    ith_denoise_job job = {.model = r->pipeline->model,
                           .options = &r->options,
                           .types = r->types,
                           .size = r->size,
                           .latents = r->latents,
                           .text = {r->text[0], r->text[1]},
                           .text_count = {r->text_count[0], r->text_count[1]},
                           .dump = r->dump,
                           .report = r->report};
    ith_status status = ith_denoise(r->context, &job);
    if (!status && r->dump)
        memcpy(r->dump->final, r->latents, (size_t)ith_latent_count(&r->size) * sizeof(float));
    return status;
}

static ith_status save_latents(run *r)
{
    static const char *const keys[] = {"prompt", "negative", "seed", "steps", "shift"};
    char seed[32], steps[32], shift[32];
    if (!r->options.latents_file)
        return ITH_OK;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)r->options.seed);
    snprintf(steps, sizeof steps, "%lld", (long long)r->options.steps);
    snprintf(shift, sizeof shift, "%g", r->options.shift);
    const char *const values[] = {r->options.prompt, r->options.negative, seed, steps, shift};
    ith_status status = ith_latents_write(r->context, r->options.latents_file, &r->size, r->latents, keys, values, 5);
    r->report->latents_saved = !status;
    return status;
}

/* [-1, 1] to 0..255, halves to even as torch.round does. */
static void quantise(uint8_t *rgb, const float *frame, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        rgb[i] = (uint8_t)rintf(fminf(fmaxf(frame[i] * 0.5f + 0.5f, 0.0f), 1.0f) * 255.0f);
}

/* Hands a frame to the caller, whose failure becomes a status with a sentence. */
static ith_status hand_over(const run *r, int64_t index, int64_t height, int64_t width)
{
    if (!r->options.on_frame)
        return ITH_OK;
    ith_fail(r->context, ITH_OK, "%s", ""); /* on_frame may use the context too: then its sentence stays */
    int status = r->options.on_frame(r->options.user, index, r->rgb, height, width);
    if (status > ITH_OK || status < ITH_ERR_INTERNAL)
        return ith_fail(r->context, ITH_ERR_ABORTED,
                        "on_frame returned %d for frame %lld, which is no ith_status: it counts as a failure", status,
                        (long long)index);
    if (status && !ith_context_error(r->context)[0])
        return ith_fail(r->context, (ith_status)status, "on_frame returned %s for frame %lld",
                        ith_status_name((ith_status)status), (long long)index);
    return (ith_status)status;
}

static ith_status take_frame(void *user, int64_t index, const float *frame, int64_t height, int64_t width)
{
    run *r = user;
    int64_t count = height * width * 3, total = r->options.frames;
    ith_status status = ith_observer_ask(r->context);
    if (status)
        return status;
    double start = ith_clock_seconds();
    double traced = ith_trace_begin(r->context);
    quantise(r->rgb, frame, count);
    status = hand_over(r, index, height, width);
    ith_trace_end(r->context, traced, "write frame", "write");
    r->report->decode_sink_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    if (r->dump) {
        memcpy(r->dump->frames + index * count, r->rgb, (size_t)count);
        r->dump->frames_done = index + 1;
    }
    r->report->frames_done = index + 1;
    ith_observer_show(r->context, ITH_STAGE_DECODE, (index + 1) * ITH_PROGRESS_UNIT, total * ITH_PROGRESS_UNIT);
    return ITH_OK;
}

static ith_status decode(run *r)
{
    ith_vae *vae = NULL;
    double start = ith_clock_seconds();
    char *path = ith_model_path(r->context, r->pipeline->model, "vae");
    ith_status status = path ? ith_vae_load(r->context, path, r->types.products, &vae) : ITH_ERR_MEMORY;
    ith_free(r->context, path);
    r->report->load_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    start = ith_clock_seconds();
    r->rgb = ith_alloc(r->context, r->options.height * r->options.width, 3, "a frame");
    status = r->rgb ? ith_vae_decode(r->context, vae, r->latents, r->size.frames, r->size.height, r->size.width,
                                     take_frame, r)
                    : ITH_ERR_MEMORY;
    r->report->decode_seconds += ith_clock_seconds() - start - r->report->decode_sink_seconds;
    ith_vae_free(r->context, &vae);
    if (status == ITH_ERR_INTERRUPTED && r->report->frames_done < r->options.frames)
        return ith_fail_in(r->context, status, "decoding frame %lld of %lld", (long long)r->report->frames_done + 1,
                           (long long)r->options.frames);
    return status;
}

static void show_progress(void *user, int stage, int64_t done, int64_t total)
{
    const run *r = user;
    r->options.on_progress(r->options.user, (ith_stage)stage, done, total);
}

static bool should_stop(void *user)
{
    const run *r = user;
    return r->options.should_stop(r->options.user);
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

static ith_latent_size latent_size(const ith_model_info *info, const ith_generate_options *options)
{
    return (ith_latent_size){info->latent_channels, (options->frames - 1) / info->frame_stride + 1,
                             options->height / info->pixel_stride, options->width / info->pixel_stride};
}

static ith_status make_latents(run *r)
{
    r->size = latent_size(&r->pipeline->model->info, &r->options);
    if (r->options.from_latents)
        return ith_latents_read(r->context, r->options.from_latents, ith_saved_latents, &r->size, &r->latents);
    ith_status status = say_where(r, ith_pipeline_check(r->pipeline), "checking the weight files");
    if (!status && r->options.dump_file)
        status = ith_dump_create(r->context, &r->size, r->options.steps, r->options.frames, r->options.height,
                                 r->options.width, &r->dump);
    if (!status)
        status = encode_prompts(r);
    if (!status)
        status = make_noise(r);
    if (!status)
        status = denoise(r);
    if (!status)
        status = save_latents(r);
    return status;
}

static ith_status generate(run *r)
{
    ith_status status = make_latents(r);
    if (!status)
        status = decode(r);
    if (!status && r->dump)
        status = ith_dump_write(r->context, r->options.dump_file, r->dump);
    return status;
}

/* Everything that can be found out before anything is loaded. */
static ith_status prepare(run *r, const ith_generate_options *given)
{
    ith_machine_memory memory = ith_machine_memory_read("");
    ith_status status = ith_request_read(r->pipeline, given, &r->options, &r->attention);
    if (!status)
        status = ith_predict(r->pipeline, &r->options, &r->report->predicted_bytes);
    if (!status)
        status = ith_pipeline_check_memory(r->pipeline, &r->options, r->report->predicted_bytes, &memory);
    if (!status)
        r->types = ith_number_types_choose(r->context, r->options.precision);
    return status;
}

static ith_status generate_observed(run *r)
{
    ith_observer observer = {.show = r->options.on_progress ? show_progress : NULL,
                             .should_stop = r->options.should_stop ? should_stop : NULL,
                             .user = r};
    ith_observer_open(&observer);
    ith_context_set_observer(r->context, &observer);
    int threads = omp_get_max_threads();
    omp_set_num_threads(r->options.threads);
    ith_status status = generate(r);
    omp_set_num_threads(threads);
    ith_context_set_observer(r->context, NULL);
    ith_observer_close(&observer);
    return status;
}

ith_status ith_pipeline_generate(ith_pipeline *pipeline, const ith_generate_options *options,
                                 ith_generate_report *report)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_generate_report done = ITH_GENERATE_REPORT_INIT;
    run r = {.pipeline = pipeline, .context = pipeline->context, .report = &done};
    ith_status status =
        report ? ITH_SIZED_FILL(r.context, ith_generate_report, ITH_GENERATE_REPORT_INIT, report, &done) : ITH_OK;
    if (status)
        return status;
    status = prepare(&r, options);
    if (!status)
        status = generate_observed(&r);
    ith_free(r.context, r.latents);
    ith_free(r.context, r.text[0]);
    ith_free(r.context, r.text[1]);
    ith_free(r.context, r.rgb);
    ith_dump_free(r.context, &r.dump);
    done.peak_bytes = ith_context_peak_bytes(r.context);
    if (report)
        ITH_SIZED_FILL(r.context, ith_generate_report, ITH_GENERATE_REPORT_INIT, report, &done);
    ith_context_interrupt(r.context, false);
    return status;
}

void ith_pipeline_cancel(ith_pipeline *pipeline)
{
    if (pipeline)
        ith_context_interrupt(pipeline->context, true);
}
