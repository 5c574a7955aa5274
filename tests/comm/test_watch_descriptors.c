/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections (ith_watch) of processes and systems that have few descriptors, or no room for a connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/in_range.h"
#include "support/watch_party.h"

#include <errno.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_descriptors_suffice),
        cmocka_unit_test(a_process_without_descriptors_says_so),
        cmocka_unit_test(a_system_without_room_for_connections_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
