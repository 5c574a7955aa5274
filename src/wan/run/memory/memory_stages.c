/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the peak memory of a run: the memory that lasts for the whole run, and the largest of its stages. Each stage
 * frees its memory at its end.
 *
 *   whole run  the latents, the encoded prompts, the conditions and rows from images, the contents of the dump file,
 *              the communicators and records of the ranks, the tokenizer, the files of a lent model, and the lists of
 *              the tensors in the weight files; a stage that opens a component makes its list once more
 *   text       the text encoder's vectors and workspace
 *   rows       in the process of rank 0: the image encoder, if the model has one
 *   image      in the process of rank 0: the scaled images or the test picture of previews, and the autoencoder's
 *              filters and encoder
 *   denoise    one expert's vectors, the prompts' keys and values, and every rank's workspace, sub-groups and share of
 *              the latents (memory_denoise.c)
 *   decode     the autoencoder's packed filters, caches and layers, and a frame
 *
 * Matrices of weights lie in mapped files, whose pages the system may drop and read again, so they do not count. With
 * keep_packed they are converted into memory, and count. With shard_weights two layers lie in memory, and count in the
 * first process of each host. */
#include "predicted_run.h"

#include "../../../base/context.h"
#include "../../../base/lent_files.h"
#include "../../../base/size.h"
#include "../condition.h"
#include "../condition_size.h"
#include "../decode.h"
#include "../denoise/denoise_choice.h"
#include "../image_rows.h"
#include "../preview.h"
#include "../prompts.h"
#include "group_bytes.h"

#include <omp.h>

