/* SPDX-License-Identifier: Apache-2.0 */
/* Random attention problems for `ithaca verify`, `ithaca bench` and `ithaca info`. */
#ifndef ITH_CLI_ATTEND_RANDOM_H
#define ITH_CLI_ATTEND_RANDOM_H

#include "attend_whole.h"

/* Fills in tensors, strides and memory for results, for whole->problem: normal q, k and v, and what has_kv_lengths,
 * has_key_bias and mask ask for. The deviation of the logits (at the scale 1/sqrt(D)) is 1 in the first head and grows
 * to `deviation` in the last. With kv_lengths the first batch entry keeps all of its keys, others lose some; a mask
 * hides a quarter of the keys, and every key from the first query of the last head. The same seed gives the same
 * numbers. Prints what is wrong and returns an exit status. */
int ith_attend_make_random(ith_context *context, uint64_t seed, double deviation, ith_attend_whole *whole);

#endif
