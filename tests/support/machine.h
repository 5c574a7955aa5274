/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets that a test may use. A test says what it leaves out because the machine lacks a set. */
#ifndef ITH_TESTS_MACHINE_H
#define ITH_TESTS_MACHINE_H

#include "base/cpu.h"

/* The instruction sets of this machine that ITHACA_CPU allows, as ith_cpu_feature bits. */
uint32_t machine_sets(void);

/* The lists of sets from which different functions are chosen, as far as the machine has them: no set, AVX2, and all of
 * its sets. Returns their number. */
enum { MACHINE_LISTS = 3 };
int machine_lists(uint32_t lists[MACHINE_LISTS]);

/* Whether the machine has the instruction sets `needs`. If not, prints a line that says that `what` is not tested;
 * tests/summary.sh reads these lines. */
bool machine_has(const char *what, uint32_t needs);

#endif
