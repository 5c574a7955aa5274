/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITH_BASE_CLOCK_H
#define ITH_BASE_CLOCK_H

#include "context.h"

/* Seconds on a clock that never goes back. */
double ith_clock_seconds(void);
/* Seconds that the calling thread has spent on a processor: what others on the machine take does not count. */
double ith_clock_thread_seconds(void);

#endif
