/* SPDX-License-Identifier: Apache-2.0 */
/* ith_pipeline_generate: the main path of the engine from the prompt to the frames, as every rank runs it.
 *
 *   encode the prompts -> make noise    the leader of every pipeline
 *   denoise                             all ranks
 *   save the latents                    rank 0
 *   decode                              the leader of every pipeline; rank 0 gathers the frames
 *
 * Each stage opens its weights and closes them before the next stage begins. */
#include "rank.h"

#include "../base/clock.h"
#include "../base/context.h"
#include "../base/hash.h"
#include "../base/sized.h"
#include "../base/trace.h"
#include "decode.h"
#include "sample/denoise.h"
#include "sample/noise.h"

#include <stdio.h>
#include <string.h>

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* Encodes the prompt (which = 0) or the negative prompt (which = 1). The progress bar gives each of `prompts` prompts
 * an equal part. */
static ith_status encode_prompt(ith_rank *rank, const ith_text_encoder *encoder, int which, int prompts)
{
    ith_pipeline *pipeline = rank->pipeline;
    ith_shared *shared = &pipeline->shared;
    const char *text = which ? rank->options.negative : rank->options.prompt;
    const ith_span span = {ITH_STAGE_TEXT, which * ITH_PROGRESS_UNIT, (which + 1) * ITH_PROGRESS_UNIT,
                           prompts * ITH_PROGRESS_UNIT};
    int32_t ids[ITH_TEXT_LEN];
    int64_t *count = &shared->text_count[which];
    ith_status status = ith_tokenizer_encode(rank->context, pipeline->tokenizer, text, ids, count);
    if (status)
        return status;
    shared->text[which] =
        ith_alloc(rank->context, *count * pipeline->model->text.dim, sizeof(float), "an encoded prompt");
    if (!shared->text[which])
        return ITH_ERR_MEMORY;
    return ith_text_encode(rank->context, encoder, ids, *count, shared->text[which], &span);
}

/* Opens the text encoder, encodes the prompts, and frees the text encoder. */
static ith_status encode_prompts(ith_rank *rank, void *user)
{
    (void)user;
    const ith_model *model = rank->pipeline->model;
    ith_text_encoder *encoder = NULL;
    if (rank->team.lends && rank->rank)
        return ITH_OK;
    double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    char *path = ith_model_path(rank->context, model, ith_part_name(ITH_PART_TEXT));
    ith_status status = path ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = ith_text_encoder_open(rank->context, path, rank->types.products, rank->options.keep_packed, &encoder);
    ith_free(rank->context, path);
    ith_trace_end(rank->context, traced, "open text encoder", "load");
    rank->report.load_seconds += ith_clock_seconds() - start;
    if (status)
        return status;
    ith_observer_set_activity(rank->context, "encoding the prompts");
    int prompts = ith_denoise_is_guided(model, &rank->options) ? 2 : 1;
    start = ith_clock_seconds();
    for (int i = 0; i < prompts && !status; i++) {
        traced = ith_trace_begin(rank->context);
        status = ith_model_check_unchanged(rank->context, model, ITH_PART_TEXT);
        if (!status)
            status = encode_prompt(rank, encoder, i, prompts);
        ith_trace_end(rank->context, traced, "text", "compute");
    }
    rank->report.text_seconds += ith_clock_seconds() - start;
    ith_text_encoder_free(rank->context, &encoder);
    return status;
}

/* Sends the prompts that rank 0 has encoded to the leaders of all pipelines. */
static ith_status share_prompts(ith_rank *rank, void *user)
{
    (void)user;
    ith_shared *shared = &rank->pipeline->shared;
    const int prompts = ith_denoise_is_guided(rank->pipeline->model, &rank->options) ? 2 : 1;
    ith_status status = ITH_OK;
    for (int i = 0; i < prompts && !status; i++) {
        status = ith_comm_broadcast(rank->leaders, &shared->text_count[i], sizeof shared->text_count[i], 0);
        const int64_t numbers = shared->text_count[i] * rank->pipeline->model->text.dim;
        if (!status && rank->rank && !(shared->text[i] = ith_alloc(rank->context, numbers, sizeof(float), "a prompt")))
            status = ITH_ERR_MEMORY;
        if (!status)
            status = ith_comm_broadcast(rank->leaders, shared->text[i], numbers * (int64_t)sizeof *shared->text[i], 0);
    }
    return status;
}

/* Reads the noise from noise_file, or makes it from the seed. Sets *user to a hash of the noise, which the leaders of
 * all pipelines compare. */
static ith_status make_noise(ith_rank *rank, void *user)
{
    static const char *const names[] = {"noise", NULL};
    const ith_generate_options *options = &rank->options;
    float **latents = &rank->pipeline->shared.latents;
    int64_t count = ith_latent_count(&rank->size);
    ith_status status = ITH_OK;
    if (options->noise_file) {
        status = ith_latents_read(rank->context, options->noise_file, names, &rank->size, latents);
    } else if (!(*latents = ith_alloc(rank->context, count, sizeof(float), "latents"))) {
        status = ITH_ERR_MEMORY;
    } else {
        status = ith_noise_make(rank->context, options->seed, 0, count, *latents);
    }
    if (status)
        return status;
    *(uint64_t *)user = ith_hash(1, *latents, count * (int64_t)sizeof(float));
    if (rank->dump)
        memcpy(rank->dump->noise, *latents, (size_t)count * sizeof(float));
    return ITH_OK;
}

