/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model: walks the schedules of a few ranks, which stand for all, and adds up the prices of their steps. */
#ifndef ITH_COST_WALK_H
#define ITH_COST_WALK_H

#include "price.h"

/* Predicts the cost of a priced plan. memory_bytes is left 0. every_hop: walks all hops of a ring one by one; otherwise
 * hops that repeat are multiplied. ITH_ERR_MEMORY if there is no memory for the walk,
 * ITH_ERR_INTERRUPTED if the context is interrupted. */
ith_status ith_model_cost(ith_context *context, const ith_price *price, bool every_hop, ith_cost *cost);

#endif
