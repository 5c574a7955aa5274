/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams over TCP (tcp_link.h). Each datagram follows a head with its length. A process has a few send buffers for
 * each other process, which wait until the connection has room, and one receive buffer for each. */
#include "tcp_link.h"

#include "../wire/link_control.h"
#include "../wire/watch_state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#define CLOSE_SECONDS 0.1  /* the longest wait at the end for the other processes to close their connections */
#define ARRIVE_SECONDS 5.0 /* the longest wait for their systems to take the datagrams that are on the way */

enum { BUFFERS = 4, DATAGRAM = 0x4d40 };

/* The head of a datagram. It is as long as an AWAITS message of the watch (watch.h). An AWAITS may precede the first
 * datagram on the connection, since a process sends it while others are still being connected. */
typedef struct frame {
    uint16_t kind, awaits;
    uint32_t bytes;
} frame;
_Static_assert(sizeof(frame) == sizeof(watch_head) + sizeof(int32_t), "a frame and an AWAITS have different lengths");

enum { SLOT = ITH_LINK_BYTES + 64 }; /* a buffer: the head ends at byte 64, where the datagram begins */

/* The datagrams to another process, and the datagrams from it. Datagram n is sent from buffer n % BUFFERS. */
typedef struct peer {
    int socket;          /* belongs to the watch; -1: none */
    int64_t begun, sent; /* numbers of datagrams: passed to `send`; taken whole by the system */
    size_t offset;       /* bytes of datagram `sent` that the system has taken, with the head */
    uint32_t bytes[BUFFERS];
    char *out;         /* [BUFFERS][SLOT] */
    char *in;          /* [SLOT] */
    size_t come;       /* bytes of the next datagram that have come, with the head */
    bool taken;        /* the datagram in `in` has been handed out */
    atomic_bool waits; /* datagrams wait for room */
    atomic_bool deaf;  /* nothing more can be sent or read; the control connection tells why */
} peer;

/* A link over TCP. */
typedef struct tcp_link {
    ith_link_control control; /* the first member, for ith_link_tell; its watch is party.control */
    tcp_party party;
    peer *peers;          /* [processes] */
    char *memory;         /* of all buffers */
    struct pollfd *polls; /* [processes + 1] of `rest`, one thread at a time */
    pthread_mutex_t resting;
    unsigned next; /* the process that is read next */
} tcp_link;

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS;
}

/* Gives the system the datagrams of a process that wait, as far as the connection has room. */
static void flush(peer *p)
{
    while (p->sent < p->begun && !p->deaf) {
        const int slot = (int)(p->sent % BUFFERS);
        const char *data = p->out + (size_t)slot * SLOT + 64 - sizeof(frame);
        size_t all = sizeof(frame) + p->bytes[slot];
        ssize_t count = send(p->socket, data + p->offset, all - p->offset, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && would_block()) {
            p->waits = true;
            return;
        }
        if (count < 0)
            p->deaf = true;
        else if ((p->offset += (size_t)count) == all)
            p->offset = 0, p->sent++;
    }
    p->sent = p->begun; /* also if the receiver is gone */
    p->waits = false;
}

static void *link_reserve(void *self, int process, int64_t bytes)
{
    tcp_link *l = self;
    peer *p = &l->peers[process];
    (void)bytes;
    flush(p);
    return p->begun - p->sent < BUFFERS ? p->out + (size_t)(p->begun % BUFFERS) * SLOT + 64 : NULL;
}

static void link_send(void *self, int process, int64_t bytes)
{
    tcp_link *l = self;
    peer *p = &l->peers[process];
    const frame head = {DATAGRAM, 0, (uint32_t)bytes};
    const int slot = (int)(p->begun % BUFFERS);
    memcpy(p->out + (size_t)slot * SLOT + 64 - sizeof head, &head, sizeof head);
    p->bytes[slot] = (uint32_t)bytes;
    p->begun++;
    flush(p);
}

