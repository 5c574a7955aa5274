/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends a run on one rank (rank_life.h). */
#include "rank_life.h"

#include "../../base/context.h"
#include "../../kernels/device_use.h"
#include "../dit/dit_shards.h"
#include "agreement.h"
#include "denoise/denoise_buffers.h"
#include "output_files.h"

#include <omp.h>

/* ---- Joining and leaving --------------------------------------------------------------------------------------- */

/* Adds this rank to the current run of its pipeline. Fails if the pipeline is busy with another run. */
static ith_status join(ith_rank *rank, uint64_t run)
{
    ith_shared *shared = &rank->pipeline->shared;
    pthread_mutex_lock(&rank->pipeline->lock);
    rank->joined = !shared->ranks || shared->run == run;
    if (rank->joined) {
        shared->run = run;
        shared->ranks++;
    }
    pthread_mutex_unlock(&rank->pipeline->lock);
    return rank->joined ? ITH_OK
                        : ith_fail(rank->context, ITH_ERR_ARGUMENT,
                                   "the pipeline is in another call of ith_pipeline_generate: runs of one pipeline "
                                   "follow one another");
}

/* Removes this rank from the current run of its pipeline. The last rank to leave frees the data that the ranks shared,
 * and withdraws the cancellation. A call that was refused has joined no run, and leaves the cancellation to the next
 * run, unless it was the cancellation that ended the call. */
static void leave(ith_rank *rank, ith_status status)
{
    ith_pipeline *pipeline = rank->pipeline;
    ith_shared *shared = &pipeline->shared;
    pthread_mutex_lock(&pipeline->lock);
    const bool withdraws = rank->joined || status == ITH_ERR_INTERRUPTED;
    shared->ranks -= rank->joined;
    rank->joined = false;
    if (!shared->ranks) {
        ith_shared_free_expert(rank->context, shared);
        ith_free(rank->context, shared->text[0]);
        ith_free(rank->context, shared->text[1]);
        ith_free(rank->context, shared->latents);
        ith_free(rank->context, shared->condition);
        ith_free(rank->context, shared->image_rows);
        *shared = (ith_shared){0};
        if (withdraws)
            ith_pipeline_end_cancellation(pipeline);
    }
    pthread_mutex_unlock(&pipeline->lock);
}

/* ---- Beginning and ending -------------------------------------------------------------------------------------- */

static void show_progress(void *user, int stage, int64_t done, int64_t total)
{
    const ith_rank *rank = user;
    rank->options.on_progress(rank->options.user, (ith_stage)stage, done, total);
}

/* The observer's callback should_stop. It is called about 20 times a second while the rank computes or waits. */
static bool should_stop(void *user)
{
    const ith_rank *rank = user;
    ith_comm_alive(rank->comm);
    if (rank->comm && ith_comm_failed(rank->comm))
        return true;
    return rank->options.should_stop && rank->options.should_stop(rank->options.user);
}

/* The observer's callback tick, which the rank's thread calls every few milliseconds while it computes or waits. */
static void move_weights(void *user)
{
    const ith_rank *rank = user;
    if (rank->pipeline->shared.shards)
        ith_dit_shards_progress(rank->pipeline->shared.shards);
}

/* Opens the rank's observer. Only rank 0 shows progress; every rank asks whether to stop. */
static void observe(ith_rank *rank)
{
    bool shows = !rank->rank && rank->options.on_progress;
    rank->observer = (ith_observer){.show = shows ? show_progress : NULL,
                                    .should_stop = should_stop,
                                    .tick = rank->position ? NULL : move_weights,
                                    .user = rank};
    ith_observer_open(&rank->observer);
    rank->observer_before = ith_context_observer(rank->context);
    ith_context_set_observer(rank->context, &rank->observer);
}

/* If the run is resumed, checks that the saved run belongs to the model. If it is saved, checks the room on the disk.
 */
static ith_status check_saved_run(ith_rank *rank)
{
    const ith_model *model = rank->pipeline->model;
    const ith_generate_options *options = &rank->options;
    ith_status status = ITH_OK;
    if (!rank->saved && !options->checkpoint_file)
        return ITH_OK;
    status = ith_model_hash(rank->context, model, &rank->model_hash);
    if (!status && rank->saved && rank->model_hash != rank->saved->model_hash)
        status = ith_fail(
            rank->context, ITH_ERR_ARGUMENT,
            "%s: the saved run began with other files of the model, or with other LoRA files or strengths, to which "
            "its latents belong",
            rank->saved->path);
    if (!status && options->checkpoint_file)
        status = ith_saved_run_check_room(rank->context, options->checkpoint_file,
                                          ith_denoise_saved_bytes(model, options, &rank->size));
    return status;
}

/* Refuses shards of weights for a transformer on a device, because they are not supported. */
static ith_status check_device(const ith_rank *rank)
{
    if (!rank->device || rank->options.from_latents || !ith_shards_weights(&rank->options, &rank->team))
        return ITH_OK;
    return ith_fail(rank->context, ITH_ERR_UNSUPPORTED,
                    "shard_weights, and processes without the model's files, are for transformers that compute on the "
                    "processor: on %s every process copies all weights of an expert to the device, from files",
                    rank->device->name);
}

