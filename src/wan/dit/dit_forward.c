/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass of one rank, stage by stage.
 *
 *   e = time MLP(sinusoid(t)), e0 = w_t silu(e);   x = patch embedding(tokens)
 *   in every layer, with (shift, scale, gate) of the layer's table + e0:
 *     x += gate_sa attention(LN(x) (1 + scale_sa) + shift_sa)
 *     x += cross attention(LN(x) w + b)           to the text, plus attention to the images if there are some
 *     x += gate_ff FFN(LN(x) (1 + scale_ff) + shift_ff)
 *   out = head(LN(x) (1 + scale) + shift), with the head's table + e
 *
 * Between two products, a row is read and written once. A linear layer calls normed_row or o_row for a row of its input
 * when it packs the row, and passes a row of its output, in pieces, to add_to_x or to dit_heads.c. */
#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "dit_heads.h"
#include "dit_pass.h"
#include "dit_shards.h"

#include <stdio.h>
#include <string.h>

typedef ith_dit_pass pass;

/* ---- For tests ------------------------------------------------------------------------------------------------- */

/* Passes the output of a stage to the function that ith_dit_workspace_watch has set, if there is one. */
static void show(const pass *p, const char *stage, const float *rows, int64_t count, int64_t width)
{
    if (p->w->watch)
        p->w->watch(p->w->watch_user, stage, rows, count, width);
}

void ith_dit_show_in_layer(const pass *p, const char *part, const float *rows)
{
    char stage[64];
    if (!p->w->watch)
        return;
    snprintf(stage, sizeof stage, "blocks.%lld%s", (long long)p->index, part);
    show(p, stage, rows, p->w->rows, p->dim);
}

/* ---- Rows of a product's input ----------------------------------------------------------------------------------- */

/* A vector of dim numbers for each time step of the pass. The vector of time step i begins at first + i * stride. */
typedef struct time_vectors {
    const float *first;
    int64_t stride; /* 0: all time steps have the same vector */
} time_vectors;

/* Whether row `row` of x is a token whose latents are known. */
static bool is_known(const ith_dit_workspace *w, int64_t row)
{
    return w->begin + row % w->share < w->shape.known;
}

/* The number of a row's time step in the order of ith_dit_time_rows. */
static int64_t time_of(const ith_dit_workspace *w, int64_t row)
{
    const int64_t entry = row / w->share;
    return w->shape.known ? 2 * entry + is_known(w, row) : entry;
}

static const float *vector_of(const pass *p, const time_vectors *vectors, int64_t row)
{
    return vectors->first + time_of(p->w, row) * vectors->stride;
}

/* Vector `kind` of the `kinds` vectors that ith_dit_modulate has computed for each time step. */
static time_vectors modulation(const pass *p, int kinds, int kind)
{
    return (time_vectors){p->w->modulation + kind * p->dim, kinds * p->dim};
}

/* The rows LN(x) a + b. */
typedef struct normed {
    const pass *p;
    time_vectors a, b;
} normed;

static const float *normed_row(const void *user, int64_t row, float *space)
{
    const normed *n = user;
    const ith_dit_workspace *w = n->p->w;
    w->ops->layer_norm(space, w->x + row * n->p->dim, vector_of(n->p, &n->a, row), vector_of(n->p, &n->b, row),
                       n->p->dim, (float)w->dit->config.eps);
    return space;
}

/* The rows x. */
static const float *x_row(const void *user, int64_t row, float *space)
{
    (void)space;
    const pass *p = user;
    return p->w->x + row * p->dim;
}

/* The rows LN(x) (1 + scale) + shift, with vectors shift and shift + 1 of `kinds`. */
static normed modulated(const pass *p, int kinds, int shift)
{
    return (normed){p, modulation(p, kinds, shift + 1), modulation(p, kinds, shift)};
}

/* The rows of o, the output of an attention. It lies where q was, in the first column of w->qkv. */
typedef struct attended {
    const pass *p;
    int64_t stride;    /* numbers from one row to the next */
    const void *other; /* [rows, dim]: the o of a second attention, which is added; NULL: there is none */
} attended;

