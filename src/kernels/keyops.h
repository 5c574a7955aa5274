/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of rows of queries, keys and values for the fixed-m softmax (attention/fixed_m.h): sums, norms, distances,
 * products with one vector. One body (keyops_tmpl.c) is compiled for each instruction set and chosen at run time.
 *
 * Rows are given by pointers: x[i] points to row i, of n numbers of type F32, BF16 or F16. NULL rows are skipped.
 * Results have the same bits on every instruction set. A result for one row depends on that row alone. NaN or infinity
 * in a row gives NaN or infinity. */
#ifndef ITH_KERNELS_KEYOPS_H
#define ITH_KERNELS_KEYOPS_H

#include "../base/context.h"

/* Sums over a row run in this many partial sums in f32 with fused multiply-adds, which are then added up pair by pair:
 * the relative error of `square` and `most_distance` is below (n / 16 + 8) 2^-24 and, where squares underflow, their
 * absolute error below n 2^-126; the error of `dot` is below (n / 16 + 8) 2^-24 |x| |y|, or n 2^-126. */
enum { ITH_KEYOPS_LANES = 16 };

typedef struct ith_keyops {
    const char *name;
    /* sum[d] += the sum of the rows, taken in f32 over 64 rows at a time. Returns the number of rows that are not NULL.
     */
    int64_t (*add_rows)(double *sum, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n);
    /* The largest |x_i - centre|^2, centre [n]; NULL: 0. */
    float (*most_distance)(const float *centre, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n);
    /* The largest |x_id|. */
    float (*most_magnitude)(const void *const *x, int64_t rows, ith_dtype dtype, int64_t n);
    /* dot[i] = x_i . y, square[i] = |x_i|^2; y [n] may be NULL: 0. No row is NULL. */
    void (*dots)(float *dot, float *square, const float *y, const void *const *x, int64_t rows, ith_dtype dtype,
                 int64_t n);
} ith_keyops;

extern const ith_keyops ith_keyops_ref;
#if defined(__x86_64__)
extern const ith_keyops ith_keyops_avx2, ith_keyops_avx512;
#elif defined(__aarch64__)
extern const ith_keyops ith_keyops_neon;
#endif

/* The operations of the widest instruction set among `cpu` (ith_cpu_feature bits). Never NULL. */
const ith_keyops *ith_keyops_choose(uint32_t cpu);

#endif
