/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a group, built from the transport's exchange. Reductions, gathers and barriers take one round: each
 * rank sends its part to every other rank and combines all parts itself, in rank order, so that every rank gets the
 * same bits. A round takes P^2 messages for P ranks, but only one latency; the messages are small (agreements, norms,
 * records).
 *
 * A communicator of NULL is a group of one rank, whose operations are copies.
 *
 * A failure reaches the caller in three steps: the transport returns a status, `fail` asks the transport for the
 * group's first failure, and its error sentence goes into this rank's context. Wrong arguments end the group
 * (`ith_comm_refuse`), because the other ranks would wait for an operation that never comes. */
#include "comm.h"
#include "comm_arguments.h"
#include "pairs.h"

#include "../base/clock.h"
#include "../base/observer.h"
#include "../base/size.h"
#include "../base/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A rank that waits checks the time limit and cancellation every WAIT_SECONDS, or less often if its process has many
 * ranks, but at least every MOST_WAIT_SECONDS. */
#define WAIT_SECONDS 0.02
#define MOST_WAIT_SECONDS 0.4
/* Up to this many ranks of one process check every WAIT_SECONDS. More ranks check less often, because a thousand
 * threads that wake up so often would leave no time for other work. One rank that hears of a cancellation is enough to
 * end the group. */
#define WAITING_RANKS 32
/* After this rank has ended the group, the next waits return its failure. If this many of them return none, the
 * transport is faulty, and the rank stops waiting. */
#define MOST_ENDS 100
/* A rank stood still if the time between two of its checks exceeds the usual pause by this time or by half of the time
 * limit, whichever is longer (stood_still). */
#define LEAST_STANDSTILL_SECONDS 0.5

/* Tags of operations. Operations of two ranks match if their tags are equal and the sizes of their transfers agree. */
enum {
    TAG_EXCHANGE = 1,
    TAG_GATHER,
    TAG_SUM,
    TAG_MAX,
    TAG_BARRIER,
    TAG_RECORDS,
    TAG_AGREE,
    TAG_BROADCAST /* a broadcast has the tag TAG_BROADCAST + root */
};

/* Records the group's failure in this rank's context and flight record, and returns its status. The error sentence
 * comes from the transport. If the transport gives none, the error sentence names `status`, which a function of the
 * transport has returned, and the group is ended, since other ranks may not know of the failure. */
static ith_status fail(ith_comm *comm, ith_status status)
{
    const char *sentence = NULL;
    char self[ITH_RANK_NAME];
    ith_status ended = comm->transport.failure(comm->transport_state, &sentence);
    if (ended && sentence && *sentence) {
        status = ith_fail(comm->context, ith_failure_of(ended), "%s", sentence);
    } else {
        status = ith_failure_of(status);
        ith_fail(comm->context, status, "%s: the transport %s failed and did not say why (%s)",
                 ith_comm_name_rank(comm, comm->rank, self), comm->transport.name, ith_status_name(status));
        comm->transport.abort(comm->transport_state, status, ith_context_sentence(comm->context));
    }
    ith_flight_fail(comm->flight, status, ith_context_sentence(comm->context));
    return status;
}

/* The failure of an operation on a sub-group whose whole group this rank has left. */
static ith_status fail_left(ith_comm *comm, const char *what)
{
    char self[ITH_RANK_NAME];
    return ith_fail(comm->context, ITH_ERR_ARGUMENT, "%s is in %s of a group that it has left",
                    ith_comm_name_rank(comm, comm->rank, self), what);
}

