/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction sets a test may use, and a word about what it cannot test for want of them. */
#ifndef ITH_TESTS_SUPPORT_MACHINE_H
#define ITH_TESTS_SUPPORT_MACHINE_H

#include "../../src/base/cpu.h"

#include <stdio.h>

/* The sets of this machine within ITHACA_CPU. */
static inline uint32_t machine_sets(void)
{
    ith_context *context = NULL;
    if (ith_context_create(NULL, &context))
        fail_msg("%s", ith_context_error(NULL));
    uint32_t sets = ith_context_cpu(context);
    ith_context_destroy(&context);
    return sets;
}

/* Whether the machine has the sets that something needs; if not, says so. tests/skipped.sh reads these lines. */
static inline bool machine_has(const char *what, uint32_t needs)
{
    char lacking[128];
    uint32_t lacks = needs & ~machine_sets();
    if (lacks)
        fprintf(stderr, "skipped: %s needs %s\n", what, ith_cpu_describe(lacks, lacking, sizeof lacking));
    return lacks == 0;
}

#endif
