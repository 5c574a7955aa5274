/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the weights of a model from its files. Each model has one function, an ith_weights_fn, that names all of its
 * tensors. The same function serves to check the names, types and shapes in the files; to count memory without files,
 * so that a prediction is exact to the byte; and to read the weights. */
#ifndef ITH_WAN_WEIGHTS_H
#define ITH_WAN_WEIGHTS_H

#include "../base/arena.h"
#include "../files/store.h"
#include "../linear/linear.h"

/* The memory of a model's weights. All members must be zero before the first call. */
typedef struct ith_weights_memory {
    ith_linear_set *linears;
    void *arena;   /* memory of linear layers, vectors and tables; NULL after ith_weights_outline */
    int64_t bytes; /* bytes of all weights, as the context counts them */
} ith_weights_memory;

/* The state while an ith_weights_fn names the weights of a model. */
typedef struct ith_weights {
    ith_context *context;
    ith_store *store;        /* the weight files; NULL: only memory is counted */
    bool reads;              /* false: tensors are checked and counted, and the functions below return NULL */
    ith_arena arena;         /* memory for the weights that are read */
    ith_linear_set *linears; /* the model's linear layers; NULL if tensors are only checked */
    void *scratch;           /* scratch memory for packing linear layers */
    ith_status status;       /* the first failure; later calls do nothing */
    char prefix[96];         /* prefix of the name of every tensor, such as "blocks.3." */
} ith_weights;

/* Names all tensors of `model`: calls ith_weights_floats, ith_weights_tensor, ith_weights_linear or ith_weights_pack
 * for each. */
typedef void (*ith_weights_fn)(ith_weights *weights, void *model);

/* Checks that the store has every tensor that name_all names, and no other. */
ith_status ith_weights_check(ith_context *context, ith_store *store, ith_weights_fn name_all, void *model);
/* Counts memory without files. Sets memory->bytes to the bytes that ith_weights_take would allocate, and
 * memory->linears to the model's linear layers without weights, for which workspaces can be laid out. */
ith_status ith_weights_outline(ith_context *context, ith_weights_fn name_all, void *model, ith_weights_memory *memory);
/* Checks and reads all weights of a model into *memory. With `shows`, progress is shown as ITH_STAGE_LOAD. */
ith_status ith_weights_take(ith_context *context, ith_store *store, bool shows, ith_weights_fn name_all, void *model,
                            ith_weights_memory *memory);
/* Frees the memory of a model's weights. It may be called after a failure of ith_weights_take. */
void ith_weights_free(ith_context *context, ith_weights_memory *memory);

/* Sets the prefix of the names that follow. The functions below look for the tensor prefix + name, prefix + module +
 * ".weight", or prefix + module + ".bias". */
void ith_weights_prefix(ith_weights *weights, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Takes a vector or table from the store, converted to f32. */
float *ith_weights_floats(ith_weights *weights, const char *name, int dims, const int64_t *shape);
/* Takes a module's weight from the store. It stays in its mapped file, and ith_store_release gives its memory pages
 * back. */
const ith_tensor *ith_weights_tensor(ith_weights *weights, const char *module, int dims, const int64_t *shape);
/* Takes one linear layer that consists of `count` modules with weights of this shape. The weights are stacked: the
 * first outputs of the layer belong to the first module. */
ith_linear *ith_weights_linear(ith_weights *weights, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types);
/* Takes a linear layer whose weight [out, in] and bias [out] are in memory already. bias NULL: there is none. */
ith_linear *ith_weights_pack(ith_weights *weights, int64_t in, int64_t out, const void *weight, ith_dtype type,
                             const float *bias, ith_operand_types types);

#endif
