/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products with AMX: the body of product_<type>_amx.c. Each number is the sum of at most PARTS bf16 numbers
 * (split_amx.h), and
 *
 *     x y = sum of x_a y_b over all a + b < PARTS
 *
 * The omitted products are below 2^-24 |x y|. If PARTS is 3, numbers below 2^-110 lose bits, because the instruction
 * reads parts below 2^-126 as zeros.
 *
 * A right panel consists of tiles, [ceil(steps / STEP)][PARTS][COLUMNS / 16][16 pairs of steps][16 columns][2], padded
 * with zeros to whole tiles. A tile of left is 16 rows x STEP steps, loaded from the rows without packing. The sums of
 * a square of ROWS x COLUMNS stay in six tile registers over all steps of a call. Both operands come from the
 * second-level cache: 5 KB for 6 products of tiles, where squares of 2 x 2 tiles need 6 KB. Shorter calls, whose right
 * panels fit the first-level cache, lose more time on loading and storing sums.
 *
 * The including file defines PARTS (1 or 3) and DEPTH, the best number of steps of a call. */
#include "../avx512/vec_avx512.h"

#include "../avx512/numbers_avx512.h"

#include "../../../base/size.h"
#include "../../product.h"
#include "../fetch.h"

#include "split_amx.h"
#include "tiles_amx.h"

#include <string.h>

enum {
    STEP = 32, /* number of steps that one product of tiles sums */
    ROWS = 2 * TILE_ROWS,
    COLUMNS = 3 * LANES,
    RIGHT_TILES = COLUMNS / LANES,
    PART_BYTES = RIGHT_TILES * TILE_BYTES, /* one part of STEP steps of a right panel */
    STEP_BYTES = PARTS * PART_BYTES,
    /* Bytes of an edge: a copy of one part of the last steps of ROWS rows, padded with zeros to STEP steps. */
    EDGE_BYTES = ROWS * TILE_ROW_BYTES
};