ith_status ith_comm_refuse(ith_comm *comm, const char *what, const char *reason)
{
    char sentence[256 + ITH_RANK_NAME], self[ITH_RANK_NAME];
    if (!comm)
        return ith_fail(NULL, ITH_ERR_ARGUMENT, "one rank, in %s: %s", what, reason);
    if (ith_comm_has_left(comm))
        return fail_left(comm, what);
    snprintf(sentence, sizeof sentence, "%s, in %s (exchange %lld of group %lld): %s",
             ith_comm_name_rank(comm, comm->rank, self), what, (long long)comm->posted, (long long)comm->number,
             reason);
    comm->transport.abort(comm->transport_state, ITH_ERR_ARGUMENT, sentence);
    return fail(comm, ITH_ERR_ARGUMENT);
}

bool ith_comm_failed(const ith_comm *comm)
{
    const char *sentence;
    return ith_comm_has_left(comm) || comm->transport.failure(comm->transport_state, &sentence) != ITH_OK;
}

/* ---- Exchanges ------------------------------------------------------------------------------------------------- */

/* Copies the regions that this rank sends to itself, so that the transport has only other ranks to serve. Returns the
 * reason why the exchange is refused; NULL if it is accepted. */
static const char *copy_own(int rank, int ranks, const ith_operation *e, char reason[ITH_REASON_BYTES])
{
    const char *wrong = ith_wrong_list("sends", e->sends, e->send_count, ranks, reason);
    if (!wrong)
        wrong = ith_wrong_list("receives", e->receives, e->receive_count, ranks, reason);
    if (wrong)
        return wrong;
    if (e->stream)
        return NULL; /* rows in a device's memory: the caller has copied them (ith_comm_post_device) */
    for (int64_t sent = 0, received = 0;;) {
        const ith_region *from = ith_pairs_next(e->sends, e->send_count, rank, &sent);
        const ith_region *to = ith_pairs_next(e->receives, e->receive_count, rank, &received);
        if (!from && !to)
            return NULL;
        if (!from || !to || ith_region_bytes(from) != ith_region_bytes(to))
            return "the regions that the rank sends to itself differ from the regions that it receives from itself";
        ith_region_copy(to, from);
    }
}

/* Adds the transfers of one direction to an operation's entry in the flight record. direction: 0 for sends, 1 for
 * receives. mark: a number that is new in comm->seen. */
static void count_transfers(ith_comm *comm, ith_flight_operation *entry, int direction, const ith_transfer *list,
                            int64_t count, int64_t mark)
{
    for (int64_t i = 0; i < count; i++) {
        int peer = list[i].peer;
        if (peer == comm->rank)
            continue;
        entry->bytes[direction] += ith_region_bytes(&list[i].region);
        if (comm->seen[peer] == mark)
            continue;
        comm->seen[peer] = mark;
        if (entry->peer_count < ITH_FLIGHT_PEERS)
            entry->peers[entry->peer_count] = ith_comm_world_rank(comm, peer);
        entry->peer_count++;
    }
}

/* Enters an operation that has been posted into the flight record. Returns its number there. */
static int64_t enter_flight(ith_comm *comm, const ith_operation *operation)
{
    ith_flight_operation entry = {.name = operation->what,
                                  .group = comm->number,
                                  .group_size = comm->size,
                                  .group_first = ith_comm_world_rank(comm, 0),
                                  .number = comm->posted};
    count_transfers(comm, &entry, 0, operation->sends, operation->send_count, comm->posted + 1);
    count_transfers(comm, &entry, 1, operation->receives, operation->receive_count, comm->posted + 1);
    return ith_flight_post(comm->flight, &entry);
}

/* Refuses an operation whose request still belongs to an earlier exchange. */
static ith_status refuse_one_more(ith_comm *comm, const char *what, int64_t exchange)
{
    char reason[192];
    snprintf(reason, sizeof reason,
             "exchange %lld is still in flight, and the transport has %lld requests (ith_transport.requests): wait for "
             "it before you post another operation",
             (long long)exchange, (long long)comm->transport.requests);
    return ith_comm_refuse(comm, what, reason);
}

