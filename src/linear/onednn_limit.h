/* SPDX-License-Identifier: Apache-2.0 */
/* Limits oneDNN to the instruction sets that the environment variable ITHACA_CPU allows. oneDNN has one limit for the
 * whole process, which must be set before its first use. */
#ifndef ITH_LINEAR_ONEDNN_LIMIT_H
#define ITH_LINEAR_ONEDNN_LIMIT_H

#include "../base/cpu.h"

#include <oneapi/dnnl/dnnl.h>

/* The highest level of oneDNN whose instruction sets are all allowed; SSE4.1 is the lowest. oneDNN's level of AMX
 * includes FP16, but oneDNN uses FP16 only for products of f16, which this library never asks for. */
static inline dnnl_cpu_isa_t onednn_step(uint32_t allowed)
{
    if (allowed & ITH_CPU_AMX_BF16)
        return dnnl_cpu_isa_avx512_core_amx;
    if (allowed & ITH_CPU_AVX512_BF16)
        return dnnl_cpu_isa_avx512_core_bf16;
    if (allowed & ITH_CPU_AVX512)
        return dnnl_cpu_isa_avx512_core;
    return allowed & ITH_CPU_AVX2 ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41;
}

/* Must be called before any other function of oneDNN. Returns false if this process used oneDNN before, with more
 * instruction sets than ITHACA_CPU allows. Without ITHACA_CPU, and on processors other than x86-64, nothing is
 * limited. */
static inline bool onednn_keep_limit(void)
{
#if defined(__x86_64__)
    uint32_t allowed;
    char sentence[ITH_ERROR_BYTES];
    if (!ith_cpu_limit(&allowed, sentence, sizeof sentence))
        return false;
    if (allowed == ITH_CPU_ALL)
        return true;
    dnnl_cpu_isa_t most = onednn_step(allowed);
    return dnnl_set_max_cpu_isa(most) == dnnl_success || ((int)dnnl_get_effective_cpu_isa() & ~(int)most) == 0;
#else
    return true;
#endif
}

#endif
