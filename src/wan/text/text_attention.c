/* SPDX-License-Identifier: Apache-2.0 */
/* For every head h and query i, over the keys j of a prompt:
 *
 *     o[i] = sum_j softmax_j(q[i] . k[j] + bias[h][i][j]) v[j],   bias[h][i][j] = table[bucket(j - i)][h]
 *
 * The library's own attention takes it, with the biases as a mask that is added: [1, heads, count, count], filled for
 * each layer from its table, row i of a head being the stretch of its 2 count - 1 distances that begins at -i. */
#include "text_attention.h"

#include "../../base/context.h"

#include <math.h>
#include <string.h>

struct ith_text_attention {
    int64_t heads, count;
    ith_plan *plan;
    int64_t *buckets; /* [2 count - 1], by distance + count - 1 */
    float *lines;     /* [heads, 2 count - 1], the biases of those distances */
    float *bias;      /* [heads, count, count] */
};

/* Distances below buckets/4 have a bucket each, larger ones share logarithmically wider ones, and from max_distance on
 * the last; keys that follow the query have the upper half. In float, as the reference counts. */
int64_t ith_text_bucket(int64_t distance, int64_t buckets, int64_t max_distance)
{
    int64_t half = buckets / 2, exact = half / 2;
    int64_t first = distance > 0 ? half : 0, away = distance < 0 ? -distance : distance;
    if (away < exact)
        return first + away;
    float ratio = logf((float)away / (float)exact) / (float)log((double)max_distance / (double)exact);
    int64_t wide = exact + (int64_t)(ratio * (float)(half - exact));
    return first + (wide < half - 1 ? wide : half - 1);
}

static ith_attn_problem problem_of(const ith_text_config *config, int64_t count)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = problem.mask_heads = config->heads, problem.head_dim = config->head_dim;
    problem.q_len = problem.kv_len = count;
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

static ith_status fill(ith_context *context, const ith_text_config *config, ith_text_attention *a)
{
    int64_t distances = 2 * a->count - 1;
    a->buckets = ith_alloc(context, distances, sizeof *a->buckets, "buckets of distances");
    a->lines = ith_alloc(context, a->heads * distances, sizeof *a->lines, "biases by distance");
    a->bias = ith_alloc(context, a->heads * a->count, a->count * (int64_t)sizeof *a->bias, "attention's biases");
    if (!a->buckets || !a->lines || !a->bias)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < distances; i++)
        a->buckets[i] = ith_text_bucket(i - (a->count - 1), config->buckets, config->max_distance);
    ith_attn_problem problem = problem_of(config, a->count);
    ith_attn_options options = options_of();
    return ith_plan_create(context, &problem, &options, NULL, &a->plan);
}

ith_status ith_text_attention_create(ith_context *context, const ith_text_config *config, int64_t count,
                                     ith_text_attention **out)
{
    *out = NULL;
    ith_text_attention *attention = ith_alloc_zero(context, 1, sizeof *attention, "the text encoder's attention");
    if (!attention)
        return ITH_ERR_MEMORY;
    attention->heads = config->heads, attention->count = count;
    ith_status status = fill(context, config, attention);
    if (status)
        ith_text_attention_free(context, &attention);
    *out = attention;
    return status;
}

void ith_text_attention_free(ith_context *context, ith_text_attention **attention)
{
    if (!attention || !*attention)
        return;
    ith_plan_destroy(&(*attention)->plan);
    ith_free(context, (*attention)->buckets);
    ith_free(context, (*attention)->lines);
    ith_free(context, (*attention)->bias);
    ith_free(context, *attention);
    *attention = NULL;
}

ith_status ith_text_attention_run(ith_text_attention *attention, const float *q, const float *k, const float *v,
                                  const float *table, float *o)
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
    const ith_attn_tensors tensors = {
        .struct_size = sizeof(ith_attn_tensors), .q = q, .k = k, .v = v, .o = o, .mask = attention->bias};
    return ith_plan_execute(attention->plan, &tensors);
}

ith_status ith_text_attention_bytes(ith_context *context, const ith_text_config *config, int64_t count, int64_t *bytes)
{
    int64_t distances = 2 * count - 1;
    ith_attn_problem problem = problem_of(config, count);
    ith_attn_options options = options_of();
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_status status = ith_plan_predict(context, &problem, &options, 1, 0, true, &info);
    if (!status)
        *bytes = info.memory_bytes + distances * (int64_t)sizeof(int64_t) +
                 config->heads * (distances + count * count) * (int64_t)sizeof(float);
    return status;
}
