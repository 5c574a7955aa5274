/* SPDX-License-Identifier: Apache-2.0 */
/* The eight tile registers of AMX. Each has up to 16 rows of 64 bytes. The left factor of a product is 16 x 32 bf16
 * numbers, the right factor 16 x 16 pairs of bf16 numbers, the sum 16 x 16 f32 numbers. */
#ifndef ITH_KERNELS_TILES_AMX_H
#define ITH_KERNELS_TILES_AMX_H

#include "shape_amx.h"

#include <immintrin.h>
#include <stdint.h>

/* The operand of the instruction LDTILECFG, which sets the shapes of the tile registers. */
typedef struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Sets the shapes of the tile registers for this thread, and clears them. */
static inline void tiles_configure(const tile_config *config)
{
    /* GCC 12 does not know that _tile_loadconfig reads all of config: this line makes it write config completely. */
    __asm__ volatile("" ::"m"(*config));
    _tile_loadconfig(config);
}

/* Returns a configuration in which registers 0 to 6 have `rows` rows, and register 7 has TILE_ROWS. */
static inline tile_config tiles_of_rows(int64_t rows)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_ROW_BYTES;
        config.rows[i] = i < 7 ? (uint8_t)rows : TILE_ROWS;
    }
    return config;
}

/* Gives `rows` rows to registers 0 to 6 of this thread, and TILE_ROWS to register 7, and clears all of them.
 * _tile_release() ends their use. */
static inline void tiles_claim_rows(int64_t rows)
{
    const tile_config config = tiles_of_rows(rows);
    tiles_configure(&config);
}

/* Sets the shapes of the tile registers for this thread to whole tiles, and clears them. */
static inline void tiles_claim(void)
{
    tiles_claim_rows(TILE_ROWS);
}

/* GCC 12 does not know that loading a tile reads memory. Called before such a load, this makes the compiler complete
 * all earlier stores. */
static inline void tiles_see_memory(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
