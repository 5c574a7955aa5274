/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass of one rank, stage by stage.
 *
 *   e = time MLP(sinusoid(t)), e0 = w_t silu(e);   x = patch embedding(tokens)
 *   in every layer, with (shift, scale, gate) of the layer's table + e0:
 *     x += gate_sa attention(LN(x) (1 + scale_sa) + shift_sa)
 *     x += cross attention(LN(x) w + b)
 *     x += gate_ff FFN(LN(x) (1 + scale_ff) + shift_ff)
 *   out = head(LN(x) (1 + scale) + shift), with the head's table + e
 *
 * Every stage but attention works on one row at a time. It processes at most ITH_DIT_STRIP rows at
 * a time, so that the buffers between its steps (narrow, wide) stay small. */
#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "dit_workspace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYER_STAGES 5

/* The state of one forward pass. */
typedef struct pass {
    ith_context *context;
    const ith_dit_workspace *w;
    const ith_dit_layer *layer;
    int64_t index; /* number of the current layer */
    int64_t dim;
    float eps;
} pass;

/* Passes rows of a stage's output to the function that ith_dit_workspace_watch has set, if there is one. */
static void show(const pass *p, const char *stage, const float *rows, int64_t first, int64_t count, int64_t width)
{
    if (p->w->watch)
        p->w->watch(p->w->watch_user, stage, rows, first, count, width);
}

static void show_in_layer(const pass *p, const char *part, const float *rows, int64_t first, int64_t count)
{
    char stage[64];
    if (!p->w->watch)
        return;
    snprintf(stage, sizeof stage, "blocks.%lld%s", (long long)p->index, part);
    show(p, stage, rows, first, count, p->dim);
}

static ith_status apply(const pass *p, const ith_linear *linear, int64_t rows, const float *x, float *y)
{
    return ith_linear_apply_rows(p->context, linear, &p->w->linears, rows, x, y);
}

typedef ith_status (*strip_fn)(const pass *p, int64_t first, int64_t count);

/* Runs a stage on all rows of this rank, at most ITH_DIT_STRIP rows at a time. `name` is the stage's name in the trace
 * file. */
static ith_status in_strips(const pass *p, const char *name, strip_fn stage)
{
    double traced = ith_trace_begin(p->context);
    ith_status status = ITH_OK;
    for (int64_t first = 0; first < p->w->rows && !status; first += p->w->strip)
        status = stage(p, first, ith_min64(p->w->strip, p->w->rows - first));
    ith_trace_end(p->context, traced, name, "compute");
    return status;
}

/* ---- Time ------------------------------------------------------------------------------------------------------ */

/* The time embedding: sinusoid = (cos(t f_i), sin(t f_i)) with f_i = 10000^(-i / half); e = w_2 silu(w_1 sinusoid) and
 * e0 = w_t silu(e), with biases. */
static ith_status embed_time(const pass *p, const float *t)
{
    const ith_dit_workspace *w = p->w;
    const ith_dit *dit = w->dit;
    const int64_t batch = w->shape.batch, freq_dim = dit->config.freq_dim, half = freq_dim / 2, dim = p->dim;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)t[b] * pow(10000.0, -(double)i / (double)half);
            w->sinusoid[b * freq_dim + i] = (float)cos(angle);
            w->sinusoid[b * freq_dim + half + i] = (float)sin(angle);
        }
    ith_status status = apply(p, dit->time_1, batch, w->sinusoid, w->e_silu);
    if (status)
        return status;
    w->ops->silu(w->e_silu, w->e_silu, batch * dim);
    status = apply(p, dit->time_2, batch, w->e_silu, w->e);
    if (status)
        return status;
    show(p, "condition_embedder.time_embedder", w->e, 0, batch, dim);
    w->ops->silu(w->e_silu, w->e, batch * dim);
    status = apply(p, dit->time_proj, batch, w->e_silu, w->e0);
    if (!status)
        show(p, "condition_embedder.time_proj", w->e0, 0, batch, ITH_DIT_MODULATIONS * dim);
    return status;
}

/* ---- Modulation ------------------------------------------------------------------------------------------------ */

