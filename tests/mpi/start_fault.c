/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD in one process: it kills (START_FAULT=kill) or stops (stop) the process when a transport
 * module calls the function START_POINT for the START_COUNT-th time, or right after that call (START_COUNT < 0). A
 * process that is stopped is killed START_SECONDS (6) later. START_FAULT=sleep: the call lasts START_SECONDS longer;
 * fail: it fails, as if the process could open no more descriptors.
 * Calls of shm_unlink count whoever makes them, because MPI calls it while it starts.
 * The library makes the file START_MARK when it makes the fault. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whether a return address lies in a transport module. */
static int is_from_module(const void *address)
{
    Dl_info about;
    return dladdr(address, &about) && about.dli_fname && strstr(about.dli_fname, "ithaca_transport_");
}

static void wait_seconds(void)
{
    usleep((useconds_t)(1e6 * atof(getenv("START_SECONDS") ? getenv("START_SECONDS") : "6")));
}

static void end_later(void)
{
    pid_t parent = getpid();
    if (fork())
        return;
    setsid();
    for (int i = 3; i < 1024; i++)
        close(i);
    wait_seconds();
    kill(parent, SIGKILL);
    _exit(0);
}

/* Makes the fault if this is the right call. Returns whether the call must fail. */
static int strike_call(const char *function, int after)
{
    static atomic_int calls;
    const char *point = getenv("START_POINT"), *how = getenv("START_FAULT");
    int count = atoi(getenv("START_COUNT") ? getenv("START_COUNT") : "1");
    if (!point || !how || strcmp(point, function) != 0 || after != (count < 0))
        return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != abs(count))
        return 0;
    if (getenv("START_MARK"))
        close(open(getenv("START_MARK"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    if (!strcmp(how, "fail"))
        return 1;
    if (!strcmp(how, "sleep")) {
        wait_seconds();
        return 0;
    }
    if (!strcmp(how, "stop"))
        end_later();
    kill(getpid(), strcmp(how, "stop") ? SIGKILL : SIGSTOP);
    return 0;
}

static int strike(const char *function, int after, const void *caller)
{
    return is_from_module(caller) && strike_call(function, after);
}

/* The function that this library replaces: of the C library, or of MPI, which only the module may see. */
static void *real(const char *name, const void *caller)
{
    Dl_info about;
    void *found = dlsym(RTLD_NEXT, name);
    if (found || !dladdr(caller, &about))
        return found;
    void *module = dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    char profiling[64] = "P";
    return module ? dlsym(module, strncat(profiling, name, sizeof profiling - 2)) : NULL;
}

#define WRAP(type, name, parameters, ...)                                                                              \
    type name parameters;                                                                                              \
    type name parameters                                                                                               \
    {                                                                                                                  \
        const void *caller = __builtin_return_address(0);                                                              \
        type(*next) parameters = (type(*) parameters)real(#name, caller);                                              \
        if (strike(#name, 0, caller)) {                                                                                \
            errno = EMFILE;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        type result = next(__VA_ARGS__);                                                                               \
        strike(#name, 1, caller);                                                                                      \
        return result;                                                                                                 \
    }

/* Only the sizes of the arguments matter: handles of MPI are int in MPICH and pointers in Open MPI, and both travel in
 * one register. */
WRAP(int, MPI_Init_thread, (int *argc, char ***argv, int required, int *provided), argc, argv, required, provided)
WRAP(int, MPI_Finalize, (void), )
WRAP(int, MPI_Ibarrier, (void *comm, void *request), comm, request)
WRAP(int, MPI_Comm_dup, (void *comm, void *out), comm, out)
WRAP(int, MPI_Irecv, (void *buffer, int count, void *type, int from, int tag, void *comm, void *request), buffer, count,
     type, from, tag, comm, request)
WRAP(int, MPI_Isend, (const void *buffer, int count, void *type, int to, int tag, void *comm, void *request), buffer,
     count, type, to, tag, comm, request)
WRAP(int, listen, (int descriptor, int backlog), descriptor, backlog)
WRAP(int, accept4, (int descriptor, struct sockaddr *address, socklen_t *bytes, int flags), descriptor, address, bytes,
     flags)
WRAP(int, connect, (int descriptor, const struct sockaddr *address, socklen_t bytes), descriptor, address, bytes)
WRAP(int, epoll_ctl, (int epoll, int operation, int descriptor, struct epoll_event *event), epoll, operation,
     descriptor, event)

/* Only calls with several requests count: a gather makes them. */
int MPI_Testall(int count, void *requests, int *done, void *statuses);
int MPI_Testall(int count, void *requests, int *done, void *statuses)
{
    const void *caller = __builtin_return_address(0);
    int (*next)(int, void *, int *, void *) = (int (*)(int, void *, int *, void *))real("MPI_Testall", caller);
    int result = next(count, requests, done, statuses);
    strike("MPI_Testall", 1, count > 1 ? caller : NULL);
    return result;
}

/* Whether a message on a control connection says that the process has given up, or leaves (watch_state.h). On a busy
 * machine this may come before the point of the fault; a fault after such a message is not the reason for the end of
 * the run. */
static int is_last(const struct msghdr *message)
{
    unsigned short kind = 0;
    if (message->msg_iov->iov_len >= sizeof kind)
        memcpy(&kind, message->msg_iov->iov_base, sizeof kind);
    return kind == 0x4d34 || kind == 0x4d32;
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags)
{
    const void *caller = is_last(message) ? NULL : __builtin_return_address(0);
    ssize_t (*next)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))real("sendmsg", NULL);
    strike("sendmsg", 0, caller);
    ssize_t result = next(descriptor, message, flags);
    strike("sendmsg", 1, caller);
    return result;
}

int shm_unlink(const char *name)
{
    int (*next)(const char *) = (int (*)(const char *))real("shm_unlink", NULL);
    strike_call("shm_unlink", 0);
    return next(name);
}
