/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that the caller makes: as threads that share a pipeline, with a pipeline for each as in processes, and mixed.
 * They agree before they act. A failure anywhere ends the run on all ranks with one status and one sentence. */
#include "base/clock.h"
#include "base/context.h"
#include "support/engine/altered_model.h"
#include "support/memory.h"
#include "support/placed_group.h"
#include "support/temporary.h"
#include "wan/run/agreement.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MOST_RANKS 4
#define FRAME_BYTES (5 * 48 * 80 * 3)
#define LAYER_BYTES (2.0 * (6 * 192 * 192 + 2 * 192 * 768)) /* matrices of a layer of the small model, bf16 */

typedef struct team team;

typedef struct member {
    team *team;
    int rank;
    ith_context *context;
    ith_comm *comm;
    ith_pipeline *pipeline;
    ith_generate_options options;
    ith_attn_options attention;
    ith_generate_report report;
    ith_status status;
    char sentence[1024];
    double ended_at;
    pthread_t thread;
    bool absent;          /* leaves the group instead of calling */
    atomic_int asked;     /* number of calls of its should_stop */
    int stop_at;          /* the call that says to stop; 0: none */
    bool cancels, aborts; /* instead, this call cancels its pipeline, or aborts the group */
} member;

struct team {
    int ranks, pipelines;
    int hosts;                      /* number of hosts; 0: each pipeline is on its own host */
    ith_context *roots[MOST_RANKS]; /* one for each pipeline, no clones of one another */
    ith_pipeline *opened[MOST_RANKS];
    member members[MOST_RANKS];
    uint8_t frames[FRAME_BYTES];
    int64_t frame_count;
    atomic_bool stopped;
    double stopped_at;
    int moment; /* a stage: no rank says to stop before rank 0 has shown progress of it; -1: from the beginning */
    int64_t denoising[MOST_RANKS];  /* the most memory of each pipeline that rank 0 saw while it denoised */
    atomic_bool there;              /* rank 0 has shown progress of this stage */
    const char *models[MOST_RANKS]; /* the folder of each pipeline; NULL: the demo's model */
    failing_allocator allocators[MOST_RANKS];
};

/* ---- Callbacks ------------------------------------------------------------------------------------------------- */

static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    member *m = user;
    int64_t bytes = height * width * 3;
    if (m->rank || (index + 1) * bytes > FRAME_BYTES)
        return ITH_ERR_INTERNAL;
    memcpy(m->team->frames + index * bytes, rgb, (size_t)bytes);
    m->team->frame_count = index + 1;
    return ITH_OK;
}

static void show_nothing(void *user, ith_stage stage, int64_t done, int64_t total)
{
    member *m = user;
    (void)total;
    if (m->rank)
        abort(); /* only rank 0 may show progress */
    for (int i = 0; stage == ITH_STAGE_DENOISE && i < m->team->pipelines; i++) {
        const int64_t held = memory_of(m->team->roots[i]).current_bytes;
        if (held > m->team->denoising[i])
            m->team->denoising[i] = held;
    }
    if ((int)stage == m->team->moment && done > 0)
        atomic_store(&m->team->there, true);
}

static bool should_stop(void *user)
{
    member *m = user;
    if (m->team->moment >= 0 && !atomic_load(&m->team->there))
        return false;
    if (atomic_fetch_add(&m->asked, 1) + 1 < m->stop_at || !m->stop_at)
        return false;
    if (!atomic_exchange(&m->team->stopped, true))
        m->team->stopped_at = ith_clock_seconds();
    if (m->cancels)
        ith_pipeline_cancel(m->pipeline);
    else if (m->aborts)
        ith_comm_abort(m->comm, ITH_ERR_NUMERIC);
    return !m->cancels && !m->aborts;
}

/* ---- Teams ----------------------------------------------------------------------------------------------------- */

/* A bit for each pipeline whose process does not have the model, in teams that are opened from now on. */
static unsigned lacking;