/* An operation without a request. */
static ith_operation describe(int64_t tag, const char *what, const ith_transfer *sends, int64_t send_count,
                              const ith_transfer *receives, int64_t receive_count)
{
    ith_operation operation = ITH_OPERATION_INIT;
    operation.tag = tag, operation.what = what;
    operation.sends = sends, operation.send_count = send_count;
    operation.receives = receives, operation.receive_count = receive_count;
    return operation;
}

/* Checks an operation, copies the regions that this rank sends to itself, sets the operation's request, and gives it to
 * the transport. The lists must stay unchanged until the request is done. Allocates nothing. */
static ith_status post(ith_comm *comm, ith_operation *operation, ith_request **out)
{
    const char *what = operation->what;
    char reason[ITH_REASON_BYTES];
    const char *wrong = out ? copy_own(ith_comm_rank(comm), ith_comm_size(comm), operation, reason) : "out is NULL";
    if (out)
        *out = NULL;
    if (wrong || !comm)
        return wrong ? ith_comm_refuse(comm, what, wrong) : ITH_OK;
    if (ith_comm_has_left(comm))
        return fail_left(comm, what);
    ith_comm *whole = ith_comm_whole(comm);
    ith_request *request = &comm->requests[comm->posted % comm->transport.requests];
    if (request->in_flight)
        return refuse_one_more(comm, what, request->exchange);
    operation->request = request->number;
    /* Only exchanges may end without data: ranks read the results of collectives even if they stop. */
    if (operation->tag == TAG_EXCHANGE)
        operation->unwanted = comm->unwanted, operation->unwanted_user = comm->unwanted_user;
    request->record = enter_flight(comm, operation);
    ith_status status = comm->transport.exchange(comm->transport_state, operation);
    if (status) {
        ith_flight_end(comm->flight, request->record, ITH_FLIGHT_FAILED);
        return fail(comm, status);
    }
    request->in_flight = true;
    request->what = what;
    request->exchange = comm->posted++;
    comm->in_flight++;
    whole->in_flight += whole != comm;
    *out = request;
    return ITH_OK;
}

/* Ends the use of a request that is done or has failed, so that a later operation can use it again. *request becomes
 * NULL. Returns the status of the operation. */
static ith_status retire(ith_comm *comm, ith_request **request, ith_status status)
{
    const char *what = (*request)->what;
    ith_flight_end(comm->flight, (*request)->record, status ? ITH_FLIGHT_FAILED : ITH_FLIGHT_DONE);
    (*request)->in_flight = false;
    *request = NULL;
    comm->in_flight--;
    if (comm->whole)
        comm->whole->in_flight--;
    if (!status)
        return ITH_OK;
    return ith_comm_has_left(comm) ? fail_left(comm, what) : fail(comm, status);
}

/* Ends the group if this rank is interrupted while it waits. Returns whether it ended the group. */
static bool heed_interruption(ith_comm *comm)
{
    ith_context *context = comm->context;
    char self[ITH_RANK_NAME];
    if (!ith_context_interrupted(context))
        return false;
    ith_fail(context, ITH_ERR_INTERRUPTED, "%s was stopped on request", ith_comm_name_rank(comm, comm->rank, self));
    ith_observer_say_activity(context, ITH_ERR_INTERRUPTED);
    comm->transport.abort(comm->transport_state, ITH_ERR_INTERRUPTED, ith_context_sentence(context));
    return true;
}

/* Ends the group if two times exceed the time limit: the length of this wait, which began at `since`, and the time
 * since a rank that it depends on last gave a sign of life. A rank that computes gives signs of life, so it may take
 * longer than the limit. Returns whether it ended the group. */
