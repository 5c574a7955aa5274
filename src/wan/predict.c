/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the peak memory of a run: the memory that lasts for the whole run, and the largest of its stages. Each stage
 * frees its memory at its end.
 *
 *   whole run  the latents, the encoded prompts, the conditions from images, the contents of the dump file, the
 *              communicators and records of the ranks, and the lists of the tensors in the weight files; a stage that
 *              opens a component makes its list once more
 *   text       the text encoder's vectors and workspace
 *   image      in the process of rank 0: the scaled images, and the autoencoder's filters and encoder
 *   denoise    one expert's vectors, the prompts' keys and values, and every rank's workspace, sub-groups and share of
 *              the latents
 *   decode     the autoencoder's packed filters, caches and layers, and a frame
 *
 * Matrices of weights lie in mapped files, whose pages the system may drop and read again, so they do not count. With
 * keep_packed they are converted into memory, and count. With shard_weights two layers lie in memory, and count in the
 * first process of each host. */
#include "pipeline.h"

#include "../base/context.h"
#include "../base/lent_files.h"
#include "../base/size.h"
#include "../base/team_limit.h"
#include "decode.h"
#include "dit/dit_workspace.h"
#include "group_bytes.h"
#include "image/condition.h"
#include "preview.h"
#include "prompts.h"
#include "sample/denoise.h"

#include <omp.h>

ith_status ith_count_ids(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                         int64_t counts[2])
{
    int32_t ids[ITH_TEXT_LEN];
    const char *const texts[2] = {options->prompt, options->negative};
    int prompts = ith_denoise_is_guided(pipeline->model, options) ? 2 : 1;
    ith_status status = ith_pipeline_need_tokenizer(pipeline, context);
    counts[0] = counts[1] = 0;
    for (int i = 0; i < prompts && !status; i++)
        status = ith_tokenizer_encode(context, pipeline->tokenizer, texts[i], ids, &counts[i]);
    return status;
}

/* The options of attention with which ith_plan_predict predicts the plan of rank `rank`: with the processes and hosts
 * of the ranks that divide the sequence with it. These are sequence_ranks consecutive ranks. */
static ith_attn_options placed_attention(const ith_generate_options *options, const ith_team *team, int sequence_ranks,
                                         int rank)
{
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    if (options->attention)
        attention = *options->attention;
    if (!team->comm)
        return attention;
    ith_blocks blocks = ith_comm_blocks(team->comm, rank / sequence_ranks * sequence_ranks, sequence_ranks);
    attention.process_ranks = blocks.process_ranks;
    attention.host_ranks = blocks.host_ranks;
    return attention;
}

/* The sum of the bytes of the DiT workspaces of all ranks in this process (`team`). A workspace depends on the number
 * of threads, so each rank's number of threads is set before its workspace is laid out. */
static ith_status workspace_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                                  const ith_generate_options *options, const ith_team *team, int sequence_ranks,
                                  int64_t *bytes)
{
    ith_status status = ITH_OK;
    int64_t begin, threads, one = 0;
    *bytes = 0;
    for (int i = 0; i < team->count && !status; i++) {
        int rank = team->members ? team->members[i] : i;
        ith_share(options->threads, team->count, i, &begin, &threads);
        omp_set_num_threads(threads > 1 ? (int)threads : 1);
        ith_attn_options attention = placed_attention(options, team, sequence_ranks, rank);
        status = ith_dit_workspace_bytes(context, dit, shape, &attention, sequence_ranks, rank % sequence_ranks,
                                         team->shares_memory, &one);
        *bytes += one;
    }
    omp_set_num_threads(options->threads);
    return status;
}

/* The memory of the communicators of the axes of a mesh, which self-attention makes. */
static ith_status axes_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                             const ith_generate_options *options, const ith_team *team, int sequence_ranks,
                             int64_t *bytes)
{
    const int rank = team->members ? team->members[0] : 0;
    const ith_attn_options attention = placed_attention(options, team, sequence_ranks, rank);
    ith_attn_problem self, cross;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_dit_problems(dit, shape, sequence_ranks, rank % sequence_ranks, &self, &cross);
    ith_status status =
        ith_plan_predict(context, &self, &attention, sequence_ranks, rank % sequence_ranks, team->shares_memory, &info);
    *bytes = 0;
    if (!status && info.ulysses > 1 && info.ring > 1)
        *bytes = ith_group_bytes_parts(team, info.ulysses) + ith_group_bytes_parts(team, info.ring) +
                 ith_group_bytes_split(team, sequence_ranks);
    return status;
}