static int64_t right_bytes(int64_t steps)
{
    return ith_div_up(steps, STEP) * STEP_BYTES;
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* Splits 32 numbers, the 16 of a and the 16 of b, into PARTS bf16 numbers each. If they are rounded to bf16 first, all
 * parts but the first are zeros. */
static inline void split_numbers(vec a, vec b, bool rounds, __m512i part[PARTS])
{
    if (PARTS > 1 && rounds) {
        __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        a = lower_half(rounded);
        b = upper_half(rounded);
    }
    split(a, b, part);
}

static void pack_left(const ith_product_left *p)
{
    bool rounds = p->rounds || p->dtype == ITH_BF16;
    int parts = PARTS == 1 || rounds ? 1 : p->dtype == ITH_F16 ? 2 : PARTS;
    if (p->dtype == ITH_BF16) {
        memcpy(p->to, p->x, (size_t)p->count * sizeof(uint16_t));
        return;
    }
    for (int64_t k = 0; k < p->count; k += 2 * LANES) {
        __m512i part[PARTS];
        split_numbers(load_numbers(p->x, p->dtype, k, p->count), load_numbers(p->x, p->dtype, k + LANES, p->count),
                      rounds, part);
        __mmask32 there = _mm512_kunpackw(first_lanes(p->count - k - LANES), first_lanes(p->count - k));
        for (int n = 0; n < parts; n++)
            _mm512_mask_storeu_epi16((char *)p->to + n * p->part_bytes + k * 2, there, part[n]);
    }
}

/* Packs steps [k, k + STEP) of 16 columns as PARTS tiles, one for each part. Writes only the columns in the mask
 * `wanted`. */
static void pack_columns(char *tile, const float *const columns[LANES], __mmask16 wanted, const ith_product_right *p,
                         int64_t k)
{
    vec x[PARTS][LANES];
    for (int64_t j = 0; j < LANES; j++) {
        __m512i part[PARTS];
        vec a = vec_set(0.0f), b = a;
        if (columns[j]) {
            a = load_numbers(columns[j], ITH_F32, k, p->steps);
            b = load_numbers(columns[j], ITH_F32, k + LANES, p->steps);
        }
        split_numbers(a, b, p->rounds, part);
        for (int n = 0; n < PARTS; n++)
            x[n][j] = _mm512_castsi512_ps(part[n]);
    }
    for (int n = 0; n < PARTS; n++, tile += PART_BYTES) {
        vec_transpose(x[n]);
        for (int64_t pair = 0; pair < LANES; pair++)
            _mm512_mask_store_ps(tile + pair * TILE_ROW_BYTES, wanted, x[n][pair]);
    }
}

static void pack_right(const ith_product_right *p)
{
    for (int64_t t = p->first / LANES; t * LANES < p->first + p->count; t++) {
        const float *columns[LANES] = {0};
        __mmask16 wanted = 0;
        for (int64_t j = 0; j < LANES; j++) {
            int64_t n = t * LANES + j - p->first;
            if (n >= 0 && n < p->count) {
                wanted |= (__mmask16)(1u << j);
                columns[j] = p->x[n];
            }
        }
        char *tile = (char *)p->panel + t * TILE_BYTES;
        for (int64_t k = 0; k < p->steps; k += STEP, tile += STEP_BYTES)
            pack_columns(tile, columns, wanted, p, k);
    }
}

/* Loads 16 numbers of step k, from column j on. Steps beyond the last are zeros. */
static inline vec load_turned(const ith_product_turned *p, int64_t k, int64_t j)
{
    return k < p->count ? vec_load(p->x + k * p->stride + j) : vec_set(0.0f);
}

static void pack_turned(const ith_product_turned *p)
{
    char *to = (char *)p->panel + p->first / STEP * STEP_BYTES;
    for (int64_t k = 0; k < ith_round_up(p->count, STEP); k += 2) {
        char *row = to + k / STEP * STEP_BYTES + k % STEP / 2 * TILE_ROW_BYTES;
        for (int64_t t = 0; t < RIGHT_TILES; t++) {
            __m512i part[PARTS];
            split_numbers(load_turned(p, k, t * LANES), load_turned(p, k + 1, t * LANES), p->rounds, part);
            for (int n = 0; n < PARTS; n++)
                _mm512_store_si512(row + n * PART_BYTES + t * TILE_BYTES, pair_halves(part[n]));
        }
    }
}

/* ---- The product ----------------------------------------------------------------------------------------------- */

/* A square of ROWS x COLUMNS sums that is about to be computed, and the square before it. */
typedef struct square {
    float *out;    /* the first number of this square in the output */
    float *before; /* the previous square in the output, if the tile registers still hold its sums; otherwise NULL */
    int64_t row_bytes; /* bytes from one row of out to the next */
    bool adds;         /* the sums of this square are added to out */
} square;

/* Stores tile register n, which holds sums of the previous square, and sets it to the initial sums of this square.
 * Register 2 j + t holds the sums of rows 16 t to 16 t + 15 and columns 16 j to 16 j + 15. */
#define BEGIN_TILE(n)                                                                                                  \
    do {                                                                                                               \
        int64_t at = (n) % 2 * TILE_ROWS * s->row_bytes + (n) / 2 * TILE_ROW_BYTES;                                    \
        if (s->before)                                                                                                 \
            _tile_stored(n, (char *)s->before + at, s->row_bytes);                                                     \
        if (s->adds)                                                                                                   \
            _tile_loadd(n, (char *)s->out + at, s->row_bytes);                                                         \
        else                                                                                                           \
            _tile_zero(n);                                                                                             \
    } while (0)
#define STORE_TILE(n)                                                                                                  \
    _tile_stored(n, (char *)out + (n) % 2 * TILE_ROWS * row_bytes + (n) / 2 * TILE_ROW_BYTES, row_bytes)

/* Adds the products of two tiles of left rows and three right tiles to the sums in registers 0 to 5. If `s` is not
 * NULL, these products are the first of a square. Each register of the previous square is then stored just before it is
 * needed, so that multiplications hide the stores. */
static inline __attribute__((always_inline)) void add_products(const char *left, int64_t stride, const char *right,
                                                               const square *s)
{
    const char *below = left + TILE_ROWS * stride;
    tiles_see_memory();
    _tile_loadd(7, right, TILE_ROW_BYTES);
    _tile_loadd(6, left, stride);
    if (s)
        BEGIN_TILE(0);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(6, below, stride);
    if (s)
        BEGIN_TILE(1);
    _tile_dpbf16ps(1, 6, 7);
    _tile_loadd(7, right + TILE_BYTES, TILE_ROW_BYTES);
    if (s)
        BEGIN_TILE(3);
    _tile_dpbf16ps(3, 6, 7);
    _tile_loadd(6, left, stride);
    if (s)
        BEGIN_TILE(2);
    _tile_dpbf16ps(2, 6, 7);
    _tile_loadd(7, right + 2 * TILE_BYTES, TILE_ROW_BYTES);
    if (s)
        BEGIN_TILE(4);
    _tile_dpbf16ps(4, 6, 7);
    _tile_loadd(6, below, stride);
    if (s)
        BEGIN_TILE(5);
    _tile_dpbf16ps(5, 6, 7);
}

/* Adds the products of one tile of left rows and three right tiles to the sums in registers 0, 2 and 4. */
static inline void add_upper_products(const char *left, int64_t stride, const char *right)
{
    tiles_see_memory();
    _tile_loadd(6, left, stride);
    _tile_loadd(7, right, TILE_ROW_BYTES);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(7, right + TILE_BYTES, TILE_ROW_BYTES);
    _tile_dpbf16ps(2, 6, 7);
    _tile_loadd(7, right + 2 * TILE_BYTES, TILE_ROW_BYTES);
    _tile_dpbf16ps(4, 6, 7);
}

/* The pairs of a part of left and a part of right that are multiplied, the smallest products first. A left operand of n
 * parts needs only the pairs from first_pair[n - 1] on. */
#if PARTS == 1
static const struct pair {
    int left, right;
} pairs[] = {{0, 0}};
static const int first_pair[] = {0};
#else
static const struct pair {
    int left, right;
} pairs[] = {{2, 0}, {1, 1}, {1, 0}, {0, 2}, {0, 1}, {0, 0}};
static const int first_pair[] = {3, 1, 0};
#endif
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Adds the products of all pairs of parts for STEP steps. both: left has two tiles of rows; otherwise one. s: as in
 * add_products. */
static inline __attribute__((always_inline)) void add_step(const char *left, int64_t stride, int64_t part_bytes,
                                                           const char *right, int parts, const square *s,
                                                           const bool both)
{
    int n = first_pair[parts - 1];
    if (s) {
        add_products(left + pairs[n].left * part_bytes, stride, right + pairs[n].right * PART_BYTES, s);
        n++;
    }
    for (; n < PAIRS; n++)
        if (both)
            add_products(left + pairs[n].left * part_bytes, stride, right + pairs[n].right * PART_BYTES, NULL);
        else
            add_upper_products(left + pairs[n].left * part_bytes, stride, right + pairs[n].right * PART_BYTES);
}

/* Copies the last steps % STEP steps of up to ROWS rows of left to `edge`, padded with zeros. */
static void copy_last_steps(char *edge, const ith_product_call *c, const char *left, int64_t rows)
{
    __mmask32 there = (1u << c->steps % STEP) - 1u;
    for (int n = 0; n < c->parts; n++)
        for (int64_t i = 0; i < rows; i++) {
            const char *row = left + n * c->part_bytes + i * c->left_stride + c->steps / STEP * TILE_ROW_BYTES;
            _mm512_store_si512(edge + n * EDGE_BYTES + i * TILE_ROW_BYTES, _mm512_maskz_loadu_epi16(there, row));
        }
}

/* Adds the products of all steps; of all but the first STEP steps if `begun` is true. `rows` is the number of rows of
 * left: ROWS if `both` is true, otherwise at most 16. */
static inline __attribute__((always_inline)) void add_steps(const ith_product_call *c, const char *left, int64_t rows,
                                                            const bool both, const bool begun, fetch *ahead)
{
    const char *right = (const char *)c->right + (begun ? STEP_BYTES : 0), *from = left + (begun ? TILE_ROW_BYTES : 0);
    for (int64_t k = begun ? STEP : 0; k + STEP <= c->steps; k += STEP, right += STEP_BYTES, from += TILE_ROW_BYTES) {
        add_step(from, c->left_stride, c->part_bytes, right, c->parts, NULL, both);
        fetch_some(ahead);
    }
    if (c->steps % STEP) {
        _Alignas(64) char edge[PARTS * EDGE_BYTES];
        copy_last_steps(edge, c, left, rows);
        add_step(edge, TILE_ROW_BYTES, EDGE_BYTES, right, c->parts, NULL, both);
    }
}

static inline void store_sums(float *out, int64_t row_bytes)
{
    STORE_TILE(0);
    STORE_TILE(1);
    STORE_TILE(2);
    STORE_TILE(3);
    STORE_TILE(4);
    STORE_TILE(5);
    tiles_see_memory();
}

/* Computes all whole squares of a call with COLUMNS columns and at least STEP steps. Returns the number of rows that
 * they cover. */
static int64_t multiply_squares(const ith_product_call *c)
{
    fetch ahead = {0};
    if (c->next) {
        int64_t bytes = right_bytes(c->steps);
        ahead = fetch_of(c->next, (const char *)c->next + bytes, bytes, c->rows / ROWS * (c->steps / STEP));
    }
    square s = {.row_bytes = c->out_stride * (int64_t)sizeof(float), .adds = c->adds};
    int64_t i = 0;
    for (; i + ROWS <= c->rows; i += ROWS, s.before = s.out) {
        const char *left = (const char *)c->left + i * c->left_stride;
        s.out = c->out + i * c->out_stride;
        add_step(left, c->left_stride, c->part_bytes, c->right, c->parts, &s, true);
        add_steps(c, left, ROWS, true, true, &ahead);
    }
    if (s.before)
        store_sums(s.before, s.row_bytes);
    return i;
}

/* Copies `rows` rows of `columns` numbers. */
static void copy_sums(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows,
                      int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += LANES) {
            __mmask16 there = first_lanes(columns - j);
            _mm512_mask_storeu_ps(to + i * to_stride + j, there,
                                  _mm512_maskz_loadu_ps(there, from + i * from_stride + j));
        }
}

