/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that is slow is not taken for dead, and a rank that hangs is. A run of two processes has a time limit of a
 * second. A third process stops the process of one rank again and again, so that it runs for a quarter of the time:
 * each stage of the run then takes longer than the limit, and the rank must say in the short times in which it runs
 * that it computes. In the second test it stays stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "socket_meeting.h"
#include "support/engine/golden_run.h"
#include "support/socket_group.h"
#include "support/temporary.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MODEL "../models/shapes"
#define GOLDEN "golden/shapes/denoise_unipc_diffusers.safetensors"
#define LIMIT_SECONDS 1.0
#define STOPPED_SECONDS 0.3
#define RUNNING_SECONDS 0.1
#define WATCHDOG_SECONDS 300 /* of each process */

enum { RANKS = 2, STAGES = 4 };

/* What the processes share. */
typedef struct board {
    int slow;         /* the rank that is slowed down; -1: on_frame is slow instead */
    int hangs_in;     /* the stage (ith_stage) from which it stays stopped; -1: it never does */
    const char *dump; /* for rank 0 */
    atomic_int pid;   /* of the slow rank's process, once it has met the others; 0 before and after the run */
    atomic_int stage; /* the stage that rank 0 has shown last */
    _Atomic double begun[STAGES + 1];
    char sentences[RANKS][1024];
    ith_status statuses[RANKS];
    double seconds; /* from the last stop to the end of the other rank, if the slow one hangs */
} board;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void note_stage(void *user, ith_stage stage, int64_t done, int64_t total)
{
    board *b = user;
    (void)done, (void)total;
    if (atomic_exchange(&b->stage, (int)stage) != (int)stage && atomic_load(&b->begun[stage]) == 0)
        atomic_store(&b->begun[stage], now());
}

static ith_comm *own_comm; /* of this process */

/* Takes three times the limit for the first frame, and says in between that the rank is alive. */
static ith_status take_slowly(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)user, (void)rgb, (void)height, (void)width;
    for (double end = now() + 3 * LIMIT_SECONDS; index == 0 && now() < end; ith_comm_alive(own_comm))
        nap(0.1);
    return ITH_OK;
}

static int be_rank(int rank, const char *folder, void *user)
{
    board *b = user;
    golden_run run;
    ith_context *context = NULL;
    ith_pipeline *pipeline = NULL;
    alarm(WATCHDOG_SECONDS);
    if (ith_context_create(NULL, &context) || ith_pipeline_open(context, MODEL, &pipeline))
        return 1;
    ith_comm *comm = socket_group_join(context, folder, rank, RANKS);
    if (!comm)
        return 1;
    golden_run_open(context, GOLDEN, &run);
    run.options.threads = 1;
    run.options.dump_file = b->dump;
    run.options.on_progress = note_stage, run.options.user = b;
    run.options.on_frame = b->slow < 0 ? take_slowly : NULL;
    own_comm = comm;
    ith_comm_set_timeout(comm, LIMIT_SECONDS);
    if (rank == b->slow)
        atomic_store(&b->pid, getpid());
    b->statuses[rank] = ith_pipeline_generate(pipeline, comm, &run.options, NULL);
    if (rank == 0)
        atomic_store(&b->begun[STAGES], now());
    snprintf(b->sentences[rank], sizeof b->sentences[rank], "%s", ith_context_error(context));
    atomic_store(&b->pid, 0);
    ith_comm_destroy(&comm);
    ith_tensor_file_close(&run.file);
    ith_pipeline_close(&pipeline);
    ith_context_destroy(&context);
    return 0;
}

/* Stops and continues the slow rank until the run has ended, in a process of its own. A rank that hangs is killed when
 * the other rank has returned. */
static void slow_down(board *b)
{
    while (!atomic_load(&b->pid))
        nap(0.001);
    for (pid_t pid; (pid = atomic_load(&b->pid)) != 0;) {
        if (kill(pid, SIGSTOP))
            break;
        double stopped = now();
        if (atomic_load(&b->stage) == b->hangs_in) {
            while (atomic_load(&b->pid))
                nap(0.005);
            b->seconds = now() - stopped;
            kill(pid, SIGKILL);
            break;
        }
        nap(STOPPED_SECONDS);
        kill(pid, SIGCONT);
        nap(RUNNING_SECONDS);
    }
    _exit(0);
}

static board *run(int slow, int hangs_in, const char *dump, int *statuses)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(b != MAP_FAILED);
    b->slow = slow, b->hangs_in = hangs_in, b->dump = dump;
    atomic_store(&b->stage, -2); /* none */
    fflush(NULL);
    pid_t slower = fork();
    assert_true(slower >= 0);
    if (slower == 0)
        slow_down(b);
    socket_run_processes(RANKS, be_rank, b, statuses);
    kill(slower, SIGKILL);
    waitpid(slower, NULL, 0);
    return b;
}

static void a_slow_rank_is_waited_for(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    int statuses[RANKS];
    board *b = run(0, -1, temporary_path(folder, "dump"), statuses);
    for (int rank = 0; rank < RANKS; rank++)
        if (b->statuses[rank] || statuses[rank])
            fail_msg("rank %d: %s", rank, b->sentences[rank]);
    double denoise = b->begun[ITH_STAGE_DECODE] - b->begun[ITH_STAGE_DENOISE];
    double decode = b->begun[STAGES] - b->begun[ITH_STAGE_DECODE];
    munmap(b, sizeof *b);
    temporary_remove(folder);
    if (denoise > LIMIT_SECONDS && decode > LIMIT_SECONDS)
        return;
    print_message("this machine is too fast: it denoises in %.2f s and decodes in %.2f s\n", denoise, decode);
    skip();
}

static void a_slow_callback_is_waited_for(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    int statuses[RANKS];
    board *b = run(-1, -1, temporary_path(folder, "dump"), statuses);
    for (int rank = 0; rank < RANKS; rank++)
        if (b->statuses[rank] || statuses[rank])
            fail_msg("rank %d: %s", rank, b->sentences[rank]);
    assert_true(b->begun[STAGES] - b->begun[ITH_STAGE_DECODE] > 3 * LIMIT_SECONDS);
    munmap(b, sizeof *b);
    temporary_remove(folder);
}

/* The other rank says after the limit for whom it has waited. */
static void a_rank_that_hangs_ends_the_run(void **state)
{
    (void)state;
    static const ith_stage stages[] = {ITH_STAGE_DENOISE, ITH_STAGE_DECODE};
    char *folder = temporary_folder();
    int statuses[RANKS];
    for (int i = 0; i < 2; i++) {
        board *b = run(0, (int)stages[i], temporary_path(folder, "dump"), statuses);
        if (b->statuses[1] != ITH_ERR_TIMEOUT || !strstr(b->sentences[1], "rank 1 waited ") ||
            !strstr(b->sentences[1], " s for rank 0 in ") || b->seconds > 10 * LIMIT_SECONDS)
            fail_msg("stage %d: %s after %.2f s", (int)stages[i], b->sentences[1], b->seconds);
        munmap(b, sizeof *b);
    }
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_is_waited_for),
        cmocka_unit_test(a_slow_callback_is_waited_for),
        cmocka_unit_test(a_rank_that_hangs_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
