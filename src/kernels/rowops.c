/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the row operations (rowops.h) at run time, for the widest instruction set that the caller allows. */
#include "rowops.h"

const ith_rowops *ith_rowops_choose(uint32_t cpu)
{
#if defined(__x86_64__)
    if (cpu & ITH_CPU_AVX512)
        return &ith_rowops_avx512;
    if (cpu & ITH_CPU_AVX2)
        return &ith_rowops_avx2;
#else
    (void)cpu;
#endif
    return &ith_rowops_ref;
}
