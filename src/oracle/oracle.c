/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in float64 by its definition, and the measures of error (oracle.h). */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Types ----------------------------------------------------------------------------------------------------- */

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static float from_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                : ldexpf((float)fraction, -24);
    return bits >> 15 ? -size : size;
}

/* Element `index` of a tensor as f32. */
static float element(const void *data, ith_dtype type, int64_t index)
{
    if (type == ITH_F32)
        return ((const float *)data)[index];
    uint16_t bits = ((const uint16_t *)data)[index];
    return type == ITH_BF16 ? from_bf16(bits) : from_f16(bits);
}

/* Rounds to nearest, ties to even. A type has `digits` bits of significand, and its normal numbers begin at
 * 2^(least - 1). */
static float round_to(float value, ith_dtype type)
{
    int digits = type == ITH_BF16 ? 8 : 11, least = type == ITH_BF16 ? -125 : -13, exponent;
    if (type == ITH_F32 || value == 0 || !isfinite(value))
        return value;
    frexpf(value, &exponent);
    int unit = (exponent < least ? least : exponent) - digits;
    return ldexpf(nearbyintf(ldexpf(value, -unit)), unit);
}

/* ---- One head -------------------------------------------------------------------------------------------------- */

/* One head (batch entry b, query head h): its keys and values as f32, and one query with its logits. */
typedef struct head {
    const ith_attn_problem *p;
    const ith_attn_tensors *t;
    int64_t b, h;
    float *k, *v; /* [kv_len, head_dim] */
    float *q;     /* [head_dim]: the query */
    double *bias; /* [kv_len]: the bias of each logit of the query; -inf: the key is hidden */
    double *s;    /* [kv_len]: the logits of the query */
} head;

static void head_free(head *x)
{
    free(x->k), free(x->v), free(x->q), free(x->bias), free(x->s);
}

/* Copies the keys and values of head n = b * heads + h. Returns false if there is no memory. */
static bool head_create(const ith_attn_problem *p, const ith_attn_tensors *t, int64_t n, head *x)
{
    size_t D = (size_t)p->head_dim, kv_len = (size_t)p->kv_len;
    *x = (head){.p = p, .t = t, .b = n / p->heads, .h = n % p->heads};
    x->k = malloc((kv_len * D + 1) * sizeof *x->k), x->v = malloc((kv_len * D + 1) * sizeof *x->v);
    x->q = malloc(D * sizeof *x->q), x->bias = malloc((kv_len + 1) * sizeof *x->bias);
    x->s = malloc((kv_len + 1) * sizeof *x->s);
    if (!x->k || !x->v || !x->q || !x->bias || !x->s)
        return false;
    int64_t kv_head = x->h / (p->heads / p->kv_heads);
    for (int64_t j = 0; j < p->kv_len; j++)
        for (int64_t d = 0; d < p->head_dim; d++) {
            int64_t k_at = x->b * p->k_batch_stride + j * p->k_row_stride + kv_head * p->head_dim + d;
            int64_t v_at = x->b * p->v_batch_stride + j * p->v_row_stride + kv_head * p->head_dim + d;
            x->k[j * p->head_dim + d] = element(t->k, p->dtype, k_at);
            x->v[j * p->head_dim + d] = element(t->v, p->dtype, v_at);
        }
    return true;
}

/* Loads query i and the bias of each of its logits. */
static void head_query(head *x, int64_t i)
{
    const ith_attn_problem *p = x->p;
    const ith_attn_tensors *t = x->t;
    for (int64_t d = 0; d < p->head_dim; d++)
        x->q[d] = element(t->q, p->dtype, x->b * p->q_batch_stride + i * p->q_row_stride + x->h * p->head_dim + d);
    int64_t mask_row = ((p->mask_batch > 1 ? x->b : 0) * p->mask_heads + (p->mask_heads > 1 ? x->h : 0)) * p->q_len + i;
    for (int64_t j = 0; j < p->kv_len; j++) {
        x->bias[j] = p->has_key_bias ? (double)t->key_bias[x->b * p->kv_len + j] : 0;
        if (p->has_kv_lengths && j >= t->kv_lengths[x->b])
            x->bias[j] = -INFINITY;
        if (p->mask == ITH_MASK_ADDITIVE)
            x->bias[j] += (double)((const float *)t->mask)[mask_row * p->kv_len + j];
        if (p->mask == ITH_MASK_BOOL && !((const uint8_t *)t->mask)[mask_row * p->kv_len + j])
            x->bias[j] = -INFINITY;
    }
}

