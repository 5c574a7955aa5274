/* SPDX-License-Identifier: Apache-2.0 */
/* The group of ranks of a plan. */
#ifndef ITH_PLAN_GROUP_H
#define ITH_PLAN_GROUP_H

#include "../comm/comm.h"

/* The group of ranks that a plan is for, this rank's number in it, and where the ranks run. */
typedef struct ith_group {
    int ranks, rank;
    ith_blocks blocks;
} ith_group;

#endif