static bool check_time(ith_comm *comm, const ith_request *request, double since)
{
    const ith_transport *t = &comm->transport;
    double limit = comm->timeout_seconds, now = ith_clock_seconds();
    char self[ITH_RANK_NAME], who[ITH_RANK_NAME] = "other ranks", sentence[256 + 2 * ITH_RANK_NAME];
    int rank = -1;
    if (limit <= 0 || now < since + limit)
        return false;
    if (t->silence && t->silence(comm->transport_state, request->number, &rank) < limit)
        return false;
    if (rank >= 0 && rank < comm->size)
        ith_comm_name_rank(comm, rank, who);
    snprintf(sentence, sizeof sentence,
             "%s waited %.3g s for %s in %s (exchange %lld of group %lld): no sign of life for %.3g s "
             "(ith_comm_set_timeout)",
             ith_comm_name_rank(comm, comm->rank, self), now - since, who, request->what, (long long)request->exchange,
             (long long)comm->number, limit);
    t->abort(comm->transport_state, ITH_ERR_TIMEOUT, sentence);
    return true;
}

/* Refuses a request of another communicator, and a request that is no longer in flight. */
static ith_status check_request(ith_comm *comm, const ith_request *request)
{
    const ith_request *first = comm->requests;
    if (request >= first && request < first + comm->transport.requests && request->in_flight)
        return ITH_OK;
    return ith_fail(comm->context, ITH_ERR_ARGUMENT,
                    "the request is not in flight on this communicator: it is gone when its operation has ended");
}

ith_status ith_comm_test(ith_comm *comm, ith_request **request, bool *done)
{
    if (!request || !done)
        return ith_fail(comm ? comm->context : NULL, ITH_ERR_ARGUMENT, "request or done is NULL");
    *done = !comm || !*request;
    if (*done)
        return ITH_OK;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = check_request(comm, *request);
    if (!status) {
        status = ITH_ERR_ARGUMENT;
        if (!ith_comm_has_left(comm))
            status = comm->transport.wait(comm->transport_state, (*request)->number, 0, done);
        if (status || *done)
            status = retire(comm, request, status);
    }
    return ith_comm_exit_operation(comm, entered, status);
}

/* The seconds between two checks of a rank that waits. */
static double pause_of(const ith_comm *comm)
{
    const ith_comm *whole = comm->whole ? comm->whole : comm;
    double pause = WAIT_SECONDS;
    if (whole->one_process && whole->size > WAITING_RANKS)
        pause = fmin(WAIT_SECONDS * whole->size / WAITING_RANKS, MOST_WAIT_SECONDS);
    return comm->timeout_seconds > 0 ? fmin(comm->timeout_seconds, pause) : pause;
}

/* Whether `seconds`, the time since this rank's last check, is so long that its process was stopped or its machine
 * slept. The other ranks may have stood still too, so their silence in this time does not count. */
static bool stood_still(const ith_comm *comm, double seconds, double pause)
{
    return seconds > pause + fmax(comm->timeout_seconds / 2, LEAST_STANDSTILL_SECONDS);
}

/* Waits until a request is done or has failed. */
static ith_status wait_for(ith_comm *comm, const ith_request *request)
{
    ith_status status = ITH_OK;
    bool done = false;
    int ends = 0;
    double since = ith_clock_seconds(), looked = since;
    double pause = fmin(WAIT_SECONDS, pause_of(comm));
    if (ith_comm_has_left(comm))
        return ITH_ERR_ARGUMENT;
    while (!status && !done) {
        status = comm->transport.wait(comm->transport_state, request->number, pause, &done);
        if (status || done)
            break;
        if (comm->unwanted) /* a rank that was cancelled notifies the others here while it waits */
            comm->unwanted(comm->unwanted_user);
        const bool interrupted = heed_interruption(comm);
        const double now = ith_clock_seconds();
        if (stood_still(comm, now - looked, pause))
            since = now;
        looked = now;
        pause = fmin(2 * pause, pause_of(comm));
        const bool late = check_time(comm, request, since);
        if ((interrupted || late) && ++ends > MOST_ENDS)
            status = interrupted ? ITH_ERR_INTERRUPTED : ITH_ERR_TIMEOUT;
    }
    return status;
}

