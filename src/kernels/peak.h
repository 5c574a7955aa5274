/* SPDX-License-Identifier: Apache-2.0 */
/* Peak rates of instructions: loops of independent multiply-adds in registers, one for each instruction set. The rate
 * of a kernel is quoted as a share of the peak of the instructions that it uses. */
#ifndef ITH_KERNELS_PEAK_H
#define ITH_KERNELS_PEAK_H

#include "kernel.h"

/* A row of the table of peak rates: a loop of multiply-adds that uses one instruction set. */
typedef struct ith_peak_row {
    const char *name;
    uint32_t cpu;                   /* instruction sets that the loop needs, as ith_cpu_feature bits */
    double (*work)(int64_t rounds); /* runs the loop; returns the number of floating-point operations done */
} ith_peak_row;

/* The peak of a kernel, in 10^9 operations a second: its rate if it did nothing but multiply and add. Half of the
 * operations of attention are for logits, half for outputs. If each half runs on instructions of peak R, and `times` of
 * their products make one product of the tensors' type,
 *
 *     1 / peak = (times_logits / R_logits + times_outputs / R_outputs) / 2
 *
 * For example, f32 as six products of bf16 has a sixth of the peak of AMX. ith_peak_combine takes both rates R as
 * given. ith_peak_of_kernel measures them with the instruction sets `cpu`, on `threads` threads at once, for about
 * `seconds`; it returns 0 if the kernel cannot run on these sets. */
double ith_peak_combine(const ith_attn_kernel *kernel, double logits_rate, double outputs_rate);
double ith_peak_of_kernel(const ith_attn_kernel *kernel, uint32_t cpu, int threads, double seconds);
/* The peak of instructions of which `product->times` products make one product, in 10^9 operations a second of all
 * `threads` threads, measured for about `seconds`. 0 if `cpu` lacks the instructions. */
double ith_peak_of_product(const ith_instructions *product, uint32_t cpu, int threads, double seconds);
/* Writes the name of these instructions, such as "f32_avx2" or "bf16_amx/6". The text is cut to fit. Returns text. */
const char *ith_peak_describe_product(const ith_instructions *product, uint32_t cpu, char *text, size_t text_bytes);
/* Writes the names of the instructions that a kernel's peak is measured on: "f32_avx512"; "bf16_amx/6"; or
 * "f32_avx512+f16_avx512fp16" if logits and outputs differ. The text is cut to fit. Returns text. */
const char *ith_peak_describe(const ith_attn_kernel *kernel, uint32_t cpu, char *text, size_t text_bytes);

#endif
