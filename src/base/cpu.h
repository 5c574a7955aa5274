/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets of the processor: the sets that this machine runs, and the sets that ITHACA_CPU allows. */
#ifndef ITH_BASE_CPU_H
#define ITH_BASE_CPU_H

#include <ithaca/ithaca.h>

#define ITH_CPU_ALL 0x7fu /* every bit of ith_cpu_feature */

/* Whether `sets` has all instruction sets of `needed`; both are bits of ith_cpu_feature. */
static inline bool ith_cpu_has(uint32_t sets, uint32_t needed)
{
    return (needed & ~sets) == 0;
}

/* Returns the instruction sets among `allowed` (bits of ith_cpu_feature) that both the processor and the operating
 * system support. The baseline is always included. */
uint32_t ith_cpu_detect(uint32_t allowed);

/* Reads the environment variable ITHACA_CPU into *allowed: the instruction sets that it names, with all sets that they
 * are built on, or ITH_CPU_ALL if it is unset or empty. For an unknown name it returns false and writes an error
 * sentence. */
bool ith_cpu_limit(uint32_t *allowed, char *sentence, size_t sentence_bytes);

/* Whether the processor's vendor is AMD. */
bool ith_cpu_is_amd(void);

/* Writes the model name of the processor in /proc/cpuinfo, or "unknown" if there is none, and returns text. */
const char *ith_cpu_model(char *text, size_t text_bytes);

#endif
