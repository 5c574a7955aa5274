/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel of bf16 tensors with the bf16 dot products of AVX-512. */
#ifndef ITH_KERNELS_ATTN_BF16_AVX512BF16_H
#define ITH_KERNELS_ATTN_BF16_AVX512BF16_H

#include "../avx512/shape_avx512.h"

#include "../attn_rows_layout.h"

#define ROWS 6
/* Vectors in a row of the tile: 24 registers hold sums, 4 hold k or v, 1 holds q or p. */
#define TILE_VECS 4
enum { PANEL = LANES * TILE_VECS, BLOCK_Q = 192, BLOCK_KEYS = 512 };

static inline bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return dtype == ITH_BF16 && ith_attn_takes(dtype, head_dim, softmax);
}

static inline ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {BLOCK_Q, 4096, BLOCK_KEYS, PANEL},
                                  .step = {ROWS, PANEL, PANEL, PANEL},
                                  .most = {1024 * ROWS, 65536 * PANEL, 64 * PANEL, PANEL}};
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

static inline int64_t pairs_of(int64_t count)
{
    return ith_div_up(count, 2);
}

/* The head size D, rounded up to whole vectors. */
static inline int64_t padded_dim(int64_t D)
{
    return ith_round_up(D, LANES);
}

static inline int64_t panel_words(int64_t D)
{
    return PANEL + PANEL * pairs_of(D) + PANEL / 2 * padded_dim(D);
}

static inline const float *panel_keys(const float *panel)
{
    return panel + PANEL;
}

static inline const float *panel_values(const float *panel, int64_t D)
{
    return panel + PANEL + PANEL * pairs_of(D);
}

static inline int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    return packed_panels(keys, PANEL, panel_words(head_dim) * (int64_t)sizeof(uint32_t));
}

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* The scratch memory of one call. */
typedef struct work {
    query_rows t;
    /* Head size, pairs of elements in a row, head size rounded up to whole vectors, and number of keys that are
     * computed at a time (block_kv_compute). */
    int64_t D, pairs, padded, block;
    uint32_t *q;    /* [rows / ROWS][pairs][ROWS]: queries, as pairs of neighbouring elements */
    float *rounded; /* [rows][LANES]: lane-wise sums l' of rounded probabilities */
    float c;        /* the factor of dot products, scale log2(e) */
    fetch ahead;    /* prefetch of the next block of keys */
} work;

/* Not inlined, so that the compiler keeps registers for the loops of the calling function. */
static __attribute__((noinline)) work lay_out(ith_arena *arena, int64_t q_rows, int64_t D, int64_t block)
{
    work w = {.D = D, .pairs = pairs_of(D), .padded = padded_dim(D), .block = block};
    int64_t rows = ith_round_up(q_rows, ROWS);
    w.q = ith_arena_take(arena, rows, w.pairs * (int64_t)sizeof *w.q);
    w.rounded = ith_arena_take(arena, rows, LANES * (int64_t)sizeof *w.rounded);
    w.t = rows_lay_out(arena, rows, w.padded, block);
    return w;
}

static inline int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    ith_arena arena = {0};
    lay_out(&arena, tiles->block_q, head_dim, tiles->block_kv_compute);
    return arena.used_bytes;
}

/* The instruction VDPBF16PS has twice the rate of f32 multiply-adds on AMD processors, and half of it on Intel
 * processors. */
static inline bool pays(int64_t head_dim)
{
    (void)head_dim;
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
}

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_bf16_avx512bf16_pack(const ith_attn_pack *pack);
void ith_attn_bf16_avx512bf16_attend(const ith_attn_call *call);

#endif
