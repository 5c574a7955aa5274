/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a plan. */
#ifndef ITH_ATTENTION_PLAN_MEMORY_H
#define ITH_ATTENTION_PLAN_MEMORY_H

#include "../../base/arena.h"

/* Arenas for the three kinds of memory of a plan: of the host, of the device, and of the host for copies from and to
 * the device (pinned). Plans on the processor use only the first kind. */
typedef struct ith_plan_memory {
    ith_arena host, device, pinned;
} ith_plan_memory;

#endif
