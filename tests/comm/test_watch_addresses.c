/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections (ith_watch): which connections are accepted, which addresses are tried, and which processes count
 * as processes of one host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "support/in_range.h"
#include "support/times.h"
#include "support/watch_party.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Foreign connections that send nothing, too little or nonsense, or close at once, do not disturb the meeting. */
static void strangers_are_ignored(void **state)
{
    (void)state;
    enum { STRANGERS = 100 };
    party p;
    int strangers[STRANGERS];
    char noise[200];
    party_listen(&p, 3);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 71);
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = party_knock(p.all[i % 2].port);
        if (i % 4 > 1)
            assert_true(send(strangers[i], noise, i % 8 > 3 ? sizeof noise : 7, MSG_NOSIGNAL) > 0);
        if (i % 3 == 0)
            shutdown(strangers[i], SHUT_RDWR);
    }
    party_connect(&p);
    for (int i = 0; i < 3; i++)
        assert_true(p.met[i]);
    for (int i = 0; i < STRANGERS; i++)
        close(strangers[i]);
    assert_true(ith_watch_send(p.watches[1], 0, "x", 1, false));
    int from = -1;
    assert_int_equal(party_hear(p.watches[0], &from, &(const void *){NULL}, &(size_t){0}), ITH_WATCH_MESSAGE);
    assert_int_equal(from, 1);
    party_part(&p);
}

/* The first message of a process that connects, as in comm/wire/watch_meet.c. */
typedef struct greeting {
    uint64_t magic;
    int32_t process, processes;
    uint8_t theirs[ITH_WATCH_COOKIE], mine[ITH_WATCH_COOKIE];
} greeting;

#define MAGIC 0x3168637461777469u

/* The greeting with which a process comes to process 0. */
static greeting greeting_of(const party *p, int process)
{
    greeting g = {.magic = MAGIC, .process = process, .processes = p->size};
    memcpy(g.theirs, p->all[0].cookie, ITH_WATCH_COOKIE);
    memcpy(g.mine, p->all[process].cookie, ITH_WATCH_COOKIE);
    return g;
}

/* Sends a greeting to process 0. Returns the connection. */
static int greet(const party *p, const greeting *g)
{
    int descriptor = party_knock(p->all[0].port);
    assert_true(send(descriptor, g, sizeof *g, MSG_NOSIGNAL) == (ssize_t)sizeof *g);
    return descriptor;
}

/* Connections that name a process, but not rightly, get no answer, and the process itself is connected. */
static void false_names_are_ignored(void **state)
{
    (void)state;
    enum { LIARS = 8 };
    party p;
    int liars[LIARS];
    char answer;
    party_listen(&p, 3);
    greeting lies[LIARS];
    for (int i = 0; i < LIARS; i++)
        lies[i] = greeting_of(&p, 1);
    lies[0].magic ^= 1;
    lies[1].process = 0;
    lies[2].process = 3;
    lies[3].process = -1;
    lies[4].process = INT32_MAX;
    lies[5].processes = 4;
    lies[6].theirs[15] ^= 1;
    lies[7].mine[15] ^= 1;
    memcpy(lies[1].mine, p.all[0].cookie, ITH_WATCH_COOKIE);
    memset(lies[2].mine, 0, ITH_WATCH_COOKIE); /* the cookie of a process that does not exist */
    memset(p.all[3].cookie, 0, ITH_WATCH_COOKIE);
    for (int i = 0; i < LIARS; i++)
        liars[i] = greet(&p, &lies[i]);
    party_connect(&p);
    for (int i = 0; i < 3; i++)
        assert_true(p.met[i]);
    for (int i = 0; i < LIARS; i++) {
        assert_true(recv(liars[i], &answer, 1, 0) <= 0);
        close(liars[i]);
    }
    party_part(&p);
}

