/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks weights that files store in fewer bits: fp8, int8, and the quantisation blocks of GGUF files. A quantisation
 * block is ith_dtype_run(type) numbers with their scales, in ith_dtype_bytes(type) bytes.
 *
 * One body in C (unpack_tmpl.c) is compiled for each instruction set, with the flags of its folder under cpu/, and
 * chosen at run time. A number has the same bits on every instruction set, except for the payload of a NaN. They are
 * the bits that the reference gives (numpy code of the Python package gguf; torch for fp8): each product and each sum
 * is rounded to f32, in the order of the reference. */
#ifndef ITH_KERNELS_UNPACK_H
#define ITH_KERNELS_UNPACK_H

#include "../base/context.h"

/* Unpacks numbers [first, first + count) of the contiguous numbers at `data`, where a quantisation block begins, to out
 * [count], which does not overlap them. `data` may have any alignment. Reads only the quantisation blocks that hold
 * these numbers. F32, BF16, F16 and F64, whose numbers must be aligned, are converted as ith_to_f32 does. */
typedef void (*ith_unpack_fn)(ith_dtype type, const void *data, int64_t first, int64_t count, float *out);

void ith_unpack_ref(ith_dtype type, const void *data, int64_t first, int64_t count, float *out);
#if defined(__x86_64__)
void ith_unpack_avx2(ith_dtype type, const void *data, int64_t first, int64_t count, float *out);
void ith_unpack_avx512(ith_dtype type, const void *data, int64_t first, int64_t count, float *out);
#endif

/* Whether this is a quantised type: I8, fp8, or a type with quantisation blocks. */
static inline bool ith_unpack_has(ith_dtype type)
{
    return type == ITH_I8 || (type >= ITH_F8_E4M3 && ith_dtype_bytes(type) > 0);
}

/* The function for the widest instruction set among the ith_cpu_feature bits `cpu`. Never NULL. */
ith_unpack_fn ith_unpack_choose(uint32_t cpu);

#endif
