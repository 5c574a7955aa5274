/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections between processes (ith_watch). The processes of a test are threads, each with a watch, or they
 * are forked if one of them must die. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "support/in_range.h"
#include "support/times.h"
#include "support/watch_party.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Messages -------------------------------------------------------------------------------------------------- */

/* Makes message `number` of a process. Its length and its bytes depend on both numbers alone. */
static size_t make_message(int from, int number, char *data)
{
    size_t bytes = (size_t)(number * 37 + from * 11) % ITH_WATCH_BYTES + 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)((size_t)number * 31 + i * 7 + (size_t)from);
    return bytes;
}

static void messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    enum { MESSAGES = 12 };
    for (int size = 1; size <= MOST; size++) {
        party p;
        char data[ITH_WATCH_BYTES];
        int come[MOST][MOST] = {{0}};
        party_meet(&p, size);
        for (int number = 0; number < MESSAGES; number++)
            for (int from = 0; from < size; from++)
                for (int to = 0; to < size; to++)
                    assert_true(ith_watch_send(p.watches[from], to, data, make_message(from, number, data), false));
        for (int to = 0; to < size; to++)
            for (int i = 0; i < MESSAGES * (size - 1); i++) {
                const void *got = NULL;
                size_t bytes = 0;
                int from = -1;
                assert_int_equal(party_hear(p.watches[to], &from, &got, &bytes), ITH_WATCH_MESSAGE);
                assert_true(from >= 0 && from < size && from != to);
                assert_int_equal(bytes, make_message(from, come[to][from]++, data));
                assert_memory_equal(got, data, bytes);
            }
        for (int to = 0; to < size; to++)
            assert_int_equal(party_receive(p.watches[to], &(int){0}, &(const void *){NULL}, &(size_t){0}),
                             ITH_WATCH_NOTHING);
        party_part(&p);
    }
}

/* If a process does not read, droppable messages to it are dropped, and others are queued until the queue is full.
 * Later the queued messages arrive, whole and in order. If the system has made room meanwhile, some of the droppable
 * messages follow, also whole. */
static void a_full_connection_cuts_no_message(void **state)
{
    (void)state;
    party p;
    char data[ITH_WATCH_BYTES];
    int taken = 0, come = 0, from = 0;
    const void *got = NULL;
    size_t bytes = 0;
    party_meet(&p, 2);
    memset(data, 1, sizeof data);
    while (taken < 1000000 && ith_watch_send(p.watches[0], 1, memcpy(data, &taken, sizeof taken), sizeof data, false))
        taken++;
    assert_true(in_range(taken, 16, 999999));
    int dropped = -1;
    for (int i = 0; i < 100; i++)
        assert_true(ith_watch_send(p.watches[0], 1, memcpy(data, &dropped, sizeof dropped), sizeof data, true));
    while (come < taken) {
        assert_int_equal(party_hear(p.watches[1], &from, &got, &bytes), ITH_WATCH_MESSAGE);
        assert_int_equal(bytes, sizeof data);
        assert_memory_equal(got, memcpy(data, &come, sizeof come), sizeof data);
        come++;
        party_receive(p.watches[0], &from, &got, &bytes); /* sends the queued bytes */
    }
    memcpy(data, &dropped, sizeof dropped);
    while (party_receive(p.watches[1], &from, &got, &bytes) == ITH_WATCH_MESSAGE) {
        assert_int_equal(bytes, sizeof data);
        assert_memory_equal(got, data, sizeof data);
    }
    party_part(&p);
}

/* ---- Sockets that take little ---------------------------------------------------------------------------------- */

/* The most bytes that a call of sendmsg takes, and then each second call takes none; 0: no limit. */
static size_t most_bytes;
static int calls;

ssize_t __real_sendmsg(int socket, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags)
{
    struct iovec parts[4];
    struct msghdr part = *message;
    size_t rest = most_bytes;
    if (!most_bytes)
        return __real_sendmsg(socket, message, flags);
    if (calls++ % 2) {
        errno = EAGAIN;
        return -1;
    }
    assert_true(message->msg_iovlen <= 4);
    part.msg_iov = memcpy(parts, message->msg_iov, message->msg_iovlen * sizeof *parts);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        parts[i].iov_len = parts[i].iov_len < rest ? parts[i].iov_len : rest;
        rest -= parts[i].iov_len;
    }
    return __real_sendmsg(socket, &part, flags);
}

