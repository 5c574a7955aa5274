/* SPDX-License-Identifier: Apache-2.0 */
/* An expert on a device: its weights, which the ranks of a process share, and the memory of each rank there. The
 * expert's ith_dit stays the source of the weights, and computes the time embedding and the prompts' keys on the
 * processor.
 *
 * If the device lacks room for all layers, some are streamed: their weights lie in pinned memory of the host, and every
 * pass copies them, one after the other, to one of two slots of the rank on the device (dit_slots.c). They lie evenly
 * among the other layers, so that each copy has the time of several layers.
 *
 * Matrices, activations, q, k, v and o are bf16 or f32, as the expert's number types say. The residual stream x, the
 * patch embedding and the last layer are f32. */
#ifndef ITH_WAN_DIT_DEVICE_H
#define ITH_WAN_DIT_DEVICE_H

#include "../../../kernels/device_use.h"
#include "../dit_workspace.h"

/* Takes memory of a device from an arena, aligned for matrix products. */
static inline void *ith_device_take(ith_arena *arena, int64_t count, int64_t size_bytes)
{
    int64_t bytes;
    if (!ith_size_mul(count, size_bytes, &bytes) || bytes > INT64_MAX - 256) {
        arena->overflow = true;
        return NULL;
    }
    return ith_arena_take(arena, ith_round_up(bytes, 256), 1);
}

enum { ITH_DIT_SLOTS = 2 }; /* slots of a rank on the device for streamed layers */

/* A linear layer on the device. */
typedef struct ith_device_matrix {
    int64_t in, out;
    ith_dtype type; /* of w and bias */
    void *w, *bias; /* [out, in], [out] */
} ith_device_matrix;

/* The weights of a layer. Vectors have the same names as in ith_dit_layer. */
typedef struct ith_dit_device_layer {
    ith_device_matrix linears[ITH_DIT_LINEARS];      /* in the order of ith_dit_layer_linears */
    float *self_norm_q, *self_norm_k, *cross_norm_q; /* [dim] */
    float *cross_weight, *cross_bias;                /* [dim]; NULL: cross-attention reads rows as they are */
} ith_dit_device_layer;

enum { ITH_DIT_QKV, ITH_DIT_SELF_OUT, ITH_DIT_CROSS_Q, ITH_DIT_CROSS_OUT, ITH_DIT_FFN_UP, ITH_DIT_FFN_DOWN };

/* The weights of an expert on a device. */
typedef struct ith_dit_device {
    ith_device_use *use;
    void *memory; /* of the device: everything but streamed layers */
    char *pinned; /* memory of the host: [streamed] layers of layer_bytes; NULL if none is streamed */
    int64_t bytes, layer_bytes;
    int64_t count, streamed; /* numbers of layers */
    ith_device_matrix patch, head;
    ith_dit_device_layer layers[]; /* [count]: in pinned memory if they are streamed, otherwise on the device */
} ith_dit_device;

/* The number of streamed layers among the first `index` of `count` layers, of which `streamed` are streamed in all. */
static inline int64_t ith_dit_streamed_before(int64_t count, int64_t streamed, int64_t index)
{
    return index * streamed / count;
}

static inline bool ith_dit_is_streamed(int64_t count, int64_t streamed, int64_t index)
{
    return ith_dit_streamed_before(count, streamed, index + 1) > ith_dit_streamed_before(count, streamed, index);
}

/* The slots of a rank on the device for streamed layers: while one is used, the next layer arrives in the other. */
typedef struct ith_dit_slots {
    void *memory;
    struct ith_device_stream *streams[ITH_DIT_SLOTS]; /* the copies to each slot; they wait for no other copy */
    ith_dit_device_layer layers[ITH_DIT_SLOTS];
    int64_t holds[ITH_DIT_SLOTS]; /* the number of the layer that is there or arrives; -1: none */
    int next;                     /* the slot of the next streamed layer */
} ith_dit_slots;

