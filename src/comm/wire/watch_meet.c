/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the control connections. Each process connects to the processes before it, and accepts the processes after it.
 *
 * A host may have several addresses, of which some lead nowhere or to another machine. A process therefore tries all
 * addresses, one after the other without waiting for the first, and again where an attempt has failed. The process that
 * connects sends a hello with the cookie of the process that it looks for. That process answers the first right hello
 * with a welcome, and closes all other connections. Both keep the connection with the welcome.
 *
 * A process that has all its connections sends CONNECTED on each. It has finished when it has CONNECTED from all
 * others. Until then it sends AWAITS, which shows the others that it runs. A process that has finished may still get
 * AWAITS. It must then not blame the sender of AWAITS, but the process for which the sender waits.
 *
 * A process that has sent CONNECTED reads nothing behind the CONNECTED of another one: that process may have finished,
 * and its later messages are for ith_watch_receive. Before, the other process cannot have finished, and reading shows
 * that it gives up.
 *
 * A process that gives up sends FAILED with its sentence and the number of the process that it blames. Then its end
 * must not look like one more death:
 *   - It goes on to connect and to accept, and sends FAILED on each new connection, until all others have it. If it
 *     closes a connection before it has the welcome, FAILED follows the hello. It does not wait for the process that it
 *     blames, nor for processes that it knows to be dead, and for no process beyond its limit.
 *   - A process that gets FAILED gives up with the same sentence. If it is connected already, ith_watch_receive has it.
 *   - A process that gives up after CONNECTED sends nothing but AWAITS before FAILED, and a connection is not closed
 *     before the other system has its messages (ith_watch_close). So a connection that ends without FAILED shows a
 *     death. */
#include "watch_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3168637461777469u
#define STAGGER_SECONDS 0.1 /* time between two attempts to connect to one process */
#define TURN_SECONDS 0.2    /* a process that gives up tries for this time to reach each other process */
#define LATE_SECONDS 1.0    /* a process that gives up at its limit stays for this time */
/* Once this process has all its connections, others have this time to report a missing one. */
#define GRACE_SECONDS 0.5

/* The sizes of a meeting. */
enum {
    ATTEMPTS = ITH_WATCH_INTERFACES + 2, /* the interfaces and two loopbacks */
    ARRIVALS = 64,                       /* connections whose hello is awaited */
    NAME_BYTES = ITH_WATCH_NAME + 64,
    /* Numbers of all sockets of a meeting: attempts, arrivals, the port, and the connections to the processes. */
    PORT = ATTEMPTS + ARRIVALS,
    PEERS = PORT + 1
};

/* The first message of the process that connects. theirs: the cookie of the process that it looks for. */
typedef struct hello {
    uint64_t magic;
    int32_t process, processes; /* the number of the process that connects, and of all */
    uint8_t theirs[ITH_WATCH_COOKIE], mine[ITH_WATCH_COOKIE];
} hello;

/* The answer to the right hello. */
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

/* The state of ith_watch_connect. */
typedef struct meeting {
    ith_watch *watch;
    const ith_watch_address *all;
    int target;                   /* the process that this process connects to */
    int missing;                  /* number of processes after this one that have not come */
    int next;                     /* number of the next address of the target */
    double next_time;             /* the time at which the next address is tried */
    int error;                    /* errno of the last attempt that failed; 0: none failed */
    half_open attempts[ATTEMPTS]; /* a connection to each address of the target */
    half_open arrivals[ARRIVALS]; /* connections from processes after this one */
    int oldest;                   /* number of the arrival that is replaced when all are in use */
    bool full;                    /* this process can open no more descriptors, or the system has no more */
    double seconds;               /* the limit */
    double pulse_time;            /* the time of the next AWAITS */
    double turn_end;              /* if this process gives up: the end of its attempts to reach the target */
    bool said;                    /* this process has sent CONNECTED */
    int answers;                  /* number of processes that have sent CONNECTED */
    bool *answered;               /* [processes]: whether each process has sent CONNECTED */
    struct pollfd *polls;         /* [PEERS + processes]: the sockets that are open */
    int *polled;                  /* [PEERS + processes]: the number of each */
    ith_status status;            /* not ITH_OK: this process gives up; `sentence` says why */
    int blamed;                   /* the process to blame; -1: unknown */
    char *sentence;
    size_t bytes;
} meeting;

