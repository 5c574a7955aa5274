/* SPDX-License-Identifier: Apache-2.0 */
#include "support/socket_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFERS = 3, BYE = 0 };

/* ---- Scenes ---------------------------------------------------------------------------------------------------- */

bool link_scene_make(link_scene *scene, int ranks, int each)
{
    memset(scene, 0, sizeof *scene);
    scene->processes = (ranks + each - 1) / each;
    for (int a = 0; a < scene->processes; a++) {
        ith_link_process *p = &scene->all[a];
        *p = (ith_link_process){.host = a / 2, .pid = 1000 + a, .first_rank = a * each};
        p->ranks = ranks - a * each < each ? ranks - a * each : each;
        snprintf(p->name, sizeof p->name, "host%d", a / 2);
        for (int b = 0; b < a; b++)
            for (int which = 0; which < 2; which++) {
                int pair[2];
                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
                    return false;
                scene->sockets[a][b][which] = pair[0];
                scene->sockets[b][a][which] = pair[1];
            }
    }
    return true;
}

void link_scene_keep(const link_scene *scene, int process)
{
    for (int a = 0; a < scene->processes; a++)
        for (int b = 0; b < scene->processes; b++)
            for (int which = 0; which < 2 && a != process && a != b; which++)
                close(scene->sockets[a][b][which]);
}

/* ---- The link -------------------------------------------------------------------------------------------------- */

typedef struct buffer {
    int64_t bytes;
    char *data;
} buffer;

/* The connection to another process. Buffers first to first + queued - 1 wait for room in the socket. */
typedef struct wires {
    int data, control;
    bool closed, bye, ended;
    int first, queued;
    int64_t sent; /* datagrams that the socket has taken */
    buffer buffers[BUFFERS];
} wires;

typedef struct socket_link {
    ith_link link;
    ith_link_process all[LINK_PROCESSES];
    wires to[LINK_PROCESSES];
    int bell;      /* an eventfd that wakes rests */
    unsigned next; /* the process whose socket is read next */
    char message[ITH_WATCH_BYTES];
    char *arrived;
    char *memory;
} socket_link;

static bool would_block(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
}

/* Sends the datagrams that wait, as far as the socket has room. */
static void flush(wires *w)
{
    while (w->queued > 0 && !w->closed) {
        const buffer *b = &w->buffers[w->first];
        if (would_block(send(w->data, b->data, (size_t)b->bytes, MSG_NOSIGNAL | MSG_DONTWAIT)))
            return;
        w->first = (w->first + 1) % BUFFERS;
        w->queued--;
        w->sent++;
    }
}

static void *link_reserve(void *self, int process, int64_t bytes)
{
    wires *w = &((socket_link *)self)->to[process];
    flush(w);
    return bytes < 1 || bytes > ITH_LINK_BYTES || w->queued == BUFFERS
               ? NULL
               : w->buffers[(w->first + w->queued) % BUFFERS].data;
}

static void link_send(void *self, int process, int64_t bytes)
{
    wires *w = &((socket_link *)self)->to[process];
    w->buffers[(w->first + w->queued++) % BUFFERS].bytes = bytes;
    flush(w);
}

static int64_t link_settled(void *self, int process)
{
    wires *w = &((socket_link *)self)->to[process];
    flush(w);
    return w->sent;
}

static int64_t link_receive(void *self, int *process, const void **data)
{
    socket_link *l = self;
    for (int i = 0; i < l->link.processes; i++) {
        int p = (int)(l->next++ % (unsigned)l->link.processes);
        if (p == l->link.process || l->to[p].closed)
            continue;
        flush(&l->to[p]);
        ssize_t bytes = recv(l->to[p].data, l->arrived, ITH_LINK_BYTES, MSG_DONTWAIT);
        if (bytes <= 0)
            continue;
        *process = p;
        *data = l->arrived;
        return bytes;
    }
    return 0;
}

