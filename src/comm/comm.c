/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same for every transport: accessors, operations posted and waited for in one call, agreement.
 * A communicator may be NULL: a group of one rank, whose operations are copies. */
#include "comm.h"

#include "region.h"

#include <stdio.h>
#include <string.h>

int ith_comm_rank(const ith_comm *comm)
{
    return comm ? comm->rank : 0;
}

int ith_comm_size(const ith_comm *comm)
{
    return comm ? comm->size : 1;
}

void ith_comm_set_timeout(ith_comm *comm, double seconds)
{
    if (comm)
        comm->timeout_seconds = seconds > 0 ? seconds : 0;
}

void ith_comm_abort(ith_comm *comm, ith_status status)
{
    if (!comm)
        return;
    if (status >= ITH_OK || status < ITH_ERR_INTERNAL)
        status = ITH_ERR_ABORTED;
    if (!ith_context_error(comm->context)[0])
        ith_fail(comm->context, status, "rank %d ended the group (%s)", comm->rank, ith_status_name(status));
    comm->ops->abort(comm, status, ith_context_error(comm->context));
}

/* ---- Life ------------------------------------------------------------------------------------------------------ */

enum { STATE_BUSY = 1, STATE_CLOSED = 2 };

ith_comm *ith_comm_hold(ith_comm *comm)
{
    if (comm)
        atomic_fetch_add_explicit(&comm->holders, 1, memory_order_relaxed);
    return comm;
}

void ith_comm_release(ith_comm *comm)
{
    if (comm && atomic_fetch_sub(&comm->holders, 1) == 1)
        comm->ops->release(comm);
}

static void leave_group(ith_comm *comm)
{
    comm->ops->leave(comm);
    ith_comm_release(comm);
}

void ith_comm_destroy(ith_comm **comm)
{
    if (!comm || !*comm)
        return;
    ith_comm *self = *comm;
    *comm = NULL;
    ith_comm_hold(self); /* a call that ends now may give back the caller's */
    int before = atomic_fetch_or(&self->state, STATE_CLOSED);
    if (!(before & STATE_BUSY)) {
        leave_group(self);
    } else {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "rank %d destroyed its communicator during a call on it", self->rank);
        self->ops->abort(self, ITH_ERR_ABORTED, sentence);
    }
    ith_comm_release(self);
}

ith_status ith_comm_enter(ith_comm *comm, ith_context *context)
{
    int idle = 0;
    if (!comm || atomic_compare_exchange_strong(&comm->state, &idle, STATE_BUSY))
        return ITH_OK;
    if (idle & STATE_CLOSED)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "the plan's communicator was destroyed: the plan can only be destroyed");
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "rank %d's communicator is in another call, on another thread: calls on one follow one another",
                    comm->rank);
}

void ith_comm_exit(ith_comm *comm)
{
    if (comm && atomic_fetch_and(&comm->state, ~STATE_BUSY) & STATE_CLOSED)
        leave_group(comm);
}

void ith_comm_alive(ith_comm *comm)
{
    if (comm)
        comm->ops->alive(comm);
}

bool ith_comm_shares_memory(const ith_comm *comm)
{
    return comm && comm->ops->share;
}

ith_status ith_comm_post(ith_comm *comm, const ith_transfer *sends, int send_count, const ith_transfer *receives,
                         int receive_count, ith_request **out)
{
    return comm->ops->exchange(comm, sends, send_count, receives, receive_count, out);
}

ith_status ith_comm_test(ith_comm *comm, ith_request **request, bool *done)
{
    return comm->ops->test(comm, request, done);
}

ith_status ith_comm_wait(ith_comm *comm, ith_request **request)
{
    return comm->ops->wait(comm, request);
}

