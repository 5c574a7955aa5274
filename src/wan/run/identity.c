/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the numbers of runs and pipelines (identity.h). */
#include "identity.h"

#include "../../base/clock.h"
#include "../../base/hash.h"

#include <sys/random.h>

/* Asks the kernel for a random number. If the kernel has none yet, hashes the time and the caller's address instead. */
uint64_t ith_draw_number(const void *address)
{
    const struct {
        double now;
        const void *address;
    } seed = {ith_clock_seconds(), address};
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0)
        number = ith_hash(1, &seed, sizeof seed);
    return number;
}
