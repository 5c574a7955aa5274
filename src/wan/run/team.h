/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run that share a pipeline. */
#ifndef ITH_WAN_TEAM_H
#define ITH_WAN_TEAM_H

#include "../../comm/comm.h"

#include <ithaca/wan.h>

/* The ranks of a run that share a pipeline, because they are threads of one process. */
typedef struct ith_team {
    int ranks;            /* number of all ranks of the run */
    int processes;        /* number of pipelines among them */
    int process;          /* number of this pipeline, in the order of the pipelines' lowest ranks */
    int hosts;            /* number of hosts of all processes */
    int host;             /* number of this host, in the order of the hosts' lowest ranks */
    int host_processes;   /* number of processes on this host */
    int host_ranks;       /* number of ranks on this host */
    bool first_on_host;   /* this process is the lowest on its host */
    bool lends;           /* rank 0's process has sent the model to another one (lend.h) */
    bool lent;            /* rank 0's process has sent the model to this process */
    int count;            /* number of ranks that share the pipeline */
    const int *members;   /* [count] the ranks that share the pipeline, ascending; NULL: ranks 0 to count - 1 */
    bool shares_memory;   /* all ranks of the run can read one another's memory */
    const ith_comm *comm; /* the group of all ranks of the run; NULL: one rank, or a prediction for ranks on one host */
} ith_team;

/* Whether the hosts of a run share out the weights: the options ask for it, and there are several hosts or a process
 * without files. */
bool ith_shards_weights(const ith_generate_options *options, const ith_team *team);

/* The number of the i-th rank of this process. */
static inline int ith_team_member(const ith_team *team, int i)
{
    return team->members ? team->members[i] : i;
}

/* Whether this process has rank 0, which encodes images, fits previews, decodes, and writes the dump. */
static inline bool ith_team_has_first(const ith_team *team)
{
    return ith_team_member(team, 0) == 0;
}

#endif
