/* SPDX-License-Identifier: Apache-2.0 */
/* Condition variables whose waits have deadlines on CLOCK_MONOTONIC. */
#ifndef ITH_BASE_MONOTONIC_H
#define ITH_BASE_MONOTONIC_H

#include <pthread.h>
#include <time.h>

/* Makes `count` condition variables. Returns how many were made: fewer if the system has none left. */
static inline int ith_monotonic_conditions(pthread_cond_t *conditions, int count)
{
    pthread_condattr_t attributes;
    int made = 0;
    if (pthread_condattr_init(&attributes))
        return 0;
    if (!pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC))
        while (made < count && !pthread_cond_init(&conditions[made], &attributes))
            made++;
    pthread_condattr_destroy(&attributes);
    return made;
}

#endif
