/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the driver of CUDA and NCCL on machines without a GPU: it has the functions that the transport nccl and its
 * test call. A stream is a thread that does its operations in order. A communicator connects its processes by Unix
 * sockets, and never blocks the caller. As with NCCL, a send ends when its data are in a buffer, which may be before
 * its other end comes; a receive, or a send for which the buffer is too small, stays on the stream until its other end
 * comes or the communicator is aborted; and a peer that dies is an error of the communicator. */
#include <cuda.h>
#include <nccl.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MOST_MESSAGES = 512, MOST_RANKS = 16, SLOW_CALLS = 3, BUFFER_BYTES = 4 << 20 };

/* ---- Events and streams ------------------------------------------------------------------------------------------ */

struct CUevent_st {
    long recorded, reached; /* number of times that it was recorded, and that a stream has reached it */
};

typedef struct operation operation;
struct operation {
    operation *next;
    void (*run)(operation *self);
    void *a, *b;
    int byte;
    size_t bytes;
};

struct CUstream_st {
    pthread_t thread;
    operation *first, **last;
    bool busy;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
    int dummy;
} context;

static void *stream_main(void *user)
{
    CUstream s = user;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first)
            pthread_cond_wait(&changed, &lock);
        operation *o = s->first;
        s->first = o->next;
        if (!s->first)
            s->last = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&lock);
        o->run(o);
        free(o);
        pthread_mutex_lock(&lock);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

/* Enqueues an operation. The lock is held. */
static void enqueue(CUstream s, operation o)
{
    operation *new = malloc(sizeof o);
    *new = o;
    new->next = NULL;
    *s->last = new;
    s->last = &new->next;
    pthread_cond_broadcast(&changed);
}

