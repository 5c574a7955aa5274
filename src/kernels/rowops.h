/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows of numbers between the matrix products: norms, RoPE, activations. One body in C (rowops_tmpl.c) is
 * compiled for each instruction set, with the flags of its folder under cpu/, and chosen at run time. The result of a
 * row depends on that row alone, and has the same bits on every instruction set. n may be 0. Sums are taken in double;
 * e^x has an error of at most 1.1 ulp.
 *
 * Pointers have the alignment of their numbers, and no more. y may be x if both have the same type and the function
 * does not forbid it; otherwise an array that is written overlaps nothing. */
#ifndef ITH_KERNELS_ROWOPS_H
#define ITH_KERNELS_ROWOPS_H

#include "../base/context.h"

/* The row operations of one instruction set. */
typedef struct ith_rowops {
    const char *name;
    /* y = (x - mean(x)) / sqrt(var(x) + eps) * a + b over n numbers. a may be NULL (ones) and b may be NULL (zeros). y
     * may be x. */
    void (*layer_norm)(float *y, const float *x, const float *a, const float *b, int64_t n, float eps);
    /* y = x / sqrt(mean(x^2) + eps) * w. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps);
    /* Rotates the pairs (x[2i], x[2i+1]) of each of `heads` heads of `head_dim` by the angle whose cosine and sine are
     * cosines[i] and sines[i], i < head_dim/2. x is overwritten. */
    void (*rope)(float *x, const float *cosines, const float *sines, int64_t heads, int64_t head_dim);
    /* x += gate * y. gate may be NULL, which stands for ones. */
    void (*add_gated)(float *x, const float *y, const float *gate, int64_t n);
    void (*silu)(float *y, const float *x, int64_t n); /* y = x / (1 + e^-x) */
    /* y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    void (*gelu_tanh)(float *y, const float *x, int64_t n);
    void (*gelu_quick)(float *y, const float *x, int64_t n); /* y = x / (1 + e^(-1.702 x)) */
    void (*gelu)(float *y, const float *x, int64_t n);       /* y = 0.5 x (1 + erf(x / sqrt(2))) */
    /* For each of `pixels` rows of `channels` numbers: y = x / max(|x|, 1e-12) * sqrt(channels) * gamma. If `silu` is
     * true, y / (1 + e^-y) is then applied to the result. y may be x. */
    void (*channel_norm)(float *y, const float *x, const float *gamma, int64_t pixels, int64_t channels, bool silu);
    /* Replaces x by its softmax, e^(x - max x) / sum. If all x are -inf, the result is 0. */
    void (*softmax)(float *x, int64_t n);
    void (*bf16_from_f32)(uint16_t *y, const float *x, int64_t n);
    void (*f32_from_bf16)(float *y, const uint16_t *x, int64_t n);
    /* Rounds each x[i] to one of the two bf16 numbers beside it, to the nearer one more often: the probability is 1
     * minus the distance in units of the last place, so the mean error is 0 (doi:10.1098/rsos.211631). A bf16 number
     * stays. The pseudo-random bits of x[i] follow from `row` and first + i alone. */
    void (*round_stochastic)(float *x, int64_t n, uint32_t row, uint32_t first);
    void (*multiply)(float *y, const float *x, int64_t n); /* y *= x */
    /* x[i][j] += b[i] for a matrix x [rows][columns] */
    void (*add_bias)(float *x, const float *b, int64_t rows, int64_t columns);
    /* y[j][i] = x[i][j] + b[i]: transposes x [rows][columns], whose rows lie x_stride numbers apart, into y
     * [columns][rows], whose rows lie y_stride numbers apart. The matrices must not overlap. */
    void (*turn_and_bias)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *b, int64_t rows,
                          int64_t columns);
} ith_rowops;

extern const ith_rowops ith_rowops_ref;
#if defined(__x86_64__)
extern const ith_rowops ith_rowops_avx2, ith_rowops_avx512;
#endif

/* The row operations for the widest instruction set among the ith_cpu_feature bits `cpu`. Never NULL. */
const ith_rowops *ith_rowops_choose(uint32_t cpu);

#endif
