/* SPDX-License-Identifier: Apache-2.0 */
/* y = x w^T + b: the linear layers of a model. A row of y has the same bits whatever the other rows are, however many
 * there are, and however many threads compute them.
 *
 *   ith_linear_set         the layers of one model; it owns the oneDNN objects that they use
 *   ith_linear             one layer: its packed weights and its bias, in an arena
 *   ith_linear_workspace   scratch memory in which one rank applies any layer of a set, in an arena
 *
 * A model is laid out twice by the same calls, first in an arena that only counts bytes. Applying a layer allocates
 * nothing and makes no oneDNN object. */
#ifndef ITH_LINEAR_LINEAR_H
#define ITH_LINEAR_LINEAR_H

#include "../base/arena.h"
#include "../base/context.h"
#include "operand.h"

typedef struct ith_linear_set ith_linear_set;
typedef struct ith_linear ith_linear;

/* Creates a set without layers. The context must outlive the set. */
ith_status ith_linear_set_create(ith_context *context, ith_linear_set **set);
/* Destroys a set of layers and its oneDNN objects. Must be called before the memory of the layers is freed. NULL is
 * accepted. */
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

/* Packs weight [out, in] of F32, BF16 or F16 and copies bias [out] (NULL: zeros) with the calling thread's OpenMP team.
 * scratch: ith_linear_packing_bytes bytes. If linear is NULL, only weight_type is checked. */
ith_status ith_linear_pack(ith_context *context, ith_linear *linear, const void *weight, ith_dtype weight_type,
                           const float *bias, void *scratch);
/* Bytes of scratch memory with which ith_linear_pack can pack any layer of the set with the calling thread's team; a
 * multiple of 64. */
int64_t ith_linear_packing_bytes(const ith_linear_set *set);

/* The scratch memory and the oneDNN objects with which one rank applies the layers of a set. */
typedef struct ith_linear_workspace {
    const ith_linear_set *set;
    int threads;
    int64_t slab_bytes, thread_bytes;
    char *slab;                    /* rounded rows of x, which all threads read */
    char *memory;                  /* [threads][thread_bytes]: scratch memory of each thread */
    struct ith_linear_lane *lanes; /* [threads][sizes of layers in the set]: oneDNN objects of each thread */
} ith_linear_workspace;

/* Takes the memory of a workspace from the arena, for all layers that are in the set now and for teams of up to
 * `threads` threads. A layer may be applied to any number of rows; beyond `rows` it becomes somewhat slower. */
void ith_linear_workspace_lay_out(const ith_linear_set *set, int threads, int64_t rows, ith_arena *arena,
                                  ith_linear_workspace *workspace);
/* Makes the workspace's oneDNN objects, after its memory has been laid out. After a failure, ith_linear_workspace_close
 * frees the objects that were made. */
ith_status ith_linear_workspace_open(ith_context *context, ith_linear_workspace *workspace);
/* Frees the workspace's oneDNN objects. Must be called before the workspace's memory is freed. A zeroed workspace is
 * accepted. */
void ith_linear_workspace_close(ith_linear_workspace *workspace);

/* Computes y [rows, out] = x [rows, in] w^T + b with the calling thread's OpenMP team. x and y must not overlap. Ranks
 * may apply a layer at the same time, each in a workspace of its own. Returns ITH_ERR_INTERRUPTED soon after the
 * context is interrupted; y is then unfinished. */
ith_status ith_linear_apply(ith_context *context, const ith_linear *linear, const ith_linear_workspace *workspace,
                            int64_t rows, const float *x, float *y);

#endif
