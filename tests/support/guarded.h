/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ends, or begins, at a protected page. An access beyond it ends the test, also from code that sanitizers
 * do not check. */
#ifndef ITH_TESTS_GUARDED_H
#define ITH_TESTS_GUARDED_H

#include <stdbool.h>
#include <stdint.h>

/* `bytes` of memory between two protected pages, aligned to `align`, which divides `bytes`. All bytes are 0xff: NaN as
 * f32, bf16 and f16. The memory ends where the second page begins (`at_end`), or begins where the first one ends. */
void *guarded_new(int64_t bytes, int64_t align, bool at_end);
/* Frees everything that guarded_new has returned. */
void guarded_free_all(void);

#endif
