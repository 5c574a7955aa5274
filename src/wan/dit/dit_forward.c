/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass of one rank.
 *
 *   e = time MLP(sinusoid(t)), e0 = w_t silu(e);   x = patch embedding(tokens)
 *   in every layer, with (shift, scale, gate) of the layer's table + e0:
 *     x += gate_sa attention(LN(x) (1 + scale_sa) + shift_sa)
 *     x += cross attention(LN(x) w + b)
 *     x += gate_ff FFN(LN(x) (1 + scale_ff) + shift_ff)
 *   out = head(LN(x) (1 + scale) + shift), with the head's table + e
 *
 * Between two attentions everything is done row by row, for a chunk of rows at a time. */
#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../base/trace.h"
#include "dit_workspace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATCH 4 /* numbers of one channel in a token */

typedef struct pass {
    ith_context *context;
    ith_dit_workspace *run;
    const ith_dit_block *block;
    int64_t layer, dim;
    float eps;
} pass;

static void show(const pass *p, const char *stage, const float *rows, int64_t first, int64_t count, int64_t width)
{
    if (p->run->watch)
        p->run->watch(p->run->watch_user, stage, rows, first, count, width);
}

static void show_block(const pass *p, const char *part, const float *rows, int64_t first, int64_t count)
{
    if (!p->run->watch)
        return;
    char stage[64];
    snprintf(stage, sizeof stage, "blocks.%lld%s", (long long)p->layer, part);
    p->run->watch(p->run->watch_user, stage, rows, first, count, p->dim);
}

/* The modulation vector of that kind for the batch entry of a row. */
static const float *modulation(const pass *p, int64_t row, int kinds, int kind)
{
    return p->run->modulation + (row / p->run->share * kinds + kind) * p->dim;
}

/* ---- Time ------------------------------------------------------------------------------------------------------ */

static ith_status embed_time(const pass *p, const float *t)
{
    ith_dit_workspace *run = p->run;
    const ith_dit *dit = run->dit;
    const int64_t batch = run->shape.batch, freq_dim = dit->config.freq_dim, half = freq_dim / 2, dim = p->dim;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)t[b] * pow(10000.0, -(double)i / (double)half);
            run->sinusoid[b * freq_dim + i] = (float)cos(angle);
            run->sinusoid[b * freq_dim + half + i] = (float)sin(angle);
        }
    ith_status status = ith_linear_run(p->context, dit->time_1, batch, run->sinusoid, freq_dim, run->e_silu, dim);
    if (status)
        return status;
    run->ops->silu(run->e_silu, run->e_silu, batch * dim);
    status = ith_linear_run(p->context, dit->time_2, batch, run->e_silu, dim, run->e, dim);
    if (status)
        return status;
    show(p, "condition_embedder.time_embedder", run->e, 0, batch, dim);
    run->ops->silu(run->e_silu, run->e, batch * dim);
    int64_t width = ITH_DIT_MODULATIONS * dim;
    status = ith_linear_run(p->context, dit->time_proj, batch, run->e_silu, dim, run->e0, width);
    if (!status)
        show(p, "condition_embedder.time_proj", run->e0, 0, batch, width);
    return status;
}

/* table [kinds, dim] + e [batch, kinds or 1, dim]; 1 is added to the scales. */
static void modulate(const pass *p, const float *table, int kinds, const float *e, bool one_e)
{
    for (int64_t b = 0; b < p->run->shape.batch; b++)
        for (int kind = 0; kind < kinds; kind++) {
            float *out = p->run->modulation + (b * kinds + kind) * p->dim;
            const float *time = e + (one_e ? b : b * kinds + kind) * p->dim;
            float one = kind % 3 == ITH_DIT_SCALE_SA ? 1.0f : 0.0f;
            for (int64_t i = 0; i < p->dim; i++)
                out[i] = one + (table[kind * p->dim + i] + time[i]);
        }
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* narrow = LN(x) (1 + scale) + shift */
static void norm_modulated(const pass *p, int64_t first, int64_t count, int kinds, int shift)
{
    ith_dit_workspace *run = p->run;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const float *scale = modulation(p, first + i, kinds, shift + 1);
        run->ops->layer_norm(run->narrow + i * p->dim, run->x + (first + i) * p->dim, scale,
                             modulation(p, first + i, kinds, shift), p->dim, p->eps);
    }
}

