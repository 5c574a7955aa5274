/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/stopped_run.h"

#include "support/compare.h"
#include "support/engine/engine_ranks.h"
#include "support/fixture.h"

#include <ithaca/files.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void stopped_run_begin(stopped_run *r, ith_pipeline *pipeline, const char *folder)
{
    r->pipeline = pipeline;
    snprintf(r->saved, sizeof r->saved, "%s/run.safetensors", folder);
    snprintf(r->latents, sizeof r->latents, "%s/end.safetensors", folder);
}

int64_t stopped_run_step(const stopped_run *r)
{
    ith_tensor_file *file = NULL;
    check(context, ith_tensor_file_open(context, r->saved, &file));
    const long step = strtol(ith_tensor_file_metadata(file, "step"), NULL, 10);
    ith_tensor_file_close(&file);
    return step;
}

static float *final_latents(const stopped_run *r, int64_t *count)
{
    ith_tensor_file *file = NULL;
    check(context, ith_tensor_file_open(context, r->latents, &file));
    const ith_tensor *tensor = ith_tensor_file_find(file, "latents");
    float *all = malloc((size_t)tensor->bytes);
    check(context, ith_tensor_copy(context, tensor, all));
    *count = tensor->bytes / 4;
    ith_tensor_file_close(&file);
    return all;
}

/* Runs the engine to the end, and saves the final latents. */
static ith_generate_report finish(const stopped_run *r, int ranks, const ith_generate_options *options)
{
    ith_generate_options whole = *options;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    whole.latents_file = r->latents;
    check(context, engine_generate(context, r->pipeline, ranks, &whole, &report));
    return report;
}

float *stopped_run_whole(stopped_run *r, int ranks, const ith_generate_options *options, int64_t *count)
{
    finish(r, ranks, options);
    return final_latents(r, count);
}

/* The step in which a run is stopped, when a part of it is computed. */
typedef struct stopper {
    ith_pipeline *pipeline;
    int64_t step;
    bool reached;
} stopper;

static void look(void *user, ith_stage stage, int64_t done, int64_t total)
{
    stopper *s = user;
    (void)total;
    if (stage != ITH_STAGE_DENOISE || done <= s->step * ITH_PROGRESS_UNIT || s->reached)
        return;
    s->reached = true;
    ith_pipeline_cancel(s->pipeline);
}

void stopped_run_stop(stopped_run *r, int ranks, const ith_generate_options *options, int64_t step, int64_t every)
{
    ith_generate_options stopped = *options;
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    stopper s = {.pipeline = r->pipeline, .step = step};
    if (!options->resume_file)
        unlink(r->saved);
    stopped.checkpoint_file = r->saved, stopped.checkpoint_every = every;
    stopped.on_progress = look, stopped.user = &s;
    assert_int_equal(engine_generate(context, r->pipeline, ranks, &stopped, &report), ITH_ERR_INTERRUPTED);
    assert_int_equal(stopped_run_step(r), step);
    assert_int_equal(report.saved_step, step);
    assert_int_equal(report.steps_done, step);
}

ith_generate_options stopped_run_options(const stopped_run *r)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.resume_file = r->saved;
    return options;
}

float *stopped_run_resume(stopped_run *r, int ranks, const ith_generate_options *options, int64_t from)
{
    int64_t count = 0;
    const ith_generate_report report = finish(r, ranks, options);
    assert_int_equal(report.steps_resumed, from);
    assert_true(report.steps_done >= from && report.steps_done >= options->steps);
    return final_latents(r, &count);
}

void stopped_run_check_steps(stopped_run *r, const ith_generate_options *options, const ith_generate_options *again,
                             int64_t every)
{
    int64_t count = 0;
    float *whole = stopped_run_whole(r, 1, options, &count);
    for (int64_t step = 0; step < options->steps; step++) {
        stopped_run_stop(r, 1, options, step, 1 + step % every);
        float *pieces = stopped_run_resume(r, 1, again, step);
        assert_memory_equal(pieces, whole, (size_t)count * sizeof *whole);
        free(pieces);
    }
    free(whole);
}

/* Options of one half of a run. One rank has no strategy. */
static ith_generate_options half_of(const ith_generate_options *options, ith_attn_options *attention,
                                    const rank_change *change, int half)
{
    ith_generate_options out = *options;
    const int ranks = half ? change->after : change->before;
    *attention = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    attention->strategy = ranks > 1 ? change->strategy : ITH_STRATEGY_AUTO;
    out.attention = attention, out.cfg = change->cfg[half];
    return out;
}

void stopped_run_check_ranks(stopped_run *r, const ith_generate_options *options, const ith_generate_options *again,
                             const rank_change *changes, int count)
{
    int64_t numbers = 0;
    float *whole = stopped_run_whole(r, 1, options, &numbers);
    for (int i = 0; i < count; i++) {
        const rank_change *c = &changes[i];
        ith_attn_options attention[2];
        const ith_generate_options first = half_of(options, &attention[0], c, 0);
        const ith_generate_options second = half_of(again, &attention[1], c, 1);
        stopped_run_stop(r, c->before, &first, 2, 1);
        float *pieces = stopped_run_resume(r, c->after, &second, 2);
        const double error = relative_l2(pieces, whole, numbers);
        print_message("%d ranks, then %d: %.1e\n", c->before, c->after, error);
        assert_true(error <= (c->strategy == ITH_STRATEGY_ULYSSES ? 0 : 1e-4));
        free(pieces);
    }
    free(whole);
}
