/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in plain C, for any machine; it defines the result of every kernel (kernel.h). Logits are in base
 * 2:
 *
 *     s_j = c q . k_j + (bias_j + mask_j) log2(e),   c = scale log2(e)
 *     p_j = 2^(s_j - m),   l = sum_j p_j,   o = sum_j p_j v_j
 *
 * Queries are taken one by one, keys block_kv_compute at a time. With the online softmax, when a block raises the
 * maximum from m to m', older sums are multiplied by 2^(m - m'). All state is f32.
 *
 * A packed key is its bias, k [D] and v [D], all f32. The scratch memory holds q [D], o [D] and s [block_kv_compute].
 */
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../base2.h"
#include "../kernel.h"

#include <float.h>
#include <math.h>

static const float LOG2_E = (float)M_LOG2E;

static bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return ith_attn_takes(dtype, head_dim, softmax);
}

static ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {16, 1024, 128, 1}, .step = {1, 1, 1, 1}, .most = {4096, 1 << 20, 4096, 1}};
}

/* The number of floats of a packed key: its bias, k [D] and v [D]. */
static int64_t key_floats(int64_t D)
{
    return 1 + 2 * D;
}

static int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    int64_t bytes;
    if (!ith_size_mul(keys, key_floats(head_dim) * (int64_t)sizeof(float), &bytes))
        return -1;
    return bytes;
}

static int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    return (3 * head_dim + tiles->block_kv_compute) * (int64_t)sizeof(float);
}

static void pack(const ith_attn_pack *p)
{
    int64_t D = p->head_dim;
    float *key = (float *)p->packed + p->first * key_floats(D);
    for (int64_t j = 0; j < p->keys; j++, key += key_floats(D)) {
        key[0] = p->k[j] == NULL ? -INFINITY : p->key_bias != NULL ? ith_to_base2(p->key_bias[j]) : 0.0f;
        if (key[0] == -INFINITY) {
            memset(key + 1, 0, (size_t)(2 * D) * sizeof *key);
            continue;
        }
        ith_to_f32(key + 1, p->k[j], p->dtype, D);
        ith_to_f32(key + 1 + D, p->v[j], p->dtype, D);
    }
}

/* The state of query i: the offset m, and the sums l and o over the keys so far. */
typedef struct row_state {
    int64_t i;
    float m, l;
    float *o;     /* [head_dim]: the unnormalised output */
    float *added; /* [head_dim]: the sums over some keys, before they are added to o */
} row_state;

/* Applies the mask to s, the logit of query i and key j of the KV block. A hidden logit becomes -inf, even if s is NaN.
 * A finite mask leaves a finite logit finite. */
static float masked(const ith_attn_call *call, int64_t i, int64_t j, float s)
{
    if (call->mask_kind == ITH_MASK_NONE || s == -INFINITY)
        return s;
    if (call->mask_kind == ITH_MASK_BOOL)
        return ((const uint8_t *)call->mask[i])[j] != 0 ? s : -INFINITY;
    float mask = ((const float *)call->mask[i])[j], sum = s + ith_to_base2(mask);
    if (mask == -INFINITY)
        return -INFINITY;
    return sum < -FLT_MAX ? -FLT_MAX : sum;
}

/* Computes the logits s of a query q and keys [first, first + keys) of the KV block. Returns the largest of them. */
static float scores(float *s, const ith_attn_call *call, int64_t i, const float *q, int64_t first, int64_t keys)
{
    float m = -INFINITY, c = call->scale * LOG2_E;
    const float *key = (const float *)call->packed + first * key_floats(call->head_dim);
    for (int64_t j = 0; j < keys; j++, key += key_floats(call->head_dim)) {
        float dot = 0.0f;
        for (int64_t d = 0; d < call->head_dim; d++)
            dot += q[d] * key[1 + d];
        s[j] = masked(call, i, first + j, key[0] == -INFINITY ? -INFINITY : dot * c + key[0]);
        m = s[j] > m ? s[j] : m;
    }
    return m;
}

/* The offset that is subtracted from the logits of a row with maximum m: m, or 0 if m is not finite. m is -inf while no
 * key was seen, so that 2^(m - 0) = 0; it may also be NaN. */
