/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a forward pass on a device (dit_pass.h). Work is enqueued to the rank's stream; the host waits for it
 * in attention, and at the end.
 *
 * The rows of three buffers change their meaning from stage to stage, so that a rank takes little memory:
 *
 *   x     the residual stream
 *   n     LN(x) ...      -> o -> LN(x) ...      -> o -> LN(x) ... -> down's output -> LN(x) ... of the next layer
 *   work  q, k, v -> projection of o, q of cross-attention -> projection of o -> hidden rows
 */
#include "../../../base/context.h"
#include "../../../base/trace.h"
#include "../dit_pass.h"
#include "dit_device.h"

#include <string.h>

typedef ith_dit_pass pass;

static const ith_dit_device_layer *layer_of(const pass *p)
{
    return ith_dit_slots_layer(p->w->dit->device, &p->w->device->slots, p->index);
}

static int64_t element(const pass *p)
{
    return ith_dtype_bytes(p->w->type);
}

static const ith_device_layers *operations(const pass *p)
{
    return p->w->device->use->module->layers;
}

/* Ends a stage: while a trace is recorded, waits, so that the trace shows the time of the stage. */
static ith_status settle(const pass *p, ith_status status)
{
    if (!status)
        status = ith_context_check(p->context);
    if (!status && (ith_context_trace(p->context) || p->w->watch))
        status = ith_device_wait(p->context, p->w->device->stream, NULL, NULL);
    return status;
}

/* ---- Operations ------------------------------------------------------------------------------------------------ */

/* y = x w^T + b for all rows of this rank. Strides are in numbers. */
static ith_status multiply(const pass *p, const ith_device_matrix *m, const void *x, int64_t x_stride, void *y,
                           bool gelu)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_dit_space *s = p->w->device;
    const ith_device_linear call = {.rows = p->w->rows,
                                    .in = m->in,
                                    .out = m->out,
                                    .type = m->type,
                                    .y_type = m->type,
                                    .x = x,
                                    .x_stride = x_stride,
                                    .w = m->w,
                                    .bias = m->bias,
                                    .gelu = gelu,
                                    .y = y,
                                    .y_stride = m->out};
    return ith_device_check(p->context, operations(p)->linear(s->stream, s->products, &call, said), said);
}

/* Vector `kind` of a layer's shifts, scales and gates for each time step. */
static ith_device_vectors modulation(const pass *p, int64_t index, int kind)
{
    const int64_t layer = ith_dit_time_rows(&p->w->shape) * ITH_DIT_MODULATIONS * p->dim;
    return (ith_device_vectors){p->w->device->modulation + index * layer + kind * p->dim, ITH_DIT_MODULATIONS * p->dim};
}

/* A vector of the last layer: its shift or its scale. */
static ith_device_vectors head_modulation(const pass *p, int kind)
{
    const int64_t layers = p->w->dit->config.layers, times = ith_dit_time_rows(&p->w->shape);
    return (ith_device_vectors){
        p->w->device->modulation + layers * times * ITH_DIT_MODULATIONS * p->dim + kind * p->dim, 2 * p->dim};
}

/* An update of the rows x by y (NULL: none), without a norm. */
static ith_device_row_update update_of(const pass *p, const void *y, ith_device_vectors gate)
{
    const ith_dit_workspace *w = p->w;
    return (ith_device_row_update){.rows = w->rows,
                                   .dim = p->dim,
                                   .x = w->device->x,
                                   .y = y,
                                   .y_type = w->type,
                                   .y_stride = p->dim,
                                   .gate = gate,
                                   .n_type = w->type,
                                   .n_stride = p->dim,
                                   .eps = (float)w->dit->config.eps,
                                   .begin = w->begin,
                                   .share = w->share,
                                   .known = w->shape.known};
}

/* Computes an update, with n = LN(x) a + b. */
static ith_status update(const pass *p, ith_device_row_update u, void *n, ith_device_vectors a, ith_device_vectors b)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    u.n = n, u.a = a, u.b = b;
    u.normed = a.first != NULL;
    return ith_device_check(p->context, operations(p)->update_rows(p->w->device->stream, &u, said), said);
}

/* The same with the shift and the scale of a stage of layer `index`; behind the last layer, with the
 * shift and the scale of the head, whose input is f32 and lies in `work`. */
static ith_status update_for(const pass *p, ith_device_row_update u, int64_t index, int shift)
{
    const ith_dit_space *s = p->w->device;
    if (index < p->w->dit->config.layers)
        return update(p, u, s->n, modulation(p, index, shift + 1), modulation(p, index, shift));
    u.n_type = ITH_F32;
    return update(p, u, s->work, head_modulation(p, 1), head_modulation(p, 0));
}

