/* SPDX-License-Identifier: Apache-2.0 */
/* Key operations of every instruction set, compared with float64. All instruction sets give the same bits. */
#include "base/dtype.h"
#include "base/size.h"
#include "kernels/keyops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/machine.h"
#include "support/random.h"

#define MOST_ROWS 200
#define MOST_N 700

static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 64, 72, 128, 255, 256, 257, 300, MOST_N};
static const int64_t counts[] = {0, 1, 3, 4, 5, 16, 17, 63, 64, 65, 130, MOST_ROWS};
#define LENGTHS ((int)(sizeof lengths / sizeof *lengths))
#define COUNTS ((int)(sizeof counts / sizeof *counts))

/* Rows of one type, each in a block of its own that ends where the row ends; the same values in double. */
static struct {
    ith_dtype dtype;
    int64_t rows, n;
    void *blocks[MOST_ROWS];
    const void *x[MOST_ROWS]; /* NULL: the row does not count */
    double values[MOST_ROWS][MOST_N];
} set;

static uint64_t random_state = 1;

/* The tables that this machine can run. */
static int tables(const ith_keyops *out[MACHINE_LISTS])
{
    uint32_t lists[MACHINE_LISTS];
    const int count = machine_lists(lists);
    for (int i = 0; i < count; i++)
        out[i] = ith_keyops_choose(lists[i]);
    return count;
}

static void fill(ith_dtype dtype, int64_t rows, int64_t n, float centre, float width, int absent_of_8)
{
    set.dtype = dtype, set.rows = rows, set.n = n;
    size_t size = (size_t)ith_dtype_bytes(dtype);
    for (int64_t i = 0; i < rows; i++) {
        float row[MOST_N], rounded[MOST_N];
        for (int64_t d = 0; d < n; d++)
            row[d] = centre + width * random_signed(&random_state);
        set.blocks[i] = malloc((size_t)n * size);
        ith_from_f32(set.blocks[i], dtype, row, n);
        ith_to_f32(rounded, set.blocks[i], dtype, n);
        for (int64_t d = 0; d < n; d++)
            set.values[i][d] = (double)rounded[d];
        set.x[i] = (int)((random_signed(&random_state) + 1) * 4) < absent_of_8 ? NULL : set.blocks[i];
    }
}

static void clear(void)
{
    for (int64_t i = 0; i < set.rows; i++)
        free(set.blocks[i]);
}

static double square_of(int64_t row, const float *centre)
{
    double square = 0;
    for (int64_t d = 0; d < set.n; d++) {
        double distance = set.values[row][d] - (centre ? (double)centre[d] : 0);
        square += distance * distance;
    }
    return square;
}

static double error_of_sums(void)
{
    return (double)(set.n / ITH_KEYOPS_LANES + 8) * 0x1p-24;
}

static void check_sums(const ith_keyops *ops, const ith_keyops *first)
{
    double sum[MOST_N], other[MOST_N];
    int64_t count = 0;
    for (int64_t d = 0; d < set.n; d++)
        sum[d] = other[d] = 3;
    for (int64_t i = 0; i < set.rows; i++)
        count += set.x[i] != NULL;
    assert_int_equal(ops->add_rows(sum, set.x, set.rows, set.dtype, set.n), count);
    first->add_rows(other, set.x, set.rows, set.dtype, set.n);
    assert_memory_equal(sum, other, (size_t)set.n * sizeof *sum);
    for (int64_t d = 0; d < set.n; d++) {
        double want = 3, size = 3;
        for (int64_t i = 0; i < set.rows; i++)
            if (set.x[i])
                want += set.values[i][d], size += fabs(set.values[i][d]);
        assert_true(fabs(sum[d] - want) <= 64 * 0x1p-24 * size);
    }
}

static void check_distances(const ith_keyops *ops, const ith_keyops *first, const float *centre)
{
    double want = 0;
    for (int64_t i = 0; i < set.rows; i++)
        if (set.x[i])
            want = fmax(want, square_of(i, centre));
    float got = ops->most_distance(centre, set.x, set.rows, set.dtype, set.n);
    assert_true(fabs((double)got - want) <= want * error_of_sums() + (double)set.n * 0x1p-126);
    float other = first->most_distance(centre, set.x, set.rows, set.dtype, set.n);
    assert_memory_equal(&got, &other, sizeof got);
}

static void check_magnitudes(const ith_keyops *ops)
{
    double want = 0;
    for (int64_t i = 0; i < set.rows; i++)
        for (int64_t d = 0; set.x[i] && d < set.n; d++)
            want = fmax(want, fabs(set.values[i][d]));
    assert_true((double)ops->most_magnitude(set.x, set.rows, set.dtype, set.n) == want);
}

static void check_dots(const ith_keyops *ops, const ith_keyops *first, const float *y)
{
    float dot[MOST_ROWS + 1], square[MOST_ROWS + 1], other[2][MOST_ROWS];
    const void *const *x = (const void *const *)set.blocks;
    dot[set.rows] = square[set.rows] = 12345;
    ops->dots(dot, square, y, x, set.rows, set.dtype, set.n);
    assert_true(dot[set.rows] == 12345 && square[set.rows] == 12345);
    first->dots(other[0], other[1], y, x, set.rows, set.dtype, set.n);
    assert_memory_equal(dot, other[0], (size_t)set.rows * sizeof *dot);
    assert_memory_equal(square, other[1], (size_t)set.rows * sizeof *dot);
    for (int64_t i = 0; i < set.rows; i++) {
        double want = 0, size = 0;
        for (int64_t d = 0; y && d < set.n; d++)
            want += set.values[i][d] * (double)y[d], size += (double)y[d] * (double)y[d];
        double norm = square_of(i, NULL), least = (double)set.n * 0x1p-126;
        assert_true(fabs((double)dot[i] - want) <= error_of_sums() * sqrt(norm * size) + least);
        assert_true(fabs((double)square[i] - norm) <= error_of_sums() * norm + least);
        float alone[2]; /* the same bits wherever a row stands */
        ops->dots(alone, alone + 1, y, x + i, 1, set.dtype, set.n);
        assert_true(alone[0] == dot[i] && alone[1] == square[i]);
    }
}

