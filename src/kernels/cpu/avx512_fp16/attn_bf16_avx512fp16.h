/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel of bf16 tensors with AVX512-FP16. */
#ifndef ITH_KERNELS_ATTN_BF16_AVX512FP16_H
#define ITH_KERNELS_ATTN_BF16_AVX512FP16_H

#include "../avx512/shape_avx512.h"

#include "../attn_rows_layout.h"

#define ROWS 6
/* Vectors in a row of a tile of logits: 24 registers hold sums, 4 hold k, 1 holds q. */
#define TILE_VECS 4
/* A row of a tile of outputs has at most this many vectors of 32 f16 numbers. The tile has ROWS x 4, ROWS x 3, 2 ROWS
 * x 2 or 2 ROWS x 1 vectors. */
#define VALUE_VECS 4
enum { PANEL = LANES * TILE_VECS, BLOCK_Q = 384, BLOCK_KEYS = 256 };
enum {
    WIDE = 2 * LANES,
    COLUMNS = WIDE * VALUE_VECS, /* columns of v that are packed together as a whole micro-panel */
};

static inline bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return dtype == ITH_BF16 && ith_attn_takes(dtype, head_dim, softmax);
}

static inline ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {BLOCK_Q, 4096, BLOCK_KEYS, PANEL},
                                  .step = {2 * ROWS, PANEL, PANEL, PANEL},
                                  .most = {2048 * ROWS, 65536 * PANEL, 64 * PANEL, PANEL}};
}

/* ---- Packed keys and values ------------------------------------------------------------------------------------ */

/* The first words of a packed panel: whether its keys have biases, and how its values are scaled. */
typedef struct panel_head {
    int32_t biased;  /* a key of the panel has a bias other than 0 */
    int32_t in_bf16; /* the values are kept in bf16, unscaled */
    /* Every key of the panel has a largest value. most and least are the largest and the smallest exponent of these
     * values; keys whose values are all 0 do not count. */
    int32_t most, least;
    float back; /* the factor that undoes the scaling of the values */
} panel_head;

/* The head size D, rounded up to whole vectors of f16. */
static inline int64_t padded_dim(int64_t D)
{
    return ith_round_up(D, WIDE);
}

static inline int64_t panel_words(int64_t D)
{
    return ALIGN_FLOATS + PANEL + PANEL * D + PANEL / 2 * padded_dim(D);
}

static inline float *panel_bias(float *panel)
{
    return panel + ALIGN_FLOATS;
}

static inline float *panel_keys(float *panel)
{
    return panel + ALIGN_FLOATS + PANEL;
}

static inline uint16_t *panel_values(float *panel, int64_t D)
{
    return (uint16_t *)(panel + ALIGN_FLOATS + PANEL + PANEL * D);
}

static inline int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    return packed_panels(keys, PANEL, panel_words(head_dim) * (int64_t)sizeof(float));
}

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* The scratch memory of one call. */
typedef struct work {
    query_rows t;
    /* Head size, head size rounded up to whole vectors of f16, and number of keys that are computed at a time
     * (block_kv_compute). */
    int64_t D, padded, block;
    float *q;     /* [rows / ROWS][D][ROWS]: queries times c = scale log2(e) */
    float *top;   /* [rows]: shift_of(t), where t is the row's largest logit in the current block of keys */
    float *share; /* [rows]: 2^(t - m - P_BITS), by which sums over the current block of keys are multiplied */
    float *v;     /* [PANEL][WIDE]: 32 columns of a packed panel's values, converted to f32 */
    fetch ahead;  /* prefetch of the next block of keys */
} work;

/* Not inlined, so that the compiler keeps registers for the loops of the calling function. */
static __attribute__((noinline)) work lay_out(ith_arena *arena, int64_t q_rows, int64_t D, int64_t block)
{
    enum { BYTES = sizeof(float) };
    work w = {.D = D, .padded = padded_dim(D), .block = block};
    int64_t rows = ith_round_up(q_rows, 2 * ROWS), whole = ith_round_up(rows, LANES);
    w.q = ith_arena_take(arena, rows, D * BYTES);
    w.top = ith_arena_take(arena, whole, BYTES);
    w.share = ith_arena_take(arena, whole, BYTES);
    w.v = ith_arena_take(arena, PANEL * WIDE, BYTES);
    w.t = rows_lay_out(arena, rows, w.padded, block);
    return w;
}

static inline int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    ith_arena arena = {0};
    lay_out(&arena, tiles->block_q, head_dim, tiles->block_kv_compute);
    return arena.used_bytes;
}

/* With a smaller head_dim, the additional work on probabilities takes more time than f16 saves in the products p v. */
static inline bool pays(int64_t head_dim)
{
    return head_dim >= 64;
}

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_bf16_avx512fp16_pack(const ith_attn_pack *pack);
void ith_attn_bf16_avx512fp16_attend(const ith_attn_call *call);

#endif
