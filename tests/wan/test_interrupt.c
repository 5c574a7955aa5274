/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are stopped from outside at any moment end within a second. The progress that a caller is shown. */
#include "base/clock.h"
#include "base/context.h"
#include "support/engine/engine_ranks.h"
#include "support/engine/pipeline_fixture.h"
#include "support/in_range.h"
#include "support/memory.h"
#include "support/random.h"
#include "support/sanitizers.h"
#include "support/times.h"
#include "wan/run/pipeline.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_SECONDS (SANITIZED ? 10.0 : 1.0)

/* The time limit grows with the load of the machine if there is more work than processors. The system gives the load of
 * the last minute, and the load may be higher now, so the best of ATTEMPTS counts. */
#define ATTEMPTS 6
static double most_seconds(void)
{
    double load = 0;
    if (getloadavg(&load, 1) != 1)
        load = 0;
    return MOST_SECONDS * fmax(1, 2 * load / (double)sysconf(_SC_NPROCESSORS_ONLN));
}

/* Cancels a run some time after it has come to a part of a stage. */
typedef struct canceller {
    ith_stage stage;
    double part, delay; /* a share of the stage; then seconds */
    atomic_bool reached, over;
    double cancelled_at;
} canceller;

static void look_whether_reached(void *user, ith_stage stage, int64_t done, int64_t total)
{
    canceller *c = user;
    if (stage == c->stage && (double)done >= c->part * (double)total)
        c->reached = true;
}

static void *cancel_later(void *user)
{
    canceller *c = user;
    while (!c->reached && !c->over)
        nap(0.001);
    nap(c->delay);
    c->cancelled_at = ith_clock_seconds();
    ith_pipeline_cancel(pipeline);
    return NULL;
}

/* Seconds that a run took to end after it was cancelled. */
static double cancel_run(int ranks, ith_generate_options *options, canceller *c)
{
    pthread_t thread;
    options->on_progress = look_whether_reached, options->user = c;
    assert_int_equal(pthread_create(&thread, NULL, cancel_later, c), 0);
    ith_status status = engine_generate(context, pipeline, ranks, options, NULL);
    double end = ith_clock_seconds();
    c->over = true;
    pthread_join(thread, NULL);
    ith_pipeline_end_cancellation(pipeline); /* in case the run had ended before it was cancelled */
    printf("%s in %.3f s\n", status ? ith_context_error(context) : "whole", end - c->cancelled_at);
    if (!status)
        return 0;
    assert_int_equal(status, ITH_ERR_INTERRUPTED);
    bool in_plan = strstr(ith_context_error(context), "cancelled"); /* the cancel came inside the execution of a plan */
    assert_true(in_plan || strstr(ith_context_error(context), "stopped"));
    return end - c->cancelled_at;
}

static ith_generate_options large_options(void)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a red circle moves to the right", options.frames = 5, options.steps = 2;
    options.height = options.width = 256;
    options.precision = ITH_PRECISION_F32;
    return options;
}

static void any_moment_will_do(void **state)
{
    (void)state;
    uint64_t random = 12345;
    check(context, ith_pipeline_check(pipeline));
    int64_t before_bytes = memory_of(context).current_bytes;
    for (int i = 0; i < 12; i++) {
        ith_generate_options options = large_options();
        canceller c = {.stage = (ith_stage)(i % 4), .part = (double)random_uniform(&random)};
        c.delay = 0.1 * (double)random_uniform(&random);
        double late = cancel_run(1 + i % 3, &options, &c);
        for (int n = 1; n < ATTEMPTS && late > most_seconds(); n++) {
            c.reached = c.over = false;
            late = cancel_run(1 + i % 3, &options, &c);
        }
        assert_true(late <= most_seconds());
    }
    assert_int_equal(memory_of(context).current_bytes, before_bytes);
}

static void a_pipeline_works_after_it_was_cancelled(void **state)
{
    (void)state;
    ith_generate_options options = large_options();
    options.height = options.width = 32;
    ith_pipeline_cancel(pipeline); /* cancels the next run */
    assert_int_equal(engine_generate(context, pipeline, 2, &options, NULL), ITH_ERR_INTERRUPTED);
    check(context, engine_generate(context, pipeline, 2, &options, NULL));
}

/* A cancellation ends runs of other pipelines of the context too, and stays until its own pipeline has run or is
 * closed. */
static void a_cancellation_belongs_to_its_pipeline(void **state)
{
    (void)state;
    ith_pipeline *other = NULL;
    ith_generate_options options = large_options();
    options.height = options.width = 32, options.frames = 1, options.steps = 1;
    check(context, ith_pipeline_open(context, "../models/shapes", &other));
    ith_pipeline_cancel(other);
    ith_pipeline_cancel(other);
    assert_int_equal(engine_generate(context, pipeline, 1, &options, NULL), ITH_ERR_INTERRUPTED);
    assert_int_equal(engine_generate(context, other, 1, &options, NULL), ITH_ERR_INTERRUPTED);
    check(context, engine_generate(context, other, 1, &options, NULL));
    ith_pipeline_cancel(other);
    ith_pipeline_close(&other);
    check(context, engine_generate(context, pipeline, 1, &options, NULL));
}

