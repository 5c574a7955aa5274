/* SPDX-License-Identifier: Apache-2.0 */
/* Checks inside a rank: cmocka's own jump out of the test, which only the main thread may do. */
#ifndef ITH_TESTS_IN_RANK_H
#define ITH_TESTS_IN_RANK_H

#include "base/context.h"

/* Ends the rank's function with the place and the condition as the sentence, if it does not hold. */
#define RANK_CHECK(context, condition)                                                                                 \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return ith_fail(context, ITH_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition);                   \
    } while (0)

/* Ends the rank's function with the status of the call, if that is not ITH_OK. */
#define RANK_TRY(call)                                                                                                 \
    do {                                                                                                               \
        ith_status rank_try_status = (call);                                                                           \
        if (rank_try_status)                                                                                           \
            return rank_try_status;                                                                                    \
    } while (0)

#endif
