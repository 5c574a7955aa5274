/* SPDX-License-Identifier: Apache-2.0 */
/* Peak rates of instructions: loops of independent multiply-adds in registers, one for each instruction set. The rate
 * of a kernel is quoted as a share of the peak of the instructions that it uses. */
#ifndef ITH_KERNELS_PEAK_H
#define ITH_KERNELS_PEAK_H

#include "kernel.h"

typedef struct ith_peak_row {
    const char *name;
    uint32_t cpu;                   /* ith_cpu_feature bits that it needs */
    double (*work)(int64_t rounds); /* works, and returns the number of floating-point operations */
} ith_peak_row;

/* The rows of kernels.inc: index 0, 1, ... until NULL. */
const ith_peak_row *ith_peak_at(int index);

/* The peak of a kernel, in 10^9 operations a second: its rate if it did nothing but multiply and add. Half of the
 * operations of attention are for logits, half for outputs. If each of them runs on instructions of peak R, `times` of
 * which make one product of the tensors' type,
 *
 *     1 / peak = (times_logits / R_logits + times_outputs / R_outputs) / 2
 *
 * So f32 as six products of bf16 has a sixth of the peak of AMX. ith_peak_of_kernel measures R on the instruction sets
 * `cpu`, on `threads` threads at once, for about `seconds`; it returns 0 if these sets do not run the kernel. */
double ith_peak_combine(const ith_attn_kernel *kernel, double logits_rate, double outputs_rate);
double ith_peak_of_kernel(const ith_attn_kernel *kernel, uint32_t cpu, int threads, double seconds);
/* The instructions of a peak: "f32_avx512"; "bf16_amx/6"; "f32_avx512+f16_avx512fp16", if logits and outputs differ.
 * The text is cut to fit. Returns text. */
const char *ith_peak_describe(const ith_attn_kernel *kernel, uint32_t cpu, char *text, size_t text_bytes);

#endif
