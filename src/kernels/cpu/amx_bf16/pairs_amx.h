/* SPDX-License-Identifier: Apache-2.0 */
/* Keys in pairs, as the left factor of o^T = v^T p^T wants them. */
#ifndef ITH_KERNELS_PAIRS_AMX_H
#define ITH_KERNELS_PAIRS_AMX_H

#include "../avx512/vec_avx512.h"

#include "tiles_amx.h"

/* 32 elements of 32 rows, of which even holds every other one and odd those behind them, as two tiles
 * [16 elements][32 rows]: elements of two rows side by side in 32 bits, and these transposed. */
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

#endif
