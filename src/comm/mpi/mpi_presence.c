/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the processes of a host (mpi_presence.h).
 *
 * A process accepts the connections of the others only at its end, and then writes one byte: DONE, FAILED or REFUSED.
 * Its sentence follows FAILED and REFUSED. A connection that closes without that byte shows a death. */
#include "mpi_presence.h"

#include "../../base/host_name.h"
#include "../wire/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOOK_SECONDS 0.01 /* between two looks at the connections */
#define CALL_SECONDS 0.1  /* between two attempts to reach processes that have not come, if they are many */
/* A process that fails stays for some time, to tell processes that connect later: until its limit, but at least
 * LATE_SECONDS and at most STAY_SECONDS. */
#define LATE_SECONDS 1.0
#define STAY_SECONDS 5.0

enum { MOST_PROCESSES = 4096, MANY = 64, SENTENCE_BYTES = 512, DONE = 'd', FAILED = 'f', REFUSED = 'r' };

/* Another process of the run. */
typedef struct neighbour {
    int socket; /* -1: none */
    pid_t pid;  /* 0: it has not come */
    bool done;  /* it has ended */
} neighbour;

struct mpi_presence {
    char job[64], host[ITH_WATCH_NAME];
    int process, size;
    int call; /* number of earlier calls of ith_mpi_presence_begin in this process */
    int listener;
    bool refused;               /* another process has refused to connect */
    double looked, called, end; /* times: the last look, the last attempt to connect, the limit of connecting */
    int answered;               /* the number of processes to which this one has sent the byte of its end */
    pid_t *answers;             /* [size]: the numbers of these processes */
    neighbour all[];            /* [size] */
};

/* ---- Names ----------------------------------------------------------------------------------------------------- */

static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text >= '0' && *text <= '9' ? atoi(text) : -1;
}

/* The number of this process and of all processes, by the launcher's variables. Returns false if they are unknown. */
static bool find_number(int *process, int *size)
{
    static const char *const variables[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                               {"PMI_RANK", "PMI_SIZE"},
                                               {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        *process = number_in(variables[i][0]), *size = number_in(variables[i][1]);
        if (*process >= 0 && *size > *process)
            return *size <= MOST_PROCESSES;
    }
    return false;
}

/* The number of the processes of this host; -1 if it is unknown. */
static int count_near(void)
{
    int count = number_in("OMPI_COMM_WORLD_LOCAL_SIZE");
    return count > 0 ? count : number_in("MPI_LOCALNRANKS");
}

/* The process at the other end of a Unix socket; pid 0 if it is unknown. */
static struct ucred find_peer(int socket)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes))
        peer.pid = 0;
    return peer;
}

/* A name of the run that all its processes on this host share: PMIx has one; Hydra's processes have a socket from the
 * same proxy; Slurm numbers its steps. Returns false if there is none. */
static bool name_job(char *text, size_t bytes)
{
    const char *space = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    int proxy = number_in("PMI_FD");
    text[0] = 0;
    if (space) /* its end tells runs apart, its beginning may be the long name of a host */
        snprintf(text, bytes, "%s", space + (strlen(space) < bytes ? 0 : strlen(space) - bytes + 1));
    else if (proxy >= 0 && find_peer(proxy).pid)
        snprintf(text, bytes, "proxy %d", (int)find_peer(proxy).pid);
    else if (job && step)
        snprintf(text, bytes, "step %s.%s", job, step);
    return text[0] != 0;
}

/* The address of a process's socket: an abstract name, which the system frees when the process ends. */
static socklen_t address_of(const mpi_presence *p, int process, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "ithaca %u %s %d %d", (unsigned)getuid(),
                          p->job, process, p->call);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

mpi_presence *ith_mpi_presence_begin(double seconds)
{
    static int calls;
    struct sockaddr_un address;
    int process, size;
    if (!find_number(&process, &size))
        return NULL;
    mpi_presence *p = calloc(1, sizeof *p + (size_t)size * (sizeof *p->all + sizeof *p->answers));
    if (!p)
        return NULL;
    p->answers = (pid_t *)&p->all[size];
    p->process = process, p->size = size, p->call = calls++;
    p->end = ith_watch_now() + seconds;
    for (int i = 0; i < size; i++)
        p->all[i].socket = -1;
    ith_host_name(p->host, sizeof p->host);
    p->listener = open_socket();
    if (p->listener >= 0 && name_job(p->job, sizeof p->job) &&
        !bind(p->listener, (struct sockaddr *)&address, address_of(p, process, &address)) && !listen(p->listener, size))
        return p;
    if (p->listener >= 0)
        close(p->listener);
    free(p);
    return NULL;
}

/* ---- Other processes ------------------------------------------------------------------------------------------- */

/* Connects to a process if it has come. */
static void call_process(mpi_presence *p, int process)
{
    neighbour *n = &p->all[process];
    struct sockaddr_un address;
    socklen_t bytes = address_of(p, process, &address);
    int socket = open_socket();
    if (socket < 0)
        return;
    struct ucred peer = {.pid = 0};
    if (!connect(socket, (struct sockaddr *)&address, bytes))
        peer = find_peer(socket);
    if (!peer.pid || peer.uid != getuid()) {
        close(socket);
        return;
    }
    n->socket = socket, n->pid = peer.pid;
}

