/* SPDX-License-Identifier: Apache-2.0 */
/* y = x w^T + b: the linear layers of a model. A row of y has the same bits whatever the other rows are, however many
 * there are, and however many threads compute them.
 *
 *   ith_linear_set         the layers of one model, and their sizes
 *   ith_linear             one layer: where its weights lie, and its bias
 *   ith_linear_workspace   scratch memory in which one rank applies any layer of a set, in an arena
 *
 * Weights stay where they are, usually in a mapped file. Applying a layer converts a block of them at a time and uses
 * it for a whole strip of rows (linear.c). Rows of x come from a function of the caller, and rows of y go to another,
 * so that the caller can fuse its own work on the rows with the product.
 *
 * A model is laid out twice by the same calls, first in an arena that only counts bytes. Applying a layer allocates
 * nothing. */
#ifndef ITH_LINEAR_LINEAR_H
#define ITH_LINEAR_LINEAR_H

#include "../base/arena.h"
#include "../base/context.h"
#include "../kernels/kernel.h"
#include "operand.h"

typedef struct ith_linear_set ith_linear_set;
typedef struct ith_linear ith_linear;

/* The largest number of matrices that form the weights of one layer. */
#define ITH_LINEAR_PARTS_MAX 3

/* A matrix of weights [rows, in], one row after the other, aligned to its type. */
typedef struct ith_linear_weight {
    const void *data;
    ith_dtype type; /* F32, BF16 or F16 */
    int64_t rows;
    const char *file; /* the name of the mapped file that holds the matrix; NULL: the matrix is in ordinary memory */
} ith_linear_weight;

/* Creates a set without layers. keeps_packed: the layers hold a converted copy of their weights in memory; otherwise
 * they read them anew whenever they are applied. Both give the same bits. The context must outlive the set. */
ith_status ith_linear_set_create(ith_context *context, bool keeps_packed, ith_linear_set **set);
/* Destroys a set of layers. NULL is accepted. */
void ith_linear_set_destroy(ith_linear_set **set);

/* Adds a layer from `in` to `out` features to the set, and takes its memory from the arena. Returns NULL while the
 * arena only counts bytes. Only one thread at a time may use the set. */
ith_linear *ith_linear_lay_out(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, ith_arena *arena);
/* The first failure of ith_linear_lay_out: illegal sizes or types, too little memory, or no product for this processor.
 * If it is ITH_OK after all layers were laid out in an arena that only counts, the same calls do not fail in an arena
 * with memory. */
ith_status ith_linear_set_status(const ith_linear_set *set);
/* Bytes that a set of layers allocates from the context, besides the memory that its layers take from an arena. */
int64_t ith_linear_set_bytes(const ith_linear_set *set);

/* Sets the weights of a layer: `count` matrices, one below the other, whose rows add up to `out`. They must outlive the
 * layer, and so must the names of their files. bias [out] is copied; NULL stands for zeros. If the set keeps packed
 * weights, they are converted now with the calling thread's OpenMP team, and the matrices need not live longer.
 * ITH_ERR_ARGUMENT for another type or another number of rows, ITH_ERR_IO if a file is cut while it is read. */
ith_status ith_linear_attach(ith_context *context, ith_linear *linear, const ith_linear_weight *parts, int count,
                             const float *bias);
/* The instructions that multiply the layer's weights, once they are set. */
ith_instructions ith_linear_instructions(const ith_linear *linear);
/* Asks the system to read the pages of the layer's weights from their files; does not wait for them. */
void ith_linear_prefetch(const ith_linear *linear);

/* The scratch memory with which one rank applies the layers of a set. */
typedef struct ith_linear_workspace {
    const ith_linear_set *set;
    int threads;
    int64_t strip;                      /* the most rows that are packed and multiplied together */
    int64_t panels_bytes, thread_bytes; /* sizes of the two members below */
    char *panels;                       /* packed rows of x, and packed hidden rows of a feed-forward network */
    char *memory;                       /* [threads][thread_bytes]: scratch memory of each thread */
} ith_linear_workspace;

/* Takes the memory of a workspace from the arena, for all layers that are in the set now and for teams of up to
 * `threads` threads. A layer may be applied to any number of rows; beyond `rows` it may become slower. */
void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *workspace);
/* The most rows that are packed and multiplied together, a strip. Row i may use slot i % strip of a caller's buffer
 * until its `finish` has returned. */
int64_t ith_linear_strip(const ith_linear_workspace *workspace);

/* Rows of x. row(user, i, space) returns row i as `in` numbers; it may compute them in space [in], which belongs to the
 * calling thread. It is called once for each row of an apply, by any thread. */
typedef struct ith_linear_input {
    const float *(*row)(const void *user, int64_t row, float *space);
    const void *user;
} ith_linear_input;

/* Rows of y. `take` gets columns [first, first + count) of one row, bias included. Every number comes once, from any
 * thread. `finish` (NULL: none) is called once for every row, by any thread, after the row's last `take` and before the
 * first `take` of the next strip. All rows of x of a strip are read before its first `take`, so that a row of y may
 * overwrite its row of x. */
typedef struct ith_linear_output {
    void (*take)(void *user, int64_t row, int64_t first, int64_t count, const float *y);
    void (*finish)(void *user, int64_t row);
    void *user;
} ith_linear_output;

/* Rows of x or y in a matrix, `stride` numbers apart. They must outlive the input or output that is made of them. */
typedef struct ith_linear_rows {
    float *data;
    int64_t stride;
} ith_linear_rows;
ith_linear_input ith_linear_from_rows(const ith_linear_rows *rows);
ith_linear_output ith_linear_to_rows(ith_linear_rows *rows);

/* Computes y = x w^T + b for `rows` rows with the calling thread's OpenMP team. Ranks may apply a layer at the same
 * time, each in a workspace of its own. Returns ITH_ERR_INTERRUPTED soon after the context is interrupted, and
 * ITH_ERR_IO if a file was cut while its weights were read; y is then unfinished. */
ith_status ith_linear_apply(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                            int64_t rows, const ith_linear_input *x, const ith_linear_output *y);
/* The same for matrices x [rows, in] and y [rows, out], which must not overlap. */
ith_status ith_linear_apply_rows(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                                 int64_t rows, const float *x, float *y);

/* A feed-forward network: y = down(act(up x)), or y = down(act(up x) * (gate x)) if gate is not NULL. up and gate have
 * the same sizes and types, and down has the same types. act computes n numbers, each from one number:
 * rowops->gelu_tanh for example. */
typedef struct ith_feed_forward {
    const ith_linear *up, *gate, *down;
    void (*act)(float *y, const float *x, int64_t n);
} ith_feed_forward;

/* Computes a feed-forward network as ith_linear_apply computes a layer. The hidden rows exist for one strip at a time,
 * as packed operands of `down`. */
ith_status ith_feed_forward_apply(ith_context *context, const ith_feed_forward *network,
                                  const ith_linear_workspace *workspace, int64_t rows, const ith_linear_input *x,
                                  const ith_linear_output *y);

#endif