static bool link_tell(void *self, int process, const void *data, size_t bytes, bool droppable)
{
    const wires *w = &((socket_link *)self)->to[process];
    (void)droppable;
    return !would_block(send(w->control, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static ith_watch_event link_hear(void *self, int *process, const void **data, size_t *bytes)
{
    socket_link *l = self;
    for (int p = 0; p < l->link.processes; p++) {
        wires *w = &l->to[p];
        *process = p;
        if (p == l->link.process || w->ended || w->closed)
            continue;
        ssize_t size = recv(w->control, l->message, sizeof l->message, MSG_DONTWAIT);
        if (!size) /* Linux looks for messages, then for the end: a message may have come in between */
            size = recv(w->control, l->message, sizeof l->message, MSG_DONTWAIT);
        if (size < 0 && (would_block(size) || errno == EINTR || errno == ECONNRESET)) /* messages may follow a reset */
            continue;
        if (size == 1 && l->message[0] == BYE) {
            w->bye = true;
        } else if (size > 0) {
            *data = l->message, *bytes = (size_t)size;
            return ITH_WATCH_MESSAGE;
        } else {
            *data = "its connection closed";
            w->ended = true;
            return w->bye ? ITH_WATCH_BYE : ITH_WATCH_LOST;
        }
    }
    return ITH_WATCH_NOTHING;
}

static void link_rest(void *self, double seconds)
{
    socket_link *l = self;
    struct pollfd polls[2 * LINK_PROCESSES + 1] = {{.fd = l->bell, .events = POLLIN}};
    nfds_t count = 1;
    uint64_t rings;
    for (int p = 0; p < l->link.processes; p++) {
        if (p == l->link.process || l->to[p].closed)
            continue;
        polls[count++] = (struct pollfd){.fd = l->to[p].data, .events = POLLIN};
        polls[count++] = (struct pollfd){.fd = l->to[p].control, .events = POLLIN};
    }
    /* the rest is short, since poll does not show when a socket has room for a waiting datagram */
    int limit = seconds < 1e-3 ? 1 : seconds < 0.005 ? (int)(seconds * 1000) : 5;
    if (poll(polls, count, limit) > 0 && polls[0].revents)
        (void)!read(l->bell, &rings, sizeof rings);
    for (nfds_t i = 1; i < count; i++)
        if (polls[i].revents & POLLHUP) /* a connection that is closed would end each poll at once */
            poll(NULL, 0, 1);
}

static void link_wake(void *self)
{
    uint64_t one = 1;
    (void)!write(((socket_link *)self)->bell, &one, sizeof one);
}

void socket_link_die(ith_link *link)
{
    socket_link *l = link->self;
    for (int p = 0; p < link->processes; p++)
        if (p != link->process && !l->to[p].closed) {
            close(l->to[p].data);
            close(l->to[p].control);
            l->to[p].closed = true;
        }
}

static void link_close(void *self, bool failed)
{
    socket_link *l = self;
    const char bye = BYE;
    for (int p = 0; p < l->link.processes; p++)
        if (p != l->link.process && !l->to[p].closed) {
            if (!failed)
                flush(&l->to[p]);
            (void)!send(l->to[p].control, &bye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    socket_link_die(&l->link);
    close(l->bell);
    free(l->memory);
    free(l);
}

ith_link *socket_link_new(const link_scene *scene, int process)
{
    socket_link *l = calloc(1, sizeof *l);
    size_t size = (size_t)(BUFFERS * LINK_PROCESSES + 1) * ITH_LINK_BYTES;
    if (!l || posix_memalign((void **)&l->memory, 64, size)) {
        free(l);
        return NULL;
    }
    memcpy(l->all, scene->all, sizeof l->all);
    for (int p = 0; p < scene->processes; p++) {
        l->to[p].data = scene->sockets[process][p][0];
        l->to[p].control = scene->sockets[process][p][1];
        for (int i = 0; i < BUFFERS; i++)
            l->to[p].buffers[i].data = l->memory + (size_t)(p * BUFFERS + i) * ITH_LINK_BYTES;
    }
    l->arrived = l->memory + size - ITH_LINK_BYTES;
    l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->link = (ith_link){l,         "sockets",    process,      scene->processes, l->all,    link_reserve,
                         link_send, link_settled, link_receive, link_tell,        link_hear, link_rest,
                         link_wake, link_close};
    return &l->link;
}
