/* SPDX-License-Identifier: Apache-2.0 */
/* What instructions can do at most: loops of independent multiply-adds in registers, one per instruction set. The rate
 * of a kernel is quoted as a share of the peak of the instructions that it uses. */
#ifndef ITH_KERNELS_PEAK_H
#define ITH_KERNELS_PEAK_H

#include "kernel.h"

typedef struct ith_peak_row {
    const char *name;
    uint32_t cpu;                   /* ith_cpu_feature bits that it needs */
    double (*work)(int64_t rounds); /* does some and returns how many floating-point operations it was */
} ith_peak_row;

/* The rows of kernels.inc: index 0, 1, ... until NULL. */
const ith_peak_row *ith_peak_at(int index);

/* 10^9 operations a second that a kernel could do at most on the sets `cpu`, if it did nothing but multiply and add, on
 * `threads` threads at once, measured for about `seconds`; 0 if these sets do not run it. Half of attention's
 * operations are the logits', half the outputs'. With `times` products of a row of rate R for each of the tensors',
 *
 *     1 / peak = (times_logits / R_logits + times_outputs / R_outputs) / 2
 *
 * So f32 as six products of bf16 has a sixth of AMX's peak. */
double ith_peak_combine(const ith_attn_kernel *kernel, double logits_rate, double outputs_rate);
double ith_peak_of_kernel(const ith_attn_kernel *kernel, uint32_t cpu, int threads, double seconds);
/* What that peak is made of: "f32_avx512"; "bf16_amx/6"; "f32_avx512+f16_avx512fp16", the logits' row and the outputs'.
 * Cut to fit; returns text. */
const char *ith_peak_describe(const ith_attn_kernel *kernel, uint32_t cpu, char *text, size_t text_bytes);

#endif