/* Computes the shifts, scales and gates of a layer: modulation [batch, kinds, dim] = table [kinds, dim] + e, plus 1 for
 * scales. With one_e, e is [batch, dim], otherwise [batch, kinds, dim]. */
static void modulate(const pass *p, const float *table, int kinds, const float *e, bool one_e)
{
    for (int64_t b = 0; b < p->w->shape.batch; b++)
        for (int kind = 0; kind < kinds; kind++) {
            float *out = p->w->modulation + (b * kinds + kind) * p->dim;
            const float *time = e + (one_e ? b : b * kinds + kind) * p->dim;
            float one = kind % 3 == ITH_DIT_SCALE_SA ? 1.0f : 0.0f;
            for (int64_t i = 0; i < p->dim; i++)
                out[i] = one + (table[kind * p->dim + i] + time[i]);
        }
}

/* The shift, scale or gate vector for a row: vector `kind` of the layer's `kinds` vectors. All rows of a batch entry
 * have the same vector. */
static const float *modulation(const pass *p, int64_t row, int kinds, int kind)
{
    return p->w->modulation + (row / p->w->share * kinds + kind) * p->dim;
}

/* narrow = LN(x) (1 + scale) + shift, for rows first .. first + count - 1 of x */
static void norm_modulated(const pass *p, int64_t first, int64_t count, int kinds, int shift)
{
    const ith_dit_workspace *w = p->w;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const float *scale = modulation(p, first + i, kinds, shift + 1);
        w->ops->layer_norm(w->narrow + i * p->dim, w->x + (first + i) * p->dim, scale,
                           modulation(p, first + i, kinds, shift), p->dim, p->eps);
    }
}

/* ---- Self-attention -------------------------------------------------------------------------------------------- */

/* Applies RMSNorm over all heads and RoPE to q and k; then rounds q, k and v if attention takes bf16. */
static void finish_qkv(const pass *p, float *rows, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
    const ith_dit_config *c = &w->dit->config;
    const int64_t dim = p->dim, half = c->head_dim / 2;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float *q = rows + i * 3 * dim, *k = q + dim;
        int64_t token = (first + i) % w->share;
        const float *cosines = w->cosines + token * half, *sines = w->sines + token * half;
        w->ops->rms_norm(q, q, p->layer->self_norm_q, dim, p->eps);
        w->ops->rms_norm(k, k, p->layer->self_norm_k, dim, p->eps);
        w->ops->rope(q, cosines, sines, c->heads, c->head_dim);
        w->ops->rope(k, cosines, sines, c->heads, c->head_dim);
        if (w->type == ITH_BF16)
            w->ops->bf16_from_f32((uint16_t *)w->qkv + (first + i) * 3 * dim, q, 3 * dim);
    }
}

/* qkv = w_qkv (LN(x) (1 + scale_sa) + shift_sa) + b_qkv, then RMSNorm and RoPE of q and k */
static ith_status make_qkv(const pass *p, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
    norm_modulated(p, first, count, ITH_DIT_MODULATIONS, ITH_DIT_SHIFT_SA);
    float *rows = w->type == ITH_F32 ? (float *)w->qkv + first * 3 * p->dim : w->wide;
    ith_status status = apply(p, p->layer->qkv, count, w->narrow, rows);
    if (!status)
        finish_qkv(p, rows, first, count);
    return status;
}

static ith_status attend(const pass *p, const char *name, ith_plan *plan, const ith_attn_tensors *tensors)
{
    double traced = ith_trace_begin(p->context);
    ith_status status = ith_plan_execute(plan, tensors);
    ith_trace_end(p->context, traced, name, "compute");
    return status;
}

/* Self-attention: o = softmax(q k^T / sqrt(head_dim)) v over the tokens of all ranks */
static ith_status attend_self(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    const int64_t dim_bytes = p->dim * ith_dtype_bytes(w->type);
    ith_attn_tensors t = {.struct_size = sizeof(ith_attn_tensors), .q = w->qkv, .o = w->o};
    t.k = (const char *)w->qkv + dim_bytes;
    t.v = (const char *)w->qkv + 2 * dim_bytes;
    return attend(p, "self attention", w->self_plan, &t);
}