static CUresult enqueue_locked(CUstream s, operation o)
{
    pthread_mutex_lock(&lock);
    enqueue(s, o);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static void run_copy(operation *o)
{
    memcpy(o->a, o->b, o->bytes);
}

static void run_fill(operation *o)
{
    memset(o->a, o->byte, o->bytes);
}

static void run_record(operation *o)
{
    CUevent e = o->a;
    pthread_mutex_lock(&lock);
    e->reached = (long)o->bytes > e->reached ? (long)o->bytes : e->reached;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void run_wait(operation *o)
{
    CUevent e = o->a;
    pthread_mutex_lock(&lock);
    while (e->reached < (long)o->bytes)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    (void)result;
    *text = "an error of the stand-in";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    (void)device;
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext current)
{
    (void)current;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext current)
{
    return current == (CUcontext)&context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    CUstream s = calloc(1, sizeof *s);
    (void)flags;
    s->last = &s->first;
    *out = s;
    return pthread_create(&s->thread, NULL, stream_main, s) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(out, flags);
}

CUresult cuStreamDestroy(CUstream s)
{
    (void)s; /* its thread sleeps until the process ends */
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream s, CUcontext *out)
{
    (void)s;
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream s)
{
    pthread_mutex_lock(&lock);
    while (s->first || s->busy)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent e)
{
    (void)e; /* the memory stays: an operation may still wait for the event */
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    pthread_mutex_lock(&lock);
    enqueue(s, (operation){.run = run_record, .a = e, .bytes = (size_t)++e->recorded});
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    enqueue(s, (operation){.run = run_wait, .a = e, .bytes = (size_t)e->recorded});
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent e)
{
    pthread_mutex_lock(&lock);
    bool done = e->reached >= e->recorded;
    pthread_mutex_unlock(&lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    *out = (CUdeviceptr)calloc(1, bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocHost(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr memory)
{
    free((void *)memory);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream s)
{
    return enqueue_locked(s, (operation){.run = run_copy, .a = (void *)target, .b = (void *)source, .bytes = bytes});
}

CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream s)
{
    return enqueue_locked(s, (operation){.run = run_copy, .a = target, .b = (void *)source, .bytes = bytes});
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char byte, size_t bytes, CUstream s)
{
    return enqueue_locked(s, (operation){.run = run_fill, .a = (void *)target, .byte = byte, .bytes = bytes});
}

/* ---- Communicators ----------------------------------------------------------------------------------------------- */

/* Data on their way to a peer, in a ring: they have left the caller's memory, and wait for room in the socket. */
typedef struct buffer {
    size_t first, count;
    char data[BUFFER_BYTES];
} buffer;

struct ncclComm {
    int rank, size, listener;
    int sockets[MOST_RANKS];
    buffer *buffers[MOST_RANKS]; /* one for each peer; the lock protects them */
    char name[NCCL_UNIQUE_ID_BYTES];
    atomic_int state, slow; /* the result of the last call; number of queries for which it stays in progress */
    atomic_bool aborted, finalized;
    atomic_size_t buffered; /* bytes in all buffers */
};

typedef struct message {
    ncclComm_t comm;
    CUstream stream;
    bool sends;
    int peer;
    char *data;
    size_t left;
} message;

typedef struct batch {
    int count;
    message list[MOST_MESSAGES];
} batch;

static _Thread_local struct {
    int depth;
    batch *batch;
} group;

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "fake-nccl-%016llx", (unsigned long long)number);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited" : "another error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

static socklen_t set_address(struct sockaddr_un *a, const char *name, int rank)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%.60s-%d", name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Moves data from the buffers to the sockets. Returns whether any data moved. The lock is held. */
static bool carry(ncclComm_t c)
{
    bool moved = false;
    for (int peer = 0; peer < c->size; peer++) {
        buffer *b = c->buffers[peer];
        if (!b || !b->count)
            continue;
        const size_t run = b->count < BUFFER_BYTES - b->first ? b->count : BUFFER_BYTES - b->first;
        ssize_t count = send(c->sockets[peer], b->data + b->first, run, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && !would_block())
            atomic_store(&c->state, ncclRemoteError);
        if (count <= 0)
            continue;
        b->first = (b->first + (size_t)count) % BUFFER_BYTES;
        b->count -= (size_t)count;
        atomic_fetch_sub(&c->buffered, (size_t)count);
        moved = true;
    }
    return moved;
}

/* Carries data until the communicator ends. */
static void carry_all(ncclComm_t c)
{
    pthread_mutex_lock(&lock);
    while (!c->aborted && c->state != ncclRemoteError && !(c->finalized && !c->buffered)) {
        if (!c->buffered) {
            pthread_cond_wait(&changed, &lock);
        } else if (!carry(c)) {
            pthread_mutex_unlock(&lock);
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            pthread_mutex_lock(&lock);
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Connects to lower ranks, accepts connections of higher ranks, and then carries data to them. */
static void *init_main(void *user)
{
    ncclComm_t c = user;
    struct sockaddr_un address;
    for (int peer = 0; peer < c->rank; peer++) {
        socklen_t bytes = set_address(&address, c->name, peer);
        c->sockets[peer] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (connect(c->sockets[peer], (struct sockaddr *)&address, bytes) && !c->aborted)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        (void)!write(c->sockets[peer], &c->rank, sizeof c->rank);
    }
    for (int missing = c->size - 1 - c->rank; missing > 0 && !c->aborted;) {
        int socket = -1, peer = -1;
        if (poll(&(struct pollfd){.fd = c->listener, .events = POLLIN}, 1, 10) > 0)
            socket = accept(c->listener, NULL, NULL);
        if (socket < 0)
            continue;
        if (read(socket, &peer, sizeof peer) == sizeof peer)
            c->sockets[peer] = socket, missing--;
    }
    atomic_store(&c->state, ncclSuccess);
    carry_all(c);
    return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ncclComm_t c = calloc(1, sizeof *c);
    struct sockaddr_un address;
    pthread_t thread;
    if (config->blocking || size > MOST_RANKS)
        return ncclInvalidArgument;
    *out = c;
    c->rank = rank, c->size = size, c->state = ncclInProgress;
    memcpy(c->name, id.internal, sizeof c->name);
    for (int peer = 0; peer < size; peer++)
        c->buffers[peer] = peer == rank ? NULL : calloc(1, sizeof *c->buffers[peer]);
    socklen_t bytes = set_address(&address, c->name, rank);
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(c->listener, (struct sockaddr *)&address, bytes) || listen(c->listener, size) ||
        pthread_create(&thread, NULL, init_main, c))
        return ncclSystemError;
    pthread_detach(thread);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    *state = (ncclResult_t)atomic_load(&c->state);
    if (*state == ncclSuccess && atomic_load(&c->slow) > 0) {
        atomic_fetch_sub(&c->slow, 1);
        *state = ncclInProgress;
    } else if (*state == ncclSuccess && atomic_load(&c->finalized) && atomic_load(&c->buffered)) {
        *state = ncclInProgress;
    }
    return ncclSuccess;
}

/* Sets a mark of a communicator, and wakes its thread. */
static void set_mark(atomic_bool *mark)
{
    pthread_mutex_lock(&lock);
    atomic_store(mark, true);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    c->slow = SLOW_CALLS;
    set_mark(&c->finalized);
    return ncclInProgress;
}

/* The memory stays, because a stream may still use it. */
ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    for (int i = 0; i < c->size; i++)
        if (i != c->rank)
            close(c->sockets[i]);
    close(c->listener);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    set_mark(&c->aborted);
    return ncclInProgress;
}

ncclResult_t ncclGroupStart(void)
{
    if (group.depth++ == 0)
        group.batch = calloc(1, sizeof *group.batch);
    return ncclSuccess;
}

static ncclResult_t add(bool sends, const void *data, size_t bytes, int peer, ncclComm_t c, CUstream s)
{
    if (peer < 0 || peer >= c->size || peer == c->rank || !bytes || c->state != ncclSuccess || c->slow ||
        group.batch->count == MOST_MESSAGES)
        return ncclInvalidUsage;
    group.batch->list[group.batch->count++] = (message){c, s, sends, peer, (char *)data, bytes};
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
    return type == ncclInt8 ? add(true, data, count, peer, c, s) : ncclInvalidArgument;
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
    return type == ncclInt8 ? add(false, data, count, peer, c, s) : ncclInvalidArgument;
}

/* Copies bytes of a message into the buffer of its peer, as far as there is room. */
static size_t put(message *m)
{
    buffer *b = m->comm->buffers[m->peer];
    pthread_mutex_lock(&lock);
    const size_t end = (b->first + b->count) % BUFFER_BYTES, room = BUFFER_BYTES - b->count;
    size_t bytes = m->left < room ? m->left : room;
    bytes = bytes < BUFFER_BYTES - end ? bytes : BUFFER_BYTES - end;
    memcpy(b->data + end, m->data, bytes);
    b->count += bytes;
    atomic_fetch_add(&m->comm->buffered, bytes);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* Takes the bytes of a message that have arrived. */
static size_t take(message *m)
{
    ssize_t count = recv(m->comm->sockets[m->peer], m->data, m->left, MSG_DONTWAIT);
    if (count > 0)
        return (size_t)count;
    if (count == 0 || !would_block())
        atomic_store(&m->comm->state, ncclRemoteError);
    return 0;
}

/* Moves some bytes of the first message to or from each peer. Returns the number of messages that are left. */
static int move(batch *b)
{
    int left = 0;
    for (int i = 0; i < b->count; i++) {
        message *m = &b->list[i];
        bool behind = false;
        for (int k = 0; k < i; k++)
            behind |= b->list[k].left && b->list[k].sends == m->sends && b->list[k].peer == m->peer;
        if (m->left && !behind) {
            const size_t bytes = m->sends ? put(m) : take(m);
            m->data += bytes, m->left -= bytes;
        }
        left += m->left > 0;
    }
    return left;
}

static void run_batch(operation *o)
{
    batch *b = o->a;
    while (move(b) && !b->list[0].comm->aborted)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    free(b);
}

ncclResult_t ncclGroupEnd(void)
{
    batch *b = group.batch;
    if (--group.depth > 0)
        return ncclSuccess;
    group.batch = NULL;
    if (!b->count) {
        free(b);
        return ncclSuccess;
    }
    b->list[0].comm->slow = SLOW_CALLS;
    enqueue_locked(b->list[0].stream, (operation){.run = run_batch, .a = b});
    return ncclInProgress;
}
