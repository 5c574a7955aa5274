/* SPDX-License-Identifier: Apache-2.0 */
/* y = x w^T + b: the linear layers of a model. The bits of a row of y do not depend on the other rows, on their number,
 * or on the number of threads.
 *
 *   ith_linear_set         the layers of one model, and their sizes
 *   ith_linear             one layer: where its weights lie, and its bias
 *   ith_linear_workspace   scratch memory in which one rank applies any layer of a set, in an arena
 *
 * Weights stay where they are, usually in a mapped file. Applying a layer converts a block of them at a time and uses
 * it for a whole strip of rows (linear_apply.c). Rows of x come from a function of the caller, and rows of y go to
 * another. So the caller can fuse its own work on the rows with the product.
 *
 * A matrix w [out, in] may have low-rank additions (LoRA, arXiv:2106.09685): y = (w + factor up down) x. They are
 * computed in one of two ways:
 *
 *   - As separate products, t = factor down x and then up t. For rank r they take the share r / in + r / out of the
 *     layer's operations.
 *   - Merged, in small layers, where this share is large: w + factor up down is computed once for each application of
 *     the layer, or once for all applications if the set keeps it. The time is the time of the layer's products for r
 *     rows in f32. If the sums become bf16, they are rounded stochastically (linear_left.c). Kernels that multiply f32
 *     as sums of bf16 never merge low-rank additions.
 *
 * Dense additions are always merged.
 *
 * The same calls lay out a model twice, first in an arena that only counts bytes. Applying a layer allocates nothing.
 */
#ifndef ITH_LINEAR_LINEAR_H
#define ITH_LINEAR_LINEAR_H

#include "../base/arena.h"
#include "../base/context.h"
#include "../kernels/kernel.h"
#include "operand.h"

typedef struct ith_linear_set ith_linear_set;
typedef struct ith_linear ith_linear;

/* The largest number of matrices that form the weights of one layer (q, k and v make three). */
#define ITH_LINEAR_MATRICES_MAX 3

/* A matrix of weights [rows, in], one row after the other. F32, BF16 and F16 are aligned to their type. */
typedef struct ith_linear_weight {
    const void *data;
    ith_dtype type; /* F32, BF16, F16, or a quantised type (kernels/unpack.h) whose quantisation blocks divide `in` */
    int64_t rows;
    const char *file;   /* the name of the mapped file that holds the matrix; NULL: the matrix is in ordinary memory */
    const float *scale; /* factors of the weights of a quantised type, in ordinary memory; NULL: none */
    int64_t scale_stride; /* row i has the factor scale[i * scale_stride]: 1, or 0 for one factor of all rows */
} ith_linear_weight;

/* An addition to one matrix of a layer: the matrix becomes w + factor up down. If down has no rows, the addition is
 * dense: the matrix becomes w + factor up. */
typedef struct ith_linear_addition {
    int matrix;             /* number of the matrix in the layer */
    ith_linear_weight down; /* [rank, in] */
    ith_linear_weight up;   /* [rows of the matrix, rank], or [rows of the matrix, in] */
    float factor;
} ith_linear_addition;

/* The layers of a set that hold a converted copy of their weights in memory. Other layers read and convert their
 * weights whenever they are applied. The results have the same bits. */
typedef enum ith_linear_keep {
    ITH_LINEAR_KEEP_NONE,
    ITH_LINEAR_KEEP_ALL,
    ITH_LINEAR_KEEP_MERGED, /* layers with merged low-rank additions */
} ith_linear_keep;

/* Creates a set without layers. The context must outlive the set. */
ith_status ith_linear_set_create(ith_context *context, ith_linear_keep keep, ith_linear_set **set);
/* Destroys a set of layers. NULL is accepted. */
void ith_linear_set_destroy(ith_linear_set **set);

/* Adds a layer of `in` inputs and `out` outputs to the set, and takes its memory from the arena. Returns NULL while the
 * arena only counts bytes. Only one thread at a time may use the set. */
ith_linear *ith_linear_lay_out(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, ith_arena *arena);
/* As ith_linear_lay_out, for a layer with additions. Reads the matrix, down.rows and up.rows of each addition; the
 * other members may be zeros. */
ith_linear *ith_linear_lay_out_with(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types,
                                    const ith_linear_addition *additions, int64_t count, ith_arena *arena);
/* The first failure of ith_linear_lay_out and of ith_linear_lay_out_with: illegal sizes or types, too little memory, or
 * a processor that cannot multiply these types. If it is ITH_OK after all layers were laid out in an arena that only
 * counts bytes, the same calls do not fail in an arena with memory. */
ith_status ith_linear_set_status(const ith_linear_set *set);
/* Bytes that a set of layers allocates from the context, besides the memory that its layers take from an arena. */
int64_t ith_linear_set_bytes(const ith_linear_set *set);

/* Sets the weights of a layer: `count` matrices, one below the other, whose rows add up to `out`. The matrices and the
 * names of their files must outlive the layer. bias [out] is copied; NULL stands for zeros. If the set keeps the
 * layer's weights, this function converts them with the calling thread's OpenMP team. For a layer with merged additions
 * ith_linear_add converts them. After the conversion the caller may free the matrices. Returns ITH_ERR_ARGUMENT for
 * another type or another number of rows, ITH_ERR_UNSUPPORTED if `in` is not a whole number of quantisation blocks,
 * ITH_ERR_IO if a file is cut while it is read. */
ith_status ith_linear_attach(ith_context *context, ith_linear *linear, const ith_linear_weight *matrices, int count,
                             const float *bias);
/* Sets the additions of a layer, as many as ith_linear_lay_out_with got, of the same sizes and in the same order. The
 * layer's weights must have been set. Matrices and files are as in ith_linear_attach. ITH_ERR_ARGUMENT leaves the layer
 * as it was. */
