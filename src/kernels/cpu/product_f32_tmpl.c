/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in f32: the body of cpu/<isa>/product_f32_<isa>.c. A right panel is [steps][COLUMNS] f32.
 * The including file includes its tile_<isa>.h and defines DEPTH, the best number of steps of a call. */
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../product.h"
#include "product_tile.h"

enum { STEP = 2, PACK_AHEAD = 64 };

static int64_t right_bytes(int64_t steps)
{
    return ith_round_up(steps * COLUMNS * (int64_t)sizeof(float), 64);
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

static void round_numbers(float *x, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        x[i] = ith_round_to_bf16(x[i]);
}

static void pack_left(const ith_product_left *p)
{
    float *to = p->to;
    const uint16_t *shorts = p->x;
    int64_t whole = p->dtype == ITH_F32 ? 0 : p->count / LANES * LANES;
    if (p->dtype == ITH_BF16)
        for (int64_t i = 0; i < whole; i += LANES)
            vec_store(to + i, vec_load_bf16(shorts + i));
    if (p->dtype == ITH_F16)
        for (int64_t i = 0; i < whole; i += LANES)
            vec_store(to + i, vec_load_f16(shorts + i));
    ith_to_f32(to + whole, (const char *)p->x + whole * ith_dtype_bytes(p->dtype), p->dtype, p->count - whole);
    if (p->rounds && p->dtype != ITH_BF16)
        round_numbers(to, p->count);
}

/* Reads `count` numbers, at most LANES, from a column. The other lanes, and a column that is NULL, are zeros. */
static vec load_column(const float *x, int64_t k, int64_t count, bool rounds)
{
    float part[LANES] = {0};
    if (x)
        memcpy(part, x + k, (size_t)count * sizeof *x);
    if (rounds)
        round_numbers(part, LANES);
    return vec_load(part);
}

/* Packs steps [k, k + steps) of `count` columns into the columns that begin at `panel`; both are at most LANES. */
static void pack_square(float *panel, const ith_product_right *p, const float *const *columns, int64_t count, int64_t k,
                        int64_t steps)
{
    vec x[LANES];
    for (int64_t j = 0; j < LANES; j++)
        x[j] = load_column(j < count ? columns[j] : NULL, k, steps, p->rounds);
    vec_transpose(x);
    for (int64_t n = 0; n < steps; n++) {
        float step[LANES];
        vec_store(step, x[n]);
        memcpy(panel + (k + n) * COLUMNS, step, (size_t)count * sizeof *panel);
    }
}

/* Packs steps [k, k + LANES) of LANES columns, none of them NULL, into the columns that begin at `panel`. Fetches the
 * part of the panel that is written PACK_AHEAD steps later. */
static inline void pack_whole_square(float *panel, const float *const *columns, int64_t k)
{
    vec x[LANES];
    for (int j = 0; j < LANES; j++)
        x[j] = vec_load(columns[j] + k);
    for (int n = 0; n < LANES; n++)
        __builtin_prefetch(panel + (k + PACK_AHEAD + n) * COLUMNS, 1);
    vec_transpose(x);
    for (int n = 0; n < LANES; n++)
        vec_store(panel + (k + n) * COLUMNS, x[n]);
}

/* Packs `count` columns, at most LANES, into the columns that begin at `panel`. */
static void pack_columns(float *panel, const ith_product_right *p, const float *const *columns, int64_t count)
{
    bool whole = count == LANES && !p->rounds;
    for (int64_t j = 0; j < count; j++)
        whole = whole && columns[j];
    int64_t k = 0;
    for (; whole && k + LANES <= p->steps; k += LANES)
        pack_whole_square(panel, columns, k);
    for (; k < p->steps; k += LANES)
        pack_square(panel, p, columns, count, k, ith_min64(LANES, p->steps - k));
}

static void pack_right(const ith_product_right *p)
{
    for (int64_t j = 0; j < p->count; j += LANES)
        pack_columns((float *)p->panel + p->first + j, p, p->x + j, ith_min64(LANES, p->count - j));
}

static void pack_turned(const ith_product_turned *p)
{
    float *panel = (float *)p->panel + p->first * COLUMNS;
    for (int64_t k = 0; k < p->count; k++)
        memcpy(panel + k * COLUMNS, p->x + k * p->stride, COLUMNS * sizeof *panel);
    if (p->rounds)
        round_numbers(panel, p->count * COLUMNS);
}

#ifdef TILE_INTERLEAVES
static void interleave(const float *x, int64_t stride, int64_t steps, float *to)
{
    int64_t k = 0;
    for (; k + LANES <= steps; k += LANES, to += TILE_INTERLEAVED * LANES) {
        vec rows[TILE_INTERLEAVED];
        for (int r = 0; r < TILE_INTERLEAVED; r++)
            rows[r] = vec_load(x + r * stride + k);
        vec_interleave(rows);
        for (int r = 0; r < TILE_INTERLEAVED; r++)
            vec_store(to + r * LANES, rows[r]);
    }
    for (; k < steps; k++, to += TILE_INTERLEAVED)
        for (int r = 0; r < TILE_INTERLEAVED; r++)
            to[r] = x[r * stride + k];
}
#endif

static void multiply(const ith_product_call *c)
{
    multiply_tiles(c);
}

/* The members of an ith_product_kernel that are the same, or have the same names, in every instruction set. */
#define PRODUCT_F32(isa)                                                                                               \
    .name = isa, .type = ITH_F32, .parts = 1, .rows = TILE_ROWS, .columns = COLUMNS, .lanes = LANES, .step = STEP,     \
    .depth = DEPTH, .instructions = {{isa, 1}}, ITH_PRODUCT_FUNCTIONS
