/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_fault TRANSPORT RANKS VICTIM HOW SECONDS LIMIT CONNECT WORK: ranks work without end, in processes of RANKS ranks
 * that a launcher has started. SECONDS after they are connected, the process of rank VICTIM ends: HOW is kill
 * (SIGKILL), stop (SIGSTOP), pause (SIGSTOP), exit (_exit), or none: all ranks then end after some rounds. LIMIT: the
 * time limit of the group; CONNECT: the limit of connecting it. Every other rank prints a line when its group has
 * ended: its number, the seconds since the beginning, and the sentence. A process that is stopped is killed 1.5 s after
 * the limit. A process that pauses goes on 4 s after the limit, when the others are gone. A process that is not
 * connected prints one line. Lines end with the time of the day in seconds since 1970.
 *
 * WORK  exchange    regions of many sizes, sums and barriers
 *       mixed       attention, ulysses in place inside each process and ring by messages across
 *       bf16, 8bit  attention by compressed messages, ulysses over all ranks and ring in turn */
#include <ithaca/transport.h>

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_SECONDS = 30,
    FEW_ROUNDS = 300,
    MOST_BYTES = 300000,
    MOST_RANKS = 16,
    HEADS = 12,
    HEAD_DIM = 64,
    ROWS = 600
};

typedef struct fault {
    int victim;
    char how;
    double seconds, limit;
    int keeper; /* a pipe to the process that kills or continues this process after it was stopped */
    int ranks;  /* ranks of each process */
    const char *work;
    atomic_bool connected;
} fault;

/* The work of a rank: exchanges of `memory` if there are no plans, otherwise the plans in turn. */
typedef struct labour {
    ith_plan *plans[2];
    ith_attn_tensors tensors;
    char *memory[2]; /* sent, received */
    float *numbers;  /* q, k, v and o */
} labour;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double time_of_day(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* Forks a process that waits for a byte in the pipe, and sends this process a signal some time later. */
static int start_keeper(double seconds, int signal)
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
        kill(parent, signal);
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

/* Exchanges, signs of life, a sum or a barrier. */
static ith_status exchange_round(ith_comm *comm, labour *l, int round)
{
    float value = 1;
    ith_status status = exchange(comm, l->memory, round);
    for (int i = 0; !status && round % 5 == 0 && i < 4; i++) {
        nap(0.0005);
        ith_comm_alive(comm);
    }
    if (status)
        return status;
    return round % 3 ? ith_comm_allreduce(comm, &value, 1, ITH_REDUCE_MAX) : ith_comm_barrier(comm);
}

/* Makes plan number i. A mixed plan has ulysses inside each process, and rings across processes. */
static ith_status make_plan(ith_context *context, ith_comm *comm, const fault *f, int i, ith_plan **out)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    bool mixed = !strcmp(f->work, "mixed");
    int all = ith_comm_size(comm);
    problem.heads = problem.kv_heads = HEADS, problem.head_dim = HEAD_DIM, problem.q_len = problem.kv_len = ROWS;
    problem.dtype = ITH_F32;
    options.ulysses = mixed ? f->ranks : i ? 1 : all;
    options.ring = all / options.ulysses;
    options.strategy = mixed ? ITH_STRATEGY_ULYSSES_RING : i ? ITH_STRATEGY_RING : ITH_STRATEGY_ULYSSES;
    options.direction = mixed && i ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    options.softmax = i ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
    options.chunks = 1 + i;
    options.threads = 1;
    options.compress = mixed ? ITH_COMPRESS_OFF : *f->work == 'b' ? ITH_COMPRESS_BF16 : ITH_COMPRESS_8BIT;
    ith_status status = ith_plan_create(context, &problem, &options, comm, out);
    if (!status)
        status = ith_plan_describe(*out, &info);
    if (!status && (mixed ? info.exchange != ITH_EXCHANGE_MIXED : info.compress != (int64_t)options.compress))
        status = ITH_ERR_INTERNAL; /* the plan is not the kind that this program tests */
    return status;
}