/* Checks that process 1 receives messages [first, end) of process 0, which sends its queued bytes meanwhile. */
static void hear_all(party *p, int first, int end)
{
    char data[ITH_WATCH_BYTES];
    const void *got = NULL;
    size_t bytes = 0;
    int from = 0, come = first;
    for (double limit = ith_clock_seconds() + 60; come < end && ith_clock_seconds() < limit;) {
        assert_int_equal(party_receive(p->watches[0], &from, &got, &bytes), ITH_WATCH_NOTHING);
        if (party_receive(p->watches[1], &from, &got, &bytes) != ITH_WATCH_MESSAGE)
            continue;
        assert_int_equal(bytes, make_message(0, come++, data));
        assert_memory_equal(got, data, bytes);
    }
    assert_int_equal(come, end);
}

/* The system may take only a part of a message's head or bytes, or nothing. Messages still arrive whole and in order.
 * If a part of a droppable message was taken, the message arrives too. ith_watch_rest returns early only while bytes
 * wait. */
static void messages_taken_in_parts_arrive_whole(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int droppable = 0; droppable < 2; droppable++) {
            const int first = 5, end = droppable ? 6 : 12;
            party p;
            char data[ITH_WATCH_BYTES];
            party_meet(&p, 2);
            most_bytes = sizes[i], calls = 0;
            for (int number = first; number < end; number++)
                assert_true(ith_watch_send(p.watches[0], 1, data, make_message(0, number, data), droppable));
            double begin = ith_clock_seconds();
            ith_watch_rest(p.watches[0], 20);
            assert_true(ith_clock_seconds() - begin < 10);
            hear_all(&p, first, end);
            begin = ith_clock_seconds();
            ith_watch_rest(p.watches[0], 0.01);
            assert_true(ith_clock_seconds() - begin >= 0.009);
            most_bytes = 0;
            party_part(&p);
        }
}

/* If there is room for all queued bytes again, a droppable message is sent after them. */
static void room_is_used_at_once(void **state)
{
    (void)state;
    party p;
    char data[ITH_WATCH_BYTES];
    party_meet(&p, 2);
    most_bytes = 1, calls = 0;
    assert_true(ith_watch_send(p.watches[0], 1, data, make_message(0, 5, data), false));
    most_bytes = 0;
    assert_true(ith_watch_send(p.watches[0], 1, data, make_message(0, 6, data), true));
    hear_all(&p, 5, 7);
    party_part(&p);
}

typedef struct sender {
    ith_watch *watch;
    int number;
    pthread_t thread;
} sender;

enum { THREADS = 4, EACH = 400 };

static void *send_many(void *argument)
{
    sender *s = argument;
    char data[ITH_WATCH_BYTES + 8];
    for (int i = 0; i < EACH;) {
        size_t bytes = make_message(s->number, i, data + 8) / 8 + 8;
        memcpy(data, &(int[2]){s->number, i}, 8);
        if (ith_watch_send(s->watch, 1, data, bytes, false))
            i++;
        else
            nap(0.0001);
    }
    return NULL;
}

static void threads_send_at_once(void **state)
{
    (void)state;
    party p;
    sender senders[THREADS];
    int next[THREADS] = {0};
    char data[ITH_WATCH_BYTES];
    party_meet(&p, 2);
    for (int i = 0; i < THREADS; i++) {
        senders[i] = (sender){.watch = p.watches[0], .number = i};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_many, &senders[i]), 0);
    }
    for (int i = 0; i < THREADS * EACH; i++) {
        const void *got = NULL;
        size_t bytes = 0;
        int from = 0, head[2] = {0};
        while (party_receive(p.watches[0], &from, &got, &bytes))
            ;
        assert_int_equal(party_hear(p.watches[1], &from, &got, &bytes), ITH_WATCH_MESSAGE);
        memcpy(head, got, sizeof head);
        assert_true(in_range(head[0], 0, THREADS - 1));
        assert_int_equal(head[1], next[head[0]]++);
        assert_int_equal(bytes, make_message(head[0], head[1], data) / 8 + 8);
        assert_memory_equal((const char *)got + 8, data, bytes - 8);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(senders[i].thread, NULL);
    party_part(&p);
}

static void *wake_later(void *argument)
{
    nap(0.05);
    ith_watch_wake(argument);
    return NULL;
}

