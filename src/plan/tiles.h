/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: checks the sizes that the caller asks for against the limits of the kernel, and chooses the others.
 *
 * If the caller asks for none of the sizes, wisdom may know the best ones (tile_wisdom.h). Otherwise a size that the
 * caller does not ask for is the kernel's usual size. If the problem is smaller, the size is lowered to the smallest
 * legal one that holds the whole problem. An inner tile is never longer than the tile around it.
 *
 * The bits of a result depend on the tiles of keys. So the tiles of keys depend neither on the strategy nor on the
 * share of a rank. The bits do not depend on the blocks of queries. So block_q is also lowered where threads would be
 * idle. */
#ifndef ITH_PLAN_TILES_H
#define ITH_PLAN_TILES_H

#include "../attention/setting.h"
#include "tile_sizes.h"

/* Sets the tiles of the setting, which must have its kernel and problem. Collective over comm, which may be NULL: rank
 * 0's wisdom counts. If a size is illegal, the error sentence names the rule and the nearest legal size. */
ith_status ith_tiles_resolve(ith_comm *comm, const ith_attn_options *options, ith_attn_setting *setting);

/* The same without wisdom, as the planner of another machine would choose. */
ith_status ith_tiles_resolve_plain(const ith_attn_options *options, ith_attn_setting *setting);

#endif
