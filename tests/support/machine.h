/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction sets a test may use, and a word about what it cannot test for want of them. */
#ifndef ITH_TESTS_MACHINE_H
#define ITH_TESTS_MACHINE_H

#include "base/cpu.h"

/* The sets of this machine within ITHACA_CPU. */
uint32_t machine_sets(void);

/* The lists of sets from which different functions are chosen, as far as the machine has them: no set, AVX2, and all of
 * its sets. Returns their number. */
enum { MACHINE_LISTS = 3 };
int machine_lists(uint32_t lists[MACHINE_LISTS]);

/* Whether the machine has the sets that something needs; if not, says so. tests/summary.sh reads these lines. */
bool machine_has(const char *what, uint32_t needs);

#endif