/* q and k of self-attention: RMSNorm over all heads, RoPE; in bf16 also the rounding, of v too. */
static void finish_qkv(const pass *p, float *rows, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
    const ith_dit_config *c = &run->dit->config;
    const int64_t dim = p->dim, half = c->head_dim / 2;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float *q = rows + i * 3 * dim, *k = q + dim;
        int64_t token = (first + i) % run->share;
        const float *cosines = run->cosines + token * half, *sines = run->sines + token * half;
        run->ops->rms_norm(q, q, p->block->self_norm_q, dim, p->eps);
        run->ops->rms_norm(k, k, p->block->self_norm_k, dim, p->eps);
        run->ops->rope(q, cosines, sines, c->heads, c->head_dim);
        run->ops->rope(k, cosines, sines, c->heads, c->head_dim);
        if (run->type == ITH_BF16)
            run->ops->bf16_from_f32((uint16_t *)run->qkv + (first + i) * 3 * dim, q, 3 * dim);
    }
}

static void finish_cross_q(const pass *p, float *rows, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
    const int64_t dim = p->dim;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float *q = rows + i * dim;
        run->ops->rms_norm(q, q, p->block->cross_norm_q, dim, p->eps);
        if (run->type == ITH_BF16)
            run->ops->bf16_from_f32((uint16_t *)run->qkv + (first + i) * dim, q, dim);
    }
}

/* x += gate narrow, then narrow = LN(x) a + b. Gates and norms of a layer's two joints:
 *   after self-attention    gate_sa, the affine norm       after cross attention    none, modulated for the FFN */
static void add_and_norm(const pass *p, int64_t first, int64_t count, bool after_self)
{
    ith_dit_workspace *run = p->run;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        int64_t row = first + i;
        float *x = run->x + row * p->dim, *y = run->narrow + i * p->dim;
        const float *gate = NULL, *a = p->block->cross_weight, *b = p->block->cross_bias;
        if (after_self)
            gate = modulation(p, row, ITH_DIT_MODULATIONS, ITH_DIT_GATE_SA);
        else
            a = modulation(p, row, ITH_DIT_MODULATIONS, ITH_DIT_SCALE_FF),
            b = modulation(p, row, ITH_DIT_MODULATIONS, ITH_DIT_SHIFT_FF);
        run->ops->add_gated(x, y, gate, p->dim);
        run->ops->layer_norm(y, x, a, b, p->dim, p->eps);
    }
}

static void add_ffn(const pass *p, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        run->ops->add_gated(run->x + (first + i) * p->dim, run->narrow + i * p->dim,
                            modulation(p, first + i, ITH_DIT_MODULATIONS, ITH_DIT_GATE_FF), p->dim);
}

static void gelu_rows(const pass *p, int64_t count, int64_t width)
{
    ith_dit_workspace *run = p->run;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
        run->ops->gelu_tanh(run->wide + i * width, run->wide + i * width, width);
}

/* ---- Layers, a chunk of rows at a time ------------------------------------------------------------------------- */

/* Attention's output through the layer behind it, into narrow. */
static ith_status project_out(const pass *p, const ith_linear *linear, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
    const float *o = (const float *)run->o + first * p->dim;
    if (run->type == ITH_BF16) {
        const uint16_t *rounded = (const uint16_t *)run->o + first * p->dim;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < count; i++)
            run->ops->f32_from_bf16(run->wide + i * p->dim, rounded + i * p->dim, p->dim);
        o = run->wide;
    }
    return ith_linear_run(p->context, linear, count, o, p->dim, run->narrow, p->dim);
}