/* Computes rows [i, i + rows) of a call, at most 16 rows and any number of columns, in a buffer of three whole tiles of
 * sums. */
static void multiply_edge(const ith_product_call *c, int64_t i, int64_t rows)
{
    enum { BYTES = COLUMNS * sizeof(float) };
    _Alignas(64) float sums[TILE_ROWS * COLUMNS] = {0};
    float *out = c->out + i * c->out_stride;
    if (c->adds)
        copy_sums(sums, COLUMNS, out, c->out_stride, rows, c->columns);
    tiles_see_memory();
    _tile_loadd(0, sums, BYTES);
    _tile_loadd(2, sums + LANES, BYTES);
    _tile_loadd(4, sums + 2 * LANES, BYTES);
    add_steps(c, (const char *)c->left + i * c->left_stride, rows, false, false, &(fetch){0});
    _tile_stored(0, sums, BYTES);
    _tile_stored(2, sums + LANES, BYTES);
    _tile_stored(4, sums + 2 * LANES, BYTES);
    tiles_see_memory();
    copy_sums(out, c->out_stride, sums, COLUMNS, rows, c->columns);
}

/* ---- Panels with at most two tiles of columns ------------------------------------------------------------------- */

/* Sets the shapes of the tile registers for multiply_narrow. Registers 6 and 5 take whole tiles of left and right.
 * Registers 4 and 7 take the tiles of the last `last_steps` steps, fewer than STEP and an even number: their shapes
 * leave the other steps out, so that no copy is needed. */
