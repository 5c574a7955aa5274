/* SPDX-License-Identifier: Apache-2.0 */
/* Strided regions of memory: their sizes, and copies between two regions with different strides.
 *
 * A region consists of contiguous stretches of bytes. A copy walks both regions at once. Each step copies as many bytes
 * as are left in the current stretches of both regions, so stretches may differ in length. */
#include "comm.h"

#include "../base/size.h"

#include <string.h>

int64_t ith_region_bytes(const ith_region *region)
{
    int64_t bytes = 0;
    if (!region || !ith_size_mul(region->count[0], region->count[1], &bytes) ||
        !ith_size_mul(bytes, region->bytes, &bytes))
        return -1;
    return bytes;
}

/* Merges contiguous stretches of bytes that follow one another in memory: the region has the same bytes in fewer
 * stretches. */
static ith_region flatten(ith_region region)
{
    if (region.count[1] == 1 || region.stride[1] == region.bytes) {
        region.bytes *= region.count[1];
        region.count[1] = 1;
    }
    if (region.count[1] == 1 && (region.count[0] == 1 || region.stride[0] == region.bytes)) {
        region.bytes *= region.count[0];
        region.count[0] = 1;
    }
    return region;
}

/* A position in a region, in the order of the region's bytes. */
typedef struct cursor {
    ith_region region;
    int64_t run[2]; /* indices of the current contiguous stretch */
    int64_t done;   /* bytes of this stretch before the position */
} cursor;

/* The address of a cursor's position. */
static char *cursor_at(const cursor *c)
{
    return (char *)c->region.data + c->run[0] * c->region.stride[0] + c->run[1] * c->region.stride[1] + c->done;
}

/* Moves a cursor forward by `bytes`, at most to the end of the current contiguous stretch of bytes. */
static void cursor_advance(cursor *c, int64_t bytes)
{
    c->done += bytes;
    if (c->done < c->region.bytes)
        return;
    c->done = 0;
    if (++c->run[1] < c->region.count[1])
        return;
    c->run[1] = 0;
    c->run[0]++;
}

int64_t ith_region_stretch(const ith_region *region, int64_t offset, void **data)
{
    if (offset < 0 || offset >= ith_region_bytes(region) || !data)
        return 0;
    cursor c = {.region = flatten(*region)};
    int64_t run = offset / c.region.bytes;
    c.run[0] = run / c.region.count[1];
    c.run[1] = run % c.region.count[1];
    c.done = offset % c.region.bytes;
    *data = cursor_at(&c);
    return c.region.bytes - c.done;
}

void ith_region_copy(const ith_region *target, const ith_region *source)
{
    int64_t left = ith_region_bytes(source);
    if (left <= 0 || ith_region_bytes(target) != left)
        return;
    cursor to = {.region = flatten(*target)}, from = {.region = flatten(*source)};
    while (left > 0) {
        int64_t bytes = ith_min64(to.region.bytes - to.done, from.region.bytes - from.done);
        memcpy(cursor_at(&to), cursor_at(&from), (size_t)bytes);
        cursor_advance(&to, bytes);
        cursor_advance(&from, bytes);
        left -= bytes;
    }
}
