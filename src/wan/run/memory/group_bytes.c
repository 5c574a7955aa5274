/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the memory of communicators and records (group_bytes.h). A transport over links has its own memory, which no
 * context counts. Without a communicator the prediction is made for the local transport, or for one that is like it. */
#include "group_bytes.h"

#include "../../../base/size.h"
#include "../../../comm/comm.h"
#include "../../../comm/local/local.h"
#include "../../../comm/ranks.h"
#include "../agreement.h"

/* The number of requests of a communicator. */
static int64_t requests_of(const ith_team *team)
{
    return team->comm ? team->comm->transport.requests : LOCAL_REQUESTS;
}

/* The bytes of the communicators of this process's ranks, in groups of `size` ranks. part: these are sub-groups. */
static int64_t bytes_of(const ith_team *team, int size, bool part)
{
    const int groups = part ? (int)ith_div_up(team->count, size) : 1;
    int64_t bytes = team->count * ith_comm_bytes(requests_of(team), size, team->shares_memory, part);
    if (team->shares_memory)
        bytes += groups * ith_local_bytes(size, !part);
    return bytes;
}

int64_t ith_group_bytes(const ith_team *team)
{
    if (team->ranks == 1 && !team->comm)
        return ith_agreement_bytes(1);
    int64_t bytes = bytes_of(team, team->ranks, false) + ith_ranks_bytes(team->count) +
                    team->count * ith_agreement_bytes(team->ranks);
    if (team->processes > 1) /* the group of the leaders (rank.c) */
        bytes += ith_comm_bytes(requests_of(team), team->processes, false, true);
    return bytes;
}

int64_t ith_group_bytes_parts(const ith_team *team, int size)
{
    return bytes_of(team, size, true);
}

int64_t ith_group_bytes_split(const ith_team *team, int parent)
{
    return team->count * ith_comm_split_bytes(parent);
}
