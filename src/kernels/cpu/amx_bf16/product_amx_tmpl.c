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
 * with zeros to whole tiles. A tile of left is 16 rows x STEP steps, loaded from the rows without packing. The
 * steps of a call are cut into chunks, so that a chunk of the right panel stays in the first-level cache. The sums of a
 * square of ROWS x COLUMNS stay in six tile registers over a chunk. Then they go through a buffer, from which vector
 * instructions add them to the output while the next square is multiplied: stores from tile registers to memory outside
 * of the first-level cache would hold up the loads behind them.
 *
 * The including file defines PARTS (1 or 3), DEPTH, the best number of steps of a call, and CHUNK, the largest number
 * of steps of a chunk. */
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

/* Work for vector instructions, which is done between the products of tiles: the sums of the previous square are
 * written to the output, and memory is fetched. */
typedef struct work {
    _Alignas(64) float sums[ROWS * COLUMNS]; /* the sums of a chunk of steps; rows before `row` are written already */
    int64_t row, rows_each; /* rows_each: number of rows that are written with each group of products */
    float *out;             /* where row `row` goes */
    int64_t out_stride;
    bool adds; /* the sums are added to the output */
    fetch ahead;
    fetch_rows ahead_left, ahead_out;
} work;

/* Writes up to `rows` of the rows that wait. */
static inline void put_rows(work *w, int64_t rows)
{
    const int64_t end = ith_min64(w->row + rows, ROWS), stride = w->out_stride;
    const float *sums = w->sums + w->row * COLUMNS;
    float *out = w->out;
    if (w->adds)
        for (int64_t i = w->row; i < end; i++, sums += COLUMNS, out += stride)
            for (int64_t j = 0; j < COLUMNS; j += LANES)
                vec_store(out + j, vec_add(vec_load(out + j), vec_load(sums + j)));
    else
        for (int64_t i = w->row; i < end; i++, sums += COLUMNS, out += stride)
            for (int64_t j = 0; j < COLUMNS; j += LANES)
                vec_store(out + j, vec_load(sums + j));
    w->row = end, w->out = out;
}

/* Stores tile register n, which holds sums of the previous square, and clears it. Register 2 j + t holds the sums of
 * rows 16 t to 16 t + 15 and columns 16 j to 16 j + 15. */
#define BEGIN_TILE(n)                                                                                                  \
    do {                                                                                                               \
        _tile_stored(n, w->sums + (n) % 2 * TILE_ROWS * COLUMNS + (n) / 2 * LANES, COLUMNS * sizeof(float));           \
        _tile_zero(n);                                                                                                 \
    } while (0)

/* Adds a product of tiles to register n. In the first group of a square the register still holds sums of the previous
 * square, which are stored just before the register is needed, so that multiplications hide the store. Rows of these
 * sums are written in later groups. */
#define ADD_PRODUCT(n)                                                                                                 \
    do {                                                                                                               \
        if (first)                                                                                                     \
            BEGIN_TILE(n);                                                                                             \
        _tile_dpbf16ps(n, 6, 7);                                                                                       \
    } while (0)

/* Loads a tile of left. With one part it is loaded past the first-level cache, which keeps the right tiles. With three
 * parts, tiles of left are loaded again for other pairs of parts. */
#if PARTS == 1
#define LOAD_LEFT _tile_stream_loadd
#else
#define LOAD_LEFT _tile_loadd
#endif

