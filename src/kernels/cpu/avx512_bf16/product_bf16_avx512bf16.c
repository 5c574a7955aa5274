/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of bf16 with the AVX-512 instruction VDPBF16PS, which adds two products of bf16 numbers to a sum in
 * f32. A right panel is [ceil(steps / 2)][COLUMNS][2 neighbouring steps]. Pairs of neighbouring steps of left are
 * broadcast. The tile is the tile of the f32 kernel with this instruction in place of the multiply-add. */
#define TILE_MULTIPLY "vdpbf16ps"
#define TILE_MULTIPLIES_PAIRS

#include "../avx512/tile_avx512.h"

#include "../avx512/numbers_avx512.h"
#include "../product_tile.h"

enum { STEP = 2, PAIR_BYTES = 4, DEPTH = 384, EDGE_ROWS = 7 * TILE_ROWS };

static int64_t pairs_of(int64_t steps)
{
    return ith_div_up(steps, 2);
}

static int64_t right_bytes(int64_t steps)
{
    return pairs_of(steps) * COLUMNS * PAIR_BYTES;
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

static void pack_left(const ith_product_left *p)
{
    if (p->dtype == ITH_BF16) {
        memcpy(p->to, p->x, (size_t)p->count * sizeof(uint16_t));
        return;
    }
    for (int64_t k = 0; k < p->count; k += LANES) {
        __m256bh rounded = _mm512_cvtneps_pbh(load_numbers(p->x, p->dtype, k, p->count));
        _mm256_mask_storeu_epi16((uint16_t *)p->to + k, first_lanes(p->count - k), (__m256i)rounded);
    }
}

/* Packs `count` columns, at most LANES, into the columns that begin at `panel`. */
static void pack_columns(float *panel, const ith_product_right *p, const float *const *columns, int64_t count)
{
    const __mmask16 wanted = first_lanes(count);
    for (int64_t k = 0; k < p->steps; k += 2 * LANES) {
        vec x[LANES];
        for (int64_t j = 0; j < LANES; j++) {
            x[j] = vec_set(0.0f);
            if (j < count && columns[j])
                x[j] = _mm512_castsi512_ps(
                    (__m512i)_mm512_cvtne2ps_pbh(load_numbers(columns[j], ITH_F32, k + LANES, p->steps),
                                                 load_numbers(columns[j], ITH_F32, k, p->steps)));
        }
        vec_transpose(x);
        for (int64_t n = 0; n < ith_min64(LANES, pairs_of(p->steps - k)); n++)
            _mm512_mask_storeu_ps(panel + (k / 2 + n) * COLUMNS, wanted, x[n]);
    }
}

static void pack_right(const ith_product_right *p)
{
    for (int64_t j = 0; j < p->count; j += LANES)
        pack_columns((float *)p->panel + p->first + j, p, p->x + j, ith_min64(LANES, p->count - j));
}

static void pack_turned(const ith_product_turned *p)
{
    float *panel = (float *)p->panel + p->first / 2 * COLUMNS;
    for (int64_t k = 0; k < p->count; k += 2, panel += COLUMNS)
        for (int64_t j = 0; j < COLUMNS; j += LANES) {
            const float *x = p->x + k * p->stride + j;
            vec odd = k + 1 < p->count ? vec_load(x + p->stride) : vec_set(0.0f);
            __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(odd, vec_load(x));
            _mm512_storeu_si512(panel + j, pair_halves(pairs));
        }
}

/* ---- The product ----------------------------------------------------------------------------------------------- */

/* Computes the products of the last step of an odd number of steps. Its left numbers are copied and paired with
 * zeros. */
static void add_last_step(const ith_product_call *c, bool adds)
{
    ith_product_call last = *c;
    uint32_t edge[EDGE_ROWS];
    last.left = edge;
    last.left_stride = PAIR_BYTES;
    last.right = (const char *)c->right + right_bytes(c->steps - 1);
    last.steps = 1;
    last.adds = adds;
    last.next = NULL;
    last.next_left_rows = 0;
    for (int64_t i = 0; i < c->rows; i += EDGE_ROWS, last.out += EDGE_ROWS * c->out_stride) {
        last.rows = ith_min64(EDGE_ROWS, c->rows - i);
        for (int64_t n = 0; n < last.rows; n++) {
            uint16_t number;
            memcpy(&number, (const char *)c->left + (i + n) * c->left_stride + (c->steps - 1) * 2, sizeof number);
            edge[n] = number;
        }
        multiply_tiles(&last);
    }
}

static void multiply(const ith_product_call *c)
{
    ith_product_call pairs = *c;
    pairs.steps = c->steps / 2;
    if (pairs.steps)
        multiply_tiles(&pairs);
    if (c->steps % 2)
        add_last_step(c, c->adds || pairs.steps);
}

const ith_product_kernel ith_k_product_bf16_avx512bf16_9x48 = {.name = "bf16_avx512bf16",
                                                               .cpu = ITH_CPU_AVX512 | ITH_CPU_AVX512_BF16,
                                                               .type = ITH_BF16,
                                                               .parts = 1,
                                                               .rows = TILE_ROWS,
                                                               .columns = COLUMNS,
                                                               .lanes = LANES,
                                                               .step = STEP,
                                                               .depth = DEPTH,
                                                               .block_bytes = 192 * 1024,
                                                               .strip = 960,
                                                               .instructions = {{"bf16_avx512bf16", 1}},
                                                               ITH_PRODUCT_FUNCTIONS};
