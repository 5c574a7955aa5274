/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a video's images with CLIP, and sends the rows to all processes (image_rows.h). */
#include "image_rows.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "condition_size.h"

/* The images that the encoder reads, in the order of their rows. Returns their number. */
static int list_images(const ith_generate_options *options, const ith_image *images[2])
{
    int count = 0;
    if (options->image)
        images[count++] = options->image;
    if (options->last_image)
        images[count++] = options->last_image;
    return count;
}

static ith_status allocate(ith_rank *rank, int64_t *numbers)
{
    const ith_model *model = rank->pipeline->model;
    float **rows = &rank->pipeline->shared.image_rows;
    *numbers = ith_condition_image_rows(model, &rank->options) * model->vision.dim;
    *rows = ith_alloc(rank->context, *numbers, sizeof(float), "the rows of the images");
    return *rows ? ITH_OK : ITH_ERR_MEMORY;
}

static ith_status open_encoder(ith_rank *rank, ith_vision_encoder **encoder)
{
    const ith_model *model = rank->pipeline->model;
    const double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    ith_store *store = NULL;
    ith_status status = ith_model_open_unchanged(rank->context, model, ITH_PART_VISION, &store);
    if (!status)
        status = ith_vision_encoder_open(rank->context, &model->vision, store, rank->types.products,
                                         rank->options.keep_packed == ITH_KEEP_ALL, encoder);
    ith_trace_end(rank->context, traced, "open image encoder", "load");
    rank->report.load_seconds += ith_clock_seconds() - start;
    return status;
}

static ith_status encode(ith_rank *rank, const ith_vision_encoder *encoder)
{
    const ith_vision_config *config = &rank->pipeline->model->vision;
    const int64_t numbers = ith_vision_tokens(config) * config->dim;
    const double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    const ith_image *images[2];
    const int count = list_images(&rank->options, images);
    ith_status status = ITH_OK;
    for (int i = 0; i < count && !status; i++) {
        const ith_span span = {ITH_STAGE_IMAGE, i * ITH_PROGRESS_UNIT, (i + 1) * ITH_PROGRESS_UNIT,
                               count * ITH_PROGRESS_UNIT};
        status = ith_vision_encode(rank->context, encoder, images[i], rank->pipeline->shared.image_rows + i * numbers,
                                   &span);
    }
    ith_trace_end(rank->context, traced, "image rows", "compute");
    rank->report.image_seconds += ith_clock_seconds() - start;
    return status;
}

ith_status ith_image_rows_make(ith_rank *rank, void *user)
{
    (void)user;
    ith_vision_encoder *encoder = NULL;
    int64_t numbers;
    ith_status status = allocate(rank, &numbers);
    if (!status)
        status = open_encoder(rank, &encoder);
    if (!status)
        status = encode(rank, encoder);
    ith_vision_encoder_free(rank->context, &encoder);
    return status;
}

ith_status ith_image_rows_share(ith_rank *rank, void *user)
{
    (void)user;
    float **rows = &rank->pipeline->shared.image_rows;
    const ith_model *model = rank->pipeline->model;
    int64_t numbers = ith_condition_image_rows(model, &rank->options) * model->vision.dim;
    ith_status status = ith_comm_agree(rank->leaders, *rows ? ITH_OK : allocate(rank, &numbers));
    return status ? status : ith_comm_broadcast(rank->leaders, *rows, numbers * (int64_t)sizeof(float), 0);
}

ith_status ith_image_rows_bytes(ith_context *context, const ith_model *model, const ith_generate_options *options,
                                ith_operand_types types, int64_t *bytes)
{
    const ith_image *images[2];
    const int count = ith_model_has_part(model, ITH_PART_VISION) ? list_images(options, images) : 0;
    ith_status status = ITH_OK;
    int64_t list = 0;
    *bytes = 0;
    for (int i = 0; i < count && !status; i++) {
        int64_t one = 0;
        status = ith_vision_encoder_bytes(context, &model->vision, types, options->keep_packed == ITH_KEEP_ALL,
                                          images[i], &one);
        *bytes = ith_max64(*bytes, one);
    }
    if (!status && count)
        status = ith_model_list_bytes(context, model, ITH_PART_VISION, &list);
    *bytes += list;
    return status;
}
