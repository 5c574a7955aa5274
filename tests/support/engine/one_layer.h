/* SPDX-License-Identifier: Apache-2.0 */
/* A model of one linear layer, workspaces for it, and memory for its rows. */
#ifndef ITH_TESTS_ONE_LAYER_H
#define ITH_TESTS_ONE_LAYER_H

#include "linear/linear.h"

typedef struct one_layer {
    ith_linear_set *set;
    ith_arena arena;
    ith_linear *linear;
} one_layer;

void one_layer_free(ith_context *context, one_layer *l);

/* Makes the layer. The weight is not copied and must outlive it; the caller calls one_layer_free. */
ith_status one_layer_make(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype type,
                          const float *bias, ith_operand_types types, bool keeps_packed, one_layer *l);

/* Makes a workspace for products of up to `rows` rows, for the present number of OpenMP threads. */
ith_status one_workspace_make(ith_context *context, const ith_linear_set *set, int64_t rows,
                              ith_linear_workspace *workspace, ith_arena *arena);

void one_workspace_free(ith_context *context, ith_linear_workspace *workspace, ith_arena *arena);

/* Computes y = x w^T + b for `rows` rows, in a workspace that it makes and frees. */
ith_status one_layer_apply(ith_context *context, const one_layer *l, int64_t rows, const float *x, float *y);

/* Memory for `count` numbers, for free(). */
float *new_floats(int64_t count);

#endif
