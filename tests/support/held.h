/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is held by everything made with a context and its clones. */
#ifndef ITH_TESTS_HELD_H
#define ITH_TESTS_HELD_H

#include <ithaca/ithaca.h>

static inline ith_memory_use memory_of(ith_context *context)
{
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    if (ith_context_memory(context, &use))
        use.current_bytes = use.peak_bytes = -1;
    return use;
}

#endif
