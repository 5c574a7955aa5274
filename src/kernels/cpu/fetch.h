/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetching into the second-level cache while tiles are computed: each tile fetches some cache lines of the next
 * block of keys, or of the next panel of a product. */
#ifndef ITH_KERNELS_FETCH_H
#define ITH_KERNELS_FETCH_H

#include "../../base/size.h"

enum { FETCH_LINE = 64 };

/* Fetches a cache line into the second-level cache. Always inlined: gcc may think that a function that only prefetches
 * has no effect, and drop its calls. */
static inline __attribute__((always_inline)) void fetch_line(const void *address)
{
    __builtin_prefetch(address, 0, 2);
}

/* A prefetch that is spread over the computation of several tiles, some cache lines with each. */
typedef struct fetch {
    const char *next, *end; /* the memory that is still to be fetched */
    int64_t lines;          /* number of cache lines that are fetched with each tile */
} fetch;

/* Plans a prefetch of `bytes` bytes from `next` on, but not beyond `end`, spread over `tiles` tiles. */
static inline fetch fetch_of(const void *next, const void *end, int64_t bytes, int64_t tiles)
{
    const char *from = next, *to = end;
    return (fetch){from, to - from < bytes ? to : from + bytes, ith_div_up(bytes / FETCH_LINE, ith_max64(tiles, 1))};
}

/* Prefetches the f->lines cache lines that are due each time a tile is computed. */
static inline void fetch_some(fetch *f)
{
    for (int64_t n = 0; n < f->lines && f->next < f->end; n++, f->next += FETCH_LINE)
        fetch_line(f->next);
}

/* A prefetch of rows of memory that is spread over the computation of several tiles. */
typedef struct fetch_rows {
    const char *row; /* the next row; `line` bytes of it are fetched already */
    int64_t line, rows, stride, bytes;
    int64_t lines; /* number of cache lines that are fetched with each tile */
} fetch_rows;

/* Plans a prefetch of `rows` rows of `bytes` bytes, `stride` bytes apart, spread over `tiles` tiles. */
static inline fetch_rows fetch_rows_of(const void *row, int64_t rows, int64_t stride, int64_t bytes, int64_t tiles)
{
    const int64_t lines = rows * ith_div_up(bytes, FETCH_LINE);
    return (fetch_rows){row, 0, rows, stride, bytes, ith_div_up(lines, ith_max64(tiles, 1))};
}

/* Prefetches the f->lines cache lines that are due each time a tile is computed. */
static inline void fetch_some_rows(fetch_rows *f)
{
    for (int64_t n = 0; n < f->lines && f->rows > 0; n++) {
        fetch_line(f->row + f->line);
        f->line += FETCH_LINE;
        if (f->line >= f->bytes)
            f->line = 0, f->row += f->stride, f->rows--;
    }
}

#endif
