/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of regions: the memory that one rank sends and the memory in which another rank of its process receives it. */
#ifndef ITH_COMM_PAIRS_H
#define ITH_COMM_PAIRS_H

#include <ithaca/transport.h>

#include <stdbool.h>
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

/* Whether both lists of an operation are sorted by peer. */
static inline bool ith_pairs_sorted(const ith_operation *operation)
{
    for (int64_t i = 1; i < operation->send_count; i++)
        if (operation->sends[i].peer < operation->sends[i - 1].peer)
            return false;
    for (int64_t i = 1; i < operation->receive_count; i++)
        if (operation->receives[i].peer < operation->receives[i - 1].peer)
            return false;
    return true;
}

/* Whether the rank that posted the operation has stopped and no longer needs the data. */
static inline bool ith_pairs_unwanted(const ith_operation *operation)
{
    return operation->unwanted && operation->unwanted(operation->unwanted_user);
}

/* Transfers in a row, a part of a list. */
typedef struct ith_pairs_part {
    const ith_transfer *list;
    int64_t count;
} ith_pairs_part;

/* The number of transfers in a sorted list before the first one to or from `peer` or a higher rank. */
static inline int64_t ith_pairs_below(const ith_transfer *list, int64_t count, int peer)
{
    int64_t low = 0, high = count;
    if (peer < count && list[peer].peer == peer &&
        (!peer || list[peer - 1].peer < peer)) /* one transfer for each rank */
        return peer;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (list[middle].peer < peer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The part of a list with all transfers to or from `peer`. In a sorted list the part has no other transfers; otherwise
 * it is the whole list. The list of a collective names every rank, so a search of the whole list for each peer would
 * take a time that grows with the square of the number of ranks. */
static inline ith_pairs_part ith_pairs_with(const ith_transfer *list, int64_t count, bool sorted, int peer)
{
    if (!sorted)
        return (ith_pairs_part){list, count};
    int64_t first = ith_pairs_below(list, count, peer), end = first;
    while (end < count && list[end].peer == peer)
        end++;
    return (ith_pairs_part){list + first, end - first};
}

/* Pairs the memory that `source` sends to `target` (`sends`) with the memory in which `target` receives it
 * (`receives`), and copies the data if `copy` is true. Returns their bytes; -1, with the reason in `why`, if the two
 * lists of transfers disagree. */
static inline int64_t ith_pairs_walk(ith_pairs_part sends, int target, ith_pairs_part receives, int source, bool copy,
                                     char *why, size_t why_bytes)
{
    int64_t sent = 0, received = 0, total = 0;
    for (int i = 0;; i++) {
        const ith_region *out = ith_pairs_next(sends.list, sends.count, target, &sent);
        const ith_region *in = ith_pairs_next(receives.list, receives.count, source, &received);
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
