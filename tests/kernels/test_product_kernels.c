/* SPDX-License-Identifier: Apache-2.0 */
/* Compares every product kernel that this machine can run with float64: sizes at and around the tile, strides, blocks
 * of steps, packing in pieces, equal bits at every position, NaN. Operands lie beside protected pages. Numbers that a
 * call must not read are NaN. */
#include "base/dtype.h"
#include "base/size.h"
#include "kernels/product.h"
#include "support/guarded.h"
#include "support/machine.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static uint64_t random_state = 20260731;

static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* A product [rows][steps] x [steps][columns]. */
typedef struct product {
    const ith_product_kernel *kernel;
    int64_t rows, columns, steps;
    ith_dtype dtype; /* left is stored as numbers of this type */
    bool rounds_left, rounds_right;
    float *left;  /* [rows][steps] */
    float *right; /* [columns][steps] */
    float *old;   /* [rows][columns], to which the products are added; NULL: they are not added */
} product;

/* Packed left rows, with gaps of NaN between them. If `interleaved`, each call gets an interleaved copy of them. */
typedef struct left_operand {
    char *part;
    int64_t stride, part_bytes;
    int parts;
    bool interleaved;
} left_operand;

static int64_t any(int64_t low, int64_t high)
{
    return random_between(&random_state, low, high);
}

static bool chance(void)
{
    return any(0, 1) == 1;
}

/* ---- Problems -------------------------------------------------------------------------------------------------- */

/* Rounds numbers to `dtype`, so that left can store them exactly. */
static void store_as(float *x, ith_dtype dtype, int64_t count)
{
    uint16_t stored;
    for (int64_t i = 0; i < count && dtype != ITH_F32; i++) {
        ith_from_f32(&stored, dtype, x + i, 1);
        ith_to_f32(x + i, &stored, dtype, 1);
    }
}

static product make(const ith_product_kernel *kernel, int64_t rows, int64_t columns, int64_t steps, ith_dtype dtype)
{
    product p = {.kernel = kernel, .rows = rows, .columns = columns, .steps = steps, .dtype = dtype};
    p.left = random_floats(&random_state, rows * steps);
    p.right = random_floats(&random_state, columns * steps);
    store_as(p.left, dtype, rows * steps);
    p.rounds_left = any(0, 3) == 0;
    p.rounds_right = any(0, 3) == 0;
    if (chance())
        p.old = random_floats(&random_state, rows * columns);
    return p;
}

static void discard(product *p)
{
    free(p->left);
    free(p->right);
    free(p->old);
    guarded_free_all();
}

/* ---- Running a kernel ------------------------------------------------------------------------------------------ */

static int64_t left_bytes(const ith_product_kernel *kernel)
{
    return kernel->type == ITH_F32 && kernel->parts == 1 ? 4 : 2;
}

/* Packs `count` numbers in one or two calls. */
static void pack_numbers(const product *p, const float *x, int64_t count, char *to, int64_t part_bytes)
{
    int64_t bytes = ith_dtype_bytes(p->dtype), cut = chance() ? count : any(0, count);
    char *stored = guarded_new(count * bytes, bytes, chance());
    ith_from_f32(stored, p->dtype, x, count);
    ith_product_left left = {stored, p->dtype, p->rounds_left, cut, to, part_bytes};
    p->kernel->pack_left(&left);
    left = (ith_product_left){.x = stored + cut * bytes, .dtype = p->dtype, .rounds = p->rounds_left};
    left.count = count - cut;
    left.to = to + cut * left_bytes(p->kernel);
    left.part_bytes = part_bytes;
    p->kernel->pack_left(&left);
}

