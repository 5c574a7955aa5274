/* SPDX-License-Identifier: Apache-2.0 */
/* A lock for a few copied bytes: a thread that finds it taken tries again until it is free. It needs no initialisation
 * and no end, so zeroed memory may hold it. */
#ifndef ITH_BASE_SPIN_LOCK_H
#define ITH_BASE_SPIN_LOCK_H

#include <stdatomic.h>

static inline void ith_spin_lock(atomic_flag *lock)
{
    while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire))
        ;
}

static inline void ith_spin_unlock(atomic_flag *lock)
{
    atomic_flag_clear_explicit(lock, memory_order_release);
}

#endif
