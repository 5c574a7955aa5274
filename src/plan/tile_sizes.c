/* SPDX-License-Identifier: Apache-2.0 */
/* The four sizes of tiles, and the rules that they keep (tile_sizes.h). */
#include "tile_sizes.h"

#include "../base/size.h"

#include <stdio.h>

/* Gives loops access to the four sizes by index, because the public structs have a member for each. */
int64_t *ith_tile_at(ith_attn_tiles *tiles, int index)
{
    int64_t *const all[ITH_TILES] = {&tiles->block_q, &tiles->block_kv, &tiles->block_kv_compute,
                                     &tiles->block_kv_compute_in};
    return all[index];
}

ith_attn_tiles ith_tiles_asked(const ith_attn_options *options)
{
    return (ith_attn_tiles){options->block_q, options->block_kv, options->block_kv_compute,
                            options->block_kv_compute_in};
}

const char *ith_tile_name(int index)
{
    static const char *const names[ITH_TILES] = {"block_q", "block_kv", "block_kv_compute", "block_kv_compute_in"};
    return names[index];
}

/* The multiple of `step` that is nearest to value and lies between `step` and `most`. */
static int64_t nearest_multiple(int64_t value, int64_t step, int64_t most)
{
    int64_t below = ith_min64(value / step * step, most / step * step);
    int64_t above = below + step;
    if (below < step || (above <= most && above - value < value - below))
        return above;
    return below;
}

bool ith_tile_is_legal(const ith_attn_kernel *kernel, ith_attn_tile_limits l, int index, int64_t asked, int64_t least,
                       char *sentence, size_t bytes)
{
    int64_t step = *ith_tile_at(&l.step, index), most = *ith_tile_at(&l.most, index);
    if (asked % step == 0 && asked >= least && asked <= most)
        return true;
    snprintf(sentence, bytes,
             "%s is %lld, and must be a multiple of %lld up to %lld with kernel %s; the nearest is %lld",
             ith_tile_name(index), (long long)asked, (long long)step, (long long)most, kernel->name,
             (long long)nearest_multiple(ith_max64(asked, 1), step, most));
    return false;
}

bool ith_tile_is_nested(const ith_attn_kernel *kernel, ith_attn_tile_limits l, ith_attn_tiles tiles, int outer,
                        char *sentence, size_t bytes)
{
    int64_t around = *ith_tile_at(&tiles, outer), inside = *ith_tile_at(&tiles, outer + 1);
    if (inside <= around)
        return true;
    snprintf(sentence, bytes, "%s is %lld, and must be at least %s, which is %lld; the nearest with kernel %s is %lld",
             ith_tile_name(outer), (long long)around, ith_tile_name(outer + 1), (long long)inside, kernel->name,
             (long long)ith_round_up(inside, *ith_tile_at(&l.step, outer)));
    return false;
}

bool ith_tiles_check(const ith_attn_kernel *kernel, int64_t head_dim, const ith_attn_tiles *tiles, char *sentence,
                     size_t bytes)
{
    const ith_attn_tile_limits limits = kernel->tiles(head_dim);
    ith_attn_tiles sizes = *tiles;
    for (int i = 0; i < ITH_TILES; i++)
        if (!ith_tile_is_legal(kernel, limits, i, *ith_tile_at(&sizes, i), 1, sentence, bytes))
            return false;
    for (int outer = ITH_BLOCK_KV; outer < ITH_TILES - 1; outer++)
        if (!ith_tile_is_nested(kernel, limits, sizes, outer, sentence, bytes))
            return false;
    return true;
}