/* Packs all rows of left together, and then copies them to places with gaps between the rows. */
static left_operand pack_left(const product *p)
{
    int64_t bytes = left_bytes(p->kernel), row = p->steps * bytes, packed = p->rows * row;
    left_operand to = {.stride = row + bytes * (chance() ? 0 : any(0, 40))};
    to.parts = ith_product_parts(p->kernel, p->dtype, p->rounds_left);
    to.part_bytes = p->rows * to.stride + bytes * any(0, 40);
    char *dense = guarded_new(packed * to.parts, bytes, true);
    pack_numbers(p, p->left, p->rows * p->steps, dense, packed);
    to.interleaved = p->kernel->interleave && chance();
    int64_t last = p->rows > 0 ? (p->rows - 1) * to.stride + row : 0;
    to.part = guarded_new((to.parts - 1) * to.part_bytes + last, bytes, chance());
    for (int64_t n = 0; n < to.parts; n++)
        for (int64_t i = 0; i < p->rows; i++)
            memcpy(to.part + n * to.part_bytes + i * to.stride, dense + n * packed + i * row, (size_t)row);
    return to;
}

/* A panel whose bytes are NaN before it is packed. */
static void *new_panel(const product *p)
{
    return guarded_new(p->kernel->right_bytes(p->steps), 64, chance());
}

/* Packs columns [first, first + count) of the panel. Columns that the product does not have become zeros. */
static void pack_columns(const product *p, void *panel, int64_t first, int64_t count)
{
    const float **x = calloc((size_t)count + 1, sizeof *x);
    for (int64_t j = 0; j < count; j++)
        x[j] = first + j < p->columns ? p->right + (first + j) * p->steps : NULL;
    p->kernel->pack_right(&(ith_product_right){x, p->rounds_right, p->steps, first, count, panel});
    free(x);
}

/* Packs a right panel. If the product has fewer columns than the panel, the other columns sometimes stay NaN, because a
 * call that does not compute them must not depend on them. */
static void *pack_right(const product *p)
{
    void *panel = new_panel(p);
    pack_columns(p, panel, 0, chance() ? p->columns : p->kernel->columns);
    return panel;
}

/* Returns an interleaved copy of steps [first, first + steps) of left. The rows that the last tile lacks, and the gaps
 * between rows, are NaN. */
static left_operand interleave(const product *p, const left_operand *left, int64_t first, int64_t steps)
{
    const ith_product_kernel *kernel = p->kernel;
    const int64_t rows = kernel->rows, tiles = ith_div_up(p->rows, rows);
    left_operand to = {.stride = (steps + (chance() ? 0 : any(0, 10))) * 4, .parts = 1, .interleaved = true};
    to.part = guarded_new(tiles ? (tiles * rows - 1) * to.stride + steps * 4 : 0, 4, chance());
    const int64_t bytes = kernel->interleaved_rows * steps * 4;
    float *x = guarded_new(bytes, 4, chance());
    for (int64_t i = 0; i < p->rows; i += rows) {
        memset(x, 0xff, (size_t)bytes);
        for (int64_t r = 0; r < ith_min64(rows, p->rows - i); r++) {
            const char *row = left->part + (i + r) * left->stride + first * 4;
            const bool plain = r >= kernel->interleaved_rows;
            memcpy(plain ? to.part + (i + r) * to.stride : (char *)(x + r * steps), row, (size_t)steps * 4);
        }
        kernel->interleave(x, steps, steps, (float *)(void *)(to.part + i * to.stride));
    }
    return to;
}

/* Runs steps [first, first + steps) as one call. */
static void run_block(const product *p, const left_operand *left, const char *panel, int64_t first, int64_t steps,
                      bool adds, float *out, int64_t out_stride)
{
    ith_product_call call = {.rows = p->rows, .columns = p->columns, .steps = steps, .adds = adds};
    const left_operand copy = left->interleaved ? interleave(p, left, first, steps) : *left;
    call.left = copy.part + (copy.interleaved ? 0 : first * left_bytes(p->kernel));
    call.interleaved = copy.interleaved;
    call.left_stride = copy.stride;
    call.part_bytes = copy.part_bytes;
    call.parts = copy.parts;
    call.right = panel + (first ? p->kernel->right_bytes(first) : 0);
    call.out = out;
    call.out_stride = out_stride;
    p->kernel->multiply(&call);
}