static const char *folder_of(const team *t, int pipeline)
{
    return lacking >> pipeline & 1 ? "no/such/folder" : t->models[pipeline] ? t->models[pipeline] : MODEL;
}

static void *borrow(void *user)
{
    member *m = user;
    m->status = ith_model_lend(m->comm, folder_of(m->team, m->rank % m->team->pipelines));
    return NULL;
}

static void *borrow_from_nowhere(void *user)
{
    member *m = user;
    m->status = ith_model_lend(m->comm, m->rank ? NULL : MODEL);
    return NULL;
}

/* Opens the pipelines, after rank 0 has sent its model to the processes that lack it. */
static void open_pipelines(team *t)
{
    for (int i = 0; i < t->ranks && lacking; i++)
        assert_int_equal(pthread_create(&t->members[i].thread, NULL, borrow, &t->members[i]), 0);
    for (int i = 0; i < t->ranks && lacking; i++) {
        pthread_join(t->members[i].thread, NULL);
        if (t->members[i].status)
            fail_msg("rank %d: %s", i, ith_context_error(t->members[i].context));
    }
    for (int i = 0; i < t->pipelines; i++)
        if (ith_pipeline_open(t->roots[i], folder_of(t, i), &t->opened[i]))
            fail_msg("%s", ith_context_error(t->roots[i]));
    for (int i = 0; i < t->ranks; i++)
        t->members[i].pipeline = t->opened[i % t->pipelines];
}

/* Rank i takes pipeline i % pipelines, so that neighbours do not share one unless all do. Each pipeline is placed in a
 * process of its own. */
static void team_open(team *t, int ranks, int pipelines)
{
    ith_context *contexts[MOST_RANKS];
    ith_comm *comms[MOST_RANKS];
    t->ranks = ranks, t->pipelines = pipelines, t->moment = -1;
    for (int i = 0; i < pipelines; i++)
        t->roots[i] = failing_context(&t->allocators[i], -1);
    for (int i = 0; i < ranks; i++) {
        contexts[i] = NULL;
        assert_int_equal(ith_context_clone(t->roots[i % pipelines], &contexts[i]), ITH_OK);
        placed_process[i] = i % pipelines;
        placed_host[i] = placed_process[i] * (t->hosts ? t->hosts : pipelines) / pipelines;
    }
    assert_int_equal(placed_group_create(contexts, ranks, comms), ITH_OK);
    for (int i = 0; i < ranks; i++) {
        member *m = &t->members[i];
        *m = (member){.team = t,
                      .rank = i,
                      .context = contexts[i],
                      .comm = comms[i],
                      .options = ITH_GENERATE_OPTIONS_INIT,
                      .attention = ITH_ATTN_OPTIONS_INIT};
        ith_generate_options *o = &m->options;
        o->prompt = "A green square moves upwards on a black background.", o->negative = "a red square";
        o->frames = 5, o->height = 48, o->width = 80, o->steps = 3;
        o->shift = 3, o->guidance[0] = 4, o->guidance[1] = 3, o->seed = 3;
        o->precision = ITH_PRECISION_F32, o->attention = &m->attention, o->threads = 2;
        m->attention.strategy = ranks > 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_AUTO;
        o->on_frame = take_frame, o->on_progress = show_nothing, o->should_stop = should_stop, o->user = m;
    }
    open_pipelines(t);
}

static void team_close(team *t)
{
    for (int i = 0; i < t->ranks; i++) {
        ith_comm_destroy(&t->members[i].comm);
        ith_context_destroy(&t->members[i].context);
    }
    for (int i = 0; i < t->pipelines; i++) {
        ith_pipeline_close(&t->opened[i]);
        ith_context_destroy(&t->roots[i]);
        assert_int_equal(atomic_load(&t->allocators[i].held), 0);
    }
}

