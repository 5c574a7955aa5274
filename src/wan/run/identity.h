/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that identify runs and pipelines among all processes. */
#ifndef ITH_WAN_IDENTITY_H
#define ITH_WAN_IDENTITY_H

#include <stdint.h>

/* Returns a random number that identifies a run or a pipeline. Callers that call at the same time must pass different
 * addresses. */
uint64_t ith_draw_number(const void *address);

#endif