/* Returns [rows][columns]. The steps are cut into blocks of `block` steps, a multiple of the kernel's `step`. Nothing
 * between the rows of out may change. */
static float *run(const product *p, const left_operand *left, const void *panel, int64_t block)
{
    int64_t stride = p->columns + (chance() ? 0 : any(0, 40));
    int64_t reach = p->rows > 0 ? (p->rows - 1) * stride + p->columns : 0;
    float *out = guarded_new(reach * 4, 4, chance()), *dense = malloc((size_t)(p->rows * p->columns) * 4 + 1);
    for (int64_t i = 0; p->old && i < p->rows; i++)
        memcpy(out + i * stride, p->old + i * p->columns, (size_t)p->columns * 4);
    for (int64_t k = 0; k < p->steps; k += block)
        run_block(p, left, panel, k, ith_min64(block, p->steps - k), p->old || k > 0, out, stride);
    for (int64_t i = 0; i < p->rows; i++) {
        memcpy(dense + i * p->columns, out + i * stride, (size_t)p->columns * 4);
        for (int64_t j = p->columns; j < stride && i + 1 < p->rows; j++)
            assert_int_equal(ith_f32_bits(out[i * stride + j]), 0xffffffffu);
    }
    return dense;
}

static float *multiply(const product *p)
{
    left_operand left = pack_left(p);
    return run(p, &left, pack_right(p), p->steps);
}

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

static float operand(const product *p, float x, bool rounds)
{
    return rounds || p->kernel->type == ITH_BF16 ? ith_round_to_bf16(x) : x;
}

/* The exact value of out[i][j], and figures from which bounds of the error of a sum in f32 follow. */
typedef struct truth {
    double sum;     /* in float64 */
    double most;    /* the sum of all magnitudes */
    double squares; /* of the products */
    float plain;    /* the sum in f32, one product after the other */
} truth;

static truth truth_of(const product *p, int64_t i, int64_t j)
{
    truth t = {.plain = p->old ? p->old[i * p->columns + j] : 0.0f};
    t.sum = t.plain;
    t.most = fabs(t.sum);
    for (int64_t k = 0; k < p->steps; k++) {
        float x = operand(p, p->left[i * p->steps + k], p->rounds_left);
        float y = operand(p, p->right[j * p->steps + k], p->rounds_right);
        t.plain += x * y;
        t.sum += (double)x * y;
        t.most += fabs((double)x * y);
        t.squares += (double)x * y * x * y;
    }
    return t;
}

/* Checks that the error of each number is within the bound of a sum in f32 in any order. The root of the summed squares
 * of all errors must be at most twice as large as with plain sums. Because a plain sum of few numbers may be exact by
 * chance, the limit is raised by about twice the error of a random sum of n products: 2^-24 times the root of n / 6
 * times the sum of their squares. */
static void check_numbers(const product *p, const float *out)
{
    double error = 0, plain_error = 0, rounding = 0;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            truth t = truth_of(p, i, j);
            double e = out[i * p->columns + j] - t.sum;
            if (!(fabs(e) <= (double)(p->steps + 8) * 0x1p-24 * t.most))
                fail_msg("%s: %lld x %lld x %lld, %s: out[%lld][%lld] is %.9g, not %.9g", p->kernel->name,
                         (long long)p->rows, (long long)p->columns, (long long)p->steps, ith_dtype_name(p->dtype),
                         (long long)i, (long long)j, (double)out[i * p->columns + j], t.sum);
            error += e * e;
            plain_error += (t.plain - t.sum) * (t.plain - t.sum);
            rounding += t.squares * (double)(p->steps + 4) * 0x1p-48;
        }
    if (!(sqrt(error) <= 2 * sqrt(plain_error) + sqrt(rounding)))
        fail_msg("%s: %lld x %lld x %lld, %s: the error is %.3g, and %.3g of a plain sum", p->kernel->name,
                 (long long)p->rows, (long long)p->columns, (long long)p->steps, ith_dtype_name(p->dtype), sqrt(error),
                 sqrt(plain_error));
}

