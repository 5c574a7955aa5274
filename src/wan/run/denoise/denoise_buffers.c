/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of one rank in the denoising loop: its share of the tokens, and on rank 0 the whole. */
#include "denoise_buffers.h"

#include "../../../base/context.h"
#include "../condition_size.h"
#include "../preview.h"
#include "denoise_choice.h"

int64_t ith_denoise_saved_tensors(const ith_model *model, const ith_generate_options *options)
{
    return 1 + ith_sampler_array_count(&model->scheduler, options->solver);
}

/* Lays out the buffers of one rank in an arena. If the arena has no memory yet, it only counts the bytes. */
static void lay_out(ith_denoise_buffers *b, ith_arena *arena, const ith_model *model,
                    const ith_generate_options *options, const ith_latent_size *size, int ranks, int rank)
{
    const int sequence_ranks = ith_denoise_sequence_ranks(model, options, ranks);
    const int64_t tokens = ith_dit_token_count(size->frames, size->height, size->width), element = sizeof(float);
    b->width = size->channels * ITH_DIT_PATCH;
    ith_share(tokens, sequence_ranks, rank % sequence_ranks, &b->begin, &b->count);
    const int64_t numbers = b->count * b->width;
    b->x = ith_arena_take(arena, numbers, element);
    b->velocity = ith_arena_take(arena, 2 * numbers, element);
    b->known_count = ith_max64(0, ith_min64(ith_condition_known(model, options, size) - b->begin, b->count));
    b->condition_width = model->info.image_use == ITH_IMAGE_NEEDED
                             ? ith_condition_size(model, options, size).channels * ITH_DIT_PATCH
                             : 0;
    b->known = ith_arena_take(arena, b->known_count * b->width, element);
    b->condition = ith_arena_take(arena, b->count * b->condition_width, element);
    if (rank)
        return;
    b->whole = ith_arena_take(arena, tokens * b->width, element);
    b->receives = ith_arena_take(arena, sequence_ranks, sizeof *b->receives);
    for (int64_t i = 0; options->checkpoint_file && i < 2 * ith_denoise_saved_tensors(model, options); i++)
        b->kept[i % 2][i / 2] = ith_arena_take(arena, tokens * b->width, element);
    if (options->on_preview && options->preview_every)
        b->preview = ith_arena_take(arena, ith_preview_frames(size) * size->height * size->width, 3);
}

int64_t ith_denoise_saved_bytes(const ith_model *model, const ith_generate_options *options,
                                const ith_latent_size *size)
{
    return ith_saved_run_bytes(size, ith_denoise_saved_tensors(model, options));
}

int64_t ith_denoise_bytes(const ith_model *model, const ith_generate_options *options, const ith_latent_size *size,
                          int ranks, int rank)
{
    ith_denoise_buffers b;
    ith_arena arena = {0};
    lay_out(&b, &arena, model, options, size, ranks, rank);
    return arena.used_bytes + ITH_ALLOC_HEADER +
           ith_sampler_bytes(&model->scheduler, options->solver, options->steps, b.count * b.width);
}

ith_status ith_denoise_make_buffers(ith_denoiser *w)
{
    const ith_rank *rank = w->rank;
    const ith_generate_options *options = &rank->options;
    const ith_model *model = rank->pipeline->model;
    const ith_sampling sampling = {
        .solver = options->solver, .sigmas = options->sigmas, .steps = options->steps, .shift = options->shift};
    lay_out(&w->b, &w->arena, model, options, &rank->size, rank->ranks, rank->rank);
    ith_status status = ith_arena_allocate(w->context, &w->arena, "a rank's share of the latents");
    if (status)
        return status;
    lay_out(&w->b, &w->arena, model, options, &rank->size, rank->ranks, rank->rank);
    return ith_sampler_create(w->context, &model->scheduler, &sampling, w->b.count * w->b.width, &w->sampler);
}

int64_t ith_denoise_share_numbers(const ith_denoiser *w)
{
    return w->b.count * w->b.width;
}

ith_region ith_denoise_region(float *numbers, int64_t count)
{
    return (ith_region){.data = numbers, .count = {1, 1}, .bytes = count * (int64_t)sizeof(float)};
}

ith_status ith_denoise_gather(ith_denoiser *w, float *share, float *latents)
{
    if (w->rank->rank >= ith_comm_size(w->sequence)) /* the first half of the ranks sends the same tokens */
        return ITH_OK;
    int64_t tokens = ith_dit_token_count(w->shape.frames, w->shape.height, w->shape.width), begin, count;
    int receive_count = w->rank->rank == 0 ? ith_comm_size(w->sequence) : 0;
    for (int rank = 0; rank < receive_count; rank++) {
        ith_share(tokens, receive_count, rank, &begin, &count);
        w->b.receives[rank] =
            (ith_transfer){rank, ith_denoise_region(w->b.whole + begin * w->b.width, count * w->b.width)};
    }
    ith_transfer send = {0, ith_denoise_region(share, ith_denoise_share_numbers(w))};
    ith_status status = ith_comm_exchange(w->sequence, &send, 1, w->b.receives, receive_count);
    if (!status && receive_count && latents)
        ith_dit_unpatchify(w->b.whole, w->rank->size.channels, &w->shape, 0, tokens, latents);
    return status;
}