/* A connection that knows the cookies counts as the process. A second connection of the process gets no answer. */
static void a_process_comes_once(void **state)
{
    (void)state;
    party p;
    char answer;
    party_listen(&p, 2);
    const greeting g = greeting_of(&p, 1);
    p.absent[1] = true, p.seconds = 1;
    const int one = greet(&p, &g), two = greet(&p, &g);
    party_connect(&p);
    assert_false(p.met[0]);
    assert_non_null(strstr(p.sentences[0], "took the connection and did not answer"));
    const bool answered[] = {recv(one, &answer, 1, 0) == 1, recv(two, &answer, 1, 0) == 1};
    assert_true(answered[0] != answered[1]);
    close(one), close(two);
    party_part(&p);
}

/* ---- Processes that only the test plays ------------------------------------------------------------------------ */

enum { CONNECTED = 0x4d33, AWAITS = 0x4d36, MESSAGE = 0x4d31 }; /* kinds of messages, as in comm/wire/watch_state.h */

/* Sends a message of `bytes` zeros. */
static void tell(int descriptor, uint16_t kind, uint16_t bytes)
{
    static const char zeros[UINT16_MAX];
    const uint16_t head[2] = {kind, bytes};
    assert_true(send(descriptor, head, sizeof head, MSG_NOSIGNAL) == sizeof head);
    assert_true(send(descriptor, zeros, bytes, MSG_NOSIGNAL) == bytes);
}

/* Waits until process 0 has said that it has all its connections. */
static void await_connected(int descriptor)
{
    char welcome[sizeof(uint64_t) + ITH_WATCH_COOKIE], data[ITH_WATCH_BYTES];
    uint16_t head[2] = {0, 0};
    assert_int_equal(recv(descriptor, welcome, sizeof welcome, MSG_WAITALL), sizeof welcome);
    while (head[0] != CONNECTED) {
        assert_int_equal(recv(descriptor, head, sizeof head, MSG_WAITALL), sizeof head);
        assert_int_equal(recv(descriptor, data, head[1], MSG_WAITALL), head[1]);
    }
}

/* Processes 1 and 2, as the test plays them. Process 1 has finished its meeting, and sends a message at once. Process 2
 * says only later that it has all its connections. */
static void *play_two(void *user)
{
    const int *sockets = user;
    await_connected(sockets[0]);
    await_connected(sockets[1]);
    tell(sockets[0], CONNECTED, 0);
    tell(sockets[0], MESSAGE, 3);
    nap(0.2);
    tell(sockets[1], CONNECTED, 0);
    return NULL;
}

/* Messages behind CONNECTED are for ith_watch_receive. */
static void a_message_of_a_process_that_has_finished_waits(void **state)
{
    (void)state;
    party p;
    pthread_t thread;
    const void *data = NULL;
    size_t bytes = 0;
    int from = -1, sockets[2];
    party_listen(&p, 3);
    party_separate(&p);
    p.absent[1] = p.absent[2] = true;
    for (int i = 0; i < 2; i++) {
        const greeting g = greeting_of(&p, 1 + i);
        sockets[i] = greet(&p, &g);
    }
    assert_int_equal(pthread_create(&thread, NULL, play_two, sockets), 0);
    party_connect(&p);
    pthread_join(thread, NULL);
    if (!p.met[0])
        fail_msg("%s", p.sentences[0]);
    assert_int_equal(party_hear(p.watches[0], &from, &data, &bytes), ITH_WATCH_MESSAGE);
    assert_true(from == 1 && bytes == 3);
    close(sockets[0]), close(sockets[1]);
    party_part(&p);
}

/* A process that says twice that it has all its connections counts once. A message is no longer than the memory for
 * it. */
static void answers_are_checked(void **state)
{
    (void)state;
    static const char *const sentences[] = {"did not reach process 0", "carried bytes that are no answer"};
    for (int i = 0; i < 2; i++) {
        party p;
        party_listen(&p, 3);
        party_separate(&p);
        const greeting g = greeting_of(&p, 1);
        p.absent[1] = p.absent[2] = true, p.seconds = 0.5;
        const int descriptor = greet(&p, &g);
        tell(descriptor, i ? AWAITS : CONNECTED, i ? ITH_WATCH_BYTES + 1 : 0);
        tell(descriptor, CONNECTED, 0);
        party_connect(&p);
        assert_false(p.met[0]);
        assert_non_null(strstr(p.sentences[0], sentences[i]));
        close(descriptor);
        party_part(&p);
    }
}

