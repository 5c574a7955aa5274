/* SPDX-License-Identifier: Apache-2.0 */
/* The eight tile registers, all of the same shape: 16 rows of 64 bytes, which is 16 x 32 bf16 as the left factor of a
 * product, 16 pairs x 16 x 2 bf16 as the right one, 16 x 16 f32 as a sum. */
#ifndef ITH_KERNELS_TILES_AMX_H
#define ITH_KERNELS_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES, TILE_FLOATS = TILE_BYTES / 4 };

/* The operand of LDTILECFG. */
typedef struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Gives the registers to this thread, as zeros, until _tile_release(). */
static inline void tiles_claim(void)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_ROW_BYTES;
        config.rows[i] = TILE_ROWS;
    }
    __asm__ volatile("" ::"m"(config)); /* GCC 12 does not know that loading a configuration reads all of it */
    _tile_loadconfig(&config);
}

/* GCC 12 does not know that loading a tile reads memory: this makes it finish earlier stores. */
static inline void tiles_see_memory(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
