/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_BASE_CPU_H
#define ITH_BASE_CPU_H

#include "context.h"

#define ITH_CPU_ALL 0x7fu /* every bit of ith_cpu_feature */

/* The instruction sets among `allowed` (bits of ith_cpu_feature) that processor and operating system both support, and
 * always the baseline. */
uint32_t ith_cpu_detect(uint32_t allowed);

/* Reads the environment variable ITHACA_CPU into *allowed: the sets that it names and the sets that they are built on,
 * or ITH_CPU_ALL if it is unset or empty. Returns false, with a sentence, for an unknown name. */
bool ith_cpu_limit(uint32_t *allowed, char *sentence, size_t sentence_bytes);

/* Whether the processor's vendor is AMD. */
bool ith_cpu_is_amd(void);

#endif