static float shift_of(float m)
{
    return isfinite(m) ? m : 0.0f;
}

/* Raises the maximum of the row to m if m is larger, and multiplies the sums l and o by 2^(old maximum - new
 * maximum). */
static void raise_maximum(row_state *row, float m, int64_t D)
{
    m = m > row->m ? m : row->m;
    float rescale = exp2f(row->m - shift_of(m));
    row->m = m;
    row->l *= rescale;
    for (int64_t d = 0; d < D; d++)
        row->o[d] *= rescale;
}

/* Adds to l and o of the row the probabilities and weighted values of `keys` keys from `first` on, whose logits are
 * s. The values are summed before they are added: after very many keys, single ones would be lost in the rounding. */
static void accumulate(row_state *row, const ith_attn_call *call, const float *s, int64_t first, int64_t keys)
{
    int64_t D = call->head_dim;
    float shift = shift_of(row->m);
    double l = 0.0; /* in one long f32 sum, similar terms would all be rounded in the same direction */
    const float *v = (const float *)call->packed + first * key_floats(D) + 1 + D;
    memset(row->added, 0, (size_t)D * sizeof *row->added);
    for (int64_t j = 0; j < keys; j++, v += key_floats(D)) {
        /* The difference is taken in f64: in f32 it would lose bits of s if m is a fixed offset. */
        float p = (float)exp2((double)s[j] - (double)shift);
        l += (double)p;
        for (int64_t d = 0; d < D; d++)
            row->added[d] += p * v[d];
    }
    row->l += (float)l;
    for (int64_t d = 0; d < D; d++)
        row->o[d] += row->added[d];
}

static void load_state(row_state *row, const ith_attn_call *call)
{
    bool fixed = call->softmax == ITH_SOFTMAX_FIXED_M;
    size_t o_bytes = (size_t)call->head_dim * sizeof *row->o;
    row->m = fixed || !call->first ? call->m[row->i] : -INFINITY;
    row->l = call->first ? 0.0f : call->l[row->i];
    if (call->first)
        memset(row->o, 0, o_bytes);
    else
        memcpy(row->o, call->o_sum + row->i * call->head_dim, o_bytes);
}

static void store_state(const row_state *row, const ith_attn_call *call)
{
    if (call->softmax == ITH_SOFTMAX_ONLINE)
        call->m[row->i] = row->m;
    call->l[row->i] = row->l;
    memcpy(call->o_sum + row->i * call->head_dim, row->o, (size_t)call->head_dim * sizeof *row->o);
}

static void store_output(row_state *row, const ith_attn_call *call)
{
    bool empty = row->l == 0.0f; /* all keys are hidden */
    for (int64_t d = 0; d < call->head_dim; d++)
        row->o[d] = empty ? 0.0f : row->o[d] / row->l;
    ith_from_f32(call->o[row->i], call->dtype, row->o, call->head_dim);
    if (call->lse != NULL)
        call->lse[row->i] = ith_lse(row->m, row->l);
}

static void attend(const ith_attn_call *call)
{
    int64_t D = call->head_dim, block = call->tiles.block_kv_compute;
    float *q = call->scratch, *s = q + 3 * D;
    for (int64_t i = 0; i < call->q_rows; i++) {
        ith_to_f32(q, call->q[i], call->dtype, D);
        row_state row = {.i = i, .o = q + D, .added = q + 2 * D};
        load_state(&row, call);
        for (int64_t j = 0; j < call->keys && !ith_attn_halted(call); j += block) {
            int64_t keys = ith_min64(block, call->keys - j);
            float m = scores(s, call, i, q, j, keys);
            if (call->softmax == ITH_SOFTMAX_ONLINE)
                raise_maximum(&row, m, D);
            accumulate(&row, call, s, j, keys);
        }
        if (call->last)
            store_output(&row, call);
        else
            store_state(&row, call);
    }
}

const ith_attn_kernel ith_k_attn_f32_ref_1x1 = {.name = "f32_ref",
                                                .cpu = ITH_CPU_BASELINE,
                                                .logits = {"f32_ref", 1},
                                                .outputs = {"f32_ref", 1},
                                                ITH_ATTN_FUNCTIONS};
