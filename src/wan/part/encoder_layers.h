/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer layers of an encoder, of umT5 and of CLIP. x [rows, dim] passes through each of them:
 *
 *     n = norm(x)
 *     x = x + o(attention(q(n), k(n), v(n)))
 *     n = norm(x)
 *     x = x + down(act(up(n)))              or, with a gate, x + down(act(up(n)) * gate(n))
 *
 * Between two products, a row passes over memory once: it is normalised while a linear layer packs it, and added to x
 * when a linear layer has computed it. The encoder names the weights and computes the attention. */
#ifndef ITH_WAN_ENCODER_LAYERS_H
#define ITH_WAN_ENCODER_LAYERS_H

#include "../../base/observer.h"
#include "../../kernels/rowops.h"
#include "../../linear/linear.h"
#include "work.h"

/* The weight and the bias [dim] of a layer norm, or the weight of an RMS norm, whose bias is NULL. */
typedef struct ith_encoder_norm {
    float *weight, *bias;
} ith_encoder_norm;

/* The weights of one layer. The comment of a linear layer gives its input and output width. */
typedef struct ith_encoder_layer {
    ith_linear *qkv;                           /* dim to 3 inner */
    ith_linear *o;                             /* inner to dim */
    ith_linear *up, *gate;                     /* dim to ffn_dim; gate NULL: none */
    ith_linear *down;                          /* ffn_dim to dim */
    ith_encoder_norm attention_norm, ffn_norm; /* before the attention and before the feed-forward network */
    float *bias_table;                         /* numbers that the attention of this layer needs; NULL: none */
} ith_encoder_layer;

/* One run through the layers. All memory belongs to the caller. */
typedef struct ith_encoder_run {
    const char *name; /* of the encoder, such as "text encoder", for messages */
    const ith_rowops *rowops;
    const ith_linear_workspace *linears;
    int64_t rows, dim, inner;
    float eps; /* of the norms */
    void (*act)(float *y, const float *x, int64_t n);
    /* Computes the attention of a layer, and overwrites q with o. qkv: [rows, 3 inner], the rows of q, k and v side by
     * side. */
    ith_status (*attend)(const void *user, const ith_encoder_layer *layer, float *qkv);
    const void *user;
    float *x;   /* [rows, dim] */
    float *qkv; /* [rows, 3 inner]: scratch memory */
} ith_encoder_run;

/* Passes x through `count` layers. Each layer is one part of the progress `span`; the caller's own work has
 * parts_before parts before the layers, and parts_after behind them. The message of an interruption names the layer. */
ith_status ith_encoder_layers_apply(ith_context *context, ith_encoder_run *run, const ith_encoder_layer *layers,
                                    int64_t count, const ith_span *span, int64_t parts_before, int64_t parts_after);
/* Normalises one row of x in place. */
void ith_encoder_normalise(const ith_encoder_run *run, const ith_encoder_norm *norm, int64_t row);
/* Lists the products of the linear layers of a layer, each done `times` times for `rows` rows. */
void ith_encoder_layer_list(const ith_encoder_layer *layer, const char *stage, double times, int64_t rows,
                            const ith_work_list *list);

#endif