static void drop(half_open *h)
{
    if (h->socket >= 0)
        close(h->socket);
    *h = (half_open){.socket = -1};
}

/* Sets the bytes of FAILED. Returns their number. */
static size_t write_failure(const meeting *m, watch_failure *failure)
{
    failure->blamed = m->blamed;
    size_t bytes = (size_t)snprintf(failure->sentence, sizeof failure->sentence, "%s", m->sentence) + 1;
    bytes = bytes < sizeof failure->sentence ? bytes : sizeof failure->sentence;
    return offsetof(watch_failure, sentence) + bytes;
}

/* Sends FAILED to a process that is connected. */
static void say_failure(const meeting *m, int process)
{
    watch_failure failure = {0};
    const size_t bytes = write_failure(m, &failure);
    ith_watch_put(m->watch, &m->watch->peers[process], WATCH_FAILED, &failure, bytes, false);
}

/* Closes all attempts. If this process gives up, it sends FAILED behind each hello: the target may take the connection
 * later, and must not find it closed without a reason. */
static void drop_attempts(meeting *m)
{
    struct {
        watch_head head;
        watch_failure failure;
    } message = {.head.kind = WATCH_FAILED};
    message.head.bytes = (uint16_t)write_failure(m, &message.failure);
    for (int i = 0; i < ATTEMPTS; i++) {
        if (m->status && m->attempts[i].sent)
            send(m->attempts[i].socket, &message, sizeof message.head + message.head.bytes, MSG_NOSIGNAL);
        drop(&m->attempts[i]);
    }
}

/* Keeps a half-open connection as the connection with a process. */
static void adopt(meeting *m, half_open *h, int process)
{
    watch_peer *peer = &m->watch->peers[process];
    setsockopt(h->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    peer->socket = h->socket;
    peer->read_ns = ith_watch_now_ns();
    h->socket = -1;
    drop(h);
    if (m->status)
        say_failure(m, process);
}

/* "process 2 (host b, pid 4711)". Returns `text`. */
static const char *name_process(const meeting *m, int process, char text[NAME_BYTES])
{
    const ith_watch_address *a = &m->all[process];
    snprintf(text, NAME_BYTES, "process %lld (host %.*s, pid %lld)", (long long)a->number, ITH_WATCH_NAME - 1, a->name,
             (long long)a->pid);
    return text;
}

/* Makes this process give up, because of the process `blamed`. The first failure counts. */
static void fail(meeting *m, ith_status status, int blamed, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!m->status) {
        vsnprintf(m->sentence, m->bytes, format, arguments);
        m->status = status;
        m->blamed = blamed;
    }
    va_end(arguments);
}

/* To be called when a descriptor could not be opened (errno). Gives up if this process may open no more, or if the
 * system has no more: a connection that cannot be accepted stays in the queue, and would be tried again without end. */
static void check_descriptors(meeting *m)
{
    const int reason = errno;
    char name[NAME_BYTES];
    name_process(m, m->watch->process, name);
    m->full |= reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM;
    if (reason == EMFILE)
        fail(
            m, ITH_ERR_IO, m->watch->process,
            "%s can open no more files and connections: raise their limit (ulimit -n); it needs one connection to each "
            "of %d processes, and some files",
            name, m->watch->processes);
    else if (m->full)
        fail(m, ITH_ERR_IO, m->watch->process, "%s: the system gives it no more connections: %s", name,
             strerror(reason));
    errno = reason;
}