static int64_t link_settled(void *self, int process)
{
    tcp_link *l = self;
    peer *p = &l->peers[process];
    if (p->sent < p->begun)
        flush(p);
    return p->sent;
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

/* Reads until `p->come` is `wanted`. Returns whether it is. */
static bool read_to(peer *p, size_t wanted)
{
    while (p->come < wanted && !p->deaf) {
        ssize_t count = recv(p->socket, p->in + 64 - sizeof(frame) + p->come, wanted - p->come, MSG_DONTWAIT);
        if (count < 0 && would_block())
            return false;
        if (count <= 0)
            p->deaf = true;
        else
            p->come += (size_t)count;
    }
    return p->come >= wanted;
}

/* Reads the next datagram of a process. Returns its bytes; 0 if it has not come whole; -1 if it is none. */
static int64_t read_datagram(peer *p)
{
    frame head;
    if (p->taken)
        p->come = 0, p->taken = false;
    while (read_to(p, sizeof head)) {
        memcpy(&head, p->in + 64 - sizeof head, sizeof head);
        if (head.kind == WATCH_AWAITS && head.awaits == sizeof(int32_t)) {
            p->come = 0;
            continue;
        }
        if (head.kind != DATAGRAM || head.bytes < 1 || head.bytes > ITH_LINK_BYTES)
            return -1;
        p->taken = read_to(p, sizeof head + head.bytes);
        return p->taken ? head.bytes : 0;
    }
    return 0;
}

static int64_t link_receive(void *self, int *process, const void **data)
{
    tcp_link *l = self;
    for (int i = 0; i < l->party.processes; i++) {
        int from = (int)(l->next++ % (unsigned)l->party.processes);
        peer *p = &l->peers[from];
        int64_t bytes = p->socket < 0 || p->deaf ? 0 : read_datagram(p);
        if (bytes == 0)
            continue;
        *process = from;
        *data = bytes < 0 ? "a connection carried bytes that are no datagram" : p->in + 64;
        return bytes;
    }
    return 0;
}

/* ---- Control --------------------------------------------------------------------------------------------------- */

static ith_watch_event link_hear(void *self, int *process, const void **data, size_t *bytes)
{
    tcp_link *l = self;
    if (!ith_link_may_look(&l->control))
        return ITH_WATCH_NOTHING;
    return ith_link_looked(&l->control, ith_watch_receive(l->party.control, process, data, bytes));
}

/* Sleeps until a connection can be read, or one has room for datagrams that wait. */
static void sleep_for(tcp_link *l, double seconds)
{
    nfds_t count = 1;
    if (pthread_mutex_trylock(&l->resting)) { /* another thread has the list */
        ith_watch_rest(l->party.control, seconds < 1e-3 ? seconds : 1e-3);
        return;
    }
    l->polls[0] = (struct pollfd){.fd = l->party.control->epoll, .events = POLLIN};
    for (int i = 0; i < l->party.processes; i++)
        if (l->peers[i].socket >= 0 && !l->peers[i].deaf)
            l->polls[count++] = (struct pollfd){.fd = l->peers[i].socket,
                                                .events = (short)(l->peers[i].waits ? POLLIN | POLLOUT : POLLIN)};
    if (atomic_load(&l->party.control->queues) && seconds > 1e-3)
        seconds = 1e-3; /* a control connection may have room again */
    if (seconds > 0)
        ppoll(l->polls, count, &(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)},
              NULL);
    pthread_mutex_unlock(&l->resting);
}

static void link_rest(void *self, double seconds)
{
    tcp_link *l = self;
    sleep_for(l, seconds);
    ith_link_look_soon(&l->control);
}

static void link_wake(void *self)
{
    ith_watch_wake(((tcp_link *)self)->party.control);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Sends the remaining bytes, and reads until the other process closes its connection: a connection that is closed with
 * unread bytes is reset, which may overtake datagrams. Returns whether it may be closed. *arrived: the other system has
 * all datagrams. */
static bool finish_peer(peer *p, bool *arrived)
{
    int left = 0;
    if (p->socket < 0 || p->deaf)
        return true;
    flush(p);
    if (p->sent == p->begun)
        shutdown(p->socket, SHUT_WR);
    ssize_t count;
    do
        count = recv(p->socket, p->in, SLOT, MSG_DONTWAIT);
    while (count > 0);
    *arrived &= p->sent == p->begun && !ioctl(p->socket, SIOCOUTQ, &left) && left == 0;
    return count == 0 || !would_block();
}

void ith_tcp_party_close(tcp_party *party)
{
    ith_watch_close(party->data, true);
    ith_watch_close(party->control, true);
    free(party->all);
    *party = (tcp_party){.process = 0};
}

static void free_link(tcp_link *l)
{
    pthread_mutex_destroy(&l->resting);
    free(l->peers);
    free(l->polls);
    free(l->memory);
    free(l);
}

static void link_close(void *self, bool failed)
{
    tcp_link *l = self;
    const double start = ith_watch_now();
    for (bool finished = failed; !finished;) {
        bool arrived = true;
        finished = true;
        for (int i = 0; i < l->party.processes; i++)
            finished &= finish_peer(&l->peers[i], &arrived);
        if (ith_watch_now() >= start + (arrived ? CLOSE_SECONDS : ARRIVE_SECONDS))
            break;
        if (!finished)
            nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    /* The data connections carry datagrams only: ith_watch_close must not add a goodbye to them. */
    for (int i = 0; i < l->party.processes; i++)
        atomic_store(&l->party.data->peers[i].ended, true);
    ith_tcp_party_close(&l->party);
    free_link(l);
}

/* ---- The beginning --------------------------------------------------------------------------------------------- */

/* Gives each process the connection of the watch and its buffers. */
static void share_out(tcp_link *l)
{
    char *next = l->memory;
    for (int i = 0; i < l->party.processes; i++) {
        peer *p = &l->peers[i];
        p->socket = i == l->party.process ? -1 : l->party.data->peers[i].socket;
        if (p->socket < 0)
            continue;
        p->out = next;
        p->in = next + (size_t)BUFFERS * SLOT;
        next += (size_t)(BUFFERS + 1) * SLOT;
    }
}

bool ith_tcp_link_create(const tcp_party *party, ith_link *out)
{
    tcp_link *l = calloc(1, sizeof *l);
    const size_t processes = (size_t)party->processes;
    if (!l)
        return false;
    l->resting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    l->party = *party;
    l->control.watch = party->control;
    l->peers = calloc(processes, sizeof *l->peers);
    l->polls = calloc(processes + 1, sizeof *l->polls);
    /* memory that is never written costs nothing */
    l->memory = aligned_alloc(64, (processes - 1) * (BUFFERS + 1) * SLOT + 64);
    if (!l->peers || !l->polls || !l->memory) {
        free_link(l);
        return false;
    }
    share_out(l);
    *out = (ith_link){.self = l,
                      .name = "nccl",
                      .process = party->process,
                      .processes = party->processes,
                      .all = party->all,
                      .reserve = link_reserve,
                      .send = link_send,
                      .settled = link_settled,
                      .receive = link_receive,
                      .tell = ith_link_tell,
                      .hear = link_hear,
                      .rest = link_rest,
                      .wake = link_wake,
                      .close = link_close};
    return true;
}
