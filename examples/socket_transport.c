/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of socket_transport.h.
 *
 * Two sockets connect each pair of ranks: one for data, one for short messages, which therefore never wait behind
 * data. Both keep the bounds of messages (SOCK_SEQPACKET). A message is sent whole or not at all, so any thread may
 * send a short one without a lock.
 *
 * A receiver asks first. When a rank posts an exchange, it sends MESSAGE_ASK to each rank that it receives from, with
 * the number of the exchange and the sizes that it expects. A rank sends data once it has been asked and has posted the
 * same exchange. Data that arrives therefore always has its place, and sizes are compared before data moves.
 *
 * `pump` does all the work and never blocks. `exchange`, `wait` and `alive` call it. There is no thread: the data of a
 * rank moves only while the rank makes one of these calls. */
#include "socket_transport.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    REQUESTS = ITH_TRANSPORT_LEAST_REQUESTS,
    DATA_BYTES = 1 << 16, /* most bytes of data in one message */
    PIECES = 256,         /* most pieces of memory that one message collects */
    LIFE_NS = 50000000,   /* nanoseconds between two signs of life */
    SLICE_MS = 10         /* a wait looks again after this time: another thread may have moved data */
};

typedef enum message_kind {
    MESSAGE_ASK = 1, /* a rank asks for the data of an exchange */
    MESSAGE_DATA,    /* some data of an exchange */
    MESSAGE_LIFE,    /* a sign of life */
    MESSAGE_NOTICE,  /* the number of socket_notify */
    MESSAGE_END,     /* the group has ended, with a status and a sentence */
    MESSAGE_LEAVE
} message_kind;

/* The head of every message. Data follow the head of a MESSAGE_DATA, and a sentence the head of a MESSAGE_END. */
typedef struct message {
    message_kind kind;
    int status;       /* in MESSAGE_END: the status with which the group ends */
    int64_t group;    /* in MESSAGE_ASK, _DATA and _NOTICE: ith_subgroup.number of the group */
    int64_t request;  /* in MESSAGE_ASK and _DATA: the receiver's index in group.requests */
    int64_t exchange; /* in MESSAGE_ASK: the number of the exchange */
    int64_t tag, regions, bytes;
    uint64_t sizes; /* in MESSAGE_ASK: a hash of the sizes of all regions */
    int64_t notice; /* in MESSAGE_NOTICE: the number of socket_notify */
} message;

/* The data that a rank sends to one other rank, or receives from it, in one exchange. */
typedef struct flow {
    int64_t regions, bytes;
    uint64_t sizes;
    bool open;                  /* some data have not been sent, or received, yet */
    bool asked;                 /* the receiver has asked for the data */
    int64_t request;            /* the receiver's index in group.requests */
    int64_t next, offset, left; /* the current transfer, its bytes that have moved, and all bytes that have not */
} flow;

/* An exchange that this rank has posted. */
typedef struct request {
    bool in_flight;
    int64_t number; /* the number of the exchange in its group: 0, 1, ... */
    ith_operation operation;
    flow *in, *out; /* [size]: the data from each rank of the group, and to each */
    int open;       /* the number of flows in which data are still to move */
} request;

/* This rank's state of one group. */
typedef struct group {
    struct group *next;
    struct world *world;
    int64_t number; /* ith_subgroup.number; 0 for the group of all ranks */
    int rank, size;
    int *members;    /* [size]: the world rank of each member */
    int64_t posted;  /* the number of exchanges posted so far */
    int64_t unasked; /* the first exchange whose MESSAGE_ASKs have not all been sent */
    request requests[REQUESTS];
    message *asks; /* [size][REQUESTS]: unanswered MESSAGE_ASK of each rank's requests; kind 0: none */
    _Atomic int64_t notice;
} group;

/* The two connections to one other rank. */
typedef struct connection {
    int data, control; /* sockets; unused in the entry of the rank itself */
    bool full;         /* the data socket had no room for the last message */
    bool left, gone;   /* whether MESSAGE_LEAVE has come; whether the other end is closed */
    double heard;      /* the time at which its last message was read */
} connection;