/* ---- Cross attention ------------------------------------------------------------------------------------------- */

/* The last linear layer of an attention: narrow = w o + b, for rows first .. first + count - 1 of o */
static ith_status project_o(const pass *p, const ith_linear *linear, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
    const float *o = (const float *)w->o + first * p->dim;
    if (w->type == ITH_BF16) {
        const uint16_t *rounded = (const uint16_t *)w->o + first * p->dim;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < count; i++)
            w->ops->f32_from_bf16(w->wide + i * p->dim, rounded + i * p->dim, p->dim);
        o = w->wide;
    }
    return apply(p, linear, count, o, w->narrow);
}

/* x += gate narrow; narrow = LN(x) a + b
 *   after self-attention:  gate = gate_sa, a and b are the weights of a norm
 *   after cross-attention: gate = 1, a = 1 + scale_ff, b = shift_ff */
static void add_and_norm(const pass *p, int64_t first, int64_t count, bool after_self)
{
    const ith_dit_workspace *w = p->w;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        int64_t row = first + i;
        float *x = w->x + row * p->dim, *y = w->narrow + i * p->dim;
        const float *gate = NULL, *a = p->layer->cross_weight, *b = p->layer->cross_bias;
        if (after_self)
            gate = modulation(p, row, ITH_DIT_MODULATIONS, ITH_DIT_GATE_SA);
        else
            a = modulation(p, row, ITH_DIT_MODULATIONS, ITH_DIT_SCALE_FF),
            b = modulation(p, row, ITH_DIT_MODULATIONS, ITH_DIT_SHIFT_FF);
        w->ops->add_gated(x, y, gate, p->dim);
        w->ops->layer_norm(y, x, a, b, p->dim, p->eps);
    }
}

/* Applies RMSNorm over all heads to the q of cross-attention, and rounds it if attention takes bf16. */
static void finish_q(const pass *p, float *rows, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
    const int64_t dim = p->dim;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float *q = rows + i * dim;
        w->ops->rms_norm(q, q, p->layer->cross_norm_q, dim, p->eps);
        if (w->type == ITH_BF16)
            w->ops->bf16_from_f32((uint16_t *)w->qkv + (first + i) * dim, q, dim);
    }
}

