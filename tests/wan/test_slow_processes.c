/* SPDX-License-Identifier: Apache-2.0 */
/* A slow rank is not taken for dead, but a rank that hangs is. A run of two processes has a time limit of a second. A
 * third process stops the process of one rank again and again, so that this rank runs for a quarter of the time. Each
 * stage of the run then takes longer than the limit, and the rank must give signs of life in the short times in which
 * it runs. In the third test it stays stopped. A busy machine may stop a process too; then a longer limit is tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "socket_meeting.h"
#include "support/engine/golden_run.h"
#include "support/socket_group.h"
#include "support/temporary.h"
#include "support/times.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "../models/shapes"
#define GOLDEN "golden/shapes/denoise_unipc_diffusers.safetensors"
#define FIRST_LIMIT 1.0 /* seconds */
#define LAST_LIMIT 16.0
#define STOPPED_PART 0.3 /* a share of the limit */
#define RUNNING_PART 0.1
#define WATCHDOG_SECONDS 300 /* the most seconds of each process */

enum { RANKS = 2, STAGES = 4 };

/* Memory that the processes share. */
typedef struct board {
    double limit;     /* seconds */
    int slow;         /* the rank that is slowed down; -1: on_frame is slow instead */
    int hangs_in;     /* the stage (ith_stage) from which it stays stopped; -1: it never does */
    const char *dump; /* rank 0's dump */
    atomic_int pid;   /* the process of the slow rank during the run, otherwise 0 */
    atomic_int stage; /* the stage that rank 0 has shown last */
    _Atomic double begun[STAGES + 1];
    char sentences[RANKS][1024];
    ith_status statuses[RANKS];
    double seconds; /* from the last stop to the end of the other rank, if the slow rank hangs */
} board;

static void note_stage(void *user, ith_stage stage, int64_t done, int64_t total)
{
    board *b = user;
    (void)done, (void)total;
    if (atomic_exchange(&b->stage, (int)stage) != (int)stage && atomic_load(&b->begun[stage]) == 0)
        atomic_store(&b->begun[stage], ith_clock_seconds());
}

static ith_comm *own_comm; /* the communicator of this process */

/* Takes three times the limit for the first frame, and gives signs of life meanwhile. */
static ith_status take_slowly(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    const board *b = user;
    (void)rgb, (void)height, (void)width;
    for (double end = ith_clock_seconds() + 3 * b->limit; index == 0 && ith_clock_seconds() < end;
         ith_comm_alive(own_comm))
        nap(0.1 * b->limit);
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
    ith_comm_set_timeout(comm, b->limit);
    if (rank == b->slow)
        atomic_store(&b->pid, getpid());
    b->statuses[rank] = ith_pipeline_generate(pipeline, comm, &run.options, NULL);
    if (rank == 0)
        atomic_store(&b->begun[STAGES], ith_clock_seconds());
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
        double stopped = ith_clock_seconds();
        if (atomic_load(&b->stage) == b->hangs_in) {
            while (atomic_load(&b->pid))
                nap(0.005);
            b->seconds = ith_clock_seconds() - stopped;
            kill(pid, SIGKILL);
            break;
        }
        nap(STOPPED_PART * b->limit);
        kill(pid, SIGCONT);
        nap(RUNNING_PART * b->limit);
    }
    _exit(0);
}

/* Runs the processes. The caller gives the result to munmap. */
static board *run(double limit, int slow, int hangs_in, const char *dump, int *statuses)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(b != MAP_FAILED);
    b->limit = limit, b->slow = slow, b->hangs_in = hangs_in, b->dump = dump;
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

/* Runs to the end. Returns whether all ranks have succeeded, and how long the last two stages took. */
static bool succeeds(double limit, int slow, double *denoise, double *decode)
{
    char *folder = temporary_folder();
    int statuses[RANKS];
    bool right = true;
    board *b = run(limit, slow, -1, temporary_path(folder, "dump"), statuses);
    for (int rank = 0; rank < RANKS; rank++)
        if (b->statuses[rank] || statuses[rank]) {
            print_message("rank %d, with a limit of %g s: %s\n", rank, limit, b->sentences[rank]);
            right = false;
        }
    *denoise = b->begun[ITH_STAGE_DECODE] - b->begun[ITH_STAGE_DENOISE];
    *decode = b->begun[STAGES] - b->begun[ITH_STAGE_DECODE];
    munmap(b, sizeof *b);
    temporary_remove(folder);
    return right;
}

/* The run must succeed although denoising and decoding each take longer than the limit. A success with shorter stages
 * does not count. */
static void a_slow_rank_is_waited_for(void **state)
{
    (void)state;
    double denoise, decode;
    for (int n = 0; n < 6; n++) {
        double limit = n % 2 ? 4 * FIRST_LIMIT : FIRST_LIMIT;
        bool right = succeeds(limit, 0, &denoise, &decode);
        if (right && denoise > limit && decode > limit)
            return;
        if (right && limit == FIRST_LIMIT) {
            print_message("this machine is too fast: it denoises in %.2f s and decodes in %.2f s\n", denoise, decode);
            skip();
        }
    }
    fail_msg("a slow rank is taken for dead");
}

static void a_slow_callback_is_waited_for(void **state)
{
    (void)state;
    double denoise, decode, limit = FIRST_LIMIT;
    while (!succeeds(limit, -1, &denoise, &decode) && limit <= LAST_LIMIT)
        limit *= 4;
    assert_true(limit <= LAST_LIMIT);
    assert_true(decode > 3 * limit);
}

/* Whether the other rank names, after the limit, the rank for which it has waited. */
static bool names_who_hangs(double limit, ith_stage stage)
{
    char *folder = temporary_folder();
    int statuses[RANKS];
    board *b = run(limit, 0, (int)stage, temporary_path(folder, "dump"), statuses);
    bool right = b->statuses[1] == ITH_ERR_TIMEOUT && strstr(b->sentences[1], "rank 1 waited ") &&
                 strstr(b->sentences[1], " s for rank 0 in ") && b->seconds <= 10 * limit;
    if (!right)
        print_message("stage %d: %s after %.2f s\n", (int)stage, b->sentences[1], b->seconds);
    munmap(b, sizeof *b);
    temporary_remove(folder);
    return right;
}

static void a_rank_that_hangs_ends_the_run(void **state)
{
    (void)state;
    static const ith_stage stages[] = {ITH_STAGE_DENOISE, ITH_STAGE_DECODE};
    for (int i = 0; i < 2; i++) {
        double limit = FIRST_LIMIT;
        while (!names_who_hangs(limit, stages[i]) && limit <= LAST_LIMIT)
            limit *= 4;
        assert_true(limit <= LAST_LIMIT);
    }
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
