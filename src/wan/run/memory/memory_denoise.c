/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the peak memory of denoising (predicted_run.h). */
#include "predicted_run.h"

#include "../../../base/context.h"
#include "../../../base/size.h"
#include "../../dit/dit_workspace.h"
#include "../denoise/denoise_buffers.h"
#include "../denoise/denoise_choice.h"
#include "group_bytes.h"

#include <omp.h>

/* The options of attention with which ith_plan_predict predicts the plan of rank `rank`: with the processes and hosts
 * of the sequence_ranks consecutive ranks that divide the sequence, of which it is one. */
static ith_attn_options placed_attention(const ith_predicted_run *run, int rank)
{
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    const int ranks = run->sequence_ranks;
    if (run->options->attention)
        attention = *run->options->attention;
    if (!run->team->comm)
        return attention;
    ith_blocks blocks = ith_comm_blocks(run->team->comm, rank / ranks * ranks, ranks);
    attention.process_ranks = blocks.process_ranks;
    attention.host_ranks = blocks.host_ranks;
    return attention;
}

/* Rank `rank` of the run, among the ranks that divide a sequence. attention: placed_attention of this rank. */
static ith_dit_rank dit_rank_of(const ith_predicted_run *run, int rank, const ith_attn_options *attention)
{
    return (ith_dit_rank){.ranks = run->sequence_ranks,
                          .rank = rank % run->sequence_ranks,
                          .shared_memory = run->team->shares_memory,
                          .options = attention};
}

/* The sum of the bytes of the DiT workspaces of all ranks in this process. A workspace depends on the number of
 * threads, so each rank's number of threads is set before its workspace is laid out. */
static ith_status workspace_bytes(const ith_predicted_run *run, const ith_dit *dit, int64_t *bytes)
{
    const ith_team *team = run->team;
    ith_status status = ITH_OK;
    int64_t begin, threads, one = 0;
    *bytes = 0;
    for (int i = 0; i < team->count && !status; i++) {
        ith_share(run->options->threads, team->count, i, &begin, &threads);
        omp_set_num_threads(threads > 1 ? (int)threads : 1);
        const int member = ith_team_member(team, i);
        const ith_attn_options attention = placed_attention(run, member);
        const ith_dit_rank rank = dit_rank_of(run, member, &attention);
        status = ith_dit_workspace_bytes(run->context, dit, &run->shape, &rank, &one);
        *bytes += one;
    }
    omp_set_num_threads(run->options->threads);
    return status;
}

/* The memory of the communicators of the axes of a mesh, which self-attention makes. */
static ith_status axes_bytes(const ith_predicted_run *run, const ith_dit *dit, int64_t *bytes)
{
    const ith_team *team = run->team;
    const int ranks = run->sequence_ranks, rank = ith_team_member(team, 0), index = rank % ranks;
    const ith_attn_options attention = placed_attention(run, rank);
    ith_attn_problem self, cross;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_dit_problems(dit, &run->shape, ranks, index, &self, &cross);
    ith_status status = ith_plan_predict(run->context, &self, &attention, ranks, index, team->shares_memory, &info);
    *bytes = 0;
    if (!status && info.ulysses > 1 && info.ring > 1)
        *bytes = ith_group_bytes_parts(team, info.ulysses) + ith_group_bytes_parts(team, info.ring) +
                 ith_group_bytes_split(team, ranks);
    return status;
}

/* Sets *bytes to the memory that a process takes to share out an expert, if the weights are shared out; otherwise to 0.
 * The first process of a host holds two layers for all of them. */
static ith_status shards_bytes(const ith_predicted_run *run, int expert, int64_t *bytes)
{
    const ith_team *team = run->team;
    const ith_dit_config *config = &run->model->dit[expert];
    const ith_shard_place place = {team->hosts, team->host_processes, team->first_on_host};
    *bytes = 0;
    if (!ith_shards_weights(run->options, team))
        return ITH_OK;
    if (!run->model->folder)
        return ith_dit_shards_estimate(run->context, config, run->types, &place, bytes);
    ith_store *store = NULL;
    ith_status status = ith_model_open_part(run->context, run->model, expert ? ITH_PART_DIT_2 : ITH_PART_DIT, &store);
    return status ? status : ith_dit_shards_bytes(run->context, config, store, run->types, &place, bytes);
}

