/* SPDX-License-Identifier: Apache-2.0 */
/* The files that record a run: the trace (--trace), and after a failure the flight record (--flight-record).
 * The process of rank 0 writes the files that the options name. After a failure every other process writes files of its
 * own, whose names end in "." and the number of its lowest rank. */
#ifndef ITH_CLI_LAUNCH_RECORDS_H
#define ITH_CLI_LAUNCH_RECORDS_H

#include "launch.h"

/* Checks in the process of rank 0 that the files can be written, and starts the trace. Prints errors and returns an
 * exit status. */
int ith_records_begin(const ith_launch *launch, ith_context *context);
/* Drops the events in the trace of this process so far. To be called by one rank of the process while no rank computes,
 * and before ith_records_align. */
ith_status ith_records_restart(const ith_launch *launch, ith_context *context);
/* If rank 0 records a trace, the first function compares the clocks of all processes, and the second one gathers their
 * traces on rank 0 at the end of the run. Collective. */
ith_status ith_records_align(const ith_launch *launch, ith_comm *comm);
ith_status ith_records_gather(const ith_launch *launch, ith_comm *comm);
/* Writes the files of this process. rank: its lowest rank. failed: the run has failed. Prints errors and returns an
 * exit status. */
int ith_records_end(const ith_launch *launch, ith_context *context, int rank, bool failed);

#endif
