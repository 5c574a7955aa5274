/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of keys and values for AMX (panels_layout_amx.h). All functions are static inline. */
#ifndef ITH_KERNELS_PANELS_AMX_H
#define ITH_KERNELS_PANELS_AMX_H

#include "../attn_fetch.h"
#include "../attn_state.h"
#include "panels_layout_amx.h"
#include "tiles_amx.h"

/* Writes 32 elements of 32 rows as two tiles [16 elements][32 rows]. Elements of two neighbouring rows stand side by
 * side in 32 bits, and these pairs are transposed. even[i] is row 2 i, odd[i] is row 2 i + 1. */
static inline void store_pairs(char *tiles, const __m512i even[LANES], const __m512i odd[LANES])
{
    static const uint16_t zip[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    for (int16_t half = 0; half < 2; half++) {
        const __m512i order = _mm512_add_epi16(_mm512_loadu_si512(zip), _mm512_set1_epi16((short)(half * LANES)));
        vec x[LANES];
        for (int i = 0; i < LANES; i++)
            x[i] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(even[i], order, odd[i]));
        vec_transpose(x);
        for (int i = 0; i < LANES; i++, tiles += TILE_ROW_BYTES)
            vec_store((float *)tiles, x[i]);
    }
}

/* Plans the prefetch of the packed keys that follow the current keys, while `tiles` tiles are computed. The current
 * keys take `bytes` bytes from `panels` on; the next keys follow them and take as many bytes. */
static inline fetch fetch_panels(const ith_attn_call *call, const char *panels, int64_t bytes, int64_t tiles)
{
    const char *end = (const char *)call->packed + packed_bytes(call->keys, call->head_dim);
    return fetch_of(end - panels > bytes ? panels + bytes : end, end, bytes, tiles);
}

#endif