static void a_rest_ends_with_an_event(void **state)
{
    (void)state;
    party p;
    pthread_t thread;
    const void *got = NULL;
    size_t bytes = 0;
    int from = 0;
    party_meet(&p, 2);
    double begin = ith_clock_seconds();
    ith_watch_rest(p.watches[0], 0.05);
    assert_true(ith_clock_seconds() - begin >= 0.049);
    ith_watch_send(p.watches[1], 0, "x", 1, true);
    ith_watch_rest(p.watches[0], 20);
    assert_int_equal(party_receive(p.watches[0], &from, &got, &bytes), ITH_WATCH_MESSAGE);
    assert_int_equal(pthread_create(&thread, NULL, wake_later, p.watches[0]), 0);
    ith_watch_rest(p.watches[0], 20);
    pthread_join(thread, NULL);
    assert_true(ith_clock_seconds() - begin < 20);
    assert_int_equal(party_receive(p.watches[0], &from, &got, &bytes), ITH_WATCH_NOTHING);
    begin = ith_clock_seconds();
    ith_watch_rest(p.watches[0], 0.05); /* the wake was used up before */
    assert_true(ith_clock_seconds() - begin >= 0.049);
    party_part(&p);
}

/* ---- Ends ------------------------------------------------------------------------------------------------------ */

static void a_goodbye_follows_all_messages(void **state)
{
    (void)state;
    party p;
    const void *got = NULL;
    size_t bytes = 0;
    int from = 0;
    party_meet(&p, 3);
    for (int i = 0; i < 10; i++)
        ith_watch_send(p.watches[1], 0, &i, sizeof i, false);
    ith_watch_send(p.watches[0], 1, "unread", 6, false);
    assert_false(ith_watch_has_closed(p.watches[0], 1));
    ith_watch_close(p.watches[1], true);
    assert_true(ith_watch_has_closed(p.watches[0], 1)); /* its messages are not read yet */
    assert_false(ith_watch_has_closed(p.watches[0], 0));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(party_hear(p.watches[0], &from, &got, &bytes), ITH_WATCH_MESSAGE);
        assert_memory_equal(got, &i, sizeof i);
    }
    assert_int_equal(party_hear(p.watches[0], &from, &got, &bytes), ITH_WATCH_BYE);
    assert_int_equal(from, 1);
    assert_true(ith_watch_has_closed(p.watches[0], 1));
    assert_true(ith_watch_send(p.watches[0], 1, "late", 4, false));
    assert_int_equal(party_receive(p.watches[0], &from, &got, &bytes), ITH_WATCH_NOTHING);
    p.watches[1] = NULL;
    party_part(&p);
}

