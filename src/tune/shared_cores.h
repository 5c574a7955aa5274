/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts that share cores. */
#ifndef ITH_TUNE_SHARED_CORES_H
#define ITH_TUNE_SHARED_CORES_H

#include "../comm/comm.h"

typedef struct ith_shared_cores {
    int64_t units; /* cores that the processes of rank 0's host may use */
    int64_t hosts; /* number of consecutive hosts, from rank 0's host on, whose processes may use cores of rank 0's
                    * process: hosts can be containers or namespaces of one machine */
} ith_shared_cores;

/* Collective. *found is the same on all ranks. */
ith_status ith_shared_cores_count(ith_context *context, ith_comm *comm, ith_shared_cores *found);

#endif
