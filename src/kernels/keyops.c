/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the key operations (keyops.h) at run time, for the widest instruction set that the caller allows. */
#include "keyops.h"

const ith_keyops *ith_keyops_choose(uint32_t cpu)
{
#if defined(__x86_64__)
    if (cpu & ITH_CPU_AVX512)
        return &ith_keyops_avx512;
    if (cpu & ITH_CPU_AVX2)
        return &ith_keyops_avx2;
#elif defined(__aarch64__)
    if (cpu & ITH_CPU_NEON)
        return &ith_keyops_neon;
#else
    (void)cpu;
#endif
    return &ith_keyops_ref;
}
