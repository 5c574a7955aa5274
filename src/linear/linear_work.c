/* SPDX-License-Identifier: Apache-2.0 */
/* Shares the work of a call of ith_linear_apply among its threads (linear_work.h). */
#include "linear_work.h"

/* The number of times that a thread looks whether a stage has ended before it sleeps. This takes about half a
 * millisecond, as long as GNU's OpenMP waits before it sleeps. */
#define LOOKS 300000

static void wake_sleepers(ith_linear_outcome *outcome)
{
    if (!atomic_load(&outcome->sleepers))
        return;
    pthread_mutex_lock(&outcome->mutex);
    pthread_cond_broadcast(&outcome->changed);
    pthread_mutex_unlock(&outcome->mutex);
}

/* Records a failure, unless another came first. */
static void fail(ith_linear_outcome *outcome, ith_status status)
{
    int none = ITH_OK;
    atomic_compare_exchange_strong(&outcome->status, &none, (int)status);
    wake_sleepers(outcome);
}

bool ith_linear_failed(const ith_linear_outcome *outcome)
{
    return atomic_load(&outcome->status) != ITH_OK;
}

bool ith_linear_goes_on(ith_linear_outcome *outcome)
{
    if (!ith_linear_failed(outcome) && ith_context_interrupted(outcome->context))
        fail(outcome, ITH_ERR_INTERRUPTED);
    return !ith_linear_failed(outcome);
}

void ith_linear_fail_file(ith_linear_outcome *outcome, const char *file)
{
    atomic_store(&outcome->file, file);
    fail(outcome, ITH_ERR_IO);
}

bool ith_linear_take_item(ith_linear_stage *stage, int64_t strip, int64_t *item)
{
    long long taken = atomic_load(&stage->taken);
    do {
        if (taken >= (strip + 1) * stage->items)
            return false;
    } while (!atomic_compare_exchange_weak(&stage->taken, &taken, taken + 1));
    *item = taken - strip * stage->items;
    return true;
}

void ith_linear_end_item(ith_linear_stage *stage, int64_t strip, ith_linear_outcome *outcome)
{
    atomic_fetch_add(&stage->ended[strip % 2], 1);
    wake_sleepers(outcome);
}

int64_t ith_linear_next_item(const ith_linear_stage *stage, int64_t strip)
{
    return atomic_load_explicit(&stage->taken, memory_order_relaxed) - strip * stage->items;
}

/* Whether a thread need not wait for a strip of a stage any longer: the strip has ended, or the call has failed. */
static bool is_over(const ith_linear_stage *stage, int64_t strip, const ith_linear_outcome *outcome)
{
    return atomic_load(&stage->ended[strip % 2]) >= (strip / 2 + 1) * stage->items || ith_linear_failed(outcome);
}

/* A thread that ends an item sees this thread in `sleepers`, or this thread sees that the item has ended. */
static void sleep_until_over(const ith_linear_stage *stage, int64_t strip, ith_linear_outcome *outcome)
{
    pthread_mutex_lock(&outcome->mutex);
    atomic_fetch_add(&outcome->sleepers, 1);
    while (!is_over(stage, strip, outcome))
        pthread_cond_wait(&outcome->changed, &outcome->mutex);
    atomic_fetch_sub(&outcome->sleepers, 1);
    pthread_mutex_unlock(&outcome->mutex);
}

bool ith_linear_await(const ith_linear_stage *stage, int64_t strip, ith_linear_outcome *outcome)
{
    bool over = strip < 0;
    for (int look = 0; look < LOOKS && !over; look++)
        over = is_over(stage, strip, outcome);
    if (!over)
        sleep_until_over(stage, strip, outcome);
    return !ith_linear_failed(outcome);
}