static void *member_main(void *user)
{
    member *m = user;
    omp_set_num_threads(1);
    m->report = (ith_generate_report)ITH_GENERATE_REPORT_INIT;
    if (m->absent)
        ith_comm_destroy(&m->comm);
    else
        m->status = ith_pipeline_generate(m->pipeline, m->comm, &m->options, &m->report);
    m->ended_at = ith_clock_seconds();
    snprintf(m->sentence, sizeof m->sentence, "%s", m->status ? ith_context_error(m->context) : "");
    return NULL;
}

/* All ranks at once, each in a thread of its own. */
static void team_run(team *t)
{
    for (int i = 0; i < t->ranks; i++)
        assert_int_equal(pthread_create(&t->members[i].thread, NULL, member_main, &t->members[i]), 0);
    for (int i = 0; i < t->ranks; i++)
        pthread_join(t->members[i].thread, NULL);
}

/* Checks that all ranks that took part have this status and the same sentence, and that the words are in it. */
static void expect_failure(const team *t, ith_status status, const char *words)
{
    for (int i = 0; i < t->ranks; i++) {
        const member *m = &t->members[i];
        if (m->absent)
            continue;
        if (m->status != status || !strstr(m->sentence, words))
            fail_msg("rank %d: %s: \"%s\" instead of \"%s\"", i, ith_status_name(m->status), m->sentence, words);
        assert_string_equal(m->sentence, t->members[t->members[0].absent].sentence);
    }
}

static void expect_success(const team *t)
{
    for (int i = 0; i < t->ranks; i++)
        if (t->members[i].status)
            fail_msg("rank %d: %s", i, t->members[i].sentence);
}

/* ---- Tests ----------------------------------------------------------------------------------------------------- */

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
            expect_success(t);
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
    expect_success(alone);
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
        expect_success(t);
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
    expect_failure(t, ITH_ERR_ARGUMENT, "set shard_weights");
    team_close(t);
    lacking = 0;
    free(t);
}

/* Changes one of rank 1's options. */
static void change(member *m, int which)
{
    ith_generate_options *o = &m->options;
    switch (which) {
    case 0: o->prompt = "another"; break;
    case 1: o->negative = "another"; break;
    case 2: o->frames = 9; break;
    case 3: o->seed = 4; break;
    case 4: o->steps = 4; break;
    case 5: o->guidance[1] = 1; break;
    case 6: o->solver = ITH_SOLVER_EULER; break;
    case 7: o->cfg = ITH_CFG_SEQUENTIAL; break;
    case 8: o->precision = ITH_PRECISION_BF16; break;
    case 9: m->attention.strategy = ITH_STRATEGY_RING; break;
    case 10: m->attention.chunks = 3; break;
    case 11: m->attention.kernel = "f32_ref"; break;
    case 12: m->attention.block_kv = 512; break;
    case 13: o->threads = 3; break;
    case 14: o->prompt = NULL; break;
    case 15: o->from_latents = "/nowhere"; break;
    case 16: o->noise_file = "golden/shapes/denoise_unipc_diffusers.safetensors"; break;
    case 17: m->pipeline = NULL; break;
    case 18: o->struct_size = 3; break;
    case 19: o->shard_weights = 1; break;
    case 20: o->shard_weights = o->keep_packed = 1; break;
    case 21: m->attention.direction = ITH_DIRECTION_BIDIR; break;
    case 22: m->attention.exchange = ITH_EXCHANGE_COPY; break;
    case 23: m->attention.effort = ITH_EFFORT_MEASURE; break;
    default: break;
    }
}

