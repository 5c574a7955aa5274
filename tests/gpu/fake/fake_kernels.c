/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of kernels/device.h in plain C, one row at a time, in f64 where the contract allows it. */
#include "fake_device.h"

#include "base/dtype.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* Rows of one head, at addresses that this module can access. */
typedef struct head_rows {
    char *data;
    int64_t stride; /* bytes from one row to the next */
} head_rows;

/* Rows [0, count) of head n. Fails if they are not all in memory of the device. */
static bool find_rows(struct ith_device *device, const ith_device_rows *rows, ith_dtype dtype, int64_t head_dim,
                      int64_t n, int64_t count, head_rows *out, char *said)
{
    const int64_t size = ith_dtype_bytes(dtype), at = n - rows->first;
    const int64_t element = at / rows->heads * rows->batch_stride + at % rows->heads * head_dim;
    static char none;
    *out = (head_rows){&none, rows->row_stride * size};
    if (count == 0)
        return true;
    if (at < 0) {
        snprintf(said, ITH_DEVICE_SENTENCE, "head %lld is before the first of its rows, %lld", (long long)n,
                 (long long)rows->first);
        return false;
    }
    out->data = fake_at(device, (const char *)rows->data + element * size,
                        ((count - 1) * rows->row_stride + head_dim) * size, said);
    return out->data != NULL;
}

static void read_row(double *to, float *buffer, const head_rows *rows, int64_t row, ith_dtype dtype, int64_t head_dim)
{
    ith_to_f32(buffer, rows->data + row * rows->stride, dtype, head_dim);
    for (int64_t d = 0; d < head_dim; d++)
        to[d] = (double)buffer[d];
}

/* The larger of a and b; NaN if either is NaN. */
static double worse(double a, double b)
{
    return a >= b || isnan(a) ? a : b;
}

static ith_status no_memory(char *said)
{
    snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
    return ITH_ERR_MEMORY;
}

/* ---- Keys ------------------------------------------------------------------------------------------------------ */

/* The keys of one batch entry in a shard. */
typedef struct entry_keys {
    int64_t count;
    const float *bias; /* NULL: none */
} entry_keys;

static bool find_keys(struct ith_device *device, int64_t entry, int64_t kv_rows, const int32_t *keys,
                      const float *key_bias, int64_t key_bias_stride, entry_keys *out, char *said)
{
    *out = (entry_keys){.count = kv_rows};
    if (keys) {
        const int32_t *count = fake_at(device, keys + entry, sizeof *keys, said);
        if (!count)
            return false;
        if (*count < 0 || *count > kv_rows) {
            snprintf(said, ITH_DEVICE_SENTENCE, "batch entry %lld has %d keys of %lld", (long long)entry, *count,
                     (long long)kv_rows);
            return false;
        }
        out->count = *count;
    }
    if (key_bias && kv_rows > 0) {
        out->bias = fake_at(device, key_bias + entry * key_bias_stride, kv_rows * (int64_t)sizeof *key_bias, said);
        return out->bias != NULL;
    }
    return true;
}

static bool is_present(const entry_keys *keys, int64_t j)
{
    return j < keys->count && !(keys->bias && keys->bias[j] == -INFINITY);
}

/* ---- Copies ---------------------------------------------------------------------------------------------------- */

static int64_t region_bytes(const ith_region *r)
{
    return r->count[0] * r->count[1] * r->bytes;
}

/* The stretch of memory that begins at byte `at` of a region: returns its address, and its length in *length. */
static char *stretch_at(const ith_region *r, int64_t at, int64_t *length)
{
    const int64_t run = at / r->bytes, byte = at % r->bytes;
    *length = r->bytes - byte;
    return (char *)r->data + run / r->count[1] * r->stride[0] + run % r->count[1] * r->stride[1] + byte;
}

/* Replaces the address of a region, which must have bytes, by an address that this module can access. */
static bool find_region(struct ith_device *device, ith_region *r, char *said)
{
    const int64_t last = (r->count[0] - 1) * r->stride[0] + (r->count[1] - 1) * r->stride[1];
    r->data = fake_at(device, r->data, last + r->bytes, said);
    return r->data != NULL;
}

