/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of keys and values for attn_f32_tmpl.c, as R = TILE_ROWS interleaved rows after another:
 *
 *     k [PANEL / R][D][R],   v^T [padded_dim(D) / R][PANEL][R]
 *
 * The number of key j at element d is k[j / R][d][j % R], and v^T has it at [d / R][j][d % R]. Include a vec_<isa>.h
 * with LANES = 2 R and with vec_interleave and vec_store_halves, and attn_f32_layout.h, before this header. */
#ifndef ITH_KERNELS_ATTN_PACK_INTERLEAVED_H
#define ITH_KERNELS_ATTN_PACK_INTERLEAVED_H

#include "attn_lanes.h"
#include "attn_pack.h"

_Static_assert(LANES == 2 * TILE_ROWS, "a vector has the elements of two tiles");

/* Packs `count` keys of a panel, a multiple of TILE_ROWS. Where D is not a multiple of LANES, the stores of a tile
 * write beyond it. They go in the order of addresses, so the next tile overwrites the excess. The excess of the last
 * tile falls into the values, which are packed afterwards. */
static inline void pack_keys(float *k, const ith_attn_pack *p, int64_t first, int64_t count)
{
    int64_t D = p->head_dim;
    for (int64_t j = first; j < first + count; j += TILE_ROWS, k += TILE_ROWS * D) {
        const char *row[TILE_ROWS];
        for (int64_t r = 0; r < TILE_ROWS; r++) {
            row[r] = key_row(p, p->k, j + r);
            fetch_row(p, p->k, j + r + ROWS_AHEAD);
            fetch_row(p, p->v, j + r);
        }
        for (int64_t d = 0; d < D; d += LANES) {
            vec x[TILE_ROWS];
            for (int64_t r = 0; r < TILE_ROWS; r++)
                x[r] = load_part(row[r], p->dtype, d, D);
            vec_interleave(x);
            for (int64_t r = 0; r < TILE_ROWS; r++) {
                float *to = k + d * TILE_ROWS + r * LANES;
                __builtin_prefetch(to + WRITE_AHEAD, 1);
                vec_store(to, x[r]);
            }
        }
    }
}

/* Packs the values of `keys` keys of a panel: elements [d, d + ELEMENTS) of all keys, then the next elements, so that
 * each tile is written in the order of addresses. Returns the largest magnitude of the values; NaN does not count. */
static inline float pack_values(float *v, const ith_attn_pack *p, int64_t first, int64_t keys)
{
    enum { ELEMENTS = 16, TILE = PANEL * TILE_ROWS }; /* a cache line of f32; numbers of TILE_ROWS rows of v^T */
    const int64_t padded = padded_dim(p->head_dim);
    vec most = vec_set(0.0f);
    for (int64_t d = 0; d < padded; d += ELEMENTS)
        for (int64_t j = 0; j < keys; j++) {
            const char *row = key_row(p, p->v, first + j);
            for (int64_t e = d; e < ith_min64(d + ELEMENTS, padded); e += LANES) {
                float *low = v + e / TILE_ROWS * TILE + j * TILE_ROWS;
                vec x = load_part(row, p->dtype, e, p->head_dim);
                most = larger_magnitudes(x, most);
                vec_store_halves(low, e + TILE_ROWS < padded ? low + TILE : low, x);
            }
        }
    return largest_magnitude(most);
}

#endif