/* The stream and the arrays of a rank's passes. Arrays of the device, unless they are called pinned. */
typedef struct ith_dit_space {
    ith_device_use *use;
    struct ith_device_stream *stream;
    struct ith_device_products *products;
    ith_dit_slots slots;
    void *memory, *pinned_memory;
    float *x;               /* [rows, dim] */
    char *n;                /* [rows, dim]: the input of a product (normed rows, or o), or the output of the FFN */
    char *work;             /* [rows, widest]: q, k, v; hidden rows; outputs of products; first, the patches */
    float *cosines, *sines; /* [share, head_dim / 2] */
    float *modulation;      /* [layers, times, 6, dim], then [times, 2, dim] for the last layer */
    float *pinned_modulation, *pinned_patches, *pinned_out; /* out: [rows, out_channels * 4] */
} ith_dit_space;

/* The number type of an expert's matrices and activations on the device. */
static inline ith_dtype ith_dit_device_type(const ith_dit *dit)
{
    return dit->types.attention;
}

/* Copies the weights of an open expert to the device that the context uses, except for `streamed` layers, whose weights
 * it copies to pinned memory. Shows progress as ITH_STAGE_LOAD if `shows`. ITH_ERR_MEMORY if the device has too little
 * free memory: the message names the bytes needed and free. ITH_ERR_UNSUPPORTED if the device's module computes
 * attention only. */
ith_status ith_dit_device_open(ith_context *context, const ith_dit *dit, int64_t streamed, bool shows,
                               ith_dit_device **out);
void ith_dit_device_free(ith_context *context, ith_dit_device **device);
/* The bytes of the weights on the device, without streamed layers. dit: with or without weights. */
int64_t ith_dit_device_bytes(const ith_dit *dit, int64_t streamed);
/* The bytes of the weights of a layer on the device. */
int64_t ith_dit_device_layer_bytes(const ith_dit *dit);
/* Lays out the weights of a layer in memory of the device, or of the host. */
void ith_dit_device_lay_out_layer(const ith_dit *dit, ith_arena *arena, ith_dit_device_layer *layer);

/* Makes the slots for streamed layers; does nothing if the expert has none. After a failure, too, the caller calls
 * ith_dit_slots_free. */
ith_status ith_dit_slots_create(ith_context *context, const ith_dit *dit, ith_dit_slots *slots);
void ith_dit_slots_free(const ith_device_use *use, ith_dit_slots *slots);
/* Before the rank's stream gets the work of layer `index`: makes it wait until the layer is there, and begins to copy
 * the next streamed layer. */
ith_status ith_dit_slots_turn(ith_context *context, const ith_dit_device *device, ith_dit_space *space, int64_t index);
/* The weights of layer `index` on the device, after ith_dit_slots_turn. */
const ith_dit_device_layer *ith_dit_slots_layer(const ith_dit_device *device, const ith_dit_slots *slots,
                                                int64_t index);

/* Copies the keys and values of a text to the device of its expert: ITH_TEXT_LEN rows of each prompt, as in the
 * reference. The rows of padding are equal. On the processor one key with a bias stands for them, but the fastest
 * kernels of devices take no biases. */
ith_status ith_dit_device_take_text(ith_context *context, const ith_dit *dit, ith_dit_text *text);
/* The bytes of the device that the copy of `batch` prompts takes. */
int64_t ith_dit_device_text_bytes(const ith_dit *dit, int64_t batch);
/* Frees the copy, if there is one. */
void ith_dit_device_drop_text(ith_dit_text *text);

/* Makes w->device, for a workspace that is complete except for its plans. */
ith_status ith_dit_space_create(ith_context *context, ith_dit_workspace *w);
void ith_dit_space_free(ith_context *context, ith_dit_space **space);
/* The bytes of the device that a rank with a workspace of these sizes takes, without its plans. */
int64_t ith_dit_space_bytes(const ith_dit_workspace *sizes);

#endif
