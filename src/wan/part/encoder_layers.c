/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the layers of an encoder (encoder_layers.h). */
#include "encoder_layers.h"

/* ---- One layer ------------------------------------------------------------------------------------------------- */

/* The rows norm(x). */
typedef struct normed {
    const ith_encoder_run *run;
    const ith_encoder_norm *norm;
} normed;

/* The row function of ith_linear_input. */
static const float *normed_row(const void *user, int64_t row, float *space)
{
    const normed *n = user;
    const ith_encoder_run *r = n->run;
    const float *x = r->x + row * r->dim;
    if (n->norm->bias)
        r->rowops->layer_norm(space, x, n->norm->weight, n->norm->bias, r->dim, r->eps);
    else
        r->rowops->rms_norm(space, x, n->norm->weight, r->dim, r->eps);
    return space;
}

/* The take function of ith_linear_output: adds numbers of a row to x. */
static void add_to_x(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    const ith_encoder_run *r = user;
    r->rowops->add_gated(r->x + row * r->dim + first, y, NULL, count);
}

/* x += o(attention(q(n), k(n), v(n))), with n = norm(x) */
static ith_status add_attention(ith_context *context, ith_encoder_run *r, const ith_encoder_layer *layer)
{
    const normed n = {r, &layer->attention_norm};
    const ith_linear_rows x = {r->x, r->dim};
    ith_linear_rows qkv = {r->qkv, 3 * r->inner};
    const ith_linear_input normed_x = {normed_row, &n}, from_o = ith_linear_from_rows(&qkv);
    const ith_linear_output to_qkv = ith_linear_to_rows(&qkv), sum = {.take = add_to_x, .user = r, .rows = &x};
    ith_status status = ith_linear_apply(context, layer->qkv, r->linears, r->rows, &normed_x, &to_qkv);
    if (!status)
        status = r->attend(r->user, layer, r->qkv);
    return status ? status : ith_linear_apply(context, layer->o, r->linears, r->rows, &from_o, &sum);
}

/* x += down(act(up(n)) * gate(n)), with n = norm(x) */
static ith_status add_feed_forward(ith_context *context, ith_encoder_run *r, const ith_encoder_layer *layer)
{
    const ith_feed_forward network = {.up = layer->up, .gate = layer->gate, .down = layer->down, .act = r->act};
    const normed n = {r, &layer->ffn_norm};
    const ith_linear_rows x = {r->x, r->dim};
    const ith_linear_input normed_x = {normed_row, &n};
    const ith_linear_output sum = {.take = add_to_x, .user = r, .rows = &x};
    return ith_feed_forward_apply(context, &network, r->linears, r->rows, &normed_x, &sum);
}

void ith_encoder_normalise(const ith_encoder_run *run, const ith_encoder_norm *norm, int64_t row)
{
    normed_row(&(normed){run, norm}, row, run->x + row * run->dim);
}

/* ---- All layers ------------------------------------------------------------------------------------------------- */

#define LAYER_LINEARS 5 /* the most linear layers of a layer */

/* Lists the linear layers of a layer in the order of the computation. Returns their number. */
static int list_linears(const ith_encoder_layer *layer, const ith_linear *linears[LAYER_LINEARS])
{
    int count = 0;
    linears[count++] = layer->qkv, linears[count++] = layer->o, linears[count++] = layer->up;
    if (layer->gate)
        linears[count++] = layer->gate;
    linears[count++] = layer->down;
    return count;
}

/* Asks the system for the weights of a layer. */
static void prefetch(const ith_encoder_layer *layer)
{
    const ith_linear *linears[LAYER_LINEARS];
    const int count = list_linears(layer, linears);
    for (int i = 0; i < count; i++)
        ith_linear_prefetch(linears[i]);
}

ith_status ith_encoder_layers_apply(ith_context *context, ith_encoder_run *run, const ith_encoder_layer *layers,
                                    int64_t count, const ith_span *span, int64_t parts_before, int64_t parts_after)
{
    for (int64_t i = 0; i < count; i++) {
        if (i + 1 < count)
            prefetch(&layers[i + 1]);
        ith_status status = add_attention(context, run, &layers[i]);
        if (!status)
            status = add_feed_forward(context, run, &layers[i]);
        if (status == ITH_ERR_INTERRUPTED)
            return ith_fail(context, status, "stopped in layer %lld of %lld of the %s", (long long)i + 1,
                            (long long)count, run->name);
        if (status)
            return status;
        ith_span_show(context, span, parts_before + i + 1, parts_before + count + parts_after);
    }
    return ITH_OK;
}

void ith_encoder_layer_list(const ith_encoder_layer *layer, const char *stage, double times, int64_t rows,
                            const ith_work_list *list)
{
    const ith_linear *linears[LAYER_LINEARS];
    const int count = list_linears(layer, linears);
    for (int i = 0; i < count; i++)
        ith_work_take_linear(list, stage, times, rows, ith_linear_inputs(linears[i]), ith_linear_outputs(linears[i]));
}