ith_status fake_copy_regions(struct ith_device *device, const ith_region_pair *copies, int64_t count, char *said)
{
    for (int64_t i = 0; i < count; i++) {
        ith_region target = copies[i].target, source = copies[i].source;
        const int64_t bytes = region_bytes(&source);
        if (bytes != region_bytes(&target)) {
            snprintf(said, ITH_DEVICE_SENTENCE, "copy %lld has regions of different sizes", (long long)i);
            return ITH_ERR_INTERNAL;
        }
        if (bytes > 0 && (!find_region(device, &target, said) || !find_region(device, &source, said)))
            return ITH_ERR_INTERNAL;
        for (int64_t at = 0, length, other; at < bytes; at += length) {
            char *to = stretch_at(&target, at, &length);
            const char *from = stretch_at(&source, at, &other);
            length = length < other ? length : other;
            memcpy(to, from, (size_t)length);
        }
    }
    return ITH_OK;
}

ith_status fake_pack(struct ith_device *device, const ith_device_pack *pack, char *said)
{
    const int64_t row_bytes = pack->head_dim * ith_dtype_bytes(pack->dtype);
    for (int64_t i = 0; i < pack->count; i++) {
        head_rows from;
        entry_keys keys;
        const int64_t bytes = pack->padded_rows * row_bytes, n = pack->first + i;
        char *to = bytes ? fake_at(device, (char *)pack->to + i * bytes, bytes, said) : NULL;
        if ((bytes && !to) ||
            !find_rows(device, &pack->from, pack->dtype, pack->head_dim, n, pack->kv_rows, &from, said) ||
            !find_keys(device, n / pack->kv_heads, pack->kv_rows, pack->keys, pack->key_bias, pack->key_bias_stride,
                       &keys, said))
            return ITH_ERR_INTERNAL;
        for (int64_t j = 0; j < pack->padded_rows; j++)
            if (j < pack->kv_rows && is_present(&keys, j))
                memcpy(to + j * row_bytes, from.data + j * from.stride, (size_t)row_bytes);
            else
                memset(to + j * row_bytes, 0, (size_t)row_bytes);
    }
    return ITH_OK;
}

/* ---- Statistics ------------------------------------------------------------------------------------------------ */

int64_t fake_key_stats_scratch_bytes(int64_t count, int64_t kv_rows, int64_t head_dim)
{
    return count * ((kv_rows + 63) / 64) * head_dim * (int64_t)sizeof(double);
}

/* The mean key of one head: means [head_dim]. row, buffer: [head_dim] each. Returns the number of keys. */
static int64_t find_mean(const ith_device_key_stats *s, const head_rows *k, const entry_keys *keys, double *mean,
                         double *row, float *buffer)
{
    int64_t count = 0;
    for (int64_t d = 0; d < s->head_dim; d++)
        mean[d] = 0;
    for (int64_t j = 0; j < s->kv_rows; j++) {
        if (!is_present(keys, j))
            continue;
        count++;
        read_row(row, buffer, k, j, s->dtype, s->head_dim);
        for (int64_t d = 0; d < s->head_dim && s->smoothed; d++)
            mean[d] += row[d];
    }
    for (int64_t d = 0; d < s->head_dim; d++)
        mean[d] = count > 0 ? (double)(float)(mean[d] / (double)count) : 0;
    return count;
}

