/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections (ith_watch) where the system has few descriptors, no room for a connection, or no IPv6, and where
 * it has addresses that other hosts cannot use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/in_range.h"
#include "support/watch_party.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Lets this process open only descriptors below `limit`. Returns the old limit. */
static struct rlimit limit_descriptors(rlim_t limit)
{
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return before;
}

static rlim_t next_descriptor(void)
{
    int next = dup(STDOUT_FILENO);
    close(next);
    return (rlim_t)next;
}

static void few_descriptors_suffice(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 3);
    p.seconds = 10;
    struct rlimit before = limit_descriptors(next_descriptor() + 20);
    party_connect(&p);
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < 3; i++)
        if (!p.met[i])
            fail_msg("process %d: %s", i, p.sentences[i]);
    party_part(&p);
}

/* A process that can open no descriptor says so: process 1 when it connects, process 0 when it accepts. */
static void a_process_without_descriptors_says_so(void **state)
{
    (void)state;
    for (int number = 0; number < 2; number++) {
        party p;
        char name[32];
        party_listen(&p, 2);
        p.absent[1 - number] = true;
        p.seconds = 1; /* the process stays for this time to tell the other process */
        int visitor = number ? -1 : party_knock(p.all[0].port);
        struct rlimit before = limit_descriptors(next_descriptor());
        party_connect(&p);
        setrlimit(RLIMIT_NOFILE, &before);
        snprintf(name, sizeof name, "process %d (", number);
        if (!strstr(p.sentences[number], name) || !strstr(p.sentences[number], "ulimit -n"))
            fail_msg("process %d: %s", number, p.sentences[number]);
        if (visitor >= 0)
            close(visitor);
        party_part(&p);
    }
}

static int accept_error; /* errno of calls of accept4; 0: they are the system's */
static atomic_int accepts;

int __real_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags);

int __wrap_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags)
{
    if (!accept_error)
        return __real_accept4(listener, address, bytes, flags);
    accepts++;
    errno = accept_error;
    return -1;
}

/* A system that has no descriptors or no memory left for a connection keeps it in the queue. The process says so, and
 * does not call accept again and again. */
static void a_system_without_room_for_connections_is_named(void **state)
{
    (void)state;
    static const int errors[] = {ENFILE, ENOBUFS, ENOMEM};
    for (int i = 0; i < 3; i++) {
        party p;
        party_listen(&p, 2);
        p.absent[1] = true;
        p.seconds = 1;
        int visitor = party_knock(p.all[0].port);
        accept_error = errors[i], accepts = 0;
        party_connect(&p);
        accept_error = 0;
        if (!strstr(p.sentences[0], "process 0 (") || !strstr(p.sentences[0], strerror(errors[i])))
            fail_msg("%s: %s", strerror(errors[i]), p.sentences[0]);
        assert_true(in_range(accepts, 1, 10));
        close(visitor);
        party_part(&p);
    }
}

/* ---- The system's addresses -------------------------------------------------------------------------------------- */

static bool lacks_ipv6, lacks_ipv4;

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);

int __wrap_socket(int family, int type, int protocol)
{
    if (!(family == AF_INET6 ? lacks_ipv6 : lacks_ipv4))
        return __real_socket(family, type, protocol);
    errno = EAFNOSUPPORT;
    return -1;
}

/* Without IPv6 the processes meet over IPv4. A system that has neither is refused, with the reason. */
static void a_system_without_ipv6_uses_ipv4(void **state)
{
    (void)state;
    party p;
    ith_watch_address mine;
    char sentence[SENTENCE];
    lacks_ipv6 = true;
    party_meet(&p, 2);
    party_part(&p);
    lacks_ipv4 = true;
    ith_watch *w = ith_watch_listen(&mine, sentence, sizeof sentence);
    lacks_ipv6 = lacks_ipv4 = false;
    assert_null(w);
    assert_non_null(strstr(sentence, strerror(EAFNOSUPPORT)));
}

static struct ifaddrs *interfaces; /* the system's interfaces; NULL: the real ones */

int __real_getifaddrs(struct ifaddrs **list);
int __wrap_getifaddrs(struct ifaddrs **list);
void __real_freeifaddrs(struct ifaddrs *list);
void __wrap_freeifaddrs(struct ifaddrs *list);

int __wrap_getifaddrs(struct ifaddrs **list)
{
    *list = interfaces;
    return interfaces ? 0 : __real_getifaddrs(list);
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
    if (!interfaces)
        __real_freeifaddrs(list);
}

/* Returns the address of a process on a system that has these interfaces. */
static ith_watch_address address_with(struct ifaddrs *list, int count)
{
    ith_watch_address mine;
    char sentence[SENTENCE];
    for (int i = 0; i + 1 < count; i++)
        list[i].ifa_next = &list[i + 1];
    interfaces = list;
    ith_watch *w = ith_watch_listen(&mine, sentence, sizeof sentence);
    interfaces = NULL;
    assert_non_null(w);
    ith_watch_close(w, true);
    return mine;
}

/* Other hosts learn the addresses over which they can reach this one, and not more than there is room for. */
static void addresses_that_lead_nowhere_are_left_out(void **state)
{
    (void)state;
    enum { MANY = ITH_WATCH_INTERFACES + 2 };
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6}, one_link = six;
    struct sockaddr none = {.sa_family = AF_PACKET}, *const ipv4 = (struct sockaddr *)&four,
                    *const ipv6 = (struct sockaddr *)&six;
    inet_pton(AF_INET, "192.0.2.5", &four.sin_addr);
    inet_pton(AF_INET6, "2001:db8::7", &six.sin6_addr);
    inet_pton(AF_INET6, "fe80::7", &one_link.sin6_addr);
    struct ifaddrs list[] = {{.ifa_addr = ipv4, .ifa_flags = IFF_UP | IFF_LOOPBACK},
                             {.ifa_addr = ipv4},
                             {.ifa_flags = IFF_UP},
                             {.ifa_addr = &none, .ifa_flags = IFF_UP},
                             {.ifa_addr = (struct sockaddr *)&one_link, .ifa_flags = IFF_UP},
                             {.ifa_addr = ipv6, .ifa_flags = IFF_UP},
                             {.ifa_addr = ipv4, .ifa_flags = IFF_UP}};
    struct ifaddrs many[MANY];
    ith_watch_address mine = address_with(list, sizeof list / sizeof *list);
    assert_int_equal(mine.interfaces, 2);
    assert_true(mine.interface[0].ipv6 && !mine.interface[1].ipv6);
    assert_memory_equal(mine.interface[0].bytes, &six.sin6_addr, 16);
    assert_memory_equal(mine.interface[1].bytes, &four.sin_addr, 4);
    for (int i = 0; i < MANY; i++)
        many[i] = (struct ifaddrs){.ifa_addr = ipv4, .ifa_flags = IFF_UP};
    mine = address_with(many, MANY);
    assert_int_equal(mine.interfaces, ITH_WATCH_INTERFACES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_descriptors_suffice),
        cmocka_unit_test(a_process_without_descriptors_says_so),
        cmocka_unit_test(a_system_without_room_for_connections_is_named),
        cmocka_unit_test(a_system_without_ipv6_uses_ipv4),
        cmocka_unit_test(addresses_that_lead_nowhere_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