static void check(product *p)
{
    float *out = multiply(p);
    check_numbers(p, out);
    free(out);
    discard(p);
}

static void assert_same_bits(float x, float y)
{
    assert_int_equal(ith_f32_bits(x), ith_f32_bits(y));
}

static void assert_same(const product *p, const float *x, const float *y)
{
    for (int64_t i = 0; i < p->rows * p->columns; i++)
        assert_same_bits(x[i], y[i]);
}

/* A product of random sizes up to a few tiles. */
static product make_any(const ith_product_kernel *kernel)
{
    int64_t steps = chance() ? any(1, 70) : any(1, kernel->depth);
    return make(kernel, any(1, 3 * kernel->rows + 1), any(1, kernel->columns), steps, dtypes[any(0, DTYPES - 1)]);
}

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

static void sizes_around_the_tile(const ith_product_kernel *kernel)
{
    int64_t r = kernel->rows, c = kernel->columns, d = kernel->depth;
    int64_t rows[] = {0, 1, 2, 3, r - 1, r, r + 1, 2 * r - 1, 2 * r, 3 * r, 3 * r + 2};
    int64_t columns[] = {0, 1, 2, 7, 8, 9, c / 3, c / 3 + 1, c / 2, c / 2 + 1, c - 8, c - 1, c};
    int64_t steps[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, d - 1, d, d + 1, d + 2};
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++, n++) {
            product p = make(kernel, rows[i], ith_min64(columns[j], c), any(1, 40), dtypes[n % DTYPES]);
            check(&p);
        }
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
        for (size_t t = 0; t < DTYPES; t++) {
            product p = make(kernel, any(1, 2 * r + 1), any(1, c), steps[k], dtypes[t]);
            check(&p);
        }
}

static void random_products(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 60; n++) {
        product p = make_any(kernel);
        check(&p);
    }
}

/* Blocks that begin at any multiple of `step` add up; the last block may be shorter. */
static void blocks_of_steps(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 30; n++) {
        product p = make_any(kernel);
        left_operand left = pack_left(&p);
        int64_t block = kernel->step * any(1, ith_div_up(p.steps, kernel->step));
        float *out = run(&p, &left, pack_right(&p), block);
        check_numbers(&p, out);
        free(out);
        discard(&p);
    }
}

static void sizes_are_sane(const ith_product_kernel *kernel)
{
    assert_true(strlen(kernel->name) < ITH_ATTN_NAME_BYTES && !strchr(kernel->name, ' '));
    assert_true(kernel->rows >= 1 && kernel->columns >= 1 && kernel->step >= 1);
    assert_true(kernel->depth >= kernel->step && kernel->depth % kernel->step == 0);
    assert_true(kernel->lanes >= 1 && kernel->columns % kernel->lanes == 0);
    assert_true(kernel->strip >= 1 && kernel->strip % kernel->columns == 0 && kernel->block_bytes >= 1);
    assert_true(kernel->parts == 1 || (kernel->parts == ITH_PRODUCT_PARTS_MAX && kernel->type == ITH_F32));
    assert_true(!kernel->interleave == !kernel->interleaved_rows);
    assert_true(!kernel->interleave || (kernel->parts == 1 && kernel->type == ITH_F32));
    assert_true(kernel->interleaved_rows >= 0 && kernel->interleaved_rows <= kernel->rows);
    for (int64_t steps = 1; steps <= 3 * kernel->depth; steps++) {
        assert_int_equal(kernel->right_bytes(steps) % 64, 0);
        assert_true(kernel->right_bytes(steps) >= kernel->right_bytes(steps - 1));
    }
    for (int n = 0; n < kernel->parts; n++)
        assert_true(kernel->instructions[n].peak && kernel->instructions[n].times >= 1);
}

/* ---- Packing --------------------------------------------------------------------------------------------------- */

/* Multiplied by the unit vector of step k, left gives back its numbers of step k: all parts of a number together are
 * the number, to the last bit. */
