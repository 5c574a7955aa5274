/* SPDX-License-Identifier: Apache-2.0 */
/* A case run and compared with the oracle, as cmocka sees it. */
#ifndef ITH_TESTS_ATTENTION_CHECK_H
#define ITH_TESTS_ATTENTION_CHECK_H

#include "support/attention_case.h"

/* The case on `ranks` ranks; nothing of it is left afterwards. */
void check_run(ith_context *context, attention_case *c, int ranks);

/* Checks that the outputs of the ranks are the oracle's. seed: for the report. */
void check_result(const attention_case *c, const float *o, const float *lse, uint32_t seed);

#endif
