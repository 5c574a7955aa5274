/* SPDX-License-Identifier: Apache-2.0 */
/* The members of ith_dit_workspace: the buffers and attention plans of one rank. */
#ifndef ITH_WAN_DIT_WORKSPACE_H
#define ITH_WAN_DIT_WORKSPACE_H

#include "../../kernels/rowops.h"
#include "../part/work.h"
#include "dit_weights.h"

/* The buffers of one rank, and its plans. */
struct ith_dit_workspace {
    const ith_dit *dit;
    const ith_dit_text *text;
    const ith_rowops *ops;
    ith_dit_shape shape;
    ith_dtype type;             /* number type of q, k, v and o */
    int64_t begin, share, rows; /* first token and number of tokens of this rank; rows = batch * share */
    int64_t keys;               /* number of cross-attention keys in each batch entry, as cross_plan expects */
    int threads;
    ith_linear_workspace linears;
    ith_plan *self_plan, *cross_plan;
    const ith_dit_image *image; /* NULL: there are no images */
    ith_plan *image_plan;       /* attention to the images' keys, of one batch entry; NULL: there are no images */
    ith_dit_shards *shards;     /* loads the layers; NULL: they are read from their files */
    ith_comm *shards_comm;      /* the rank's communicator, for ith_dit_shards_begin */
    bool leads;                 /* this rank is the leader of its process */
    int64_t uses;               /* number of layers that this rank has computed since the workspace was made */
    float *x;                   /* [rows, dim], the residual stream */
    /* [rows, 3 dim]; later [rows, dim], the q of cross-attention. Attention overwrites q with o. Only the o of
     * attention to images, [rows, dim], lies behind q. */
    void *qkv;
    float *unrounded;       /* [strip of linears, 2 dim]: q and k before their norm; NULL if attention takes f32 */
    float *cosines, *sines; /* [share, head_dim / 2]: cosines and sines of RoPE's angles for this rank's tokens */
    float *e;               /* [times, dim]: the time embedding; times = ith_dit_time_rows */
    float *e0;              /* [times, 6 dim]: shifts, scales, gates from the time step, without a layer's table */
    float *modulation;      /* [times, 6, dim]: shifts, scales and gates of the current layer; later [times, 2, dim] */
    void *padded;           /* [batch, keys, 2 dim]: a layer's k and v, if the prompts have fewer keys than the plan */
    float *padded_bias;     /* [batch, keys]: biases of the prompts' keys; -infinity for keys beyond a prompt's end */
    struct ith_dit_space *device; /* this rank's memory on the device of the expert, instead of x, qkv, unrounded and
                                     padded; NULL: the processor computes */
    ith_span shown;               /* the part of the progress that the next pass accounts for */
    ith_dit_watch_fn watch;       /* gets the output of every stage, for tests; NULL: there is none */
    void *watch_user;
    float *watched; /* [rows, dim], the memory in which `watch` gets the output of a stage in a layer */
};

/* Describes the self-attention and the cross-attention of a pass of rank `rank` of `ranks`, for prompts of at most
 * shape->longest_text rows. Returns the number of rows that the rank computes. */
int64_t ith_dit_problems(const ith_dit *dit, const ith_dit_shape *shape, int ranks, int rank, ith_attn_problem *self,
                         ith_attn_problem *cross);
/* Describes the attention of one batch entry to shape->image_rows keys of images. */
ith_attn_problem ith_dit_image_problem(const ith_dit *dit, const ith_dit_shape *shape);

/* Lists the work of one layer in a pass of rank `rank` of `ranks`. The items of attention describe the attention of all
 * ranks. dit: with or without weights, and with one layer or more. */
void ith_dit_list_layer(const ith_dit *dit, const ith_dit_shape *shape, int ranks, int rank, const ith_work_list *list);
/* Lists the work of a pass before the first layer and after the last one. */
void ith_dit_list_ends(const ith_dit *dit, const ith_dit_shape *shape, int ranks, int rank, const ith_work_list *list);
/* Lists the work of ith_dit_text_create in an expert of `layers` layers, for `batch` prompts of at most `longest`
 * rows. */
void ith_dit_list_text(const ith_dit *dit, int64_t layers, int64_t batch, int64_t longest, const ith_work_list *list);
/* Lists the work of ith_dit_image_create in an expert of `layers` layers, for `rows` rows; nothing for 0 rows. */
void ith_dit_list_image(const ith_dit *dit, int64_t layers, int64_t rows, const ith_work_list *list);

/* The number of time steps in a pass: one for each batch entry. With known tokens, each is followed by time step 0. */
static inline int64_t ith_dit_time_rows(const ith_dit_shape *shape)
{
    return shape->batch * (shape->known ? 2 : 1);
}

/* Computes w->e and w->e0 from the time steps t [batch]. */
ith_status ith_dit_embed_time(ith_context *context, const ith_dit_workspace *w, const float *t);
/* Computes the shifts, scales and gates of a layer: modulation [times, kinds, dim] = table [kinds, dim] + e, plus 1 for
 * scales. With one_e, e is [times, dim], otherwise [times, kinds, dim]. */
void ith_dit_modulate(const ith_dit_workspace *w, const float *table, int kinds, const float *e, bool one_e,
                      float *modulation);

#endif