static const char *const differences[] = {
    "prompt on rank 1",
    "negative on rank 1",
    "frames is 9 on rank 1 and 5 on rank 0",
    "seed is 4 on rank 1 and 3 on rank 0",
    "steps is 4 on rank 1 and 3 on rank 0",
    "guidance of the low-noise expert is 1 on rank 1 and 3 on rank 0",
    "solver is euler on rank 1 and unipc on rank 0",
    "cfg is sequential on rank 1 and batch on rank 0",
    "precision is bf16 on rank 1 and f32 on rank 0",
    "strategy is ring on rank 1 and ulysses on rank 0",
    "chunks is 3 on rank 1 and 0 on rank 0",
    "kernel on rank 1",
    "block_kv is 512 on rank 1 and 0 on rank 0",
    "threads is 3 on rank 1 and 2 on rank 0",
    "rank 1: a prompt is needed",
    "from_latents is given on rank 1 and not given on rank 0",
    "rank 1: golden/shapes", /* a noise file of another size, which the rank that makes the noise reads */
    "rank 1: pipeline is NULL",
    "rank 1: struct_size of the ith_generate_options is 3",
    "shard_weights is 1 on rank 1 and 0 on rank 0",
    "rank 1: keep_packed keeps all weights in each process",
    "direction is bidir on rank 1 and auto on rank 0",
    "exchange is copy on rank 1 and auto on rank 0",
    "effort is measure on rank 1 and estimate on rank 0",
};
enum { DIFFERENCES = sizeof differences / sizeof *differences, ENDS_THE_GROUP = 16, NEEDS_ONE_PIPELINE = 13 };

static void ranks_that_differ_are_refused_by_name(void **state)
{
    (void)state;
    for (int pipelines = 1; pipelines <= 2; pipelines++) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 2, pipelines);
        for (int i = 0; i < DIFFERENCES; i++) {
            member before = t->members[1];
            if ((i == ENDS_THE_GROUP && pipelines == 1) || (i == NEEDS_ONE_PIPELINE && pipelines == 2) ||
                i == ENDS_THE_GROUP)
                continue;
            change(&t->members[1], i);
            t->members[1].options.attention = &t->members[1].attention;
            team_run(t);
            expect_failure(t, ITH_ERR_ARGUMENT, differences[i]);
            t->members[1].options = before.options, t->members[1].attention = before.attention;
            t->members[1].pipeline = before.pipeline;
        }
        for (int r = 0; r < 2; r++)
            t->members[r].options.prompt = NULL;
        team_run(t);
        expect_failure(t, ITH_ERR_ARGUMENT, "a prompt is needed");
        assert_null(strstr(t->members[0].sentence, "rank"));
        for (int r = 0; r < 2; r++)
            t->members[r].options.prompt = "a";
        team_run(t); /* the group can still be used */
        expect_success(t);
        if (pipelines == 2) {
            change(&t->members[1], ENDS_THE_GROUP);
            team_run(t);
            expect_failure(t, ITH_ERR_ARGUMENT, differences[ENDS_THE_GROUP]);
        }
        team_close(t);
        free(t);
    }
}

static void expect_other_model(team *t, const char *words)
{
    t->models[1] = folder;
    team_open(t, 2, 2);
    team_run(t);
    expect_failure(t, ITH_ERR_ARGUMENT, words);
    team_close(t);
    *t = (team){.ranks = 0};
}

/* Rank 1 opens a model of the same shapes with another configuration, or with other numbers in its weights. */
static void another_model_is_refused(void **state)
{
    (void)state;
    team *t = calloc(1, sizeof *t);
    edit_part("vae/config.json", "{", "{\"_name_or_path\": \"x\",");
    expect_other_model(t, "the model of rank 1 and of rank 0 differ");
    link_part("vae/config.json");
    edit_part("scheduler/scheduler_config.json", "\"solver_order\": 2", "\"solver_order\": 3");
    expect_other_model(t, "the model of rank 1 and of rank 0 differ");
    link_part("scheduler/scheduler_config.json");
    size_t bytes;
    char *data = temporary_read(temporary_path(folder, "transformer_2/" SHARD_2), &bytes);
    for (size_t i = bytes / 2; i < bytes; i++)
        data[i] ^= 1;
    replace_part("transformer_2/" SHARD_2, data, bytes);
    free(data);
    expect_other_model(t, "the model of rank 1 and of rank 0 differ");
    link_part("transformer_2/" SHARD_2);
    static const char tokenizer[] = "{\"model\": {\"byte_fallback\": false}}"; /* it is read besides spiece.model */
    replace_part("tokenizer/tokenizer.json", tokenizer, sizeof tokenizer - 1);
    expect_other_model(t, "the model of rank 1 and of rank 0 differ");
    unlink(temporary_path(folder, "tokenizer/tokenizer.json"));
    free(t);
}

