/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for functions that ranks run. They return a failure, because cmocka's checks jump out of the test, which only
 * the main thread may do. */
#ifndef ITH_TESTS_IN_RANK_H
#define ITH_TESTS_IN_RANK_H

#include "base/context.h"

/* If the condition does not hold, the rank's function returns a failure, whose sentence has the place and the
 * condition. */
#define RANK_CHECK(context, condition)                                                                                 \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return ith_fail(context, ITH_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition);                   \
    } while (0)

/* If the call fails, the rank's function returns its status. */
#define RANK_TRY(call)                                                                                                 \
    do {                                                                                                               \
        ith_status rank_try_status = (call);                                                                           \
        if (rank_try_status)                                                                                           \
            return rank_try_status;                                                                                    \
    } while (0)

#endif
