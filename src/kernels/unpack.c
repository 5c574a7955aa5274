/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the function that unpacks weights (unpack.h) at run time, for the widest instruction set that the caller
 * allows. */
#include "unpack.h"

ith_unpack_fn ith_unpack_choose(uint32_t cpu)
{
#if defined(__x86_64__)
    if (cpu & ITH_CPU_AVX512)
        return ith_unpack_avx512;
    if (cpu & ITH_CPU_AVX2)
        return ith_unpack_avx2;
#else
    (void)cpu;
#endif
    return ith_unpack_ref;
}
