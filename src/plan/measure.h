/* SPDX-License-Identifier: Apache-2.0 */
/* How fast kernels are on this machine: a small attention, timed. */
#ifndef ITH_PLAN_MEASURE_H
#define ITH_PLAN_MEASURE_H

#include "wisdom.h"

/* Times every kernel i of the table with candidates[i], at the entry's type, head size and softmax, and fills in its
 * rates. The kernels take turns, so that what disturbs one disturbs all; those far behind drop out. Takes milliseconds,
 * on one thread. */
ith_status ith_measure_kernels(ith_context *context, const bool candidates[ITH_WISDOM_KERNELS],
                               ith_wisdom_entry *entry);

#endif
