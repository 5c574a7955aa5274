/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the control connections: each process connects to the processes before it, and accepts those after it.
 *
 * A host may have several addresses, of which some lead nowhere or to another machine. A process therefore tries all of
 * them, one after the other without waiting for the first. The process that connects sends a hello with the cookie of
 * the process that it looks for, which answers the first right hello with a welcome and closes all other connections.
 * The connection with the welcome is the one that both keep. */
#include "watch_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x3168637461777469u
#define STAGGER_SECONDS 0.1 /* between two attempts to connect to one process */

enum {
    ATTEMPTS = ITH_WATCH_INTERFACES + 2, /* the interfaces and two loopbacks */
    ARRIVALS = 64                        /* connections whose hello is awaited */
};

typedef struct hello {
    uint64_t magic;
    int32_t process, processes; /* the number of the process that connects, and of all */
    uint8_t theirs[ITH_WATCH_COOKIE], mine[ITH_WATCH_COOKIE];
} hello;

typedef struct welcome {
    uint64_t magic;
    uint8_t mine[ITH_WATCH_COOKIE];
} welcome;

/* A connection on which a hello or a welcome is awaited. */
typedef struct half_open {
    int socket; /* -1: none */
    bool sent;  /* an attempt: the hello has been sent */
    size_t count;
    union {
        hello hello;
        welcome welcome;
        char bytes[sizeof(hello)];
    } input;
} half_open;

typedef struct meeting {
    ith_watch *watch;
    const ith_watch_address *all;
    int target;       /* the process that this process connects to */
    int missing;      /* how many processes after this one have not come */
    int next;         /* the next address of the target */
    double next_time; /* when it is tried at the latest */
    int error;        /* errno of the last attempt that failed; 0: none failed */
    half_open attempts[ATTEMPTS], arrivals[ARRIVALS];
    int oldest; /* the arrival that is replaced when all are in use */
} meeting;

static void drop(half_open *h)
{
    if (h->socket >= 0)
        close(h->socket);
    *h = (half_open){.socket = -1};
}

/* Makes a connection the one with a process. */
static bool adopt(meeting *m, half_open *h, int process)
{
    watch_peer *peer = &m->watch->peers[process];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    setsockopt(h->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (epoll_ctl(m->watch->epoll, EPOLL_CTL_ADD, h->socket, &event))
        return false;
    peer->socket = h->socket;
    h->socket = -1;
    drop(h);
    return true;
}

/* Reads what is missing of a hello or welcome of `bytes` bytes. Returns 1 when it is there, 0 if it may still come, -1
 * if not. */
static int read_greeting(half_open *h, size_t bytes)
{
    ssize_t count = recv(h->socket, h->input.bytes + h->count, bytes - h->count, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (count <= 0)
        return -1;
    h->count += (size_t)count;
    return h->count == bytes;
}

/* ---- Connecting ------------------------------------------------------------------------------------------------ */

/* Sets address number `index` of a process. Processes of one network reach one another over the loopback. Returns its
 * size, 0 if there are no more. */
static socklen_t find_address(const meeting *m, int index, struct sockaddr_storage *address)
{
    const ith_watch_address *to = &m->all[m->target], *mine = &m->all[m->watch->process];
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    bool near = mine->boot[0] && mine->network && !strcmp(mine->boot, to->boot) && mine->network == to->network;
    int interface = index - (near ? 2 : 0);
    *address = (struct sockaddr_storage){.ss_family = AF_UNSPEC};
    if (interface >= to->interfaces || interface >= ITH_WATCH_INTERFACES)
        return 0;
    bool ipv6 = interface < 0 ? index == 1 : to->interface[interface].ipv6;
    if (ipv6) {
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(to->port)};
        six->sin6_addr = in6addr_loopback;
        if (interface >= 0)
            memcpy(&six->sin6_addr, to->interface[interface].bytes, 16);
        return sizeof *six;
    }
    *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(to->port)};
    four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (interface >= 0)
        memcpy(&four->sin_addr, to->interface[interface].bytes, 4);
    return sizeof *four;
}