static void parts_hold_the_number(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 12; n++) {
        product p = make(kernel, any(1, 2 * kernel->rows), kernel->columns, kernel->columns, dtypes[n % DTYPES]);
        for (int64_t i = 0; i < p.rows * p.steps; i++) /* f16 has numbers from 2^-14 to 2^15 with all bits */
            p.left[i] = ldexpf(p.left[i], (int)any(-12, 15));
        store_as(p.left, p.dtype, p.rows * p.steps);
        for (int64_t j = 0; j < p.columns; j++)
            for (int64_t k = 0; k < p.steps; k++)
                p.right[j * p.steps + k] = j == k ? 1.0f : 0.0f;
        free(p.old);
        p.old = NULL;
        float *out = multiply(&p);
        for (int64_t i = 0; i < p.rows * p.columns; i++)
            assert_true(out[i] == operand(&p, p.left[i], p.rounds_left));
        free(out);
        discard(&p);
    }
}

/* Columns may be packed in any pieces; a piece leaves the other columns as they are. */
static void columns_in_pieces(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 20; n++) {
        product p = make_any(kernel);
        left_operand left = pack_left(&p);
        void *whole = new_panel(&p), *pieces = new_panel(&p);
        pack_columns(&p, whole, 0, kernel->columns);
        for (int64_t j = p.columns, count; j > 0; j -= count) { /* the last columns first */
            count = any(1, j);
            pack_columns(&p, pieces, j - count, count);
        }
        float *expected = run(&p, &left, whole, p.steps), *mine = run(&p, &left, pieces, p.steps);
        check_numbers(&p, expected);
        assert_same(&p, expected, mine);
        free(expected);
        free(mine);
        discard(&p);
    }
}

/* pack_turned, called for the steps in any pieces, gives the same panel as pack_right. */
static void turned_panels(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 20; n++) {
        product p = make_any(kernel);
        left_operand left = pack_left(&p);
        int64_t stride = kernel->columns + any(0, 9);
        float *x = guarded_new(((p.steps - 1) * stride + kernel->columns) * 4, 4, chance());
        for (int64_t k = 0; k < p.steps; k++)
            for (int64_t j = 0; j < p.columns; j++)
                x[k * stride + j] = p.right[j * p.steps + k];
        void *panel = new_panel(&p);
        ith_product_turned turned = {.stride = stride, .rounds = p.rounds_right, .steps = p.steps, .panel = panel};
        for (int64_t k = 0; k < p.steps; k += turned.count) {
            turned.x = x + k * stride;
            turned.first = k;
            turned.count = ith_min64(kernel->step * any(1, 20), p.steps - k);
            kernel->pack_turned(&turned);
        }
        float *expected = run(&p, &left, pack_right(&p), p.steps), *mine = run(&p, &left, panel, p.steps);
        check_numbers(&p, mine);
        assert_same(&p, expected, mine);
        free(expected);
        free(mine);
        discard(&p);
    }
}

/* A column that is NULL is a column of zeros. */
static void absent_columns(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 6; n++) {
        product p = make_any(kernel);
        left_operand left = pack_left(&p);
        void *panel = new_panel(&p);
        p.columns = 0;
        pack_columns(&p, panel, 0, kernel->columns);
        p.columns = kernel->columns;
        free(p.old);
        p.old = n % 2 ? random_floats(&random_state, p.rows * p.columns) : NULL;
        float *out = run(&p, &left, panel, p.steps);
        for (int64_t i = 0; i < p.rows * p.columns; i++)
            assert_true(out[i] == (p.old ? p.old[i] : 0.0f));
        free(out);
        discard(&p);
    }
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

/* Copies row `from` of p to row `to` of q, or the same with columns. */
static void copy_row(const product *q, int64_t to, const product *p, int64_t from)
{
    memcpy(q->left + to * q->steps, p->left + from * p->steps, (size_t)p->steps * 4);
}