/* Reads the missing part of a hello or welcome of `bytes` bytes. Returns 1 if it is complete, 0 if the rest may still
 * come, and -1 if the rest cannot come. */
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

/* Ends an attempt that has failed. The next address is tried at once. */
static void fail_attempt(meeting *m, half_open *h, int reason, double now)
{
    m->error = reason;
    m->next_time = now;
    drop(h);
}

/* Begins to connect to the next address of the target if it is time, unless an attempt there goes on. The first address
 * follows the last one. */
static void try_next_address(meeting *m, double now)
{
    struct sockaddr_storage address;
    if (m->target == m->watch->process || now < m->next_time)
        return;
    m->next_time = now + STAGGER_SECONDS;
    socklen_t bytes = find_address(m, m->next, &address);
    half_open *attempt = &m->attempts[bytes ? m->next : 0];
    m->next = bytes ? m->next + 1 : 0;
    if (!bytes || attempt->socket >= 0)
        return;
    attempt->socket = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attempt->socket < 0)
        check_descriptors(m);
    if (attempt->socket < 0 || (connect(attempt->socket, (struct sockaddr *)&address, bytes) && errno != EINPROGRESS))
        fail_attempt(m, attempt, errno, now);
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

/* Makes the next process before this one to which there is no connection the target. If there is none, the target is
 * this process itself. */
