/* SPDX-License-Identifier: Apache-2.0 */
/* The body of keyops.h. A file for each instruction set includes it once, after it has defined
 *     vec, LANES                     a vector of LANES floats, LANES a divisor of ITH_KEYOPS_LANES
 *     vec_load, vec_store, vec_set, vec_add, vec_sub, vec_fma
 *     vec_load_bf16, vec_load_f16    LANES 16-bit numbers as f32
 *     vec_transpose(vec [LANES])     in place
 * The vec_<isa>.h of the attention kernels define these. LANES affects the speed, but not the results. */
#include "../base/dtype.h"
#include "../base/size.h"
#include "keyops.h"

enum {
    VECS = ITH_KEYOPS_LANES / LANES,
    COLUMNS = 256, /* number of columns that are summed at a time, so that their sums stay in the first-level cache */
    SUM_ROWS = 64, /* number of rows that are summed in f32 before their sum is added in f64 */
    TOGETHER = 4,  /* number of rows that are added to each other before their sum is added to the columns */
    /* A row is prefetched while the row that comes AHEAD rows earlier is read. Rows lie too far apart in memory for the
     * hardware to predict their addresses. */
    AHEAD = 8
};

/* A vector of ITH_KEYOPS_LANES floats, in VECS vectors of the processor. */
typedef struct wide {
    vec v[VECS];
} wide;

static inline wide wide_zero(void)
{
    wide w;
    for (int i = 0; i < VECS; i++)
        w.v[i] = vec_set(0.0f);
    return w;
}

static inline wide wide_add(wide a, wide b)
{
    for (int i = 0; i < VECS; i++)
        a.v[i] = vec_add(a.v[i], b.v[i]);
    return a;
}

static inline wide wide_sub(wide a, wide b)
{
    for (int i = 0; i < VECS; i++)
        a.v[i] = vec_sub(a.v[i], b.v[i]);
    return a;
}

/* Returns a * b + c, rounded once. */
static inline wide wide_fma(wide a, wide b, wide c)
{
    for (int i = 0; i < VECS; i++)
        c.v[i] = vec_fma(a.v[i], b.v[i], c.v[i]);
    return c;
}

/* Begins the sum over the lanes of w: adds the upper half of its vectors to the lower half until one vector is left. */
static inline vec wide_fold(wide w)
{
    for (int half = VECS / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            w.v[i] = vec_add(w.v[i], w.v[i + half]);
    return w.v[0];
}

/* Completes the sums over the lanes of LANES folded vectors at once: lane i of the result is the sum of folded[i]. */
static inline vec sum_folded(vec folded[LANES])
{
    vec_transpose(folded);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            folded[i] = vec_add(folded[i], folded[i + half]);
    return folded[0];
}

/* The bytes of one number. The function is inlined, because dtype is a constant in every caller. */
static inline int64_t bytes_of(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 4 : 2;
}

static inline wide wide_load(const void *x, ith_dtype dtype)
{
    wide w;
    for (int i = 0; i < VECS; i++) {
        const void *at = (const char *)x + i * LANES * bytes_of(dtype);
        if (dtype == ITH_F32)
            w.v[i] = vec_load(at);
        else
            w.v[i] = dtype == ITH_BF16 ? vec_load_bf16(at) : vec_load_f16(at);
    }
    return w;
}

/* Loads `count` numbers, followed by zeros. It is slow, so only the last numbers of a row are loaded this way. */
static inline wide wide_load_end(const void *x, ith_dtype dtype, int64_t count)
{
    union {
        float f32[ITH_KEYOPS_LANES];
        uint16_t bits16[ITH_KEYOPS_LANES];
    } filled = {{0}};
    memcpy(&filled, x, (size_t)(count * bytes_of(dtype)));
    return wide_load(&filled, dtype);
}

static inline void wide_store(float *x, wide w)
{
    for (int i = 0; i < VECS; i++)
        vec_store(x + i * LANES, w.v[i]);
}

static inline const void *number_at(const void *x, ith_dtype dtype, int64_t i)
{
    return (const char *)x + i * bytes_of(dtype);
}

/* Prefetches a row of `bytes` bytes into the cache. */
static inline void fetch(const void *row, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)row + i);
}

/* ---- Sums of rows ---------------------------------------------------------------------------------------------- */

/* Collects pointers to element `first` of the next rows that are not NULL, at most SUM_ROWS of them. Returns the number
 * of rows that it has passed, NULL rows included. */
static inline int64_t gather(const void **found, int *count, const void *const *x, int64_t rows, ith_dtype dtype,
                             int64_t first)
{
    int64_t row = 0;
    *count = 0;
    for (; row < rows && *count < SUM_ROWS; row++)
        if (x[row] != NULL)
            found[(*count)++] = number_at(x[row], dtype, first);
    return row;
}

