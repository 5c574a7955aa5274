/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching ahead: rows that are about to be packed; and while a block of keys is computed, its tiles bring what comes
 * after it into the second-level cache, a few lines each. Included after vec_<isa>.h. */
#ifndef ITH_KERNELS_ATTN_FETCH_H
#define ITH_KERNELS_ATTN_FETCH_H

#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../kernel.h"

enum { FETCH_LINE = 64 };

/* Row j of k or v, which packing will come to: rows of a head lie far apart, and no hardware foresees them. */
static inline void fetch_row(const ith_attn_pack *p, const void *const *rows, int64_t j)
{
    if (j >= p->keys || rows[j] == NULL)
        return;
    const char *row = rows[j], *end = row + p->head_dim * ith_dtype_bytes(p->dtype);
    for (; row < end; row += FETCH_LINE)
        vec_prefetch(row);
}

typedef struct fetch {
    const char *next, *end; /* what is still to be fetched */
    int64_t lines;          /* by each tile */
} fetch;

/* `bytes` from `next` on, at most to `end`, shared out among `tiles`. */
static inline fetch fetch_of(const void *next, const void *end, int64_t bytes, int64_t tiles)
{
    const char *from = next, *to = end;
    return (fetch){from, to - from < bytes ? to : from + bytes, ith_div_up(bytes / FETCH_LINE, ith_max64(tiles, 1))};
}

static inline void fetch_some(fetch *f)
{
    for (int64_t n = 0; n < f->lines && f->next < f->end; n++, f->next += FETCH_LINE)
        vec_prefetch(f->next);
}

#endif
