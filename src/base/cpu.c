/* Which instruction sets this machine runs. */
#include "cpu.h"

#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* GCC 12's __builtin_cpu_supports knows neither F16C for clang nor AVX512-FP16 for both: leaf 7 does. */
static bool leaf7(unsigned subleaf, unsigned eax_bit, unsigned edx_bit)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid_count(7, subleaf, &eax, &ebx, &ecx, &edx))
        return false;
    return (eax_bit && (eax & eax_bit)) || (edx_bit && (edx & edx_bit));
}

static bool has_f16c(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

/* Does the operating system keep the state of AMX tiles when it switches threads? */
static bool saves_tiles(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return false;
    unsigned low, high, tiles = 3u << 17; /* their configuration and their data */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & tiles) == tiles;
}

/* Linux lets a process use tiles that asks once, for all its threads; a second time changes nothing. */
static bool may_use_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static bool has_amx_bf16(void)
{
    return leaf7(0, 0, 1u << 24) && leaf7(0, 0, 1u << 22) && saves_tiles() && may_use_tiles();
}

uint32_t ith_cpu_detect(void)
{
    uint32_t features = ITH_CPU_BASELINE;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        features |= ITH_CPU_AVX2;
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && (features & ITH_CPU_AVX2)) {
        features |= ITH_CPU_AVX512;
        if (leaf7(1, 1u << 5, 0))
            features |= ITH_CPU_AVX512_BF16;
        if (leaf7(0, 0, 1u << 23))
            features |= ITH_CPU_AVX512_FP16;
        if (has_amx_bf16())
            features |= ITH_CPU_AMX_BF16;
    }
    return features;
}
#elif defined(__aarch64__)
uint32_t ith_cpu_detect(void)
{
    return ITH_CPU_BASELINE | ITH_CPU_NEON; /* NEON is part of the 64-bit architecture */
}
#else
uint32_t ith_cpu_detect(void)
{
    return ITH_CPU_BASELINE;
}
#endif

const char *ith_cpu_describe(uint32_t features, char *text, size_t text_bytes)
{
    static const char *const names[] = {"baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16", "neon", "amx_bf16"};
    size_t length = 0;
    if (text_bytes)
        text[0] = '\0';
    for (size_t bit = 0; bit < sizeof names / sizeof names[0]; bit++) {
        if (!(features & (1u << bit)) || length >= text_bytes)
            continue;
        int written = snprintf(text + length, text_bytes - length, "%s%s", length ? " " : "", names[bit]);
        length += written > 0 ? (size_t)written : 0;
    }
    return text;
}