enum { KNOCKS = 70, KEPT = 64 }; /* KEPT: connections of strangers that a process keeps */
static int knocks[KNOCKS], closed_knocks, wrong_knocks;

/* Counts the connections that are closed after a while, and the closed connections that are not among the oldest. */
static bool count_closed(void *user, char *sentence, size_t bytes)
{
    party *p = user;
    char byte;
    (void)sentence, (void)bytes;
    if (++p->looks != 10)
        return true;
    for (int i = 0; i < KNOCKS; i++)
        if (recv(knocks[i], &byte, 1, MSG_DONTWAIT) == 0)
            closed_knocks++, wrong_knocks += i >= KNOCKS - KEPT;
    return true;
}

static void the_oldest_strangers_are_dropped(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 2);
    p.absent[1] = true, p.seconds = 0.8, p.look[0] = count_closed, p.looks = 0;
    closed_knocks = wrong_knocks = 0;
    for (int i = 0; i < KNOCKS; i++)
        knocks[i] = party_knock(p.all[0].port);
    party_connect(&p);
    assert_int_equal(closed_knocks, KNOCKS - KEPT);
    assert_int_equal(wrong_knocks, 0);
    for (int i = 0; i < KNOCKS; i++)
        close(knocks[i]);
    party_part(&p);
}

/* ---- Addresses ------------------------------------------------------------------------------------------------- */

/* Adds an address of process 0: 127.0.0.`last`, or ::1. */
static void add_address(party *p, bool ipv6, uint8_t last)
{
    ith_watch_interface *to = &p->all[0].interface[p->all[0].interfaces++];
    *to = (ith_watch_interface){.ipv6 = ipv6};
    memcpy(to->bytes, (uint8_t[]){127, 0, 0, last}, 4);
    if (ipv6)
        memcpy(to->bytes, &in6addr_loopback, 16);
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = descriptor >= 0 && !bind(descriptor, (struct sockaddr *)&address, sizeof address);
    if (descriptor >= 0)
        close(descriptor);
    return has;
}

/* The first address of process 0 leads nowhere. Returns the seconds until the processes are connected. */
static double try_addresses(bool ipv6)
{
    party p;
    party_listen(&p, 2);
    party_separate(&p);
    p.all[0].interfaces = 0;
    /* an address for documentation (RFC 5737), which leads nowhere */
    p.all[0].interface[p.all[0].interfaces++] = (ith_watch_interface){.bytes = {192, 0, 2, 1}};
    add_address(&p, ipv6, 1);
    double begin = ith_clock_seconds();
    party_connect(&p);
    double seconds = ith_clock_seconds() - begin;
    if (!p.met[0] || !p.met[1])
        fail_msg("%s; %s", p.sentences[0], p.sentences[1]);
    party_part(&p);
    return seconds;
}

static void all_addresses_are_tried(void **state)
{
    (void)state;
    for (int ipv6 = 0; ipv6 < 1 + has_ipv6(); ipv6++) {
        double seconds = try_addresses(ipv6);
        for (int n = 0; n < 5 && seconds >= 3; n++) /* a busy machine */
            seconds = try_addresses(ipv6);
        assert_true(seconds < 3);
    }
}

/* Processes without addresses reach one another over the loopback alone, if they run in one network of one system. A
 * process that does not know its system or its network does not try. */