/* Adds a group of products: two tiles of left rows by three right tiles, to the sums in registers 0 to 5. */
static inline __attribute__((always_inline)) void add_products(const char *left, int64_t stride, const char *right,
                                                               work *w, const bool first)
{
    tiles_see_memory();
    LOAD_LEFT(6, left, stride);
    _tile_loadd(7, right, TILE_ROW_BYTES);
    ADD_PRODUCT(0);
    _tile_loadd(7, right + TILE_BYTES, TILE_ROW_BYTES);
    ADD_PRODUCT(2);
    _tile_loadd(7, right + 2 * TILE_BYTES, TILE_ROW_BYTES);
    ADD_PRODUCT(4);
    LOAD_LEFT(6, left + TILE_ROWS * stride, stride);
    ADD_PRODUCT(5);
    _tile_loadd(7, right + TILE_BYTES, TILE_ROW_BYTES);
    ADD_PRODUCT(3);
    _tile_loadd(7, right, TILE_ROW_BYTES);
    ADD_PRODUCT(1);
    if (!first)
        put_rows(w, w->rows_each);
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

/* STEP steps of some rows of left and of a right panel. The last steps of a call may be fewer; then the rows of left
 * are a copy, padded with zeros. */
typedef struct operands {
    const char *left, *right;
    int64_t stride, part_bytes; /* bytes between rows and between parts of left */
} operands;

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

/* Returns steps [k, k + STEP) of `rows` rows of left. The last steps of a call are copied to `edge` if they are fewer.
 */
static inline operands operands_at(const ith_product_call *c, const char *left, int64_t rows, int64_t k, char *edge)
{
    const char *right = (const char *)c->right + k / STEP * STEP_BYTES;
    if (k + STEP <= c->steps)
        return (operands){left + k / STEP * TILE_ROW_BYTES, right, c->left_stride, c->part_bytes};
    copy_last_steps(edge, c, left, rows);
    return (operands){edge, right, TILE_ROW_BYTES, EDGE_BYTES};
}

/* The number of steps of a chunk of a call: the call's steps cut into chunks of about the same size. */
static int64_t chunk_steps(const ith_product_call *c)
{
    return ith_round_up(ith_div_up(c->steps, ith_div_up(c->steps, CHUNK)), STEP);
}

/* Adds the products of steps [begin, end) to the sums of a square. `left` is the first of ROWS rows. */
static inline void add_square(const ith_product_call *c, const char *left, int64_t begin, int64_t end, work *w)
{
    _Alignas(64) char edge[PARTS * EDGE_BYTES];
    for (int64_t k = begin; k < end; k += STEP) {
        const operands at = operands_at(c, left, ROWS, k, edge);
        int n = first_pair[c->parts - 1];
        if (k == begin) {
            add_products(at.left + pairs[n].left * at.part_bytes, at.stride, at.right + pairs[n].right * PART_BYTES, w,
                         true);
            n++;
        }
        for (; n < PAIRS; n++)
            add_products(at.left + pairs[n].left * at.part_bytes, at.stride, at.right + pairs[n].right * PART_BYTES, w,
                         false);
        fetch_some(&w->ahead);
        fetch_some_rows(&w->ahead_left);
        fetch_some_rows(&w->ahead_out);
    }
    put_rows(w, ROWS);
}

/* Writes the sums in the tile registers to the output. */
static void finish_square(work *w)
{
    BEGIN_TILE(0);
    BEGIN_TILE(1);
    BEGIN_TILE(2);
    BEGIN_TILE(3);
    BEGIN_TILE(4);
    BEGIN_TILE(5);
    put_rows(w, ROWS);
}

/* Computes all whole squares of a call with COLUMNS columns. Returns the number of rows that they cover. */
static int64_t multiply_squares(const ith_product_call *c)
{
    const int64_t chunk = chunk_steps(c), rows = c->rows / ROWS * ROWS;
    const int64_t groups = ith_div_up(ith_min64(chunk, c->steps), STEP) * (PAIRS - first_pair[c->parts - 1]);
    work w;
    w.row = ROWS, w.rows_each = ith_div_up(ROWS, ith_max64(groups - 1, 1)); /* no sums wait to be written */
    w.out = c->out, w.out_stride = c->out_stride, w.adds = false;
    const int64_t turns = rows / ROWS * ith_div_up(c->steps, STEP), bytes = right_bytes(c->steps);
    w.ahead = c->next ? fetch_of(c->next, (const char *)c->next + bytes, bytes, turns) : (fetch){0};
    w.ahead_left = fetch_rows_of(c->next_left, c->next_left_rows, c->next_left_stride, c->next_left_bytes, turns);
    w.ahead_out = fetch_rows_of(c->next_out, c->next_out_rows, c->next_out_stride, c->next_out_bytes, turns);
    for (int64_t k = 0; k < c->steps; k += chunk)
        for (int64_t i = 0; i < rows; i += ROWS) {
            add_square(c, (const char *)c->left + i * c->left_stride, k, ith_min64(k + chunk, c->steps), &w);
            w.row = 0, w.out = c->out + i * c->out_stride, w.adds = c->adds || k;
        }
    if (rows)
        finish_square(&w);
    return rows;
}

/* Writes sums to the output, or adds them to it: `rows` rows of `columns` numbers. */
static void put_sums(float *out, int64_t out_stride, const float *sums, int64_t stride, int64_t rows, int64_t columns,
                     bool adds)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += LANES) {
            __mmask16 there = first_lanes(columns - j);
            float *to = out + i * out_stride + j;
            vec x = vec_load(sums + i * stride + j);
            _mm512_mask_storeu_ps(to, there, adds ? vec_add(_mm512_maskz_loadu_ps(there, to), x) : x);
        }
}