static void claim_narrow(int64_t last_steps)
{
    tile_config config = tiles_of_rows(TILE_ROWS);
    if (last_steps) {
        config.row_bytes[4] = (uint16_t)(last_steps * 2);
        config.rows[7] = (uint8_t)(last_steps / 2);
    }
    tiles_configure(&config);
}

/* Adds the products of two tiles of left rows and one right tile to the sums in registers `upper` and `lower`. */
#define ADD_COLUMN(upper, lower, left_tile, right_tile, left, stride, right)                                           \
    do {                                                                                                               \
        _tile_loadd(right_tile, right, TILE_ROW_BYTES);                                                                \
        _tile_loadd(left_tile, left, stride);                                                                          \
        _tile_dpbf16ps(upper, left_tile, right_tile);                                                                  \
        _tile_loadd(left_tile, (left) + TILE_ROWS * (stride), stride);                                                 \
        _tile_dpbf16ps(lower, left_tile, right_tile);                                                                  \
    } while (0)

/* Adds the products of steps [k, k + STEP), or of the last steps if they are fewer, for all pairs of parts. */
static inline __attribute__((always_inline)) void add_narrow_step(const ith_product_call *c, const char *left,
                                                                  int64_t k, const bool two_tiles)
{
    const bool whole = k + STEP <= c->steps;
    for (int n = first_pair[c->parts - 1]; n < PAIRS; n++) {
        const char *x = left + pairs[n].left * c->part_bytes + k / STEP * TILE_ROW_BYTES;
        const char *y = (const char *)c->right + k / STEP * STEP_BYTES + pairs[n].right * PART_BYTES;
        tiles_see_memory();
        if (whole)
            ADD_COLUMN(0, 1, 6, 5, x, c->left_stride, y);
        else
            ADD_COLUMN(0, 1, 4, 7, x, c->left_stride, y);
        if (two_tiles && whole)
            ADD_COLUMN(2, 3, 6, 5, x, c->left_stride, y + TILE_BYTES);
        else if (two_tiles)
            ADD_COLUMN(2, 3, 4, 7, x, c->left_stride, y + TILE_BYTES);
    }
}

