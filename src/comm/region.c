/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between strided blocks of different layouts: two cursors, each of which walks over the runs of its block. */
#include "region.h"

#include "../base/size.h"

#include <string.h>

int64_t ith_region_bytes(const ith_region *block)
{
    int64_t bytes = 0;
    if (!ith_size_mul(block->count[0], block->count[1], &bytes) || !ith_size_mul(bytes, block->bytes, &bytes))
        return -1;
    return bytes;
}

/* The same bytes in as few runs as their place in memory allows. */
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

typedef struct cursor {
    ith_region region;
    int64_t run[2]; /* which run */
    int64_t done;   /* bytes of it */
} cursor;

static char *cursor_at(const cursor *c)
{
    return (char *)c->region.data + c->run[0] * c->region.stride[0] + c->run[1] * c->region.stride[1] + c->done;
}

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

void ith_region_copy(const ith_region *target, const ith_region *source)
{
    int64_t left = ith_region_bytes(source);
    cursor to = {.region = flatten(*target)}, from = {.region = flatten(*source)};
    while (left > 0) {
        int64_t bytes = ith_min64(to.region.bytes - to.done, from.region.bytes - from.done);
        memcpy(cursor_at(&to), cursor_at(&from), (size_t)bytes);
        cursor_advance(&to, bytes);
        cursor_advance(&from, bytes);
        left -= bytes;
    }
}