static ith_status norm_heads(const pass *p, int64_t parts, int normed, const float *first, const float *second,
                             bool rope)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_dit_workspace *w = p->w;
    const ith_dit_config *c = &w->dit->config;
    const ith_device_heads call = {.rows = w->rows,
                                   .heads = c->heads,
                                   .head_dim = c->head_dim,
                                   .type = w->type,
                                   .data = w->device->work,
                                   .stride = parts * c->dim,
                                   .normed = normed,
                                   .weights = {first, second},
                                   .cosines = rope ? w->device->cosines : NULL,
                                   .sines = w->device->sines,
                                   .tokens = w->share,
                                   .eps = (float)c->eps};
    return ith_device_check(p->context, operations(p)->norm_heads(w->device->stream, &call, said), said);
}

/* ---- For tests ------------------------------------------------------------------------------------------------- */

/* Copies rows of the device to the memory of the function that watches. */
static ith_status fetch(const pass *p, const void *rows, ith_dtype type)
{
    const ith_dit_workspace *w = p->w;
    const int64_t count = w->rows * p->dim;
    char *to = (char *)w->watched + count * ((int64_t)sizeof(float) - ith_dtype_bytes(type));
    ith_status status = ith_device_copy(p->context, to, rows, count * ith_dtype_bytes(type));
    for (int64_t i = 0; i < count && !status && type == ITH_BF16; i++)
        w->ops->f32_from_bf16(w->watched + i, (const uint16_t *)(const void *)to + i, 1);
    return status;
}

static const float *rows_of(const pass *p)
{
    return fetch(p, p->w->device->x, ITH_F32) ? NULL : p->w->watched;
}

/* Shows the output of a stage to the function that watches, if there is one. */
static ith_status show(const pass *p, const char *part, const void *rows)
{
    ith_status status = ITH_OK;
    if (!p->w->watch)
        return ITH_OK;
    status = settle(p, status);
    if (!status)
        status = fetch(p, rows, p->w->type);
    if (!status)
        ith_dit_show_in_layer(p, part, p->w->watched);
    return status;
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

/* Computes the shifts, scales and gates of all layers, and sends them to the device. */
static ith_status send_modulation(const pass *p)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_dit_workspace *w = p->w;
    const ith_dit *dit = w->dit;
    const int64_t times = ith_dit_time_rows(&w->shape), layer = times * ITH_DIT_MODULATIONS * p->dim;
    float *to = w->device->pinned_modulation;
    for (int64_t i = 0; i < dit->config.layers; i++, to += layer)
        ith_dit_modulate(w, dit->layers[i].modulation, ITH_DIT_MODULATIONS, w->e0, false, to);
    ith_dit_modulate(w, dit->head_modulation, 2, w->e, true, to);
    const int64_t bytes = (dit->config.layers * layer + times * 2 * p->dim) * (int64_t)sizeof(float);
    return ith_device_check(p->context,
                            w->device->use->module->copy(w->device->stream, w->device->modulation,
                                                         w->device->pinned_modulation, bytes, said),
                            said);
}

/* x = patch embedding(rows);   n = the input of the first layer */
static ith_status embed(const pass *p, const ith_linear_input *rows)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_dit_workspace *w = p->w;
    const ith_dit_space *s = w->device;
    const ith_device_matrix *patch = &w->dit->device->patch;
    for (int64_t row = 0; row < w->rows; row++) {
        float *to = s->pinned_patches + row * patch->in;
        const float *from = rows->row(rows->user, row, to);
        if (from != to)
            memcpy(to, from, (size_t)patch->in * sizeof *to);
    }
    ith_status status = send_modulation(p);
    if (!status)
        status = ith_device_check(p->context,
                                  s->use->module->copy(s->stream, s->work, s->pinned_patches,
                                                       w->rows * patch->in * (int64_t)sizeof(float), said),
                                  said);
    if (!status)
        status = multiply(p, patch, s->work, patch->in, s->x, false);
    if (!status)
        status = update_for(p, update_of(p, NULL, (ith_device_vectors){0}), 0, ITH_DIT_SHIFT_SA);
    return settle(p, status);
}

/* qkv = w_qkv n + b_qkv, with RMSNorm and RoPE of q and k */
static ith_status make_qkv(const pass *p)
{
    ith_status status = ith_dit_slots_turn(p->context, p->w->dit->device, p->w->device, p->index);
    const ith_dit_device_layer *layer = layer_of(p);
    if (!status)
        status = multiply(p, &layer->linears[ITH_DIT_QKV], p->w->device->n, p->dim, p->w->device->work, false);
    if (!status)
        status = norm_heads(p, 3, 2, layer->self_norm_q, layer->self_norm_k, true);
    return settle(p, status);
}

