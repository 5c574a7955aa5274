/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: checks the sizes that the caller asks for against the limits of the kernel, and chooses the others.
 *
 * If the caller asks for none of the sizes, wisdom may know the best ones (tile_wisdom.h). Otherwise a size that the
 * caller does not ask for is the kernel's usual size. If the problem is smaller, the size is lowered to the smallest
 * legal one that holds the whole problem. An inner tile is never longer than the tile around it.
 *
 * The bits of a result depend on the tiles of keys, so the tiles of keys depend neither on the strategy nor on the
 * share of a rank. The bits do not depend on the blocks of queries, so block_q is also lowered where threads would be
 * idle. */
#ifndef ITH_PLAN_TILES_H
#define ITH_PLAN_TILES_H

#include "../attention/setting.h"

/* Access to the four sizes by index, from 0 for block_q to 3 for block_kv_compute_in, and their names. */
#define ITH_TILES 4
int64_t *ith_tile_at(ith_attn_tiles *tiles, int index);
const char *ith_tile_name(int index);
/* The sizes that the options ask for; 0 where they leave the choice to the library. */
ith_attn_tiles ith_tiles_asked(const ith_attn_options *options);

/* Sets the tiles of the setting, which must have its kernel and problem. Collective over comm, which may be NULL: rank
 * 0's wisdom counts. If a size is illegal, the error sentence names the rule and the nearest legal size. */
ith_status ith_tiles_resolve(ith_comm *comm, const ith_attn_options *options, ith_attn_setting *setting);

/* The same without wisdom, as the planner of another machine would choose. */
ith_status ith_tiles_resolve_plain(const ith_attn_options *options, ith_attn_setting *setting);

/* Whether the tiles, all of which must be given, are legal for a kernel. If not, writes the rule that they break and
 * the nearest legal size to `sentence`. */
bool ith_tiles_check(const ith_attn_kernel *kernel, int64_t head_dim, const ith_attn_tiles *tiles, char *sentence,
                     size_t bytes);

#endif
