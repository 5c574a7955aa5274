/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom about tiles: the fastest tiles of a kernel for a type, a head size, a softmax and a number of keys. Numbers of
 * keys are put into classes, each a power of two: a measurement with 30,000 keys serves 32,768 keys too. */
#ifndef ITH_PLAN_TILE_WISDOM_H
#define ITH_PLAN_TILE_WISDOM_H

#include "wisdom.h"

/* The attention that tiles are for. */
typedef struct ith_tile_case {
    const char *kernel;
    ith_dtype dtype;
    ith_softmax softmax; /* ONLINE or FIXED_M */
    int64_t head_dim, keys;
} ith_tile_case;

/* The class of a number of keys: the power of two that is nearest on a logarithmic scale, from 256 to 1,048,576. */
int64_t ith_tile_class(int64_t keys);

/* Finds the tiles for a case. Returns false, with tiles of 0, if wisdom knows none or they are illegal for the kernel.
 */
bool ith_tile_wisdom_find(const ith_wisdom *wisdom, const ith_tile_case *wanted, ith_attn_tiles *tiles);
/* Remembers tiles as measured by this process. gflops: the rate with these tiles. usual_gflops: the rate with the
 * kernel's usual tiles. */
void ith_tile_wisdom_put(ith_wisdom *wisdom, const ith_tile_case *measured, const ith_attn_tiles *tiles, double gflops,
                         double usual_gflops);

/* Whether an entry may be believed: it is not about tiles, or about a kernel that this library lacks, or its tiles are
 * legal. If not, writes the rule that it breaks to `sentence`. */
bool ith_tile_wisdom_is_legal(const ith_wisdom_entry *entry, char *sentence, size_t bytes);

#endif
