/* SPDX-License-Identifier: Apache-2.0 */
/* A prefetch into the second-level cache while a tile is computed: for each step of its sum, the tile fetches the next
 * step_bytes bytes from `from` on, 4 or TILE_FETCH_BYTES. Addresses that cannot be read do no harm. */
#ifndef ITH_KERNELS_TILE_FETCH_H
#define ITH_KERNELS_TILE_FETCH_H

#include <stdint.h>

typedef struct tile_fetch {
    const char *from;
    int64_t step_bytes;
} tile_fetch;

#endif
