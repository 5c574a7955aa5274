/* What is asked for, looked at without the problem. */
#ifndef ITH_PLAN_OPTIONS_H
#define ITH_PLAN_OPTIONS_H

#include "../base/context.h"

/* Refuses values that no problem makes legal: unknown ones and negative numbers. The sentence names the nearest that
 * is. */
ith_status ith_options_check(ith_context *context, const ith_attn_options *options);

/* The four sizes of tiles by number, from block_q inwards, and their names. */
#define ITH_TILES 4
int64_t *ith_tile_at(ith_attn_tiles *tiles, int index);
const char *ith_tile_name(int index);

#endif
