/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of rows of queries, keys and values for the fixed_m softmax (attention/fixed_m.h): sums, norms, distances,
 * products with one vector. One body in C (keyops_tmpl.c) is compiled for each instruction set; ith_keyops_choose
 * selects the version at run time.
 *
 * Rows are given by pointers: x[i] points to row i, of n numbers of type F32, BF16 or F16, and has the alignment of
 * these numbers. NULL rows are skipped. An array that is written overlaps nothing else.
 * Results have the same bits on every instruction set. A result for one row depends on that row alone. NaN or infinity
 * in a row gives NaN or infinity. */
#ifndef ITH_KERNELS_KEYOPS_H
#define ITH_KERNELS_KEYOPS_H

#include "../base/context.h"

/* The number of partial sums into which the sum over a row of n numbers is divided. Partial sums are f32 with fused
 * multiply-adds, and are added up pair by pair at the end. So the relative error of `most_distance` and of a `square`
 * is below (n / 16 + 8) 2^-24, or, where squares underflow, the absolute error is below n 2^-126. The error of a `dot`
 * is below (n / 16 + 8) 2^-24 |x| |y|, or n 2^-126. */
enum { ITH_KEYOPS_LANES = 16 };

/* The rows whose statistics a plan finds together. The bits of its sums depend on this number. */
enum { ITH_KEYOPS_PIECE = 512 };

/* The key operations of one instruction set. */
typedef struct ith_keyops {
    const char *name;
    /* Adds the rows to sum: sum[d] += x[0][d] + x[1][d] + ... Groups of 64 rows are summed in f32, and their sums in
     * f64. Returns the number of rows that are not NULL. */
    int64_t (*add_rows)(double *sum, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n);
    /* Returns the largest squared distance |x_i - centre|^2 of a row from centre [n]. A NULL centre stands for
     * zeros. */
    float (*most_distance)(const float *centre, const void *const *x, int64_t rows, ith_dtype dtype, int64_t n);
    /* Returns the largest |x[i][d]| of all rows and elements. */
    float (*most_magnitude)(const void *const *x, int64_t rows, ith_dtype dtype, int64_t n);
    /* dot[i] = x_i . y and square[i] = |x_i|^2 for each row x_i. y [n] may be NULL, which stands for zeros. No row may
     * be NULL. */
    void (*dots)(float *dot, float *square, const float *y, const void *const *x, int64_t rows, ith_dtype dtype,
                 int64_t n);
} ith_keyops;

extern const ith_keyops ith_keyops_ref;
#if defined(__x86_64__)
extern const ith_keyops ith_keyops_avx2, ith_keyops_avx512;
#elif defined(__aarch64__)
extern const ith_keyops ith_keyops_neon;
#endif

/* The key operations for the widest instruction set among the ith_cpu_feature bits `cpu`. Never NULL. */
const ith_keyops *ith_keyops_choose(uint32_t cpu);

#endif