/* x -> q, k, v of self-attention. */
static ith_status before_self(const pass *p, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
    norm_modulated(p, first, count, ITH_DIT_MODULATIONS, ITH_DIT_SHIFT_SA);
    float *rows = run->type == ITH_F32 ? (float *)run->qkv + first * 3 * p->dim : run->wide;
    ith_status status = ith_linear_run(p->context, p->block->qkv, count, run->narrow, p->dim, rows, 3 * p->dim);
    if (!status)
        finish_qkv(p, rows, first, count);
    return status;
}

/* Self-attention's output -> x, q of cross attention. */
static ith_status after_self(const pass *p, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
    ith_status status = project_out(p, p->block->self_out, first, count);
    if (status)
        return status;
    show_block(p, ".attn1", run->narrow, first, count);
    add_and_norm(p, first, count, true);
    float *rows = run->type == ITH_F32 ? (float *)run->qkv + first * p->dim : run->wide;
    status = ith_linear_run(p->context, p->block->cross_q, count, run->narrow, p->dim, rows, p->dim);
    if (!status)
        finish_cross_q(p, rows, first, count);
    return status;
}

/* Cross attention's output -> x, through the feed-forward layer. */
static ith_status after_cross(const pass *p, int64_t first, int64_t count)
{
    ith_dit_workspace *run = p->run;
    const int64_t width = run->dit->config.ffn_dim;
    ith_status status = project_out(p, p->block->cross_out, first, count);
    if (status)
        return status;
    show_block(p, ".attn2", run->narrow, first, count);
    add_and_norm(p, first, count, false);
    status = ith_linear_run(p->context, p->block->ffn_up, count, run->narrow, p->dim, run->wide, width);
    if (status)
        return status;
    gelu_rows(p, count, width);
    status = ith_linear_run(p->context, p->block->ffn_down, count, run->wide, width, run->narrow, p->dim);
    if (status)
        return status;
    show_block(p, ".ffn", run->narrow, first, count);
    add_ffn(p, first, count);
    show_block(p, "", run->x + first * p->dim, first, count);
    return ITH_OK;
}

typedef ith_status (*chunk_fn)(const pass *p, int64_t first, int64_t count);

/* name: in the trace. */
static ith_status for_chunks(const pass *p, const char *name, chunk_fn fn)
{
    double traced = ith_trace_begin(p->context);
    ith_status status = ITH_OK;
    for (int64_t first = 0; first < p->run->rows && !status; first += p->run->chunk)
        status = fn(p, first, ith_min64(p->run->chunk, p->run->rows - first));
    ith_trace_end(p->context, traced, name, "compute");
    return status;
}

/* ---- Attention ------------------------------------------------------------------------------------------------- */

static ith_status attend(const pass *p, const char *name, ith_plan *plan, const ith_attn_tensors *tensors)
{
    double traced = ith_trace_begin(p->context);
    ith_status status = ith_plan_execute(plan, tensors);
    ith_trace_end(p->context, traced, name, "compute");
    return status;
}

static ith_status attend_self(const pass *p)
{
    ith_dit_workspace *run = p->run;
    const int64_t dim_bytes = p->dim * ith_dtype_bytes(run->type);
    ith_attn_tensors t = {.struct_size = sizeof(ith_attn_tensors), .q = run->qkv, .o = run->o};
    t.k = (const char *)run->qkv + dim_bytes;
    t.v = (const char *)run->qkv + 2 * dim_bytes;
    return attend(p, "self attention", run->self_plan, &t);
}

/* The layer's keys and values, with as many keys as the plan has. */
static const char *text_layer(const pass *p)
{
    ith_dit_workspace *run = p->run;
    const ith_dit_text *text = run->text;
    const int64_t key_bytes = 2 * p->dim * ith_dtype_bytes(run->type), entry = text->keys * key_bytes;
    const char *layer = (const char *)text->keys_values + p->layer * text->batch * entry;
    if (text->keys == run->keys)
        return layer;
    for (int64_t b = 0; b < text->batch; b++)
        memcpy((char *)run->padded + b * run->keys * key_bytes, layer + b * entry, (size_t)entry);
    return run->padded;
}