static void choose_target(meeting *m, double now)
{
    const int before = m->target, process = m->watch->process;
    m->target = process;
    for (int i = 1; i <= process && m->target == process; i++)
        if (m->watch->peers[(before + i) % process].socket < 0)
            m->target = (before + i) % process;
    drop_attempts(m);
    m->next = m->error = 0;
    m->next_time = now;
    m->turn_end = now + TURN_SECONDS;
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
    if (h->input.welcome.magic != MAGIC || memcmp(h->input.welcome.mine, m->all[m->target].cookie, ITH_WATCH_COOKIE)) {
        fail_attempt(m, h, EPROTO, now);
        return;
    }
    adopt(m, h, m->target);
    choose_target(m, now);
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
    check_descriptors(m);
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
    if (come < 0 || !is_awaited(m, &h->input.hello) ||
        send(h->socket, &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine) {
        drop(h);
        return;
    }
    adopt(m, h, process);
    m->missing--;
}

/* ---- Agreement --------------------------------------------------------------------------------------------------- */

/* Whether the messages of a process are read: it is connected, and it cannot have finished. */
static bool is_heard(const meeting *m, int process)
{
    return m->watch->peers[process].socket >= 0 && (!m->answered[process] || !m->said);
}

/* Handles the message of a process that is complete in its input. */
static void take_answer(meeting *m, int process, const watch_head *head)
{
    const char *message = m->watch->peers[process].input + sizeof *head;
    size_t before = offsetof(watch_failure, sentence);
    int32_t blamed = -1;
    if (head->kind == WATCH_FAILED && head->bytes > before) {
        memcpy(&blamed, message, sizeof blamed);
        fail(m, ITH_ERR_ABORTED, blamed, "%.*s", (int)(head->bytes - before), message + before);
    }
    if (head->kind != WATCH_CONNECTED || m->answered[process])
        return;
    m->answered[process] = true;
    m->answers++;
}

/* Reads the next message of a process as far as it is there, and nothing behind it. */
static void serve_answer(meeting *m, int process)
{
    watch_peer *peer = &m->watch->peers[process];
    watch_head head = {0, 0};
    char name[NAME_BYTES];
    if (peer->end >= sizeof head)
        memcpy(&head, peer->input, sizeof head);
    ssize_t count = recv(peer->socket, peer->input + peer->end, sizeof head + head.bytes - peer->end, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (count <= 0)
        return fail(m, ITH_ERR_ABORTED, process,
                    "%s died while the processes were being connected: its connection closed",
                    name_process(m, process, name));
    peer->end += (size_t)count;
    peer->read_ns = ith_watch_now_ns();
    if (peer->end < sizeof head)
        return;
    memcpy(&head, peer->input, sizeof head);
    bool known = head.kind == WATCH_CONNECTED || head.kind == WATCH_FAILED || head.kind == WATCH_AWAITS;
    if (!known || head.bytes > ITH_WATCH_BYTES)
        return fail(m, ITH_ERR_ABORTED, process, "the connection to %s carried bytes that are no answer",
                    name_process(m, process, name));
    if (peer->end < sizeof head + head.bytes)
        return;
    peer->end = 0;
    take_answer(m, process, &head);
}

/* Sends a message to all processes that are connected. */
static void send_all(const meeting *m, uint16_t kind, const void *data, size_t bytes)
{
    for (int i = 0; i < m->watch->processes; i++)
        if (m->watch->peers[i].socket >= 0)
            ith_watch_put(m->watch, &m->watch->peers[i], kind, data, bytes, kind == WATCH_AWAITS);
}

/* ---- The meeting ----------------------------------------------------------------------------------------------- */

/* Adds socket number `number` to the list of `count` sockets, unless it is -1. Returns the new count. */
static int add_socket(meeting *m, int count, int number, int socket, short events)
{
    if (socket < 0)
        return count;
    m->polls[count] = (struct pollfd){socket, events, 0};
    m->polled[count] = number;
    return count + 1;
}

/* Lists the open sockets whose events matter, and no others: poll takes no more entries than the process may have
 * descriptors. Returns their count. */
static int list_sockets(meeting *m)
{
    int count = 0;
    for (int i = 0; i < ATTEMPTS; i++)
        count = add_socket(m, count, i, m->attempts[i].socket, m->attempts[i].sent ? POLLIN : POLLOUT);
    for (int i = 0; i < ARRIVALS; i++)
        count = add_socket(m, count, ATTEMPTS + i, m->arrivals[i].socket, POLLIN);
    count = add_socket(m, count, PORT, m->full ? -1 : m->watch->listener, POLLIN);
    for (int i = 0; i < m->watch->processes && !m->status; i++)
        if (is_heard(m, i))
            count = add_socket(m, count, PEERS + i, m->watch->peers[i].socket, POLLIN);
    return count;
}

/* Waits until a connection of the meeting needs attention, at most 20 ms, and gives it. */
static void serve(meeting *m)
{
    const int count = list_sockets(m);
    if (poll(m->polls, (nfds_t)count, 20) <= 0)
        return;
    double now = ith_watch_now();
    for (int i = 0; i < count; i++) {
        const int number = m->polled[i];
        if (!m->polls[i].revents)
            continue;
        if (number >= PEERS)
            serve_answer(m, number - PEERS);
        else if (number == PORT)
            accept_arrivals(m);
        else if (number >= ATTEMPTS)
            serve_arrival(m, &m->arrivals[number - ATTEMPTS]);
        else if (m->attempts[number].socket == m->polls[i].fd) /* none is left once the target is connected */
            serve_attempt(m, &m->attempts[number], now);
    }
}

/* Whether a process of this host is in a state; false if it runs on another host. */
static bool is_known_as(const meeting *m, int process, ith_watch_life life)
{
    return ith_watch_same_host(&m->all[process], &m->all[m->watch->process]) &&
           ith_watch_find_life(m->all[process].pid) == life;
}

/* The seconds between two AWAITS. */
static double find_period(const meeting *m)
{
    return m->seconds < 1.6 ? m->seconds / 16 : 0.1;
}

/* The nanoseconds since a connected process has last sent anything; 0 if they are less than a few periods of AWAITS. */
static int64_t find_silence(const meeting *m, int process)
{
    const int64_t limit = (int64_t)((m->seconds < 8 ? m->seconds / 4 : 2) * 1e9);
    const watch_peer *peer = &m->watch->peers[process];
    int64_t silence = peer->socket < 0 ? 0 : ith_watch_now_ns() - peer->read_ns;
    return silence < limit ? 0 : silence;
}

/* The number of the process to blame if the time is over. The choice is the first of these that exists: a process that
 * is stopped; the process that has been silent longest; the first process to which there is no connection; the first
 * process that has not answered. Silence counts before a missing connection, because a process that has no connection
 * yet may itself wait for a silent one. */
static int find_culprit(const meeting *m, bool *stopped)
{
    const ith_watch *w = m->watch;
    int64_t longest = 0;
    int found = -1;
    for (int i = 0; i < w->processes; i++) {
        bool absent = i != w->process && (w->peers[i].socket < 0 || !m->answered[i]);
        *stopped = absent && is_known_as(m, i, ITH_WATCH_STOPPED);
        if (*stopped)
            return i;
        int64_t silence = absent ? find_silence(m, i) : 0;
        bool unconnected = absent && !longest && w->peers[i].socket < 0 && found >= 0 && w->peers[found].socket >= 0;
        if (absent && (found < 0 || silence > longest || unconnected))
            found = i;
        longest = silence > longest ? silence : longest;
    }
    return found;
}

/* Sends AWAITS if it is time. */
static void send_awaited(meeting *m, double now)
{
    bool stopped;
    if (now < m->pulse_time)
        return;
    m->pulse_time = now + find_period(m);
    int32_t awaited = find_culprit(m, &stopped);
    send_all(m, WATCH_AWAITS, &awaited, sizeof awaited);
}

/* Says which process or connection is missing when the time is over. */
static void explain(meeting *m)
{
    const ith_watch *w = m->watch;
    bool stopped, heard = false;
    int other = find_culprit(m, &stopped);
    char name[NAME_BYTES];
    name_process(m, other, name);
    for (int i = 0; i < ATTEMPTS; i++)
        heard |= other == m->target && m->attempts[i].sent;
    if (stopped)
        return fail(m, ITH_ERR_TIMEOUT, other, "%s is stopped, and was not connected within %.3g s", name, m->seconds);
    if (heard || w->peers[other].socket >= 0)
        return fail(m, ITH_ERR_TIMEOUT, other, "%s took the connection and did not answer within %.3g s", name,
                    m->seconds);
    bool awaited = other > w->process;
    const ith_watch_address *from = &m->all[awaited ? other : w->process], *to = &m->all[awaited ? w->process : other];
    fail(m, ITH_ERR_TIMEOUT, other,
         "process %lld on %.*s did not reach process %lld on %.*s at TCP port %d within %.3g s (%d addresses%s%s)%s",
         (long long)from->number, ITH_WATCH_NAME - 1, from->name, (long long)to->number, ITH_WATCH_NAME - 1, to->name,
         to->port, m->seconds, to->interfaces, m->error ? "; the last: " : "", m->error ? strerror(m->error) : "",
         m->error ? "" : ": a firewall may be in the way");
}

/* Allocates the connections; none is made. */
static bool make_peers(ith_watch *w, int process, int processes)
{
    w->peers = calloc((size_t)processes, sizeof *w->peers);
    w->process = process;
    w->processes = w->peers ? processes : 0;
    for (int i = 0; i < w->processes; i++) {
        w->peers[i].socket = -1;
        w->peers[i].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
    return w->peers != NULL;
}

/* Allocates the lists of a meeting, in which nobody has come. */
static bool begin_meeting(meeting *m, int processes)
{
    m->answered = calloc((size_t)processes, sizeof *m->answered);
    m->polls = calloc((size_t)(PEERS + processes), sizeof *m->polls);
    m->polled = calloc((size_t)(PEERS + processes), sizeof *m->polled);
    for (int i = 0; i < ATTEMPTS; i++)
        m->attempts[i].socket = -1;
    for (int i = 0; i < ARRIVALS; i++)
        m->arrivals[i].socket = -1;
    return m->answered && m->polls && m->polled;
}

/* Closes the port, and all connections except the ones that both ends keep. */
static void end_meeting(meeting *m)
{
    drop_attempts(m);
    for (int i = 0; i < ARRIVALS; i++)
        drop(&m->arrivals[i]);
    free(m->answered);
    free(m->polls);
    free(m->polled);
    close(m->watch->listener);
    m->watch->listener = -1;
}

/* Gives the connections to ith_watch_receive, which reads them from now on. */
static void hand_over_connections(meeting *m)
{
    for (int i = 0; i < m->watch->processes; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &m->watch->peers[i]};
        int socket = m->watch->peers[i].socket;
        if (socket >= 0 && epoll_ctl(m->watch->epoll, EPOLL_CTL_ADD, socket, &event)) {
            char name[NAME_BYTES];
            fail(m, ITH_ERR_IO, m->watch->process, "%s cannot watch its control connections: %s",
                 name_process(m, m->watch->process, name), strerror(errno));
        }
    }
}

/* Runs the meeting until all processes are connected, or this one gives up. */
static void run_meeting(meeting *m, const ith_watch_patience *patience, double end)
{
    const ith_watch *w = m->watch;
    while (m->answers < w->processes - 1) {
        double now = ith_watch_now();
        if (now >= end + (m->said ? GRACE_SECONDS : 0))
            explain(m);
        else if (patience->look && !patience->look(patience->user, m->sentence, m->bytes))
            m->status = ITH_ERR_ABORTED;
        if (m->status)
            return;
        try_next_address(m, now);
        send_awaited(m, now);
        serve(m);
        if (m->status)
            return;
        if (!m->said && m->target == w->process && !m->missing) {
            m->said = true;
            send_all(m, WATCH_CONNECTED, NULL, 0);
        }
    }
}

/* Whether a process has no connection yet, and may come. */
static bool may_come(const meeting *m, int process)
{
    return process != m->watch->process && process != m->blamed && m->watch->peers[process].socket < 0 &&
           !is_known_as(m, process, ITH_WATCH_STOPPED) && !is_known_as(m, process, ITH_WATCH_ENDED);
}

/* Sends FAILED to all processes, also to each process that is connected later, but before the time `end`. */
static void spread_failure(meeting *m, double end)
{
    const ith_watch *w = m->watch;
    double last = ith_watch_now() + LATE_SECONDS;
    m->turn_end = ith_watch_now() + TURN_SECONDS;
    for (int i = 0; i < w->processes; i++)
        if (w->peers[i].socket >= 0)
            say_failure(m, i);
    for (last = last > end ? last : end;;) {
        double now = ith_watch_now();
        int missing = 0;
        while (missing < w->processes && !may_come(m, missing))
            missing++;
        if (missing == w->processes || now >= last)
            return;
        if (now >= m->turn_end && m->target != w->process)
            choose_target(m, now);
        try_next_address(m, now);
        serve(m);
    }
}

ith_status ith_watch_connect(ith_watch *w, const ith_watch_address *all, int process, int processes,
                             const ith_watch_patience *patience, char *sentence, size_t bytes)
{
    const double end = ith_watch_now() + patience->seconds;
    meeting m = {.watch = w,
                 .all = all,
                 .seconds = patience->seconds,
                 .missing = processes - process - 1,
                 .blamed = -1,
                 .sentence = sentence,
                 .bytes = bytes};
    m.pulse_time = ith_watch_now() + find_period(&m);
    bool lists = begin_meeting(&m, processes);
    if (!make_peers(w, process, processes) || !lists)
        fail(&m, ITH_ERR_MEMORY, process, "no memory for the control connections of %d processes", processes);
    else
        run_meeting(&m, patience, end);
    if (!m.status)
        hand_over_connections(&m);
    if (m.status && lists)
        spread_failure(&m, end);
    end_meeting(&m);
    return m.status;
}
