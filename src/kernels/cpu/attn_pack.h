/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that attn_pack_rows.h and attn_pack_interleaved.h share. Include attn_lanes.h before this header. */
#ifndef ITH_KERNELS_ATTN_PACK_H
#define ITH_KERNELS_ATTN_PACK_H

#include "attn_fetch.h"

enum {
    /* Packing prefetches a key while it reads the key that comes this many rows earlier. */
    ROWS_AHEAD = 12,
    WRITE_AHEAD = 1024 /* packing prefetches the memory that it writes this many floats ahead */
};

/* In each lane the larger of |x| and `most`; a NaN in x does not count. */
static inline vec larger_magnitudes(vec x, vec most)
{
    return vec_max(vec_max(x, vec_sub(vec_set(0.0f), x)), most);
}

/* The largest lane of a vector of magnitudes. */
static inline float largest_magnitude(vec most)
{
    float lanes[LANES], largest = 0.0f;
    vec_store(lanes, most);
    for (int64_t n = 0; n < LANES; n++)
        largest = lanes[n] > largest ? lanes[n] : largest;
    return largest;
}

#endif