bool ith_shards_weights(const ith_generate_options *options, const ith_team *team)
{
    return options->shard_weights && (team->hosts > 1 || team->lends);
}

/* Sets *bytes to the memory that a process takes to share out an expert, if the weights are shared out; otherwise to 0.
 * The first process of a host holds two layers for all of them. */
static ith_status shards_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                               const ith_team *team, int expert, const ith_number_types *types, int64_t *bytes)
{
    *bytes = 0;
    if (!ith_shards_weights(options, team))
        return ITH_OK;
    if (!model->folder)
        return ith_dit_shards_estimate(context, &model->dit[expert], *types, team->hosts, team->host_processes,
                                       team->first_on_host, bytes);
    ith_store *store = NULL;
    ith_status status = ith_model_open_part(context, model, expert ? ITH_PART_DIT_2 : ITH_PART_DIT, &store);
    return status ? status
                  : ith_dit_shards_bytes(context, &model->dit[expert], store, *types, team->hosts, team->host_processes,
                                         team->first_on_host, bytes);
}

/* Sets *bytes to the memory of the device that the process takes for one expert: for its weights, for the prompts' keys and
 * values, and for the workspaces of its ranks. Sets *streamed to the number of layers that are streamed, because the
 * device has no room for them. Both are 0 on the processor. */
static ith_status expert_device_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                                      const ith_generate_options *options, const ith_team *team, int sequence_ranks,
                                      const int64_t counts[2], int64_t *streamed, int64_t *bytes)
{
    const int64_t texts = counts[1] ? 2 : 1;
    ith_status status = ITH_OK;
    int64_t ranks = 0;
    for (int i = 0; i < team->count && !status; i++) {
        const int rank = team->members ? team->members[i] : i;
        const ith_attn_options attention = placed_attention(options, team, sequence_ranks, rank);
        int64_t one = 0;
        status = ith_dit_workspace_device_bytes(context, dit, shape, &attention, sequence_ranks, rank % sequence_ranks,
                                                team->shares_memory, &one);
        ranks += one;
    }
    *streamed = ith_dit_streamed_layers(dit, texts, team->count, options->device_memory - ranks);
    *bytes = ith_dit_expert_device_bytes(dit, texts, *streamed, team->count) + ranks;
    return status;
}

/* The peak memory of one expert: its layers and vectors (ith_dit_bytes), the prompts' keys and values, layers that are
 * streamed to a device, and the larger of two: the buffers in which the keys are made, and the workspaces of the ranks.
 */
static ith_status expert_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                               const ith_team *team, int expert, const ith_number_types *types,
                               const ith_latent_size *size, const ith_dit_shape *shape, const int64_t counts[2],
                               int64_t *bytes)
{
    ith_dit *dit = NULL;
    ith_status status = ith_dit_outline(context, &model->dit[expert], model->loras[expert], *types,
                                        ith_denoise_keep(model, options, expert, size, team->ranks), &dit);
    if (status)
        return status;
    int64_t branches = counts[1] ? 2 : 1, texts = 0, making = 0, held = 0, ranks = 0;
    for (int64_t first = 0; first < branches; first += shape->batch) {
        int64_t most = 0;
        ith_dit_text_bytes(dit, shape->batch, shape->batch == 2 ? shape->longest_text : counts[first], &held, &most);
        texts += held;
        making = ith_max64(making, most);
    }
    int64_t shards = 0, axes = 0, streamed = 0, on_device = 0;
    const int sequence_ranks = ith_denoise_sequence_ranks(model, options, team->ranks);
    status = workspace_bytes(context, dit, shape, options, team, sequence_ranks, &ranks);
    if (!status)
        status = axes_bytes(context, dit, shape, options, team, sequence_ranks, &axes);
    if (!status)
        status = shards_bytes(model, context, options, team, expert, types, &shards);
    if (!status)
        status = expert_device_bytes(context, dit, shape, options, team, sequence_ranks, counts, &streamed, &on_device);
    *bytes = ith_model_list_bytes(context, model, expert ? ITH_PART_DIT_2 : ITH_PART_DIT);
    *bytes += ith_dit_bytes(dit) + ith_dit_streamed_bytes(dit, streamed) + texts +
              ith_max64(team->lent ? 0 : making, ranks + axes + shards);
    ith_dit_free(context, &dit);
    return status;
}

