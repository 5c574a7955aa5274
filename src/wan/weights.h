/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where a model takes its tensors. Each model has one function that names all of its weights.
 * ith_weights_take calls it twice: first to check every name, type and shape and to count bytes, then to read.
 * ith_weights_count calls it without files, and so predicts the same bytes from a configuration alone. */
#ifndef ITH_WAN_WEIGHTS_H
#define ITH_WAN_WEIGHTS_H

#include "../base/arena.h"
#include "../files/store.h"
#include "../linear/linear.h"

typedef struct ith_weights {
    ith_context *context;
    ith_store *store;     /* NULL: there are no files */
    bool reads;           /* false: check and count only; then all functions below return NULL */
    ith_arena arena;      /* of the vectors */
    int64_t linear_bytes; /* of all linear layers */
    ith_status status;    /* the first failure; later calls do nothing */
    char prefix[96];      /* of the names */
} ith_weights;

typedef void (*ith_weights_fn)(ith_weights *weights, void *model);

/* Checks that the store has every tensor that the model names, and no other. */
ith_status ith_weights_check(ith_context *context, ith_store *store, ith_weights_fn name_all, void *model);
/* The same, then reads them; if `shows`, as progress of the stage of loading. *memory holds the vectors and is freed
 * with ith_free. */
ith_status ith_weights_take(ith_context *context, ith_store *store, bool shows, ith_weights_fn name_all, void *model,
                            void **memory);
/* Bytes that ith_weights_take leaves allocated: vectors and linear layers. */
int64_t ith_weights_count(ith_context *context, ith_weights_fn name_all, void *model);

/* The rest is for name_all. A tensor's full name is prefix + name, or prefix + module + ".weight" and ".bias". */
void ith_weights_prefix(ith_weights *weights, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A vector or table as f32, in the memory of ith_weights_take. */
float *ith_weights_floats(ith_weights *weights, const char *name, int dims, const int64_t *shape);
/* A module's weight where it lies in its file. ith_store_release gives its pages back. */
const ith_tensor *ith_weights_tensor(ith_weights *weights, const char *module, int dims, const int64_t *shape);
/* One linear layer of `count` modules with weights of this shape, stacked: the first rows of y are the first module's.
 */
ith_linear *ith_weights_linear(ith_weights *weights, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types);
/* The same of weights that are in memory, [out, in] of type, and of bias. */
ith_linear *ith_weights_pack(ith_weights *weights, int64_t in, int64_t out, const void *weight, ith_dtype type,
                             const float *bias, ith_operand_types types);

#endif
