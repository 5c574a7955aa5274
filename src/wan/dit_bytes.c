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

/* The run's own buffers, what a product works with, and what a plan keeps at most: q, k, v and o once more on their way
 * between ranks, and keys and values packed in f32. */
int64_t ith_dit_run_bytes(const ith_dit_config *config, ith_precision precision, const ith_dit_shape *shape, int ranks,
                          int rank)
{
    const ith_dtype type = ith_dit_attention_type(precision);
    const int64_t element = ith_dtype_bytes(type), dim = config->dim;
    int64_t tokens = ith_dit_tokens(shape), begin = 0, share = 0;
    ith_share(tokens, ranks, rank, &begin, &share);
    int64_t rows = shape->batch * share, chunk = ith_min64(rows, ITH_DIT_CHUNK);
    int64_t keys = shape->batch * ith_dit_text_keys(shape->longest_text);
    int64_t state = rows * dim * (4 + 4 * element) + chunk * (dim + ith_dit_wide(config, type)) * 4;
    int64_t tables = share * config->head_dim * 4 + keys * (2 * dim * element + 4) +
                     shape->batch * (config->freq_dim + 14 * dim) * 4;
    int64_t exchange = ranks > 1 ? 4 * rows * dim * element : 0;
    int64_t packed = 2 * rows * dim * 4 + 2 * keys * dim * 4;
    return state + tables + exchange + packed + product_bytes(config, precision, chunk);
}