static void find_stats(const ith_device_key_stats *s, const head_rows *k, const head_rows *v, const entry_keys *keys,
                       const double *mean, double *row, float *buffer, float *out)
{
    double distance = 0, magnitude = 0;
    bool biased = false;
    for (int64_t j = 0; j < s->kv_rows; j++) {
        if (!is_present(keys, j))
            continue;
        double square = 0;
        read_row(row, buffer, k, j, s->dtype, s->head_dim);
        for (int64_t d = 0; d < s->head_dim; d++)
            square += (row[d] - mean[d]) * (row[d] - mean[d]);
        distance = worse(distance, square);
        read_row(row, buffer, v, j, s->dtype, s->head_dim);
        for (int64_t d = 0; d < s->head_dim; d++)
            magnitude = worse(magnitude, fabs(row[d]));
        biased |= keys->bias && keys->bias[j] != 0.0f;
    }
    out[ITH_DEVICE_KEY_SQUARE] = (float)distance;
    out[ITH_DEVICE_KEY_MAGNITUDE] = (float)magnitude;
    out[ITH_DEVICE_KEY_OTHER_BIAS] = biased;
}

/* The statistics of head i of the call. work: [2 head_dim] numbers, and buffer [head_dim]. */
static bool measure_head(struct ith_device *device, const ith_device_key_stats *s, int64_t i, double *work,
                         float *buffer, char *said)
{
    const int64_t D = s->head_dim, n = s->first + i;
    head_rows k, v;
    entry_keys keys;
    float *means = fake_at(device, s->means + i * D, D * (int64_t)sizeof *means, said);
    float *out =
        means ? fake_at(device, s->stats + i * ITH_DEVICE_KEY_STATS, ITH_DEVICE_KEY_STATS * (int64_t)sizeof *out, said)
              : NULL;
    if (!out || !find_rows(device, &s->k, s->dtype, D, n, s->kv_rows, &k, said) ||
        !find_rows(device, &s->v, s->dtype, D, n, s->kv_rows, &v, said) ||
        !find_keys(device, n / s->kv_heads, s->kv_rows, s->keys, s->key_bias, s->key_bias_stride, &keys, said))
        return false;
    out[ITH_DEVICE_KEY_COUNT] = (float)find_mean(s, &k, &keys, work, work + D, buffer);
    for (int64_t d = 0; d < D; d++)
        means[d] = (float)work[d];
    find_stats(s, &k, &v, &keys, work, work + D, buffer, out);
    return true;
}

ith_status fake_key_stats(struct ith_device *device, const ith_device_key_stats *stats, char *said)
{
    const size_t D = (size_t)stats->head_dim;
    const int64_t bytes = fake_key_stats_scratch_bytes(stats->count, stats->kv_rows, stats->head_dim);
    void *scratch = bytes ? fake_at(device, stats->scratch, bytes, said) : NULL;
    if (bytes && !scratch)
        return ITH_ERR_INTERNAL;
    memset(bytes ? scratch : &(char){0}, 0xff, (size_t)bytes); /* the module may overwrite it */
    double *work = malloc(2 * D * sizeof *work);
    float *buffer = malloc(D * sizeof *buffer);
    ith_status status = work && buffer ? ITH_OK : no_memory(said);
    for (int64_t i = 0; i < stats->count && !status; i++)
        status = measure_head(device, stats, i, work, buffer, said) ? ITH_OK : ITH_ERR_INTERNAL;
    free(buffer);
    free(work);
    return status;
}

/* |x|^2 of a row, and its product with y if y is not NULL. */
static double square_of(const double *x, const float *y, int64_t n, double *product)
{
    double square = 0;
    *product = 0;
    for (int64_t d = 0; d < n; d++) {
        square += x[d] * x[d];
        *product += y ? x[d] * (double)y[d] : 0;
    }
    return square;
}

ith_status fake_query_stats(struct ith_device *device, const ith_device_query_stats *stats, char *said)
{
    const int64_t D = stats->head_dim;
    double *row = malloc((size_t)D * sizeof *row), product;
    float *buffer = malloc((size_t)D * sizeof *buffer);
    ith_status status = row && buffer ? ITH_OK : no_memory(said);
    for (int64_t i = 0; i < stats->count && !status; i++) {
        head_rows q;
        double most = 0;
        float *out = fake_at(device, stats->squares + i, sizeof *out, said);
        if (!out || !find_rows(device, &stats->q, stats->dtype, D, stats->first + i, stats->q_rows, &q, said)) {
            status = ITH_ERR_INTERNAL;
            break;
        }
        for (int64_t r = 0; r < stats->q_rows; r++) {
            read_row(row, buffer, &q, r, stats->dtype, D);
            most = worse(most, square_of(row, NULL, D, &product));
        }
        *out = (float)most;
    }
    free(buffer);
    free(row);
    return status;
}

