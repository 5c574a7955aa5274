/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: heads that are exchanged together (maxdiffusion #428). The number of heads in a chunk is a multiple of the
 * length of the ulysses axis and, if there are enough heads, of the number of query heads for each kv head. The last
 * chunk also takes the remainder. A chunk never crosses a batch entry unless the batch is folded. */
#ifndef ITH_ATTENTION_CHUNK_H
#define ITH_ATTENTION_CHUNK_H

#include "../setting.h"

/* Whether each batch entry is divided into chunks of its own. On a ulysses axis of length 1 one chunk holds all
 * heads. */
bool ith_chunks_by_entry(const ith_attn_setting *setting);
/* The number of chunks: at least 1, at most setting->chunks (for each batch entry unless the batch is folded). */
int ith_chunk_count(const ith_attn_setting *setting);
/* The heads of a chunk that the rank with this index on the ulysses axis computes. */
ith_heads ith_chunk_heads(const ith_attn_setting *setting, int chunk, int ulysses_index);

/* The query heads that consecutive ranks of a ulysses axis compute of a chunk, without ranks that compute none: the
 * first `longer` of the `ranks` have `each` + 1 heads, the others `each`. */
typedef struct ith_heads_run {
    int64_t first, ranks, each, longer;
} ith_heads_run;

/* The heads of the ranks [begin, end) of the axis. */
ith_heads_run ith_chunk_run(const ith_attn_setting *setting, int chunk, int64_t begin, int64_t end);

static inline int64_t ith_run_heads(const ith_heads_run *run)
{
    return run->ranks * run->each + run->longer;
}

/* The sum over the ranks of the number of groups of `size` heads (ith_groups_of) to which their heads belong. Its time
 * does not grow with the number of ranks. */
int64_t ith_run_groups(const ith_heads_run *run, int64_t size);

#endif
