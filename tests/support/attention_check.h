/* SPDX-License-Identifier: Apache-2.0 */
/* Runs attention cases and compares them with the oracle, for cmocka's tests. */
#ifndef ITH_TESTS_ATTENTION_CHECK_H
#define ITH_TESTS_ATTENTION_CHECK_H

#include "support/attention_case.h"

/* Runs the case on `ranks` ranks (case_in_rank). Fails if a rank fails, or if memory of the context is left
 * afterwards. */
void check_run(ith_context *context, attention_case *c, int ranks);

/* Checks that o and lse in the case agree with the oracle's o and lse. seed: the number of the case, for messages. */
void check_result(const attention_case *c, const float *o, const float *lse, uint32_t seed);

#endif
