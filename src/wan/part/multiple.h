/* SPDX-License-Identifier: Apache-2.0 */
/* The rule for a size that must be a multiple of another number, such as the width of a video. */
#ifndef ITH_WAN_MULTIPLE_H
#define ITH_WAN_MULTIPLE_H

#include <ithaca/ithaca.h>

/* Checks that `value` is `base` plus some multiple of `multiple`, and at most `most`. The error message names the
 * nearest legal values. */
ith_status ith_multiple_check(ith_context *context, const char *name, int64_t value, int64_t base, int64_t multiple,
                              int64_t most);

#endif
