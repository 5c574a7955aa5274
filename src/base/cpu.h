/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_BASE_CPU_H
#define ITH_BASE_CPU_H

#include "context.h"

#define ITH_CPU_ALL 0x7fu /* every bit of ith_cpu_feature */

/* Those of the instruction sets `allowed` (bits of ith_cpu_feature) that processor and operating system both support;
 * the baseline always. */
uint32_t ith_cpu_detect(uint32_t allowed);

/* What the environment variable ITHACA_CPU allows: the sets that it names and all that these stand on; ITH_CPU_ALL if
 * it is not set or names none. False, with a sentence, if it names a set that is not known. */
bool ith_cpu_limit(uint32_t *allowed, char *sentence, size_t sentence_bytes);

/* Whether AMD made the processor. */
bool ith_cpu_is_amd(void);

#endif
