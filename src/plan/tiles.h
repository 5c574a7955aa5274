/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: what was asked for within a kernel's limits, and the rest.
 *
 * What is left open is the kernel's best, lowered to the next multiple of its step that takes the whole problem in.
 * Neither the strategy nor a rank's share has a say in the tiles of keys: the bits of a result depend on them. Blocks
 * of queries, which they do not depend on, are lowered too where threads would be idle. An inner tile is never longer
 * than the one around it. */
#ifndef ITH_PLAN_TILES_H
#define ITH_PLAN_TILES_H

#include "../attention/setting.h"

/* Fills in the setting's tiles from its kernel and problem; or names the rule and the nearest legal size. */
ith_status ith_tiles_resolve(const ith_attn_tiles *asked, ith_attn_setting *setting);

#endif
