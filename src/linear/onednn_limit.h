/* SPDX-License-Identifier: Apache-2.0 */
/* ITHACA_CPU for oneDNN, whose instruction sets are one choice for a whole process, made before its first use. */
#ifndef ITH_LINEAR_ONEDNN_LIMIT_H
#define ITH_LINEAR_ONEDNN_LIMIT_H

#include "../base/cpu.h"

#include <oneapi/dnnl/dnnl.h>

/* The highest of oneDNN's steps within the sets that are allowed. SSE4.1 is its lowest. Its step of AMX holds FP16
 * too, which it would only use for products of f16: none are asked of it. */
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

/* To be called before anything else of oneDNN. False if oneDNN uses more than ITHACA_CPU allows, because this process
 * used it before. Without ITHACA_CPU nothing is set; on other processors than x86-64 oneDNN cannot be limited. */
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
