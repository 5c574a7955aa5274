/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: the sizes that are asked for, checked against the limits of the kernel, and a choice for the others.
 *
 * A size that is left open is the kernel's best, lowered to the next multiple of its step that holds the whole problem.
 * The tiles of keys depend neither on the strategy nor on the share of a rank, because the bits of a result depend on
 * them. They do not depend on the blocks of queries, which are also lowered where threads would be idle. An inner tile
 * is never longer than the one around it. */
#ifndef ITH_PLAN_TILES_H
#define ITH_PLAN_TILES_H

#include "../attention/setting.h"

/* The four sizes of tiles by number, from block_q inwards, and their names. */
#define ITH_TILES 4
int64_t *ith_tile_at(ith_attn_tiles *tiles, int index);
const char *ith_tile_name(int index);
/* The tiles that are asked for; 0: any. */
ith_attn_tiles ith_tiles_asked(const ith_attn_options *options);

/* Fills in the tiles of the setting, by its kernel and problem; or names the rule and the nearest legal size. */
ith_status ith_tiles_resolve(const ith_attn_options *options, ith_attn_setting *setting);

#endif