/* Adds TOGETHER rows to the sums of n columns: columns[i] += x[0][i] + x[1][i] + ... */
static inline void add_together(float *columns, const void *const *x, ith_dtype dtype, int64_t n)
{
    int64_t i = 0;
    for (; i + ITH_KEYOPS_LANES <= n; i += ITH_KEYOPS_LANES) {
        wide low = wide_add(wide_load(number_at(x[0], dtype, i), dtype), wide_load(number_at(x[1], dtype, i), dtype));
        wide high = wide_add(wide_load(number_at(x[2], dtype, i), dtype), wide_load(number_at(x[3], dtype, i), dtype));
        wide_store(columns + i, wide_add(wide_load(columns + i, ITH_F32), wide_add(low, high)));
    }
    for (int row = 0; i < n && row < TOGETHER; row++) {
        wide end = wide_load_end(number_at(x[row], dtype, i), dtype, n - i);
        wide_store(columns + i, wide_add(wide_load(columns + i, ITH_F32), end));
    }
}

/* Adds the rows x, at most SUM_ROWS of them, to sum[0..n), n <= COLUMNS. The rows are summed in f32, and their sum is
 * added to `sum` in f64. The last group of TOGETHER rows is filled up with rows of zeros. */
static inline void add_block(double *sum, const void **x, int rows, ith_dtype dtype, int64_t n)
{
    static const float zeros[COLUMNS];
    float columns[COLUMNS] = {0};
    for (int row = 0; row < rows; row += TOGETHER) {
        for (int i = row + AHEAD; i < row + AHEAD + TOGETHER && i < rows; i++)
            fetch(x[i], n * bytes_of(dtype));
        for (; rows < row + TOGETHER; rows++)
            x[rows] = zeros;
        add_together(columns, x + row, dtype, n);
    }
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)columns[i];
}

/* Adds all rows to sum [n], in blocks of COLUMNS columns and SUM_ROWS rows. Returns the number of rows that are not
 * NULL. */
static inline int64_t add_all(double *sum, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n)
{
    int64_t counted = 0;
    for (int64_t first = 0; first < n; first += COLUMNS)
        for (int64_t row = 0; row < rows;) {
            const void *found[SUM_ROWS];
            int count;
            row += gather(found, &count, x + row, rows - row, dtype, first);
            add_block(sum + first, found, count, dtype, ith_min64(COLUMNS, n - first));
            counted += first == 0 ? count : 0;
        }
    return counted;
}

/* Passes dtype to add_all as a constant, so that the compiler makes one version of add_all for each type. */
static int64_t add_rows(double *sum, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n)
{
    if (dtype == ITH_F32)
        return add_all(sum, x, rows, ITH_F32, n);
    return dtype == ITH_BF16 ? add_all(sum, x, rows, ITH_BF16, n) : add_all(sum, x, rows, ITH_F16, n);
}

/* ---- Distances ------------------------------------------------------------------------------------------------- */

/* Returns |x - centre|^2 as a vector whose lanes are still to be added up by sum_folded. centre NULL stands for
 * zeros. */
static inline vec distance(const float *centre, const void *x, ith_dtype dtype, int64_t n)
{
    wide squares = wide_zero();
    int64_t i = 0;
    for (; i + ITH_KEYOPS_LANES <= n; i += ITH_KEYOPS_LANES) {
        wide w = wide_load(number_at(x, dtype, i), dtype);
        if (centre != NULL)
            w = wide_sub(w, wide_load(centre + i, ITH_F32));
        squares = wide_fma(w, w, squares);
    }
    if (i < n) {
        wide w = wide_load_end(number_at(x, dtype, i), dtype, n - i);
        if (centre != NULL)
            w = wide_sub(w, wide_load_end(centre + i, ITH_F32, n - i));
        squares = wide_fma(w, w, squares);
    }
    return wide_fold(squares);
}

/* Returns the largest |x_i - centre|^2. Squares are compared by their bits, which are ordered like the numbers, with
 * NaN above all. */
static inline float farthest(const float *centre, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n)
{
    uint32_t most = 0;
    for (int64_t row = 0; row < rows; row += LANES) {
        vec folded[LANES];
        for (int i = 0; i < LANES; i++) {
            const void *ahead = row + i + AHEAD < rows ? x[row + i + AHEAD] : NULL;
            bool counts = row + i < rows && x[row + i] != NULL;
            if (ahead != NULL)
                fetch(ahead, n * bytes_of(dtype));
            folded[i] = counts ? distance(centre, x[row + i], dtype, n) : vec_set(0.0f);
        }
        float squares[LANES];
        vec_store(squares, sum_folded(folded));
        for (int i = 0; i < LANES; i++) {
            uint32_t bits = ith_f32_bits(squares[i]);
            most = bits > most ? bits : most;
        }
    }
    return ith_f32_from_bits(most);
}

/* Passes dtype to farthest as a constant, so that the compiler makes one version of farthest for each type. */
static float most_distance(const float *centre, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n)
{
    if (dtype == ITH_F32)
        return farthest(centre, x, rows, ITH_F32, n);
    return dtype == ITH_BF16 ? farthest(centre, x, rows, ITH_BF16, n) : farthest(centre, x, rows, ITH_F16, n);
}