#define PIECE 256 /* numbers of a row that are converted together */

/* Adds row `row` of the other o to `space`. */
static void add_other(const attended *o, int64_t row, float *space)
{
    const ith_rowops *ops = o->p->w->ops;
    const int64_t dim = o->p->dim;
    float piece[PIECE];
    if (o->p->w->type == ITH_F32) {
        ops->add_gated(space, (const float *)o->other + row * dim, NULL, dim);
        return;
    }
    for (int64_t i = 0; i < dim; i += PIECE) {
        const int64_t count = ith_min64(dim - i, PIECE);
        ops->f32_from_bf16(piece, (const uint16_t *)o->other + row * dim + i, count);
        ops->add_gated(space + i, piece, NULL, count);
    }
}

static const float *o_row(const void *user, int64_t row, float *space)
{
    const attended *o = user;
    const ith_dit_workspace *w = o->p->w;
    const float *in_f32 = (const float *)w->qkv + row * o->stride;
    if (w->type == ITH_F32 && !o->other)
        return in_f32;
    if (w->type == ITH_F32)
        memcpy(space, in_f32, (size_t)o->p->dim * sizeof *space);
    else
        w->ops->f32_from_bf16(space, (const uint16_t *)w->qkv + row * o->stride, o->p->dim);
    if (o->other)
        add_other(o, row, space);
    return space;
}

/* ---- Rows of a product's output ---------------------------------------------------------------------------------- */

/* The sum x += gate y. */
typedef struct residual {
    const pass *p;
    const time_vectors *gate; /* NULL: x += y */
} residual;

static void add_to_x(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    const residual *s = user;
    const ith_dit_workspace *w = s->p->w;
    const int64_t at = row * s->p->dim + first;
    if (w->watch)
        memcpy(w->watched + at, y, (size_t)count * sizeof *y);
    w->ops->add_gated(w->x + at, y, s->gate ? vector_of(s->p, s->gate, row) + first : NULL, count);
}

static ith_status apply(const pass *p, const ith_linear *linear, ith_linear_input x, ith_linear_output y)
{
    return ith_linear_apply(p->context, linear, &p->w->linears, p->w->rows, &x, &y);
}

/* q, k and v, or the first `parts` of them, in w->qkv [rows, parts, dim]. */
static ith_dit_heads heads_of(const pass *p, int parts, int norms)
{
    const ith_dit_workspace *w = p->w;
    return (ith_dit_heads){.dit = w->dit,
                           .ops = w->ops,
                           .out = w->qkv,
                           .parts = parts,
                           .normed = norms,
                           .unrounded = w->unrounded,
                           .strip = ith_linear_strip(&w->linears)};
}

/* Computes x += gate (w_o o + b_o). name: the name of w_o o + b_o in the function that watches, for tests. */
static ith_status add_projected_o(const pass *p, const ith_linear *linear, attended o, const time_vectors *gate,
                                  const char *name)
{
    residual sum = {p, gate};
    const ith_linear_rows x = {p->w->x, p->dim};
    ith_status status = apply(p, linear, (ith_linear_input){o_row, &o},
                              (ith_linear_output){.take = add_to_x, .user = &sum, .rows = &x});
    if (!status)
        ith_dit_show_in_layer(p, name, p->w->watched);
    return status;
}

/* ---- The stages of a layer --------------------------------------------------------------------------------------- */

/* qkv = w_qkv (LN(x) (1 + scale_sa) + shift_sa) + b_qkv, with RMSNorm and RoPE of q and k */
static ith_status make_qkv(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    ith_dit_modulate(w, p->layer->modulation, ITH_DIT_MODULATIONS, w->e0, false, w->modulation);
    const normed x = modulated(p, ITH_DIT_MODULATIONS, ITH_DIT_SHIFT_SA);
    ith_dit_heads qkv = heads_of(p, 3, 2);
    qkv.scales[0] = p->layer->self_norm_q, qkv.scales[1] = p->layer->self_norm_k;
    qkv.cosines = w->cosines, qkv.sines = w->sines, qkv.tokens = w->share;
    return apply(p, p->layer->qkv, (ith_linear_input){normed_row, &x}, ith_dit_heads_output(&qkv));
}

