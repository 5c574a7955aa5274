/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of an expert and the keys of a text, for the files of the transformer. */
#ifndef ITH_WAN_DIT_WEIGHTS_H
#define ITH_WAN_DIT_WEIGHTS_H

#include "../weights.h"
#include "dit.h"

/* Rows of modulation tables, of self-attention (SA) and feed-forward (FF): y = LN(x) (1 + scale) + shift, x += gate
 * f(y). */
enum { ITH_DIT_SHIFT_SA, ITH_DIT_SCALE_SA, ITH_DIT_GATE_SA, ITH_DIT_SHIFT_FF, ITH_DIT_SCALE_FF, ITH_DIT_GATE_FF };
#define ITH_DIT_MODULATIONS 6

typedef struct ith_dit_layer {
    ith_linear *qkv;       /* dim to 3 dim: q, k, v */
    ith_linear *self_out;  /* dim to dim */
    ith_linear *cross_q;   /* dim to dim */
    ith_linear *cross_kv;  /* dim to 2 dim: k, v */
    ith_linear *cross_out; /* dim to dim */
    ith_linear *ffn_up, *ffn_down;
    float *modulation;                  /* [6, dim] */
    float *self_norm_q, *self_norm_k;   /* [dim] */
    float *cross_norm_q, *cross_norm_k; /* [dim] */
    float *cross_weight, *cross_bias;   /* [dim], of the norm before the cross attention */
} ith_dit_layer;

struct ith_dit {
    ith_dit_config config;
    ith_number_types types;
    ith_linear *patch;           /* 4 in_channels to dim */
    ith_linear *time_1, *time_2; /* freq_dim to dim to dim */
    ith_linear *time_proj;       /* dim to 6 dim */
    ith_linear *text_1, *text_2; /* text_dim to dim to dim */
    ith_linear *head;            /* dim to 4 out_channels, in the order (channel, patch row, patch column) */
    float *head_modulation;      /* [2, dim]: shift, scale */
    ith_weights_memory memory;   /* without an arena in an outline */
    ith_dit_layer layers[];      /* [config.layers] */
};

/* Keys that a prompt of `rows` rows has: its own, and one for all the padding. */
static inline int64_t ith_dit_text_keys(int64_t rows)
{
    return rows < ITH_DIT_TEXT_LEN ? rows + 1 : ITH_DIT_TEXT_LEN;
}

struct ith_dit_text {
    int64_t batch, keys; /* keys of every entry; those beyond the prompt's own have a bias of -infinity */
    void *keys_values;   /* [layers][batch][keys][2 dim]: k normalised, v; in the type of attention */
    float *key_bias;     /* [batch][keys] */
};

/* The text embedding alone: out = w_2 gelu(w_1 rows + b_1) + b_2. rows [count, text_dim]; hidden, out [count, dim]. */
ith_status ith_dit_embed_text(ith_context *context, const ith_dit *dit, const ith_linear_workspace *workspace,
                              int64_t count, const float *rows, float *hidden, float *out);

#endif
