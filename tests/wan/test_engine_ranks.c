/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share a pipeline, have a pipeline each as in processes, or both, give the frames of one rank. Processes
 * without the model's files, and runs that ranks save and resume. */
#include "support/engine/altered_model.h"
#include "support/engine/rank_team.h"
#include "support/memory.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYER_BYTES (2.0 * (6 * 192 * 192 + 2 * 192 * 768)) /* matrices of a layer of the small model, bf16 */

static void *borrow_from_nowhere(void *user)
{
    member *m = user;
    m->status = ith_model_lend(m->comm, m->rank ? NULL : MODEL);
    return NULL;
}

/* A number of ranks and of pipelines, and the options that decide how the ranks share the work. */
typedef struct arrangement {
    int ranks, pipelines;
    ith_cfg cfg;
    bool shards;
    int hosts; /* 0: each pipeline is on a host of its own */
} arrangement;

/* Opens a team whose options differ from team_open's in these: the height of the picture, and the guidance of the
 * second expert. */
static team *arrange(const arrangement *a, int64_t height, double guidance)
{
    team *t = calloc(1, sizeof *t);
    t->hosts = a->hosts;
    team_open(t, a->ranks, a->pipelines);
    for (int r = 0; r < t->ranks; r++) {
        ith_generate_options *o = &t->members[r].options;
        o->cfg = a->cfg, o->shard_weights = a->shards, o->height = height, o->guidance[1] = guidance;
    }
    return t;
}

static void check_reports(const team *t)
{
    for (int r = 0; r < t->ranks; r++) {
        const ith_generate_report *report = &t->members[r].report;
        assert_int_equal(report->steps_done, 3);
        assert_int_equal(report->frames_done, r ? 0 : 5);
        assert_true((report->load_seconds > 0) == (r < t->pipelines)); /* the lowest rank of a pipeline loads */
        assert_true((report->predicted_bytes > 0) == (r < t->pipelines));
        const double held = (double)report->peak_bytes;
        double ratio = r < t->pipelines ? (double)report->predicted_bytes / held : 1;
        if (ratio < 0.95 || ratio > 1.05)
            fail_msg("rank %d of %d, %d pipelines: predicted %.1f MB, held %.1f MB", r, t->ranks, t->pipelines,
                     (double)report->predicted_bytes / 1e6, (double)report->peak_bytes / 1e6);
    }
}

/* Checks that `count` arrangements give the frames of `alone`. They run `times` times with the same pipelines. */
static void expect_frames(const team *alone, const arrangement *list, size_t count, int64_t height, double guidance,
                          int times)
{
    for (size_t i = 0; i < count; i++) {
        team *t = arrange(&list[i], height, guidance);
        for (int again = 0; again < times; again++) {
            memset(t->frames, 0, sizeof t->frames);
            team_run(t);
            team_expect_success(t);
            assert_memory_equal(t->frames, alone->frames, sizeof alone->frames);
        }
        check_reports(t);
        team_close(t);
        free(t);
    }
}

/* The same, with the frames of one rank. */
static void expect_frames_of_one_rank(const arrangement *list, size_t count, int64_t height, double guidance, int times)
{
    team *alone = arrange(&(arrangement){1, 1, ITH_CFG_AUTO, false, 0}, height, guidance);
    team_run(alone);
    team_expect_success(alone);
    assert_int_equal(alone->frame_count, 5);
    expect_frames(alone, list, count, height, guidance, times);
    team_close(alone);
    free(alone);
}

/* Any number of ranks and processes gives the bits of one rank, because ulysses does. */
static void any_share_of_ranks_and_pipelines_gives_the_same_frames(void **state)
{
    (void)state;
    static const arrangement list[] = {
        {2, 1, ITH_CFG_BATCH, false, 0},    {4, 1, ITH_CFG_PARALLEL, false, 0},  {2, 2, ITH_CFG_BATCH, false, 0},
        {4, 2, ITH_CFG_PARALLEL, false, 0}, {3, 3, ITH_CFG_BATCH, false, 0},     {2, 1, ITH_CFG_BATCH, true, 0},
        {2, 2, ITH_CFG_BATCH, true, 0},     {4, 2, ITH_CFG_PARALLEL, true, 0},   {3, 2, ITH_CFG_SEQUENTIAL, true, 0},
        {3, 3, ITH_CFG_BATCH, true, 0},     {4, 4, ITH_CFG_SEQUENTIAL, true, 0}, {4, 3, ITH_CFG_BATCH, true, 0},
        {2, 2, ITH_CFG_BATCH, true, 1},     {3, 3, ITH_CFG_BATCH, true, 2},      {4, 4, ITH_CFG_PARALLEL, true, 2},
        {4, 3, ITH_CFG_BATCH, true, 2}};
    expect_frames_of_one_rank(list, sizeof list / sizeof *list, 48, 3, 2);
}