/* The offsets of head i of the call. */
static bool offset_head(struct ith_device *device, const ith_device_offsets *o, int64_t i, double *row, float *buffer,
                        char *said)
{
    const int64_t D = o->head_dim, n = o->first + i, g = n / o->per_kv - o->kv_first;
    head_rows q;
    const uint8_t *fixed = fake_at(device, o->fixed + i, 1, said);
    if (!fixed)
        return false;
    if (!*fixed || o->q_rows == 0)
        return true;
    const float *mean = NULL;
    const double *bound = fake_at(device, o->bounds + g, sizeof *bound, said);
    float *m = bound ? fake_at(device, o->m + i * o->q_rows, o->q_rows * (int64_t)sizeof *m, said) : NULL;
    if (m && o->means)
        mean = fake_at(device, o->means + g * D, D * (int64_t)sizeof *mean, said);
    if (!m || (o->means && !mean) || !find_rows(device, &o->q, o->dtype, D, n, o->q_rows, &q, said))
        return false;
    for (int64_t r = 0; r < o->q_rows; r++) {
        double product;
        read_row(row, buffer, &q, r, o->dtype, D);
        const double norm = sqrt(square_of(row, mean, D, &product));
        const double reach = fabs(o->c) * (o->norm_factor * norm * *bound + (double)D * 0x1p-125);
        m[r] = (float)(o->c * product + ceil(reach + o->margin) - 88);
    }
    return true;
}

ith_status fake_offsets(struct ith_device *device, const ith_device_offsets *offsets, char *said)
{
    double *row = malloc((size_t)offsets->head_dim * sizeof *row);
    float *buffer = malloc((size_t)offsets->head_dim * sizeof *buffer);
    ith_status status = row && buffer ? ITH_OK : no_memory(said);
    for (int64_t i = 0; i < offsets->count && !status; i++)
        status = offset_head(device, offsets, i, row, buffer, said) ? ITH_OK : ITH_ERR_INTERNAL;
    free(buffer);
    free(row);
    return status;
}

/* ---- Attention ------------------------------------------------------------------------------------------------- */

/* One head of a call, with all its addresses. State and outputs are of this head. */
typedef struct attended {
    const ith_device_attend *call;
    head_rows q, k, v, o;
    entry_keys keys;
    const char *mask; /* the entry of query 0 and key 0 */
    float *o_sum, *m, *l, *lse;
    const int32_t *halt;
    double *row, *sum, *logits; /* [head_dim], [head_dim], [kv_rows]: work */
    float *buffer;              /* [head_dim] */
} attended;

/* Finds `count` f32 numbers from number `first` of `base` on. base may be NULL. */
static bool find_floats(struct ith_device *device, float *base, int64_t first, int64_t count, float **out, char *said)
{
    *out = base && count > 0 ? fake_at(device, base + first, count * (int64_t)sizeof *base, said) : NULL;
    return !base || count == 0 || *out;
}