static ith_status begin_labour(ith_context *context, ith_comm *comm, const fault *f, labour *l)
{
    enum { NUMBERS = ROWS * HEADS * HEAD_DIM };
    ith_status status = ITH_OK;
    l->tensors = (ith_attn_tensors)ITH_ATTN_TENSORS_INIT;
    l->numbers = calloc(4 * NUMBERS, sizeof *l->numbers);
    for (int i = 0; i < 2; i++)
        l->memory[i] = calloc(1, MOST_BYTES);
    if (!l->numbers || !l->memory[0] || !l->memory[1])
        return ITH_ERR_MEMORY;
    for (int i = 0; i < 3 * NUMBERS; i++)
        l->numbers[i] = (float)(i % 1009) / 500.0f - 1;
    l->tensors.q = l->numbers, l->tensors.k = l->numbers + NUMBERS, l->tensors.v = l->numbers + 2 * NUMBERS;
    l->tensors.o = l->numbers + 3 * NUMBERS;
    for (int i = 0; i < 2 && !status && strcmp(f->work, "exchange") != 0; i++)
        status = make_plan(context, comm, f, i, &l->plans[i]);
    return status;
}

static void end_labour(labour *l)
{
    for (int i = 0; i < 2; i++) {
        ith_plan_destroy(&l->plans[i]);
        free(l->memory[i]);
    }
    free(l->numbers);
}

static ith_status suffer(ith_context *context, ith_comm *comm, void *user)
{
    fault *f = user;
    pthread_t thread;
    labour l = {.numbers = NULL};
    atomic_store(&f->connected, true);
    ith_status status = begin_labour(context, comm, f, &l);
    if (f->how == 'n') /* another program makes the fault, perhaps now */
        ith_comm_set_timeout(comm, f->limit);
    if (!status)
        status = ith_comm_barrier(comm);
    ith_comm_set_timeout(comm, f->limit);
    double begin = now();
    if (!status && f->how != 'n' && ith_comm_rank(comm) == f->victim && pthread_create(&thread, NULL, strike, f))
        status = ITH_ERR_MEMORY;
    int rounds = f->how == 'n' ? FEW_ROUNDS : INT_MAX;
    for (int round = 0; !status && round < rounds && now() - begin < MOST_SECONDS; round++)
        status = l.plans[0] ? ith_plan_execute(l.plans[round % 2], &l.tensors) : exchange_round(comm, &l, round);
    char line[2048];
    int length = snprintf(line, sizeof line, "rank %d after %.3f s: %s: %s, at %.3f\n", ith_comm_rank(comm),
                          now() - begin, ith_status_name(status), ith_context_error(context), time_of_day());
    if (write(1, line, (size_t)length) != length)
        status = ITH_ERR_IO;
    end_labour(&l);
    return status;
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    if (argc != 9)
        return 2;
    fault f = {.victim = atoi(argv[3]),
               .how = argv[4][0],
               .seconds = atof(argv[5]),
               .limit = atof(argv[6]),
               .ranks = atoi(argv[2]),
               .work = argv[8]};
    f.keeper = f.how == 'p' ? start_keeper(f.limit + 4, SIGCONT) : start_keeper(f.limit + 1.5, SIGKILL);
    if (ith_context_create(NULL, &context))
        return 2;
    double begin = now();
    ith_context_set_connect_timeout(context, atof(argv[7]));
    ith_status status = ith_run_ranks_connected(context, argv[1], NULL, atoi(argv[2]), 1, suffer, &f);
    if (status && !f.connected) {
        char line[2048];
        int length = snprintf(line, sizeof line, "not connected after %.3f s: %s: %s, at %.3f\n", now() - begin,
                              ith_status_name(status), ith_context_error(context), time_of_day());
        if (write(1, line, (size_t)length) != length)
            return 2;
    }
    ith_context_destroy(&context);
    return status != ITH_OK;
}