/* The state of this process, which all its groups share. */
typedef struct world {
    pthread_mutex_t lock; /* protects everything except atomics and the numbers of sockets */
    int rank, size;
    connection *connections;
    struct pollfd *polls; /* [2 size]: the sockets that sleep_for gives to poll */
    group *groups;
    atomic_int status;       /* not ITH_OK: the group has ended */
    _Atomic int64_t life_ns; /* the time of the last sign of life that was sent */
    char sentence[SOCKET_SENTENCE];
    char buffer[sizeof(message) + DATA_BYTES];
} world;

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static double now(void)
{
    return (double)now_ns() * 1e-9;
}

/* ---- Short messages -------------------------------------------------------------------------------------------- */

/* Sends a short message to a rank. Returns false if the socket has no room now. A message to a rank that has closed its
 * end is dropped. May be called from any thread without the lock, and from a signal handler. */
static bool tell(const world *w, int rank, const message *m, const char *sentence)
{
    struct iovec parts[2] = {{(void *)m, sizeof *m}, {(void *)sentence, sentence ? strlen(sentence) + 1 : 0}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    if (rank == w->rank)
        return true;
    return sendmsg(w->connections[rank].control, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
           (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS);
}

static void tell_all(const world *w, const message *m, const char *sentence)
{
    for (int rank = 0; rank < w->size; rank++)
        tell(w, rank, m, sentence);
}

/* Ends the group with a status and a sentence, and tells all ranks. Does nothing if the group has ended already. */
static void end_group(world *w, ith_status status, const char *format, ...)
{
    va_list arguments;
    if (w->status)
        return;
    va_start(arguments, format);
    vsnprintf(w->sentence, sizeof w->sentence, format, arguments);
    va_end(arguments);
    atomic_store(&w->status, status);
    tell_all(w, &(message){.kind = MESSAGE_END, .status = status}, w->sentence);
}

/* Sends a sign of life to all ranks, unless one was sent less than LIFE_NS ago. */
static void give_life(world *w)
{
    int64_t before = atomic_load(&w->life_ns), time = now_ns();
    if (time - before >= LIFE_NS && atomic_compare_exchange_strong(&w->life_ns, &before, time))
        tell_all(w, &(message){.kind = MESSAGE_LIFE}, NULL);
}

/* ---- Flows ----------------------------------------------------------------------------------------------------- */

/* Sets up the flows of an exchange in one direction, to or from all ranks. Transfers of the rank with itself are left
 * out, because the library has copied them. */
static void open_flows(request *r, flow *flows, const group *g, const ith_transfer *list, int64_t count)
{
    memset(flows, 0, (size_t)g->size * sizeof *flows);
    for (int64_t i = 0; i < count; i++) {
        flow *f = &flows[list[i].peer];
        int64_t bytes = ith_region_bytes(&list[i].region);
        if (list[i].peer == g->rank)
            continue;
        r->open += !f->open;
        f->open = true;
        f->regions++;
        f->bytes += bytes;
        f->left += bytes;
        f->sizes = (f->sizes ^ (uint64_t)bytes) * 1099511628211u + 1;
    }
}

/* Finds the next contiguous piece of memory of a flow, among the transfers with `peer`. Returns its bytes; 0 if there
 * is none left. */
static int64_t next_stretch(flow *f, const ith_transfer *list, int64_t count, int peer, void **data)
{
    for (; f->next < count; f->next++, f->offset = 0) {
        int64_t bytes = list[f->next].peer == peer ? ith_region_stretch(&list[f->next].region, f->offset, data) : 0;
        if (bytes > 0)
            return bytes;
    }
    return 0;
}

static void advance_flow(flow *f, int64_t bytes)
{
    f->offset += bytes;
    f->left -= bytes;
}

static void close_flow(request *r, flow *f)
{
    f->open = false;
    r->open--;
}

/* Sends one message with data to a peer. Returns false if the socket has no room. */
static bool send_data(const group *g, request *r, int peer)
{
    flow *out = &r->out[peer], before = *out;
    struct iovec pieces[PIECES + 1];
    message m = {.kind = MESSAGE_DATA, .group = g->number, .request = out->request};
    int count = 1;
    pieces[0] = (struct iovec){&m, sizeof m};
    while (count <= PIECES && m.bytes < DATA_BYTES) {
        void *data = NULL;
        int64_t bytes = next_stretch(out, r->operation.sends, r->operation.send_count, peer, &data);
        if (bytes == 0)
            break;
        bytes = bytes < DATA_BYTES - m.bytes ? bytes : DATA_BYTES - m.bytes;
        pieces[count++] = (struct iovec){data, (size_t)bytes};
        advance_flow(out, bytes);
        m.bytes += bytes;
    }
    struct msghdr header = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
    if (sendmsg(g->world->connections[g->members[peer]].data, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        *out = before;
        return false;
    }
    if (out->left == 0)
        close_flow(r, out);
    return true;
}

static group *find_group(world *w, int64_t number)
{
    group *g = w->groups;
    while (g && g->number != number)
        g = g->next;
    return g;
}

static int find_member(const group *g, int rank)
{
    int member = 0;
    while (member < g->size && g->members[member] != rank)
        member++;
    return member;
}

/* Copies the data of a message to the regions of this rank's request. */
static void take_data(world *w, int rank, const message *m, const char *data)
{
    group *g = find_group(w, m->group);
    if (!g || find_member(g, rank) == g->size || m->request < 0 || m->request >= REQUESTS) {
        end_group(w, ITH_ERR_INTERNAL, "rank %d got data from rank %d that it did not ask for", w->rank, rank);
        return;
    }
    request *r = &g->requests[m->request];
    int peer = find_member(g, rank);
    flow *in = &r->in[peer];
    for (int64_t done = 0; done < m->bytes;) {
        void *place = NULL;
        int64_t bytes = next_stretch(in, r->operation.receives, r->operation.receive_count, peer, &place);
        if (bytes == 0)
            return;
        bytes = bytes < m->bytes - done ? bytes : m->bytes - done;
        memcpy(place, data + done, (size_t)bytes);
        advance_flow(in, bytes);
        done += bytes;
    }
    if (in->open && in->left == 0)
        close_flow(r, in);
}

/* ---- Asking ---------------------------------------------------------------------------------------------------- */

/* Compares a MESSAGE_ASK of a peer with this rank's own request. Data may be sent if they agree; otherwise the group
 * ends. */
static void answer(group *g, request *r, int peer, message *ask)
{
    world *w = g->world;
    flow *out = &r->out[peer];
    if (ask->tag != r->operation.tag)
        end_group(w, ITH_ERR_ARGUMENT,
                  "rank %d is in %s (exchange %lld of group %lld), and rank %d in another operation", w->rank,
                  r->operation.what, (long long)r->number, (long long)g->number, g->members[peer]);
    else if (!out->open || ask->regions != out->regions || ask->bytes != out->bytes || ask->sizes != out->sizes)
        end_group(w, ITH_ERR_ARGUMENT,
                  "ranks %d and %d disagree about the data from the first in %s (exchange %lld of group %lld): %lld "
                  "regions of %lld bytes in all are sent, %lld of %lld are expected",
                  w->rank, g->members[peer], r->operation.what, (long long)r->number, (long long)g->number,
                  (long long)out->regions, (long long)out->bytes, (long long)ask->regions, (long long)ask->bytes);
    out->asked = true;
    out->request = ask->request;
    ask->kind = 0;
}

/* Returns the request of exchange `number` that is in flight; NULL if there is none. */
static request *find_request(group *g, int64_t number)
{
    for (int i = 0; i < REQUESTS; i++)
        if (g->requests[i].in_flight && g->requests[i].number == number)
            return &g->requests[i];
    return NULL;
}

/* Handles a MESSAGE_ASK: answers it if this rank has posted the exchange, otherwise keeps it until then. */
static void take_ask(world *w, int rank, const message *m)
{
    group *g = find_group(w, m->group);
    if (!g || find_member(g, rank) == g->size || m->request < 0 || m->request >= REQUESTS)
        return; /* this rank has closed its state of the group */
    int peer = find_member(g, rank);
    message *ask = &g->asks[peer * REQUESTS + m->request];
    request *r = find_request(g, m->exchange);
    *ask = *m;
    if (r)
        answer(g, r, peer, ask);
    else if (m->exchange < g->posted)
        end_group(w, ITH_ERR_ARGUMENT,
                  "rank %d receives from rank %d in an operation (exchange %lld of group %lld), where that rank sends "
                  "nothing to it",
                  rank, w->rank, (long long)m->exchange, (long long)g->number);
    for (int i = 0; i < REQUESTS; i++) {
        r = &g->requests[i];
        if (r->in_flight && r->number < m->exchange && r->out[peer].open && !r->out[peer].asked)
            end_group(w, ITH_ERR_ARGUMENT,
                      "rank %d sends to rank %d in %s (exchange %lld of group %lld), where that rank receives nothing "
                      "from it",
                      w->rank, rank, r->operation.what, (long long)r->number, (long long)g->number);
    }
}

/* Asks each rank for the data that a request receives from it. Returns false if a socket has no room now. */
static bool send_asks(const group *g, const request *r)
{
    for (int peer = 0; peer < g->size; peer++) {
        flow *in = &r->in[peer];
        message m = {.kind = MESSAGE_ASK,
                     .group = g->number,
                     .request = r - g->requests,
                     .exchange = r->number,
                     .tag = r->operation.tag,
                     .regions = in->regions,
                     .bytes = in->bytes,
                     .sizes = in->sizes};
        if (in->open && !in->asked && !tell(g->world, g->members[peer], &m, NULL))
            return false;
        in->asked = true;
    }
    return true;
}

/* ---- Moving ---------------------------------------------------------------------------------------------------- */

/* Handles a message of any kind. */
static void take_message(world *w, int rank, const message *m)
{
    connection *c = &w->connections[rank];
    group *g = NULL;
    c->heard = now();
    switch (m->kind) {
    case MESSAGE_ASK: take_ask(w, rank, m); break;
    case MESSAGE_DATA: take_data(w, rank, m, (const char *)(m + 1)); break;
    /* A rank that hears of the end tells all ranks, so that they learn of it before its own MESSAGE_LEAVE. */
    case MESSAGE_END: end_group(w, (ith_status)m->status, "%s", (const char *)(m + 1)); break;
    case MESSAGE_LEAVE: c->left = true; break;
    case MESSAGE_NOTICE:
        g = find_group(w, m->group);
        if (g)
            atomic_store(&g->notice, m->notice);
        break;
    default: break;
    }
}

/* Reads all messages that a socket holds. Returns false if the other end is closed. */
static bool read_all(world *w, int rank, int descriptor)
{
    bool ended = false;
    while (!w->status) {
        ssize_t bytes = recv(descriptor, w->buffer, sizeof w->buffer, MSG_DONTWAIT);
        if (bytes == 0 && !ended) { /* Linux looks for messages, then for the end: some may have come in between */
            ended = true;
            continue;
        }
        if (bytes < 0 && (errno == EINTR || errno == ECONNRESET))
            continue; /* unread messages may follow a reset */
        if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (bytes < (ssize_t)sizeof(message))
            return false;
        take_message(w, rank, (const message *)(void *)w->buffer);
    }
    return true;
}

/* Reads all messages of all ranks. Returns a rank whose process has ended without a MESSAGE_LEAVE, or -1 if there is
 * none. */
static int read_everything(world *w)
{
    int lost = -1;
    for (int rank = 0; rank < w->size; rank++) {
        connection *c = &w->connections[rank];
        if (rank == w->rank || c->gone)
            continue;
        c->gone = !read_all(w, rank, c->control);
        read_all(w, rank, c->data); /* reads the data that was sent before a MESSAGE_LEAVE */
        if (c->gone && !c->left)
            lost = rank;
    }
    return lost;
}

/* Sends the data of a request that other ranks have asked for, as far as the sockets have room. */
static void send_all(group *g, request *r)
{
    for (int member = 0; member < g->size; member++) {
        connection *c = &g->world->connections[g->members[member]];
        while (!c->full && r->out[member].open && r->out[member].asked)
            c->full = !send_data(g, r, member);
    }
}

/* Reads all messages that have come, and sends all that the sockets have room for. The caller holds the lock. */
static void pump(world *w)
{
    int lost = read_everything(w);
    if (lost >= 0) {
        read_everything(w); /* another rank may have sent the reason in a MESSAGE_END */
        end_group(w, ITH_ERR_ABORTED, "rank %d is gone: its process has ended or has closed its sockets", lost);
    }
    for (int rank = 0; rank < w->size; rank++)
        w->connections[rank].full = false;
    for (group *g = w->groups; g && !w->status; g = g->next) {
        for (request *r; g->unasked < g->posted; g->unasked++)
            if ((r = find_request(g, g->unasked)) && !send_asks(g, r))
                break;
        for (int i = 0; i < REQUESTS; i++)
            if (g->requests[i].in_flight && g->requests[i].open)
                send_all(g, &g->requests[i]);
    }
}

/* Sleeps until a socket is ready. Releases the lock meanwhile. */
static void sleep_for(world *w, double seconds)
{
    nfds_t count = 0;
    for (int rank = 0; rank < w->size; rank++) {
        const connection *c = &w->connections[rank];
        if (rank == w->rank || c->gone)
            continue;
        w->polls[count++] = (struct pollfd){.fd = c->control, .events = POLLIN};
        w->polls[count++] = (struct pollfd){.fd = c->data, .events = (short)(c->full ? POLLIN | POLLOUT : POLLIN)};
    }
    pthread_mutex_unlock(&w->lock);
    poll(w->polls, count, seconds * 1000 < SLICE_MS ? (int)(seconds * 1000) + 1 : SLICE_MS);
    pthread_mutex_lock(&w->lock);
}

/* ---- The table ------------------------------------------------------------------------------------------------- */

static ith_status socket_exchange(void *state, const ith_operation *operation)
{
    group *g = state;
    world *w = g->world;
    request *r = &g->requests[operation->request];
    pthread_mutex_lock(&w->lock);
    pump(w); /* reads first: an earlier failure counts more than a mismatch found by this exchange */
    r->operation = *operation;
    r->number = g->posted++;
    r->in_flight = true;
    r->open = 0;
    open_flows(r, r->out, g, operation->sends, operation->send_count);
    open_flows(r, r->in, g, operation->receives, operation->receive_count);
    for (int peer = 0; peer < g->size; peer++)
        for (int i = 0; i < REQUESTS; i++) {
            message *ask = &g->asks[peer * REQUESTS + i];
            if (ask->kind && ask->exchange == r->number)
                answer(g, r, peer, ask);
        }
    pump(w);
    ith_status status = (ith_status)w->status;
    pthread_mutex_unlock(&w->lock);
    give_life(w);
    return status;
}

/* Ends the group if data are still to move from or to a rank that has left. */
static void look_for_leavers(const group *g, const request *r)
{
    world *w = g->world;
    for (int peer = 0; peer < g->size; peer++)
        if ((r->in[peer].open || r->out[peer].open) && w->connections[g->members[peer]].left)
            end_group(w, ITH_ERR_ABORTED, "rank %d left while rank %d waits for it in %s (exchange %lld of group %lld)",
                      g->members[peer], w->rank, r->operation.what, (long long)r->number, (long long)g->number);
}

static ith_status socket_wait(void *state, int64_t number, double seconds, bool *done)
{
    group *g = state;
    world *w = g->world;
    request *r = &g->requests[number];
    double end = now() + seconds;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        pump(w);
        look_for_leavers(g, r);
        double left = end - now();
        if (w->status || r->open == 0 || left <= 0)
            break;
        sleep_for(w, left);
    }
    ith_status status = (ith_status)w->status;
    *done = !status && r->open == 0;
    r->in_flight = !*done;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void socket_alive(void *state)
{
    world *w = ((group *)state)->world;
    give_life(w);
    if (pthread_mutex_trylock(&w->lock) == 0) {
        pump(w);
        pthread_mutex_unlock(&w->lock);
    }
}

static double socket_silence(void *state, int64_t number, int *rank)
{
    group *g = state;
    world *w = g->world;
    const request *r = &g->requests[number];
    double longest = 0, time = now();
    *rank = -1;
    pthread_mutex_lock(&w->lock);
    for (int peer = 0; peer < g->size; peer++) {
        double silence = time - w->connections[g->members[peer]].heard;
        if ((r->in[peer].open || r->out[peer].open) && silence > longest)
            longest = silence, *rank = peer;
    }
    pthread_mutex_unlock(&w->lock);
    return longest;
}

static void socket_abort(void *state, ith_status status, const char *sentence)
{
    world *w = ((group *)state)->world;
    pthread_mutex_lock(&w->lock);
    end_group(w, status, "%s", sentence);
    pthread_mutex_unlock(&w->lock);
}

static ith_status socket_failure(void *state, const char **sentence)
{
    world *w = ((group *)state)->world;
    ith_status status = (ith_status)atomic_load(&w->status);
    *sentence = status ? w->sentence : "";
    return status;
}

static void socket_notify(void *state, int64_t number)
{
    group *g = state;
    message m = {.kind = MESSAGE_NOTICE, .group = g->number, .notice = number};
    atomic_store(&g->notice, number);
    for (int member = 0; member < g->size; member++)
        tell(g->world, g->members[member], &m, NULL);
}

static int64_t socket_noticed(void *state)
{
    return atomic_load(&((group *)state)->notice);
}

static void socket_leave(void *state)
{
    tell_all(((group *)state)->world, &(message){.kind = MESSAGE_LEAVE}, NULL);
}

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

static void free_group(group *g)
{
    if (!g)
        return;
    free(g->members);
    free(g->asks);
    free(g->requests[0].in);
    free(g);
}

static group *make_group(world *w, int64_t number, int rank, int size, const int *members)
{
    group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    *g = (group){.world = w, .number = number, .rank = rank, .size = size};
    g->members = calloc((size_t)size, sizeof *g->members);
    g->asks = calloc((size_t)size * REQUESTS, sizeof *g->asks);
    flow *flows = calloc((size_t)size * REQUESTS * 2, sizeof *flows);
    g->requests[0].in = flows;
    if (!g->members || !g->asks || !flows) {
        free_group(g);
        return NULL;
    }
    for (int i = 0; i < size; i++)
        g->members[i] = members ? members[i] : i;
    for (int i = 0; i < REQUESTS; i++) {
        g->requests[i].in = flows + 2 * i * size;
        g->requests[i].out = flows + (2 * i + 1) * size;
    }
    pthread_mutex_lock(&w->lock);
    g->next = w->groups;
    w->groups = g;
    pthread_mutex_unlock(&w->lock);
    return g;
}

static ith_status socket_split(void *state, const ith_subgroup *s, void **out)
{
    *out = make_group(((group *)state)->world, s->number, s->rank, s->size, s->members);
    return *out ? ITH_OK : ITH_ERR_MEMORY;
}

static void free_world(world *w)
{
    pthread_mutex_destroy(&w->lock);
    free(w->connections);
    free(w->polls);
    free(w);
}

static void socket_close(void *state)
{
    group *g = state;
    world *w = g->world;
    pthread_mutex_lock(&w->lock);
    group **link = &w->groups;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    pthread_mutex_unlock(&w->lock);
    for (int rank = 0; g->number == 0 && rank < w->size; rank++) {
        if (rank == w->rank)
            continue;
        close(w->connections[rank].data);
        close(w->connections[rank].control);
    }
    if (g->number == 0)
        free_world(w);
    free_group(g);
}

void *socket_state(int rank, int ranks, const int (*sockets)[2])
{
    world *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    w->rank = rank;
    w->size = ranks;
    w->connections = calloc((size_t)ranks, sizeof *w->connections);
    w->polls = calloc((size_t)ranks * 2, sizeof *w->polls);
    group *whole = w->connections && w->polls ? make_group(w, 0, rank, ranks, NULL) : NULL;
    for (int i = 0; whole && i < ranks; i++)
        w->connections[i] = (connection){.data = sockets[i][0], .control = sockets[i][1], .heard = now()};
    if (!whole)
        free_world(w);
    return whole;
}

const ith_transport socket_transport = {
    .struct_size = sizeof socket_transport,
    .name = "Unix sockets",
    .requests = REQUESTS,
    .exchange = socket_exchange,
    .wait = socket_wait,
    .failure = socket_failure,
    .split = socket_split,
    .abort = socket_abort,
    .close = socket_close,
    .leave = socket_leave,
    .alive = socket_alive,
    .silence = socket_silence,
    .notify = socket_notify,
    .noticed = socket_noticed,
};
