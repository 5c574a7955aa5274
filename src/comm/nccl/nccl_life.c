/* SPDX-License-Identifier: Apache-2.0 */
/* The end of NCCL's communicators (nccl_state.h): after a failure they are aborted, otherwise finalised. */
#include "nccl_state.h"

#include "../wire/watch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define STOP_SECONDS 10.0   /* the longest wait for the device to give up an exchange that was aborted */
#define FINISH_SECONDS 10.0 /* the longest wait for data that are still to leave */

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Waits until the device has done all work of the state's stream. The lock is held, the context is current. */
static void drain(nccl_state *s)
{
    const double end = ith_watch_now() + STOP_SECONDS;
    if (ith_cuda_driver.record_event(s->drained, s->stream) != CUDA_SUCCESS)
        return; /* the device has failed and runs nothing any more */
    while (ith_cuda_driver.query_event(s->drained) == CUDA_ERROR_NOT_READY) {
        s->stuck = ith_watch_now() >= end;
        if (s->stuck)
            return;
        nap();
    }
}

/* Aborts all communicators at once: a kernel of one may wait for a kernel of another. */
static void abort_all(const nccl_world *w)
{
    ith_nccl.group_start();
    for (nccl_state *s = w->states; s; s = s->next) {
        if (s->comm)
            ith_nccl.abort(s->comm);
        s->comm = NULL;
    }
    ith_nccl.group_end();
}

/* Stops NCCL in all groups of this rank. */
static void stop(nccl_world *w)
{
    CUcontext before = NULL;
    pthread_mutex_lock(&w->lock);
    if (!w->stopped && w->context && ith_cuda_driver.push_context(w->context) == CUDA_SUCCESS) {
        abort_all(w);
        for (nccl_state *s = w->states; s; s = s->next)
            if (s->stream && s->drained)
                drain(s);
        ith_cuda_driver.pop_context(&before);
    }
    w->stopped = true;
    pthread_mutex_unlock(&w->lock);
}

ith_status ith_nccl_settle(nccl_world *w)
{
    const char *sentence;
    ith_status status = w->inner->failure(w->whole->inner, &sentence);
    if (status)
        stop(w);
    return status;
}

/* A communicator whose data have been given to NCCL, and which a thread of its own destroys. */
typedef struct farewell {
    ncclComm_t comm;
    CUcontext context; /* of its device, which is otherwise another one for a new thread */
    atomic_bool done;
    atomic_int holders; /* the last one frees it */
} farewell;

static void release(farewell *f)
{
    if (atomic_fetch_sub(&f->holders, 1) == 1)
        free(f);
}

static void *destroy_main(void *user)
{
    farewell *f = user;
    if (ith_cuda_driver.push_context(f->context) == CUDA_SUCCESS)
        ith_nccl.destroy(f->comm);
    atomic_store(&f->done, true);
    release(f);
    return NULL;
}

/* Destroys a communicator. NCCL waits until the other ranks have taken all data, for ever if one is stopped, so this
 * function waits until the time `end` at most. Returns whether the communicator is gone. */
static bool destroy(ncclComm_t comm, CUcontext context, double end)
{
    farewell *f = malloc(sizeof *f);
    pthread_t thread;
    if (!f)
        return false;
    *f = (farewell){.comm = comm, .context = context, .holders = 2};
    if (pthread_create(&thread, NULL, destroy_main, f)) {
        free(f);
        return false;
    }
    pthread_detach(thread);
    while (!atomic_load(&f->done) && ith_watch_now() < end)
        nap();
    bool done = atomic_load(&f->done);
    release(f);
    return done;
}

/* Waits for the end of a call that does not block. Returns whether it has succeeded. The lock is held. */
static bool finish(ncclComm_t comm, ncclResult_t result, double end)
{
    while (result == ncclInProgress && ith_watch_now() < end) {
        nap();
        if (ith_nccl.get_async_error(comm, &result) != ncclSuccess)
            return false;
    }
    return result == ncclSuccess;
}

void ith_nccl_end(nccl_state *s)
{
    const double end = ith_watch_now() + FINISH_SECONDS;
    nccl_world *w = s->world;
    CUcontext before = NULL;
    pthread_mutex_lock(&w->lock);
    if (s->comm && ith_cuda_driver.push_context(w->context) == CUDA_SUCCESS) {
        if (finish(s->comm, ith_nccl.finalize(s->comm), end))
            s->stuck = !destroy(s->comm, w->context, end);
        else
            ith_nccl.abort(s->comm);
        s->comm = NULL;
        ith_cuda_driver.pop_context(&before);
    }
    pthread_mutex_unlock(&w->lock);
}

void ith_nccl_free(nccl_state *s)
{
    nccl_world *w = s->world;
    CUcontext before = NULL;
    ith_nccl_end(s);
    if (!w->context || s->stuck || ith_cuda_driver.push_context(w->context) != CUDA_SUCCESS)
        return;
    for (int64_t i = 0; i < w->inner->requests; i++) {
        if (s->requests[i].begin)
            ith_cuda_driver.destroy_event(s->requests[i].begin);
        if (s->requests[i].end)
            ith_cuda_driver.destroy_event(s->requests[i].end);
    }
    if (s->drained)
        ith_cuda_driver.destroy_event(s->drained);
    if (s->stream)
        ith_cuda_driver.destroy_stream(s->stream);
    if (s->greeting)
        ith_cuda_driver.release(s->greeting);
    ith_cuda_driver.pop_context(&before);
}
