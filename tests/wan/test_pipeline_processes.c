/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on ranks that are processes, over the sockets of examples/socket_transport.h: two and three processes
 * make the golden video with the bits of one. If a process is killed in the middle, the others return an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "socket_meeting.h"
#include "support/compare.h"
#include "support/engine/golden_run.h"
#include "support/socket_group.h"
#include "support/temporary.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "../models/shapes"
#define GOLDEN "golden/shapes/denoise_unipc_diffusers.safetensors"
#define WATCHDOG_SECONDS 300 /* the most seconds of each process */

enum { MOST_RANKS = 3, DIES = 1, ASKED_BEFORE = 3, EXIT_ENDED = 3 };

typedef struct job {
    int ranks;
    const char *dump;
    bool dies; /* rank DIES dies in the middle of the run */
} job;

/* A should_stop function, which is called before every step and within steps. */
static bool die(void *user)
{
    int *asked = user;
    if (++*asked > ASKED_BEFORE)
        kill(getpid(), SIGKILL);
    return false;
}

static ith_status generate(ith_context *context, ith_comm *comm, const job *j)
{
    golden_run run;
    ith_pipeline *pipeline = NULL;
    int asked = 0;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    golden_run_open(context, GOLDEN, &run);
    if (comm)
        attention.strategy = ITH_STRATEGY_ULYSSES;
    run.options.attention = &attention;
    run.options.dump_file = j->dump;
    run.options.threads = comm ? 1 : 2;
    if (j->dies && ith_comm_rank(comm) == DIES)
        run.options.should_stop = die, run.options.user = &asked;
    ith_status status = ith_pipeline_open(context, MODEL, &pipeline);
    if (!status)
        status = ith_pipeline_generate(pipeline, comm, &run.options, NULL);
    ith_pipeline_close(&pipeline);
    ith_tensor_file_close(&run.file);
    return status;
}

static int be_rank(int rank, const char *folder, void *user)
{
    const job *j = user;
    char words[32];
    ith_context *context = NULL;
    ith_comm *comm = NULL;
    alarm(WATCHDOG_SECONDS);
    if (ith_context_create(NULL, &context))
        return 1;
    if (j->ranks > 1 && !(comm = socket_group_join(context, folder, rank, j->ranks)))
        return 1;
    ith_status status = generate(context, comm, j);
    snprintf(words, sizeof words, "rank %d is gone", DIES);
    bool ended = status == ITH_ERR_ABORTED && strstr(ith_context_error(context), words);
    if (status && !(ended && j->dies))
        fprintf(stderr, "rank %d: %s: %s\n", rank, ith_status_name(status), ith_context_error(context));
    ith_comm_destroy(&comm);
    ith_context_destroy(&context);
    return ended ? EXIT_ENDED : status != ITH_OK;
}

static char *folder;
static ith_context *context;

static int set_up(void **state)
{
    (void)state;
    folder = temporary_folder();
    return ith_context_create(NULL, &context);
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(folder);
    ith_context_destroy(&context);
    return 0;
}

/* The dump of a run on `ranks` processes. */
static ith_tensor_file *run(int ranks)
{
    int statuses[MOST_RANKS];
    char name[32];
    snprintf(name, sizeof name, "%d.safetensors", ranks);
    job j = {.ranks = ranks, .dump = temporary_path(folder, name)};
    ith_tensor_file *dump = NULL;
    assert_int_equal(socket_run_processes(ranks, be_rank, &j, statuses), 0);
    assert_int_equal(ith_tensor_file_open(context, j.dump, &dump), ITH_OK);
    return dump;
}

static void expect_same_bits(const ith_tensor_file *one, const ith_tensor_file *several)
{
    assert_int_equal(ith_tensor_file_count(one), ith_tensor_file_count(several));
    for (int64_t i = 0; i < ith_tensor_file_count(one); i++) {
        const ith_tensor *a = ith_tensor_file_at(one, i), *b = ith_tensor_file_find(several, a->name);
        assert_non_null(b);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, (size_t)a->bytes);
    }
}

static void expect_golden(const ith_tensor_file *dump)
{
    ith_tensor_file *golden = NULL, *video = NULL;
    assert_int_equal(ith_tensor_file_open(context, GOLDEN, &golden), ITH_OK);
    assert_int_equal(ith_tensor_file_open(context, "golden/shapes/video.safetensors", &video), ITH_OK);
    const ith_tensor *ours = ith_tensor_file_find(dump, "latents"), *theirs = ith_tensor_file_find(golden, "latents");
    assert_int_equal(ours->bytes, theirs->bytes);
    assert_true(relative_l2(ours->data, theirs->data, ours->bytes / 4) <= 1e-3);
    const ith_tensor *frames = ith_tensor_file_find(dump, "frames"), *right = ith_tensor_file_find(video, "frames");
    assert_int_equal(frames->bytes, right->bytes);
    int64_t off = 0;
    for (int64_t i = 0; i < right->bytes; i++)
        off += abs(((const uint8_t *)frames->data)[i] - ((const uint8_t *)right->data)[i]) > 1;
    assert_true((double)off <= 1e-4 * (double)right->bytes);
    ith_tensor_file_close(&golden);
    ith_tensor_file_close(&video);
}

static void processes_make_the_golden_video_with_the_bits_of_one(void **state)
{
    (void)state;
    ith_tensor_file *one = run(1);
    expect_golden(one);
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        ith_tensor_file *several = run(ranks);
        expect_same_bits(one, several);
        ith_tensor_file_close(&several);
    }
    ith_tensor_file_close(&one);
}

static void a_killed_process_ends_the_others(void **state)
{
    (void)state;
    int statuses[MOST_RANKS];
    job j = {.ranks = MOST_RANKS, .dump = temporary_path(folder, "killed.safetensors"), .dies = true};
    assert_int_equal(socket_run_processes(MOST_RANKS, be_rank, &j, statuses), MOST_RANKS);
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        if (rank == DIES)
            assert_true(WIFSIGNALED(statuses[rank]) && WTERMSIG(statuses[rank]) == SIGKILL);
        else
            assert_true(WIFEXITED(statuses[rank]) && WEXITSTATUS(statuses[rank]) == EXIT_ENDED);
    }
    assert_int_not_equal(access(j.dump, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_make_the_golden_video_with_the_bits_of_one),
        cmocka_unit_test(a_killed_process_ends_the_others),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
