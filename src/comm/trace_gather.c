/* SPDX-License-Identifier: Apache-2.0 */
/* One trace of several processes (ith_trace_align, ith_trace_gather).
 *
 * Ranks of one process have one trace, and the lowest of them leads: it compares clocks and sends the events. Its clock
 * is compared with rank 0's clock by messages to and fro (D. L. Mills, RFC 5905). The leader notes the time b and sends
 * a message. The answer holds the time r at which rank 0 sent it, and the leader notes the time a when it comes. Then r
 * lies between b and a, so the offset r - (b + a) / 2 is wrong by at most (a - b) / 2. The fastest of some rounds
 * counts. */
#include "comm.h"

#include "../base/clock.h"
#include "../base/trace.h"

#include <math.h>

#define ROUNDS 16 /* messages to and fro by which two clocks are compared */

/* A rank's process and its trace. */
typedef struct owner {
    int64_t process;
    uint64_t trace; /* its place in the memory of the process; 0: there is none */
    double begun;   /* when the trace began, by the common clock */
} owner;

/* Whether a rank is the lowest one of its trace. */
static bool leads(const owner *owners, int rank)
{
    bool lowest = owners[rank].trace != 0;
    for (int i = 0; i < rank; i++)
        lowest &= owners[i].process != owners[rank].process || owners[i].trace != owners[rank].trace;
    return lowest;
}

static owner own_trace(const ith_comm *comm)
{
    return (owner){ith_comm_place_of(comm, comm->rank).process, (uint64_t)(uintptr_t)ith_context_trace(comm->context),
                   ith_trace_begun(comm->context)};
}

/* Gathers the owners of all ranks. Fails on all ranks if rank 0 records no trace. *owners is to be freed. */
static ith_status gather_owners(ith_comm *comm, owner **owners)
{
    owner mine = own_trace(comm);
    *owners = ith_alloc(comm->context, comm->size, sizeof mine, "the processes of a trace");
    ith_status status = ith_comm_agree(comm, *owners ? ITH_OK : ITH_ERR_MEMORY);
    if (!status)
        status = ith_comm_allgather(comm, &mine, sizeof mine, *owners);
    if (!status && !(*owners)[0].trace)
        status = ith_fail(comm->context, ITH_ERR_ARGUMENT, "rank 0 records no trace: call ith_trace_start first");
    return status;
}

/* Sends data from one rank to another. All ranks call it. */
static ith_status pass(ith_comm *comm, int from, int to, void *data, int64_t bytes)
{
    ith_transfer transfer = {comm->rank == from ? to : from, ith_region_of(data, bytes)};
    return ith_comm_exchange(comm, &transfer, comm->rank == from, &transfer, comm->rank == to);
}

/* Compares the clock of rank `leader` with the clock of rank 0. All ranks call it. */
static ith_status compare_clocks(ith_comm *comm, int leader)
{
    ith_trace_sample sample = {.error = INFINITY};
    ith_status status = ITH_OK;
    for (int round = 0; round < ROUNDS && !status; round++) {
        double before = ith_clock_seconds(), answer = 0;
        status = pass(comm, leader, 0, &answer, sizeof answer);
        answer = ith_clock_seconds();
        if (!status)
            status = pass(comm, 0, leader, &answer, sizeof answer);
        double after = ith_clock_seconds(), middle = before + (after - before) / 2;
        if ((after - before) / 2 >= sample.error)
            continue;
        sample = (ith_trace_sample){.at = middle, .offset = answer - middle, .error = (after - before) / 2};
    }
    if (!status && comm->rank == leader)
        ith_trace_set_clock(comm->context, &sample);
    return status;
}

