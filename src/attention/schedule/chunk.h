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

#endif