ith_predicted_run ith_predicted_run_of(const ith_model *model, ith_context *context,
                                       const ith_generate_options *options, bool denoised, const int64_t counts[2],
                                       const ith_team *team)
{
    const ith_latent_size size = ith_latent_size_of(&model->info, options);
    return (ith_predicted_run){.model = model,
                               .context = context,
                               .options = options,
                               .denoised = denoised,
                               .team = team,
                               .counts = {counts[0], counts[1]},
                               .types = ith_number_types_choose(context, options->precision),
                               .size = size,
                               .shape =
                                   ith_denoise_shape(model, options, &size, counts, ith_denoise_batch(model, options)),
                               .sequence_ranks = ith_denoise_sequence_ranks(model, options, team->ranks)};
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* The memory of the lists of tensors that a pipeline keeps after it has checked its files. A run from latents does not
 * check them, and keeps only lists of earlier runs. */
static ith_status list_bytes(const ith_predicted_run *run, int64_t *bytes)
{
    ith_status status = ITH_OK;
    *bytes = 0;
    for (ith_part part = 0; part < ITH_PARTS && !status; part++) {
        int64_t one = 0;
        if (!run->options->from_latents || run->model->files[part])
            status = ith_model_list_bytes(run->context, run->model, part, &one);
        *bytes += one;
    }
    return status;
}

/* The memory that lasts for the whole run. lists: the bytes of the lists of tensors. */
static int64_t kept_bytes(const ith_predicted_run *run, int64_t lists)
{
    const ith_generate_options *options = run->options;
    const ith_team *team = run->team;
    const int64_t latents = ith_latent_count(&run->size) * (int64_t)sizeof(float);
    const ith_latent_size condition = ith_condition_size(run->model, options, &run->size);
    const bool conditions = !run->denoised || ith_condition_known(run->model, options, &run->size);
    int64_t bytes = lists + latents + (team->lent ? ith_lent_bytes(run->context) : 0) + ith_group_bytes(team);
    if (options->from_latents)
        return bytes;
    bytes += ith_tokenizer_bytes();
    if (!run->denoised)
        bytes += (run->counts[0] + run->counts[1]) * run->model->text.dim * (int64_t)sizeof(float);
    if (options->dump_file && ith_team_has_first(team))
        bytes += latents * (options->steps + 2) + options->height * options->width * 3 * options->frames;
    if (!conditions)
        return bytes;
    const int64_t rows = run->denoised ? 0 : ith_condition_image_rows(run->model, options) * run->model->vision.dim;
    return bytes + (ith_latent_count(&condition) + rows) * (int64_t)sizeof(float);
}

/* The peak memory of encoding the prompts. */
static ith_status text_bytes(const ith_predicted_run *run, int64_t *bytes)
{
    const ith_model *model = run->model;
    int64_t list = 0;
    ith_status status =
        ith_text_encoder_bytes(run->context, &model->text, run->types.products,
                               run->options->keep_packed == ITH_KEEP_ALL, run->shape.longest_text, bytes);
    if (!status)
        status = ith_model_list_bytes(run->context, model, ITH_PART_TEXT, &list);
    *bytes += list;
    return status;
}

/* The peak memory of the stages before denoising that open the autoencoder: encoding images, and fitting previews. */
static ith_status encode_bytes(const ith_predicted_run *run, int64_t *bytes)
{
    const ith_model *model = run->model;
    const ith_generate_options *options = run->options;
    int64_t image = 0, preview = 0;
    ith_status status = ITH_OK;
    if (options->image && (!run->denoised || ith_condition_known(model, options, &run->size)))
        status = ith_condition_bytes(run->context, model, options, run->types.products, &run->size, &image);
    if (!status && !run->denoised && options->on_preview && options->preview_every && model->vae.levels)
        status = ith_preview_bytes(run->context, model, run->team->lends, run->types.products, &preview);
    *bytes = ith_max64(image, preview);
    return status;
}

/* The peak memory of decoding, without the list of tensors. A video problem may have no decoder. */
static ith_status decode_bytes(const ith_predicted_run *run, int64_t *bytes)
{
    *bytes = 0;
    if (!run->model->vae.levels)
        return ITH_OK;
    return ith_decode_bytes(run->context, &run->model->vae, run->types.products, run->options, &run->size, run->team,
                            bytes);
}

/* ---- All -------------------------------------------------------------------------------------------------------- */

/* Predicts the peak memory of the run. encodes: the pipeline does not keep the prompts, so the run encodes them. If the
 * model is lent to this process, rank 0 encodes them. */
static ith_status predict(const ith_predicted_run *run, bool encodes, int64_t *bytes)
{
    const bool begins = !run->options->from_latents, denoises = begins && !run->denoised;
    struct ith_device_use *device = ith_context_device_use(run->context);
    int64_t text = 0, rows = 0, encode = 0, denoise = 0, decode = 0, vae = 0, lists = 0;
    ith_status status = decode_bytes(run, &decode);
    ith_context_set_device_use(run->context, NULL); /* only the transformer and the decoder compute on a device */
    if (!status && begins && ith_team_has_first(run->team))
        status = encode_bytes(run, &encode);
    if (!status && denoises && ith_team_has_first(run->team))
        status = ith_image_rows_bytes(run->context, run->model, run->options, run->types.products, &rows);
    if (!status && denoises && encodes && !run->team->lent)
        status = text_bytes(run, &text);
    ith_context_set_device_use(run->context, device);
    if (!status && begins)
        status = ith_predict_denoising(run, &denoise);
    if (!status)
        status = ith_model_list_bytes(run->context, run->model, ITH_PART_VAE, &vae);
    if (!status)
        status = list_bytes(run, &lists);
    *bytes =
        kept_bytes(run, lists) + ith_max64(ith_max64(ith_max64(text, rows), denoise), vae + ith_max64(encode, decode));
    return status;
}

/* Each thread has some buffers of its own, so the prediction is made with the run's number of threads. */
ith_status ith_predict_model(const ith_predicted_run *run, bool encodes, int64_t *bytes)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(run->options->threads);
    ith_status status = predict(run, encodes, bytes);
    omp_set_num_threads(threads);
    return status;
}

ith_status ith_predict(ith_pipeline *pipeline, ith_context *context, const ith_generate_options *options, bool denoised,
                       const ith_team *team, int64_t *bytes)
{
    int64_t counts[2] = {0, 0};
    ith_status status = options->from_latents ? ITH_OK : ith_count_ids(pipeline, context, options, counts);
    const bool encodes = options->from_latents || !ith_prompts_are_kept(pipeline, context, options);
    if (status)
        return status;
    const ith_predicted_run run = ith_predicted_run_of(pipeline->model, context, options, denoised, counts, team);
    status = ith_predict_model(&run, encodes, bytes);
    if (!status)
        *bytes += ith_prompts_kept_bytes(pipeline);
    return status;
}

ith_status ith_predict_settled(ith_pipeline *pipeline, ith_context *context, ith_generate_options *options,
                               bool denoised, const ith_team *team, const ith_machine_memory *memory, int64_t *bytes)
{
    ith_status status = ith_predict(pipeline, context, options, denoised, team, bytes);
    const int64_t room = ith_min64(memory->free.bytes, memory->shared.bytes / team->host_processes);
    if (status || options->keep_packed || *bytes <= room / 4 * 3)
        return status;
    options->keep_packed = ITH_KEEP_NONE;
    return ith_predict(pipeline, context, options, denoised, team, bytes);
}
