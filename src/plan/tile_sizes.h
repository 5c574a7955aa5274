/* SPDX-License-Identifier: Apache-2.0 */
/* The four sizes of tiles, and the rules that they keep. */
#ifndef ITH_PLAN_TILE_SIZES_H
#define ITH_PLAN_TILE_SIZES_H

#include "../attention/setting.h"

/* Access to the four sizes by index, from 0 for block_q to 3 for block_kv_compute_in, and their names. */
#define ITH_TILES 4
enum { ITH_BLOCK_Q, ITH_BLOCK_KV }; /* the indices of the first two sizes */
int64_t *ith_tile_at(ith_attn_tiles *tiles, int index);
const char *ith_tile_name(int index);
/* The sizes that the options ask for; 0 where they leave the choice to the library. */
ith_attn_tiles ith_tiles_asked(const ith_attn_options *options);

/* Whether size number `index` of a tile is legal for the kernel, whose limits are `l`. Sizes are never rounded
 * silently. least: the smallest legal size, 0 where 0 leaves the choice open, otherwise 1. If the size is not legal,
 * writes a sentence with the nearest legal size. */
bool ith_tile_is_legal(const ith_attn_kernel *kernel, ith_attn_tile_limits l, int index, int64_t asked, int64_t least,
                       char *sentence, size_t bytes);
/* Whether tile number `outer` is at least as long as the tile inside it. If not, writes a sentence. */
bool ith_tile_is_nested(const ith_attn_kernel *kernel, ith_attn_tile_limits l, ith_attn_tiles tiles, int outer,
                        char *sentence, size_t bytes);
/* Whether the tiles, all of which must be given, are legal for a kernel. If not, writes the rule that they break and
 * the nearest legal size to `sentence`. */
bool ith_tiles_check(const ith_attn_kernel *kernel, int64_t head_dim, const ith_attn_tiles *tiles, char *sentence,
                     size_t bytes);

#endif