ith_status ith_comm_wait(ith_comm *comm, ith_request **request)
{
    if (!comm || !request || !*request)
        return ITH_OK;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = check_request(comm, *request);
    if (!status) {
        double traced = ith_trace_begin(comm->context);
        status = wait_for(comm, *request);
        ith_trace_end(comm->context, traced, (*request)->what, ITH_TRACE_WAIT);
        status = retire(comm, request, status);
    }
    return ith_comm_exit_operation(comm, entered, status);
}

ith_status ith_comm_post(ith_comm *comm, const ith_transfer *sends, int64_t send_count, const ith_transfer *receives,
                         int64_t receive_count, ith_request **out)
{
    return ith_comm_post_device(comm, sends, send_count, receives, receive_count, NULL, out);
}

ith_status ith_comm_post_device(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                                const ith_transfer *receives, int64_t receive_count, void *stream, ith_request **out)
{
    ith_operation operation = describe(TAG_EXCHANGE, "an exchange", sends, send_count, receives, receive_count);
    bool entered = ith_comm_enter_operation(comm);
    operation.stream = stream;
    return ith_comm_exit_operation(comm, entered, post(comm, &operation, out));
}

ith_status ith_comm_exchange(ith_comm *comm, const ith_transfer *sends, int64_t send_count,
                             const ith_transfer *receives, int64_t receive_count)
{
    ith_request *request = NULL;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = ith_comm_post(comm, sends, send_count, receives, receive_count, &request);
    if (!status)
        status = ith_comm_wait(comm, &request);
    return ith_comm_exit_operation(comm, entered, status);
}

/* ---- Collectives ----------------------------------------------------------------------------------------------- */

/* Posts `sends` sends, which are at the beginning of comm->transfers, and `receives` receives, which are at the
 * beginning of its second half. Waits for all of them. */
static ith_status finish(ith_comm *comm, int64_t tag, const char *what, int64_t sends, int64_t receives)
{
    ith_operation operation = describe(tag, what, comm->transfers, sends, comm->transfers + comm->size, receives);
    ith_request *request = NULL;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = post(comm, &operation, &request);
    if (!status)
        status = ith_comm_wait(comm, &request);
    return ith_comm_exit_operation(comm, entered, status);
}

/* One round: each rank sends the bytes at `mine` to every rank, and receives the bytes of each rank at all + rank *
 * bytes. */
static ith_status gather(ith_comm *comm, int64_t tag, const char *what, const void *mine, int64_t bytes, void *all)
{
    for (int rank = 0; rank < comm->size; rank++) {
        comm->transfers[rank] = (ith_transfer){rank, ith_region_of(mine, bytes)};
        comm->transfers[comm->size + rank] =
            (ith_transfer){rank, ith_region_of(all ? (char *)all + rank * bytes : NULL, bytes)};
    }
    return finish(comm, tag, what, comm->size, comm->size);
}

ith_status ith_comm_allgather(ith_comm *comm, const void *mine, int64_t bytes, void *all)
{
    char reason[ITH_REASON_BYTES];
    const char *wrong = ith_wrong_number("bytes", bytes, ith_comm_size(comm), reason);
    if (!wrong)
        wrong = ith_wrong_memory("mine", mine, "bytes", bytes, reason);
    if (!wrong)
        wrong = ith_wrong_memory("all", all, "bytes", bytes, reason);
    if (wrong)
        return ith_comm_refuse(comm, "an all-gather", wrong);
    if (comm)
        return gather(comm, TAG_GATHER, "an all-gather", mine, bytes, all);
    if (bytes > 0)
        memcpy(all, mine, (size_t)bytes);
    return ITH_OK;
}

/* values[i] = the sum or maximum of all[rank][i] over the ranks, in rank order. */
static void reduce(const ith_comm *comm, float *values, int64_t count, ith_reduce operation)
{
    const float *all = comm->gathered;
    for (int64_t i = 0; i < count; i++) {
        float result = all[i];
        for (int rank = 1; rank < comm->size; rank++) {
            float value = all[rank * count + i];
            if (operation == ITH_REDUCE_SUM)
                result += value;
            else if (value > result || isnan(value))
                result = value;
        }
        values[i] = result;
    }
}

