/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernels of attn_split_tmpl.c. The including file defines TYPE and PARTS. */
#ifndef ITH_KERNELS_ATTN_SPLIT_LAYOUT_H
#define ITH_KERNELS_ATTN_SPLIT_LAYOUT_H

#include "../avx512/shape_avx512.h"

#define QUERIES 32

#include "../attn_lanes_layout.h"
#include "panels_layout_amx.h"

enum { SQUARE = QUERIES * STEP }; /* number of floats in 2 x 2 tiles of sums */

static inline bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return dtype == TYPE && ith_attn_takes(dtype, head_dim, softmax);
}

static inline ith_attn_tile_limits tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){.best = {512, 128 * PANEL, PANEL, PANEL},
                                  .step = {QUERIES, PANEL, PANEL, PANEL},
                                  .most = {256 * QUERIES, 65536 * PANEL, PANEL, PANEL}};
}

/* ---- Scratch --------------------------------------------------------------------------------------------------- */

/* A job: QUERIES queries, from query i of the call on, attend to the keys of one packed panel. These are `keys` keys
 * from key number `key` of the call on, in `strips` strips of 32 keys. */
typedef struct job {
    const char *panel;
    int64_t key, keys, strips, i;
    float *s; /* [PANEL][QUERIES]: logits of the job's keys and queries */
} job;

/* The scratch memory and the progress of one call. */
typedef struct work {
    query_lanes t;
    int64_t steps; /* number of steps of 32 elements (STEP) in a head */
    /* [rows / QUERIES][steps][PARTS][2 tiles]: the queries; each element is split into PARTS bf16 numbers. A step is 32
     * elements of D; a tile holds 16 pairs of neighbouring elements by 16 queries. */
    char *q;
    /* [rows]: query i (times c, if PARTS is 3) was divided by 2^q_exponent[i] before it was split into bf16 numbers. */
    float *q_exponent;
    float c;     /* the factor of the sums q . k; 1 if the queries already contain scale log2(e) */
    float *s[2]; /* buffers of logits for jobs of even and of odd number (job.s) */
    /* [STRIPS][PARTS][2 tiles]: the probabilities, each split into PARTS bf16 numbers. A strip is 32 keys; a tile holds
     * 16 pairs of neighbouring keys by 16 queries. */
    char *p;
    float *sum; /* [STEP][QUERIES]: sums of p v for 32 elements of D, which add_square adds to o */
    /* The part [STEP][QUERIES] of the outputs o to which add_square adds `sum`; NULL once `sum` has been added. */
    float *sum_target;
    int64_t width;      /* number of queries of the job to which `sum` belongs */
    float v_unit;       /* the factor of `sum` that undoes the scaling of v (panel_head.v_unit) */
    unsigned mode;      /* the mode before vec_flush_begin, in which small values are added */
    const job *pending; /* the job whose probabilities are computed between the products of the next job */
    /* next_unit computes the probabilities of the pending job in `units` small units of work, of which `unit` are done.
     * The units are spread evenly over `products` calls of multiply: credit grows by `units` with each call, and
     * whenever it reaches `products`, the next unit is due. */
    int64_t unit, units, credit, products;
    bool unfinished; /* finish_slice must still turn the pending job's sums q . k into logits */
    int64_t k, n;    /* the first key and query, within the pending job, on which next_unit works next */
    float *l;        /* [QUERIES]: sums of the probabilities of the pending job */
    fetch ahead;     /* prefetch of the next panel of keys */
} work;

/* Not inlined, so that the compiler keeps registers for the loops of the calling function. */
static __attribute__((noinline)) work lay_out(ith_arena *arena, int64_t q_rows, int64_t D)
{
    work w = {.steps = steps_of(D)};
    int64_t rows = ith_round_up(q_rows, QUERIES), bytes = sizeof(float);
    w.p = ith_arena_take(arena, STRIPS, FACTOR_BYTES);
    w.q = ith_arena_take(arena, rows / QUERIES * w.steps, FACTOR_BYTES);
    w.s[0] = ith_arena_take(arena, PANEL * QUERIES, bytes);
    w.s[1] = ith_arena_take(arena, PANEL * QUERIES, bytes);
    w.sum = ith_arena_take(arena, SQUARE, bytes);
    w.l = ith_arena_take(arena, QUERIES, bytes);
    w.q_exponent = ith_arena_take(arena, rows, bytes);
    w.t = lanes_lay_out(arena, ith_round_up(q_rows, LANES), D, w.steps * STEP);
    return w;
}

static inline int64_t scratch_bytes(int64_t head_dim, const ith_attn_tiles *tiles)
{
    ith_arena arena = {0};
    lay_out(&arena, tiles->block_q, head_dim);
    return arena.used_bytes;
}

#endif
