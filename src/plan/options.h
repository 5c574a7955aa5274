/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for, looked at without the problem. */
#ifndef ITH_PLAN_OPTIONS_H
#define ITH_PLAN_OPTIONS_H

#include "../kernels/kernel.h"

/* Copies the caller's options, which may be NULL, over the defaults. Refuses values that no problem makes legal:
 * unknown ones and negative numbers. The sentence names the nearest that is. */
ith_status ith_options_read(ith_context *context, const ith_attn_options *given, ith_attn_options *options);

/* The four sizes of tiles by number, from block_q inwards, and their names. */
#define ITH_TILES 4
int64_t *ith_tile_at(ith_attn_tiles *tiles, int index);
/* The tiles that were asked for, 0 where any will do. */
ith_attn_tiles ith_tiles_asked(const ith_attn_options *options);
const char *ith_tile_name(int index);

#endif