/* Reduces comm->piece values at a time, so that the memory for the values of all ranks has a fixed size. */
ith_status ith_comm_allreduce(ith_comm *comm, float *values, int64_t count, ith_reduce operation)
{
    char reason[ITH_REASON_BYTES];
    const char *wrong = ith_wrong_number("count", count, sizeof *values, reason);
    if (!wrong)
        wrong = ith_wrong_memory("values", values, "count", count, reason);
    if (!wrong && operation != ITH_REDUCE_SUM && operation != ITH_REDUCE_MAX)
        wrong = ith_because(reason, "operation is %d, and is no ith_reduce", (int)operation);
    if (wrong)
        return ith_comm_refuse(comm, "an all-reduce", wrong);
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = ITH_OK;
    int64_t done = 0;
    do {
        int64_t piece = ith_min64(count - done, comm ? comm->piece : count);
        float *part = count ? values + done : NULL;
        if (comm)
            status = gather(comm, operation == ITH_REDUCE_SUM ? TAG_SUM : TAG_MAX, "an all-reduce", part,
                            piece * (int64_t)sizeof(float), comm->gathered);
        if (comm && !status)
            reduce(comm, part, piece, operation);
        done += piece;
    } while (!status && done < count);
    return ith_comm_exit_operation(comm, entered, status);
}

ith_status ith_comm_broadcast(ith_comm *comm, void *data, int64_t bytes, int root)
{
    char reason[ITH_REASON_BYTES];
    const char *wrong = ith_wrong_number("bytes", bytes, 1, reason);
    if (!wrong)
        wrong = ith_wrong_memory("data", data, "bytes", bytes, reason);
    if (!wrong && (root < 0 || root >= ith_comm_size(comm)))
        wrong = ith_because(reason, "root is %d, and the group has ranks 0 to %d", root, ith_comm_size(comm) - 1);
    if (wrong)
        return ith_comm_refuse(comm, "a broadcast", wrong);
    if (!comm)
        return ITH_OK;
    int64_t sends = 0, receives = comm->rank != root;
    comm->transfers[comm->size] = (ith_transfer){root, ith_region_of(data, bytes)};
    for (int rank = 0; rank < comm->size && comm->rank == root; rank++)
        if (rank != root)
            comm->transfers[sends++] = (ith_transfer){rank, ith_region_of(data, bytes)};
    return finish(comm, TAG_BROADCAST + root, "a broadcast", sends, receives);
}

ith_status ith_comm_barrier(ith_comm *comm)
{
    return comm ? gather(comm, TAG_BARRIER, "a barrier", NULL, 0, NULL) : ITH_OK;
}

/* Every rank gets the status of every rank. If ranks have failed, the lowest of them then sends its error sentence. */
ith_status ith_comm_agree(ith_comm *comm, ith_status mine)
{
    if (!comm)
        return mine;
    int32_t own = mine, *all = comm->gathered;
    int failed = 0;
    bool entered = ith_comm_enter_operation(comm);
    ith_status status = gather(comm, TAG_AGREE, "an agreement", &own, sizeof own, all);
    while (!status && failed < comm->size && !all[failed])
        failed++;
    if (!status && failed < comm->size) {
        if (failed == comm->rank) {
            memset(comm->said, 0, ITH_COMM_RECORD_BYTES);
            snprintf(comm->said, ITH_COMM_RECORD_BYTES, "%s", ith_context_error(comm->context));
        }
        status = ith_comm_broadcast(comm, comm->said, ITH_COMM_RECORD_BYTES, failed);
        if (!status)
            status =
                ith_fail(comm->context, ith_failure_of(all[failed]), "%.*s", ITH_COMM_RECORD_BYTES - 1, comm->said);
    }
    return ith_comm_exit_operation(comm, entered, status);
}

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

