/* SPDX-License-Identifier: Apache-2.0 */
/* Results below 2^-126 become zeros between vec_flush_begin and vec_flush_end. Keys far below a row's maximum have such
 * probabilities and products with v. Otherwise these are subnormal numbers, for each of which an x86 processor takes a
 * hundred cycles and more. Operands stay as they are. */
#ifndef ITH_KERNELS_FLUSH_X86_H
#define ITH_KERNELS_FLUSH_X86_H

#include <immintrin.h>

/* Returns the calling thread's control word before, for vec_flush_end. */
static inline unsigned vec_flush_begin(void)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON);
    return before;
}

/* The flags of exceptions stay as they are. */
static inline void vec_flush_end(unsigned before)
{
    _mm_setcsr((_mm_getcsr() & ~(unsigned)_MM_FLUSH_ZERO_MASK) | (before & _MM_FLUSH_ZERO_MASK));
}

#endif
