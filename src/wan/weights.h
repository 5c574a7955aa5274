/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the weights of a model from its files. Each model has one function, an ith_weights_fn, that lists all of its
 * tensors. This function is called to check names, types and shapes in the files; to count memory without files, so
 * that a prediction is exact to the byte; and to read the weights. */
#ifndef ITH_WAN_WEIGHTS_H
#define ITH_WAN_WEIGHTS_H

#include "../base/arena.h"
#include "../files/store.h"
#include "../linear/linear.h"

/* The memory of a model's weights. All members must be zero before the first call. */
typedef struct ith_weights_memory {
    ith_linear_set *linears;
    void *arena;   /* memory of all linear layers, vectors and tables; NULL after ith_weights_outline */
    int64_t bytes; /* bytes that the weights take from the context */
} ith_weights_memory;

/* The state of one call of an ith_weights_fn, which lists a model's weights to load them, to check them, or only to
 * count their memory. */
typedef struct ith_weights {
    ith_context *context;
    ith_store *store;        /* the weight files; NULL: only memory is counted */
    bool reads;              /* false: tensors are checked and counted, and the functions below return NULL */
    ith_arena arena;         /* memory for the weights that are read */
    ith_linear_set *linears; /* the model's linear layers; NULL if tensors are only checked */
    ith_status status;       /* the first failure; after it, the functions below do nothing */
    char prefix[96];         /* prefix of the name of every tensor, such as "blocks.3." */
} ith_weights;

/* A function that lists all weights of `model`. It calls ith_weights_floats, ith_weights_tensor, ith_weights_linear or
 * ith_weights_attach for each of them. */
typedef void (*ith_weights_fn)(ith_weights *weights, void *model);

/* Checks that the weight files hold every tensor that name_all lists, and no other. */
ith_status ith_weights_check(ith_context *context, ith_store *store, ith_weights_fn name_all, void *model);
/* Counts memory without files. Sets memory->bytes to the bytes that ith_weights_take would allocate, and
 * memory->linears to the model's linear layers without weights, from which the size of a workspace follows. */
ith_status ith_weights_outline(ith_context *context, ith_weights_fn name_all, void *model, ith_weights_memory *memory);
/* Checks and reads all weights of a model into *memory. With `shows`, progress is shown as ITH_STAGE_LOAD. */
ith_status ith_weights_take(ith_context *context, ith_store *store, bool shows, ith_weights_fn name_all, void *model,
                            ith_weights_memory *memory);
/* Frees the memory of a model's weights. It may be called after a failure of ith_weights_take. */
void ith_weights_free(ith_context *context, ith_weights_memory *memory);

/* Sets the first part of the tensor names for the calls that follow. The functions below look in the weight files for
 * the tensor prefix + name, prefix + module + ".weight", or prefix + module + ".bias". */
void ith_weights_prefix(ith_weights *weights, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Finds a vector or a table in the weight files, and returns a copy of it in f32. */
float *ith_weights_floats(ith_weights *weights, const char *name, int dims, const int64_t *shape);
/* Finds the weight of a module in the weight files, and returns it without a copy. It stays in its mapped file until
 * ith_store_release drops its pages from memory. */
const ith_tensor *ith_weights_tensor(ith_weights *weights, const char *module, int dims, const int64_t *shape);
/* Makes one linear layer from `count` modules in the weight files, each with a weight of this shape. The weights are
 * stacked: the first outputs of the layer belong to the first module. */
ith_linear *ith_weights_linear(ith_weights *weights, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types);
/* Makes a linear layer from matrices that outlive it (ith_linear_attach), and from a bias [out] that is copied. bias
 * NULL: the layer has none. */
ith_linear *ith_weights_attach(ith_weights *weights, int64_t in, int64_t out, const ith_linear_weight *parts, int count,
                               const float *bias, ith_operand_types types);

#endif