bool ith_comm_shares_memory(const ith_comm *comm)
{
    return comm && comm->one_process;
}

ith_status ith_comm_begin_call(ith_comm *comm, const void *record, int64_t bytes)
{
    const ith_transport *t = &comm->transport;
    memcpy(comm->record, record, (size_t)bytes);
    ith_status status =
        comm->one_process
            ? gather(comm, TAG_RECORDS, "the opening of a call", &comm->record, sizeof comm->record, comm->records)
            : gather(comm, TAG_RECORDS, "the opening of a call", comm->record, ITH_COMM_RECORD_BYTES, comm->records);
    if (!t->share)
        return status;
    if (!status && (status = t->share(comm->transport_state)))
        status = fail(comm, status);
    comm->sharing = !status;
    /* Other ranks may have opened the call and use this rank's memory, so this waits until they no longer do. */
    if (status)
        t->drain(comm->transport_state);
    return status;
}

void ith_comm_unshare(ith_comm *comm)
{
    if (comm->sharing)
        comm->transport.unshare(comm->transport_state);
    comm->sharing = false;
}

/* If the transport tells of a failure of the group, records it, and ends the group: a rank that has stopped for this
 * reason has no results, even if the transport's other functions still succeed. */
static ith_status fail_if_told(ith_comm *comm)
{
    if (ith_comm_has_left(comm) || !ith_comm_failed(comm))
        return ITH_OK;
    ith_status status = fail(comm, ITH_ERR_INTERNAL);
    ith_comm_abort(comm, status);
    return status;
}

ith_status ith_comm_end_call(ith_comm *comm, float *claim)
{
    const ith_transport *t = &comm->transport;
    ith_comm_unshare(comm);
    ith_status status = fail_if_told(comm);
    if (!status)
        status = ith_comm_allreduce(comm, claim, 1, ITH_REDUCE_MAX);
    /* after a successful reduction no rank uses another rank's memory any more, so there is nothing to wait for */
    if (status && t->drain)
        t->drain(comm->transport_state);
    return status;
}

/* ---- From other threads ---------------------------------------------------------------------------------------- */

void ith_comm_alive(ith_comm *comm)
{
    if (!comm)
        return;
    ith_flight_alive(comm->flight);
    if (comm->transport.alive && !ith_comm_has_left(comm))
        comm->transport.alive(comm->transport_state);
}

void ith_comm_notify(ith_comm *comm, int64_t number)
{
    if (comm->transport.notify)
        comm->transport.notify(comm->transport_state, number);
}

int64_t ith_comm_noticed(const ith_comm *comm)
{
    return comm->transport.noticed ? comm->transport.noticed(comm->transport_state) : 0;
}

void ith_comm_abort(ith_comm *comm, ith_status status)
{
    char self[ITH_RANK_NAME], said[ITH_ERROR_BYTES], sentence[ITH_ERROR_BYTES];
    if (!comm || ith_comm_has_left(comm))
        return;
    if (status >= ITH_OK || status < ITH_ERR_INTERNAL)
        status = ITH_ERR_ABORTED;
    ith_context_copy_sentence(comm->context, said);
    ith_comm_name_rank(comm, comm->rank, self);
    if (!said[0] && status == ITH_ERR_MEMORY)
        snprintf(sentence, sizeof sentence, "%s: out of memory", self);
    else if (!said[0])
        snprintf(sentence, sizeof sentence, "%s ended the group (%s)", self, ith_status_name(status));
    else if (comm->one_process || !strncmp(said, "rank ", 5))
        snprintf(sentence, sizeof sentence, "%s", said);
    else
        snprintf(sentence, sizeof sentence, "%s: %.*s", self, ITH_ERROR_BYTES - ITH_RANK_NAME - 3, said);
    comm->transport.abort(comm->transport_state, status, sentence);
}
