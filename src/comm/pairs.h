/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of regions: the memory that one rank sends and the memory in which another rank of its process receives it. */
#ifndef ITH_COMM_PAIRS_H
#define ITH_COMM_PAIRS_H

#include <ithaca/transport.h>

#include <stdio.h>
#include <string.h>

/* The region of the next transfer to or from `peer` in a list, beginning at index *at; NULL if there is none. Sets *at
 * to the index after it. */
static inline const ith_region *ith_pairs_next(const ith_transfer *list, int64_t count, int peer, int64_t *at)
{
    while (*at < count)
        if (list[(*at)++].peer == peer)
            return &list[*at - 1].region;
    return NULL;
}

/* Pairs the memory that `source` sends to `target` in its operation `from` with the memory in which `target` receives
 * it in its operation `to`, and copies the data if `copy` is true. Returns their bytes; -1, with the reason in `why`,
 * if the two lists of transfers disagree. */
static inline int64_t ith_pairs_walk(const ith_operation *from, int source, const ith_operation *to, int target,
                                     bool copy, char *why, size_t why_bytes)
{
    int64_t sent = 0, received = 0, total = 0;
    for (int i = 0;; i++) {
        const ith_region *out = ith_pairs_next(from->sends, from->send_count, target, &sent);
        const ith_region *in = ith_pairs_next(to->receives, to->receive_count, source, &received);
        if (!out && !in)
            return total;
        int64_t out_bytes = out ? ith_region_bytes(out) : 0, in_bytes = in ? ith_region_bytes(in) : 0;
        if (!out || !in || out_bytes != in_bytes) {
            snprintf(why, why_bytes, "region %d is of %lld bytes where it is sent and of %lld where it is expected", i,
                     (long long)out_bytes, (long long)in_bytes);
            return -1;
        }
        total += out_bytes;
        if (copy)
            ith_region_copy(in, out);
    }
}

/* The end of a sentence that names two operations with different tags. It is "" if their names differ. Otherwise it
 * says how the tags differ: besides the name, a tag holds only a broadcast's root and a reduction's kind. */
static inline const char *ith_pairs_difference(const ith_operation *one, const ith_operation *other)
{
    return strcmp(one->what, other->what) ? "" : " with another root or reduction";
}

#endif
