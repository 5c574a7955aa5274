/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections: who is let in, which addresses are tried, and which processes are of one host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/watch_party.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int knock(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    return descriptor;
}

/* Connections that say nothing, too little, nonsense, or end at once do not disturb the meeting. */
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
        strangers[i] = knock(p.all[i % 2].port);
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

/* An address of process 0: 127.0.0.`last`, or ::1. */
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
    /* documentation addresses (RFC 5737) go nowhere */
    p.all[0].interface[p.all[0].interfaces++] = (ith_watch_interface){.bytes = {192, 0, 2, 1}};
    add_address(&p, ipv6, 1);
    double begin = party_seconds();
    party_connect(&p);
    double seconds = party_seconds() - begin;
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
    p.all[0].cookie[3] ^= 1; /* process 0 refuses whoever comes with this cookie */
    double begin = party_seconds();
    party_connect(&p);
    assert_in_range((party_seconds() - begin) * 1000, 400, 20000);
    assert_false(p.met[0]);
    assert_false(p.met[1]);
    const char *right = "process 1 on host1 did not reach process 0 on host0 at TCP port";
    assert_non_null(strstr(p.sentences[1], "did not reach process 0 on host0 at TCP port"));
    assert_non_null(strstr(p.sentences[0], right));
    assert_non_null(strstr(p.sentences[0], "within 0.5 s"));
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
        cmocka_unit_test(all_addresses_are_tried),
        cmocka_unit_test(a_missing_connection_is_named),
        cmocka_unit_test(hosts_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