/* The leader predicts the memory of its process. user: an ith_memory_balance. */
static ith_status predict_memory(ith_rank *rank, void *user)
{
    ith_memory_balance *balance = user;
    ith_generate_options *options = &rank->options;
    const bool denoised = ith_saved_run_is_denoised(rank->saved, options);
    balance->machine = ith_machine_memory_read("");
    ith_status status = check_device(rank);
    if (!status)
        status = ith_settle_device_memory(rank->context, options);
    if (!status)
        status = ith_predict_settled(rank->pipeline, rank->context, options, denoised, &rank->team, &balance->machine,
                                     &balance->bytes);
    if (!status)
        status = ith_predict_device(rank->pipeline, rank->context, options, denoised, &rank->team, &rank->on_device);
    rank->report.predicted_bytes = balance->bytes;
    rank->report.predicted_device_bytes = rank->on_device.bytes;
    rank->report.streamed_layers = ith_max64(rank->on_device.streamed[0], rank->on_device.streamed[1]);
    return status;
}

/* The leader's checks before the run begins: compares the memory of the processes with the machine's, and checks the
 * weight files. user: an ith_memory_balance. */
static ith_status prepare(ith_rank *rank, void *user)
{
    const ith_generate_options *options = &rank->options;
    const bool denoised = ith_saved_run_is_denoised(rank->saved, options);
    ith_status status = ith_check_memory(rank->pipeline, rank->context, options, denoised, &rank->team, user);
    if (!status && !options->from_latents)
        status = ith_pipeline_check_in(rank->pipeline, rank->context);
    if (!status && !rank->rank && !options->from_latents)
        status = ith_output_files_check(rank->context, options, rank->pipeline->model);
    if (!status && !rank->rank)
        status = check_saved_run(rank);
    if (!status)
        rank->report.mapped_bytes = ith_model_file_bytes(rank->pipeline->model);
    return status;
}

/* Checks that all processes have opened the same model, by its hash. Ranks that share a pipeline need no check. */
static ith_status compare_models(ith_rank *rank)
{
    uint64_t hash = 0, first = 0, added = 0;
    if (rank->team.count == rank->ranks || rank->options.from_latents)
        return ITH_OK;
    ith_status status = ITH_OK;
    if (!rank->position && !rank->team.lent)
        status = ith_model_hash(rank->context, rank->pipeline->model, &hash);
    if (!rank->position && rank->team.lends && !status)
        status = ith_model_hash_added(rank->context, rank->pipeline->model, &added);
    status = ith_rank_agree(rank, status);
    if (!status && rank->team.lends) {
        status = ith_rank_compare(rank, "LoRA files or single weight files", added, true);
        if (status)
            return status;
        first = hash;
        status = ith_comm_broadcast(rank->comm, &first, sizeof first, 0);
        hash = rank->team.lent ? first : hash; /* a lent model has the files of rank 0 */
    }
    return status ? status : ith_rank_compare(rank, "the model", hash, true);
}

/* Makes the sub-groups of the leaders that share out the weights. */
static ith_status find_loaders(ith_rank *rank)
{
    const ith_team *team = &rank->team;
    ith_status status = ith_comm_split(rank->leaders, team->host, rank->rank, &rank->neighbours);
    if (!status)
        status = ith_comm_split(rank->leaders, !team->first_on_host, rank->rank, &rank->loaders);
    if (!team->first_on_host)
        ith_comm_destroy(&rank->loaders);
    return status;
}

/* Makes the sub-group of the leaders of all pipelines, if there are several, and their sub-groups. */
static ith_status find_leaders(ith_rank *rank)
{
    if (rank->team.processes < 2)
        return ITH_OK;
    ith_status status = ith_comm_split(rank->comm, rank->position > 0, rank->rank, &rank->leaders);
    if (rank->position)
        ith_comm_destroy(&rank->leaders);
    else if (!status && ith_shards_weights(&rank->options, &rank->team))
        status = find_loaders(rank);
    return status;
}

ith_status ith_rank_begin(ith_rank *rank, ith_status mine)
{
    uint64_t run = 0;
    ith_status status = ith_agree_on_run(rank, mine, &run);
    if (status)
        return status;
    rank->threads_before = omp_get_max_threads();
    status = ith_rank_agree(rank, join(rank, run));
    if (status)
        return status;
    int64_t begin, threads;
    ith_share(rank->options.threads, rank->team.count, rank->position, &begin, &threads);
    observe(rank);
    omp_set_num_threads(threads > 1 ? (int)threads : 1);
    ith_memory_balance balance = {.bytes = 0};
    status = ith_rank_lead(rank, "predicting the memory", predict_memory, &balance);
    if (!status)
        status = ith_sum_of_host(rank, balance.bytes, &balance.host_bytes);
    if (!status)
        status = ith_rank_lead(rank, "checking the weight files", prepare, &balance);
    if (!status)
        status = compare_models(rank);
    if (!status)
        status = ith_rank_agree(rank, find_leaders(rank));
    rank->begun = !status;
    ith_context_set_device_use(rank->context, NULL);
    return status;
}

ith_status ith_rank_end(ith_rank *rank, ith_status status)
{
    if (status && rank->begun)
        status = ith_rank_fail(rank, status);
    ith_context_set_device_use(rank->context, rank->device);
    if (ith_context_observer(rank->context) == &rank->observer) {
        omp_set_num_threads(rank->threads_before);
        ith_context_set_observer(rank->context, rank->observer_before);
        ith_observer_close(&rank->observer);
    }
    ith_dump_free(rank->context, &rank->dump);
    ith_saved_run_close(rank->context, &rank->saved);
    ith_comm_destroy(&rank->loaders);
    ith_comm_destroy(&rank->neighbours);
    ith_comm_destroy(&rank->leaders);
    if (rank->pipeline)
        leave(rank, status);
    ith_free(rank->context, rank->records);
    return status;
}