/* ---- Magnitudes, on the bits without their sign: they are ordered like the numbers, and NaN is above infinity -- */

/* Defines a function that returns the bits of the largest magnitude in all rows. The compiler vectorises its loop over
 * columns. */
#define MOST_BITS(function, number, bits_type, magnitude)                                                              \
    static uint32_t function(const void *const *x, int64_t rows, int64_t n)                                            \
    {                                                                                                                  \
        number columns[COLUMNS] = {0}, most = 0;                                                                       \
        for (int64_t first = 0; first < n; first += COLUMNS)                                                           \
            for (int64_t row = 0; row < rows; row++) {                                                                 \
                const bits_type *from = x[row] ? (const bits_type *)x[row] + first : NULL;                             \
                for (int64_t i = 0, end = x[row] ? ith_min64(COLUMNS, n - first) : 0; i < end; i++) {                  \
                    number bits = (number)(from[i] & magnitude);                                                       \
                    columns[i] = bits > columns[i] ? bits : columns[i];                                                \
                }                                                                                                      \
            }                                                                                                          \
        for (int i = 0; i < COLUMNS; i++)                                                                              \
            most = columns[i] > most ? columns[i] : most;                                                              \
        return (uint32_t)most;                                                                                         \
    }
MOST_BITS(most_bits_16, int16_t, uint16_t, 0x7fffu)
MOST_BITS(most_bits_32, int32_t, uint32_t, 0x7fffffffu)

static float most_magnitude(const void *const *x, int64_t rows, ith_dtype dtype, int64_t n)
{
    if (dtype == ITH_F32)
        return ith_f32_from_bits(most_bits_32(x, rows, n));
    uint32_t bits = most_bits_16(x, rows, n);
    return dtype == ITH_BF16 ? ith_f32_from_bf16((uint16_t)bits) : ith_f32_from_f16((uint16_t)bits);
}

/* ---- Products with one vector ---------------------------------------------------------------------------------- */

/* Computes x . y and |x|^2 as vectors whose lanes are still to be added up by sum_folded. */
static inline void dot_folded(vec *dot, vec *square, const float *y, const void *x, ith_dtype dtype, int64_t n)
{
    wide products = wide_zero(), squares = wide_zero();
    int64_t i = 0;
    for (; i + ITH_KEYOPS_LANES <= n; i += ITH_KEYOPS_LANES) {
        wide w = wide_load(number_at(x, dtype, i), dtype);
        squares = wide_fma(w, w, squares);
        if (y != NULL)
            products = wide_fma(w, wide_load(y + i, ITH_F32), products);
    }
    if (i < n) {
        wide w = wide_load_end(number_at(x, dtype, i), dtype, n - i);
        squares = wide_fma(w, w, squares);
        if (y != NULL)
            products = wide_fma(w, wide_load_end(y + i, ITH_F32, n - i), products);
    }
    *dot = wide_fold(products);
    *square = wide_fold(squares);
}

/* Computes x_i . y and |x_i|^2 of LANES rows at a time, so that one transposition finishes the sums of all of them. */
static inline void dots_of(float *dot, float *square, const float *y, const void *const *x, int64_t rows,
                           ith_dtype dtype, int64_t n)
{
    for (int64_t first = 0; first < rows; first += LANES) {
        int64_t here = ith_min64(LANES, rows - first);
        vec dot_vecs[LANES], square_vecs[LANES];
        for (int row = 0; row < LANES; row++) {
            dot_vecs[row] = square_vecs[row] = vec_set(0.0f);
            if (row + AHEAD < rows - first)
                fetch(x[first + row + AHEAD], n * bytes_of(dtype));
            if (row < here)
                dot_folded(dot_vecs + row, square_vecs + row, y, x[first + row], dtype, n);
        }
        float sums[LANES];
        vec_store(sums, sum_folded(dot_vecs));
        memcpy(dot + first, sums, (size_t)here * sizeof *dot);
        vec_store(sums, sum_folded(square_vecs));
        memcpy(square + first, sums, (size_t)here * sizeof *square);
    }
}

static void dots(float *dot, float *square, const float *y, const void *const *x, int64_t rows, ith_dtype dtype,
                 int64_t n)
{
    if (dtype == ITH_F32)
        dots_of(dot, square, y, x, rows, ITH_F32, n);
    else if (dtype == ITH_BF16)
        dots_of(dot, square, y, x, rows, ITH_BF16, n);
    else
        dots_of(dot, square, y, x, rows, ITH_F16, n);
}

#define ITH_KEYOPS_TABLE(isa)                                                                                          \
    {                                                                                                                  \
        .name = isa, .add_rows = add_rows, .most_distance = most_distance, .most_magnitude = most_magnitude,           \
        .dots = dots                                                                                                   \
    }
