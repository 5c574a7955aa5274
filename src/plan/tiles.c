/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and chooses the tiles of a plan (tiles.h). */
#include "tiles.h"

#include "../base/size.h"
#include "agree.h"
#include "tile_wisdom.h"

#include <stdio.h>

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

/* Whether a size is legal for the kernel. Sizes are never rounded silently. least: the smallest legal size, 0 where 0
 * leaves the choice open, otherwise 1. If the size is not legal, writes a sentence with the nearest legal size. */
static bool is_legal(const ith_attn_kernel *kernel, ith_attn_tile_limits l, int index, int64_t asked, int64_t least,
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

/* Whether tile number `outer` is at least as long as the tile inside it. If not, writes a sentence. */
static bool is_nested(const ith_attn_kernel *kernel, ith_attn_tile_limits l, ith_attn_tiles tiles, int outer,
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
        if (!is_legal(kernel, limits, i, *ith_tile_at(&sizes, i), 1, sentence, bytes))
            return false;
    for (int outer = BLOCK_KV; outer < ITH_TILES - 1; outer++)
        if (!is_nested(kernel, limits, sizes, outer, sentence, bytes))
            return false;
    return true;
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
        size = ith_max64(size, ith_min64(ith_round_up(ith_min64(*ith_tile_at(&wanted, i), most), step), most));
    if (index > BLOCK_KV)
        size = ith_min64(size, ith_max64(*ith_tile_at(&s->tiles, index - 1) / step * step, step));
    return size;
}

/* Collective. Finds the tiles that rank 0's wisdom knows for the whole problem, not for the share of a rank. Rank 0
 * decides, because the tiles of keys change the bits. *tiles becomes 0s if wisdom knows none. */
static ith_status recall(ith_comm *comm, const ith_attn_setting *s, ith_attn_tiles *tiles)
{
    const ith_tile_case wanted = {s->kernel->name, s->problem.dtype, s->softmax, s->problem.head_dim,
                                  s->problem.kv_len};
    ith_wisdom *wisdom = NULL;
    ith_status status = ITH_OK;
    *tiles = (ith_attn_tiles){0};
    if (ith_comm_rank(comm) == 0)
        status = ith_wisdom_open(s->context, &wisdom);
    if (wisdom) {
        ith_tile_wisdom_find(wisdom, &wanted, tiles);
        ith_wisdom_close(s->context);
    }
    return ith_agree_with_first(s->context, comm, status, tiles, sizeof *tiles);
}

/* Sets the tiles of the setting to the wanted sizes, and chooses the sizes that are left open (0). Goes from the
 * outermost tile inwards, because a tile that is left open depends on the tile around it. */
static ith_status fit(ith_attn_tiles wanted, ith_attn_tile_limits limits, ith_attn_setting *s)
{
    char sentence[256];
    for (int i = 0; i < ITH_TILES; i++) {
        int64_t size = *ith_tile_at(&wanted, i);
        if (!is_legal(s->kernel, limits, i, size, 0, sentence, sizeof sentence))
            return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s", sentence);
        *ith_tile_at(&s->tiles, i) = size ? size : choose(wanted, limits, s, i);
    }
    for (int outer = BLOCK_KV; outer < ITH_TILES - 1; outer++)
        if (!is_nested(s->kernel, limits, s->tiles, outer, sentence, sizeof sentence))
            return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s", sentence);
    return ITH_OK;
}

ith_status ith_tiles_resolve_plain(const ith_attn_options *options, ith_attn_setting *s)
{
    return fit(ith_tiles_asked(options), s->kernel->tiles(s->problem.head_dim), s);
}

ith_status ith_tiles_resolve(ith_comm *comm, const ith_attn_options *options, ith_attn_setting *s)
{
    const ith_attn_tiles wanted = ith_tiles_asked(options);
    ith_attn_tile_limits limits = s->kernel->tiles(s->problem.head_dim);
    ith_attn_tiles known = {0};
    if (!wanted.block_q && !wanted.block_kv && !wanted.block_kv_compute && !wanted.block_kv_compute_in) {
        ith_status status = recall(comm, s, &known);
        if (status)
            return status;
        limits.best = known.block_q ? known : limits.best;
    }
    return ith_agree(s->context, comm, fit(wanted, limits, s));
}
