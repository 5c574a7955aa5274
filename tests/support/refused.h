/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with wrong arguments, and the sentence that each must leave. */
#ifndef ITH_TESTS_REFUSED_H
#define ITH_TESTS_REFUSED_H

#include "base/context.h"

/* Checks that the call returns `wanted`, and that it leaves a new sentence with `word` in it in context c (NULL: in the
 * calling thread). */
#define REFUSED_AS(wanted, c, word, call)                                                                              \
    (ith_fail((c), ITH_OK, "stale"), refused((wanted), (c), (word), (call), #call))

#define REFUSED(c, word, call) REFUSED_AS(ITH_ERR_ARGUMENT, c, word, call)

void refused(ith_status wanted, const ith_context *c, const char *word, ith_status got, const char *call);

/* Sets struct_size of a struct to several wrong sizes, one after the other, and checks that the call is refused with
 * each. */
#define REFUSED_SIZES(c, object, word, call)                                                                           \
    do {                                                                                                               \
        const size_t right = (object).struct_size;                                                                     \
        const size_t wrong[] = {0, 3, sizeof(size_t), (size_t)1 << 20, SIZE_MAX};                                      \
        for (size_t size_ = 0; size_ < sizeof wrong / sizeof *wrong; size_++) {                                        \
            (object).struct_size = wrong[size_];                                                                       \
            REFUSED(c, word, call);                                                                                    \
        }                                                                                                              \
        (object).struct_size = right;                                                                                  \
    } while (0)

#endif
