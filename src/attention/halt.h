/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping an execution before its end. A rank that stops skips its remaining computations but takes part in all
 * exchanges, so that the group stays usable. At the end of the execution all ranks agree that the result is void
 * (plan/opening.h).
 *
 * Threads call ith_halted every few milliseconds. An execution stops if the plan of a rank is cancelled, if the
 * contexts of a rank are interrupted, if another rank stops (on transports that notify), or if the group has failed. */
#ifndef ITH_ATTENTION_HALT_H
#define ITH_ATTENTION_HALT_H

#include "../comm/comm.h"

/* The request to stop the executions of one plan, which the threads of an execution read. */
typedef struct ith_halt {
    ith_context *context;
    ith_comm *comm; /* NULL for a single rank */
    /* set by ith_halt_cancel: stop the execution under way or, if there is none, the next one */
    atomic_bool cancelled;
    atomic_bool stopped;   /* whether the execution under way is to stop */
    atomic_int rank;       /* the rank that was cancelled or interrupted; this rank if the group has failed */
    _Atomic int64_t stamp; /* number of the execution under way, the same on every rank; 0: no execution */
} ith_halt;

/* Called at the beginning and the end of an execution. stamp: the number of the execution, the same on every rank. */
void ith_halt_begin(ith_halt *halt, int64_t stamp);
void ith_halt_end(ith_halt *halt);

/* Requests that the execution under way stops, or else the next one. Any thread or signal handler may call this. */
void ith_halt_cancel(ith_halt *halt);

/* Returns whether the execution is to stop, and shows other ranks that this rank is alive. Any thread may call this.
 * halt may be NULL: the execution then never stops. */
bool ith_halted(ith_halt *halt);
/* Like ith_halted, but it neither checks whether the contexts are interrupted nor shows other ranks that this rank is
 * alive. It costs a few loads while nothing stops, so kernels call it in their loops. halt: an ith_halt. */
bool ith_halt_heard(void *halt);

#endif