/* Self-attention: o = softmax(q k^T / sqrt(head_dim)) v over the tokens of all ranks */
static ith_status attend_self(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    const int64_t dim_bytes = p->dim * ith_dtype_bytes(w->type);
    ith_attn_tensors t = {.struct_size = sizeof(ith_attn_tensors), .q = w->qkv, .o = w->qkv};
    t.k = (const char *)w->qkv + dim_bytes;
    t.v = (const char *)w->qkv + 2 * dim_bytes;
    return ith_plan_execute(w->self_plan, &t);
}

/* x += gate_sa (w_o o + b_o);   q = RMSNorm(w_q (LN(x) w + b) + b_q), the q of cross-attention */
static ith_status add_self(const pass *p)
{
    const time_vectors gate = modulation(p, ITH_DIT_MODULATIONS, ITH_DIT_GATE_SA);
    ith_status status = add_projected_o(p, p->layer->self_out, (attended){p, 3 * p->dim, NULL}, &gate, ".attn1");
    if (status)
        return status;
    const normed x = {p, {p->layer->cross_weight, 0}, {p->layer->cross_bias, 0}};
    ith_dit_heads q = heads_of(p, 1, 1);
    q.scales[0] = p->layer->cross_norm_q;
    const ith_linear_input normalised = {normed_row, &x}, raw = {x_row, p};
    return apply(p, p->layer->cross_q, p->layer->cross_weight ? normalised : raw, ith_dit_heads_output(&q));
}

/* The prompts' keys and values in the current layer, padded to the number of keys for which the plan was made. */
static const char *text_layer(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    const ith_dit_text *text = w->text;
    const int64_t key_bytes = 2 * p->dim * ith_dtype_bytes(w->type), entry = text->keys * key_bytes;
    const char *layer = (const char *)text->keys_values + p->index * text->batch * entry;
    if (text->keys == w->keys)
        return layer;
    for (int64_t b = 0; b < text->batch; b++)
        memcpy((char *)w->padded + b * w->keys * key_bytes, layer + b * entry, (size_t)entry);
    return w->padded;
}

/* The place of the o of attention to images: behind q. NULL: there are no images. */
static char *image_o(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    return w->image ? (char *)w->qkv + w->rows * p->dim * ith_dtype_bytes(w->type) : NULL;
}

/* Attention to images: o = softmax(q k^T / sqrt(head_dim)) v over the images' keys, which all batch entries share */
static ith_status attend_image(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    const int64_t dim_bytes = p->dim * ith_dtype_bytes(w->type), entry = w->share * dim_bytes;
    const char *keys = (const char *)w->image->keys_values + p->index * w->image->rows * 2 * dim_bytes;
    ith_status status = ITH_OK;
    for (int64_t b = 0; b < w->shape.batch && !status; b++) {
        ith_attn_tensors t = {.struct_size = sizeof(ith_attn_tensors), .k = keys, .v = keys + dim_bytes};
        t.q = (const char *)w->qkv + b * entry;
        t.o = image_o(p) + b * entry;
        status = ith_plan_execute(w->image_plan, &t);
    }
    return status;
}

/* Cross-attention: o = softmax(q k^T / sqrt(head_dim) + bias) v over the prompt's keys. It follows the attention to
 * images, because it overwrites q. */
static ith_status attend_text(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    ith_status status = w->image ? attend_image(p) : ITH_OK;
    if (status)
        return status;
    ith_attn_tensors t = {
        .struct_size = sizeof(ith_attn_tensors), .q = w->qkv, .o = w->qkv, .key_bias = w->padded_bias};
    t.k = text_layer(p);
    t.v = (const char *)t.k + p->dim * ith_dtype_bytes(w->type);
    return ith_plan_execute(w->cross_plan, &t);
}

