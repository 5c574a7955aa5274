/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/rank_team.h"

#include "base/clock.h"
#include "support/engine/altered_model.h"
#include "support/placed_group.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned lacking;

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

static void note_progress(void *user, ith_stage stage, int64_t done, int64_t total)
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

void team_open(team *t, int ranks, int pipelines)
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
        o->on_frame = take_frame, o->on_progress = note_progress, o->should_stop = should_stop, o->user = m;
    }
    open_pipelines(t);
}

void team_close(team *t)
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

void team_run(team *t)
{
    for (int i = 0; i < t->ranks; i++)
        assert_int_equal(pthread_create(&t->members[i].thread, NULL, member_main, &t->members[i]), 0);
    for (int i = 0; i < t->ranks; i++)
        pthread_join(t->members[i].thread, NULL);
}

void team_expect_failure(const team *t, ith_status status, const char *words)
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

void team_expect_success(const team *t)
{
    for (int i = 0; i < t->ranks; i++)
        if (t->members[i].status)
            fail_msg("rank %d: %s", i, t->members[i].sentence);
}
