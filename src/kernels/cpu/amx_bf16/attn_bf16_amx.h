/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel of bf16 tensors with AMX. */
#ifndef ITH_KERNELS_ATTN_BF16_AMX_H
#define ITH_KERNELS_ATTN_BF16_AMX_H

#include "../avx512/shape_avx512.h"

#define QUERIES 32
#define PARTS 1

#include "../attn_lanes_layout.h"
#include "panels_layout_amx.h"

static inline bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return dtype == ITH_BF16 && ith_attn_takes(dtype, head_dim, softmax);
}

static inline ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {512, 8192, 4 * PANEL, PANEL},
                                  .step = {QUERIES, PANEL, PANEL, PANEL},
                                  .most = {128 * QUERIES, 16384 * PANEL, 32 * PANEL, PANEL}};
}

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* A job: a panel of 32 queries attends to the keys of one packed panel, in `strips` strips of 32 keys. */
typedef struct job {
    const char *panel;
    int64_t strips;
    bool unfinished; /* biases or a mask have to be applied to the logits */
    int64_t key, i;  /* the first key and the first query of the job, counted within the call */
    char *p; /* [strips][2 tiles]: probabilities in bf16; a tile holds 16 pairs of neighbouring keys by 16 queries */
    float *scale; /* [QUERIES]: factors by which o is multiplied before p v of this job is added */
} job;

/* The scratch memory and the progress of one call. */
typedef struct work {
    query_lanes t;
    /* steps: number of steps of 32 elements (STEP) in a head. panel_bytes: bytes of a packed panel of keys. q_panels:
     * number of panels of 32 queries. block: number of keys to which all queries attend before the next keys
     * (block_kv_compute). */
    int64_t steps, panel_bytes, q_panels, block;
    float c;        /* the factor of dot products, |scale| log2(e) */
    float *rounded; /* [rows]: sums l' of probabilities that are rounded to bf16 */
    /* [rows / QUERIES][steps][2 tiles]: the queries. A step is 32 elements of D; a tile holds 16 pairs of neighbouring
     * elements by 16 queries. */
    char *q;
    char *p[2]; /* buffers of probabilities for jobs of even and of odd number (job.p) */
    /* scale: factors of older outputs, for the three jobs that are at work (job.scale). s: two buffers, which hold in
     * turn the logits of the current strip of 32 keys and of the previous strip. Each is [2][STRIP][16 queries], so
     * that each tile is contiguous. */
    float *scale[3], *s[2];
    float *unstored; /* the memory to which the sums in the tile registers are to be written */
    /* Distances in `unstored`, which receives 2 x 2 tiles of sums: floats from a tile to the tile below it, floats to
     * the tile beside it, bytes between rows of a tile. */
    int64_t below, beside, row_bytes;
    float *nowhere; /* a buffer for the contents of tile registers that are not needed */
    /* The pending strip of 32 keys: strip number n of job `pending`. Its probabilities are computed between the
     * products of tiles, in UNITS units of work, of which `unit` are done. The units are spread evenly over `groups`
     * groups of products: credit grows by `units` with each group, and each time it reaches `groups`, a unit is due.
     * units: UNITS, or 0 if no strip is pending. */
    job *pending;
    int64_t n, unit, units, credit, groups;
    int64_t slot;        /* number of slots that have begun */
    float *logits;       /* the logits of the next unit */
    char *probabilities; /* where the next unit writes its probabilities */
    fetch ahead;         /* prefetch of the next block of keys while the current block is used */
} work;

/* Not inlined, so that the compiler keeps registers for the loops of the calling function. */
static __attribute__((noinline)) work lay_out(ith_arena *arena, int64_t q_rows, int64_t D, int64_t block)
{
    work w = {.steps = steps_of(D), .panel_bytes = panel_bytes(D), .block = block};
    int64_t bytes = sizeof(float), rows = ith_round_up(q_rows, QUERIES);
    w.q_panels = rows / QUERIES;
    for (int i = 0; i < 2; i++) {
        w.s[i] = ith_arena_take(arena, STRIP * QUERIES, bytes);
        w.p[i] = ith_arena_take(arena, QUERIES * PANEL, 2);
    }
    for (int i = 0; i < 3; i++)
        w.scale[i] = ith_arena_take(arena, QUERIES, bytes);
    w.nowhere = ith_arena_take(arena, STRIP * QUERIES, bytes);
    w.rounded = ith_arena_take(arena, rows, bytes);
    w.q = ith_arena_take(arena, w.q_panels * w.steps, PAIR_BYTES);
    w.t = lanes_lay_out(arena, rows, D, w.steps * STEP);
    return w;
}

static inline int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    ith_arena arena = {0};
    lay_out(&arena, tiles->block_q, head_dim, tiles->block_kv_compute);
    return arena.used_bytes;
}

/* With a smaller head_dim, too much of each tile is padding, and other kernels are faster. */
static inline bool pays(int64_t head_dim)
{
    return head_dim >= 8;
}

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_bf16_amx_pack(const ith_attn_pack *pack);
void ith_attn_bf16_amx_attend(const ith_attn_call *call);

#endif