/* What a lone rank sends to itself. */
static ith_status exchange_alone(const ith_transfer *sends, int send_count, const ith_transfer *receives,
                                 int receive_count)
{
    if (send_count != receive_count)
        return ITH_ERR_ARGUMENT;
    for (int i = 0; i < send_count; i++) {
        int64_t bytes = ith_region_bytes(&sends[i].region);
        if (sends[i].peer || receives[i].peer || bytes < 0 || bytes != ith_region_bytes(&receives[i].region))
            return ITH_ERR_ARGUMENT;
    }
    for (int i = 0; i < send_count; i++)
        ith_region_copy(&receives[i].region, &sends[i].region);
    return ITH_OK;
}

ith_status ith_comm_exchange(ith_comm *comm, const ith_transfer *sends, int send_count, const ith_transfer *receives,
                             int receive_count)
{
    if (!comm)
        return exchange_alone(sends, send_count, receives, receive_count);
    ith_request *request = NULL;
    ith_status status = comm->ops->exchange(comm, sends, send_count, receives, receive_count, &request);
    return status ? status : comm->ops->wait(comm, &request);
}

ith_status ith_comm_allreduce(ith_comm *comm, float *values, int64_t count, ith_reduce operation)
{
    if (!comm)
        return ITH_OK;
    ith_request *request = NULL;
    ith_status status = comm->ops->allreduce(comm, values, count, operation, &request);
    return status ? status : comm->ops->wait(comm, &request);
}

ith_status ith_comm_allgather(ith_comm *comm, const void *mine, int64_t bytes, void *all)
{
    if (!comm) {
        if (bytes > 0)
            memcpy(all, mine, (size_t)bytes);
        return ITH_OK;
    }
    ith_request *request = NULL;
    ith_status status = comm->ops->allgather(comm, mine, bytes, all, &request);
    return status ? status : comm->ops->wait(comm, &request);
}

ith_status ith_comm_broadcast(ith_comm *comm, void *data, int64_t bytes, int root)
{
    if (!comm)
        return ITH_OK;
    ith_request *request = NULL;
    ith_status status = comm->ops->broadcast(comm, data, bytes, root, &request);
    return status ? status : comm->ops->wait(comm, &request);
}

ith_status ith_comm_barrier(ith_comm *comm)
{
    if (!comm)
        return ITH_OK;
    ith_request *request = NULL;
    ith_status status = comm->ops->barrier(comm, &request);
    return status ? status : comm->ops->wait(comm, &request);
}

ith_status ith_comm_split(ith_comm *comm, int colour, int key, ith_comm **out)
{
    *out = NULL;
    return comm ? comm->ops->split(comm, colour, key, out) : ITH_OK;
}

ith_status ith_comm_begin_call(ith_comm *comm, const void *card, int64_t bytes)
{
    char mine[ITH_COMM_RECORD_BYTES] = {0};
    memcpy(mine, card, (size_t)bytes);
    if (comm->ops->share)
        return comm->ops->share(comm, mine, sizeof mine, comm->records);
    return ith_comm_allgather(comm, mine, sizeof mine, comm->records);
}

ith_status ith_comm_end_call(ith_comm *comm, float *claim)
{
    if (comm->ops->unshare)
        return comm->ops->unshare(comm, claim, 1);
    return ith_comm_allreduce(comm, claim, 1, ITH_REDUCE_MAX);
}

typedef struct verdict {
    ith_status status;
    char sentence[ITH_ERROR_BYTES];
} verdict;

ith_status ith_comm_agree(ith_comm *comm, ith_status mine)
{
    if (!comm)
        return mine;
    /* The lowest rank that failed wins the reduction; nobody failed: 0. */
    float claim = mine ? (float)(comm->size - comm->rank) : 0.0f;
    ith_status status = ith_comm_allreduce(comm, &claim, 1, ITH_REDUCE_MAX);
    if (status || claim == 0.0f)
        return status;
    verdict first = {.status = mine};
    memcpy(first.sentence, ith_context_error(comm->context), sizeof first.sentence);
    status = ith_comm_broadcast(comm, &first, sizeof first, comm->size - (int)claim);
    return status ? status : ith_fail(comm->context, first.status, "%s", first.sentence);
}
