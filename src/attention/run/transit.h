/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges under way, timed: how long some exchange was on its way, and how much of that a rank spent waiting for it.
 */
#ifndef ITH_ATTENTION_TRANSIT_H
#define ITH_ATTENTION_TRANSIT_H

#include "../../comm/comm.h"

typedef struct ith_transit {
    ith_plan_counters *counters;
    int under_way;                /* of all groups */
    double since_seconds, traced; /* since when some exchange has been on its way: by the clock, in the trace */
    ith_status status;            /* of the first that failed, which may have been seen while nobody could return it */
} ith_transit;

void ith_transit_begin(ith_transit *transit, ith_plan_counters *counters);
/* Posts an exchange. The first `counted` sends are added to the counters' sent_bytes, those to itself left out. */
ith_status ith_transit_post(ith_transit *transit, ith_comm *comm, const ith_transfer *sends, int send_count,
                            int counted, const ith_transfer *receives, int receive_count, ith_request **request);
/* Moves what can be moved; *request becomes NULL when it is done. */
void ith_transit_test(ith_transit *transit, ith_comm *comm, ith_request **request);
/* Until it is done. Accepts NULL. Any failure so far. */
ith_status ith_transit_wait(ith_transit *transit, ith_comm *comm, ith_request **request);
/* After the last: tells the trace how much of the counters' exchange time was hidden, from 0 to 1. */
void ith_transit_end(const ith_transit *transit, const ith_context *context);

#endif