static void the_loopback_is_for_neighbours(void **state)
{
    (void)state;
    static const struct {
        const char *boots[2];
        uint64_t networks[2];
        bool near;
    } cases[] = {{{"one", "one"}, {7, 7}, true},
                 {{"one", "two"}, {7, 7}, false},
                 {{"", ""}, {7, 7}, false},
                 {{"one", "one"}, {0, 0}, false},
                 {{"one", "one"}, {7, 8}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        party p;
        party_listen(&p, 2);
        party_separate(&p);
        for (int process = 0; process < 2; process++) {
            snprintf(p.all[process].boot, sizeof p.all[process].boot, "%s", cases[i].boots[process]);
            p.all[process].network = cases[i].networks[process];
            p.all[process].interfaces = 0;
        }
        p.seconds = cases[i].near ? 60 : 0.3;
        party_connect(&p);
        assert_true(p.met[0] == cases[i].near && p.met[1] == cases[i].near);
        party_part(&p);
    }
}

/* A process that says that it has more addresses than an address of a process holds. All of them lead nowhere; the
 * bytes behind them, which would lead to it, are no addresses. */
static void addresses_end_with_their_list(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 2);
    party_separate(&p);
    for (int i = 0; i < ITH_WATCH_INTERFACES; i++)
        p.all[0].interface[i] = (ith_watch_interface){.bytes = {192, 0, 2, 1}};
    const ith_watch_interface right = {.bytes = {127, 0, 0, 1}};
    memcpy((char *)p.all + offsetof(ith_watch_address, interface) + sizeof p.all[0].interface, &right, sizeof right);
    p.all[0].interfaces = 60000;
    p.seconds = 2; /* addresses are tried 0.1 s apart */
    party_connect(&p);
    assert_false(p.met[1]);
    party_part(&p);
}

/* Listens at 127.0.0.`last`, at any port if *port is 0. */
static int listen_at(uint8_t last, uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(&address.sin_addr, (uint8_t[]){127, 0, 0, last}, 4);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return listener;
}

/* The number of descriptors that this process has open. */
static int count_descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 1024; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

/* Process 1 looks for process 0 at 16 addresses. Somebody listens at the last one and says nothing, or nobody does.
 * Returns whether process 1 came there. */
static bool comes_to_the_last(bool listens, const char *sentence)
{
    const int before = count_descriptors();
    party p;
    uint16_t port = 0;
    party_listen(&p, 2);
    party_separate(&p);
    const int listener = listen_at(ITH_WATCH_INTERFACES + 1, &port);
    p.all[0].port = port, p.all[0].interfaces = 0, p.absent[0] = true, p.seconds = 1;
    for (uint8_t i = 0; i < ITH_WATCH_INTERFACES; i++)
        add_address(&p, false, (uint8_t)(2 + i));
    if (!listens)
        close(listener);
    party_connect(&p);
    const bool comes = listens && poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0) == 1;
    const bool right = strstr(p.sentences[1], sentence) != NULL;
    if (listens)
        close(listener);
    party_part(&p);
    assert_int_equal(count_descriptors(), before); /* no attempt is left open */
    return comes == listens && right;
}

/* After an attempt that has failed the next address is tried at once. A machine that is busy may be slower. */
static void addresses_follow_one_another_at_once(void **state)
{
    (void)state;
    for (int listens = 0; listens < 2; listens++) {
        const char *sentence = listens ? "took the connection" : "(16 addresses; the last: Connection refused)";
        int attempts = 0;
        while (!comes_to_the_last(listens, sentence) && attempts < 5)
            attempts++;
        assert_true(attempts < 5);
    }
}

/* Processes of one network also try the loopback of IPv6. */
static void neighbours_try_both_loopbacks(void **state)
{
    (void)state;
    if (!has_ipv6())
        skip();
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t bytes = sizeof address;
    party p;
    const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    party_listen(&p, 2);
    p.all[0].port = ntohs(address.sin6_port), p.all[0].interfaces = 0, p.absent[0] = true, p.seconds = 1;
    party_connect(&p);
    assert_int_equal(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0), 1);
    close(listener);
    party_part(&p);
}

/* A way to a port. The first connection over it is lost, and the second one works. */
typedef struct rough_way {
    int listener;
    uint16_t port; /* where it leads to */
    pthread_t thread;
} rough_way;

