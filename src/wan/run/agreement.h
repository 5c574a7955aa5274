/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks of a run have the same options and model sizes. Rank 0 sends its values to all ranks. Every
 * rank compares its own with them, and all ranks agree on the result. */
#ifndef ITH_WAN_AGREEMENT_H
#define ITH_WAN_AGREEMENT_H

#include "rank.h"

/* Collective: compares the options and model sizes of all ranks, and finds the ranks that share this pipeline. `mine`
 * is the status of the checks of this rank's own arguments. If a value differs between ranks, returns ITH_ERR_ARGUMENT
 * with an error message that names the value and the rank. On success sets rank->team and rank->position;
 * rank->dumps, rank->saves and rank->preview_every, as rank 0's options say; and *run, a random number that identifies
 * the run. The caller frees rank->records, also after a failure. */
ith_status ith_agree_on_run(ith_rank *rank, ith_status mine, uint64_t *run);
/* Collective, after ith_agree_on_run: checks that `value` is the same on all ranks; with `leaders`, on the leaders of
 * all pipelines alone. `name` is its name in the error message. */
ith_status ith_rank_compare(ith_rank *rank, const char *name, uint64_t value, bool leaders);
/* Collective, after ith_agree_on_run: the sum of a number over the processes of this rank's host. Each process has the
 * number of its leader. */
ith_status ith_sum_of_host(ith_rank *rank, int64_t mine, int64_t *sum);
/* The bytes of rank->records in a run of `ranks` ranks. */
int64_t ith_agreement_bytes(int ranks);

#endif
