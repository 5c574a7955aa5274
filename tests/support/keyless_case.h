/* SPDX-License-Identifier: Apache-2.0 */
/* Random attention problems in which some rows have no key to attend to, and some queries hold NaN or infinity. */
#ifndef ITH_TESTS_KEYLESS_CASE_H
#define ITH_TESTS_KEYLESS_CASE_H

#include "support/attention_case.h"

typedef struct keyless_case {
    attention_case c;
    float *o, *lse; /* the truth for queries of finite numbers, in the order of c.o and c.lse */
    bool *nan;      /* [B, Sq, H]: the query holds NaN */
    bool *infinite; /* [B, Sq, H]: the query holds infinity, and no NaN */
    uint32_t seed;
} keyless_case;

/* A problem of a type, with at most `longest` queries and keys. Keys are hidden by lengths, by biases, by masks, and by
 * all of these together. Absent keys hold NaN and infinity, keys that every mask hides hold the largest numbers. */
keyless_case keyless_case_make(uint32_t seed, ith_dtype dtype, int64_t longest);

/* Runs the case on `ranks` ranks and checks each row:
 *   no key to attend to     o = 0 and lse = -infinity, whatever the query holds
 *   a query with NaN        o and lse are NaN
 *   a query with infinity   anything
 *   all others              the truth */
void keyless_case_check(ith_context *context, keyless_case *k, int ranks);

void keyless_case_free(keyless_case *k);

#endif
