/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of messages between ranks, and the fixed cost of an execution on several ranks. */
#ifndef ITH_TUNE_LINK_RATE_H
#define ITH_TUNE_LINK_RATE_H

#include "../comm/comm.h"

/* The figures of ith_machine_level. The time of a message has two parts: the time that it takes from a rank that
 * computes meanwhile, which counts as copies by the rank's own threads, and the rest, which passes while it computes.
 */
typedef struct ith_link_rate {
    double latency_seconds, bytes_per_second, group_bytes_per_second, copy_bytes_per_second;
} ith_link_rate;

/* Collective. Ranks [0, width) exchange messages with ranks [width, 2 width), of which rank 0 and rank `width` first
 * alone. The other ranks only wait. *rate is the same on all ranks. It takes about `seconds`. */
ith_status ith_link_measure(ith_context *context, ith_comm *comm, int width, double seconds, ith_link_rate *rate);

/* Collective. The time of an execution of a plan in which nothing is exchanged and next to nothing is computed: the
 * agreement of the ranks. */
ith_status ith_start_measure(ith_context *context, ith_comm *comm, double seconds, double *start_seconds);

#endif