/* A call that is refused is no run: the cancellation waits for the next one. */
static void a_refused_call_leaves_the_cancellation(void **state)
{
    (void)state;
    ith_generate_options options = large_options(), wrong = options;
    options.height = options.width = 32, options.frames = 1, options.steps = 1;
    wrong.steps = -1;
    for (int ranks = 1; ranks <= 2; ranks++) {
        ith_pipeline_cancel(pipeline);
        assert_int_equal(engine_generate(context, pipeline, ranks, &wrong, NULL), ITH_ERR_ARGUMENT);
        assert_int_equal(engine_generate(context, pipeline, ranks, &options, NULL), ITH_ERR_INTERRUPTED);
        check(context, engine_generate(context, pipeline, ranks, &options, NULL));
    }
}

/* The progress that a caller was shown. */
typedef struct listener {
    int64_t done[4], total[4];
    int calls, stages_left;
    double last, longest;
    ith_stage stop_in;
    double stopped_at;
} listener;

static void listen(void *user, ith_stage stage, int64_t done, int64_t total)
{
    listener *l = user;
    double now = ith_clock_seconds();
    assert_true(in_range(stage, 0, 3));
    assert_true(done >= 0 && done <= total && total > 0);
    if (stage != ITH_STAGE_LOAD && l->total[stage]) {
        assert_true(done >= l->done[stage]);
        assert_int_equal(total, l->total[stage]);
    }
    if (done != l->done[stage] || !l->calls)
        l->calls++;
    l->done[stage] = done, l->total[stage] = total;
    l->longest = now - l->last > l->longest ? now - l->last : l->longest;
    l->last = now;
}

/* Returns the longest time between two calls of on_progress. */
static double run_and_listen(void)
{
    ith_generate_options options = large_options();
    options.cfg = ITH_CFG_SEQUENTIAL;
    listener l = {.last = ith_clock_seconds()};
    options.on_progress = listen, options.user = &l;
    check(context, ith_pipeline_generate(pipeline, NULL, &options, NULL));
    assert_int_equal(l.total[ITH_STAGE_TEXT], 2 * ITH_PROGRESS_UNIT);
    assert_int_equal(l.total[ITH_STAGE_DENOISE], 2 * ITH_PROGRESS_UNIT);
    assert_int_equal(l.total[ITH_STAGE_DECODE], 5 * ITH_PROGRESS_UNIT);
    for (int stage = 0; stage < 4; stage++)
        assert_int_equal(l.done[stage], l.total[stage]);
    assert_true(l.calls > 2 * 2 * 6 * 5); /* steps, branches, layers, parts */
    printf("longest silence %.3f s\n", l.longest);
    return l.longest;
}

static void progress_only_goes_on(void **state)
{
    (void)state;
    double longest = run_and_listen();
    for (int n = 1; n < ATTEMPTS && longest > 2 * most_seconds(); n++)
        longest = run_and_listen();
    assert_true(longest <= 2 * most_seconds());
}

static bool stop_in_stage(void *user)
{
    listener *l = user;
    bool stop = l->total[l->stop_in] != 0;
    if (stop && l->stopped_at == 0)
        l->stopped_at = ith_clock_seconds();
    return stop;
}

/* Returns the seconds from the first time that should_stop returned true to the end of the run. */
static double stop_in(ith_stage stage)
{
    ith_generate_options options = large_options();
    listener l = {.last = ith_clock_seconds(), .stop_in = stage};
    options.on_progress = listen, options.should_stop = stop_in_stage, options.user = &l;
    assert_int_equal(ith_pipeline_generate(pipeline, NULL, &options, NULL), ITH_ERR_INTERRUPTED);
    double late = ith_clock_seconds() - l.stopped_at;
    printf("%s\n", ith_context_error(context));
    return late;
}

static void a_callback_stops_every_stage(void **state)
{
    (void)state;
    static const char *const words[] = {NULL, NULL, NULL, "decoding frame"};
    for (int stage = 0; stage < 4; stage++) {
        double late = stop_in((ith_stage)stage);
        for (int n = 1; n < ATTEMPTS && late > most_seconds(); n++)
            late = stop_in((ith_stage)stage);
        assert_true(late <= most_seconds());
        if (words[stage]) /* the other stages may end before should_stop is called again */
            assert_non_null(strstr(ith_context_error(context), words[stage]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_moment_will_do),
        cmocka_unit_test(a_pipeline_works_after_it_was_cancelled),
        cmocka_unit_test(a_cancellation_belongs_to_its_pipeline),
        cmocka_unit_test(a_refused_call_leaves_the_cancellation),
        cmocka_unit_test(progress_only_goes_on),
        cmocka_unit_test(a_callback_stops_every_stage),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