/* Reads the messages of a process. Returns false if it has failed or died. */
static bool hear_process(mpi_presence *p, int process, char *sentence, size_t bytes)
{
    neighbour *n = &p->all[process];
    char text[1 + SENTENCE_BYTES] = "";
    ssize_t count = recv(n->socket, text, sizeof text - 1, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
    close(n->socket);
    n->socket = -1, n->done = true;
    if (count > 0 && text[0] == DONE)
        return true;
    p->refused |= count > 1 && text[0] == REFUSED;
    if (count > 1 && (text[0] == FAILED || text[0] == REFUSED))
        snprintf(sentence, bytes, "%s", text + 1);
    else
        snprintf(sentence, bytes, "process %d (host %s, pid %d) died while the processes were being connected", process,
                 p->host, (int)n->pid);
    return false;
}

bool ith_mpi_presence_look(mpi_presence *p, char *sentence, size_t bytes)
{
    double now = ith_watch_now();
    if (!p || now < p->looked + LOOK_SECONDS)
        return true;
    bool calls = p->size <= MANY || now >= p->called + CALL_SECONDS;
    p->looked = now;
    p->called = calls ? now : p->called;
    for (int i = 0; i < p->size; i++) {
        if (calls && i != p->process && !p->all[i].pid)
            call_process(p, i);
        if (p->all[i].socket >= 0 && !hear_process(p, i, sentence, bytes))
            return false;
    }
    return true;
}

bool ith_mpi_presence_refused(const mpi_presence *p)
{
    return p && p->refused;
}

/* ---- Blame ----------------------------------------------------------------------------------------------------- */

/* Lists the numbers of the processes that have not come, such as "3, 4". Returns how many there are. */
static int list_missing(const mpi_presence *p, const bool *heard, char *text, size_t bytes)
{
    int missing = 0;
    size_t length = 0;
    for (int i = 0; i < p->size; i++) {
        if (i == p->process || p->all[i].pid || (heard && heard[i]))
            continue;
        if (length < bytes)
            length += (size_t)snprintf(text + length, bytes - length, missing ? ", %d" : "%d", i);
        missing++;
    }
    return missing;
}

void ith_mpi_presence_explain(mpi_presence *p, const bool *heard, char *text, size_t bytes)
{
    char missing[200] = "", nothing[SENTENCE_BYTES];
    snprintf(text, bytes, "a process has died, has stopped or cannot be reached");
    if (!p)
        return;
    p->looked = p->called = 0;
    ith_mpi_presence_look(p, nothing, sizeof nothing);
    for (int i = 0; i < p->size; i++)
        if (p->all[i].pid && ith_watch_find_life(p->all[i].pid) == ITH_WATCH_STOPPED) {
            snprintf(text, bytes, "process %d (host %s, pid %d) is stopped", i, p->host, (int)p->all[i].pid);
            return;
        }
    int count = list_missing(p, heard, missing, sizeof missing);
    const char *many = count > 1 ? "es" : "", *have = count > 1 ? "have" : "has";
    if (count && count_near() == p->size)
        snprintf(text, bytes, "process%s %s (host %s) %s not begun to connect, or %s died", many, missing, p->host,
                 have, have);
    else if (count)
        snprintf(text, bytes, "process%s %s cannot be reached from host %s, or %s died or stopped", many, missing,
                 p->host, have);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Tells the processes that have connected how this process has ended. A process connects once. */
static void answer(mpi_presence *p, const char *text)
{
    for (int socket; (socket = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0; close(socket)) {
        pid_t pid = send(socket, text, strlen(text), MSG_NOSIGNAL) > 0 ? find_peer(socket).pid : 0;
        if (pid && p->answered < p->size)
            p->answers[p->answered++] = pid;
    }
}

static bool has_answer(const mpi_presence *p, pid_t pid)
{
    int i = 0;
    while (i < p->answered && p->answers[i] != pid)
        i++;
    return i < p->answered;
}

/* Whether a process of this host runs, or may still come, and does not know of the end of this process. A process that
 * knows of it may end before this one has connected to it. */
static bool is_awaited(const mpi_presence *p)
{
    int come = p->answered;
    for (int i = 0; i < p->size; i++) {
        const neighbour *n = &p->all[i];
        if (!n->pid || has_answer(p, n->pid))
            continue;
        come++;
        if (!n->done && ith_watch_find_life(n->pid) == ITH_WATCH_RUNS)
            return true;
    }
    return come < count_near() - 1;
}

/* Tells the other processes of this host of the failure, and stays until all know of it. If this process ended at once,
 * a process that comes later would take it for dead. */
static void answer_late(mpi_presence *p, const char *text)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    char ignored[SENTENCE_BYTES];
    double now = ith_watch_now(), end = p->end < now + STAY_SECONDS ? p->end : now + STAY_SECONDS;
    end = end > now + LATE_SECONDS ? end : now + LATE_SECONDS;
    for (answer(p, text); is_awaited(p) && ith_watch_now() < end; answer(p, text)) {
        nanosleep(&nap, NULL);
        ith_mpi_presence_look(p, ignored, sizeof ignored);
    }
}

void ith_mpi_presence_end(mpi_presence *p, const char *failure, bool refuses)
{
    char text[1 + SENTENCE_BYTES];
    if (!p)
        return;
    snprintf(text, sizeof text, "%c%s", !failure ? DONE : refuses ? REFUSED : FAILED, failure ? failure : "");
    if (failure)
        answer_late(p, text);
    shutdown(p->listener, SHUT_RD); /* a connection that came after the last answer would look like a death */
    answer(p, text);
    close(p->listener);
    for (int i = 0; i < p->size; i++)
        if (p->all[i].socket >= 0)
            close(p->all[i].socket);
    free(p);
}
