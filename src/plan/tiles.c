/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and chooses the tiles of a plan (tiles.h). */
#include "tiles.h"

#include "../base/size.h"
#include "agree.h"
#include "tile_wisdom.h"

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
static int64_t choose_size(ith_attn_tiles wanted, ith_attn_tile_limits l, ith_attn_setting *s, int index)
{
    int64_t step = *ith_tile_at(&l.step, index), most = *ith_tile_at(&l.most, index);
    int64_t rows = ith_max64(index == ITH_BLOCK_Q ? s->problem.q_len : s->problem.kv_len, 1);
    int64_t size = ith_min64(*ith_tile_at(&l.best, index), ith_round_up(rows, step));
    if (index == ITH_BLOCK_Q)
        size = ith_min64(size, busy_block(s, step));
    for (int i = index + 1; index >= ITH_BLOCK_KV && i < ITH_TILES; i++)
        size = ith_max64(size, ith_min64(ith_round_up(ith_min64(*ith_tile_at(&wanted, i), most), step), most));
    if (index > ITH_BLOCK_KV)
        size = ith_min64(size, ith_max64(*ith_tile_at(&s->tiles, index - 1) / step * step, step));
    return size;
}

/* Collective. Finds the tiles that rank 0's wisdom knows for the whole problem, not for the share of a rank. Rank 0
 * decides, because the tiles of keys change the bits. *tiles becomes 0s if wisdom knows none. */
static ith_status recall_tiles(ith_comm *comm, const ith_attn_setting *s, ith_attn_tiles *tiles)
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
        if (!ith_tile_is_legal(s->kernel, limits, i, size, 0, sentence, sizeof sentence))
            return ith_fail(s->context, ITH_ERR_ARGUMENT, "%s", sentence);
        *ith_tile_at(&s->tiles, i) = size ? size : choose_size(wanted, limits, s, i);
    }
    for (int outer = ITH_BLOCK_KV; outer < ITH_TILES - 1; outer++)
        if (!ith_tile_is_nested(s->kernel, limits, s->tiles, outer, sentence, sizeof sentence))
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
        ith_status status = recall_tiles(comm, s, &known);
        if (status)
            return status;
        limits.best = known.block_q ? known : limits.best;
    }
    return ith_agree(s->context, comm, fit(wanted, limits, s));
}