/* The shape of the passes of a run. */
static ith_dit_shape shape_of(const ith_model *model, const ith_generate_options *options, const ith_latent_size *size,
                              const int64_t counts[2])
{
    return (ith_dit_shape){ith_denoise_batch(model, options),
                           size->frames,
                           size->height,
                           size->width,
                           ith_max64(counts[0], counts[1]),
                           ith_condition_known(model, options, size)};
}

/* The peak memory of denoising: the memory of the larger expert, and the buffers of every rank. */
static ith_status denoise_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                                const ith_team *team, const ith_number_types *types, const ith_latent_size *size,
                                const int64_t counts[2], int64_t *bytes)
{
    const ith_dit_shape shape = shape_of(model, options, size, counts);
    int64_t expert = 0, most = 0;
    for (int i = 0; i < model->info.experts; i++) {
        ith_status status = expert_bytes(model, context, options, team, i, types, size, &shape, counts, &expert);
        if (status)
            return status;
        most = ith_max64(most, expert);
    }
    *bytes = most;
    for (int i = 0; i < team->count; i++)
        *bytes += ith_denoise_bytes(model, options, size, team->ranks, team->members ? team->members[i] : i);
    const int sequence_ranks = ith_denoise_sequence_ranks(model, options, team->ranks);
    if (sequence_ranks < team->ranks)
        *bytes += ith_group_bytes_parts(team, sequence_ranks);
    return ITH_OK;
}

static ith_status decode_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                               const ith_team *team, ith_operand_types types, const ith_latent_size *size,
                               int64_t *bytes)
{
    *bytes = 0;
    if (!model->vae.levels) /* a video problem without a decoder */
        return ITH_OK;
    return ith_decode_bytes(context, &model->vae, types, options, size, team, bytes);
}

/* The memory of the lists of tensors that a pipeline keeps after it has checked its files. checks: the run checks all
 * files. A run from latents does not, and keeps only lists of earlier runs. */
static int64_t list_bytes(ith_context *context, const ith_model *model, bool checks)
{
    int64_t bytes = 0;
    for (ith_part part = 0; part < ITH_PARTS; part++)
        if (checks || model->files[part])
            bytes += ith_model_list_bytes(context, model, part);
    return bytes;
}

/* Whether this process has rank 0, which encodes images, fits previews and writes the dump. */
static bool has_first(const ith_team *team)
{
    return !team->members || team->members[0] == 0;
}

/* The memory that lasts for the whole run. */
static int64_t kept_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                          const int64_t counts[2], const ith_team *team, const ith_latent_size *size)
{
    const int64_t latents = ith_latent_count(size) * (int64_t)sizeof(float);
    const ith_latent_size condition = ith_condition_size(model, options, size);
    int64_t bytes = latents + (team->lent ? ith_lent_bytes(context) : 0) + ith_group_bytes(team);
    bytes += list_bytes(context, model, !options->from_latents);
    if (options->from_latents)
        return bytes;
    bytes += ith_tokenizer_bytes() + (counts[0] + counts[1]) * model->text.dim * (int64_t)sizeof(float);
    if (options->dump_file && has_first(team))
        bytes += latents * (options->steps + 2) + options->height * options->width * 3 * options->frames;
    return bytes + ith_latent_count(&condition) * (int64_t)sizeof(float);
}

/* The peak memory of the stages that open the autoencoder: fitting previews, encoding images, decoding. decode: the
 * memory of decoding. */
static ith_status vae_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                            const ith_team *team, ith_operand_types types, const ith_latent_size *size, int64_t decode,
                            int64_t *bytes)
{
    const bool prepares = !options->from_latents && has_first(team);
    int64_t image = 0, preview = 0;
    ith_status status = ITH_OK;
    if (!status && prepares && options->image)
        status = ith_condition_bytes(context, model, options, types, size, &image);
    if (!status && prepares && options->on_preview && options->preview_every && model->vae.levels)
        status = ith_preview_bytes(context, &model->vae, types, &preview);
    *bytes = ith_model_list_bytes(context, model, ITH_PART_VAE) + ith_max64(decode, ith_max64(image, preview));
    return status;
}