/* Compares the clocks of all processes with rank 0's, and finds when the first trace began. */
static ith_status align(ith_comm *comm, owner *owners)
{
    ith_status status = ITH_OK;
    bool several = false;
    double zero = INFINITY;
    for (int rank = 1; rank < comm->size && !status; rank++) {
        several |= owners[rank].process != owners[0].process;
        if (leads(owners, rank) && owners[rank].process != owners[0].process)
            status = compare_clocks(comm, rank);
    }
    const owner mine = own_trace(comm);
    if (!status)
        status = ith_comm_allgather(comm, &mine, sizeof mine, owners);
    if (status || !leads(owners, comm->rank))
        return status;
    for (int rank = 0; rank < comm->size; rank++)
        zero = fmin(zero, owners[rank].begun);
    ith_trace_set_zero(comm->context, zero);
    if (several)
        ith_trace_set_host(comm->context, ith_comm_place_of(comm, comm->rank).name);
    return ITH_OK;
}

ith_status ith_trace_align(ith_comm *comm)
{
    owner *owners = NULL;
    if (!comm)
        return ITH_OK;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = gather_owners(comm, &owners);
    if (!status)
        status = align(comm, owners);
    ith_free(comm->context, owners);
    return ith_comm_exit_operation(comm, entered, status);
}

/* The packages of all ranks, as they travel to rank 0. */
typedef struct cargo {
    owner *owners;
    void *package;          /* this rank's events, if it leads and is not rank 0 */
    int64_t *sizes;         /* [size]: bytes of each rank's package */
    ith_transfer *arrivals; /* [size]: on rank 0, where the packages arrive */
    char *arrived;
} cargo;

/* Packs this rank's events if it leads, and gathers the sizes of all packages. */
static ith_status pack(ith_comm *comm, cargo *c)
{
    int64_t mine = 0;
    ith_status status = ITH_OK;
    c->sizes = ith_alloc(comm->context, comm->size, sizeof *c->sizes, "the processes of a trace");
    if (!c->sizes)
        status = ITH_ERR_MEMORY;
    else if (comm->rank && leads(c->owners, comm->rank))
        status = ith_trace_pack(comm->context, &c->package, &mine);
    status = ith_comm_agree(comm, status);
    return status ? status : ith_comm_allgather(comm, &mine, sizeof mine, c->sizes);
}

/* Sends the packages to rank 0, which adds them to its trace. */
static ith_status collect(ith_comm *comm, cargo *c)
{
    ith_context *context = comm->context;
    int64_t bytes = 0, at = 0, count = 0;
    for (int rank = 0; rank < comm->size; rank++)
        bytes += c->sizes[rank];
    if (comm->rank == 0) {
        c->arrivals = ith_alloc(context, comm->size, sizeof *c->arrivals, "the processes of a trace");
        c->arrived = ith_alloc(context, bytes, 1, "the traces of all processes");
    }
    ith_status status = ith_comm_agree(comm, comm->rank || (c->arrivals && c->arrived) ? ITH_OK : ITH_ERR_MEMORY);
    if (status)
        return status;
    for (int rank = 1; rank < comm->size && comm->rank == 0; at += c->sizes[rank++])
        if (c->sizes[rank])
            c->arrivals[count++] = (ith_transfer){rank, ith_region_of(c->arrived + at, c->sizes[rank])};
    const ith_transfer mine = {0, ith_region_of(c->package, c->sizes[comm->rank])};
    status = ith_comm_exchange(comm, &mine, mine.region.bytes > 0, c->arrivals, count);
    for (int64_t i = 0; i < count && !status; i++)
        status = ith_trace_add(context, c->arrivals[i].region.data, c->arrivals[i].region.bytes);
    return ith_comm_agree(comm, status);
}

ith_status ith_trace_gather(ith_comm *comm)
{
    cargo c = {.owners = NULL};
    if (!comm)
        return ITH_OK;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = gather_owners(comm, &c.owners);
    if (!status)
        status = align(comm, c.owners);
    if (!status)
        status = pack(comm, &c);
    if (!status)
        status = collect(comm, &c);
    ith_free(comm->context, c.arrivals);
    ith_free(comm->context, c.arrived);
    ith_free(comm->context, c.package);
    ith_free(comm->context, c.sizes);
    ith_free(comm->context, c.owners);
    return ith_comm_exit_operation(comm, entered, status);
}
