/* What the transformer will hold, for the prediction before a run. */
#include "../base/size.h"
#include "dit_run.h"

#define BLOCK_HEADER 64 /* of an allocation */

static int64_t vector_bytes(int64_t numbers)
{
    return numbers * 4 + BLOCK_HEADER;
}

static int64_t block_bytes(const ith_dit_config *c, ith_precision precision)
{
    int64_t linears = ith_linear_bytes(c->dim, 3 * c->dim, precision) +
                      3 * ith_linear_bytes(c->dim, c->dim, precision) +
                      ith_linear_bytes(c->dim, 2 * c->dim, precision) +
                      ith_linear_bytes(c->dim, c->ffn_dim, precision) + ith_linear_bytes(c->ffn_dim, c->dim, precision);
    return linears + vector_bytes(ITH_DIT_MODULATIONS * c->dim) + 6 * vector_bytes(c->dim) +
           (int64_t)sizeof(ith_dit_block);
}

int64_t ith_dit_weight_bytes(const ith_dit_config *config, ith_precision precision)
{
    const ith_dit_config *c = config;
    int64_t outside = ith_linear_bytes(4 * c->in_channels, c->dim, ITH_PRECISION_F32) +
                      ith_linear_bytes(c->freq_dim, c->dim, ITH_PRECISION_F32) +
                      ith_linear_bytes(c->dim, c->dim, ITH_PRECISION_F32) +
                      ith_linear_bytes(c->dim, ITH_DIT_MODULATIONS * c->dim, ITH_PRECISION_F32) +
                      ith_linear_bytes(c->text_dim, c->dim, precision) + ith_linear_bytes(c->dim, c->dim, precision) +
                      ith_linear_bytes(c->dim, 4 * c->out_channels, ITH_PRECISION_F32);
    return c->layers * block_bytes(c, precision) + outside + vector_bytes(2 * c->dim) + (int64_t)sizeof(ith_dit);
}

int64_t ith_dit_text_bytes(const ith_dit_config *config, ith_precision precision, int64_t batch, int64_t longest)
{
    int64_t rows = batch * ith_dit_text_keys(longest), element = ith_dtype_bytes(ith_dit_attention_type(precision));
    return config->layers * rows * 2 * config->dim * element + vector_bytes(rows) + BLOCK_HEADER +
           (int64_t)sizeof(ith_dit_text);
}

/* What a product of `rows` rows works with: one tile of 64 rows for every thread and, in bf16, its operand rounded,
 * some megabytes at a time. */
static int64_t product_bytes(const ith_dit_config *c, ith_precision precision, int64_t rows)
{
    int64_t in = ith_max64(c->dim, c->ffn_dim), tile = 64 * in * 4;
    int64_t rounded = ith_min64(ith_round_up(rows, 64) * in * 2, ith_max64(8 << 20, 4 * tile));
    return 2 * tile + (precision == ITH_PRECISION_BF16 ? rounded : 0);
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
    ith_plan_info self_info = {0}, cross_info = {0};
    ith_status status = ith_plan_predict(context, &self, options, ranks, rank, true, &self_info);
    if (!status)
        status = ith_plan_predict(context, &cross, &own, ranks, rank, true, &cross_info);
    *bytes = self_info.memory_bytes + cross_info.memory_bytes;
    return status;
}

/* The run's own buffers, what a product works with, and the plans. */
ith_status ith_dit_run_bytes(ith_context *context, const ith_dit_config *config, ith_precision precision,
                             const ith_dit_shape *shape, const ith_attn_options *options, int ranks, int rank,
                             int64_t *bytes)
{
    const ith_dtype type = ith_dit_attention_type(precision);
    const int64_t element = ith_dtype_bytes(type), dim = config->dim;
    int64_t begin, share, plans = 0;
    ith_share(ith_dit_tokens(shape), ranks, rank, &begin, &share);
    int64_t rows = shape->batch * share, chunk = ith_min64(rows, ITH_DIT_CHUNK);
    int64_t keys = shape->batch * ith_dit_text_keys(shape->longest_text);
    int64_t state = rows * dim * (4 + 4 * element) + chunk * (dim + ith_dit_wide(config, type)) * 4;
    int64_t tables = share * config->head_dim * 4 + keys * (2 * dim * element + 4) +
                     shape->batch * (config->freq_dim + 14 * dim) * 4;
    ith_status status = plans_bytes(context, config, type, shape, options, ranks, rank, &plans);
    *bytes = state + tables + plans + product_bytes(config, precision, chunk);
    return status;
}
