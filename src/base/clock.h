/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks: monotonic time, and the processor time of a thread. */
#ifndef ITH_BASE_CLOCK_H
#define ITH_BASE_CLOCK_H

/* Seconds on a monotonic clock, from an arbitrary start. */
double ith_clock_seconds(void);
/* Processor time of the calling thread in seconds. It stands still while other threads run on the processor. */
double ith_clock_thread_seconds(void);

#endif