static void the_context_is_of_the_pipelines_family(void **state)
{
    (void)state;
    team *t = calloc(1, sizeof *t);
    team_open(t, 2, 2);
    t->members[1].pipeline = t->opened[0];
    team_run(t);
    expect_failure(t, ITH_ERR_ARGUMENT, "rank 1: the communicator's context is not of the pipeline's family");
    t->members[1].pipeline = t->opened[1];
    team_close(t);
    free(t);
}

/* The most seconds until a run ends: longer on a machine with more work than processors. */
static double most_seconds(void)
{
    double load = 0;
    if (getloadavg(&load, 1) != 1)
        load = 0;
    return 10 * fmax(1, load / (double)sysconf(_SC_NPROCESSORS_ONLN));
}

static void expect_prompt_end(const team *t)
{
    for (int i = 0; i < t->ranks; i++)
        if (!t->members[i].absent && t->members[i].ended_at - t->stopped_at > most_seconds())
            fail_msg("rank %d ended %.1f s later", i, t->members[i].ended_at - t->stopped_at);
}

/* Rank `rank` of three ends the run at a moment: by its callback, by a cancelled pipeline, or by the end of the group.
 */
static void end_run(int pipelines, int hosts, bool shards, int rank, int way, int moment)
{
    const char *const words = moment == ITH_STAGE_DECODE ? "decoding frame" : "stopped";
    team *t = calloc(1, sizeof *t);
    t->hosts = hosts;
    team_open(t, 3, pipelines);
    t->moment = moment;
    for (int r = 0; r < 3; r++)
        t->members[r].options.shard_weights = shards;
    member *m = &t->members[rank];
    m->stop_at = moment < 0 ? 1 + way : 1, m->cancels = way == 1, m->aborts = way == 2;
    team_run(t);
    assert_true(t->stopped);
    if (m->aborts)
        expect_failure(t, ITH_ERR_NUMERIC, "ended the group");
    else
        expect_failure(t, ITH_ERR_INTERRUPTED, words);
    expect_prompt_end(t);
    team_close(t);
    free(t);
}

static void any_rank_may_end_the_run(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) /* one pipeline; two; two that shard the weights */
        for (int rank = 0; rank < 3; rank++)
            for (int way = 0; way < 3; way++)
                end_run(kind ? 2 : 1, 0, kind == 2, rank, way, -1);
}

/* A rank ends the run while layers are loaded from other processes, or while each process decodes its rows. A short
 * decoding may end before a rank that is no leader calls should_stop, so there every rank is a leader. */
static void any_rank_may_end_a_stage_of_several_processes(void **state)
{
    (void)state;
    static const ith_stage stages[] = {ITH_STAGE_DENOISE, ITH_STAGE_DECODE};
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 3; rank++)
            for (int way = 0; way < 3; way++)
                end_run(stages[i] == ITH_STAGE_DECODE ? 3 : 2 + (rank + way) % 2, 2, true, rank, way, (int)stages[i]);
}

static void a_rank_that_leaves_ends_the_run(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 3, 2);
        t->members[rank].absent = true;
        team_run(t);
        expect_failure(t, ITH_ERR_ABORTED, "left");
        team_close(t);
        free(t);
    }
}

