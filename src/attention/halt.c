/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping an execution (halt.h). A rank that stops sends a number to the other ranks (ith_comm_notify). It consists of
 * the number of the execution and, in the low RANK_BITS bits, of the rank that was cancelled. */
#include "halt.h"

#define RANK_BITS 20
_Static_assert(ITH_MOST_RANKS <= 1 << RANK_BITS, "the number of a rank does not fit into its bits");

static int64_t stop_word(int64_t stamp, int rank)
{
    return stamp << RANK_BITS | rank;
}

static void notify_others(const ith_halt *halt, int64_t stamp)
{
    if (halt->comm && stamp)
        ith_comm_notify(halt->comm, stop_word(stamp, halt->comm->rank));
}

void ith_halt_begin(ith_halt *halt, int64_t stamp)
{
    atomic_store(&halt->stopped, false);
    atomic_store(&halt->stamp, stamp);
}

void ith_halt_end(ith_halt *halt)
{
    atomic_store(&halt->stamp, 0);
}

void ith_halt_cancel(ith_halt *halt)
{
    /* A signal handler may not call the transport, so this sets only a flag. This rank's threads see the flag and
     * notify the other ranks. */
    atomic_store(&halt->cancelled, true);
}

static bool stop(ith_halt *halt, int rank)
{
    atomic_store(&halt->rank, rank);
    atomic_store(&halt->stopped, true);
    return true;
}

bool ith_halt_heard(void *user)
{
    ith_halt *halt = user;
    if (atomic_load_explicit(&halt->stopped, memory_order_relaxed))
        return true;
    const ith_comm *comm = halt->comm;
    int64_t stamp = atomic_load_explicit(&halt->stamp, memory_order_relaxed);
    if (atomic_load_explicit(&halt->cancelled, memory_order_relaxed)) {
        notify_others(halt, stamp);
        return stop(halt, ith_comm_rank(comm));
    }
    if (!comm)
        return false;
    int64_t word = ith_comm_noticed(comm), rank = word & (((int64_t)1 << RANK_BITS) - 1);
    if (stamp && word >> RANK_BITS == stamp && rank < comm->size)
        return stop(halt, (int)rank);
    return ith_comm_failed(comm) && stop(halt, comm->rank);
}

bool ith_halted(ith_halt *halt)
{
    if (!halt)
        return false;
    ith_comm_alive(halt->comm);
    if (ith_halt_heard(halt))
        return true;
    if (!ith_context_interrupted(halt->context))
        return false;
    notify_others(halt, atomic_load(&halt->stamp));
    return stop(halt, ith_comm_rank(halt->comm));
}
