/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a group: their numbers, their names, and the processes and hosts in which they run. */
#include "comm.h"

#include "../base/host_name.h"
#include "../base/size.h"
#include "../base/sized.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ith_comm_rank(const ith_comm *comm)
{
    return comm ? comm->rank : 0;
}

int ith_comm_size(const ith_comm *comm)
{
    return comm ? comm->size : 1;
}

/* The place of a rank of this group on a transport without the function `place`. */
static void assume_place(const ith_comm *comm, int rank, ith_place *place)
{
    bool one_process = !comm || comm->transport.share;
    int self = ith_comm_rank(comm);
    if (!one_process)
        place->process = ith_comm_world_rank(comm, rank);
    if (one_process || rank == self)
        place->pid = getpid();
    if (comm)
        memcpy(place->name, ith_comm_whole((ith_comm *)comm)->host, sizeof place->name);
    else
        ith_host_name(place->name, sizeof place->name);
}

ith_place ith_comm_place_of(const ith_comm *comm, int rank)
{
    ith_place place = ITH_PLACE_INIT;
    if (comm && comm->transport.place)
        comm->transport.place(comm->transport_state, rank, &place);
    else
        assume_place(comm, rank, &place);
    place.name[sizeof place.name - 1] = 0; /* a transport may have filled all of it */
    return place;
}

/* If every block of n ranks lies on one host, n divides the index of each rank that runs on another host than the rank
 * before it, and n divides the number of ranks. Hence n is the greatest common divisor of these numbers. The same holds
 * for processes. */
ith_blocks ith_comm_blocks(const ith_comm *comm, int first, int count)
{
    ith_blocks blocks = {count, count};
    int hosts = 1;
    if (comm && comm->one_process)
        return blocks;
    ith_place before = ith_comm_place_of(comm, first);
    for (int i = 1; i < count; i++) {
        ith_place here = ith_comm_place_of(comm, first + i);
        if (here.process != before.process)
            blocks.process_ranks = (int)ith_common_divisor(blocks.process_ranks, i);
        if (here.host != before.host) {
            blocks.host_ranks = (int)ith_common_divisor(blocks.host_ranks, i);
            hosts++;
        }
        before = here;
    }
    if (comm && !comm->transport.share) /* even ranks of one process may then not use one another's memory */
        blocks.process_ranks = 1;
    if (blocks.host_ranks == 1 && hosts < count)
        blocks.host_ranks = count;
    return blocks;
}

/* The place of a rank, before the transport's state of a sub-group exists. */
static ith_place early_place(const ith_comm *comm, int rank)
{
    return comm->whole ? ith_comm_place_of(comm->whole, comm->members[rank]) : ith_comm_place_of(comm, rank);
}

bool ith_comm_find_one_process(const ith_comm *comm)
{
    if (!comm->transport.share || !comm->transport.place)
        return comm->transport.share;
    const int64_t first = early_place(comm, 0).process;
    bool same = true;
    for (int rank = 1; rank < comm->size && same; rank++)
        same = early_place(comm, rank).process == first;
    return same;
}

bool ith_comm_find_several_hosts(const ith_comm *comm)
{
    if (comm->whole) /* a sub-group of one host, too, names hosts if the whole group has several */
        return comm->whole->several_hosts;
    if (!comm->transport.place)
        return false;
    const int64_t first = early_place(comm, 0).host;
    bool several = false;
    for (int rank = 1; rank < comm->size && !several; rank++)
        several = early_place(comm, rank).host != first;
    return several;
}

const char *ith_comm_name_rank(const ith_comm *comm, int rank, char text[ITH_RANK_NAME])
{
    int world_rank = ith_comm_world_rank(comm, rank);
    ith_place place = ITH_PLACE_INIT;
    if (comm->several_hosts)
        place = ith_comm_place_of(comm, rank);
    if (place.name[0])
        snprintf(text, ITH_RANK_NAME, "rank %d (host %s)", world_rank, place.name);
    else
        snprintf(text, ITH_RANK_NAME, "rank %d", world_rank);
    return text;
}

ith_status ith_comm_place(const ith_comm *comm, int rank, ith_place *place)
{
    ith_context *context = comm ? comm->context : NULL;
    if (!place)
        return ith_need(context, place, "place");
    if (rank < 0 || rank >= ith_comm_size(comm))
        return ith_fail(context, ITH_ERR_ARGUMENT, "rank is %d, and the group has ranks 0 to %d", rank,
                        ith_comm_size(comm) - 1);
    const ith_place full = ith_comm_place_of(comm, rank);
    return ITH_SIZED_FILL(context, ith_place, ITH_PLACE_INIT, place, &full);
}