ith_status ith_linear_add(ith_context *context, ith_linear *linear, const ith_linear_addition *additions,
                          int64_t count);
/* Sets *matrices to the matrices that a layer reads, and returns their number. They belong to the layer. */
int ith_linear_matrices(const ith_linear *linear, const ith_linear_weight **matrices);
/* The number of inputs, and of outputs, of a layer. */
int64_t ith_linear_inputs(const ith_linear *linear);
int64_t ith_linear_outputs(const ith_linear *linear);
/* The number of multiplications and sums that the low-rank additions of a layer add to its application to `rows` rows,
 * in a set that was created with `keep`. */
double ith_linear_added_operations(const ith_linear *linear, ith_linear_keep keep, int64_t rows);
/* Writes rows [first, first + count) of a layer's weights, `in` numbers each, with all its additions, to `to` as F32 or
 * BF16. Sums of weights and additions are rounded to bf16 as merged ones are. Returns NULL, or the name of the
 * file that was cut while it was read. Any number of threads may read a layer. */
const char *ith_linear_read(const ith_linear *linear, ith_dtype type, int64_t first, int64_t count, void *to);
/* The bias of a layer [out]. */
const float *ith_linear_bias(const ith_linear *linear);
/* Whether a layer holds a converted copy of its weights, and so needs its matrices no longer. */
bool ith_linear_is_packed(const ith_linear *linear);
/* Makes a layer read matrix `index` from `data`, which is in ordinary memory and holds the same numbers. No thread may
 * apply the layer meanwhile. The set must not keep packed weights. */
void ith_linear_relocate(ith_linear *linear, int index, const void *data);
/* The instructions with which a layer multiplies. Its weights must have been set. */
ith_instructions ith_linear_instructions(const ith_linear *linear);
/* Asks the operating system to read the layer's weights from their files, and does not wait for them. */
void ith_linear_prefetch(const ith_linear *linear);

/* The scratch memory with which one rank applies the layers of a set. */
typedef struct ith_linear_workspace {
    const ith_linear_set *set;
    int threads;
    int64_t strip;                      /* the largest number of rows that are packed and multiplied together */
    int64_t strips_held;                /* number of strips that may be in memory at the same time: 1 or 2 */
    int64_t panels_bytes, thread_bytes; /* bytes of the first part of `panels`; of one thread's share of `memory` */
    int64_t added_bytes;                /* bytes of the packed rows t of one layer's additions, of one strip */
    int64_t merged_bytes;               /* bytes of `merged` */
    char *panels; /* packed rows of x, hidden rows of a feed-forward network; then rows t of additions */
    char *memory; /* [threads][thread_bytes]: scratch memory of each thread */
    char *merged; /* converted weights of layers with merged low-rank additions, for one call */
} ith_linear_workspace;

/* Takes the memory of a workspace from the arena, for all layers that are in the set now and for teams of up to
 * `threads` threads. A layer may be applied to any number of rows, but to more than `rows` perhaps less efficiently. */
void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *workspace);
/* The largest number of rows that are packed and multiplied together: a strip. A caller's buffer with this number of
 * rows can hold row i at i % strip until `finish` has returned for row i. */
int64_t ith_linear_strip(const ith_linear_workspace *workspace);

/* Rows of x. row(user, i, space) returns row i as `in` numbers; it may compute them in space [in], which belongs to the
 * calling thread. Each call of ith_linear_apply calls it once for each row, from any thread. */
typedef struct ith_linear_input {
    const float *(*row)(const void *user, int64_t row, float *space);
    const void *user;
} ith_linear_input;

/* Rows of x or y in a matrix, `stride` numbers apart. They must outlive the input or output that is made of them. */
typedef struct ith_linear_rows {
    float *data;
    int64_t stride;
} ith_linear_rows;

/* Rows of y. `take` gets columns [first, first + count) of one row, with the bias added. It gets every number once,
 * from any thread. `finish` (NULL: none) is called once for every row, by any thread, after the row's last `take` and
 * before the first `take` of the next strip. All rows of x of a strip are read before the strip's first `take`, so a
 * row of y may overwrite its row of x. */
typedef struct ith_linear_output {
    void (*take)(void *user, int64_t row, int64_t first, int64_t count, const float *y);
    void (*finish)(void *user, int64_t row);
    void *user;
    const ith_linear_rows *rows; /* the matrix to which `take` copies y; the product fetches its memory into the cache
                                    before it calls `take`. NULL: `take` writes elsewhere */
} ith_linear_output;

ith_linear_input ith_linear_from_rows(const ith_linear_rows *rows);
ith_linear_output ith_linear_to_rows(ith_linear_rows *rows);

/* Computes y = x w^T + b for `rows` rows with the calling thread's OpenMP team. Ranks may apply a layer at the same
 * time, each in another workspace. Returns ITH_ERR_INTERRUPTED soon after the context is interrupted, and
 * ITH_ERR_IO if a file was cut while its weights were read; y is then unfinished. */
ith_status ith_linear_apply(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                            int64_t rows, const ith_linear_input *x, const ith_linear_output *y);
/* Computes y = x w^T + b for matrices x [rows, in] and y [rows, out], which must not overlap. Otherwise it is like
 * ith_linear_apply. */
ith_status ith_linear_apply_rows(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                                 int64_t rows, const float *x, float *y);

/* A feed-forward network: y = down(act(up x)), or y = down(act(up x) * (gate x)) if gate is not NULL. up and gate have
 * the same sizes and types, and down has the same types. act applies a function to each of n numbers, as
 * rowops->gelu_tanh does. */
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
