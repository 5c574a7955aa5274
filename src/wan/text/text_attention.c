/* SPDX-License-Identifier: Apache-2.0 */
/* The self-attention of umT5. For every head h and query i, over the keys j of a prompt:
 *
 *     o[i] = sum_j softmax_j(q[i] . k[j] + bias[h][i][j]) v[j],   bias[h][i][j] = table[bucket(j - i)][h]
 *
 * The library's own attention computes it, with the biases as an additive mask [1, heads, count, count]. Each layer
 * fills the mask from its own table. A line holds the biases of a head for the distances -(count - 1) .. count - 1; row
 * i of the mask is the part of the line that begins at distance -i. */
#include "text_attention.h"

#include "../../base/context.h"

#include <math.h>
#include <string.h>

/* Returns the bucket, 0 <= bucket < buckets, of a key at distance = (index of the key) - (index of the query).
 *
 * Half of the buckets are for keys after the query, the other half for keys before it. In each half, every distance
 * below buckets/4 has its own bucket. Larger distances share buckets that widen logarithmically up to max_distance,
 * where the last bucket begins. Computed in float, as in the reference. */
static int64_t bucket_of(int64_t distance, int64_t buckets, int64_t max_distance)
{
    int64_t half = buckets / 2, exact = half / 2;
    int64_t first = distance > 0 ? half : 0, away = distance < 0 ? -distance : distance;
    if (away < exact)
        return first + away;
    float ratio = logf((float)away / (float)exact) / (float)log((double)max_distance / (double)exact);
    int64_t wide = exact + (int64_t)(ratio * (float)(half - exact));
    return first + (wide < half - 1 ? wide : half - 1);
}

ith_attn_problem ith_text_attention_problem(const ith_text_config *config, int64_t count)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = problem.mask_heads = config->heads, problem.head_dim = config->head_dim;
    problem.q_len = problem.kv_len = count;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = problem.o_row_stride =
        3 * config->heads * config->head_dim;
    problem.mask = ITH_MASK_ADDITIVE;
    problem.scale = 1;
    return problem;
}

static ith_attn_options options_of(void)
{
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    return options;
}

void ith_text_attention_lay_out(const ith_text_config *config, int64_t count, ith_arena *arena, ith_text_attention *a)
{
    *a = (ith_text_attention){.heads = config->heads, .head_dim = config->head_dim, .count = count};
    a->buckets = ith_arena_take(arena, 2 * count - 1, sizeof *a->buckets);
    a->lines = ith_arena_take(arena, config->heads * (2 * count - 1), sizeof *a->lines);
    a->bias = ith_arena_take(arena, config->heads * count, count * (int64_t)sizeof *a->bias);
}

ith_status ith_text_attention_open(ith_context *context, const ith_text_config *config, ith_text_attention *a)
{
    const ith_attn_problem problem = ith_text_attention_problem(config, a->count);
    const ith_attn_options options = options_of();
    for (int64_t i = 0; i < 2 * a->count - 1; i++)
        a->buckets[i] = bucket_of(i - (a->count - 1), config->buckets, config->max_distance);
    return ith_plan_create(context, &problem, &options, NULL, &a->plan);
}

void ith_text_attention_close(ith_text_attention *attention)
{
    ith_plan_destroy(&attention->plan);
}

ith_status ith_text_attention_plan_bytes(ith_context *context, const ith_text_config *config, int64_t count,
                                         int64_t *bytes)
{
    const ith_attn_problem problem = ith_text_attention_problem(config, count);
    const ith_attn_options options = options_of();
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_status status = ith_plan_predict(context, &problem, &options, 1, 0, true, &info);
    *bytes = info.memory_bytes + ITH_ALLOC_HEADER;
    return status;
}

ith_status ith_text_attention_apply(const ith_text_attention *attention, float *qkv, const float *table)
{
    const int64_t heads = attention->heads, count = attention->count, distances = 2 * count - 1;
#pragma omp parallel for schedule(static)
    for (int64_t head = 0; head < heads; head++) {
        float *line = attention->lines + head * distances, *bias = attention->bias + head * count * count;
        for (int64_t i = 0; i < distances; i++)
            line[i] = table[attention->buckets[i] * heads + head];
        for (int64_t i = 0; i < count; i++)
            memcpy(bias + i * count, line + count - 1 - i, (size_t)count * sizeof *bias);
    }
    ith_attn_tensors tensors = {.struct_size = sizeof(ith_attn_tensors), .q = qkv, .o = qkv, .mask = attention->bias};
    tensors.k = qkv + heads * attention->head_dim;
    tensors.v = qkv + 2 * heads * attention->head_dim;
    return ith_plan_execute(attention->plan, &tensors);
}