/* Refuses allocations of the second of two pipelines, which one of three ranks uses. */
static void refuse_allocations(unsigned without_model, long step)
{
    long calls = 0;
    lacking = without_model;
    for (long refuse = 0; refuse <= calls; refuse += step) {
        team *t = calloc(1, sizeof *t);
        team_open(t, 3, 2);
        for (int r = 0; r < 3; r++) {
            ith_generate_options *o = &t->members[r].options;
            o->frames = 1, o->steps = 2, o->shard_weights = 1;
        }
        atomic_store(&t->allocators[1].calls, 0);
        t->allocators[1].refuse = refuse ? refuse : -1;
        team_run(t);
        if (!refuse) {
            expect_success(t);
            calls = atomic_load(&t->allocators[1].calls);
        } else if (t->members[0].status) { /* the run may go on without some of them */
            expect_failure(t, ITH_ERR_MEMORY, "memory");
        }
        team_close(t);
        free(t);
    }
    lacking = 0;
    printf("%ld allocations\n", calls);
    assert_true(calls > 100);
}

static void no_allocation_may_fail_unseen(void **state)
{
    (void)state;
    refuse_allocations(0, 23);
}

/* The process of rank 1 has no model: rank 0 sends it the prompts. */
static void no_allocation_of_a_borrower_may_fail_unseen(void **state)
{
    (void)state;
    refuse_allocations(2, 7);
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
        expect_success(t);
        char *whole = temporary_read(path, &bytes);
        whole[bytes - 3] ^= (char)damaged;
        temporary_write(path, whole, bytes);
        free(whole);
        for (int r = 0; r < 3; r++)
            t->members[r].options.checkpoint_file = NULL, t->members[r].options.resume_file = path;
        team_run(t);
        if (damaged)
            expect_failure(t, ITH_ERR_FORMAT, "their hash differs");
        else
            expect_success(t);
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
    expect_success(t);
    t->members[0].options.on_progress = NULL;
    for (int r = 0; r < 3; r++) {
        ith_generate_options *o = &t->members[r].options;
        o->checkpoint_file = o->latents_file = NULL, o->resume_file = r == 2 ? second_step : saved_run;
    }
    team_run(t);
    expect_failure(t, ITH_ERR_ARGUMENT, "the saved run has done 2 steps on rank 2 and 3 on rank 0");
    for (int r = 0; r < 3; r++)
        t->members[r].options.resume_file = NULL, t->members[r].options.from_latents = latents;
    t->members[1].options.seed = 99, t->members[1].options.prompt = "another", t->members[2].options.steps = 7;
    team_run(t);
    expect_success(t);
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
    expect_success(t);
    assert_int_equal(t->frame_count, 5);
    team_close(t);
    free(t);
}

/* ---- Agreement ------------------------------------------------------------------------------------------------- */

/* A rank that agrees on a run, and its results. */
typedef struct agreement {
    member *m;
    ith_rank rank;
    int64_t sum;
    ith_status agreed, alike, other_follower, other_leader;
    char follower[256], leader[256]; /* the sentences of the last two */
} agreement;

static void *agree_main(void *user)
{
    agreement *a = user;
    const member *m = a->m;
    const int number = m->rank;
    const int64_t mine[] = {1, 10, 100, 1000};
    uint64_t run = 0;
    a->rank = (ith_rank){.pipeline = m->pipeline, .context = m->context, .comm = m->comm, .options = m->options};
    a->rank.rank = number, a->rank.ranks = m->team->ranks;
    a->agreed = ith_agree_on_run(&a->rank, ITH_OK, &run);
    if (a->agreed)
        return NULL;
    a->agreed = ith_sum_of_host(&a->rank, mine[number], &a->sum);
    a->alike = ith_rank_compare(&a->rank, "a number", number == 3, true);
    a->other_follower = ith_rank_compare(&a->rank, "a number", number == 3, false);
    snprintf(a->follower, sizeof a->follower, "%s", ith_context_error(m->context));
    a->other_leader = ith_rank_compare(&a->rank, "a number", number == 1, true);
    snprintf(a->leader, sizeof a->leader, "%s", ith_context_error(m->context));
    return NULL;
}