/* The child is process 1. It is killed while its last messages are under way. */
static void a_death_is_seen_at_once(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        party p;
        const void *got = NULL;
        size_t bytes = 0;
        int from = 0, ready[2], status = 0;
        party_listen(&p, 2);
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (!child) {
            ith_watch_close(p.watches[0], true);
            bool met = !ith_watch_connect(p.watches[1], p.all, 1, 2, &(ith_watch_patience){.seconds = 60},
                                          p.sentences[1], SENTENCE);
            ith_watch_send(p.watches[1], 0, "last", 4, false);
            if (!met || write(ready[1], "x", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        ith_watch_close(p.watches[1], true);
        p.watches[1] = NULL;
        assert_int_equal(ith_watch_connect(p.watches[0], p.all, 0, 2, &(ith_watch_patience){.seconds = 60},
                                           p.sentences[0], SENTENCE),
                         ITH_OK);
        assert_int_equal(read(ready[0], &(char){0}, 1), 1);
        if (stopped)
            kill(child, SIGSTOP);
        assert_int_equal(party_hear(p.watches[0], &from, &got, &bytes), ITH_WATCH_MESSAGE);
        assert_int_equal(party_receive(p.watches[0], &from, &got, &bytes), ITH_WATCH_NOTHING);
        double begin = ith_clock_seconds();
        kill(child, SIGKILL);
        assert_int_equal(party_hear(p.watches[0], &from, &got, &bytes), ITH_WATCH_LOST);
        assert_true(ith_clock_seconds() - begin < 20);
        assert_int_equal(from, 1);
        assert_string_equal(got, "its connection closed");
        assert_int_equal(party_receive(p.watches[0], &from, &got, &bytes), ITH_WATCH_NOTHING);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        party_part(&p);
        close(ready[0]);
        close(ready[1]);
    }
}

/* Starts process 1, which only sends pulses. */
static pid_t start_sleeper(party *p)
{
    pid_t child = fork();
    if (child)
        return child;
    ith_watch_close(p->watches[0], true);
    if (ith_watch_connect(p->watches[1], p->all, 1, 2, &(ith_watch_patience){.seconds = 60}, p->sentences[1],
                          SENTENCE) ||
        !ith_watch_begin_pulse(p->watches[1], 0.4))
        _exit(1);
    for (;;)
        pause();
}

/* The longest silence of process 1 that process 0 sees in some seconds. */
static double longest_silence(party *p, double seconds)
{
    const void *got = NULL;
    size_t bytes = 0;
    int from = 0;
    double longest = 0;
    for (double end = ith_clock_seconds() + seconds; ith_clock_seconds() < end; ith_watch_rest(p->watches[0], 0.01)) {
        assert_int_equal(party_receive(p->watches[0], &from, &got, &bytes), ITH_WATCH_NOTHING);
        double silence = ith_watch_silence(p->watches[0], 1);
        longest = silence > longest ? silence : longest;
    }
    return longest;
}

/* Checks that pulses arrive. A busy machine may hold up the processes for a while, so several attempts are made. */
static void expect_pulses(party *p)
{
    for (int n = 0; n < 20; n++)
        if (longest_silence(p, 0.7) < 0.5)
            return;
    fail_msg("no pulses come");
}

static void a_process_that_is_stopped_is_silent(void **state)
{
    (void)state;
    party p;
    party_listen(&p, 2);
    pid_t child = start_sleeper(&p);
    ith_watch_close(p.watches[1], true);
    p.watches[1] = NULL;
    assert_int_equal(
        ith_watch_connect(p.watches[0], p.all, 0, 2, &(ith_watch_patience){.seconds = 60}, p.sentences[0], SENTENCE),
        ITH_OK);
    assert_true(ith_watch_begin_pulse(p.watches[0], 0.4));
    expect_pulses(&p);
    assert_true(ith_watch_silence(p.watches[0], 0) == 0);
    kill(child, SIGSTOP);
    assert_true(longest_silence(&p, 1.0) > 0.6);
    assert_false(ith_watch_has_closed(p.watches[0], 1));
    kill(child, SIGCONT);
    nap(0.5); /* nobody reads meanwhile, and several pulses wait */
    expect_pulses(&p);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    party_part(&p);
}

typedef struct strike {
    int signal, calls; /* the signal comes with call number `calls` */
} strike;

static bool strike_once(void *user, char *sentence, size_t bytes)
{
    strike *s = user;
    (void)sentence, (void)bytes;
    if (s->calls-- == 0)
        raise(s->signal);
    return true;
}

enum { GUESTS = 4, MOMENTS = 4, PARTIES = 2 * MOMENTS };

/* Whether a connected process gets the news that the victim has failed. */
static bool hears_of(ith_watch *w, int victim, const char *name)
{
    const void *data = NULL;
    size_t bytes = 0;
    int from = -1;
    ith_watch_event event;
    while ((event = party_hear(w, &from, &data, &bytes)) == ITH_WATCH_BYE)
        ; /* goodbyes of processes that have heard of the victim already */
    return event == ITH_WATCH_FAILED ? strstr(data, name) != NULL : event == ITH_WATCH_LOST && from == victim;
}

/* Runs process `number` as a child, which ends with 0 if it names the victim. If the victim is stopped after the
 * process has connected, the child cannot notice it here, and ends with 0 too. */
static pid_t start_guest(party *p, int number, int victim, strike s, double seconds)
{
    pid_t child = fork();
    char name[32];
    if (child)
        return child;
    for (int i = 0; i < GUESTS; i++)
        if (i != number)
            ith_watch_close(p->watches[i], true);
    const ith_watch_patience patience = {seconds, number == victim ? strike_once : NULL, &s};
    snprintf(name, sizeof name, "process %d ", victim);
    bool met =
        !ith_watch_connect(p->watches[number], p->all, number, GUESTS, &patience, p->sentences[number], SENTENCE);
    if (number == victim)
        raise(s.signal);
    bool right = met ? s.signal == SIGSTOP || hears_of(p->watches[number], victim, name)
                     : strstr(p->sentences[number], name) != NULL;
    if (!right)
        print_error("process %d fails at its look %d (signal %d); process %d%s: %s\n", victim, s.calls, s.signal,
                    number, met ? ", connected" : "", p->sentences[number]);
    ith_watch_close(p->watches[number], true);
    _exit(!right);
}

/* A victim dies or stops at one of the first moments of its meeting. Returns whether all others name the victim, and
 * not a process that gave up because of it, soon after the given seconds. */
static bool is_named(int victim, double seconds)
{
    pid_t children[PARTIES][GUESTS];
    int status, wrong = 0;
    double begin = ith_clock_seconds();
    for (int i = 0; i < PARTIES; i++) {
        party p;
        party_listen(&p, GUESTS);
        party_separate(&p);
        for (int number = 0; number < GUESTS; number++)
            children[i][number] = start_guest(&p, number, victim, (strike){i % 2 ? SIGSTOP : SIGKILL, i / 2}, seconds);
        party_part(&p);
    }
    for (int i = 0; i < PARTIES * GUESTS; i++) {
        pid_t child = children[i / GUESTS][i % GUESTS];
        if (i % GUESTS == victim)
            continue;
        assert_int_equal(waitpid(child, &status, 0), child);
        wrong += status != 0;
    }
    for (int i = 0; i < PARTIES; i++) {
        kill(children[i][victim], SIGKILL);
        assert_int_equal(waitpid(children[i][victim], &status, 0), children[i][victim]);
    }
    return wrong == 0 && ith_clock_seconds() - begin < 6 * seconds;
}

/* A busy machine may hold up other processes too, so longer limits are tried as well. */
static void a_process_that_fails_while_it_is_connected_is_named(void **state)
{
    (void)state;
    for (int victim = 0; victim < GUESTS; victim++) {
        double seconds = 0.8;
        while (!is_named(victim, seconds) && seconds < 10)
            seconds *= 4;
        assert_true(seconds < 10);
    }
}

#define REASON "the reason that the test gives"

/* Waits a little at each step of the meeting, and gives up after some steps. */
static bool give_up(void *user, char *sentence, size_t bytes)
{
    party *p = user;
    nap(0.01);
    snprintf(sentence, bytes, REASON);
    return p->looks-- > 0;
}

/* Process i % 3 gives up in a meeting with the given time limit. Returns whether all learn its reason long before the
 * limit. Counts the processes that learn it before (ends[0]) and after (ends[1]) they are connected. */
static bool all_learn_the_reason(int i, double seconds, int *ends)
{
    party p;
    party_listen(&p, 3);
    party_separate(&p);
    p.seconds = seconds;
    p.look[i % 3] = give_up;
    p.looks = i / 3;
    double begin = ith_clock_seconds();
    party_connect(&p);
    bool right = ith_clock_seconds() - begin < 0.7 * seconds, gave_up = !p.met[i % 3];
    for (int number = 0; number < 3 && gave_up; number++) {
        const void *data = p.sentences[number];
        if (p.met[number])
            right &= party_hear(p.watches[number], &(int){0}, &data, &(size_t){0}) == ITH_WATCH_FAILED;
        right = right && !strcmp(data, REASON);
        ends[p.met[number]]++;
    }
    party_part(&p);
    return right;
}

/* One process gives up at some moment of its meeting: before it is connected to others, or when others have finished.
 * All learn its reason; connected processes learn it before its connections close. A busy machine may hold up the
 * others, so longer limits are tried as well. */
static void the_reason_of_a_process_that_gives_up_reaches_all(void **state)
{
    (void)state;
    int ends[2] = {0, 0};
    for (int i = 0; i < 3 * 7; i++) {
        double seconds = 3;
        while (!all_learn_the_reason(i, seconds, ends) && seconds < 40)
            seconds *= 4;
        assert_true(seconds < 40);
    }
    assert_true(ends[0] > 0 && ends[1] > 0);
}

static bool look_slowly(void *user, char *sentence, size_t bytes)
{
    (void)user, (void)sentence, (void)bytes;
    nap(0.2);
    return true;
}

/* Process 0 has finished its meeting before process 1 has read its answer. */
static void a_process_that_is_not_connected_yet_says_for_whom_it_waits(void **state)
{
    (void)state;
    party p;
    const void *data = NULL;
    size_t bytes = 0;
    int from = -1;
    party_listen(&p, 2);
    p.look[1] = look_slowly;
    party_connect(&p);
    assert_true(p.met[0] && p.met[1]);
    assert_int_equal(ith_watch_receive(p.watches[0], &from, &data, &bytes), ITH_WATCH_AWAITS);
    assert_int_equal(from, 1);
    assert_int_equal(bytes, sizeof(int32_t));
    assert_int_equal(*(const int32_t *)data, 0);
    party_part(&p);
}

/* Processes 1 and 2 wait for process 0, so they are not connected when process 2 gives up. Returns whether process 1
 * learns the reason. */
static bool reaches_behind(double seconds)
{
    party p;
    party_listen(&p, 3);
    party_separate(&p);
    p.seconds = seconds;
    p.absent[0] = true;
    p.look[2] = give_up;
    p.looks = 3;
    party_connect(&p);
    bool right = !strcmp(p.sentences[2], REASON) && !strcmp(p.sentences[1], REASON);
    party_part(&p);
    return right;
}

static void a_process_that_gives_up_reaches_those_behind_its_target(void **state)
{
    (void)state;
    double seconds = 1.5;
    while (!reaches_behind(seconds) && seconds < 20)
        seconds *= 4;
    assert_true(seconds < 20);
}

/* Reads nothing for a while, and then everything. */
static void *read_late(void *argument)
{
    sender *s = argument;
    const void *data = NULL;
    size_t bytes = 0;
    int from = 0;
    ith_watch_event event;
    nap(0.25);
    while ((event = party_hear(s->watch, &from, &data, &bytes)) == ITH_WATCH_MESSAGE)
        s->number++;
    return (void *)(intptr_t)event;
}

/* A process closes its watch in haste. If a connection has not taken all messages yet, it waits longer. Returns whether
 * all messages and the goodbye arrive. */
static bool all_arrive_late(void)
{
    party p;
    char data[ITH_WATCH_BYTES] = "x";
    sender reader = {.number = 0};
    void *event = NULL;
    int taken = 0;
    party_meet(&p, 2);
    for (int full = 0; full < 20; full++) { /* the system may find more room a little later */
        for (; ith_watch_send(p.watches[0], 1, data, sizeof data, false); full = 0)
            taken++;
        nap(0.002);
    }
    assert_true(ith_watch_send(p.watches[1], 0, "unread", 6, false));
    reader.watch = p.watches[1];
    assert_int_equal(pthread_create(&reader.thread, NULL, read_late, &reader), 0);
    ith_watch_close(p.watches[0], true);
    p.watches[0] = NULL;
    pthread_join(reader.thread, &event);
    party_part(&p);
    return reader.number == taken && (intptr_t)event == ITH_WATCH_BYE;
}

static void a_goodbye_follows_messages_that_wait(void **state)
{
    (void)state;
    bool arrived = all_arrive_late();
    for (int n = 0; n < 5 && !arrived; n++) /* on a busy machine the reader may be too late */
        arrived = all_arrive_late();
    assert_true(arrived);
}

int __real_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);

static bool no_conditions; /* whether the system has no condition variable left */

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    return no_conditions ? ENOMEM : __real_pthread_cond_init(condition, attributes);
}

