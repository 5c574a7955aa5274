/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernels of attn_f32_tmpl.c. The including file defines
 *   LANES, TILE_ROWS, TILE_VECS   the tile in registers, and QUERIES = LANES * TILE_VECS
 *   PANEL                         number of keys of a packed panel, a multiple of LANES and of TILE_ROWS
 *   BLOCK_Q                       the best number of queries of a block */
#ifndef ITH_KERNELS_ATTN_F32_LAYOUT_H
#define ITH_KERNELS_ATTN_F32_LAYOUT_H

#include "attn_lanes_layout.h"

_Static_assert(128 * 128 % PANEL == 0 && PANEL % LANES == 0 && PANEL % TILE_ROWS == 0, "panels divide blocks of keys");

static inline bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return ith_attn_takes(dtype, head_dim, softmax);
}

static inline ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {BLOCK_Q, 128 * 128, PANEL, PANEL},
                                  .step = {QUERIES, PANEL, PANEL, PANEL},
                                  .most = {128 * QUERIES, 65536 * PANEL, 64 * PANEL, PANEL}};
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

/* The head size D, rounded up to whole tiles. */
static inline int64_t padded_dim(int64_t D)
{
    return ith_round_up(D, TILE_ROWS);
}

static inline int64_t panel_floats(int64_t D)
{
    return ith_round_up(ALIGN_FLOATS + PANEL + PANEL * D + PANEL * padded_dim(D), ALIGN_FLOATS);
}

static inline const float *panel_bias(const float *panel)
{
    return panel[0] != 0.0f ? panel + ALIGN_FLOATS : NULL;
}

static inline const float *panel_keys(const float *panel)
{
    return panel + ALIGN_FLOATS + PANEL;
}

static inline const float *panel_values(const float *panel, int64_t D)
{
    return panel + ALIGN_FLOATS + PANEL + PANEL * D;
}

static inline int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    return packed_panels(keys, PANEL, panel_floats(head_dim) * (int64_t)sizeof(float));
}

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* The scratch memory of one call. */
typedef struct work {
    query_lanes t;
    int64_t block; /* number of keys computed at a time (block_kv_compute) */
    float *q;      /* queries times c = scale log2(e), in panels [D][QUERIES] */
    float *s;      /* [block][QUERIES]: logits, then probabilities, of one panel of queries */
    fetch ahead;   /* prefetch of the next block of keys */
} work;

/* Not inlined, so that the compiler keeps registers for the loops of the calling function. */
static __attribute__((noinline)) work lay_out(ith_arena *arena, int64_t rows, int64_t D, int64_t block)
{
    work w = {.block = block};
    rows = ith_round_up(rows, LANES);
    w.s = ith_arena_take(arena, QUERIES * (int64_t)sizeof *w.s, block);
    w.q = ith_arena_take(arena, ith_round_up(rows, QUERIES), D * (int64_t)sizeof *w.q);
    w.t = lanes_lay_out(arena, rows, D, padded_dim(D));
    return w;
}

static inline int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    ith_arena arena = {0};
    lay_out(&arena, tiles->block_q, head_dim, tiles->block_kv_compute);
    return arena.used_bytes;
}

#endif
