/* SPDX-License-Identifier: Apache-2.0 */
/* ith_pipeline_generate: the main path of the engine from the prompt to the frames, as every rank runs it.
 *
 *   encode the prompts -> make noise    the leader of every pipeline
 *   encode the image, if there is one   rank 0
 *   denoise                             all ranks
 *   save the latents                    rank 0
 *   decode                              the leader of every pipeline; rank 0 gathers the frames
 *
 * Each stage opens its weights and closes them before the next stage begins. */
#include "rank_life.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/hash.h"
#include "../../base/plain_text.h"
#include "../../base/sized.h"
#include "../../base/team_limit.h"
#include "../../base/trace.h"
#include "../sample/noise.h"
#include "agreement.h"
#include "condition.h"
#include "condition_size.h"
#include "decode.h"
#include "denoise/denoise.h"
#include "image_rows.h"
#include "preview.h"
#include "prompts.h"

#include <stdio.h>
#include <string.h>

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* Reads the noise from noise_file, or makes it from the seed. Sets *user to a hash of the noise, which the leaders of
 * all pipelines compare. */
static ith_status make_noise(ith_rank *rank, void *user)
{
    const ith_generate_options *options = &rank->options;
    float **latents = &rank->pipeline->shared.latents;
    int64_t count = ith_latent_count(&rank->size);
    ith_status status = ITH_OK;
    if (options->noise_file) {
        status = ith_latents_read(rank->context, options->noise_file, ith_first_noise, &rank->size, latents);
    } else if (!(*latents = ith_alloc(rank->context, count, sizeof(float), "latents"))) {
        status = ITH_ERR_MEMORY;
    } else {
        status = ith_noise_make(rank->context, options->seed, 0, count, *latents);
    }
    if (status)
        return status;
    rank->noise_hash = *(uint64_t *)user = ith_hash(1, *latents, count * (int64_t)sizeof(float));
    if (rank->dump)
        memcpy(rank->dump->noise, *latents, (size_t)count * sizeof(float));
    return ITH_OK;
}

/* For a run that is resumed: allocates the latents, which ith_denoise reads. If the options name a file of noise too,
 * checks that the saved run began with it. */
static ith_status resume_noise(ith_rank *rank, void *user)
{
    ith_status status = ITH_OK;
    float **latents = &rank->pipeline->shared.latents;
    const uint64_t saved_hash = rank->saved->noise_hash;
    if (rank->options.noise_file && !rank->rank)
        status = make_noise(rank, user);
    else if (!(*latents = ith_alloc(rank->context, ith_latent_count(&rank->size), sizeof(float), "latents")))
        status = ITH_ERR_MEMORY;
    if (!status && rank->options.noise_file && !rank->rank && rank->noise_hash != saved_hash)
        status = ith_fail(rank->context, ITH_ERR_ARGUMENT,
                          "noise_file %s is not the noise with which the saved run %s began", rank->options.noise_file,
                          rank->saved->path);
    rank->noise_hash = saved_hash;
    return status;
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
    ith_number_print(options->shift, 6, shift, sizeof shift);
    const char *const values[] = {options->prompt, options->negative, seed, steps, shift};
    ith_status status = ith_latents_write(rank->context, options->latents_file, &rank->size, latents, keys, values, 5);
    rank->report.latents_saved = !status;
    return status;
}

/* ---- The run --------------------------------------------------------------------------------------------------- */

/* Rank 0 alone calls this function. */
static ith_status create_dump(ith_rank *rank, void *user)
{
    (void)user;
    const ith_generate_options *o = &rank->options;
    if (!o->dump_file)
        return ITH_OK;
    return ith_dump_create(rank->context, &rank->size, o->steps, o->frames, o->height, o->width, &rank->dump);
}

/* Encodes the images for the condition and, if the model has an image encoder, for cross-attention. If no step is
 * left, only latents of an image that are a part of the result are made. */