/* An expert with a guidance of 1 computes one guidance branch, and so half as many layers. The picture has two rows of
 * latents, so one or two of the processes decode no rows. */
static void guidance_of_one_expert_and_a_low_picture_give_the_same_frames(void **state)
{
    (void)state;
    static const arrangement list[] = {{2, 2, ITH_CFG_PARALLEL, true, 0},
                                       {3, 3, ITH_CFG_SEQUENTIAL, true, 0},
                                       {3, 2, ITH_CFG_BATCH, true, 0},
                                       {4, 4, ITH_CFG_PARALLEL, true, 2},
                                       {4, 4, ITH_CFG_PARALLEL, false, 0}};
    expect_frames_of_one_rank(list, sizeof list / sizeof *list, 16, 1, 1);
}

/* Three processes on two hosts share weights. The first process of each host holds two layers, and a second process
 * none. */
static void a_host_holds_its_layers_once(void **state)
{
    (void)state;
    double held[2][3];
    for (int shards = 0; shards < 2; shards++) {
        team *t = arrange(&(arrangement){3, 3, ITH_CFG_SEQUENTIAL, shards, 2}, 16, 3);
        team_run(t);
        team_expect_success(t);
        for (int r = 0; r < 3; r++)
            held[shards][r] = (double)t->denoising[r];
        team_close(t);
        free(t);
    }
    for (int r = 0; r < 3; r++) {
        const double more = held[1][r] - held[0][r], layers = r == 1 ? 0 : 2;
        if (fabs(more - layers * LAYER_BYTES) > LAYER_BYTES / 10)
            fail_msg("process %d holds %.0f bytes more, and a layer has %.0f", r, more, LAYER_BYTES);
    }
}

/* Only some processes have the model's files. Rank 0's process sends the others the parts that they need. `last` has a
 * process without files on a host whose first process has files, and then all processes on one host. */
static void a_model_on_one_disk_gives_the_same_frames(void **state)
{
    (void)state;
    static const arrangement two[] = {{2, 2, ITH_CFG_BATCH, true, 2}, {4, 2, ITH_CFG_PARALLEL, true, 2}},
                             three[] = {{3, 3, ITH_CFG_SEQUENTIAL, true, 3}, {3, 3, ITH_CFG_BATCH, true, 2}},
                             last[] = {{3, 3, ITH_CFG_BATCH, true, 2}, {3, 3, ITH_CFG_BATCH, true, 1}};
    team *alone = arrange(&(arrangement){1, 1, ITH_CFG_AUTO, false, 0}, 48, 3);
    team_run(alone);
    lacking = 2;
    expect_frames(alone, two, 2, 48, 3, 2);
    lacking = 6;
    expect_frames(alone, three, 2, 48, 3, 1);
    lacking = 4;
    expect_frames(alone, last, 2, 48, 3, 1);
    lacking = 0;
    team_close(alone);
    free(alone);
}

/* If a rank gives no folder, all ranks get an error, and none waits. */
static void a_missing_folder_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    team *t = arrange(&(arrangement){2, 2, ITH_CFG_BATCH, true, 2}, 48, 3);
    for (int i = 0; i < t->ranks; i++) {
        ith_comm_set_timeout(t->members[i].comm, 5);
        assert_int_equal(pthread_create(&t->members[i].thread, NULL, borrow_from_nowhere, &t->members[i]), 0);
    }
    for (int i = 0; i < t->ranks; i++)
        pthread_join(t->members[i].thread, NULL);
    for (int i = 0; i < t->ranks; i++) {
        assert_int_equal(t->members[i].status, ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(t->members[i].context), "folder"));
    }
    team_close(t);
    free(t);
}

/* A process without files cannot read all weights. */
static void a_lent_model_needs_shared_weights(void **state)
{
    (void)state;
    lacking = 2;
    team *t = arrange(&(arrangement){2, 2, ITH_CFG_BATCH, false, 0}, 48, 3);
    team_run(t);
    team_expect_failure(t, ITH_ERR_ARGUMENT, "set shard_weights");
    team_close(t);
    lacking = 0;
    free(t);
}

