/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the keys and values of a video's images for every layer, from the rows x of the image encoder (diffusers'
 * WanImageEmbedding; Wan-Video/Wan2.1, MLPProj):
 *
 *     y = LN(w_2 gelu(w_1 LN(x + p) + b_1) + b_2)      p: a learnt vector for each row, in first-last-frame models
 *     in every layer: k = RMSNorm(w_k y), v = w_v y */
#include "../../base/context.h"
#include "../../base/size.h"
#include "dit_keys.h"

#include <string.h>

#define EPS 1e-5f /* of the two LNs */

/* The local state of ith_dit_image_create. */
typedef struct maker {
    ith_dit_key_maker keys;
    const float *rows; /* [rows, image_dim], the image encoder's */
} maker;

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Lays out an ith_dit_image and its array in one allocation (`arena`). Returns NULL if the arena only counts bytes. */
static ith_dit_image *lay_out(const ith_dit *dit, int64_t rows, ith_arena *arena)
{
    ith_dit_image *place = ith_arena_take(arena, 1, sizeof *place), image = {.rows = rows};
    image.keys_values = ith_arena_take(arena, 1, ith_dit_key_bytes(dit, rows));
    if (place)
        *place = image;
    return place;
}

void ith_dit_image_bytes(const ith_dit *dit, int64_t rows, int64_t *held, int64_t *making)
{
    ith_arena image = {0}, work = {0};
    ith_dit_key_maker m = {.dit = dit, .rows = rows};
    *held = *making = 0;
    if (!rows)
        return;
    lay_out(dit, rows, &image);
    ith_dit_key_maker_lay_out(&m, &work);
    *held = image.used_bytes + ITH_ALLOC_HEADER;
    *making = work.used_bytes + ITH_ALLOC_HEADER;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

/* The rows LN(x + p). */
static const float *normed_row(const void *user, int64_t row, float *space)
{
    const maker *m = user;
    const ith_dit *dit = m->keys.dit;
    const int64_t width = dit->config.image_dim;
    memcpy(space, m->rows + row * width, (size_t)width * sizeof *space);
    if (dit->image_positions)
        m->keys.ops->add_gated(space, dit->image_positions + row * width, NULL, width);
    m->keys.ops->layer_norm(space, space, dit->image_norm_1[0], dit->image_norm_1[1], width, EPS);
    return space;
}

/* y = LN(w_2 gelu(w_1 LN(x + p) + b_1) + b_2) */
static ith_status embed(const maker *m)
{
    const ith_dit_key_maker *keys = &m->keys;
    const ith_dit *dit = keys->dit;
    const int64_t dim = dit->config.dim;
    const ith_feed_forward network = {.up = dit->image_1, .down = dit->image_2, .act = keys->ops->gelu};
    ith_linear_rows embedded = {keys->embedded, dim};
    const ith_linear_output to_embedded = ith_linear_to_rows(&embedded);
    ith_status status = ith_feed_forward_apply(keys->context, &network, &keys->linears, keys->rows,
                                               &(ith_linear_input){normed_row, m}, &to_embedded);
    for (int64_t row = 0; row < keys->rows && !status; row++) {
        float *y = keys->embedded + row * dim;
        keys->ops->layer_norm(y, y, dit->image_norm_2[0], dit->image_norm_2[1], dim, EPS);
    }
    return status;
}

static ith_dit_key_weights weights_of(const ith_dit_layer *layer)
{
    return (ith_dit_key_weights){layer->cross_image_kv, layer->cross_image_norm_k};
}

static ith_status check_rows(ith_context *context, const ith_dit *dit, int64_t rows)
{
    const ith_dit_config *c = &dit->config;
    if (!c->image_dim)
        return ith_fail(context, ITH_ERR_ARGUMENT, "the transformer takes no rows of an image encoder");
    if (c->image_rows && rows != c->image_rows)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld rows of images, and the transformer takes %lld",
                        (long long)rows, (long long)c->image_rows);
    if (rows < 1 || rows > ITH_DIT_MOST_IMAGE_ROWS)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld rows of images; there must be from 1 to %d", (long long)rows,
                        ITH_DIT_MOST_IMAGE_ROWS);
    return ITH_OK;
}

static ith_status make(ith_context *context, const ith_dit *dit, const float *rows, ith_dit_image *image)
{
    maker m = {.keys = ith_dit_key_maker_of(context, dit, image->rows), .rows = rows};
    ith_arena work = {0};
    ith_dit_key_maker_lay_out(&m.keys, &work);
    ith_status status = ith_arena_allocate(context, &work, "making the images' keys");
    if (status)
        return status;
    ith_dit_key_maker_lay_out(&m.keys, &work);
    status = embed(&m);
    if (!status)
        status = ith_dit_keys_make(&m.keys, weights_of, image->keys_values);
    ith_free(context, work.base);
    return status;
}

ith_status ith_dit_image_create(ith_context *context, const ith_dit *dit, const float *rows, int64_t count,
                                ith_dit_image **out)
{
    ith_arena held = {0};
    *out = NULL;
    ith_status status = check_rows(context, dit, count);
    if (status)
        return status;
    lay_out(dit, count, &held);
    status = ith_arena_allocate(context, &held, "the images' keys and values");
    if (status)
        return status;
    *out = lay_out(dit, count, &held);
    status = rows ? make(context, dit, rows, *out) : ITH_OK;
    if (status)
        ith_dit_image_free(context, out);
    return status;
}

void *ith_dit_image_data(const ith_dit *dit, ith_dit_image *image, int64_t *bytes)
{
    *bytes = image ? ith_dit_key_bytes(dit, image->rows) : 0;
    return image ? image->keys_values : NULL;
}

void ith_dit_image_free(ith_context *context, ith_dit_image **image)
{
    ith_free(context, *image);
    *image = NULL;
}
