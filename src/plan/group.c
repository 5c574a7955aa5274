/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which consecutive ranks run in one process and on one host (group.h). */
#include "group.h"

static int common_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* If every block of n ranks lies on one host, then each rank that begins on another host than the rank before it has a
 * number that n divides, and n divides the number of ranks. Hence host_ranks is the greatest common divisor of these
 * numbers, and so is process_ranks for processes. */
ith_group ith_group_of(const ith_comm *comm)
{
    ith_group group = ith_group_on_one_host(ith_comm_size(comm), ith_comm_rank(comm), true);
    ith_place before = ith_comm_place_of(comm, 0);
    for (int rank = 1; rank < group.ranks; rank++) {
        ith_place here = ith_comm_place_of(comm, rank);
        if (here.process != before.process)
            group.process_ranks = common_divisor(group.process_ranks, rank);
        if (here.host != before.host) {
            group.host_ranks = common_divisor(group.host_ranks, rank);
            group.hosts++;
        }
        before = here;
    }
    if (comm && !comm->transport.share) /* even ranks of one process then have no right to one another's memory */
        group.process_ranks = 1;
    return group;
}

ith_group ith_group_on_one_host(int ranks, int rank, bool shared_memory)
{
    return (ith_group){
        .ranks = ranks, .rank = rank, .process_ranks = shared_memory ? ranks : 1, .host_ranks = ranks, .hosts = 1};
}

bool ith_group_shares_memory(const ith_group *group)
{
    return group->process_ranks == group->ranks;
}

bool ith_group_axis_shares_memory(const ith_group *group, int ulysses)
{
    return group->process_ranks % ulysses == 0;
}

int ith_group_axis_ranks(const ith_group *group)
{
    bool one_each = group->hosts == group->ranks;
    return group->host_ranks > 1 || one_each ? group->host_ranks : group->ranks;
}