static void without_a_condition_no_pulse_begins(void **state)
{
    party p;
    (void)state;
    party_meet(&p, 2);
    no_conditions = true;
    bool began = ith_watch_begin_pulse(p.watches[0], 60);
    no_conditions = false;
    party_part(&p);
    assert_false(began);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* these fork, so they run before any thread is started */
        cmocka_unit_test(a_death_is_seen_at_once),
        cmocka_unit_test(a_process_that_is_stopped_is_silent),
        cmocka_unit_test(a_process_that_fails_while_it_is_connected_is_named),
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(a_full_connection_cuts_no_message),
        cmocka_unit_test(messages_taken_in_parts_arrive_whole),
        cmocka_unit_test(room_is_used_at_once),
        cmocka_unit_test(threads_send_at_once),
        cmocka_unit_test(a_rest_ends_with_an_event),
        cmocka_unit_test(a_goodbye_follows_all_messages),
        cmocka_unit_test(a_goodbye_follows_messages_that_wait),
        cmocka_unit_test(without_a_condition_no_pulse_begins),
        cmocka_unit_test(the_reason_of_a_process_that_gives_up_reaches_all),
        cmocka_unit_test(a_process_that_gives_up_reaches_those_behind_its_target),
        cmocka_unit_test(a_process_that_is_not_connected_yet_says_for_whom_it_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
