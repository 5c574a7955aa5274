/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of messages between ranks, and the fixed cost of an execution on several ranks. */
#ifndef ITH_TUNE_LINK_RATE_H
#define ITH_TUNE_LINK_RATE_H

#include "../comm/comm.h"

/* The figures of ith_machine_level. A message that travels while its rank computes makes the computation longer. This
 * delay counts as copies by the rank's own threads. Between ranks of one process, the whole message is a copy. */
typedef struct ith_link_rate {
    double latency_seconds, setup_seconds, bytes_per_second, group_bytes_per_second, copy_bytes_per_second, overlap;
} ith_link_rate;

/* Collective. Rank r of [0, width) exchanges messages with rank r + far: all these pairs at the same time, which
 * gives the rate of a group, and the pair of rank 0 alone, which gives the other figures. The other ranks only wait.
 * *rate is the same on all ranks. It takes about `seconds`. */
ith_status ith_link_measure(ith_context *context, ith_comm *comm, int width, int far, double seconds,
                            ith_link_rate *rate);

/* Collective. The time of an execution of a plan in which nothing is exchanged and next to nothing is computed: the
 * agreement of the ranks. */
ith_status ith_start_measure(ith_context *context, ith_comm *comm, double seconds, double *start_seconds);

#endif