/* x += w_o o + b_o;   x += gate_ff FFN(LN(x) (1 + scale_ff) + shift_ff), with FFN(y) = w_2 gelu(w_1 y + b_1) + b_2 */
static ith_status add_text_and_ffn(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    ith_status status = add_projected_o(p, p->layer->cross_out, (attended){p, p->dim, image_o(p)}, NULL, ".attn2");
    if (status)
        return status;
    const ith_feed_forward ffn = {.up = p->layer->ffn_up, .down = p->layer->ffn_down, .act = w->ops->gelu_tanh};
    const normed x = modulated(p, ITH_DIT_MODULATIONS, ITH_DIT_SHIFT_FF);
    const time_vectors gate = modulation(p, ITH_DIT_MODULATIONS, ITH_DIT_GATE_FF);
    residual sum = {p, &gate};
    const ith_linear_rows to = {w->x, p->dim};
    status = ith_feed_forward_apply(p->context, &ffn, &w->linears, w->rows, &(ith_linear_input){normed_row, &x},
                                    &(ith_linear_output){.take = add_to_x, .user = &sum, .rows = &to});
    if (!status)
        ith_dit_show_in_layer(p, ".ffn", w->watched);
    return status;
}

/* ---- Weights of a layer ------------------------------------------------------------------------------------------ */

/* Asks the system for the weights of the next layer. After the last layer this is the first one, because the next pass
 * begins with it. */
static void prefetch_next(const pass *p)
{
    const ith_dit *dit = p->w->dit;
    const ith_dit_layer *next = &dit->layers[(p->index + 1) % dit->config.layers];
    ith_linear *linears[ITH_DIT_LINEARS];
    ith_dit_layer_linears(next, linears);
    for (int i = 0; i < ITH_DIT_LINEARS; i++)
        ith_linear_prefetch(linears[i]);
}

static ith_status begin_layer(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    if (w->shards)
        return ith_dit_shards_begin(w->shards, p->context, w->shards_comm, w->leads, w->uses);
    prefetch_next(p);
    return ITH_OK;
}

static void end_layer(const pass *p)
{
    if (p->w->shards)
        ith_dit_shards_end(p->w->shards, p->w->uses++);
}

/* ---- The first and the last layer -------------------------------------------------------------------------------- */

/* The rows of the patch embedding's input. */
typedef struct patches {
    const ith_dit_workspace *w;
    const ith_dit_tokens *tokens;
    int64_t latents, condition; /* numbers of a token's latents, and of its condition */
} patches;

static const float *patch_row(const void *user, int64_t row, float *space)
{
    const patches *p = user;
    const int64_t entry = row / p->w->share, token = row % p->w->share;
    const float *latents = p->tokens->latents + entry * p->tokens->batch_stride + token * p->latents;
    if (p->tokens->known && is_known(p->w, row))
        latents = p->tokens->known + token * p->latents;
    if (!p->condition)
        return latents;
    memcpy(space, latents, (size_t)p->latents * sizeof *space);
    memcpy(space + p->latents, p->tokens->condition + token * p->condition, (size_t)p->condition * sizeof *space);
    return space;
}

/* x = patch embedding(rows) */
static ith_status embed_patches(const pass *p, const ith_linear_input *rows)
{
    ith_linear_rows x = {p->w->x, p->dim};
    return apply(p, p->w->dit->patch, *rows, ith_linear_to_rows(&x));
}

/* The last layer: out = w_head (LN(x) (1 + scale) + shift) + b_head */
static ith_status compute_head(const pass *p, float *out)
{
    const ith_dit *dit = p->w->dit;
    ith_dit_modulate(p->w, dit->head_modulation, 2, p->w->e, true, p->w->modulation);
    const normed x = modulated(p, 2, 0);
    ith_linear_rows rows = {out, dit->config.out_channels * ITH_DIT_PATCH};
    return apply(p, dit->head, (ith_linear_input){normed_row, &x}, ith_linear_to_rows(&rows));
}

static const float *rows_of(const pass *p)
{
    return p->w->x;
}