/* Counts as skipped if there are tables that this machine cannot run. */
static void tables_that_do_not_run_here(void **state)
{
    (void)state;
#if defined(__x86_64__)
    bool avx2 = machine_has("keyops for AVX2", ITH_CPU_AVX2),
         avx512 = machine_has("keyops for AVX-512", ITH_CPU_AVX512);
    if (!avx2 || !avx512)
        skip();
#endif
}

static void choice_follows_the_cpu(void **state)
{
    (void)state;
    assert_string_equal(ith_keyops_choose(0)->name, "ref");
    assert_string_equal(ith_keyops_choose(ITH_CPU_BASELINE)->name, "ref");
#if defined(__x86_64__)
    assert_string_equal(ith_keyops_choose(ITH_CPU_BASELINE | ITH_CPU_AVX2)->name, "avx2");
    assert_string_equal(ith_keyops_choose(ITH_CPU_AVX2 | ITH_CPU_AVX512)->name, "avx512");
#elif defined(__aarch64__)
    assert_string_equal(ith_keyops_choose(ITH_CPU_BASELINE | ITH_CPU_NEON)->name, "neon");
#endif
}

static void rows_of_every_size(void **state)
{
    (void)state;
    const ith_keyops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const float centres[] = {0, 20, 0, 0}, widths[] = {1, 0.5f, 1e-4f, 0};
    int kind = 0;
    for (int type = 0; type < 3; type++)
        for (int length = 0; length < LENGTHS; length++)
            for (int rows = 0; rows < COUNTS; rows++, kind++) {
                float y[MOST_N];
                fill(types[type], counts[rows], lengths[length], centres[kind % 4], widths[kind % 4], kind % 3);
                for (int64_t d = 0; d < set.n; d++)
                    y[d] = centres[kind % 4] + random_signed(&random_state);
                for (int table = 0; table < count; table++) {
                    check_sums(ops[table], ops[0]);
                    check_distances(ops[table], ops[0], kind % 2 ? y : NULL);
                    check_magnitudes(ops[table]);
                    check_dots(ops[table], ops[0], kind % 5 ? y : NULL);
                }
                clear();
            }
}

/* A sum of equal numbers in f32 would lose up to a thousandth of them. */
static void many_rows_are_summed_in_f64(void **state)
{
    (void)state;
    enum { ROWS = 1 << 15, N = 3 };
    static const float row[N] = {0.1f, 1.7f, -33.3f};
    static const void *x[ROWS];
    const ith_keyops *ops[MACHINE_LISTS];
    const int count = tables(ops);
    for (int i = 0; i < ROWS; i++)
        x[i] = row;
    for (int table = 0; table < count; table++) {
        double sum[N] = {0};
        assert_int_equal(ops[table]->add_rows(sum, x, ROWS, ITH_F32, N), ROWS);
        for (int d = 0; d < N; d++)
            assert_true(fabs(sum[d] / (ROWS * (double)row[d]) - 1) < 64 * 0x1p-24);
    }
}

/* Squares that overflow or underflow, NaN and infinity show in the result, in any place of any row. */
static void extremes_show(void **state)
{
    (void)state;
    const ith_keyops *ops[MACHINE_LISTS];
    int count = tables(ops);
    const float wild[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (int table = 0; table < count; table++)
        for (int trial = 0; trial < 120; trial++) {
            fill(types[trial % 3], 1 + trial, lengths[trial % LENGTHS], 0, 1, 0);
            int64_t row = trial % set.rows, d = trial * 7 % set.n;
            float value = wild[trial / 3 % 4];
            ith_from_f32((char *)set.blocks[row] + d * ith_dtype_bytes(set.dtype), set.dtype, &value, 1);
            double sum[MOST_N] = {0};
            float dot[MOST_ROWS], square[MOST_ROWS];
            ops[table]->add_rows(sum, set.x, set.rows, set.dtype, set.n);
            assert_true(!isfinite(sum[d]));
            assert_true(!isfinite(ops[table]->most_distance(NULL, set.x, set.rows, set.dtype, set.n)));
            assert_true(!isfinite(ops[table]->most_magnitude(set.x, set.rows, set.dtype, set.n)));
            ops[table]->dots(dot, square, NULL, set.x, set.rows, set.dtype, set.n);
            for (int64_t i = 0; i < set.rows; i++)
                assert_true((bool)isfinite(square[i]) == (i != row));
            set.x[row] = NULL; /* a row that does not count is not read */
            assert_true(isfinite(ops[table]->most_distance(NULL, set.x, set.rows, set.dtype, set.n)));
            assert_true(isfinite(ops[table]->most_magnitude(set.x, set.rows, set.dtype, set.n)));
            clear();
            fill(ITH_F32, 5, 40, 0, 1e30f, 0);
            assert_true(!isfinite(ops[table]->most_distance(NULL, set.x, set.rows, set.dtype, set.n)));
            clear();
            fill(ITH_F32, 5, 40, 0, 1e-22f, 0);
            check_distances(ops[table], ops[0], NULL);
            clear();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice_follows_the_cpu), cmocka_unit_test(tables_that_do_not_run_here),
        cmocka_unit_test(rows_of_every_size),     cmocka_unit_test(many_rows_are_summed_in_f64),
        cmocka_unit_test(extremes_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