/* Copies the final latents into the contents of the dump file, if one is to be written, and saves them as latents_file,
 * if that is given. */
static ith_status save_latents(ith_rank *rank)
{
    static const char *const keys[] = {"prompt", "negative", "seed", "steps", "shift"};
    const ith_generate_options *options = &rank->options;
    const float *latents = rank->pipeline->shared.latents;
    char seed[32], steps[32], shift[32];
    if (rank->dump)
        memcpy(rank->dump->final, latents, (size_t)ith_latent_count(&rank->size) * sizeof(float));
    if (!options->latents_file)
        return ITH_OK;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed);
    snprintf(steps, sizeof steps, "%lld", (long long)options->steps);
    snprintf(shift, sizeof shift, "%g", options->shift);
    const char *const values[] = {options->prompt, options->negative, seed, steps, shift};
    ith_status status = ith_latents_write(rank->context, options->latents_file, &rank->size, latents, keys, values, 5);
    rank->report.latents_saved = !status;
    return status;
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

static ith_status create_dump(ith_rank *rank, void *user)
{
    (void)user;
    const ith_generate_options *o = &rank->options;
    if (!o->dump_file)
        return ITH_OK;
    return ith_dump_create(rank->context, &rank->size, o->steps, o->frames, o->height, o->width, &rank->dump);
}

static ith_status make_latents(ith_rank *rank)
{
    uint64_t noise = 0;
    ith_status status = ith_rank_first(rank, "", create_dump, NULL);
    if (!status)
        status = ith_rank_lead(rank, "opening the text encoder", encode_prompts, NULL);
    if (!status && rank->team.lends)
        status = ith_rank_lead(rank, "sending the encoded prompts", share_prompts, NULL);
    if (!status)
        status = ith_rank_lead(rank, "making noise", make_noise, &noise);
    if (!status)
        status = ith_rank_compare(rank, "the noise", noise);
    return status ? status : ith_denoise(rank);
}

/* Saves the latents, or with from_latents reads them. Rank 0 alone calls this function. */
static ith_status finish_latents(ith_rank *rank, void *user)
{
    (void)user;
    const ith_generate_options *options = &rank->options;
    if (!options->from_latents)
        return save_latents(rank);
    return ith_latents_read(rank->context, options->from_latents, ith_saved_latents, &rank->size,
                            &rank->pipeline->shared.latents);
}

/* Rank 0 alone calls this function. */
static ith_status write_dump(ith_rank *rank, void *user)
{
    (void)user;
    if (!rank->dump)
        return ITH_OK;
    ith_observer_set_activity(rank->context, "writing the dump");
    return ith_dump_write(rank->context, rank->options.dump_file, rank->dump);
}

static ith_status make_video(ith_rank *rank)
{
    ith_status status = ith_rank_first(rank, "saving the latents", finish_latents, NULL);
    if (!status)
        status = ith_rank_lead(rank, "decoding", ith_decode, NULL);
    return status ? status : ith_rank_first(rank, "writing the dump", write_dump, NULL);
}

/* Reads and checks this rank's options, and chooses its number types and the size of its latents. */
static ith_status read_request(ith_rank *rank, const ith_generate_options *options)
{
    ith_context *context = rank->context;
    ith_status status = ith_need(context, rank->pipeline, "pipeline");
    if (!status && !ith_context_is_family(context, rank->pipeline->context))
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "the communicator's context is not of the pipeline's family: make it with ith_context_clone "
                          "from the context that the pipeline was opened with, or the pipeline with this one");
    if (!status)
        status = ith_request_read(rank->pipeline, context, options, !rank->rank, &rank->options, &rank->attention);
    if (!status)
        status = ith_request_check_ranks(context, &rank->options, rank->ranks);
    if (status)
        return status;
    rank->options.attention = &rank->attention;
    rank->types = ith_number_types_choose(context, rank->options.precision);
    rank->size = ith_latent_size_of(&rank->pipeline->model->info, &rank->options);
    return ITH_OK;
}

ith_status ith_pipeline_generate(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                                 ith_generate_report *report)
{
    if (!pipeline && !comm)
        return ith_need(NULL, pipeline, "pipeline");
    ith_rank rank = {.pipeline = pipeline,
                     .context = comm ? comm->context : pipeline->context,
                     .comm = comm,
                     .rank = ith_comm_rank(comm),
                     .ranks = ith_comm_size(comm),
                     .report = ITH_GENERATE_REPORT_INIT};
    ith_status status = ITH_OK;
    if (report && (status = ITH_SIZED_CHECK(rank.context, ith_generate_report, ITH_GENERATE_REPORT_INIT, report)))
        report = NULL;
    if (!status)
        status = read_request(&rank, options);
    status = ith_rank_begin(&rank, status);
    if (!status && !rank.options.from_latents)
        status = make_latents(&rank);
    if (!status)
        status = make_video(&rank);
    status = ith_rank_end(&rank, status);
    rank.report.peak_bytes = ith_context_peak_bytes(rank.context);
    if (report)
        ITH_SIZED_FILL(rank.context, ith_generate_report, ITH_GENERATE_REPORT_INIT, report, &rank.report);
    return status;
}