/* The peak memory of encoding the prompts. */
static ith_status text_bytes(const ith_model *model, ith_context *context, const ith_generate_options *options,
                             ith_operand_types types, const int64_t counts[2], int64_t *bytes)
{
    ith_status status = ith_text_encoder_bytes(context, &model->text, types, options->keep_packed == ITH_KEEP_ALL,
                                               ith_max64(counts[0], counts[1]), bytes);
    *bytes += ith_model_list_bytes(context, model, ITH_PART_TEXT);
    return status;
}

static ith_status predict(const ith_model *model, ith_context *context, const ith_generate_options *options,
                          const int64_t counts[2], bool encodes, const ith_team *team, int64_t *bytes)
{
    const ith_number_types types = ith_number_types_choose(context, options->precision);
    const ith_latent_size size = ith_latent_size_of(&model->info, options);
    struct ith_device_use *device = ith_context_device_use(context);
    int64_t decode = 0, with_vae = 0, text = 0, denoise = 0;
    ith_status status = decode_bytes(model, context, options, team, types.products, &size, &decode);
    ith_context_set_device_use(context, NULL); /* only the transformer and the decoder compute on a device */
    if (!status)
        status = vae_bytes(model, context, options, team, types.products, &size, decode, &with_vae);
    const int64_t kept = kept_bytes(model, context, options, counts, team, &size);
    if (!status && !options->from_latents && encodes && !team->lent) /* rank 0 encodes the prompts of a lent model */
        status = text_bytes(model, context, options, types.products, counts, &text);
    ith_context_set_device_use(context, device);
    if (!status && !options->from_latents)
        status = denoise_bytes(model, context, options, team, &types, &size, counts, &denoise);
    *bytes = kept + ith_max64(ith_max64(text, denoise), with_vae);
    return status;
}

/* ---- Memory of a device ---------------------------------------------------------------------------------------- */

ith_status ith_settle_device_memory(ith_context *context, ith_generate_options *options)
{
    ith_device_info info = ITH_DEVICE_INFO_INIT;
    if (!ith_context_device_use(context))
        return ITH_OK;
    ith_status status = ith_device_describe(context, &info);
    if (!status && (!options->device_memory || options->device_memory > info.free_bytes))
        options->device_memory = info.free_bytes;
    return status;
}

ith_status ith_predict_device(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                              const ith_team *team, ith_device_need *need)
{
    const ith_model *model = pipeline->model;
    const ith_number_types types = ith_number_types_choose(context, options->precision);
    const ith_latent_size size = ith_latent_size_of(&model->info, options);
    int64_t counts[2], bytes = 0;
    *need = (ith_device_need){.bytes = 0};
    if (!ith_context_device_use(context))
        return ITH_OK;
    ith_status status = ITH_OK;
    if (model->vae.levels && has_first(team)) /* rank 0's device decodes whole frames */
        status =
            ith_vae_decode_device_bytes(context, &model->vae, types.products, size.height, size.width, &need->bytes);
    if (status || options->from_latents)
        return status;
    status = ith_count_ids(pipeline, context, options, counts);
    for (int i = 0; i < model->info.experts && !status; i++) {
        const ith_dit_shape shape = shape_of(model, options, &size, counts);
        ith_dit *dit = NULL;
        status = ith_dit_outline(context, &model->dit[i], model->loras[i], types, ITH_LINEAR_KEEP_NONE, &dit);
        if (!status)
            status = expert_device_bytes(context, dit, &shape, options, team,
                                         ith_denoise_sequence_ranks(model, options, team->ranks), counts,
                                         &need->streamed[i], &bytes);
        ith_dit_free(context, &dit);
        need->bytes = ith_max64(need->bytes, bytes);
    }
    return status;
}

/* ---- All -------------------------------------------------------------------------------------------------------- */

/* Some buffers exist once per thread, so the prediction is made with the run's number of threads. */
ith_status ith_predict_model(const ith_model *model, ith_context *context, const ith_generate_options *options,
                             const int64_t counts[2], bool encodes, const ith_team *team, int64_t *bytes)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(options->threads);
    ith_status status = predict(model, context, options, counts, encodes, team, bytes);
    omp_set_num_threads(threads);
    return status;
}