/* The factor of the logits: the scale of the problem, or 1 / sqrt(head_dim) if that is 0. */
static double scale_of(const ith_attn_problem *p)
{
    return p->scale != 0 ? (double)p->scale : 1 / sqrt((double)p->head_dim);
}

/* The dot product a . b, as eight independent sums, which the compiler keeps in vectors. */
static double dot(const float *a, const float *b, int64_t count)
{
    double sums[8] = {0};
    int64_t d = 0;
    for (; d + 8 <= count; d += 8)
        for (int n = 0; n < 8; n++)
            sums[n] += (double)a[d + n] * (double)b[d + n];
    for (; d < count; d++)
        sums[0] += (double)a[d] * (double)b[d];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Computes the attention of one query in float64. */
static void exact_row(head *x, ith_oracle_rows *rows, int64_t row)
{
    const ith_attn_problem *p = x->p;
    double m = -INFINITY, l = 0, scale = scale_of(p), max_product = 0, *o = rows->o + row * p->head_dim;
    for (int64_t j = 0; j < p->kv_len; j++) {
        x->s[j] = -INFINITY;
        if (x->bias[j] == -INFINITY)
            continue;
        double product = scale * dot(x->q, x->k + j * p->head_dim, p->head_dim);
        x->s[j] = product + x->bias[j];
        m = x->s[j] > m || isnan(x->s[j]) ? x->s[j] : m;
        if (x->bias[j] > -1e30)
            max_product = fmax(max_product, fabs(product));
    }
    memset(o, 0, (size_t)p->head_dim * sizeof *o);
    rows->lse[row] = -INFINITY, rows->max_logit[row] = m, rows->max_product[row] = max_product;
    if (m == -INFINITY)
        return;
    for (int64_t j = 0; j < p->kv_len; j++) {
        double probability = exp(x->s[j] - m);
        l += probability;
        for (int64_t d = 0; d < p->head_dim && probability != 0; d++)
            o[d] += probability * (double)x->v[j * p->head_dim + d];
    }
    for (int64_t d = 0; d < p->head_dim; d++)
        o[d] /= l;
    rows->lse[row] = m + log(l);
}

/* Computes the attention of one query in f32. Probabilities and outputs are rounded to the type of the tensors. */
static void plain_row(head *x, ith_oracle_rows *rows, int64_t row)
{
    const ith_attn_problem *p = x->p;
    float m = -INFINITY, l = 0, scale = (float)scale_of(p);
    double *o = rows->o + row * p->head_dim;
    for (int64_t j = 0; j < p->kv_len; j++) {
        float s = 0;
        for (int64_t d = 0; d < p->head_dim; d++)
            s += x->q[d] * x->k[j * p->head_dim + d];
        s = x->bias[j] == -INFINITY ? -INFINITY : s * scale + (float)x->bias[j];
        x->s[j] = (double)s;
        m = s > m ? s : m;
    }
    for (int64_t j = 0; j < p->kv_len; j++) {
        float probability = m == -INFINITY ? 0 : expf((float)x->s[j] - m);
        l += probability;
        x->s[j] = (double)round_to(probability, p->dtype);
    }
    memset(o, 0, (size_t)p->head_dim * sizeof *o);
    for (int64_t j = 0; j < p->kv_len; j++)
        for (int64_t d = 0; d < p->head_dim && x->s[j] != 0; d++) /* each sum is rounded to f32 */
            o[d] = (double)((float)o[d] + (float)x->s[j] * x->v[j * p->head_dim + d]);
    for (int64_t d = 0; d < p->head_dim; d++)
        o[d] = l > 0 ? (double)round_to((float)o[d] / l, p->dtype) : 0;
    rows->lse[row] = l > 0 ? (double)(m + logf(l)) : -INFINITY;
}

/* A function that computes the attention of one query of a head: exact_row or plain_row. */
typedef void row_fn(head *x, ith_oracle_rows *rows, int64_t row);

/* Computes the attention of the queries rows->index of all heads with `fn`. Returns false if there is no memory. */
static bool compute(const ith_attn_problem *p, const ith_attn_tensors *t, ith_oracle_rows *rows, row_fn *fn)
{
    bool good = true;
#pragma omp parallel for schedule(dynamic) reduction(&& : good) if (p->batch * p->heads > 1)
    for (int64_t n = 0; n < p->batch * p->heads; n++) {
        head x;
        bool made = head_create(p, t, n, &x);
        for (int64_t r = 0; made && r < rows->count; r++) {
            head_query(&x, rows->index[r]);
            fn(&x, rows, n * rows->count + r);
        }
        head_free(&x);
        good = good && made;
    }
    return good;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

bool ith_oracle_rows_create(const ith_attn_problem *p, int64_t most, ith_oracle_rows *rows)
{
    int64_t count = p->q_len < most ? p->q_len : most;
    size_t all = (size_t)(p->batch * p->heads * count) + 1;
    *rows = (ith_oracle_rows){.count = count};
    rows->index = malloc((size_t)(count + 1) * sizeof *rows->index);
    rows->o = calloc(all * (size_t)p->head_dim, sizeof *rows->o);
    rows->lse = calloc(all, sizeof *rows->lse);
    rows->max_logit = calloc(all, sizeof *rows->max_logit), rows->max_product = calloc(all, sizeof *rows->max_product);
    for (int64_t r = 0; rows->index && r < count; r++)
        rows->index[r] = count > 1 ? r * (p->q_len - 1) / (count - 1) : 0;
    return rows->index && rows->o && rows->lse && rows->max_logit && rows->max_product;
}

void ith_oracle_rows_free(ith_oracle_rows *rows)
{
    free(rows->index), free(rows->o), free(rows->lse), free(rows->max_logit), free(rows->max_product);
    *rows = (ith_oracle_rows){.count = 0};
}

bool ith_oracle_exact(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows)
{
    return compute(problem, tensors, rows, exact_row);
}

bool ith_oracle_plain(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows)
{
    return compute(problem, tensors, rows, plain_row);
}

void ith_oracle_copy_results(const ith_attn_problem *p, const ith_attn_tensors *tensors, ith_oracle_rows *rows)
{
    for (int64_t row = 0; row < p->batch * p->heads * rows->count; row++) {
        int64_t i = rows->index[row % rows->count], n = row / rows->count;
        int64_t at = n / p->heads * p->o_batch_stride + i * p->o_row_stride + n % p->heads * p->head_dim;
        for (int64_t d = 0; d < p->head_dim; d++)
            rows->o[row * p->head_dim + d] = (double)element(tensors->o, p->dtype, at + d);
        rows->lse[row] = (double)tensors->lse[n * p->q_len + i];
    }
}

/* ---- Differences ----------------------------------------------------------------------------------------------- */

/* Sums of squares: of the differences from the exact outputs, and of the exact outputs. */
typedef struct squares {
    double difference, size;
} squares;

/* Adds to sums the squares of the exact outputs of head n, and of the differences from them. A row without a key must
 * have o = 0; otherwise the difference is infinite. */
static void add_squares(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                        int64_t n, squares *sums)
{
    int64_t D = problem->head_dim;
    for (int64_t row = n * rows->count; row < (n + 1) * rows->count; row++)
        for (int64_t i = row * D; i < (row + 1) * D; i++) {
            double d = rows->o[i] - exact->o[i];
            sums->difference += exact->lse[row] == -INFINITY && rows->o[i] != 0 ? INFINITY : d * d;
            sums->size += exact->o[i] * exact->o[i];
        }
}

/* The relative L2 error sqrt(difference / size); infinity if it would be NaN. */
static double relative(const squares *sums)
{
    double error = sums->difference == 0 ? 0 : sqrt(sums->difference / sums->size);
    return isnan(error) ? INFINITY : error;
}

double ith_oracle_head_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                             int64_t n)
{
    squares sums = {0};
    add_squares(problem, rows, exact, n, &sums);
    return relative(&sums);
}

double ith_oracle_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                        double most_lse)
{
    squares sums = {0};
    for (int64_t n = 0; n < problem->batch * problem->heads; n++) {
        double most = -INFINITY;
        for (int64_t row = n * rows->count; row < (n + 1) * rows->count; row++)
            most = fmax(most, exact->lse[row]);
        if (most <= most_lse)
            add_squares(problem, rows, exact, n, &sums);
    }
    return relative(&sums);
}

double ith_oracle_lse_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact)
{
    double worst = 0;
    for (int64_t i = 0; i < problem->batch * problem->heads * rows->count; i++) {
        double a = rows->lse[i], b = exact->lse[i];
        double error = a == b ? 0 : fabs(a - b) / fmax(1, fabs(b));
        if (!(error <= worst)) /* also true if error is NaN */
            worst = isfinite(error) ? error : INFINITY;
    }
    return worst;
}
