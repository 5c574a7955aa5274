/* SPDX-License-Identifier: Apache-2.0 */
/* Positions in regions (strided memory), for copies that walk contiguous stretches of bytes. */
#ifndef ITH_COMM_CURSOR_H
#define ITH_COMM_CURSOR_H

#include <ithaca/transport.h>

/* A position in a region, in the order of the region's bytes. */
typedef struct ith_cursor {
    ith_region region;
    int64_t run[2]; /* indices of the current contiguous stretch */
    int64_t done;   /* bytes of this stretch before the position */
} ith_cursor;

/* A cursor at byte `offset` of a region that has more bytes than that. Stretches that follow one another in memory are
 * merged: the cursor's region has the same bytes in fewer stretches. */
static inline ith_cursor ith_cursor_at(ith_region region, int64_t offset)
{
    if (region.count[1] == 1 || region.stride[1] == region.bytes) {
        region.bytes *= region.count[1];
        region.count[1] = 1;
    }
    if (region.count[1] == 1 && (region.count[0] == 1 || region.stride[0] == region.bytes)) {
        region.bytes *= region.count[0];
        region.count[0] = 1;
    }
    int64_t run = offset / region.bytes;
    return (ith_cursor){region, {run / region.count[1], run % region.count[1]}, offset % region.bytes};
}

/* The address of a cursor's position. */
static inline char *ith_cursor_address(const ith_cursor *c)
{
    return (char *)c->region.data + c->run[0] * c->region.stride[0] + c->run[1] * c->region.stride[1] + c->done;
}

/* The bytes from the position to the end of the current stretch. */
static inline int64_t ith_cursor_left(const ith_cursor *c)
{
    return c->region.bytes - c->done;
}

/* Moves a cursor forward by `bytes`, at most to the end of the current stretch. */
static inline void ith_cursor_advance(ith_cursor *c, int64_t bytes)
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

#endif