static void *forward(void *user)
{
    const rough_way *way = user;
    char bytes[4096];
    close(accept(way->listener, NULL, NULL));
    struct pollfd ends[2] = {{.fd = accept(way->listener, NULL, NULL), .events = POLLIN}};
    if (ends[0].fd < 0)
        return NULL;
    ends[1] = (struct pollfd){.fd = party_knock(way->port), .events = POLLIN};
    for (int open = 2; open && poll(ends, 2, 60000) > 0;)
        for (int i = 0; i < 2; i++) {
            ssize_t count = ends[i].revents ? recv(ends[i].fd, bytes, sizeof bytes, 0) : -1;
            if (count > 0)
                send(ends[!i].fd, bytes, (size_t)count, MSG_NOSIGNAL);
            if (count == 0) {
                shutdown(ends[!i].fd, SHUT_WR);
                ends[i].events = 0;
                ends[i].fd = ~ends[i].fd; /* poll leaves it out */
                open--;
            }
        }
    for (int i = 0; i < 2; i++)
        close(ends[i].fd < 0 ? ~ends[i].fd : ends[i].fd);
    return NULL;
}

/* Only one address leads to process 0, and the first connection over it is lost. At its other address a socket takes
 * connections and sends nothing. */
static void an_address_is_tried_again(void **state)
{
    (void)state;
    party p;
    rough_way way;
    uint16_t port = 0;
    party_listen(&p, 2);
    party_separate(&p);
    p.seconds = 60;
    way.port = p.all[0].port;
    way.listener = listen_at(2, &port);
    int silent = listen_at(3, &port);
    p.all[0].port = port;
    p.all[0].interfaces = 0;
    add_address(&p, false, 2);
    add_address(&p, false, 3);
    assert_int_equal(pthread_create(&way.thread, NULL, forward, &way), 0);
    party_connect(&p);
    shutdown(way.listener, SHUT_RDWR); /* if the second connection has not come */
    if (!p.met[0] || !p.met[1])
        fail_msg("%s; %s", p.sentences[0], p.sentences[1]);
    party_part(&p);
    pthread_join(way.thread, NULL);
    close(way.listener);
    close(silent);
}

/* A program that listens at a false address, and its welcome. */
typedef struct stranger {
    int listener;
    struct {
        uint64_t magic;
        uint8_t cookie[ITH_WATCH_COOKIE];
    } welcome;
    pthread_t thread;
} stranger;

/* Answers every connection with the welcome, until the listener is shut down. */
static void *welcome_wrongly(void *user)
{
    const stranger *s = user;
    int descriptor;
    while ((descriptor = accept(s->listener, NULL, NULL)) >= 0) {
        greeting g;
        if (recv(descriptor, &g, sizeof g, MSG_WAITALL) == (ssize_t)sizeof g)
            send(descriptor, &s->welcome, sizeof s->welcome, MSG_NOSIGNAL);
        recv(descriptor, &g, 1, 0); /* until the other end closes it */
        close(descriptor);
    }
    return NULL;
}

/* An address may lead to another program. A program that does not know the cookie is not the process. */
static void a_false_welcome_is_refused(void **state)
{
    (void)state;
    for (int knows_cookie = 0; knows_cookie < 2; knows_cookie++) {
        party p;
        uint16_t port = 0;
        stranger s = {.welcome.magic = knows_cookie ? MAGIC ^ 1 : MAGIC};
        party_listen(&p, 2);
        party_separate(&p);
        if (knows_cookie)
            memcpy(s.welcome.cookie, p.all[0].cookie, ITH_WATCH_COOKIE);
        s.listener = listen_at(1, &port);
        p.all[0].port = port, p.absent[0] = true, p.seconds = 0.5;
        assert_int_equal(pthread_create(&s.thread, NULL, welcome_wrongly, &s), 0);
        party_connect(&p);
        assert_false(p.met[1]);
        assert_non_null(strstr(p.sentences[1], "process 1 on host1 did not reach process 0 on host0"));
        shutdown(s.listener, SHUT_RDWR);
        pthread_join(s.thread, NULL);
        close(s.listener);
        party_part(&p);
    }
}

static bool give_up(void *user, char *sentence, size_t bytes)
{
    (void)user;
    snprintf(sentence, bytes, "it was stopped");
    return false;
}

