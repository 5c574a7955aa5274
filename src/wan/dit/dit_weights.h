/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an expert (ith_dit), and of the keys and values of prompts (ith_dit_text) and of images
 * (ith_dit_image), for the files of this folder. */
#ifndef ITH_WAN_DIT_WEIGHTS_H
#define ITH_WAN_DIT_WEIGHTS_H

#include "../part/weights.h"
#include "dit.h"

/* Rows of a modulation table, for self-attention (SA) and the feed-forward network (FF). A stage f computes y = LN(x)
 * (1 + scale) + shift, then x += gate f(y). */
enum { ITH_DIT_SHIFT_SA, ITH_DIT_SCALE_SA, ITH_DIT_GATE_SA, ITH_DIT_SHIFT_FF, ITH_DIT_SCALE_FF, ITH_DIT_GATE_FF };
#define ITH_DIT_MODULATIONS 6

/* The weights of one layer. The comment of a linear layer gives its input and output width. */
typedef struct ith_dit_layer {
    ith_linear *qkv;                    /* dim to 3 dim: q, k, v of self-attention */
    ith_linear *self_out;               /* dim to dim, after self-attention */
    ith_linear *cross_q;                /* dim to dim: q of cross-attention */
    ith_linear *cross_kv;               /* dim to 2 dim: k, v of cross-attention */
    ith_linear *cross_out;              /* dim to dim, after cross-attention */
    ith_linear *ffn_up, *ffn_down;      /* dim to ffn_dim, and ffn_dim to dim: the feed-forward network */
    float *modulation;                  /* [6, dim]: learnt shift, scale, gate of self-attention; then of the FFN */
    float *self_norm_q, *self_norm_k;   /* [dim], scales of the RMSNorm of q and of k */
    float *cross_norm_q, *cross_norm_k; /* [dim], scales of the RMSNorm of q and of k */
    float *cross_weight, *cross_bias;   /* [dim], of the norm before cross-attention; NULL: there is none */
    ith_linear *cross_image_kv;         /* dim to 2 dim: k, v of images in cross-attention; NULL: without image_dim */
    float *cross_image_norm_k;          /* [dim], scales of the RMSNorm of these k; NULL: without image_dim */
} ith_dit_layer;

/* The number of linear layers of a transformer block whose weights every forward pass reads. The weights of cross_kv
 * are read once for each prompt, and the weights of cross_image_kv once for each video. */
#define ITH_DIT_LINEARS 6

/* Lists these linear layers, in the order in which a pass reads them. */
static inline void ith_dit_layer_linears(const ith_dit_layer *layer, ith_linear *linears[ITH_DIT_LINEARS])
{
    linears[0] = layer->qkv, linears[1] = layer->self_out, linears[2] = layer->cross_q;
    linears[3] = layer->cross_out, linears[4] = layer->ffn_up, linears[5] = layer->ffn_down;
}

/* An expert. */
struct ith_dit {
    ith_dit_config config;
    ith_number_types types;
    ith_linear_keep keep;          /* the layers that keep their weights */
    ith_linear *patch;             /* the patch embedding: from 4 * in_channels values to dim values */
    ith_linear *time_1, *time_2;   /* freq_dim to dim, and dim to dim: the time embedding */
    ith_linear *time_proj;         /* from dim to 6 * dim values: shifts, scales and gates from the time embedding */
    ith_linear *text_1, *text_2;   /* text_dim to dim, and dim to dim: the text embedding */
    ith_linear *image_1, *image_2; /* image_dim to image_dim, and to dim: the image embedding; NULL without image_dim */
    /* [image_dim] and [dim]: weight and bias of the norms before and after the image embedding */
    float *image_norm_1[2], *image_norm_2[2];
    float *image_positions;        /* [image_rows, image_dim]: added to the rows of images; NULL: nothing is added */
    ith_linear *head;              /* from dim to 4 * out_channels values, ordered (channel, patch row, patch column) */
    float *head_modulation;        /* [2, dim]: shift and scale before the last layer */
    struct ith_device_use *use;    /* the device that computes the layers of this expert; NULL: the processor */
    struct ith_dit_device *device; /* the weights on it (device/dit_device.h); NULL: there are none */
    ith_weights_memory memory;     /* memory.arena is NULL if ith_dit_outline has made the expert */
    ith_dit_layer layers[];        /* [config.layers], in the order of the computation */
};

/* The number of keys of a prompt with `rows` rows: one key for each row and, if the prompt is padded, one key for all
 * rows of padding. */
static inline int64_t ith_dit_text_keys(int64_t rows)
{
    return rows < ITH_TEXT_LEN ? rows + 1 : ITH_TEXT_LEN;
}

/* The keys and values of prompts in every layer. */
struct ith_dit_text {
    int64_t batch, keys; /* keys: in each batch entry; a shorter prompt ends in keys with a bias of -infinity */
    void *keys_values;   /* [layers][batch][keys][2 dim]: k after its norm, then v, in the number type of attention */
    float *key_bias;     /* [batch][keys]: a number added to the logits of each key */
    struct ith_device_use *use; /* the device that has a copy of keys_values, on_device; NULL: there is none */
    void *on_device;
};

/* The keys and values of images in every layer. */
struct ith_dit_image {
    int64_t rows;
    void *keys_values; /* [layers][rows][2 dim]: k after its norm, then v, in the number type of attention */
};

/* Computes the text embedding: out [count, dim] = w_2 gelu(w_1 rows + b_1) + b_2. rows: `count` rows of text_dim
 * numbers. */
ith_status ith_dit_embed_text(ith_context *context, const ith_dit *dit, const ith_linear_workspace *workspace,
                              int64_t count, const ith_linear_input *rows, float *out);

#endif