/* Computes rows [i, i + rows) of a call, at most 16 rows and any number of columns. */
static void multiply_edge(const ith_product_call *c, int64_t i, int64_t rows)
{
    enum { BYTES = COLUMNS * sizeof(float) };
    _Alignas(64) float sums[TILE_ROWS * COLUMNS];
    _Alignas(64) char edge[PARTS * EDGE_BYTES];
    const int64_t chunk = chunk_steps(c);
    for (int64_t begin = 0; begin < c->steps; begin += chunk) {
        _tile_zero(0);
        _tile_zero(2);
        _tile_zero(4);
        for (int64_t k = begin; k < ith_min64(begin + chunk, c->steps); k += STEP) {
            const operands at = operands_at(c, (const char *)c->left + i * c->left_stride, rows, k, edge);
            for (int n = first_pair[c->parts - 1]; n < PAIRS; n++)
                add_upper_products(at.left + pairs[n].left * at.part_bytes, at.stride,
                                   at.right + pairs[n].right * PART_BYTES);
        }
        _tile_stored(0, sums, BYTES);
        _tile_stored(2, sums + LANES, BYTES);
        _tile_stored(4, sums + 2 * LANES, BYTES);
        tiles_see_memory();
        put_sums(c->out + i * c->out_stride, c->out_stride, sums, COLUMNS, rows, c->columns, c->adds || begin);
    }
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

/* Computes the products of steps [begin, end) of ROWS rows of left, one or two tiles wide. */
static inline __attribute__((always_inline)) void narrow_square(const ith_product_call *c, const char *left,
                                                                int64_t begin, int64_t end, float *sums,
                                                                const bool two_tiles)
{
    enum { BYTES = 2 * LANES * sizeof(float) };
    float *below = sums + TILE_ROWS * 2 * LANES;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = begin; k < end; k += STEP)
        add_narrow_step(c, left, k, two_tiles);
    _tile_stored(0, sums, BYTES);
    _tile_stored(1, below, BYTES);
    if (two_tiles) {
        _tile_stored(2, sums + LANES, BYTES);
        _tile_stored(3, below + LANES, BYTES);
    }
    tiles_see_memory();
}

/* Computes all whole squares of ROWS rows of a call with an even number of steps and at most two tiles of columns.
 * Returns the number of rows that they cover. */
static int64_t multiply_narrow(const ith_product_call *c)
{
    const int64_t chunk = chunk_steps(c), rows = c->rows / ROWS * ROWS;
    _Alignas(64) float sums[ROWS * 2 * LANES];
    claim_narrow(c->steps % STEP);
    for (int64_t i = 0; i < rows; i += ROWS)
        for (int64_t k = 0; k < c->steps; k += chunk) {
            const char *left = (const char *)c->left + i * c->left_stride;
            if (c->columns > LANES)
                narrow_square(c, left, k, ith_min64(k + chunk, c->steps), sums, true);
            else
                narrow_square(c, left, k, ith_min64(k + chunk, c->steps), sums, false);
            put_sums(c->out + i * c->out_stride, c->out_stride, sums, 2 * LANES, ROWS, c->columns, c->adds || k);
        }
    return rows;
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
    if (!narrow && c->columns == COLUMNS)
        i = multiply_squares(c);
    for (; i + TILE_ROWS <= c->rows; i += TILE_ROWS)
        multiply_edge(c, i, TILE_ROWS);
    if (last) {
        tiles_claim_rows(last);
        multiply_edge(c, i, last);
    }
    _tile_release();
}