static ith_status encode_images(ith_rank *rank, bool denoises)
{
    if (!denoises && !ith_condition_known(rank->pipeline->model, &rank->options, &rank->size))
        return ITH_OK;
    const bool has_rows = denoises && ith_condition_image_rows(rank->pipeline->model, &rank->options),
               sends = rank->team.processes > 1;
    ith_status status = ith_rank_first(rank, "encoding the image", ith_condition_make, NULL);
    if (!status && sends)
        status = ith_rank_lead(rank, "sending the encoded image", ith_condition_share, NULL);
    if (!status && has_rows)
        status = ith_rank_first(rank, "encoding the image for the transformer", ith_image_rows_make, NULL);
    if (!status && has_rows && sends)
        status = ith_rank_lead(rank, "sending the encoded image", ith_image_rows_share, NULL);
    return status;
}

static ith_status make_latents(ith_rank *rank)
{
    uint64_t noise = 0;
    const bool denoises = !ith_saved_run_is_denoised(rank->saved, &rank->options);
    ith_status status = ith_rank_first(rank, "", create_dump, NULL);
    if (!status && denoises && rank->preview_every)
        status = ith_rank_first(rank, "fitting the map of the previews", ith_preview_fit, NULL);
    if (!status && denoises)
        status = ith_rank_lead(rank, "opening the text encoder", ith_prompts_make, NULL);
    if (!status && denoises && rank->team.lends)
        status = ith_rank_lead(rank, "sending the encoded prompts", ith_prompts_share, NULL);
    if (!status)
        status = ith_rank_lead(rank, "making noise", rank->saved ? resume_noise : make_noise, &noise);
    if (!status && !rank->saved)
        status = ith_rank_compare(rank, "the noise", noise, true);
    if (!status && rank->options.image)
        status = encode_images(rank, denoises);
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
        status =
            ith_request_read(rank->pipeline, context, options, !rank->rank, &rank->options, &rank->parts, &rank->saved);
    if (!status)
        status = ith_request_check_ranks(context, &rank->options, rank->ranks);
    if (!status)
        status = ith_team_check(context, rank->options.threads);
    if (status)
        return status;
    rank->types = ith_number_types_choose(context, rank->options.precision);
    rank->size = ith_latent_size_of(&rank->pipeline->model->info, &rank->options);
    return ITH_OK;
}

/* The state of this rank before a run. */
static ith_rank new_rank(ith_pipeline *pipeline, ith_comm *comm)
{
    ith_context *context = comm ? comm->context : pipeline->context;
    return (ith_rank){.pipeline = pipeline,
                      .context = context,
                      .comm = comm,
                      .device = ith_context_device_use(context),
                      .rank = ith_comm_rank(comm),
                      .ranks = ith_comm_size(comm),
                      .report = ITH_GENERATE_REPORT_INIT};
}

static ith_status encode(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                         const char *const *texts, int64_t count)
{
    ith_rank rank = new_rank(pipeline, comm);
    ith_prompt_list list = {texts, count};
    ith_status status = read_request(&rank, options);
    if (!status && count < 0)
        status = ith_fail(rank.context, ITH_ERR_ARGUMENT, "count is %lld, and must be 0 or more", (long long)count);
    for (int64_t i = 0; i < count && !status; i++)
        status = ith_need(rank.context, texts ? texts[i] : NULL, "a text");
    status = ith_rank_begin(&rank, status);
    if (!status)
        status = ith_rank_compare(&rank, "the list of texts", ith_prompt_list_hash(&list), false);
    if (!status)
        status = ith_rank_lead(&rank, "opening the text encoder", ith_prompts_keep, &list);
    return ith_rank_end(&rank, status);
}

static ith_status generate(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                           ith_generate_report *report)
{
    ith_rank rank = new_rank(pipeline, comm);
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

/* A call holds its communicator. If another thread destroys it meanwhile, the rank leaves the group, and the next
 * operation of the call fails. */
ith_status ith_pipeline_encode(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                               const char *const *texts, int64_t count)
{
    if (!pipeline && !comm)
        return ith_need(NULL, pipeline, "pipeline");
    ith_comm_hold(comm);
    ith_status status = encode(pipeline, comm, options, texts, count);
    ith_comm_release(comm);
    return status;
}

ith_status ith_pipeline_generate(ith_pipeline *pipeline, ith_comm *comm, const ith_generate_options *options,
                                 ith_generate_report *report)
{
    if (!pipeline && !comm)
        return ith_need(NULL, pipeline, "pipeline");
    ith_comm_hold(comm);
    ith_status status = generate(pipeline, comm, options, report);
    ith_comm_release(comm);
    return status;
}