/* Finds all addresses that a head needs. */
static bool find_head(struct ith_device *device, const ith_device_attend *c, int64_t i, attended *a, char *said)
{
    const int64_t n = c->first + i, D = c->head_dim, kv = n / c->per_kv, entry = n / c->heads;
    if (!find_rows(device, &c->q, c->dtype, D, n, c->q_rows, &a->q, said) ||
        !find_keys(device, entry, c->kv_rows, c->keys, c->key_bias, c->key_bias_stride, &a->keys, said))
        return false;
    int64_t readable = c->kv_rows;
    if (c->keys)
        readable = (a->keys.count + ITH_DEVICE_KEYS - 1) / ITH_DEVICE_KEYS * ITH_DEVICE_KEYS;
    if (!find_rows(device, &c->k, c->dtype, D, kv, readable, &a->k, said) ||
        !find_rows(device, &c->v, c->dtype, D, kv, readable, &a->v, said))
        return false;
    if (c->mask_kind && c->q_rows > 0 && a->keys.count > 0) {
        const int64_t size = c->mask_kind == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float);
        const int64_t at = entry * c->mask_batch_stride + n % c->heads * c->mask_head_stride;
        a->mask = fake_at(device, (const char *)c->mask + at * size,
                          ((c->q_rows - 1) * c->mask_row_stride + a->keys.count) * size, said);
        if (!a->mask)
            return false;
    }
    const bool state = !(c->first_shard && c->last_shard), fixed = c->softmax == ITH_SOFTMAX_FIXED_M;
    if ((state && (!c->o_sum || !c->l)) || ((state || fixed) && !c->m)) {
        snprintf(said, ITH_DEVICE_SENTENCE, "a call that needs the state has none");
        return false;
    }
    if (!find_floats(device, state ? c->o_sum : NULL, i * c->q_rows * D, c->q_rows * D, &a->o_sum, said) ||
        !find_floats(device, state || fixed ? c->m : NULL, i * c->q_rows, c->q_rows, &a->m, said) ||
        !find_floats(device, state ? c->l : NULL, i * c->q_rows, c->q_rows, &a->l, said) ||
        !find_floats(device, c->last_shard ? c->lse : NULL, i * c->lse_stride, c->q_rows, &a->lse, said))
        return false;
    return !c->last_shard || find_rows(device, &c->o, c->dtype, D, n, c->q_rows, &a->o, said);
}

/* Checks that rows are finite that a kernel may read although no query sees them: hidden keys, and rows after the last
 * key up to a multiple of ITH_DEVICE_KEYS. */
static bool check_hidden(attended *a, int64_t n, char *said)
{
    const ith_device_attend *c = a->call;
    int64_t readable = a->keys.count;
    if (c->keys)
        readable = (readable + ITH_DEVICE_KEYS - 1) / ITH_DEVICE_KEYS * ITH_DEVICE_KEYS;
    for (int64_t j = 0; j < readable; j++) {
        if (j < c->kv_rows && is_present(&a->keys, j))
            continue;
        for (int side = 0; side < 2; side++) {
            read_row(a->row, a->buffer, side ? &a->v : &a->k, j, c->dtype, c->head_dim);
            for (int64_t d = 0; d < c->head_dim; d++)
                if (!isfinite(a->row[d])) {
                    snprintf(said, ITH_DEVICE_SENTENCE, "row %lld of %s, which is hidden from head %lld, is not finite",
                             (long long)j, side ? "v" : "k", (long long)n);
                    return false;
                }
        }
    }
    return true;
}

/* A bias in base 2; finite if it was. */
static double to_base2(float x)
{
    return (double)x * M_LOG2E;
}

/* Computes the logits of query i in base 2, and returns the largest. */
static double find_logits(attended *a, int64_t i)
{
    const ith_device_attend *c = a->call;
    double most = -INFINITY;
    double *q = a->sum; /* not in use yet */
    read_row(q, a->buffer, &a->q, i, c->dtype, c->head_dim);
    for (int64_t j = 0; j < a->keys.count; j++) {
        double s = 0;
        const int64_t at = i * c->mask_row_stride + j;
        a->logits[j] = -INFINITY;
        if (!is_present(&a->keys, j) || (c->mask_kind == ITH_MASK_BOOL && !((const uint8_t *)a->mask)[at]) ||
            (c->mask_kind == ITH_MASK_ADDITIVE && ((const float *)a->mask)[at] == -INFINITY))
            continue;
        read_row(a->row, a->buffer, &a->k, j, c->dtype, c->head_dim);
        for (int64_t d = 0; d < c->head_dim; d++)
            s += q[d] * a->row[d];
        s *= (double)c->scale * M_LOG2E;
        s += a->keys.bias ? to_base2(a->keys.bias[j]) : 0;
        s += c->mask_kind == ITH_MASK_ADDITIVE ? to_base2(((const float *)a->mask)[at]) : 0;
        a->logits[j] = s < -FLT_MAX ? -FLT_MAX : s;
        most = worse(most, a->logits[j]);
    }
    return most;
}

