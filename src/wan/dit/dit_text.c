/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a prompt's keys and values for every layer: y = text embedding (linear, GELU, linear), then in each layer k =
 * RMSNorm(w_k y), v = w_v y. The reference pads a prompt of n rows with 512 - n rows of zeros, whose keys are equal.
 * Here one key stands for all of them, with log(512 - n) added to its logit. Shorter prompts of a batch get further
 * keys, whose bias is -infinity. */
#include "../../base/context.h"
#include "../../base/size.h"
#include "../../kernels/rowops.h"
#include "device/dit_device.h"
#include "dit_keys.h"

#include <math.h>
#include <string.h>

/* The local state of ith_dit_text_create, which makes keys and values from encoded prompts. */
typedef struct maker {
    ith_dit_key_maker keys; /* of batch * text->keys rows */
    ith_dit_text *text;
    const float *const *prompts; /* the encoded rows of each prompt: [counts[b], text_dim] */
    const int64_t *counts;
} maker;

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Lays out an ith_dit_text and its arrays in one allocation (`arena`). Returns NULL if the arena only counts bytes. */
static ith_dit_text *lay_out_text(const ith_dit *dit, int64_t batch, int64_t keys, ith_arena *arena)
{
    ith_dit_text *place = ith_arena_take(arena, 1, sizeof *place), text = {.batch = batch, .keys = keys};
    text.keys_values = ith_arena_take(arena, batch, ith_dit_key_bytes(dit, keys));
    text.key_bias = ith_arena_take(arena, batch * keys, sizeof *text.key_bias);
    if (place)
        *place = text;
    return place;
}

void ith_dit_text_bytes(const ith_dit *dit, int64_t batch, int64_t longest, int64_t *held, int64_t *making)
{
    const int64_t keys = ith_dit_text_keys(longest);
    ith_arena text = {0}, work = {0};
    ith_dit_key_maker m = {.dit = dit, .rows = batch * keys};
    lay_out_text(dit, batch, keys, &text);
    ith_dit_key_maker_lay_out(&m, &work);
    *held = text.used_bytes + ITH_ALLOC_HEADER;
    *making = work.used_bytes + ITH_ALLOC_HEADER;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static void fill_biases(const maker *m)
{
    const int64_t keys = m->text->keys;
    for (int64_t b = 0; b < m->text->batch; b++) {
        float *bias = m->text->key_bias + b * keys;
        for (int64_t key = 0; key < keys; key++)
            bias[key] = key < m->counts[b] ? 0.0f : -INFINITY;
        if (m->counts[b] < ITH_TEXT_LEN)
            bias[m->counts[b]] = (float)log((double)(ITH_TEXT_LEN - m->counts[b]));
    }
}

/* Row `row` of the prompts, each of which has text->keys rows: its encoded rows, then zeros. */
static const float *prompt_row(const void *user, int64_t row, float *space)
{
    const maker *m = user;
    const int64_t text_dim = m->keys.dit->config.text_dim, b = row / m->text->keys, i = row % m->text->keys;
    if (i < m->counts[b])
        return m->prompts[b] + i * text_dim;
    memset(space, 0, (size_t)text_dim * sizeof *space);
    return space;
}

ith_status ith_dit_embed_text(ith_context *context, const ith_dit *dit, const ith_linear_workspace *workspace,
                              int64_t count, const ith_linear_input *rows, float *out)
{
    const ith_feed_forward network = {
        .up = dit->text_1, .down = dit->text_2, .act = ith_rowops_choose(ith_context_cpu(context))->gelu_tanh};
    ith_linear_rows out_rows = {out, dit->config.dim};
    const ith_linear_output to_out = ith_linear_to_rows(&out_rows);
    return ith_feed_forward_apply(context, &network, workspace, count, rows, &to_out);
}

static ith_dit_key_weights weights_of(const ith_dit_layer *layer)
{
    return (ith_dit_key_weights){layer->cross_kv, layer->cross_norm_k};
}

static ith_status make(const maker *m)
{
    const ith_dit_key_maker *keys = &m->keys;
    ith_status status = ith_dit_embed_text(keys->context, keys->dit, &keys->linears, keys->rows,
                                           &(ith_linear_input){prompt_row, m}, keys->embedded);
    return status ? status : ith_dit_keys_make(keys, weights_of, m->text->keys_values);
}

static ith_status check_counts(ith_context *context, int64_t batch, const int64_t *counts, int64_t *longest)
{
    *longest = 0;
    if (batch < 1)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld prompts: there must be at least 1", (long long)batch);
    for (int64_t b = 0; b < batch; b++) {
        if (counts[b] < 0 || counts[b] > ITH_TEXT_LEN)
            return ith_fail(context, ITH_ERR_ARGUMENT, "prompt %lld has %lld rows; at most %d are attended to",
                            (long long)b, (long long)counts[b], ITH_TEXT_LEN);
        *longest = ith_max64(*longest, counts[b]);
    }
    return ITH_OK;
}

ith_status ith_dit_text_create(ith_context *context, const ith_dit *dit, int64_t batch, const float *const *rows,
                               const int64_t *counts, ith_dit_text **out)
{
    int64_t longest = 0;
    ith_arena held = {0}, work = {0};
    *out = NULL;
    ith_status status = check_counts(context, batch, counts, &longest);
    if (status)
        return status;
    const int64_t keys = ith_dit_text_keys(longest);
    maker m = {.keys = ith_dit_key_maker_of(context, dit, batch * keys), .prompts = rows, .counts = counts};
    lay_out_text(dit, batch, keys, &held);
    if (rows)
        ith_dit_key_maker_lay_out(&m.keys, &work);
    status = ith_arena_allocate(context, &held, "the prompts' keys and values");
    if (!status && rows)
        status = ith_arena_allocate(context, &work, "making the prompts' keys");
    if (!status) {
        *out = m.text = lay_out_text(dit, batch, keys, &held);
        fill_biases(&m);
    }
    if (!status && rows) {
        ith_dit_key_maker_lay_out(&m.keys, &work);
        status = make(&m);
    }
    ith_free(context, work.base);
    if (!status && dit->device)
        status = ith_dit_device_take_text(context, dit, *out);
    if (status && *out)
        ith_dit_text_free(context, out);
    else if (status)
        ith_free(context, held.base);
    return status;
}

void *ith_dit_text_data(const ith_dit *dit, ith_dit_text *text, int64_t *bytes)
{
    *bytes = text ? ith_dit_key_bytes(dit, text->batch * text->keys) : 0;
    return text ? text->keys_values : NULL;
}

void ith_dit_text_free(ith_context *context, ith_dit_text **text)
{
    if (*text)
        ith_dit_device_drop_text(*text);
    ith_free(context, *text);
    *text = NULL;
}
