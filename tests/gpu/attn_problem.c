/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/attn_problem.h"

#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *take(int64_t count, size_t size)
{
    void *array = calloc((size_t)count + 1, size);
    if (!array)
        exit(1);
    return array;
}

static float rounded(ith_dtype dtype, float x)
{
    uint32_t storage = 0;
    if (dtype == ITH_BF16)
        return ith_round_to_bf16(x);
    ith_from_f32(&storage, dtype, &x, 1);
    ith_to_f32(&x, &storage, dtype, 1);
    return x;
}

static float *random_rows(ith_dtype dtype, int64_t count, uint64_t *random)
{
    float *x = take(count, sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = rounded(dtype, random_normal(random));
    return x;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static void cut_shards(attn_problem *p, uint64_t *random)
{
    const attn_spec *s = &p->spec;
    for (int i = 1; i < s->shards; i++)
        p->cut[i] = random_between(random, p->cut[i - 1], s->kv_rows);
    p->cut[s->shards] = s->kv_rows;
    if (!s->lengths)
        return;
    p->keys = take(s->shards * s->batch, sizeof *p->keys);
    for (int i = 0; i < s->shards; i++)
        for (int64_t b = 0; b < s->batch; b++)
            p->keys[i * s->batch + b] = (int32_t)random_between(random, 0, p->cut[i + 1] - p->cut[i]);
}

/* Changes the keys to the kind that the problem asks for. */
static void change_keys(attn_problem *p)
{
    const attn_spec *s = &p->spec;
    int64_t D = s->head_dim;
    for (int64_t g = 0; g < p->kv_heads; g++)
        for (int64_t j = 0; j < s->kv_rows; j++)
            for (int64_t d = 0; d < D; d++) {
                float *k = &p->k[(g * s->kv_rows + j) * D + d];
                if (s->logits == LOGITS_ALIKE)
                    *k = p->k[g * s->kv_rows * D + d];
                if (s->logits == LOGITS_PEAKED && j % 7 == 0 && j / 7 < s->q_rows)
                    *k = rounded(s->dtype, 2.0f * p->q[(g * s->per_kv * s->q_rows + j / 7) * D + d]);
                if (s->logits == LOGITS_PEAKED && d < 8)
                    *k = rounded(s->dtype, *k + 3.0f);
            }
}

static void add_bias(attn_problem *p, uint64_t *random)
{
    const attn_spec *s = &p->spec;
    if (!s->biased && !s->hiding)
        return;
    p->bias = take(s->batch * s->kv_rows, sizeof *p->bias);
    for (int64_t j = 0; j < s->batch * s->kv_rows; j++) {
        p->bias[j] = s->biased ? 2.0f * random_normal(random) : 0.0f;
        if (s->hiding && random_below(random, 3) == 0)
            p->bias[j] = -INFINITY;
    }
}

/* A random mask, under which every seventh row sees nothing. */
static void add_mask(attn_problem *p, uint64_t *random)
{
    const attn_spec *s = &p->spec;
    int64_t rows = s->q_rows * s->kv_rows, heads = s->mask_of_head ? s->heads : 1;
    int64_t count = rows * heads * (s->mask_of_batch ? s->batch : 1);
    p->mask_head_stride = s->mask_of_head ? rows : 0;
    p->mask_batch_stride = s->mask_of_batch ? rows * heads : 0;
    if (s->mask == ITH_MASK_BOOL)
        p->shown = take(count, sizeof *p->shown);
    if (s->mask == ITH_MASK_ADDITIVE)
        p->added = take(count, sizeof *p->added);
    for (int64_t n = 0; s->mask != ITH_MASK_NONE && n < count; n++) {
        bool show = random_below(random, 4) != 0 && n / s->kv_rows % 7 != 5;
        if (p->shown)
            p->shown[n] = show ? (uint8_t)random_between(random, 1, 255) : 0;
        else
            p->added[n] = show ? 2.0f * random_normal(random) : -INFINITY;
    }
}

/* Sets offsets of fixed_m so that each row's largest probability is between 2^-40 and 2^80. If all keys are the same,
 * its exponent is a whole number. */
static void set_offsets(attn_problem *p, uint64_t *random)
{
    const attn_spec *s = &p->spec;
    attn_answer exact = compute_exact(p);
    p->m = take(s->count * s->q_rows, sizeof *p->m);
    for (int64_t i = 0; i < s->count * s->q_rows; i++) {
        double most = exact.lse[i] == -INFINITY ? 0.0 : (double)exact.lse[i] * M_LOG2E;
        if (s->logits != LOGITS_ALIKE) /* if all keys are the same, their probability is a power of two */
            most = ceil(most);
        else
            most -= log2((double)s->kv_rows);
        p->m[i] = (float)(most - (double)random_between(random, -40, 80));
    }
    free_answer(&exact);
}

attn_problem make_problem(const attn_spec *spec, uint64_t seed)
{
    attn_problem p = {.spec = *spec};
    attn_spec *s = &p.spec;
    uint64_t random = seed;
    s->per_kv = s->per_kv ? s->per_kv : 1;
    s->shards = s->shards ? s->shards : 1;
    s->count = s->count ? s->count : s->batch * s->heads - s->first;
    p.kv_heads = s->batch * s->heads / s->per_kv;
    p.scale = (s->spread != 0.0f ? s->spread : 1.0f) / sqrtf((float)s->head_dim);
    p.q = random_rows(s->dtype, s->batch * s->heads * s->q_rows * s->head_dim, &random);
    p.k = random_rows(s->dtype, p.kv_heads * s->kv_rows * s->head_dim, &random);
    p.v = random_rows(s->dtype, p.kv_heads * s->kv_rows * s->head_dim, &random);
    change_keys(&p);
    cut_shards(&p, &random);
    add_bias(&p, &random);
    add_mask(&p, &random);
    p.fixed = s->mixed ? take(s->count, 1) : NULL;
    for (int64_t i = 0; s->mixed && i < s->count; i++)
        p.fixed[i] = (uint8_t)random_below(&random, 2);
    set_offsets(&p, &random);
    return p;
}

void free_problem(attn_problem *p)
{
    void *all[] = {p->keys, p->q, p->k, p->v, p->bias, p->fixed, p->shown, p->added, p->m};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

attn_answer make_answer(const attn_problem *p)
{
    int64_t rows = p->spec.count * p->spec.q_rows;
    return (attn_answer){take(rows * p->spec.head_dim, sizeof(float)), take(rows, sizeof(float))};
}

void free_answer(attn_answer *a)
{
    free(a->o);
    free(a->lse);
}

bool uses_fixed_m(const attn_problem *p, int64_t index)
{
    return p->fixed ? p->fixed[index] != 0 : p->spec.softmax == ITH_SOFTMAX_FIXED_M;
}

bool sees(const attn_problem *p, int64_t index, int64_t i, int64_t j, double *added)
{
    const attn_spec *s = &p->spec;
    int64_t b = (s->first + index) / s->heads, h = (s->first + index) % s->heads;
    int64_t at = b * p->mask_batch_stride + h * p->mask_head_stride + i * s->kv_rows + j;
    int shard = 0;
    while (j >= p->cut[shard + 1])
        shard++;
    *added = p->bias ? (double)p->bias[b * s->kv_rows + j] : 0.0;
    *added += p->added ? (double)p->added[at] : 0.0;
    return *added != -INFINITY && !(p->keys && j - p->cut[shard] >= p->keys[shard * s->batch + b]) &&
           !(p->shown && p->shown[at] == 0);
}

/* ---- Answers --------------------------------------------------------------------------------------------------- */

static void exact_row(const attn_problem *p, int64_t index, int64_t i, double *logits, attn_answer *a)
{
    const attn_spec *s = &p->spec;
    int64_t D = s->head_dim, n = s->first + index, row = index * s->q_rows + i;
    const float *q = p->q + (n * s->q_rows + i) * D, *k = p->k + n / s->per_kv * s->kv_rows * D;
    const float *v = p->v + n / s->per_kv * s->kv_rows * D;
    double m = -INFINITY, l = 0, added, *o = logits + s->kv_rows;
    memset(o, 0, (size_t)D * sizeof *o);
    for (int64_t j = 0; j < s->kv_rows; j++) {
        double dot = 0;
        for (int64_t d = 0; d < D; d++)
            dot += (double)q[d] * (double)k[j * D + d];
        logits[j] = sees(p, index, i, j, &added) ? (double)p->scale * dot + added : -INFINITY;
        m = logits[j] > m ? logits[j] : m;
    }
    for (int64_t j = 0; m != -INFINITY && j < s->kv_rows; j++) {
        double weight = exp(logits[j] - m);
        l += weight;
        for (int64_t d = 0; weight != 0 && d < D; d++)
            o[d] += weight * (double)v[j * D + d];
    }
    for (int64_t d = 0; d < D; d++)
        a->o[row * D + d] = l > 0 ? (float)(o[d] / l) : 0.0f;
    a->lse[row] = l > 0 ? (float)(m + log(l)) : -INFINITY;
}

static void plain_row(const attn_problem *p, int64_t index, int64_t i, double *logits, attn_answer *a)
{
    const attn_spec *s = &p->spec;
    int64_t D = s->head_dim, n = s->first + index, row = index * s->q_rows + i;
    const float *q = p->q + (n * s->q_rows + i) * D, *k = p->k + n / s->per_kv * s->kv_rows * D;
    const float *v = p->v + n / s->per_kv * s->kv_rows * D;
    float m = -INFINITY, l = 0, *o = (float *)(logits + s->kv_rows);
    double added;
    memset(o, 0, (size_t)D * sizeof *o);
    for (int64_t j = 0; j < s->kv_rows; j++) {
        float dot = 0;
        for (int64_t d = 0; d < D; d++)
            dot += q[d] * k[j * D + d];
        float x = sees(p, index, i, j, &added) ? p->scale * dot + (float)added : -INFINITY;
        logits[j] = (double)x;
        m = x > m ? x : m;
    }
    for (int64_t j = 0; m != -INFINITY && j < s->kv_rows; j++) {
        float weight = expf((float)logits[j] - m);
        l += weight;
        weight = rounded(s->dtype, weight);
        for (int64_t d = 0; weight != 0 && d < D; d++)
            o[d] += weight * v[j * D + d];
    }
    for (int64_t d = 0; d < D; d++)
        a->o[row * D + d] = l > 0 ? rounded(s->dtype, o[d] / l) : 0.0f;
    a->lse[row] = l > 0 ? m + logf(l) : -INFINITY;
}

typedef void row_fn(const attn_problem *p, int64_t index, int64_t i, double *logits, attn_answer *a);

static attn_answer compute(const attn_problem *p, row_fn *compute_row)
{
    const attn_spec *s = &p->spec;
    attn_answer a = make_answer(p);
#pragma omp parallel
    {
        double *scratch = take(s->kv_rows + s->head_dim, sizeof *scratch);
#pragma omp for schedule(dynamic, 8)
        for (int64_t row = 0; row < s->count * s->q_rows; row++)
            compute_row(p, row / s->q_rows, row % s->q_rows, scratch, &a);
        free(scratch);
    }
    return a;
}

attn_answer compute_exact(const attn_problem *p)
{
    return compute(p, exact_row);
}

attn_answer compute_plain(const attn_problem *p)
{
    return compute(p, plain_row);
}

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

double head_error(const attn_problem *p, const attn_answer *a, const attn_answer *b, int64_t index)
{
    int64_t count = p->spec.q_rows * p->spec.head_dim;
    double difference = 0, norm = 0;
    for (int64_t i = index * count; i < (index + 1) * count; i++) {
        double x = (double)a->o[i] - (double)b->o[i];
        difference += x * x;
        norm += (double)b->o[i] * (double)b->o[i];
    }
    double error = difference == 0 ? 0 : sqrt(difference / norm);
    return isnan(error) ? INFINITY : error;
}

double lse_error(const attn_problem *p, const attn_answer *a, const attn_answer *b)
{
    double most = 0;
    for (int64_t i = 0; i < p->spec.count * p->spec.q_rows; i++) {
        double x = (double)a->lse[i], y = (double)b->lse[i];
        if (x == y)
            continue;
        double error = fabs(x - y) / fmax(4.0, fabs(y));
        most = fmax(most, isnan(error) ? INFINITY : error);
    }
    return most;
}

double unit_of(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 0x1p-24 : dtype == ITH_BF16 ? 0x1p-9 : 0x1p-12;
}

const char *describe(const attn_problem *p)
{
    static char text[512];
    static const char *const types[] = {"f32", "bf16", "f16"};
    const attn_spec *s = &p->spec;
    int type = (int)s->dtype - (int)ITH_F32;
    snprintf(
        text, sizeof text,
        "%s %s%s B=%lld H=%lld per_kv=%lld D=%lld q=%lld kv=%lld heads [%lld, +%lld) shards=%d spread=%g logits=%d "
        "layout=%d lengths=%d bias=%d hiding=%d mask=%d%s%s",
        types[type], s->softmax == ITH_SOFTMAX_FIXED_M ? "fixed_m" : "online", s->mixed ? " mixed" : "",
        (long long)s->batch, (long long)s->heads, (long long)s->per_kv, (long long)s->head_dim, (long long)s->q_rows,
        (long long)s->kv_rows, (long long)s->first, (long long)s->count, s->shards, (double)s->spread, (int)s->logits,
        (int)s->layout, s->lengths, s->biased, s->hiding, (int)s->mask, s->mask_of_batch ? " of batch" : "",
        s->mask_of_head ? " of head" : "");
    return text;
}
