/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that distributes `length` items over ranks: the first (length mod ranks) ranks have one item more. */
#include "context.h"
#include "size.h"

void ith_share(int64_t length, int ranks, int rank, int64_t *begin, int64_t *count)
{
    if (!begin || !count)
        return;
    if (length < 0 || rank < 0 || rank >= ranks) {
        *begin = *count = 0;
        return;
    }
    int64_t base = length / ranks, longer = length % ranks;
    *begin = rank * base + ith_min64(rank, longer);
    *count = base + (rank < longer ? 1 : 0);
}