/* Starts a child that ends, or stops, and waits until it has. */
static pid_t start_idle_child(bool stops)
{
    const pid_t child = fork();
    if (child == 0 && stops) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive a test that fails */
        raise(SIGSTOP);
    }
    if (child == 0)
        _exit(0);
    assert_true(child > 0 && waitpid(child, NULL, stops ? WUNTRACED : 0) == child);
    return child;
}

/* A process that gives up waits for the others, so that they learn why, but not for a process of its host that has
 * ended or is stopped. */
static void nobody_waits_for_an_idle_process(void **state)
{
    (void)state;
    for (int stops = 0; stops < 2; stops++) {
        party p;
        party_listen(&p, 2);
        const pid_t child = start_idle_child(stops);
        p.absent[1] = true, p.all[1].pid = child, p.look[0] = give_up;
        const double begin = ith_clock_seconds();
        party_connect(&p);
        assert_false(p.met[0]);
        assert_string_equal(p.sentences[0], "it was stopped");
        assert_true(ith_clock_seconds() < begin + 20);
        party_part(&p);
        if (stops) {
            kill(child, SIGKILL);
            assert_int_equal(waitpid(child, NULL, 0), child);
        }
    }
}

/* Two processes do not come. The sentence names the process that is stopped. */
static void a_process_that_is_stopped_is_named(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 3);
    const pid_t child = start_idle_child(true);
    p.absent[1] = p.absent[2] = true, p.all[2].pid = child, p.seconds = 0.3;
    party_connect(&p);
    assert_false(p.met[0]);
    assert_non_null(strstr(p.sentences[0], "process 2 "));
    assert_non_null(strstr(p.sentences[0], "is stopped, and was not connected within 0.3 s"));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    party_part(&p);
}

/* A process that begins its meeting when the last process has given up, and has tried to reach it or has ended. */
typedef struct late_guest {
    party *party;
    int number;
    double seconds;
    pthread_t thread;
} late_guest;

static void *begin_late(void *user)
{
    const late_guest *g = user;
    party *p = g->party;
    nap(g->seconds);
    p->met[g->number] = !ith_watch_connect(p->watches[g->number], p->all, g->number, p->size,
                                           &(ith_watch_patience){.seconds = 5}, p->sentences[g->number], SENTENCE);
    return NULL;
}

/* A process that gives up makes several connections to an earlier process that does not answer. Each of them carries
 * the reason, also when it is closed. A later process can come until the limit, and until a second has passed. */
static void who_comes_late_learns_the_reason(void **state)
{
    (void)state;
    static const struct {
        int size, giver, missing; /* `giver` gives up; `missing` never comes, -1: all come */
        double limit, late;       /* seconds */
    } cases[] = {
        {2, 1, -1, 2, 0.6}, {3, 2, -1, 2, 0.9}, {3, 2, -1, 0.2, 1.6}, {2, 0, -1, 10, 1.6}, {3, 0, 1, 0.3, 0.8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        party p;
        late_guest guests[MOST];
        const int giver = cases[i].giver, missing = cases[i].missing;
        party_listen(&p, cases[i].size);
        party_separate(&p);
        p.look[giver] = missing < 0 ? give_up : NULL, p.seconds = cases[i].limit; /* at once, or at the limit */
        for (int n = 0; n < p.size; n++) {
            p.absent[n] = n != giver;
            guests[n] = (late_guest){.party = &p, .number = n, .seconds = cases[i].late};
            if (n != giver && n != missing)
                assert_int_equal(pthread_create(&guests[n].thread, NULL, begin_late, &guests[n]), 0);
        }
        party_connect(&p);
        assert_non_null(strstr(p.sentences[giver], missing < 0 ? "it was stopped" : "within 0.3 s"));
        for (int n = 0; n < p.size; n++) {
            if (n == giver || n == missing)
                continue;
            pthread_join(guests[n].thread, NULL);
            assert_false(p.met[n]);
            assert_string_equal(p.sentences[n], p.sentences[giver]);
        }
        party_part(&p);
    }
}

/* Ends a connection after half a second. user: the address of its descriptor. */
static void *die_soon(void *user)
{
    nap(0.5);
    shutdown(*(int *)user, SHUT_WR);
    return NULL;
}

/* Process 2 dies when it is connected to process 0: at once, or when process 0 has all its connections and has said so.
 * Process 1 hears of it, and does not wait for process 2. */
static void nobody_waits_for_who_is_blamed(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        party p;
        pthread_t death;
        party_listen(&p, 3);
        party_separate(&p);
        const greeting g = greeting_of(&p, 2);
        p.absent[2] = true;
        int dying = greet(&p, &g);
        if (late)
            assert_int_equal(pthread_create(&death, NULL, die_soon, &dying), 0);
        else
            shutdown(dying, SHUT_WR);
        const double begin = ith_clock_seconds();
        party_connect(&p);
        assert_true(ith_clock_seconds() < begin + 20);
        for (int i = 0; i < 2; i++) {
            assert_false(p.met[i]);
            assert_non_null(strstr(p.sentences[i], "died while the processes were being connected"));
        }
        if (late)
            pthread_join(death, NULL);
        close(dying);
        party_part(&p);
    }
}

