/* What is the same for every transport: accessors, operations posted and waited for in one call, agreement.
 * A communicator may be NULL: a group of one rank, whose operations are copies. */
#include "comm.h"

#include "block.h"

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
    if (!status)
        status = ITH_ERR_ABORTED;
    if (!ith_context_error(comm->context)[0])
        ith_fail(comm->context, status, "rank %d ended the group (%s)", comm->rank, ith_status_name(status));
    comm->ops->abort(comm, status, ith_context_error(comm->context));
}

void ith_comm_destroy(ith_comm **comm)
{
    if (comm && *comm)
        (*comm)->ops->destroy(comm);
}

/* What a lone rank sends to itself. */
static ith_status exchange_alone(const ith_transfer *sends, int send_count, const ith_transfer *receives,
                                 int receive_count)
{
    if (send_count != receive_count)
        return ITH_ERR_ARGUMENT;
    for (int i = 0; i < send_count; i++) {
        int64_t bytes = ith_block_bytes(&sends[i].block);
        if (sends[i].peer || receives[i].peer || bytes < 0 || bytes != ith_block_bytes(&receives[i].block))
            return ITH_ERR_ARGUMENT;
    }
    for (int i = 0; i < send_count; i++)
        ith_block_copy(&receives[i].block, &sends[i].block);
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