/* Self-attention: o = softmax(q k^T / sqrt(head_dim)) v over the tokens of all ranks */
static ith_status attend_self(const pass *p)
{
    const ith_dit_space *s = p->w->device;
    const int64_t dim_bytes = p->dim * element(p);
    const ith_attn_tensors t = {.struct_size = sizeof t,
                                .q = s->work,
                                .k = s->work + dim_bytes,
                                .v = s->work + 2 * dim_bytes,
                                .o = s->n,
                                .stream = s->use->module->raw_stream(s->stream)};
    return ith_plan_execute(p->w->self_plan, &t);
}

/* x += gate_sa (w_o o + b_o);   q = RMSNorm(w_q (LN(x) w + b) + b_q), the q of cross-attention */
static ith_status add_self(const pass *p)
{
    const ith_dit_space *s = p->w->device;
    const ith_dit_device_layer *layer = layer_of(p);
    ith_status status = multiply(p, &layer->linears[ITH_DIT_SELF_OUT], s->n, p->dim, s->work, false);
    if (!status)
        status = show(p, ".attn1", s->work);
    if (!status)
        status = update(p, update_of(p, s->work, modulation(p, p->index, ITH_DIT_GATE_SA)), s->n,
                        (ith_device_vectors){layer->cross_weight, 0}, (ith_device_vectors){layer->cross_bias, 0});
    if (!status)
        status = multiply(p, &layer->linears[ITH_DIT_CROSS_Q], s->n, p->dim, s->work, false);
    if (!status)
        status = norm_heads(p, 1, 1, layer->cross_norm_q, NULL, false);
    return settle(p, status);
}

/* Cross-attention: o = softmax(q k^T / sqrt(head_dim)) v over the prompt's keys */
static ith_status attend_text(const pass *p)
{
    const ith_dit_space *s = p->w->device;
    const ith_dit_text *text = p->w->text;
    const int64_t dim_bytes = p->dim * element(p), layer = text->batch * ITH_TEXT_LEN * 2 * dim_bytes;
    const char *keys = (const char *)text->on_device + p->index * layer;
    const ith_attn_tensors t = {.struct_size = sizeof t,
                                .q = s->work,
                                .k = keys,
                                .v = keys + dim_bytes,
                                .o = s->n,
                                .stream = s->use->module->raw_stream(s->stream)};
    return ith_plan_execute(p->w->cross_plan, &t);
}

/* x += w_o o + b_o;   x += gate_ff FFN(LN(x) (1 + scale_ff) + shift_ff), with FFN(y) = w_2 gelu(w_1 y + b_1) + b_2.
 * n becomes the input of the next layer. */
static ith_status add_text_and_ffn(const pass *p)
{
    const ith_dit_space *s = p->w->device;
    const ith_device_matrix *linears = layer_of(p)->linears;
    ith_status status = multiply(p, &linears[ITH_DIT_CROSS_OUT], s->n, p->dim, s->work, false);
    if (!status)
        status = show(p, ".attn2", s->work);
    if (!status)
        status = update_for(p, update_of(p, s->work, (ith_device_vectors){0}), p->index, ITH_DIT_SHIFT_FF);
    if (!status)
        status = multiply(p, &linears[ITH_DIT_FFN_UP], s->n, p->dim, s->work, true);
    if (!status)
        status = multiply(p, &linears[ITH_DIT_FFN_DOWN], s->work, linears[ITH_DIT_FFN_DOWN].in, s->n, false);
    if (!status)
        status = show(p, ".ffn", s->n);
    if (!status)
        status =
            update_for(p, update_of(p, s->n, modulation(p, p->index, ITH_DIT_GATE_FF)), p->index + 1, ITH_DIT_SHIFT_SA);
    return settle(p, status);
}

/* The last layer: out = w_head (LN(x) (1 + scale) + shift) + b_head, whose input is in `work` */
static ith_status finish(const pass *p, float *out)
{
    char said[ITH_DEVICE_SENTENCE] = "";
    const ith_dit_space *s = p->w->device;
    const ith_device_matrix *head = &p->w->dit->device->head;
    const int64_t bytes = p->w->rows * head->out * (int64_t)sizeof *out;
    ith_status status = multiply(p, head, s->work, p->dim, s->n, false);
    if (!status)
        status = ith_device_check(p->context, s->use->module->copy(s->stream, s->pinned_out, s->n, bytes, said), said);
    if (!status)
        status = ith_device_wait(p->context, s->stream, NULL, NULL);
    if (!status)
        memcpy(out, s->pinned_out, (size_t)bytes);
    return status;
}

const ith_dit_engine ith_dit_device_engine = {
    .embed = embed,
    .stages = {make_qkv, attend_self, add_self, attend_text, add_text_and_ffn},
    .finish = finish,
    .rows = rows_of,
};
