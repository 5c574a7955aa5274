/* SPDX-License-Identifier: Apache-2.0 */
/* y = x w^T + b: the linear layers of a model. A row of y has the same bits whatever the other rows are, however many
 * there are, and however many threads compute them.
 *
 *   ith_linear_set         the layers of one model; it owns the objects of oneDNN that they use
 *   ith_linear             one layer: its packed weights and its bias, in an arena
 *   ith_linear_workspace   scratch memory in which one rank applies any layer of a set, in an arena
 *
 * A model is laid out twice by the same calls, first in an arena that counts. To apply a layer allocates nothing and
 * makes no object of oneDNN. */
#ifndef ITH_LINEAR_LINEAR_H
#define ITH_LINEAR_LINEAR_H

#include "../base/arena.h"
#include "../base/context.h"
#include "operand.h"

typedef struct ith_linear_set ith_linear_set;
typedef struct ith_linear ith_linear;

/* The context must outlive the set. */
ith_status ith_linear_set_create(ith_context *context, ith_linear_set **set);
/* Before the memory of the layers is freed; NULL is accepted. */
void ith_linear_set_destroy(ith_linear_set **set);

/* The place of a layer from `in` to `out` features; NULL while the arena counts. Not for several threads at once. */
ith_linear *ith_linear_lay_out(ith_linear_set *set, int64_t in, int64_t out, ith_operand_types types, ith_arena *arena);
/* The first failure of ith_linear_lay_out: illegal sizes or types, too little memory, no product for this processor.
 * The caller asks after counting. If it was ITH_OK then, the same calls with memory do not fail. */
ith_status ith_linear_set_status(const ith_linear_set *set);
/* Bytes that the set takes from the context besides the arena. */
int64_t ith_linear_set_bytes(const ith_linear_set *set);

/* Packs the weights, [out, in] of F32, BF16 or F16, and copies the bias, [out] or NULL for none, by the calling
 * thread's team in ith_linear_packing_bytes of scratch memory. linear NULL: checks the type only. */
ith_status ith_linear_pack(ith_context *context, ith_linear *linear, const void *weight, ith_dtype weight_type,
                           const float *bias, void *scratch);
/* Enough for any layer of the set and the calling thread's team; a multiple of 64. */
int64_t ith_linear_packing_bytes(const ith_linear_set *set);

typedef struct ith_linear_workspace {
    const ith_linear_set *set;
    int threads;
    int64_t slab_bytes, thread_bytes;
    char *slab;                    /* rows of x, packed */
    char *memory;                  /* [threads][thread_bytes] */
    struct ith_linear_lane *lanes; /* [threads][sizes of layers in the set] */
} ith_linear_workspace;

/* A workspace for all layers that are in the set now, and for teams of up to `threads` threads. A layer may be applied
 * to any number of rows; its speed is full up to `rows`, and falls somewhat beyond. */
void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *workspace);
/* Makes the objects of oneDNN, once the workspace has its memory. */
ith_status ith_linear_workspace_open(ith_context *context, ith_linear_workspace *workspace);
/* Frees them, also after a failure; before the memory is freed. A zeroed workspace is accepted. */
void ith_linear_workspace_close(ith_linear_workspace *workspace);

/* x [rows, in] -> y [rows, out], which may not overlap, by the calling thread's OpenMP team. Ranks may apply a layer at
 * the same time, each in a workspace of its own. ITH_ERR_INTERRUPTED soon after the context is interrupted: y is then
 * unfinished. */
ith_status ith_linear_apply(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                            int64_t rows, const float *x, float *y);

#endif
