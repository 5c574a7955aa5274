/* SPDX-License-Identifier: Apache-2.0 */
/* A prefetch into the second-level cache while a tile is computed: every four steps the tile fetches the cache line at
 * `from` and advances `from` by `stride` bytes. Addresses that cannot be read do no harm. */
#ifndef ITH_KERNELS_TILE_FETCH_H
#define ITH_KERNELS_TILE_FETCH_H

#include <stdint.h>

typedef struct tile_fetch {
    const char *from;
    int64_t stride;
} tile_fetch;

#endif
