/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of device memory over NCCL (nccl_state.h).
 *
 *     caller's stream   ... work | begin .........................| waits for end | later work ...
 *     state's stream               waits for begin | sends and receives | end
 *
 * `exchange` enqueues all of this, so that the device needs the host no more. The records of the inner exchange come
 * later; if they contradict this rank's lists, the group ends and the communicator is aborted, which ends its kernels.
 * NCCL writes to regions that this rank has posted and to no other memory, whatever the others send.
 *
 * A communicator of NCCL is made by all ranks together, so the first exchange of device memory of a group returns when
 * all ranks have posted it. Its records go to all ranks, and one of them carries the id of the communicator. One byte
 * then goes from each rank to each other one: NCCL makes connections when they are first used, and later exchanges must
 * not wait for that. */
#include "nccl_state.h"

#include "../wire/watch.h"

#include <limits.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define SLICE_SECONDS 0.05 /* the longest time between two looks at the time limit during a wait */
#define NAP_NS 50000

enum { YIELDS = 100 };

#define DEVICE_TAG ((int64_t)1 << 62) /* in the tags of inner exchanges that carry records */

/* Between two looks at the device or at NCCL: first gives way to other threads, then sleeps. */
static void nap(int *naps)
{
    if ((*naps)++ < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* Makes the device current on this thread. Returns false if the group has failed. */
static bool enter(nccl_state *s)
{
    nccl_world *w = s->world;
    pthread_mutex_lock(&w->lock);
    if (!w->stopped && ith_cuda_driver.push_context(w->context) == CUDA_SUCCESS)
        return true;
    pthread_mutex_unlock(&w->lock);
    return false;
}

static void leave(nccl_state *s)
{
    CUcontext before = NULL;
    ith_cuda_driver.pop_context(&before);
    pthread_mutex_unlock(&s->world->lock);
}

/* The failure after `enter` has returned false. */
static ith_status refused(nccl_state *s)
{
    ith_status status = ith_nccl_settle(s->world);
    return status ? status : ith_nccl_fail(s, ITH_ERR_IO, "the context of the device cannot be made current");
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

/* Adds up the transfers of a list by peer. Returns false if a region is not one run of memory. */
static bool count(const nccl_state *s, nccl_record *records, const ith_transfer *list, int64_t number)
{
    memset(records, 0, (size_t)s->size * sizeof *records);
    for (int64_t i = 0; i < number; i++) {
        nccl_record *to = &records[list[i].peer];
        int64_t bytes = ith_region_bytes(&list[i].region);
        void *data;
        if (list[i].peer == s->rank)
            continue;
        if (bytes > 0 && ith_region_stretch(&list[i].region, 0, &data) != bytes)
            return false;
        to->regions++;
        to->bytes += bytes;
        to->sizes = (to->sizes ^ (uint64_t)bytes) * 1099511628211u + 1;
    }
    return true;
}

/* Adds a message of the inner exchange. Returns the number of messages. */
static int64_t add(ith_transfer *list, int64_t number, int peer, void *data, size_t bytes)
{
    list[number] = (ith_transfer){peer, {.data = data, .count = {1, 1}, .bytes = (int64_t)bytes}};
    return number + 1;
}

/* Posts the inner exchange. first: with records of all ranks, and the id. */
static ith_status post_records(nccl_state *s, nccl_request *r, bool first)
{
    ith_operation inner = r->posted;
    inner.sends = r->sends, inner.receives = r->receives;
    inner.send_count = inner.receive_count = 0;
    inner.tag ^= DEVICE_TAG;
    inner.unwanted = NULL, inner.stream = NULL;
    memset(r->in, 0, (size_t)s->size * sizeof *r->in);
    for (int peer = 0; peer < s->size; peer++) {
        if (peer == s->rank)
            continue;
        if (first || r->out[peer].regions)
            inner.send_count = add(r->sends, inner.send_count, peer, &r->out[peer], sizeof(nccl_record));
        if (first || r->expected[peer].regions)
            inner.receive_count = add(r->receives, inner.receive_count, peer, &r->in[peer], sizeof(nccl_record));
        if (first && s->rank == 0)
            inner.send_count = add(r->sends, inner.send_count, peer, &s->id, sizeof s->id);
    }
    if (first && s->rank > 0)
        inner.receive_count = add(r->receives, inner.receive_count, 0, &s->id, sizeof s->id);
    r->awaiting = !s->world->inner->exchange(s->inner, &inner);
    return r->awaiting ? ITH_OK : ith_nccl_settle(s->world);
}

/* ---- Calls that do not block ------------------------------------------------------------------------------------- */

/* Looks at the communicator. Returns the failure that ended the group, if one did. */
static ith_status look(nccl_state *s, nccl_request *r, ncclResult_t *state)
{
    ncclResult_t result = ncclSuccess;
    *state = ncclInternalError;
    s->world->inner->alive(s->inner);
    ith_status status = ith_nccl_settle(s->world);
    if (status)
        return status;
    if (!enter(s))
        return refused(s);
    result = ith_nccl.get_async_error(s->comm, state);
    leave(s);
    status = ith_nccl_check(s, r, result, "ncclCommGetAsyncError");
    return status ? status : ith_nccl_check(s, r, *state, "NCCL");
}

/* Waits until NCCL has completed its last call. If that takes long, the failure names the call. */
static ith_status finish_call(nccl_state *s, nccl_request *r, ncclResult_t result, const char *call)
{
    const double end = ith_watch_now() + s->world->seconds;
    char name[NCCL_NAME], operation[NCCL_OPERATION];
    int naps = 0;
    ith_status status = ith_nccl_check(s, r, result, call);
    while (!status && result == ncclInProgress) {
        nap(&naps);
        status = look(s, r, &result);
        if (!status && result == ncclInProgress && ith_watch_now() > end)
            status =
                ith_nccl_fail(s, ITH_ERR_TIMEOUT, "%s of %s did not end within %.3g s in %s", call,
                              ith_nccl_name(s, s->rank, name), s->world->seconds, ith_nccl_operation(s, r, operation));
    }
    return status;
}

/* ---- The first exchange ------------------------------------------------------------------------------------------ */

/* Takes the device of the caller's stream, which is the device of all groups of this rank. */
static ith_status use_device(nccl_state *s, nccl_request *r)
{
    nccl_world *w = s->world;
    CUcontext context = NULL;
    char sentence[512], operation[NCCL_OPERATION];
    if (!ith_cuda_driver_load(sentence, sizeof sentence) || !ith_nccl_load(sentence, sizeof sentence))
        return ith_nccl_fail(s, ITH_ERR_UNSUPPORTED, "%s", sentence);
    ith_status status =
        ith_nccl_check_cuda(s, r, ith_cuda_driver.stream_get_context(r->posted.stream, &context), "cuStreamGetCtx");
    if (status)
        return status;
    pthread_mutex_lock(&w->lock);
    if (!w->context)
        w->context = context;
    bool same = w->context == context;
    pthread_mutex_unlock(&w->lock);
    return same ? ITH_OK
                : ith_nccl_fail(s, ITH_ERR_ARGUMENT,
                                "the stream in %s belongs to another device than the streams before: all exchanges of "
                                "a rank use one device",
                                ith_nccl_operation(s, r, operation));
}

/* Makes the state's stream and events on the device. The context is current. */
static CUresult make_objects(nccl_state *s)
{
    const cuda_functions *cu = &ith_cuda_driver;
    CUresult result = cu->create_event(&s->drained, CU_EVENT_DISABLE_TIMING);
    /* The driver takes the highest priority that there is. */
    if (result == CUDA_SUCCESS)
        result = cu->create_stream(&s->stream, CU_STREAM_NON_BLOCKING, INT_MIN / 2);
    for (int64_t i = 0; i < s->world->inner->requests && result == CUDA_SUCCESS; i++) {
        result = cu->create_event(&s->requests[i].begin, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS)
            result = cu->create_event(&s->requests[i].end, CU_EVENT_DISABLE_TIMING);
    }
    return result == CUDA_SUCCESS ? cu->allocate(&s->greeting, 2) : result;
}

/* Waits until all ranks have posted the exchange. */
static ith_status await_records(nccl_state *s, nccl_request *r)
{
    const double start = ith_watch_now(), limit = s->world->seconds;
    char names[2][NCCL_NAME], operation[NCCL_OPERATION];
    ith_status status = ITH_OK;
    while (!status && r->awaiting) {
        int late = -1;
        status = ith_nccl_take_records(s, r, SLICE_SECONDS);
        if (status || !r->awaiting || ith_watch_now() < start + limit ||
            s->world->inner->silence(s->inner, r->posted.request, &late) < limit)
            continue;
        status = ith_nccl_fail(s, ITH_ERR_TIMEOUT,
                               "%s waited %.3g s for %s in %s, the first exchange of device memory in its group, which "
                               "all ranks begin together",
                               ith_nccl_name(s, s->rank, names[0]), ith_watch_now() - start,
                               late >= 0 ? ith_nccl_name(s, late, names[1]) : "other ranks",
                               ith_nccl_operation(s, r, operation));
    }
    return status;
}

/* Makes the communicator of NCCL, together with all other ranks. */
static ith_status make_communicator(nccl_state *s, nccl_request *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (!enter(s))
        return refused(s);
    ncclResult_t result = ith_nccl.init_rank(&s->comm, s->size, s->id, s->rank, &config);
    leave(s);
    return finish_call(s, r, result, "ncclCommInitRankConfig");
}

/* Enqueues a byte to and from each rank, and `drained` behind them. */
static ith_status enqueue_greetings(nccl_state *s, nccl_request *r)
{
    ncclResult_t result = ncclSuccess;
    CUresult recorded;
    if (!enter(s))
        return refused(s);
    ith_nccl.group_start();
    for (int peer = 0; peer < s->size && !result; peer++) {
        if (peer == s->rank)
            continue;
        result = ith_nccl.send((void *)s->greeting, 1, ncclInt8, peer, s->comm, s->stream);
        if (!result)
            result = ith_nccl.recv((void *)(s->greeting + 1), 1, ncclInt8, peer, s->comm, s->stream);
    }
    ncclResult_t ended = ith_nccl.group_end();
    leave(s);
    ith_status status = finish_call(s, r, result ? result : ended, "ncclGroupEnd");
    if (status)
        return status;
    if (!enter(s))
        return refused(s);
    recorded = ith_cuda_driver.record_event(s->drained, s->stream);
    leave(s);
    return ith_nccl_check_cuda(s, r, recorded, "cuEventRecord");
}

/* Asks whether an event has come to pass on the device. */
static ith_status ask(nccl_state *s, nccl_request *r, CUevent event, bool *done)
{
    if (!enter(s))
        return refused(s);
    CUresult result = ith_cuda_driver.query_event(event);
    leave(s);
    *done = result == CUDA_SUCCESS;
    return ith_nccl_check_cuda(s, r, result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result, "cuEventQuery");
}

/* Exchanges a byte with each rank. */
static ith_status greet(nccl_state *s, nccl_request *r)
{
    const double end = ith_watch_now() + s->world->seconds;
    char name[NCCL_NAME], operation[NCCL_OPERATION];
    int naps = 0;
    bool done = false;
    ith_status status = enqueue_greetings(s, r);
    while (!status && !done) {
        ncclResult_t state;
        nap(&naps);
        status = look(s, r, &state);
        if (!status)
            status = ask(s, r, s->drained, &done);
        if (!status && !done && ith_watch_now() > end)
            status =
                ith_nccl_fail(s, ITH_ERR_TIMEOUT, "%s has no connections of NCCL to all ranks after %.3g s in %s",
                              ith_nccl_name(s, s->rank, name), s->world->seconds, ith_nccl_operation(s, r, operation));
    }
    return status;
}

/* Makes the stream, the communicator and its connections. The records of the exchange are on their way. */
static ith_status connect_group(nccl_state *s, nccl_request *r)
{
    ith_status status = await_records(s, r);
    if (!status && s->size > 1)
        status = make_communicator(s, r);
    if (!status && s->size > 1)
        status = greet(s, r);
    s->connected = !status;
    return status;
}

/* The preparation before the records of the first exchange. */
static ith_status begin_group(nccl_state *s, nccl_request *r)
{
    ncclResult_t result = ncclSuccess;
    if (!enter(s))
        return refused(s);
    CUresult made = make_objects(s);
    if (made == CUDA_SUCCESS && s->rank == 0 && s->size > 1)
        result = ith_nccl.get_unique_id(&s->id);
    leave(s);
    ith_status status = ith_nccl_check_cuda(s, r, made, "the driver of CUDA");
    return status ? status : ith_nccl_check(s, r, result, "ncclGetUniqueId");
}

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

/* Enqueues the regions of a list that are not empty. */
static ncclResult_t enqueue(const nccl_state *s, const ith_transfer *list, int64_t number, bool sends)
{
    ncclResult_t result = ncclSuccess;
    for (int64_t i = 0; i < number && result == ncclSuccess; i++) {
        const ith_transfer *t = &list[i];
        const int64_t bytes = ith_region_bytes(&t->region);
        if (t->peer == s->rank || bytes == 0)
            continue;
        result = sends ? ith_nccl.send(t->region.data, (size_t)bytes, ncclInt8, t->peer, s->comm, s->stream)
                       : ith_nccl.recv(t->region.data, (size_t)bytes, ncclInt8, t->peer, s->comm, s->stream);
    }
    return result;
}

/* Lets the stream `later` wait for the work that `earlier` has now. */
static CUresult order(CUstream earlier, CUevent event, CUstream later)
{
    CUresult result = ith_cuda_driver.record_event(event, earlier);
    return result == CUDA_SUCCESS ? ith_cuda_driver.wait_event(later, event, 0) : result;
}

static ith_status enqueue_exchange(nccl_state *s, nccl_request *r)
{
    const ith_operation *o = &r->posted;
    ncclResult_t result = ncclSuccess;
    if (!enter(s))
        return refused(s);
    CUresult ordered = order(o->stream, r->begin, s->stream);
    if (ordered == CUDA_SUCCESS && s->comm) {
        ith_nccl.group_start();
        result = enqueue(s, o->sends, o->send_count, true);
        if (result == ncclSuccess)
            result = enqueue(s, o->receives, o->receive_count, false);
        ncclResult_t ended = ith_nccl.group_end();
        result = result == ncclSuccess ? ended : result;
    }
    leave(s);
    ith_status status = ith_nccl_check_cuda(s, r, ordered, "cuStreamWaitEvent");
    if (!status && s->comm)
        status = finish_call(s, r, result, "ncclGroupEnd");
    if (status)
        return status;
    if (!enter(s))
        return refused(s);
    ordered = order(s->stream, r->end, o->stream);
    leave(s);
    return ith_nccl_check_cuda(s, r, ordered, "cuStreamWaitEvent");
}

ith_status ith_nccl_post(nccl_state *s, const ith_operation *operation)
{
    nccl_request *r = &s->requests[operation->request];
    char name[NCCL_NAME], text[NCCL_OPERATION];
    const bool first = !s->connected;
    r->posted = *operation;
    r->number = s->posted++;
    r->device = true;
    r->awaiting = false;
    if (!count(s, r->out, operation->sends, operation->send_count) ||
        !count(s, r->expected, operation->receives, operation->receive_count))
        return ith_nccl_fail(s, ITH_ERR_ARGUMENT, "a region of %s in %s is not one run of device memory",
                             ith_nccl_name(s, s->rank, name), ith_nccl_operation(s, r, text));
    ith_status status = use_device(s, r);
    if (!status && first)
        status = begin_group(s, r);
    if (!status)
        status = post_records(s, r, first);
    if (!status && first)
        status = connect_group(s, r);
    return status ? status : enqueue_exchange(s, r);
}

ith_status ith_nccl_await(nccl_state *s, nccl_request *r, double seconds, bool *done)
{
    const double end = ith_watch_now() + seconds;
    ncclResult_t state;
    int naps = 0;
    *done = false;
    for (;;) {
        const double left = end - ith_watch_now();
        ith_status status = ith_nccl_take_records(s, r, left > 0 ? left : 0);
        if (!status && s->comm)
            status = look(s, r, &state);
        if (!status && !r->awaiting)
            status = ask(s, r, r->end, done);
        r->device = !*done;
        if (status || *done || ith_watch_now() >= end)
            return status;
        nap(&naps);
    }
}
