/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the weights of a model in its files. Matrices stay in the mapped files, from which linear layers convert them
 * whenever they are applied. Vectors and tables, which are small, are copied as f32.
 *
 * Each model has one function, an ith_weights_fn, that lists all of its tensors. This function is called to check
 * names, types and shapes in the files; to count memory without files, so that a prediction is exact to the byte; and
 * to make the layers. */
#ifndef ITH_WAN_WEIGHTS_H
#define ITH_WAN_WEIGHTS_H

#include "../../base/arena.h"
#include "../../files/store.h"
#include "../../linear/linear.h"
#include "../lora/lora.h"

/* The memory of a model's weights, and their files. All members but `store` must be zero before the first call. */
typedef struct ith_weights_memory {
    ith_store *store; /* the open weight files, set before ith_weights_take */
    ith_lora *lora;   /* changes to the weights, set before ith_weights_take and ith_weights_outline; NULL: none. They
                         outlive the weights */
    ith_linear_set *linears;
    void *arena;   /* memory of all linear layers, vectors and tables; NULL after ith_weights_outline */
    int64_t bytes; /* bytes that the weights take from the context, without the store */
} ith_weights_memory;

/* The state of one call of an ith_weights_fn, which lists a model's weights to take them, to check them, or only to
 * count their memory. */
typedef struct ith_weights {
    ith_context *context;
    ith_store *store;        /* the weight files; NULL: only memory is counted */
    ith_lora *lora;          /* changes to the weights; NULL: there are none */
    bool reads;              /* false: tensors are checked and counted, and the functions below return NULL */
    ith_arena arena;         /* memory for layers, vectors and tables */
    ith_linear_set *linears; /* the model's linear layers; NULL if tensors are only checked */
    ith_status status;       /* the first failure; after it, the functions below do nothing */
    char prefix[96];         /* prefix of the name of every tensor, such as "blocks.3." */
} ith_weights;

/* A function that lists all weights of `model`. It calls ith_weights_floats, ith_weights_tensor, ith_weights_matrix,
 * ith_weights_linear or ith_weights_attach for each of them. */
typedef void (*ith_weights_fn)(ith_weights *weights, void *model);

/* The linear layers that keep a converted copy of their weights in a component that keeps all or none. */
static inline ith_linear_keep ith_weights_keep(bool keeps_packed)
{
    return keeps_packed ? ITH_LINEAR_KEEP_ALL : ITH_LINEAR_KEEP_NONE;
}

/* Checks that the weight files hold every tensor that name_all lists, and no other, and that every change of `lora`
 * (NULL: none) fits one. */
ith_status ith_weights_check(ith_context *context, ith_store *store, ith_lora *lora, ith_weights_fn name_all,
                             void *model);
/* Counts memory without files. Sets memory->bytes to the bytes that ith_weights_take would allocate, and
 * memory->linears to the model's linear layers without weights, from which the size of a workspace follows.
 * keep: the linear layers that hold a converted copy of their weights. */
ith_status ith_weights_outline(ith_context *context, ith_linear_keep keep, ith_weights_fn name_all, void *model,
                               ith_weights_memory *memory);
/* Makes a model's linear layers, vectors and tables without weights, so that the sizes of the layers can be read. */
ith_status ith_weights_sketch(ith_context *context, ith_weights_fn name_all, void *model, ith_weights_memory *memory);
/* Checks all weights of a model in memory->store, and makes its layers, vectors and tables. With `shows`, progress is
 * shown as ITH_STAGE_LOAD. */
ith_status ith_weights_take(ith_context *context, ith_linear_keep keep, bool shows, ith_weights_fn name_all,
                            void *model, ith_weights_memory *memory);
/* Frees the memory of a model's weights, and closes their files. It may be called after a failure of
 * ith_weights_take. */
void ith_weights_free(ith_context *context, ith_weights_memory *memory);

/* Sets the first part of the tensor names for the calls that follow. The functions below look in the weight files for
 * the tensor prefix + name, prefix + module + ".weight", or prefix + module + ".bias". */
void ith_weights_prefix(ith_weights *weights, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Finds a vector or a table in the weight files, and returns a copy of it in f32. */
float *ith_weights_floats(ith_weights *weights, const char *name, int dims, const int64_t *shape);
/* Finds the weight of a module in the weight files, and returns it without a copy. It lies in its mapped file, so
 * callers read it as files/mapping.h says. Changes of a LoRA do not reach it. */
const ith_tensor *ith_weights_tensor(ith_weights *weights, const char *module, int dims, const int64_t *shape);
/* As ith_weights_tensor, for a table whose row i is multiplied by (*scale)[i * *stride]; *scale NULL: by 1. */
const ith_tensor *ith_weights_table(ith_weights *weights, const char *module, int dims, const int64_t *shape,
                                    const float **scale, int64_t *stride);
/* Finds the matrix [rows, in] of a module in the weight files, and copies its rows in f32 to `to` [rows, in], with the
 * changes of a LoRA. Row order(i, rows) of the file becomes row i. Leaves `to` as it is if tensors are only checked. */
void ith_weights_matrix(ith_weights *weights, const char *module, int64_t rows, int64_t in,
                        int64_t (*order)(int64_t row, int64_t rows), float *to);
/* Makes one linear layer from `count` modules in the weight files, each with a weight of this shape. The first outputs
 * of the layer belong to the first module. */
ith_linear *ith_weights_linear(ith_weights *weights, const char *const *modules, int count, bool has_bias, int dims,
                               const int64_t *shape, ith_operand_types types);
/* Makes a linear layer from matrices that outlive it (ith_linear_attach), and from a bias [out] that is copied. bias
 * NULL: the layer has none. */
ith_linear *ith_weights_attach(ith_weights *weights, int64_t in, int64_t out, const ith_linear_weight *matrices,
                               int count, const float *bias, ith_operand_types types);

#endif