static void copy_column(const product *q, int64_t to, const product *p, int64_t from)
{
    memcpy(q->right + to * q->steps, p->right + from * p->steps, (size_t)p->steps * 4);
}

/* A number of out has the same bits wherever its row and its column stand, and whatever stands beside them. */
static void bits_are_those_of_row_and_column(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 40; n++) {
        product p = make_any(kernel);
        float *out = multiply(&p);
        for (int m = 0; m < 4; m++) {
            product q = make(kernel, any(1, 3 * kernel->rows), any(1, kernel->columns), p.steps, p.dtype);
            q.rounds_left = p.rounds_left;
            q.rounds_right = p.rounds_right;
            int64_t i = any(0, p.rows - 1), j = any(0, p.columns - 1);
            int64_t row = any(0, q.rows - 1), column = any(0, q.columns - 1);
            copy_row(&q, row, &p, i);
            copy_column(&q, column, &p, j);
            free(q.old);
            q.old = p.old ? random_floats(&random_state, q.rows * q.columns) : NULL;
            if (q.old)
                q.old[row * q.columns + column] = p.old[i * p.columns + j];
            float *other = multiply(&q);
            assert_same_bits(other[row * q.columns + column], out[i * p.columns + j]);
            free(other);
            discard(&q);
        }
        free(out);
        discard(&p);
    }
}

/* NaN and infinity of a row or a column reach this row or column, and nothing else. */
static void nan_stays_in_its_row_or_column(const ith_product_kernel *kernel)
{
    for (int n = 0; n < 24; n++) {
        product p = make_any(kernel);
        float *clean = multiply(&p), bad = n % 3 ? NAN : INFINITY;
        int64_t i = any(0, p.rows - 1), j = any(0, p.columns - 1), k = any(0, p.steps - 1);
        bool row = n % 2 == 0;
        if (row)
            p.left[i * p.steps + k] = bad;
        else
            p.right[j * p.steps + k] = bad;
        float *out = multiply(&p);
        for (int64_t a = 0; a < p.rows; a++)
            for (int64_t b = 0; b < p.columns; b++) {
                float mine = out[a * p.columns + b];
                if (row ? a == i : b == j)
                    assert_true(isnan(bad) ? isnan(mine) : !isfinite(mine));
                else
                    assert_same_bits(mine, clean[a * p.columns + b]);
            }
        free(clean);
        free(out);
        discard(&p);
    }
}

/* ---- The table ------------------------------------------------------------------------------------------------- */

/* Every machine has a kernel of f32; without instruction sets there is none of bf16. */
static void the_choice(void **state)
{
    (void)state;
    assert_string_equal(ith_product_kernel_choose(ITH_F32, ITH_CPU_BASELINE)->name, "f32_ref");
    assert_null(ith_product_kernel_choose(ITH_BF16, ITH_CPU_BASELINE));
    for (int i = 0; ith_product_kernel_at(i); i++) {
        const ith_product_kernel *kernel = ith_product_kernel_at(i);
        const ith_product_kernel *chosen = ith_product_kernel_choose(kernel->type, kernel->cpu);
        assert_true(chosen && chosen->type == kernel->type && !(chosen->cpu & ~kernel->cpu));
    }
    assert_null(ith_product_kernel_at(-1));
}

static void every_kernel(void **state)
{
    static void (*const tests[])(const ith_product_kernel *) = {sizes_are_sane,
                                                                sizes_around_the_tile,
                                                                random_products,
                                                                blocks_of_steps,
                                                                parts_hold_the_number,
                                                                columns_in_pieces,
                                                                turned_panels,
                                                                absent_columns,
                                                                bits_are_those_of_row_and_column,
                                                                nan_stays_in_its_row_or_column};
    (void)state;
    for (int i = 0; ith_product_kernel_at(i); i++)
        if (machine_has(ith_product_kernel_at(i)->name, ith_product_kernel_at(i)->cpu))
            for (size_t n = 0; n < sizeof tests / sizeof *tests; n++)
                tests[n](ith_product_kernel_at(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_choice), cmocka_unit_test(every_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