/* Adds the products of ROWS rows of left to `out`, one or two tiles wide. The rows of out are `row_bytes` apart and
 * have room for whole tiles. */
static inline __attribute__((always_inline)) void narrow_square(const ith_product_call *c, const char *left, float *out,
                                                                int64_t row_bytes, const bool two_tiles)
{
    float *below = (float *)(void *)((char *)out + TILE_ROWS * row_bytes);
    tiles_see_memory();
    _tile_loadd(0, out, row_bytes);
    _tile_loadd(1, below, row_bytes);
    if (two_tiles) {
        _tile_loadd(2, out + LANES, row_bytes);
        _tile_loadd(3, below + LANES, row_bytes);
    }
    for (int64_t k = 0; k < c->steps; k += STEP)
        add_narrow_step(c, left, k, two_tiles);
    _tile_stored(0, out, row_bytes);
    _tile_stored(1, below, row_bytes);
    if (two_tiles) {
        _tile_stored(2, out + LANES, row_bytes);
        _tile_stored(3, below + LANES, row_bytes);
    }
    tiles_see_memory();
}

/* Computes all whole squares of ROWS rows of a call with an even number of steps and at most two tiles of columns.
 * Returns the number of rows that they cover. Sums that do not fill whole tiles, and sums that begin with zero, are
 * computed in a buffer. */
static int64_t multiply_narrow(const ith_product_call *c)
{
    const bool two_tiles = c->columns > LANES, direct = c->adds && c->columns % LANES == 0;
    const int64_t width = two_tiles ? 2 * LANES : LANES, stride = direct ? c->out_stride : width;
    _Alignas(64) float buffer[ROWS * 2 * LANES];
    int64_t i = 0;
    claim_narrow(c->steps % STEP);
    for (; i + ROWS <= c->rows; i += ROWS) {
        const char *left = (const char *)c->left + i * c->left_stride;
        float *out = c->out + i * c->out_stride, *sums = direct ? out : buffer;
        if (!direct)
            memset(buffer, 0, (size_t)(ROWS * width) * sizeof *buffer);
        if (!direct && c->adds)
            copy_sums(buffer, width, out, c->out_stride, ROWS, c->columns);
        if (two_tiles)
            narrow_square(c, left, sums, stride * (int64_t)sizeof *sums, true);
        else
            narrow_square(c, left, sums, stride * (int64_t)sizeof *sums, false);
        if (!direct)
            copy_sums(out, c->out_stride, buffer, width, ROWS, c->columns);
    }
    return i;
}

static void multiply(const ith_product_call *c)
{
    int64_t i = 0, last = c->rows % TILE_ROWS;
    const bool narrow = c->columns <= 2 * LANES && c->steps % 2 == 0 && c->rows >= ROWS;
    if (c->rows == 0 || c->columns == 0)
        return;
    if (narrow)
        i = multiply_narrow(c);
    if (i < c->rows)
        tiles_claim();
    if (!narrow && c->columns == COLUMNS && c->steps >= STEP)
        i = multiply_squares(c);
    for (; i + TILE_ROWS <= c->rows; i += TILE_ROWS)
        multiply_edge(c, i, TILE_ROWS);
    if (last) {
        tiles_claim_rows(last);
        multiply_edge(c, i, last);
    }
    _tile_release();
}
