/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of memory of attention kernels: packed panels of keys, and scratch memory. The headers attn_*_layout.h and
 * <isa>/attn_*.h describe a kernel as far as every processor can compute it: they use no instruction set, so that a
 * plan can be made for a machine whose kernels this processor cannot run. <isa>/attn_*_sizes.c includes them, and is
 * compiled with the baseline instruction set. */
#ifndef ITH_KERNELS_ATTN_LAYOUT_H
#define ITH_KERNELS_ATTN_LAYOUT_H

#include "../../base/arena.h"
#include "../../base/dtype.h"
#include "../kernel.h"
#include "fetch.h"

enum { ALIGN_FLOATS = 16 };

/* The bytes of the panels that hold `keys` keys; -1 if the number does not fit into int64_t. */
static inline int64_t packed_panels(int64_t keys, int64_t panel_keys, int64_t panel_bytes)
{
    int64_t bytes;
    if (keys > INT64_MAX - panel_keys || !ith_size_mul(ith_div_up(keys, panel_keys), panel_bytes, &bytes))
        return -1;
    return bytes;
}

#endif