/* Computes one row of one head. */
static void attend_row(attended *a, int64_t i)
{
    const ith_device_attend *c = a->call;
    const int64_t D = c->head_dim;
    const bool fixed = c->softmax == ITH_SOFTMAX_FIXED_M;
    const double most = find_logits(a, i);
    const double before = c->first_shard ? -INFINITY : (double)a->m[i];
    double m = fixed ? (double)a->m[i] : (double)(float)worse(before, most);
    double shift = isfinite(m) ? m : 0, l = c->first_shard ? 0 : (double)a->l[i];
    const double shrink = fixed ? 1 : exp2(before - shift);
    l *= shrink;
    for (int64_t d = 0; d < D; d++)
        a->sum[d] = c->first_shard ? 0 : (double)a->o_sum[i * D + d] * shrink;
    for (int64_t j = 0; j < a->keys.count; j++) {
        if (a->logits[j] == -INFINITY)
            continue;
        const double p = exp2(a->logits[j] - shift);
        l += p;
        read_row(a->row, a->buffer, &a->v, j, c->dtype, D);
        for (int64_t d = 0; d < D; d++)
            a->sum[d] += p * a->row[d];
    }
    if (c->last_shard) {
        for (int64_t d = 0; d < D; d++)
            a->buffer[d] = l == 0 ? 0.0f : (float)(a->sum[d] / l);
        ith_from_f32(a->o.data + i * a->o.stride, c->dtype, a->buffer, D);
        if (a->lse)
            a->lse[i] = l == 0 ? -INFINITY : (float)((m + log2(l)) * M_LN2);
        return;
    }
    if (!fixed)
        a->m[i] = (float)m;
    a->l[i] = (float)l;
    for (int64_t d = 0; d < D; d++)
        a->o_sum[i * D + d] = (float)a->sum[d];
}

/* Computes head i of the call, unless it uses the other softmax. */
static bool attend_head(struct ith_device *device, attended *a, int64_t i, char *said)
{
    const ith_device_attend *c = a->call;
    const uint8_t *fixed = c->fixed ? fake_at(device, c->fixed + i, 1, said) : NULL;
    if (c->fixed && !fixed)
        return false;
    if (fixed && *fixed != (c->softmax == ITH_SOFTMAX_FIXED_M))
        return true;
    if (!find_head(device, c, i, a, said) || !check_hidden(a, c->first + i, said))
        return false;
    for (int64_t row = 0; row < c->q_rows; row++) {
        if (a->halt && __atomic_load_n(a->halt, __ATOMIC_RELAXED))
            return true;
        attend_row(a, row);
    }
    atomic_fetch_add(&fake_control.attended, 1);
    return true;
}

ith_status fake_attend(struct ith_device *device, const ith_device_attend *call, char *said)
{
    const size_t D = (size_t)call->head_dim;
    attended a = {.call = call};
    if (call->halt && !(a.halt = fake_at(device, call->halt, sizeof *a.halt, said)))
        return ITH_ERR_INTERNAL;
    a.row = malloc(D * sizeof *a.row);
    a.sum = malloc(D * sizeof *a.sum);
    a.buffer = malloc(D * sizeof *a.buffer);
    a.logits = malloc(((size_t)call->kv_rows + 1) * sizeof *a.logits);
    ith_status status = a.row && a.sum && a.buffer && a.logits ? ITH_OK : no_memory(said);
    for (int64_t i = 0; i < call->count && !status; i++)
        status = attend_head(device, &a, i, said) ? ITH_OK : ITH_ERR_INTERNAL;
    free(a.logits);
    free(a.buffer);
    free(a.sum);
    free(a.row);
    return status;
}
