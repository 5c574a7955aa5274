/* SPDX-License-Identifier: Apache-2.0 */
/* Packed panels of keys and values for AMX, which multiplies tiles of bf16. Each number is the sum of PARTS bf16
 * numbers; the including file defines PARTS (1 for bf16 tensors). A panel of PANEL keys is
 *
 *     k              tiles [PANEL / STRIP][D / STEP][PARTS][2][16 keys][32 of D]
 *     v, transposed  tiles [D / STEP][PANEL / STRIP][PARTS][2][16 of D][32 keys]
 *     panel_head | b [PANEL]
 *
 * D is padded with zeros, the last panel with absent keys (b = -inf, k = v = 0). All functions are static inline. */
#ifndef ITH_KERNELS_PANELS_LAYOUT_AMX_H
#define ITH_KERNELS_PANELS_LAYOUT_AMX_H

#include "../attn_layout.h"
#include "shape_amx.h"

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

#endif
