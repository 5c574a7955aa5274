/* Partial attention in plain C: what every kernel means (kernel.h), for any machine.
 *
 *     s_j = scale * q . k_j + bias_j,   m = max_j s_j,   l = sum_j e^(s_j - m),   o = sum_j e^(s_j - m) v_j
 *
 * One query at a time, BLOCK keys at a time: when a block raises the maximum from m to m', what was summed before is
 * multiplied by e^(m - m'). m is in base e. Everything is f32.
 *
 * Packed: bias [keys], k [keys, D], v [keys, D], all f32. Scratch: q [D], o [D], s [BLOCK]. */
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../kernel.h"

#include <math.h>

enum { BLOCK = 128 };

static bool supports(ith_dtype dtype, int64_t head_dim)
{
    return head_dim >= 1 && head_dim <= ITH_ATTN_HEAD_DIM_MAX &&
           (dtype == ITH_F32 || dtype == ITH_BF16 || dtype == ITH_F16);
}

static int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    int64_t bytes;
    if (!ith_size_mul(keys, (2 * head_dim + 1) * (int64_t)sizeof(float), &bytes))
        return -1;
    return bytes;
}

static int64_t scratch_bytes(int64_t head_dim)
{
    return (2 * head_dim + BLOCK) * (int64_t)sizeof(float);
}

/* Row j of an array whose rows are `stride` elements apart. */
static const void *row_of(const void *base, ith_dtype dtype, int64_t stride, int64_t j)
{
    return (const char *)base + j * stride * ith_dtype_bytes(dtype);
}

static void pack(const ith_attn_pack *p)
{
    int64_t D = p->head_dim;
    float *bias = p->packed, *k = bias + p->keys, *v = k + p->keys * D;
    for (int64_t j = 0; j < p->keys; j++, k += D, v += D) {
        bias[j] = p->key_bias != NULL ? p->key_bias[j] : 0.0f;
        if (bias[j] == -INFINITY) {
            memset(k, 0, (size_t)D * sizeof *k);
            memset(v, 0, (size_t)D * sizeof *v);
            continue;
        }
        ith_to_f32(k, row_of(p->k, p->dtype, p->k_stride, j), p->dtype, D);
        ith_to_f32(v, row_of(p->v, p->dtype, p->v_stride, j), p->dtype, D);
    }
}

/* The sum over the keys seen so far of one query. */
typedef struct row_state {
    float m, l;
    float *o; /* [D] */
} row_state;

/* s_j of `keys` keys, and their maximum. */
static float scores(float *s, const float *q, const float *k, const float *bias, int64_t keys, int64_t D, float scale)
{
    float m = -INFINITY;
    for (int64_t j = 0; j < keys; j++) {
        float dot = 0.0f;
        for (int64_t d = 0; d < D; d++)
            dot += q[d] * k[j * D + d];
        s[j] = dot * scale + bias[j];
        m = s[j] > m ? s[j] : m;
    }
    return m;
}

/* Takes the scores s of `keys` keys and their values into the sum; m is their maximum. */
static void accumulate(row_state *row, const float *s, float m, const float *v, int64_t keys, int64_t D)
{
    m = m > row->m ? m : row->m;
    float shift = m == -INFINITY ? 0.0f : m; /* all masked so far: e^(-inf - 0) = 0 */
    float rescale = expf(row->m - shift);
    row->m = m;
    row->l *= rescale;
    for (int64_t d = 0; d < D; d++)
        row->o[d] *= rescale;
    for (int64_t j = 0; j < keys; j++) {
        float p = expf(s[j] - shift);
        row->l += p;
        for (int64_t d = 0; d < D; d++)
            row->o[d] += p * v[j * D + d];
    }
}

static void finish(const ith_attn_run *r, int64_t i, row_state *row)
{
    int64_t D = r->head_dim;
    bool empty = row->l == 0.0f; /* no key but masked ones */
    for (int64_t d = 0; d < D; d++)
        row->o[d] = empty ? 0.0f : row->o[d] / row->l;
    ith_from_f32((char *)r->o + i * r->o_stride * ith_dtype_bytes(r->dtype), r->dtype, row->o, D);
    if (r->lse != NULL)
        r->lse[i] = empty ? -INFINITY : row->m + logf(row->l);
}

static void run(const ith_attn_run *r)
{
    int64_t D = r->head_dim;
    const float *bias = r->packed, *k = bias + r->keys, *v = k + r->keys * D;
    float *q = r->scratch, *s = q + 2 * D;
    for (int64_t i = 0; i < r->q_rows; i++) {
        ith_to_f32(q, row_of(r->q, r->dtype, r->q_stride, i), r->dtype, D);
        row_state row = {.m = -INFINITY, .l = 0.0f, .o = q + D};
        if (r->first) {
            memset(row.o, 0, (size_t)D * sizeof *row.o);
        } else {
            row.m = r->m[i], row.l = r->l[i];
            memcpy(row.o, r->o_sum + i * D, (size_t)D * sizeof *row.o);
        }
        for (int64_t j = 0; j < r->keys; j += BLOCK) {
            int64_t keys = ith_min64(BLOCK, r->keys - j);
            float m = scores(s, q, k + j * D, bias + j, keys, D, r->scale);
            accumulate(&row, s, m, v + j * D, keys, D);
        }
        if (r->last) {
            finish(r, i, &row);
        } else {
            r->m[i] = row.m, r->l[i] = row.l;
            memcpy(r->o_sum + i * D, row.o, (size_t)D * sizeof *row.o);
        }
    }
}

const ith_attn_kernel ith_k_attn_f32_ref = {.name = "f32_ref",
                                            .cpu = ITH_CPU_BASELINE,
                                            .q_block = 16,
                                            .kv_block = 1024,
                                            .supports = supports,
                                            .packed_bytes = packed_bytes,
                                            .scratch_bytes = scratch_bytes,
                                            .pack = pack,
                                            .run = run};
