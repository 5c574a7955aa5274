/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: groups of heads that are exchanged one after the other (maxdiffusion #428). Their sizes are multiples
 * of the ulysses axis (times the queries per key, where there are enough heads), and the last carries the remainder. A
 * chunk never crosses a batch entry unless the batch is folded. */
#ifndef ITH_ATTENTION_CHUNK_H
#define ITH_ATTENTION_CHUNK_H

#include "../setting.h"

/* How many there are: at least 1, at most what was asked for (of a batch entry unless it is folded). */
int ith_chunk_count(const ith_attn_setting *setting);
/* What a rank of the ulysses axis gets of a chunk. */
ith_heads ith_chunk_heads(const ith_attn_setting *setting, int chunk, int ulysses_index);

#endif
