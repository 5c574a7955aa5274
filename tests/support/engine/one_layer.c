/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/one_layer.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

void one_layer_free(ith_context *context, one_layer *l)
{
    ith_linear_set_destroy(&l->set);
    ith_free(context, l->arena.base);
    *l = (one_layer){0};
}

ith_status one_layer_make(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype type,
                          const float *bias, ith_operand_types types, bool keeps_packed, one_layer *l)
{
    *l = (one_layer){0};
    ith_status status = ith_linear_set_create(context, keeps_packed, &l->set);
    if (status)
        return status;
    ith_linear_lay_out(l->set, in, out, types, &l->arena);
    status = ith_linear_set_status(l->set);
    if (!status)
        status = ith_arena_allocate(context, &l->arena, "a layer");
    if (!status) {
        l->linear = ith_linear_lay_out(l->set, in, out, types, &l->arena);
        status = ith_linear_attach(context, l->linear, &(ith_linear_weight){.data = weight, .type = type, .rows = out},
                                   1, bias);
    }
    if (status)
        one_layer_free(context, l);
    return status;
}

ith_status one_workspace_make(ith_context *context, const ith_linear_set *set, int64_t rows,
                              ith_linear_workspace *workspace, ith_arena *arena)
{
    *arena = (ith_arena){0};
    ith_linear_workspace_lay_out(set, omp_get_max_threads(), rows, arena, workspace);
    ith_status status = ith_arena_allocate(context, arena, "a workspace");
    if (status)
        return status;
    ith_linear_workspace_lay_out(set, omp_get_max_threads(), rows, arena, workspace);
    return ITH_OK;
}

void one_workspace_free(ith_context *context, ith_linear_workspace *workspace, ith_arena *arena)
{
    *workspace = (ith_linear_workspace){0};
    ith_free(context, arena->base);
}

ith_status one_layer_apply(ith_context *context, const one_layer *l, int64_t rows, const float *x, float *y)
{
    ith_linear_workspace workspace;
    ith_arena arena;
    ith_status status = one_workspace_make(context, l->set, rows, &workspace, &arena);
    if (!status)
        status = ith_linear_apply_rows(context, l->linear, &workspace, rows, x, y);
    one_workspace_free(context, &workspace, &arena);
    return status;
}

float *new_floats(int64_t count)
{
    float *numbers = malloc((size_t)count * sizeof *numbers);
    assert_non_null(numbers);
    return numbers;
}
