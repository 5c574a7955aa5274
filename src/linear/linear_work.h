/* SPDX-License-Identifier: Apache-2.0 */
/* Lets the threads of one call of ith_linear_apply share its work without a barrier. The work of a strip of rows has
 * several stages (linear_apply.c), and a stage is cut into items. A thread takes items of a stage until none is left,
 * and goes on to the next stage while other threads still compute their last items. It waits only where it needs
 * results that do not exist yet. */
#ifndef ITH_LINEAR_LINEAR_WORK_H
#define ITH_LINEAR_LINEAR_WORK_H

#include "../base/context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Whether a call of ith_linear_apply has failed, and the threads that wait for others. All threads of the call use it.
 */
typedef struct ith_linear_outcome {
    ith_context *context;
    atomic_int status;          /* the first failure of a thread, an ith_status */
    _Atomic(const char *) file; /* the file that was cut, if the status is ITH_ERR_IO */
    atomic_int sleepers;        /* number of threads that sleep, or are about to */
    pthread_mutex_t mutex;      /* held by a thread that goes to sleep, or that wakes the others */
    pthread_cond_t changed;     /* an item has ended, or the call has failed */
} ith_linear_outcome;

/* Initialises the outcome of a call. */
#define ITH_LINEAR_OUTCOME(of_context)                                                                                 \
    {                                                                                                                  \
        .context = (of_context), .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER               \
    }

/* Returns true unless the call has failed or its context was interrupted. Records an interruption as a failure. */
bool ith_linear_goes_on(ith_linear_outcome *outcome);
/* Whether the call has failed. */
bool ith_linear_failed(const ith_linear_outcome *outcome);
/* Records that a file was cut while it was read. */
void ith_linear_fail_file(ith_linear_outcome *outcome, const char *file);

/* One stage of all strips, which every thread passes strip by strip. No item of strip s + 2 may end before all items of
 * strip s have ended. Zeroed memory with `items` set is a stage of which no item is taken. */
typedef struct ith_linear_stage {
    int64_t items;         /* number of items of each strip */
    atomic_llong taken;    /* number of items that threads have taken, of all strips */
    atomic_llong ended[2]; /* number of items that have ended, of all even strips, and of all odd strips */
} ith_linear_stage;

/* Takes an item of strip number `strip` for the calling thread. Returns false if none is left; otherwise sets *item to
 * its number, from 0 to items - 1. Before the first call for a strip, all items of the earlier strips must have been
 * taken. */
bool ith_linear_take_item(ith_linear_stage *stage, int64_t strip, int64_t *item);
/* Reports that an item of a strip has ended. */
void ith_linear_end_item(ith_linear_stage *stage, int64_t strip, ith_linear_outcome *outcome);
/* The number of the first item of a strip that no thread has taken, or at least `items`. */
int64_t ith_linear_next_item(const ith_linear_stage *stage, int64_t strip);
/* Waits until all items of a strip have ended. Returns false if the call has failed. Strips before the first, and
 * strips of a stage without items, have ended. */
bool ith_linear_await(const ith_linear_stage *stage, int64_t strip, ith_linear_outcome *outcome);

#endif
