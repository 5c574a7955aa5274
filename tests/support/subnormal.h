/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether arithmetic of this thread has met subnormal numbers, for each of which x86 processors take a hundred
 * cycles and more. On other processors the answer is always no. */
#ifndef ITH_TESTS_SUBNORMAL_H
#define ITH_TESTS_SUBNORMAL_H

#include <stdbool.h>

#if defined __x86_64__

#include <immintrin.h>

enum { SUBNORMAL_OPERAND = _MM_EXCEPT_DENORM, SUBNORMAL_RESULT = _MM_EXCEPT_UNDERFLOW };

static inline void forget_subnormals(void)
{
    _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK);
}

static inline bool met_subnormal(unsigned kind)
{
    return _mm_getcsr() & kind;
}

/* Whether results below 2^-126 become zeros. */
static inline bool flushes_subnormals(void)
{
    return _mm_getcsr() & _MM_FLUSH_ZERO_ON;
}

/* Makes subnormal operands and results zeros, as code of -ffast-math does (FTZ and DAZ). */
static inline void flush_subnormals(void)
{
    _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | 0x0040);
}

#else

enum { SUBNORMAL_OPERAND, SUBNORMAL_RESULT };

static inline void forget_subnormals(void)
{
}

static inline bool met_subnormal(unsigned kind)
{
    (void)kind;
    return false;
}

static inline bool flushes_subnormals(void)
{
    return false;
}

static inline void flush_subnormals(void)
{
}

#endif

#endif
