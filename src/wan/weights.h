/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where a model takes its tensors. Each model has one function that names all of its weights. It is
 * called to check every name, type and shape; to count memory, without files, so that a prediction and a loaded model
 * agree to the byte; and to read. */
#ifndef ITH_WAN_WEIGHTS_H
#define ITH_WAN_WEIGHTS_H

#include "../base/arena.h"
#include "../files/store.h"
#include "../linear/linear.h"

/* The memory of a model's weights; all members are zero at first. */
typedef struct ith_weights_memory {
    ith_linear_set *linears;
    void *arena;   /* linear layers, vectors and tables; NULL in an outline */
    int64_t bytes; /* of all, as the context counts them */
} ith_weights_memory;

typedef struct ith_weights {
    ith_context *context;
    ith_store *store;        /* NULL: there are no files */
    bool reads;              /* false: check and count only; then all functions below return NULL */
    ith_arena arena;         /* of everything that is read */
    ith_linear_set *linears; /* NULL while checking */
    void *scratch;           /* of packing */
    ith_status status;       /* the first failure; later calls do nothing */
    char prefix[96];         /* the beginning of all names */
} ith_weights;

typedef void (*ith_weights_fn)(ith_weights *weights, void *model);

/* Checks that the store has every tensor that the model names, and no other. */
ith_status ith_weights_check(ith_context *context, ith_store *store, ith_weights_fn name_all, void *model);
/* Counts without files: *memory has the bytes that ith_weights_take allocates, and the set of all linear layers, for
 * which workspaces can be laid out. */
ith_status ith_weights_outline(ith_context *context, ith_weights_fn name_all, void *model, ith_weights_memory *memory);
/* Checks and reads. With `shows`, progress is shown as the stage of loading. */
ith_status ith_weights_take(ith_context *context, ith_store *store, bool shows, ith_weights_fn name_all, void *model,
                            ith_weights_memory *memory);
/* Frees the memory, also after a failure. */
void ith_weights_free(ith_context *context, ith_weights_memory *memory);

/* The functions below are for name_all. The full name of a tensor is prefix + name, or prefix + module + ".weight" or
 * ".bias". */
void ith_weights_prefix(ith_weights *weights, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Names a vector or table, which is read as f32. */
float *ith_weights_floats(ith_weights *weights, const char *name, int dims, const int64_t *shape);
/* Names a module's weight, which stays in its file. ith_store_release releases its pages. */
const ith_tensor *ith_weights_tensor(ith_weights *weights, const char *module, int dims, const int64_t *shape);
/* Names one linear layer that consists of `count` modules with weights of this shape. They are stacked: the first
 * outputs of the layer belong to the first module. */
ith_linear *ith_weights_linear(ith_weights *weights, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types);
/* The same for a weight [out, in] and a bias in memory. */
ith_linear *ith_weights_pack(ith_weights *weights, int64_t in, int64_t out, const void *weight, ith_dtype type,
                             const float *bias, ith_operand_types types);

#endif
