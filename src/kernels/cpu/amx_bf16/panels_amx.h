/* SPDX-License-Identifier: Apache-2.0 */
/* Packed panels of keys and values for AMX, which multiplies tiles of bf16. Each number is the sum of PARTS bf16
 * numbers; the including file defines PARTS (1 for bf16 tensors). A panel of PANEL keys is
 *
 *     k              tiles [PANEL / STRIP][D / STEP][PARTS][2][16 keys][32 of D]
 *     v, transposed  tiles [D / STEP][PANEL / STRIP][PARTS][2][16 of D][32 keys]
 *     panel_head | b [PANEL]
 *
 * D is padded with zeros, the last panel with absent keys (b = -inf, k = v = 0). All functions are static inline. */
#ifndef ITH_KERNELS_PANELS_AMX_H
#define ITH_KERNELS_PANELS_AMX_H

#include "../attn_fetch.h"
#include "../attn_state.h"
#include "tiles_amx.h"

enum {
    STRIP = 2 * TILE_ROWS, /* number of keys whose logits are computed together */
    /* One product of tiles sums this many terms: elements of a head for logits, keys for outputs. The outputs of this
     * many elements of a head are computed together. */
    STEP = 32,
    PANEL = 128, /* number of keys in a packed panel */
    STRIPS = PANEL / STRIP,
    PAIR_BYTES = 2 * TILE_BYTES, /* bytes of two tiles, which hold one bf16 part of 32 x 32 numbers */
    /* Bytes of 32 x 32 numbers with all their bf16 parts. */
    FACTOR_BYTES = PARTS * PAIR_BYTES
};

/* How the keys and values of a packed panel are scaled, and whether its keys have biases. */
typedef struct panel_head {
    bool biased;      /* a key of the panel is absent or has a bias */
    float k_exponent; /* k was divided by 2^k_exponent before it was split into parts (if PARTS > 1) */
    float v_unit;     /* v was divided by v_unit before it was split into parts (if PARTS > 1) */
} panel_head;
_Static_assert(sizeof(panel_head) <= ALIGN_FLOATS * sizeof(float), "biases begin aligned");

/* The number of steps of 32 elements (STEP) into which a head of D elements is divided. */
static inline int64_t steps_of(int64_t D)
{
    return ith_div_up(D, STEP);
}

/* The bytes of the keys of a packed panel; its values take as many. */
static inline int64_t panel_factor_bytes(int64_t D)
{
    return STRIPS * steps_of(D) * FACTOR_BYTES;
}

static inline int64_t panel_bytes(int64_t D)
{
    return 2 * panel_factor_bytes(D) + (ALIGN_FLOATS + PANEL) * (int64_t)sizeof(float);
}

static inline int64_t packed_bytes(int64_t keys, int64_t head_dim)
{
    return packed_panels(keys, PANEL, panel_bytes(head_dim));
}

/* The address of strip n (32 keys) in a packed panel of keys. */
static inline char *panel_keys(const char *panel, int64_t D, int64_t n)
{
    return (char *)panel + n * steps_of(D) * FACTOR_BYTES;
}

/* The address of a packed panel's values for elements [n STEP, (n + 1) STEP) of the head. */
static inline char *panel_values(const char *panel, int64_t D, int64_t n)
{
    return (char *)panel + panel_factor_bytes(D) + n * STRIPS * FACTOR_BYTES;
}

static inline panel_head *head_of(const char *panel, int64_t D)
{
    return (panel_head *)(panel + 2 * panel_factor_bytes(D));
}

static inline float *panel_bias(const char *panel, int64_t D)
{
    return (float *)head_of(panel, D) + ALIGN_FLOATS;
}

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