static const ith_dit_engine processor = {
    .embed = embed_patches,
    .begin_layer = begin_layer,
    .stages = {make_qkv, attend_self, add_self, attend_text, add_text_and_ffn},
    .end_layer = end_layer,
    .finish = compute_head,
    .rows = rows_of,
};

/* ---- The pass --------------------------------------------------------------------------------------------------- */

/* Shows progress after a stage of a layer. The head counts as one more stage, so that a pass is not shown as complete
 * before its end. */
static void show_stage(const pass *p, int stage)
{
    ith_span_show(p->context, &p->w->shown, p->index * ITH_DIT_STAGES + stage,
                  p->w->dit->config.layers * ITH_DIT_STAGES + 1);
}

/* Computes one layer. Each stage is an interval of the trace. */
static ith_status compute_layer(const pass *p, const ith_dit_engine *engine)
{
    static const char *const names[ITH_DIT_STAGES] = {"qkv", "self attention", "project", "cross attention", "ffn"};
    for (int i = 0; i < ITH_DIT_STAGES; i++) {
        double traced = ith_trace_begin(p->context);
        ith_status status = engine->stages[i](p);
        ith_trace_end(p->context, traced, names[i], "compute");
        if (status)
            return status;
        show_stage(p, i + 1);
    }
    if (p->w->watch)
        ith_dit_show_in_layer(p, "", engine->rows(p));
    return ITH_OK;
}

static ith_status compute_layers(pass *p, const ith_dit_engine *engine)
{
    const ith_dit *dit = p->w->dit;
    ith_status status = ITH_OK;
    for (p->index = 0; p->index < dit->config.layers && !status; p->index++) {
        p->layer = &dit->layers[p->index];
        ith_observer_set_part(p->context, p->index + 1, dit->config.layers);
        if (engine->begin_layer)
            status = engine->begin_layer(p);
        double traced = ith_trace_begin(p->context);
        if (!status)
            status = compute_layer(p, engine);
        ith_trace_end(p->context, traced, "block", "compute");
        if (engine->end_layer)
            engine->end_layer(p);
        if (status == ITH_ERR_INTERRUPTED)
            ith_fail(p->context, status, "stopped in layer %lld of %lld", (long long)p->index + 1,
                     (long long)dit->config.layers);
    }
    return status;
}

ith_status ith_dit_forward(ith_context *context, ith_dit_workspace *w, const ith_dit_tokens *tokens, const float *t,
                           float *out)
{
    const ith_dit *dit = w->dit;
    const ith_dit_config *c = &dit->config;
    const ith_dit_engine *engine = w->device ? &ith_dit_device_engine : &processor;
    const int64_t batch = w->shape.batch, times = ith_dit_time_rows(&w->shape);
    const int64_t channels = tokens->condition ? c->out_channels : c->in_channels;
    const patches rows = {w, tokens, channels * ITH_DIT_PATCH, (c->in_channels - channels) * ITH_DIT_PATCH};
    if (w->text->keys > w->keys || w->text->batch != batch)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "a text of %lld prompts with %lld keys for a workspace of %lld prompts with at most %lld",
                        (long long)w->text->batch, (long long)w->text->keys, (long long)batch, (long long)w->keys);
    if (w->shape.image_rows != (w->image ? w->image->rows : 0))
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld rows of images for a workspace of %lld",
                        (long long)(w->image ? w->image->rows : 0), (long long)w->shape.image_rows);
    pass p = {.context = context, .w = w, .dim = c->dim};
    ith_status status = ith_dit_embed_time(context, w, t);
    if (!status)
        status = engine->embed(&p, &(ith_linear_input){patch_row, &rows});
    if (status)
        return status;
    show(&p, "condition_embedder.time_embedder", w->e, times, c->dim);
    show(&p, "condition_embedder.time_proj", w->e0, times, ITH_DIT_MODULATIONS * c->dim);
    if (w->watch)
        show(&p, "patch_embedding", engine->rows(&p), w->rows, c->dim);
    status = compute_layers(&p, engine);
    return status ? status : engine->finish(&p, out);
}
