/* SPDX-License-Identifier: Apache-2.0 */
/* Strided regions of memory: their sizes, and copies between two regions with different strides.
 *
 * A region consists of contiguous stretches of bytes. A copy walks both regions at once. Each step copies as many bytes
 * as are left in the current stretches of both regions, so stretches may differ in length. */
#include "comm.h"

#include "../base/size.h"
#include "cursor.h"

#include <string.h>

int64_t ith_region_bytes(const ith_region *region)
{
    int64_t bytes = 0;
    if (!region || !ith_size_mul(region->count[0], region->count[1], &bytes) ||
        !ith_size_mul(bytes, region->bytes, &bytes))
        return -1;
    return bytes;
}

int64_t ith_region_stretch(const ith_region *region, int64_t offset, void **data)
{
    if (offset < 0 || offset >= ith_region_bytes(region) || !data)
        return 0;
    ith_cursor c = ith_cursor_at(*region, offset);
    *data = ith_cursor_address(&c);
    return ith_cursor_left(&c);
}

void ith_region_copy(const ith_region *target, const ith_region *source)
{
    int64_t left = ith_region_bytes(source);
    if (left <= 0 || ith_region_bytes(target) != left)
        return;
    ith_cursor to = ith_cursor_at(*target, 0), from = ith_cursor_at(*source, 0);
    while (left > 0) {
        int64_t bytes = ith_min64(ith_cursor_left(&to), ith_cursor_left(&from));
        memcpy(ith_cursor_address(&to), ith_cursor_address(&from), (size_t)bytes);
        ith_cursor_advance(&to, bytes);
        ith_cursor_advance(&from, bytes);
        left -= bytes;
    }
}