static void a_missing_connection_is_named(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 3);
    party_separate(&p);
    p.seconds = 0.5;
    p.all[0].interfaces = 0;
    p.all[1].interfaces = 0;
    p.all[2].interfaces = 0;
    add_address(&p, false, 1);
    p.all[1].interface[p.all[1].interfaces++] = p.all[0].interface[0];
    p.all[0].cookie[3] ^= 1; /* process 1 comes with a wrong cookie, so process 0 refuses it */
    double begin = ith_clock_seconds();
    party_connect(&p);
    assert_true(in_range((int64_t)((ith_clock_seconds() - begin) * 1000), 400, 20000));
    assert_false(p.met[0]);
    assert_false(p.met[1]);
    const char *right = "process 1 on host1 did not reach process 0 on host0 at TCP port";
    assert_non_null(strstr(p.sentences[1], "did not reach process 0 on host0 at TCP port"));
    assert_non_null(strstr(p.sentences[0], right));
    assert_non_null(strstr(p.sentences[0], "within 0.5 s"));
    assert_non_null(strstr(p.sentences[0], ": a firewall may be in the way")); /* it knows of no error */
    party_part(&p);
}

static void hosts_are_compared(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 2);
    assert_true(ith_watch_same_host(&p.all[0], &p.all[1]));
    assert_int_equal(p.all[0].pid, getpid());
    ith_watch_address other = p.all[0];
    other.network++;
    assert_false(ith_watch_same_host(&p.all[0], &other));
    other = p.all[0];
    other.uts++;
    assert_false(ith_watch_same_host(&p.all[0], &other));
    other = p.all[0];
    other.boot[0] ^= 1;
    assert_false(ith_watch_same_host(&p.all[0], &other));
    other = p.all[0];
    other.name[0] ^= 1;
    assert_false(ith_watch_same_host(&p.all[0], &other));
    party_part(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_ignored),
        cmocka_unit_test(false_names_are_ignored),
        cmocka_unit_test(a_process_comes_once),
        cmocka_unit_test(a_message_of_a_process_that_has_finished_waits),
        cmocka_unit_test(answers_are_checked),
        cmocka_unit_test(the_oldest_strangers_are_dropped),
        cmocka_unit_test(the_loopback_is_for_neighbours),
        cmocka_unit_test(neighbours_try_both_loopbacks),
        cmocka_unit_test(addresses_follow_one_another_at_once),
        cmocka_unit_test(addresses_end_with_their_list),
        cmocka_unit_test(a_false_welcome_is_refused),
        cmocka_unit_test(nobody_waits_for_an_idle_process),
        cmocka_unit_test(a_process_that_is_stopped_is_named),
        cmocka_unit_test(who_comes_late_learns_the_reason),
        cmocka_unit_test(nobody_waits_for_who_is_blamed),
        cmocka_unit_test(all_addresses_are_tried),
        cmocka_unit_test(an_address_is_tried_again),
        cmocka_unit_test(a_missing_connection_is_named),
        cmocka_unit_test(hosts_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