static ith_status attend_text(const pass *p)
{
    ith_dit_workspace *run = p->run;
    ith_attn_tensors t = {
        .struct_size = sizeof(ith_attn_tensors), .q = run->qkv, .o = run->o, .key_bias = run->padded_bias};
    t.k = text_layer(p);
    t.v = (const char *)t.k + p->dim * ith_dtype_bytes(run->type);
    return attend(p, "cross attention", run->cross_plan, &t);
}

#define LAYER_PARTS 5

/* One part more is left for what follows the layers: a pass that is shown as whole is whole. */
static void show_part(const pass *p, int part, ith_status status)
{
    if (!status)
        ith_span_show(p->context, &p->run->shown, p->layer * LAYER_PARTS + part,
                      p->run->dit->config.layers * LAYER_PARTS + 1);
}

static ith_status run_layer(const pass *p)
{
    modulate(p, p->block->modulation, ITH_DIT_MODULATIONS, p->run->e0, false);
    ith_status status = for_chunks(p, "qkv", before_self);
    show_part(p, 1, status);
    if (!status)
        status = attend_self(p);
    show_part(p, 2, status);
    if (!status)
        status = for_chunks(p, "project", after_self);
    show_part(p, 3, status);
    if (!status)
        status = attend_text(p);
    show_part(p, 4, status);
    if (!status)
        status = for_chunks(p, "ffn", after_cross);
    show_part(p, LAYER_PARTS, status);
    return status;
}

static ith_status run_layers(pass *p)
{
    const ith_dit *dit = p->run->dit;
    ith_status status = ITH_OK;
    for (p->layer = 0; p->layer < dit->config.layers && !status; p->layer++) {
        p->block = &dit->blocks[p->layer];
        double traced = ith_trace_begin(p->context);
        status = run_layer(p);
        ith_trace_end(p->context, traced, "block", "compute");
        if (status == ITH_ERR_INTERRUPTED)
            ith_fail(p->context, status, "stopped in layer %lld of %lld", (long long)p->layer + 1,
                     (long long)dit->config.layers);
    }
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

static ith_status run_head(const pass *p, float *out)
{
    ith_dit_workspace *run = p->run;
    const int64_t width = run->dit->config.out_channels * PATCH;
    modulate(p, run->dit->head_modulation, 2, run->e, true);
    ith_status status = ITH_OK;
    for (int64_t first = 0; first < run->rows && !status; first += run->chunk) {
        int64_t count = ith_min64(run->chunk, run->rows - first);
        norm_modulated(p, first, count, 2, 0);
        status = ith_linear_run(p->context, run->dit->head, count, run->narrow, p->dim, out + first * width, width);
    }
    return status;
}

ith_status ith_dit_forward(ith_context *context, ith_dit_workspace *run, const float *tokens, const float *t,
                           float *out)
{
    const ith_dit *dit = run->dit;
    const int64_t width = dit->config.in_channels * PATCH;
    if (run->text->keys > run->keys || run->text->batch != run->shape.batch)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "a text of %lld prompts with %lld keys for a run made for %lld prompts with at most %lld",
                        (long long)run->text->batch, (long long)run->text->keys, (long long)run->shape.batch,
                        (long long)run->keys);
    pass p = {.context = context, .run = run, .dim = dit->config.dim, .eps = (float)dit->config.eps};
    ith_status status = embed_time(&p, t);
    if (!status)
        status = ith_linear_run(context, dit->patch, run->rows, tokens, width, run->x, p.dim);
    if (status)
        return status;
    show(&p, "patch_embedding", run->x, 0, run->rows, p.dim);
    status = run_layers(&p);
    return status ? status : run_head(&p, out);
}
