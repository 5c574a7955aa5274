/* SPDX-License-Identifier: Apache-2.0 */
#include "support/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

uint32_t machine_sets(void)
{
    ith_context *context = NULL;
    if (ith_context_create(NULL, &context))
        fail_msg("%s", ith_context_error(NULL));
    uint32_t sets = ith_context_cpu(context);
    ith_context_destroy(&context);
    return sets;
}

int machine_lists(uint32_t lists[MACHINE_LISTS])
{
    const uint32_t sets = machine_sets();
    int count = 0;
    lists[count++] = ITH_CPU_BASELINE;
    if (sets & ITH_CPU_AVX2)
        lists[count++] = ITH_CPU_BASELINE | ITH_CPU_AVX2;
    if (sets & (ITH_CPU_AVX512 | ITH_CPU_NEON))
        lists[count++] = sets;
    return count;
}

bool machine_has(const char *what, uint32_t needs)
{
    char lacking[128];
    uint32_t lacks = needs & ~machine_sets();
    if (lacks)
        fprintf(stderr, "skipped: %s needs %s\n", what, ith_cpu_describe(lacks, lacking, sizeof lacking));
    return lacks == 0;
}
