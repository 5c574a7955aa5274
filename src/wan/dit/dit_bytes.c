/* SPDX-License-Identifier: Apache-2.0 */
/* What the transformer will hold, for the prediction before a run. */
#include "../../base/size.h"
#include "dit_workspace.h"

#include <omp.h>

#define BLOCK_HEADER 64 /* of an allocation */

static int64_t vector_bytes(int64_t numbers)
{
    return numbers * 4 + BLOCK_HEADER;
}

int64_t ith_dit_text_bytes(const ith_dit_config *config, ith_dtype attention, int64_t batch, int64_t longest)
{
    int64_t rows = batch * ith_dit_text_keys(longest), element = ith_dtype_bytes(attention);
    return config->layers * rows * 2 * config->dim * element + vector_bytes(rows) + BLOCK_HEADER +
           (int64_t)sizeof(ith_dit_text);
}

/* What the widest of the products works in. */
static int64_t product_bytes(const ith_dit_config *c, ith_operand_types types, int64_t rows, int threads)
{
    const int64_t widths[][2] = {{c->dim, 3 * c->dim}, {c->dim, c->ffn_dim}, {c->ffn_dim, c->dim}};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        most = ith_max64(most, ith_linear_run_bytes(widths[i][0], widths[i][1], types, rows, threads));
    return most;
}

/* What the two plans hold. */
static ith_status plans_bytes(ith_context *context, const ith_dit_config *config, ith_dtype type,
                              const ith_dit_shape *shape, const ith_attn_options *options, int ranks, int rank,
                              int64_t *bytes)
{
    int64_t begin, share;
    ith_share(ith_dit_tokens(shape), ranks, rank, &begin, &share);
    ith_attn_problem self = ith_dit_self_problem(config, type, shape, share);
    ith_attn_problem cross = ith_dit_cross_problem(config, type, shape, ith_dit_text_keys(shape->longest_text));
    ith_attn_options own = ith_dit_cross_options(options);
    ith_plan_info self_info = ITH_PLAN_INFO_INIT, cross_info = ITH_PLAN_INFO_INIT;
    ith_status status = ith_plan_predict(context, &self, options, ranks, rank, true, &self_info);
    if (!status)
        status = ith_plan_predict(context, &cross, &own, ranks, rank, true, &cross_info);
    *bytes = self_info.memory_bytes + cross_info.memory_bytes;
    return status;
}

/* The run's own buffers, what a product works with, and the plans. */
ith_status ith_dit_workspace_bytes(ith_context *context, const ith_dit_config *config, const ith_number_types *types,
                                   const ith_dit_shape *shape, const ith_attn_options *options, int ranks, int rank,
                                   int64_t *bytes)
{
    const ith_dtype type = types->attention;
    const int64_t element = ith_dtype_bytes(type), dim = config->dim;
    const int threads = omp_get_max_threads() > ranks ? omp_get_max_threads() / ranks : 1; /* of a rank */
    int64_t begin, share, plans = 0;
    ith_share(ith_dit_tokens(shape), ranks, rank, &begin, &share);
    int64_t rows = shape->batch * share, chunk = ith_min64(rows, ITH_DIT_CHUNK);
    int64_t keys = shape->batch * ith_dit_text_keys(shape->longest_text);
    int64_t state = rows * dim * (4 + 4 * element) + chunk * (dim + ith_dit_wide(config, type)) * 4;
    int64_t tables = share * config->head_dim * 4 + keys * (2 * dim * element + 4) +
                     shape->batch * (config->freq_dim + 14 * dim) * 4;
    ith_status status = plans_bytes(context, config, type, shape, options, ranks, rank, &plans);
    *bytes = state + tables + plans + product_bytes(config, types->products, chunk, threads);
    return status;
}