/* Ranks 0 and 3 share a process. It is on a host with the process of rank 1; rank 2 is alone on its host. */
static void ranks_know_processes_and_hosts(void **state)
{
    (void)state;
    static const struct {
        int process, host, position, count, host_processes, host_ranks;
        bool first_on_host;
        int64_t sum; /* of the leaders' numbers */
    } expected[] = {{0, 0, 0, 2, 2, 3, true, 11},
                    {1, 0, 0, 1, 2, 3, false, 11},
                    {2, 1, 0, 1, 1, 1, true, 100},
                    {0, 0, 1, 2, 2, 3, true, 11}};
    agreement all[4] = {{.m = NULL}};
    team *t = calloc(1, sizeof *t);
    t->hosts = 2;
    team_open(t, 4, 3);
    for (int r = 0; r < 4; r++) {
        all[r].m = &t->members[r];
        assert_int_equal(pthread_create(&t->members[r].thread, NULL, agree_main, &all[r]), 0);
    }
    for (int r = 0; r < 4; r++)
        pthread_join(t->members[r].thread, NULL);
    for (int r = 0; r < 4; r++) {
        const ith_team *of = &all[r].rank.team;
        if (all[r].agreed)
            fail_msg("rank %d: %s", r, ith_context_error(t->members[r].context));
        assert_int_equal(of->processes, 3);
        assert_int_equal(of->hosts, 2);
        assert_int_equal(of->process, expected[r].process);
        assert_int_equal(of->host, expected[r].host);
        assert_int_equal(all[r].rank.position, expected[r].position);
        assert_int_equal(of->count, expected[r].count);
        assert_int_equal(ith_team_member(of, 0), r % 3);
        assert_int_equal(ith_team_member(of, of->count - 1), r % 3 ? r : 3);
        assert_int_equal(of->host_processes, expected[r].host_processes);
        assert_int_equal(of->host_ranks, expected[r].host_ranks);
        assert_int_equal(of->first_on_host, expected[r].first_on_host);
        assert_int_equal(all[r].sum, expected[r].sum);
        assert_int_equal(all[r].alike, ITH_OK); /* rank 3 is no leader */
        assert_int_equal(all[r].other_follower, ITH_ERR_ARGUMENT);
        assert_non_null(strstr(all[r].follower, "a number of rank 3 and of rank 0 differ"));
        assert_int_equal(all[r].other_leader, ITH_ERR_ARGUMENT);
        assert_non_null(strstr(all[r].leader, "a number of rank 1 and of rank 0 differ"));
        ith_free(t->members[r].context, all[r].rank.records);
    }
    team_close(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_know_processes_and_hosts),
        cmocka_unit_test(any_share_of_ranks_and_pipelines_gives_the_same_frames),
        cmocka_unit_test(guidance_of_one_expert_and_a_low_picture_give_the_same_frames),
        cmocka_unit_test(a_host_holds_its_layers_once),
        cmocka_unit_test(a_model_on_one_disk_gives_the_same_frames),
        cmocka_unit_test(a_missing_folder_is_an_error_on_all_ranks),
        cmocka_unit_test(a_lent_model_needs_shared_weights),
        cmocka_unit_test(ranks_that_differ_are_refused_by_name),
        cmocka_unit_test(another_model_is_refused),
        cmocka_unit_test(the_context_is_of_the_pipelines_family),
        cmocka_unit_test(any_rank_may_end_the_run),
        cmocka_unit_test(any_rank_may_end_a_stage_of_several_processes),
        cmocka_unit_test(a_rank_that_leaves_ends_the_run),
        cmocka_unit_test(no_allocation_may_fail_unseen),
        cmocka_unit_test(no_allocation_of_a_borrower_may_fail_unseen),
        cmocka_unit_test(a_damaged_saved_run_is_refused_on_all_ranks),
        cmocka_unit_test(ranks_go_on_from_the_same_files),
        cmocka_unit_test(runs_of_a_pipeline_follow_one_another),
    };
    return cmocka_run_group_tests(tests, altered_model_set_up, folder_tear_down);
}