ith_status ith_predict(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options,
                       const ith_team *team, int64_t *bytes)
{
    int64_t counts[2] = {0, 0};
    ith_status status = options->from_latents ? ITH_OK : ith_count_ids(pipeline, context, options, counts);
    const bool encodes = options->from_latents || !ith_prompts_are_kept(pipeline, context, options);
    if (!status)
        status = ith_predict_model(pipeline->model, context, options, counts, encodes, team, bytes);
    if (!status)
        *bytes += ith_prompts_kept_bytes(pipeline);
    return status;
}

ith_status ith_predict_settled(ith_pipeline *pipeline, ith_context *context, ith_generate_options *options,
                               const ith_team *team, const ith_machine_memory *memory, int64_t *bytes)
{
    ith_status status = ith_predict(pipeline, context, options, team, bytes);
    if (status || options->keep_packed || *bytes <= memory->free_bytes / 4 * 3 / team->host_processes)
        return status;
    options->keep_packed = ITH_KEEP_NONE;
    return ith_predict(pipeline, context, options, team, bytes);
}

/* The request of the three functions below: resolved options, and the ranks of this process. */
typedef struct request {
    ith_generate_options options;
    ith_request_parts parts;
    ith_saved_run *saved;
    ith_team team;
} request;

/* Checks the arguments of the three functions below and fills in the request. The caller closes out->saved. */
static ith_status read_request(ith_pipeline *pipeline, const ith_generate_options *given, int ranks, int ranks_here,
                               request *out)
{
    ith_context *context = pipeline->context;
    ith_status status = ITH_OK;
    *out = (request){.team = {.ranks = ranks,
                              .host_processes = 1,
                              .first_on_host = true,
                              .count = ranks_here,
                              .shares_memory = ranks == ranks_here}};
    if (ranks_here < 1 || ranks_here > ranks)
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "ranks is %d and ranks_here %d; there is at least one rank here, and no more than there are",
                          ranks, ranks_here);
    if (!status)
        out->team.processes = out->team.hosts = (int)ith_div_up(ranks, ranks_here);
    if (!status)
        status = ith_thread_limit_check(context, "ranks_here", ranks_here);
    if (!status)
        status = ith_request_read(pipeline, context, given, true, &out->options, &out->parts, &out->saved);
    if (!status)
        status = ith_request_check_ranks(context, &out->options, ranks);
    return status ? status : ith_settle_device_memory(context, &out->options);
}

/* The same, and predicts the memory of the host. */
static ith_status predict_request(ith_pipeline *pipeline, const ith_generate_options *given, int ranks, int ranks_here,
                                  const ith_machine_memory *memory, request *out, int64_t *bytes)
{
    ith_status status = read_request(pipeline, given, ranks, ranks_here, out);
    return status ? status : ith_predict_settled(pipeline, pipeline->context, &out->options, &out->team, memory, bytes);
}

ith_status ith_pipeline_predict(ith_pipeline *pipeline, const ith_generate_options *options, int ranks, int ranks_here,
                                int64_t *bytes)
{
    request asked = {0};
    const ith_machine_memory memory = ith_machine_memory_read("");
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, bytes, "bytes");
    if (!status)
        status = predict_request(pipeline, options, ranks, ranks_here, &memory, &asked, bytes);
    ith_saved_run_close(pipeline->context, &asked.saved);
    return status;
}

ith_status ith_pipeline_predict_device(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                       int ranks_here, int64_t *bytes)
{
    request asked = {0};
    ith_device_need need = {.bytes = 0};
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, bytes, "bytes");
    if (!status)
        status = read_request(pipeline, options, ranks, ranks_here, &asked);
    if (!status)
        status = ith_predict_device(pipeline, pipeline->context, &asked.options, &asked.team, &need);
    if (!status)
        *bytes = need.bytes;
    ith_saved_run_close(pipeline->context, &asked.saved);
    return status;
}

ith_status ith_pipeline_check_memory(ith_pipeline *pipeline, const ith_generate_options *options, int ranks,
                                     int ranks_here, int64_t *free_bytes)
{
    request asked = {0};
    int64_t bytes = 0;
    const ith_machine_memory memory = ith_machine_memory_read("");
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_need(pipeline->context, free_bytes, "free_bytes");
    if (!status)
        status = predict_request(pipeline, options, ranks, ranks_here, &memory, &asked, &bytes);
    if (!status) {
        *free_bytes = memory.free_bytes;
        status = ith_check_memory(pipeline, pipeline->context, &asked.options, &asked.team, bytes, &memory);
    }
    ith_saved_run_close(pipeline->context, &asked.saved);
    return status;
}