ith_status ith_predict_expert_on_device(const ith_predicted_run *run, const ith_dit *dit, int64_t *streamed,
                                        int64_t *bytes)
{
    const ith_team *team = run->team;
    const int64_t texts = run->counts[1] ? 2 : 1;
    ith_status status = ITH_OK;
    int64_t ranks = 0;
    for (int i = 0; i < team->count && !status; i++) {
        const int member = ith_team_member(team, i);
        const ith_attn_options attention = placed_attention(run, member);
        const ith_dit_rank rank = dit_rank_of(run, member, &attention);
        int64_t one = 0;
        status = ith_dit_workspace_device_bytes(run->context, dit, &run->shape, &rank, &one);
        ranks += one;
    }
    *streamed = ith_dit_streamed_layers(dit, texts, team->count, run->options->device_memory - ranks);
    *bytes = ith_dit_expert_device_bytes(dit, texts, *streamed, team->count) + ranks;
    return status;
}

/* The memory of the keys and values of the prompts and of the images, and of the buffers in which they are made. */
static void key_bytes(const ith_predicted_run *run, const ith_dit *dit, int64_t *keys, int64_t *making)
{
    const ith_dit_shape *shape = &run->shape;
    const int64_t branches = run->counts[1] ? 2 : 1;
    *keys = *making = 0;
    for (int64_t first = 0; first < branches; first += shape->batch) {
        int64_t held = 0, most = 0;
        ith_dit_text_bytes(dit, shape->batch, shape->batch == 2 ? shape->longest_text : run->counts[first], &held,
                           &most);
        *keys += held;
        *making = ith_max64(*making, most);
    }
    int64_t images, most;
    ith_dit_image_bytes(dit, shape->image_rows, &images, &most);
    *keys += images;
    *making = ith_max64(*making, most);
}

/* The peak memory of one expert: its list of tensors, its layers and vectors (ith_dit_bytes), layers that are streamed
 * to a device, the keys and values, and the larger of two sums. One is the buffers in which the keys are made. The
 * other is the workspaces of the ranks, the communicators of their mesh, and the slots of shared weights.
 */
static ith_status expert_bytes(const ith_predicted_run *run, int expert, int64_t *bytes)
{
    const ith_model *model = run->model;
    const ith_dit_choices choices = {
        .types = run->types,
        .lora = model->loras[expert],
        .keep = ith_denoise_keep(model, run->options, expert, &run->size, run->team->ranks),
    };
    ith_dit *dit = NULL;
    ith_status status = ith_dit_outline(run->context, &model->dit[expert], &choices, &dit);
    if (status)
        return status;
    int64_t keys, making, ranks = 0, shards = 0, axes = 0, streamed = 0, on_device = 0, list = 0;
    key_bytes(run, dit, &keys, &making);
    status = workspace_bytes(run, dit, &ranks);
    if (!status)
        status = axes_bytes(run, dit, &axes);
    if (!status)
        status = shards_bytes(run, expert, &shards);
    if (!status)
        status = ith_predict_expert_on_device(run, dit, &streamed, &on_device);
    if (!status)
        status = ith_model_list_bytes(run->context, model, expert ? ITH_PART_DIT_2 : ITH_PART_DIT, &list);
    *bytes = list + ith_dit_bytes(dit) + ith_dit_streamed_bytes(dit, streamed) + keys +
             ith_max64(run->team->lent ? 0 : making, ranks + axes + shards);
    ith_dit_free(run->context, &dit);
    return status;
}

ith_status ith_predict_denoising(const ith_predicted_run *run, int64_t *bytes)
{
    const ith_team *team = run->team;
    int64_t expert = 0, most = 0;
    for (int i = 0; i < run->model->info.experts && !run->denoised; i++) {
        ith_status status = expert_bytes(run, i, &expert);
        if (status)
            return status;
        most = ith_max64(most, expert);
    }
    *bytes = most;
    for (int i = 0; i < team->count; i++)
        *bytes += ith_denoise_bytes(run->model, run->options, &run->size, team->ranks, ith_team_member(team, i));
    if (run->sequence_ranks < team->ranks)
        *bytes += ith_group_bytes_parts(team, run->sequence_ranks);
    return ITH_OK;
}
