/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_fault TRANSPORT RANKS VICTIM HOW SECONDS LIMIT: ranks exchange data without end, in processes of RANKS ranks that
 * a launcher has started. SECONDS after they have met, the process of rank VICTIM ends: HOW is kill (SIGKILL), stop
 * (SIGSTOP) or exit (_exit). LIMIT: the time limit of the group. Every other rank prints a line when its group has
 * ended: its number, the seconds since they met, and the sentence. A process that is stopped is killed 1.5 s after the
 * limit. */
#include <ithaca/transport.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 300000, MOST_RANKS = 16 };

typedef struct fault {
    int victim;
    char how;
    double seconds, limit;
    int keeper; /* a pipe to the process that kills a stopped one */
} fault;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* Forks a process that kills this one some time after a byte in the pipe. */
static int start_keeper(double seconds)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    pid_t parent = getpid(), child = fork();
    if (child)
        return close(ends[0]), ends[1];
    close(ends[1]);
    setsid(); /* launchers signal groups of processes */
    if (read(ends[0], &(char){0}, 1) == 1) {
        nap(seconds);
        kill(parent, SIGKILL);
    }
    _exit(0);
}

static void *strike(void *argument)
{
    const fault *f = argument;
    nap(f->seconds);
    if (f->how == 'k')
        raise(SIGKILL);
    if (f->how == 'e')
        _exit(3);
    if (write(f->keeper, "x", 1) == 1)
        kill(getpid(), SIGSTOP);
    return NULL;
}

/* One exchange with all ranks, of a size that changes, in contiguous or strided regions. */
static ith_status exchange(ith_comm *comm, char *data[2], int round)
{
    ith_transfer sends[MOST_RANKS], receives[MOST_RANKS];
    int ranks = ith_comm_size(comm);
    static const int64_t sizes[] = {4, 900, 30000, MOST_BYTES};
    int64_t bytes = sizes[round % 4] / ranks & -4;
    for (int peer = 0; peer < ranks; peer++) {
        sends[peer] = (ith_transfer){peer, {.data = data[0] + peer * bytes, .count = {1, 1}, .bytes = bytes}};
        receives[peer] = (ith_transfer){
            peer, {.data = data[1] + peer * bytes, .count = {bytes / 4, 1}, .stride = {4, 0}, .bytes = 4}};
    }
    return ith_comm_exchange(comm, sends, ranks, receives, ranks);
}

static ith_status suffer(ith_context *context, ith_comm *comm, void *user)
{
    fault *f = user;
    pthread_t thread;
    char *data[2] = {calloc(1, MOST_BYTES), calloc(1, MOST_BYTES)};
    float value = 1;
    ith_status status = data[0] && data[1] ? ith_comm_barrier(comm) : ITH_ERR_MEMORY;
    ith_comm_set_timeout(comm, f->limit);
    double begin = now();
    if (!status && ith_comm_rank(comm) == f->victim && pthread_create(&thread, NULL, strike, f))
        status = ITH_ERR_MEMORY;
    for (int round = 0; !status && now() - begin < 30; round++) {
        status = exchange(comm, data, round);
        for (int i = 0; !status && round % 5 == 0 && i < 4; i++) {
            nap(0.0005);
            ith_comm_alive(comm);
        }
        if (!status)
            status = round % 3 ? ith_comm_allreduce(comm, &value, 1, ITH_REDUCE_MAX) : ith_comm_barrier(comm);
    }
    char line[2048];
    int length = snprintf(line, sizeof line, "rank %d after %.3f s: %s: %s\n", ith_comm_rank(comm), now() - begin,
                          ith_status_name(status), ith_context_error(context));
    if (write(1, line, (size_t)length) != length)
        status = ITH_ERR_IO;
    free(data[0]);
    free(data[1]);
    return status;
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    if (argc != 7)
        return 2;
    fault f = {.victim = atoi(argv[3]), .how = argv[4][0], .seconds = atof(argv[5]), .limit = atof(argv[6])};
    f.keeper = start_keeper(f.limit + 1.5);
    if (ith_context_create(NULL, &context))
        return 2;
    ith_status status = ith_run_ranks_connected(context, argv[1], NULL, atoi(argv[2]), 1, suffer, &f);
    ith_context_destroy(&context);
    return status != ITH_OK;
}
