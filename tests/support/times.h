/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses, and the processor time of a test. */
#ifndef ITH_TESTS_TIMES_H
#define ITH_TESTS_TIMES_H

/* Pauses the calling thread for this time, or until a signal comes. */
void nap(double seconds);

/* Processor time of all threads of this process, in seconds. Other programs on the machine hardly change it. */
double process_seconds(void);

#endif
