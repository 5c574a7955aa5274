/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the inputs of the transformer that come from a video's images (condition.h). */
#include "condition.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "../image/image_fit.h"
#include "condition_size.h"

#include <string.h>

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

/* The video that is encoded. All frames but the given ones are zero. */
typedef struct given_video {
    int64_t frames, height, width;
    uint8_t *first, *last; /* the given frames, [height, width, 3]; last may be NULL */
} given_video;

static int64_t image_count(const ith_generate_options *options)
{
    return options->last_image ? 2 : 1;
}

/* The bytes of the given frames. */
static int64_t given_bytes(const ith_generate_options *options)
{
    return image_count(options) * options->height * options->width * 3;
}

/* The number of frames that are encoded. */
static int64_t encoded_frames(const ith_model *model, const ith_generate_options *options)
{
    return ith_condition_is_masked(model) ? options->frames : 1;
}

/* Gives rows of a frame to the encoder (ith_vae_rows_fn). */
static ith_status give_rows(void *user, int64_t frame, int64_t row, int64_t count, float *rows)
{
    const given_video *c = user;
    const uint8_t *rgb = frame == 0 ? c->first : frame == c->frames - 1 ? c->last : NULL;
    const int64_t width = c->width * 3;
    for (int64_t i = 0; i < count * width; i++)
        rows[i] = rgb ? (float)rgb[row * width + i] / 127.5f - 1 : 0;
    return ITH_OK;
}

/* Sets the mask [m, frames, height, width]. */
static void make_mask(float *mask, int64_t channels, bool has_last, const ith_latent_size *latents)
{
    const int64_t area = latents->height * latents->width;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t f = 0; f < latents->frames; f++) {
            const bool is_last = has_last && f == latents->frames - 1 && c == channels - 1;
            for (int64_t i = 0; i < area; i++)
                *mask++ = f == 0 || is_last ? 1 : 0;
        }
}

/* Opens the encoder, and encodes the video to latents [z, frames, height, width]. */
static ith_status encode(ith_rank *rank, given_video *c, float *latents)
{
    const int64_t frames = (c->frames - 1) / rank->pipeline->model->vae.stride_time + 1;
    const ith_vae_extent extent = {frames, rank->size.height, rank->size.width, NULL};
    ith_vae *vae = NULL;
    ith_status status = ith_rank_open_vae(rank, ITH_VAE_ENCODER, &vae);
    if (!status)
        status = ith_vae_encode(rank->context, vae, &extent, give_rows, c, latents, NULL);
    ith_vae_free(rank->context, &vae);
    return status;
}

/* Scales the images, and encodes them. pixels: given_bytes. */
static ith_status fit_and_encode(ith_rank *rank, uint8_t *pixels, float *latents)
{
    const ith_generate_options *o = &rank->options;
    given_video c = {
        .frames = encoded_frames(rank->pipeline->model, o), .height = o->height, .width = o->width, .first = pixels};
    ith_status status = ith_image_fit(rank->context, o->image, (ith_fit)o->fit, o->height, o->width, c.first);
    if (!status && o->last_image) {
        c.last = pixels + given_bytes(o) / 2;
        status = ith_image_fit(rank->context, o->last_image, (ith_fit)o->fit, o->height, o->width, c.last);
    }
    return status ? status : encode(rank, &c, latents);
}

ith_status ith_condition_bytes(ith_context *context, const ith_model *model, const ith_generate_options *options,
                               ith_operand_types types, const ith_latent_size *latents, int64_t *bytes)
{
    const ith_fit fit = (ith_fit)options->fit;
    const ith_vae_extent extent = {.height = latents->height, .width = latents->width};
    int64_t encoder = 0, scaled = ith_image_fit_bytes(options->image, fit, options->height, options->width);
    if (options->last_image)
        scaled = ith_max64(scaled, ith_image_fit_bytes(options->last_image, fit, options->height, options->width));
    ith_status status = ith_vae_encode_bytes(context, &model->vae, types, &extent, &encoder);
    *bytes = given_bytes(options) + ITH_ALLOC_HEADER + ith_max64(scaled, encoder);
    return status;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static ith_status allocate(ith_rank *rank, int64_t *count)
{
    const ith_latent_size size = ith_condition_size(rank->pipeline->model, &rank->options, &rank->size);
    *count = ith_latent_count(&size);
    rank->pipeline->shared.condition = ith_alloc(rank->context, *count, sizeof(float), "the condition of the images");
    return rank->pipeline->shared.condition ? ITH_OK : ITH_ERR_MEMORY;
}

ith_status ith_condition_make(ith_rank *rank, void *user)
{
    (void)user;
    const ith_model *model = rank->pipeline->model;
    const double start = ith_clock_seconds(), traced = ith_trace_begin(rank->context);
    int64_t count;
    ith_status status = allocate(rank, &count);
    if (status)
        return status;
    float *latents = rank->pipeline->shared.condition;
    if (ith_condition_is_masked(model)) {
        make_mask(latents, model->vae.stride_time, rank->options.last_image, &rank->size);
        latents += model->vae.stride_time * rank->size.frames * rank->size.height * rank->size.width;
    }
    uint8_t *pixels = ith_alloc(rank->context, given_bytes(&rank->options), 1, "the scaled images");
    status = pixels ? fit_and_encode(rank, pixels, latents) : ITH_ERR_MEMORY;
    ith_free(rank->context, pixels);
    ith_trace_end(rank->context, traced, "image", "compute");
    if (rank->dump)
        rank->dump->condition = rank->pipeline->shared.condition,
        rank->dump->condition_size = ith_condition_size(model, &rank->options, &rank->size);
    rank->report.image_seconds += ith_clock_seconds() - start;
    return status;
}

ith_status ith_condition_share(ith_rank *rank, void *user)
{
    (void)user;
    float **condition = &rank->pipeline->shared.condition;
    const ith_latent_size size = ith_condition_size(rank->pipeline->model, &rank->options, &rank->size);
    int64_t count = ith_latent_count(&size);
    ith_status status = ith_comm_agree(rank->leaders, *condition ? ITH_OK : allocate(rank, &count));
    return status ? status : ith_comm_broadcast(rank->leaders, *condition, count * (int64_t)sizeof(float), 0);
}

void ith_condition_impose(const ith_rank *rank)
{
    const ith_shared *shared = &rank->pipeline->shared;
    const int64_t area = rank->size.height * rank->size.width;
    if (!ith_condition_known(rank->pipeline->model, &rank->options, &rank->size))
        return;
    for (int64_t c = 0; c < rank->size.channels; c++)
        memcpy(shared->latents + c * rank->size.frames * area, shared->condition + c * area,
               (size_t)area * sizeof(float));
}
