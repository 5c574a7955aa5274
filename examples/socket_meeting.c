/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the ranks of a group (socket_meeting.h). Each rank listens at the socket FOLDER/RANK for the ranks after it,
 * and connects twice to each rank before it. The first message on a connection, a hello, tells which rank connects and
 * which of the two connections it is. */
#include "socket_meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The first message on a connection. */
typedef struct hello {
    int rank, which; /* the rank that connects; 0 or 1 for its first or second connection */
} hello;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Sets the address of the socket FOLDER/RANK. Returns false if the path is too long. */
static bool set_address(struct sockaddr_un *address, const char *folder, int rank)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(address->sun_path, sizeof address->sun_path, "%s/%d", folder, rank) < (int)sizeof address->sun_path;
}

/* Connects to the socket of an earlier rank, trying until the time `end`. Returns the connection, or -1. */
static int connect_to(const char *folder, int rank, double end)
{
    struct sockaddr_un address;
    set_address(&address, folder, rank);
    while (now() < end) {
        int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (descriptor < 0 || !connect(descriptor, (struct sockaddr *)&address, sizeof address))
            return descriptor;
        close(descriptor);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return -1;
}

/* Connects twice to each earlier rank. Returns false on failure or at the time `end`. */
static bool connect_to_earlier(int rank, const char *folder, double end, int (*sockets)[2])
{
    for (int earlier = 0; earlier < rank; earlier++)
        for (int which = 0; which < 2; which++) {
            hello mine = {rank, which};
            sockets[earlier][which] = connect_to(folder, earlier, end);
            if (sockets[earlier][which] < 0 ||
                send(sockets[earlier][which], &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine)
                return false;
        }
    return true;
}

/* Waits until a descriptor can be read, at most until the time `end`. */
static bool is_readable(int descriptor, double end)
{
    struct pollfd one = {.fd = descriptor, .events = POLLIN};
    double left = end - now();
    return left > 0 && poll(&one, 1, (int)(left * 1000) + 1) > 0;
}

/* Accepts two connections from each later rank. Returns false on failure or at the time `end`. */
static bool accept_later(int rank, int ranks, int listener, double end, int (*sockets)[2])
{
    for (int missing = 2 * (ranks - rank - 1); missing > 0; missing--) {
        hello theirs = {-1, 0};
        int descriptor = is_readable(listener, end) ? accept(listener, NULL, NULL) : -1;
        if (descriptor < 0)
            return false;
        if (!is_readable(descriptor, end) || recv(descriptor, &theirs, sizeof theirs, 0) != sizeof theirs ||
            theirs.rank <= rank || theirs.rank >= ranks || (theirs.which & ~1) ||
            sockets[theirs.rank][theirs.which] >= 0) {
            close(descriptor);
            return false;
        }
        sockets[theirs.rank][theirs.which] = descriptor;
    }
    return true;
}

/* Makes a socket that listens at the address. Returns -1 on failure, with the reason in errno. */
static int listen_at(const struct sockaddr_un *address, int connections)
{
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener >= 0 && !bind(listener, (const struct sockaddr *)address, sizeof *address) &&
        !listen(listener, connections))
        return listener;
    int reason = errno;
    if (listener >= 0)
        close(listener);
    errno = reason;
    return -1;
}

static void close_all(int (*sockets)[2], int ranks)
{
    for (int i = 0; i < 2 * ranks; i++)
        if (sockets[i / 2][i % 2] >= 0)
            close(sockets[i / 2][i % 2]);
}

void *socket_meet(const char *folder, int rank, int ranks, double seconds, char *problem)
{
    struct sockaddr_un address;
    double end = now() + seconds;
    if (ranks < 1 || rank < 0 || rank >= ranks || !set_address(&address, folder, rank)) {
        snprintf(problem, SOCKET_SENTENCE, "rank %d is not one of %d, or the path is too long: %s", rank, ranks,
                 folder);
        return NULL;
    }
    int(*sockets)[2] = malloc((size_t)ranks * sizeof *sockets);
    int listener = sockets ? listen_at(&address, 2 * ranks) : -1;
    if (listener < 0) {
        snprintf(problem, SOCKET_SENTENCE, "%.100s: %s", address.sun_path, strerror(errno));
        free(sockets);
        return NULL;
    }
    for (int i = 0; i < ranks; i++)
        sockets[i][0] = sockets[i][1] = -1;
    void *state = NULL;
    bool met = connect_to_earlier(rank, folder, end, sockets) && accept_later(rank, ranks, listener, end, sockets);
    close(listener);
    unlink(address.sun_path);
    if (met)
        state = socket_state(rank, ranks, (const int(*)[2])sockets);
    if (!state) {
        snprintf(problem, SOCKET_SENTENCE, "rank %d has not met all of the %d ranks in %.3g s", rank, ranks, seconds);
        close_all(sockets, ranks);
    }
    free(sockets);
    return state;
}

int socket_run_processes(int ranks, int (*fn)(int rank, const char *folder, void *user), void *user, int *statuses)
{
    char folder[] = "/tmp/ithaca-ranks-XXXXXX";
    int started = 0, failed = 0;
    pid_t *children = calloc((size_t)ranks, sizeof *children);
    if (!children || !mkdtemp(folder)) {
        free(children);
        return -1;
    }
    fflush(NULL); /* otherwise every child would print the buffered text again */
    while (started < ranks && (children[started] = fork()) > 0)
        started++;
    if (started < ranks && children[started] == 0) {
        free(children);
        exit(fn(started, folder, user));
    }
    for (int i = 0; i < started; i++)
        failed += waitpid(children[i], &statuses[i], 0) < 0 || statuses[i] != 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct sockaddr_un address;
        if (set_address(&address, folder, rank))
            unlink(address.sun_path); /* a rank that died early leaves its socket */
    }
    rmdir(folder);
    free(children);
    return started == ranks ? failed : -1;
}
