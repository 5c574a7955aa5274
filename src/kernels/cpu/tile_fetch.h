/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is fetched into the second-level cache during a tile: every four steps the line at `from`, which then
 * advances by `stride` bytes. Any address will do: what cannot be read is not fetched. */
#ifndef ITH_KERNELS_TILE_FETCH_H
#define ITH_KERNELS_TILE_FETCH_H

#include <stdint.h>

typedef struct tile_fetch {
    const char *from;
    int64_t stride;
} tile_fetch;

#endif