/* An attempt has failed: the next address is tried at once. */
static void fail_attempt(meeting *m, half_open *h, int reason, double now)
{
    m->error = reason;
    m->next_time = now;
    drop(h);
}

/* Begins to connect to the next address of the target if it is time. Begins again with the first when all have failed.
 */
static void try_next_address(meeting *m, double now)
{
    struct sockaddr_storage address;
    half_open *unused = NULL;
    int open = 0;
    if (m->target == m->watch->process || now < m->next_time)
        return;
    for (int i = 0; i < ATTEMPTS; i++)
        if (m->attempts[i].socket >= 0)
            open++;
        else
            unused = &m->attempts[i];
    m->next_time = now + STAGGER_SECONDS;
    socklen_t bytes = find_address(m, m->next, &address);
    if (!bytes || !unused) {
        m->next = open ? m->next : 0;
        return;
    }
    m->next++;
    unused->socket = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (unused->socket < 0 || (connect(unused->socket, (struct sockaddr *)&address, bytes) && errno != EINPROGRESS))
        fail_attempt(m, unused, errno, now);
}

/* Sends the hello on a connection that has been made. Returns 0, or the reason why it was not made. */
static int send_hello(const meeting *m, half_open *h)
{
    hello mine = {MAGIC, m->watch->process, m->watch->processes, {0}, {0}};
    int reason = 0;
    socklen_t bytes = sizeof reason;
    memcpy(mine.theirs, m->all[m->target].cookie, ITH_WATCH_COOKIE);
    memcpy(mine.mine, m->watch->mine.cookie, ITH_WATCH_COOKIE);
    if (getsockopt(h->socket, SOL_SOCKET, SO_ERROR, &reason, &bytes) || reason)
        return reason ? reason : errno;
    h->sent = true;
    return send(h->socket, &mine, sizeof mine, MSG_NOSIGNAL) == sizeof mine ? 0 : ECONNRESET;
}

/* Goes on with a connection to the target. With the right welcome, the next process is the target. */
static void serve_attempt(meeting *m, half_open *h, double now)
{
    int reason = h->sent ? 0 : send_hello(m, h);
    int come = !reason && h->sent ? read_greeting(h, sizeof(welcome)) : 0;
    if (reason || come < 0) {
        fail_attempt(m, h, reason ? reason : ECONNRESET, now);
        return;
    }
    if (!come)
        return;
    if (h->input.welcome.magic != MAGIC || memcmp(h->input.welcome.mine, m->all[m->target].cookie, ITH_WATCH_COOKIE) ||
        !adopt(m, h, m->target)) {
        fail_attempt(m, h, EPROTO, now);
        return;
    }
    for (int i = 0; i < ATTEMPTS; i++)
        drop(&m->attempts[i]);
    m->target++;
    m->next = m->error = 0;
    m->next_time = now;
}

/* ---- Accepting ------------------------------------------------------------------------------------------------- */

