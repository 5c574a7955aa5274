/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetching of rows of k and v before they are packed. */
#ifndef ITH_KERNELS_ATTN_FETCH_H
#define ITH_KERNELS_ATTN_FETCH_H

#include "../../base/dtype.h"
#include "../kernel.h"
#include "fetch.h"

/* Prefetches row j of k or v before it is packed. The rows of a head lie too far apart in memory for the hardware to
 * predict their addresses. */
static inline void fetch_row(const ith_attn_pack *p, const void *const *rows, int64_t j)
{
    if (j >= p->keys || rows[j] == NULL)
        return;
    const char *row = rows[j], *end = row + p->head_dim * ith_dtype_bytes(p->dtype);
    for (; row < end; row += FETCH_LINE)
        fetch_line(row);
}

#endif