/* Rank 0 reads the saved run, and sends it to the other processes. If the file is damaged, they do not wait for it. */
static void a_damaged_saved_run_is_refused_on_all_ranks(void **state)
{
    (void)state;
    size_t bytes = 0;
    char path[320];
    snprintf(path, sizeof path, "%s", temporary_path(folder, "run.safetensors"));
    for (int damaged = 0; damaged < 2; damaged++) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 3, 2);
        for (int r = 0; r < 3; r++)
            t->members[r].options.checkpoint_file = path;
        team_run(t);
        team_expect_success(t);
        char *whole = temporary_read(path, &bytes);
        whole[bytes - 3] ^= (char)damaged;
        temporary_write(path, whole, bytes);
        free(whole);
        for (int r = 0; r < 3; r++)
            t->members[r].options.checkpoint_file = NULL, t->members[r].options.resume_file = path;
        team_run(t);
        if (damaged)
            team_expect_failure(t, ITH_ERR_FORMAT, "their hash differs");
        else
            team_expect_success(t);
        team_close(t);
        free(t);
    }
}

static char saved_run[320], second_step[320]; /* the file of a saved run, and a copy of it after two steps */

static void copy_second_step(void *user, ith_stage stage, int64_t done, int64_t total)
{
    size_t bytes = 0;
    (void)user, (void)total;
    if (stage != ITH_STAGE_DENOISE || done != 2 * ITH_PROGRESS_UNIT)
        return;
    char *whole = temporary_read(saved_run, &bytes);
    temporary_write(second_step, whole, bytes);
    free(whole);
}

/* Ranks resume one file. If they only decode latents, their other options may differ. */
static void ranks_go_on_from_the_same_files(void **state)
{
    (void)state;
    char latents[320];
    team *t = calloc(1, sizeof *t);
    snprintf(saved_run, sizeof saved_run, "%s", temporary_path(folder, "whole.safetensors"));
    snprintf(second_step, sizeof second_step, "%s", temporary_path(folder, "second.safetensors"));
    snprintf(latents, sizeof latents, "%s", temporary_path(folder, "latents.safetensors"));
    team_open(t, 3, 2);
    for (int r = 0; r < 3; r++)
        t->members[r].options.checkpoint_file = saved_run, t->members[r].options.latents_file = latents;
    t->members[0].options.on_progress = copy_second_step;
    team_run(t);
    team_expect_success(t);
    t->members[0].options.on_progress = NULL;
    for (int r = 0; r < 3; r++) {
        ith_generate_options *o = &t->members[r].options;
        o->checkpoint_file = o->latents_file = NULL, o->resume_file = r == 2 ? second_step : saved_run;
    }
    team_run(t);
    team_expect_failure(t, ITH_ERR_ARGUMENT, "the saved run has done 2 steps on rank 2 and 3 on rank 0");
    for (int r = 0; r < 3; r++)
        t->members[r].options.resume_file = NULL, t->members[r].options.from_latents = latents;
    t->members[1].options.seed = 99, t->members[1].options.prompt = "another", t->members[2].options.steps = 7;
    team_run(t);
    team_expect_success(t);
    team_close(t);
    free(t);
}

static ith_status call_again(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)index, (void)rgb, (void)height, (void)width;
    member *m = user;
    ith_generate_options options = m->options;
    options.on_frame = NULL, options.should_stop = NULL, options.on_progress = NULL;
    m->team->frame_count++;
    return ith_pipeline_generate(m->pipeline, NULL, &options, NULL) == ITH_ERR_ARGUMENT &&
                   strstr(ith_context_error(m->team->roots[0]), "in another call")
               ? ITH_OK
               : ITH_ERR_INTERNAL;
}

static void runs_of_a_pipeline_follow_one_another(void **state)
{
    (void)state;
    team *t = calloc(1, sizeof *t);
    team_open(t, 2, 1);
    for (int r = 0; r < 2; r++)
        t->members[r].options.on_frame = call_again;
    team_run(t);
    team_expect_success(t);
    assert_int_equal(t->frame_count, 5);
    team_close(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_share_of_ranks_and_pipelines_gives_the_same_frames),
        cmocka_unit_test(guidance_of_one_expert_and_a_low_picture_give_the_same_frames),
        cmocka_unit_test(a_host_holds_its_layers_once),
        cmocka_unit_test(a_model_on_one_disk_gives_the_same_frames),
        cmocka_unit_test(a_missing_folder_is_an_error_on_all_ranks),
        cmocka_unit_test(a_lent_model_needs_shared_weights),
        cmocka_unit_test(a_damaged_saved_run_is_refused_on_all_ranks),
        cmocka_unit_test(ranks_go_on_from_the_same_files),
        cmocka_unit_test(runs_of_a_pipeline_follow_one_another),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_tear_down);
}
