/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping an execution before it is done. A rank that is to stop skips its remaining computations but takes part in
 * all exchanges, so the group stays usable. At the end of the execution the ranks agree that its result is void
 * (plan/opening.h).
 *
 * Threads ask between pieces of work of a few milliseconds at most. Reasons to stop: the plan of this rank was
 * cancelled, its family of contexts was interrupted, another rank stops (on transports that notify), or the group has
 * ended. */
#ifndef ITH_ATTENTION_HALT_H
#define ITH_ATTENTION_HALT_H

#include "../comm/comm.h"

typedef struct ith_halt {
    ith_context *context;
    ith_comm *comm;        /* NULL: one rank */
    atomic_bool cancelled; /* by ith_halt_cancel: the execution under way, or else the next */
    atomic_bool stopped;   /* the execution under way is to stop */
    atomic_int rank;       /* that was cancelled; valid if stopped */
    _Atomic int64_t stamp; /* number of the execution under way, the same on every rank; 0: none is */
} ith_halt;

/* To be called before and after an execution. */
void ith_halt_begin(ith_halt *halt, int64_t stamp);
void ith_halt_end(ith_halt *halt);

/* Any thread, or a signal handler. */
void ith_halt_cancel(ith_halt *halt);

/* Gives a sign of life to the ranks that wait for this one, and returns whether to stop. Any thread; halt may be NULL.
 */
bool ith_halted(ith_halt *halt);
/* The same without asking whether the contexts are interrupted: a few loads, for the loops of kernels. halt: an
 * ith_halt. */
bool ith_halt_heard(void *halt);

#endif
