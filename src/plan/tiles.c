/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and chooses the tiles of a plan (tiles.h). */
#include "tiles.h"

#include "../base/size.h"

enum { BLOCK_Q, BLOCK_KV }; /* indices of the first two tiles, as in ith_tile_at */

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

/* Fails unless a size that the caller asks for is legal for the kernel: sizes are never rounded silently. 0 leaves the
 * choice open. */
static ith_status check_asked(const ith_attn_setting *s, int index, int64_t asked, int64_t step, int64_t most)
{
    if (asked % step == 0 && asked <= most)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "%s is %lld, and must be a multiple of %lld up to %lld with kernel %s; the nearest is %lld",
                    ith_tile_name(index), (long long)asked, (long long)step, (long long)most, s->kernel->name,
                    (long long)nearest_multiple(asked, step, most));
}

/* the fewest blocks of queries for each thread, so that threads end at nearly the same time */
#define BLOCKS_PER_THREAD 4

/* The largest block of queries that leaves BLOCKS_PER_THREAD blocks to every thread of every rank. */
static int64_t busy_block(const ith_attn_setting *s, int64_t step)
{
    if (s->threads <= 1)
        return INT64_MAX;
    int64_t rows = s->problem.batch * s->problem.heads * s->problem.q_len;
    return ith_round_up(ith_max64(rows / (s->ulysses * s->ring) / (s->threads * BLOCKS_PER_THREAD), 1), step);
}

/* Chooses the size of a tile that the caller leaves open: the kernel's best size, lowered to the size of the problem,
 * raised to hold the inner tiles that the caller asks for, and at most the size of the tile around it. */
static int64_t choose(ith_attn_tiles wanted, ith_attn_tile_limits l, ith_attn_setting *s, int index)
{
    int64_t step = *ith_tile_at(&l.step, index), most = *ith_tile_at(&l.most, index);
    int64_t rows = ith_max64(index == BLOCK_Q ? s->problem.q_len : s->problem.kv_len, 1);
    int64_t size = ith_min64(*ith_tile_at(&l.best, index), ith_round_up(rows, step));
    if (index == BLOCK_Q)
        size = ith_min64(size, busy_block(s, step));
    for (int i = index + 1; index >= BLOCK_KV && i < ITH_TILES; i++)
        size = ith_max64(size, ith_min64(ith_round_up(*ith_tile_at(&wanted, i), step), most));
    if (index > BLOCK_KV)
        size = ith_min64(size, ith_max64(*ith_tile_at(&s->tiles, index - 1) / step * step, step));
    return size;
}

/* Fails if tile number `outer` is shorter than the tile inside it. */
static ith_status check_nested(ith_attn_tile_limits l, ith_attn_setting *s, int outer)
{
    int64_t around = *ith_tile_at(&s->tiles, outer), inside = *ith_tile_at(&s->tiles, outer + 1);
    if (inside <= around)
        return ITH_OK;
    return ith_fail(s->context, ITH_ERR_ARGUMENT,
                    "%s is %lld, and must be at least %s, which is %lld; the nearest with kernel %s is %lld",
                    ith_tile_name(outer), (long long)around, ith_tile_name(outer + 1), (long long)inside,
                    s->kernel->name, (long long)ith_round_up(inside, *ith_tile_at(&l.step, outer)));
}

/* Goes from the outermost tile inwards, because a tile that is left open depends on the tile around it. */
ith_status ith_tiles_resolve(const ith_attn_options *options, ith_attn_setting *s)
{
    ith_attn_tile_limits limits = s->kernel->tiles(s->problem.head_dim);
    ith_attn_tiles wanted = ith_tiles_asked(options);
    for (int i = 0; i < ITH_TILES; i++) {
        int64_t size = *ith_tile_at(&wanted, i);
        ith_status status = check_asked(s, i, size, *ith_tile_at(&limits.step, i), *ith_tile_at(&limits.most, i));
        if (status)
            return status;
        *ith_tile_at(&s->tiles, i) = size ? size : choose(wanted, limits, s, i);
    }
    for (int outer = BLOCK_KV; outer < ITH_TILES - 1; outer++) {
        ith_status status = check_nested(limits, s, outer);
        if (status)
            return status;
    }
    return ITH_OK;
}
