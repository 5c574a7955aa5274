/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the instruction sets that this machine runs, by CPUID (Intel SDM volume 2, leaves 1 and 7) or by the
 * architecture, and the sets that the environment variable ITHACA_CPU allows. */
#include "cpu.h"

#include "count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "ITHACA_CPU"
#define SEPARATORS ", \t"

/* Instruction sets with all sets that they are built on. */
enum {
    AVX2 = ITH_CPU_BASELINE | ITH_CPU_AVX2,
    AVX512 = AVX2 | ITH_CPU_AVX512,
    AVX512_BF16 = AVX512 | ITH_CPU_AVX512_BF16,
};

/* Instruction sets in the order of their bits. brings: the bit of the set itself and of all sets that it is built
 * on. */
static const struct {
    const char *name;
    uint32_t brings;
} sets[] = {
    {"baseline", ITH_CPU_BASELINE},
    {"avx2", AVX2},
    {"avx512", AVX512},
    {"avx512_bf16", AVX512_BF16},
    {"avx512_fp16", AVX512 | ITH_CPU_AVX512_FP16},
    {"neon", ITH_CPU_BASELINE | ITH_CPU_NEON},
    {"amx_bf16", AVX512_BF16 | ITH_CPU_AMX_BF16},
};

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tests a bit of CPUID leaf 7, because __builtin_cpu_supports of GCC 12 and clang 14 does not know AVX512-FP16. */
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

/* Whether the operating system saves the AMX tiles when it switches threads: bits 17 and 18 of XCR0. */
static bool saves_tiles(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return false;
    unsigned low, high, tiles = 3u << 17; /* the bits of XTILECFG and XTILEDATA in XCR0 */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & tiles) == tiles;
}

/* Asks Linux for the permission to use tiles, once for all threads of the process; more requests have no effect
 * (Documentation/arch/x86/xstate.rst). */
static bool may_use_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    /* values of ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA in Linux */
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static bool has_amx_bf16(void)
{
    return leaf7(0, 0, 1u << 24) && leaf7(0, 0, 1u << 22) && saves_tiles() && may_use_tiles();
}

uint32_t ith_cpu_detect(uint32_t allowed)
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
        /* `allowed` is tested first, because has_amx_bf16 asks Linux for permission to use AMX tiles */
        if ((allowed & ITH_CPU_AMX_BF16) && has_amx_bf16())
            features |= ITH_CPU_AMX_BF16;
    }
    return features & (allowed | ITH_CPU_BASELINE);
}

bool ith_cpu_is_amd(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
}
#elif defined(__aarch64__)
uint32_t ith_cpu_detect(uint32_t allowed)
{
    return ITH_CPU_BASELINE | (allowed & ITH_CPU_NEON); /* NEON is part of the 64-bit architecture */
}
#else
uint32_t ith_cpu_detect(uint32_t allowed)
{
    (void)allowed;
    return ITH_CPU_BASELINE;
}
#endif

#if !defined(__x86_64__)
bool ith_cpu_is_amd(void)
{
    return false;
}
#endif

/* The bit of the instruction set `name`, with the bits of all sets that it is built on; 0 if no set has this name. */
static uint32_t find_set(const char *name, size_t length)
{
    for (int i = 0; i < ITH_COUNT(sets); i++)
        if (strlen(sets[i].name) == length && !memcmp(sets[i].name, name, length))
            return sets[i].brings;
    return 0;
}

/* Writes an error sentence about a word in ITHACA_CPU that names no instruction set. */
static void explain(const char *word, size_t length, char *sentence, size_t sentence_bytes)
{
    char known[128];
    ith_cpu_describe(ITH_CPU_ALL, known, sizeof known);
    snprintf(sentence, sentence_bytes, VARIABLE " names '%.*s', which is no instruction set; the known ones are %s",
             (int)(length < 100 ? length : 100), word, known);
}

bool ith_cpu_limit(uint32_t *allowed, char *sentence, size_t sentence_bytes)
{
    const char *word = getenv(VARIABLE);
    uint32_t named = 0;
    while (word && *(word += strspn(word, SEPARATORS))) {
        size_t length = strcspn(word, SEPARATORS);
        uint32_t brings = find_set(word, length);
        if (!brings) {
            explain(word, length, sentence, sentence_bytes);
            return false;
        }
        named |= brings;
        word += length;
    }
    *allowed = named ? named : ITH_CPU_ALL;
    return true;
}

const char *ith_cpu_describe(uint32_t features, char *text, size_t text_bytes)
{
    size_t length = 0;
    if (!text || !text_bytes)
        return text;
    text[0] = '\0';
    for (int bit = 0; bit < ITH_COUNT(sets); bit++) {
        if (!(features & (1u << bit)) || length >= text_bytes)
            continue;
        int written = snprintf(text + length, text_bytes - length, "%s%s", length ? " " : "", sets[bit].name);
        length += written > 0 ? (size_t)written : 0;
    }
    return text;
}

const char *ith_cpu_model(char *text, size_t text_bytes)
{
    char line[256];
    snprintf(text, text_bytes, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10))
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(text, text_bytes, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file)
        fclose(file);
    return text;
}
