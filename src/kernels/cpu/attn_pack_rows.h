/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of keys and values for attn_f32_tmpl.c, as rows: k [PANEL][D] and v^T [padded_dim(D)][PANEL]. Include a
 * vec_<isa>.h and attn_f32_layout.h before this header. */
#ifndef ITH_KERNELS_ATTN_PACK_ROWS_H
#define ITH_KERNELS_ATTN_PACK_ROWS_H

#include "attn_lanes.h"
#include "attn_pack.h"

/* Packs `count` keys of a panel as rows. Each store writes a full vector and may write beyond its row. Stores go in the
 * order of addresses, so the next row overwrites the excess. The excess of the last row falls into the values, which
 * are packed afterwards. */
static inline void pack_keys(float *k, const ith_attn_pack *p, int64_t first, int64_t count)
{
    int64_t D = p->head_dim;
    for (int64_t i = 0; i < count; i++, k += D) {
        const char *row = key_row(p, p->k, first + i);
        fetch_row(p, p->k, first + i + ROWS_AHEAD);
        fetch_row(p, p->v, first + i);
        for (int64_t d = 0; d < D; d += LANES) {
            __builtin_prefetch(k + d + WRITE_AHEAD, 1);
            vec_store(k + d, load_part(row, p->dtype, d, D));
        }
    }
}

/* Packs the values of `keys` keys of a panel, transposed in squares of LANES keys and LANES elements. padded_dim(D) is
 * at most D rounded up to LANES, so every square has elements of v. Returns the largest magnitude of the values; NaN
 * does not count. */
static inline float pack_values(float *v, const ith_attn_pack *p, int64_t first, int64_t keys)
{
    int64_t D = p->head_dim, padded = padded_dim(D);
    vec most = vec_set(0.0f);
    for (int64_t i = 0; i < keys; i += LANES)
        for (int64_t d = 0; d < padded; d += LANES) {
            vec x[LANES];
            for (int64_t n = 0; n < LANES; n++)
                x[n] = load_part(key_row(p, p->v, first + i + n), p->dtype, d, D);
            for (int64_t n = 0; n < LANES; n++)
                most = larger_magnitudes(x[n], most);
            vec_transpose(x);
            for (int64_t e = 0; e < ith_min64(LANES, padded - d); e++)
                vec_store(v + (d + e) * PANEL + i, x[e]);
        }
    return largest_magnitude(most);
}

#endif