/* Takes the connections that have arrived. If too many send no hello, the oldest of them are dropped. */
static void accept_arrivals(meeting *m)
{
    int socket;
    while ((socket = accept4(m->watch->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        half_open *to = &m->arrivals[m->oldest++ % ARRIVALS];
        for (int i = 0; i < ARRIVALS && to->socket >= 0; i++)
            if (m->arrivals[i].socket < 0)
                to = &m->arrivals[i];
        drop(to);
        to->socket = socket;
    }
}

/* Whether a hello comes from a process that this one waits for. */
static bool is_awaited(const meeting *m, const hello *h)
{
    const ith_watch *w = m->watch;
    return h->magic == MAGIC && h->processes == w->processes && h->process > w->process && h->process < w->processes &&
           !memcmp(h->theirs, w->mine.cookie, ITH_WATCH_COOKIE) &&
           !memcmp(h->mine, m->all[h->process].cookie, ITH_WATCH_COOKIE) && w->peers[h->process].socket < 0;
}

static void serve_arrival(meeting *m, half_open *h)
{
    welcome mine = {MAGIC, {0}};
    int come = read_greeting(h, sizeof(hello)), process = h->input.hello.process;
    if (!come)
        return;
    memcpy(mine.mine, m->watch->mine.cookie, ITH_WATCH_COOKIE);
    if (come > 0 && is_awaited(m, &h->input.hello) &&
        send(h->socket, &mine, sizeof mine, MSG_NOSIGNAL) == sizeof mine && adopt(m, h, process))
        m->missing--;
    else
        drop(h);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

/* Waits until a connection of the meeting needs attention, at most 20 ms, and gives it. */
static void serve(meeting *m)
{
    enum { LISTENER = ATTEMPTS + ARRIVALS, ALL = LISTENER + 1 };
    struct pollfd polls[ALL];
    for (int i = 0; i < LISTENER; i++) {
        const half_open *h = i < ATTEMPTS ? &m->attempts[i] : &m->arrivals[i - ATTEMPTS];
        polls[i] = (struct pollfd){h->socket, i < ATTEMPTS && !h->sent ? POLLOUT : POLLIN, 0};
    }
    polls[LISTENER] = (struct pollfd){m->watch->listener, POLLIN, 0};
    if (poll(polls, ALL, 20) <= 0)
        return;
    double now = ith_watch_now();
    for (int i = 0; i < ATTEMPTS; i++)
        if (polls[i].revents && m->attempts[i].socket == polls[i].fd)
            serve_attempt(m, &m->attempts[i], now);
    for (int i = 0; i < ARRIVALS; i++)
        if (polls[ATTEMPTS + i].revents)
            serve_arrival(m, &m->arrivals[i]);
    if (polls[LISTENER].revents)
        accept_arrivals(m);
}

/* Says which connection is missing. */
static void explain(const meeting *m, double seconds, char *sentence, size_t bytes)
{
    const ith_watch *w = m->watch;
    int other = m->target;
    bool awaited = other == w->process;
    while (awaited && (other == w->process || w->peers[other].socket >= 0))
        other++;
    const ith_watch_address *from = &m->all[awaited ? other : w->process], *to = &m->all[awaited ? w->process : other];
    snprintf(sentence, bytes,
             "process %d on %.*s did not reach process %d on %.*s at TCP port %d within %.3g s (%d addresses%s%s)%s",
             awaited ? other : w->process, ITH_WATCH_NAME - 1, from->name, awaited ? w->process : other,
             ITH_WATCH_NAME - 1, to->name, to->port, seconds, to->interfaces, m->error ? "; the last: " : "",
             m->error ? strerror(m->error) : "", m->error ? "" : ": a firewall may be in the way");
}

/* Allocates the connections; none is made. */
static bool make_peers(ith_watch *w, int process, int processes)
{
    w->peers = calloc((size_t)processes, sizeof *w->peers);
    w->process = process;
    w->processes = w->peers ? processes : 0;
    for (int i = 0; i < w->processes; i++) {
        w->peers[i].socket = -1;
        pthread_mutex_init(&w->peers[i].lock, NULL);
    }
    return w->peers != NULL;
}

bool ith_watch_connect(ith_watch *w, const ith_watch_address *all, int process, int processes, double seconds,
                       char *sentence, size_t bytes)
{
    double end = ith_watch_now() + seconds;
    meeting m = {.watch = w, .all = all, .missing = processes - process - 1};
    if (!make_peers(w, process, processes)) {
        snprintf(sentence, bytes, "no memory for the control connections of %d processes", processes);
        return false;
    }
    for (int i = 0; i < ATTEMPTS; i++)
        m.attempts[i].socket = -1;
    for (int i = 0; i < ARRIVALS; i++)
        m.arrivals[i].socket = -1;
    while ((m.target < process || m.missing) && ith_watch_now() < end) {
        try_next_address(&m, ith_watch_now());
        serve(&m);
    }
    bool connected = m.target == process && !m.missing;
    if (!connected)
        explain(&m, seconds, sentence, bytes);
    for (int i = 0; i < ATTEMPTS; i++)
        drop(&m.attempts[i]);
    for (int i = 0; i < ARRIVALS; i++)
        drop(&m.arrivals[i]);
    close(w->listener);
    w->listener = -1;
    return connected;
}
