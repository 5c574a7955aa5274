/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point state of a thread: rounding, traps for exceptions, and the treatment of subnormal numbers. The
 * program that uses the library may have changed it. */
#ifndef ITH_BASE_FLOAT_STATE_H
#define ITH_BASE_FLOAT_STATE_H

#include <fenv.h>

/* Gives the calling thread the state of a C program at its start. Returns its state before, for ith_float_end. */
static inline fenv_t ith_float_begin(void)
{
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

/* Gives the calling thread the state that ith_float_begin returned. */
static inline void ith_float_end(fenv_t before)
{
    fesetenv(&before);
}

#endif
