/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the keys and values of cross-attention in every layer, from embedded rows of a text or of images. */
#ifndef ITH_WAN_DIT_KEYS_H
#define ITH_WAN_DIT_KEYS_H

#include "../../kernels/rowops.h"
#include "dit_weights.h"

/* The embedded rows, and the buffers of a call of ith_dit_keys_make. */
typedef struct ith_dit_key_maker {
    ith_context *context;
    const ith_dit *dit;
    const ith_rowops *ops;
    int64_t rows;
    float *embedded;  /* [rows, dim]: the rows from which keys and values are made; the caller computes them */
    float *unrounded; /* [strip of linears, dim]: keys before their norm; NULL if attention takes f32 */
    ith_linear_workspace linears;
} ith_dit_key_maker;

/* A maker for `rows` rows, without its buffers. */
ith_dit_key_maker ith_dit_key_maker_of(ith_context *context, const ith_dit *dit, int64_t rows);
/* Lays out the buffers, for teams of the calling thread's number of OpenMP threads. */
void ith_dit_key_maker_lay_out(ith_dit_key_maker *maker, ith_arena *arena);
/* The bytes of the keys and values of `rows` rows in all layers. */
int64_t ith_dit_key_bytes(const ith_dit *dit, int64_t rows);

/* The linear layer and the norm that make keys and values in a layer. */
typedef struct ith_dit_key_weights {
    ith_linear *kv;      /* dim to 2 dim: k, v */
    const float *norm_k; /* [dim], the scales of the RMSNorm of k */
} ith_dit_key_weights;
typedef ith_dit_key_weights (*ith_dit_key_weights_fn)(const ith_dit_layer *layer);

/* Computes k = RMSNorm(w_k y) and v = w_v y of every layer from the embedded rows y, with the weights that `weights`
 * returns for a layer. keys_values: [layers][rows][2 dim], in the number type of attention. */
ith_status ith_dit_keys_make(const ith_dit_key_maker *maker, ith_dit_key_weights_fn weights, void *keys_values);

#endif