/* x += gate_sa (w_o o + b_o) after self-attention; then computes from x the q of cross-attention. */
static ith_status add_self(const pass *p, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
    ith_status status = project_o(p, p->layer->self_out, first, count);
    if (status)
        return status;
    show_in_layer(p, ".attn1", w->narrow, first, count);
    add_and_norm(p, first, count, true);
    float *rows = w->type == ITH_F32 ? (float *)w->qkv + first * p->dim : w->wide;
    status = apply(p, p->layer->cross_q, count, w->narrow, rows);
    if (!status)
        finish_q(p, rows, first, count);
    return status;
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

/* Cross-attention: o = softmax(q k^T / sqrt(head_dim) + bias) v over the prompt's keys */
static ith_status attend_text(const pass *p)
{
    const ith_dit_workspace *w = p->w;
    ith_attn_tensors t = {.struct_size = sizeof(ith_attn_tensors), .q = w->qkv, .o = w->o, .key_bias = w->padded_bias};
    t.k = text_layer(p);
    t.v = (const char *)t.k + p->dim * ith_dtype_bytes(w->type);
    return attend(p, "cross attention", w->cross_plan, &t);
}

/* ---- Feed-forward ---------------------------------------------------------------------------------------------- */

static void add_ffn(const pass *p, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        w->ops->add_gated(w->x + (first + i) * p->dim, w->narrow + i * p->dim,
                          modulation(p, first + i, ITH_DIT_MODULATIONS, ITH_DIT_GATE_FF), p->dim);
}

static void gelu_rows(const pass *p, int64_t count, int64_t width)
{
    const ith_dit_workspace *w = p->w;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        w->ops->gelu_tanh(w->wide + i * width, w->wide + i * width, width);
}

/* x += w_o o + b_o after cross-attention; x += gate_ff FFN(LN(x) (1 + scale_ff) + shift_ff) */
static ith_status add_text_and_ffn(const pass *p, int64_t first, int64_t count)
{
    const ith_dit_workspace *w = p->w;
    const int64_t width = w->dit->config.ffn_dim;
    ith_status status = project_o(p, p->layer->cross_out, first, count);
    if (status)
        return status;
    show_in_layer(p, ".attn2", w->narrow, first, count);
    add_and_norm(p, first, count, false);
    status = apply(p, p->layer->ffn_up, count, w->narrow, w->wide);
    if (status)
        return status;
    gelu_rows(p, count, width);
    status = apply(p, p->layer->ffn_down, count, w->wide, w->narrow);
    if (status)
        return status;
    show_in_layer(p, ".ffn", w->narrow, first, count);
    add_ffn(p, first, count);
    show_in_layer(p, "", w->x + first * p->dim, first, count);
    return ITH_OK;
}

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Shows progress after a stage of a layer. The last layer, compute_head, counts as one more stage, so that a pass is
 * not shown as complete before its end. */
static void show_stage(const pass *p, int stage, ith_status status)
{
    if (!status)
        ith_span_show(p->context, &p->w->shown, p->index * LAYER_STAGES + stage,
                      p->w->dit->config.layers * LAYER_STAGES + 1);
}

/* Computes one layer. All rows of a batch entry have the same shift, scale and gate vectors, so these are computed
 * once. */
static ith_status compute_layer(const pass *p)
{
    modulate(p, p->layer->modulation, ITH_DIT_MODULATIONS, p->w->e0, false);
    ith_status status = in_strips(p, "qkv", make_qkv);
    show_stage(p, 1, status);
    if (!status)
        status = attend_self(p);
    show_stage(p, 2, status);
    if (!status)
        status = in_strips(p, "project", add_self);
    show_stage(p, 3, status);
    if (!status)
        status = attend_text(p);
    show_stage(p, 4, status);
    if (!status)
        status = in_strips(p, "ffn", add_text_and_ffn);
    show_stage(p, LAYER_STAGES, status);
    return status;
}

static ith_status compute_layers(pass *p)
{
    const ith_dit *dit = p->w->dit;
    ith_status status = ITH_OK;
    for (p->index = 0; p->index < dit->config.layers && !status; p->index++) {
        p->layer = &dit->layers[p->index];
        double traced = ith_trace_begin(p->context);
        status = compute_layer(p);
        ith_trace_end(p->context, traced, "block", "compute");
        if (status == ITH_ERR_INTERRUPTED)
            ith_fail(p->context, status, "stopped in layer %lld of %lld", (long long)p->index + 1,
                     (long long)dit->config.layers);
    }
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

/* The last layer: out = w_head (LN(x) (1 + scale) + shift) + b_head */
static ith_status compute_head(const pass *p, float *out)
{
    const ith_dit_workspace *w = p->w;
    const int64_t width = w->dit->config.out_channels * ITH_DIT_PATCH;
    modulate(p, w->dit->head_modulation, 2, w->e, true);
    ith_status status = ITH_OK;
    for (int64_t first = 0; first < w->rows && !status; first += w->strip) {
        int64_t count = ith_min64(w->strip, w->rows - first);
        norm_modulated(p, first, count, 2, 0);
        status = apply(p, w->dit->head, count, w->narrow, out + first * width);
    }
    return status;
}

ith_status ith_dit_forward(ith_context *context, ith_dit_workspace *w, const float *tokens, const float *t, float *out)
{
    const ith_dit *dit = w->dit;
    if (w->text->keys > w->keys || w->text->batch != w->shape.batch)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "a text of %lld prompts with %lld keys for a workspace of %lld prompts with at most %lld",
                        (long long)w->text->batch, (long long)w->text->keys, (long long)w->shape.batch,
                        (long long)w->keys);
    pass p = {.context = context, .w = w, .dim = dit->config.dim, .eps = (float)dit->config.eps};
    ith_status status = embed_time(&p, t);
    if (!status)
        status = apply(&p, dit->patch, w->rows, tokens, w->x);
    if (status)
        return status;
    show(&p, "patch_embedding", w->x, 0, w->rows, p.dim);
    status = compute_layers(&p);
    return status ? status : compute_head(&p, out);
}
