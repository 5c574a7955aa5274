/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are a set of their own, for callers that have no set and no workspace yet; goes with the last of them. */
#include "linear_set.h"

#include "../base/dtype.h"

#include <omp.h>

ith_status ith_linear_create(ith_context *context, int64_t in, int64_t out, const void *weight, ith_dtype weight_type,
                             const float *bias, ith_operand_types types, ith_linear **linear)
{
    *linear = NULL;
    ith_linear_set *set = NULL;
    ith_arena arena = {0};
    ith_status status = ith_linear_set_create(context, &set);
    if (status)
        return status;
    ith_linear_lay_out(set, in, out, types, &arena);
    status = ith_linear_set_status(set);
    if (!status)
        status = ith_arena_allocate(context, &arena, "a linear layer");
    if (!status) {
        *linear = ith_linear_lay_out(set, in, out, types, &arena);
        (*linear)->alone = set;
        status = ith_linear_pack(context, *linear, weight, weight_type, bias);
    }
    if (status && *linear)
        ith_linear_destroy(context, linear);
    else if (status)
        ith_linear_set_destroy(&set);
    return status;
}

void ith_linear_destroy(ith_context *context, ith_linear **linear)
{
    if (!linear || !*linear)
        return;
    ith_linear_set *set = (*linear)->alone;
    ith_linear_set_destroy(&set);
    ith_free(context, *linear);
    *linear = NULL;
}

ith_status ith_linear_run(ith_context *context, const ith_linear *linear, int64_t rows, const float *x,
                          int64_t x_stride, float *y, int64_t y_stride)
{
    (void)x_stride, (void)y_stride;
    ith_arena arena = {0};
    ith_linear_workspace workspace = {0};
    ith_linear_workspace_lay_out(linear->alone, omp_get_max_threads(), rows, &arena, &workspace);
    ith_status status = ith_arena_allocate(context, &arena, "a product's workspace");
    if (status)
        return status;
    ith_linear_workspace_lay_out(linear->alone, omp_get_max_threads(), rows, &arena, &workspace);
    status = ith_linear_workspace_open(context, &workspace);
    if (!status)
        status = ith_linear_apply(context, linear, &workspace, rows, x, y);
    ith_linear_workspace_close(&workspace);
    ith_free(context, arena.base);
    return status;
}

int64_t ith_linear_in(const ith_linear *linear)
{
    return linear->product->in;
}

int64_t ith_linear_out(const ith_linear *linear)
{
    return linear->product->out;
}

int64_t ith_linear_bytes(int64_t in, int64_t out, ith_operand_types types)
{
    return ith_round_up(in, 32) * ith_round_up(out, 64) * ith_dtype_bytes(types.stored) + out * 4 + 192;
}

int64_t ith_linear_run_bytes(int64_t in, int64_t out, ith_operand_types types, int64_t rows, int threads)
{
    int64_t element = ith_dtype_bytes(types.multiplied), tiles = types.rounded == ITH_BF16 ? ith_div_up(rows, 64) : 1;
    int64_t columns = ith_min64(out, ith_max64(768 * 1024 / (in * element) / 64, 1) * 64);
    int64_t most = ith_max64(8, (8 << 20) / (64 * in * element));
    return ith_min64(tiles, most) * 64 * in * element +
           threads * (64 * columns * 4 + (types.stored != types.multiplied ? columns * in * element : 0));
}
