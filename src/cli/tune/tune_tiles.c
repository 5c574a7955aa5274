/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles of kernels. A search times calls of the kernel alone. Then the usual tiles and the best few others are
 * tried in turn where they are to be used: in a whole block of the transformer, or, where there is none for the type,
 * in an execution of a plan. Each trial has a separate context, whose wisdom has the tiles, so that plans use them as
 * they will later. */
#include "../cli.h"
#include "../launch/interrupt.h"
#include "../launch/thread_limit.h"
#include "tune_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TURNS = 2, MOST_TRIALS = 4, LEAST_TOKENS = 1024 };
/* The search for one cell takes this share of the remaining time, and at most these seconds. */
static const double SEARCH_SHARE = 0.3, SEARCH_SECONDS = 10;
/* The trials of one cell take about this share of the remaining time. */
static const double TRIAL_SHARE = 0.5;

/* A search for the tiles of one cell. */
typedef struct tile_search {
    ith_tune *tune;
    ith_tune_cell *cell;
} tile_search;

/* ---- The kernel alone ------------------------------------------------------------------------------------------ */

static double known(void *user, const ith_tile_choice *tiles)
{
    const tile_search *s = user;
    return ith_journal_find(&s->tune->journal, s->cell->kernel, &s->cell->about, tiles);
}

static void measured(void *user, const ith_tile_choice *tiles)
{
    const tile_search *s = user;
    ith_journal_add(&s->tune->journal, s->cell->kernel, &s->cell->about, tiles);
    ith_tune_show(s->tune, "%s %s %s, %lld keys: block_q %lld block_kv %lld: %.1f GFLOP/s", s->cell->kernel,
                  ith_dtype_name(s->cell->about.dtype), ith_softmax_name(s->cell->about.softmax),
                  (long long)s->cell->about.keys, (long long)tiles->block_q, (long long)tiles->block_kv, tiles->gflops);
}

static bool stops(void *user)
{
    return ith_tune_stops(((tile_search *)user)->tune);
}

static int search(ith_tune *t, ith_tune_cell *cell, ith_tile_report *report)
{
    tile_search user = {t, cell};
    ith_tile_search options = cell->about;
    options.seconds = fmin(fmax(SEARCH_SHARE * (t->until - ith_cli_seconds()), 0.01), SEARCH_SECONDS);
    options.known = known, options.measured = measured, options.should_stop = stops, options.user = &user;
    *report = (ith_tile_report)ITH_TILE_REPORT_INIT;
    if (ith_tiles_search(t->context, &options, report))
        return ith_cli_error("%s", ith_context_error(t->context));
    cell->usual = report->best[0];
    return ITH_EXIT_DONE;
}

/* ---- Where they are used --------------------------------------------------------------------------------------- */

/* Whether tiles are tried in a block of the transformer; otherwise they are tried in attention alone. There are no
 * blocks of f16. */
static bool is_tried_in_block(const ith_tune *t, const ith_tune_cell *cell)
{
    return !t->settings->alone && cell->about.dtype != ITH_F16;
}

/* The time of an execution of a plan for a cell. */
static ith_status time_plan(ith_tune *t, ith_context *context, const ith_tune_cell *cell, int64_t tokens,
                            double *seconds)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info;
    problem.heads = t->video.heads, problem.head_dim = cell->about.head_dim, problem.dtype = cell->about.dtype;
    problem.q_len = problem.kv_len = tokens;
    options.kernel = cell->kernel, options.softmax = cell->about.softmax;
    return ith_tune_time_plan(t, context, &problem, &options, 1, seconds, &info);
}

/* Makes a context whose wisdom has these tiles (NULL: none), and times a block or a plan with it. */
static int try_tiles(ith_tune *t, const ith_tune_cell *cell, int64_t tokens, const ith_tile_choice *tiles,
                     double *seconds)
{
    ith_context *context = NULL;
    ith_tile_search about = cell->about;
    about.keys = tokens;
    int code = ith_cli_context(ITH_TALK_QUIET, &context);
    ith_status status = ITH_OK;
    if (code)
        return code;
    if (tiles)
        status = ith_wisdom_put_tiles(context, &about, tiles, tiles->gflops);
    if (!status)
        status = is_tried_in_block(t, cell) ? ith_tune_time_block(t, context, cell, tokens, seconds)
                                            : time_plan(t, context, cell, tokens, seconds);
    if (status == ITH_ERR_INTERRUPTED)
        t->late = true;
    else if (status)
        code = ith_cli_error("%s", ith_context_error(context));
    ith_context_destroy(&context);
    return code;
}

/* The operations of one trial: of a block, or of attention alone. */
static double operations(const ith_tune *t, const ith_tune_cell *cell, double tokens)
{
    const double dim = (double)(t->video.heads * t->video.head_dim), ffn = (double)t->video.ffn_dim;
    return 4 * tokens * tokens * dim + (is_tried_in_block(t, cell) ? tokens * dim * (12 * dim + 4 * ffn) : 0);
}

/* The number of tokens of a trial: as many as the cell has keys, unless the time is too short for them. */
static int64_t trial_tokens(const ith_tune *t, const ith_tune_cell *cell, int64_t trials)
{
    const int threads = ith_cli_threads(t->settings->threads);
    const double rate = 1e9 * cell->usual.gflops * threads, time = TRIAL_SHARE * (t->until - ith_cli_seconds());
    int64_t tokens = cell->about.keys;
    while (tokens / 2 >= LEAST_TOKENS &&
           operations(t, cell, (double)tokens) * (double)(3 * TURNS * trials) / rate > time)
        tokens /= 2;
    return tokens;
}

/* Measures the usual tiles and the best few others in turn. Sets cell->best to the fastest tiles if they are faster
 * than the usual tiles by more than the noise, otherwise to the usual tiles. */
static int compare(ith_tune *t, ith_tune_cell *cell, const ith_tile_report *report)
{
    const int64_t trials = report->count < MOST_TRIALS ? report->count : MOST_TRIALS;
    const int64_t tokens = trial_tokens(t, cell, trials);
    double times[MOST_TRIALS][TURNS];
    for (int turn = 0; turn < TURNS; turn++)
        for (int64_t i = 0; i < trials; i++) {
            ith_tune_show(t, "%s %s %s: whole %s, %lld tokens, candidate %lld of %lld, turn %d of %d", cell->kernel,
                          ith_dtype_name(cell->about.dtype), ith_softmax_name(cell->about.softmax),
                          is_tried_in_block(t, cell) ? "block" : "attention", (long long)tokens, (long long)i + 1,
                          (long long)trials, turn + 1, TURNS);
            int code = try_tiles(t, cell, tokens, i ? &report->best[i] : NULL, &times[i][turn]);
            if (code || t->late)
                return code;
        }
    cell->best = report->best[0];
    cell->usual_seconds = cell->best_seconds = fmin(times[0][0], times[0][1]);
    for (int64_t i = 1; i < trials; i++) {
        const double seconds = fmin(times[i][0], times[i][1]), slowest = fmax(times[i][0], times[i][1]);
        if (seconds < cell->best_seconds && slowest < cell->usual_seconds && ith_tune_is_faster(seconds, times[0]))
            cell->best = report->best[i], cell->best_seconds = seconds;
    }
    return ITH_EXIT_DONE;
}

/* ---- Cells ----------------------------------------------------------------------------------------------------- */

/* Takes the tiles of a cell from wisdom, if an earlier run has found them. */
static void recall(ith_tune *t, ith_tune_cell *cell)
{
    if (t->settings->again || ith_wisdom_get_tiles(t->context, &cell->about, &cell->best) || !cell->best.block_q)
        return;
    cell->known = cell->done = true;
}

/* Finds the tiles of one cell, makes them wisdom and saves them. */
static int tune_cell(ith_tune *t, ith_tune_cell *cell)
{
    ith_tile_report report;
    recall(t, cell);
    if (cell->done)
        return ITH_EXIT_DONE;
    if (ith_tune_stops(t)) {
        t->late = true;
        return ITH_EXIT_DONE;
    }
    int code = search(t, cell, &report);
    /* count 0: the time of the search has ended before the usual tiles were measured */
    if (!code && (!report.count || (!report.complete && ith_tune_stops(t))))
        t->late = true;
    if (code || t->late)
        return code;
    if (report.count > 1)
        code = compare(t, cell, &report);
    else
        cell->best = report.best[0];
    if (code || t->late)
        return code;
    cell->done = true;
    if (ith_wisdom_put_tiles(t->context, &cell->about, &cell->best, cell->usual.gflops))
        return ith_cli_error("%s", ith_context_error(t->context));
    return ith_tune_save(t);
}

/* Finds the kernel of a cell: the one that is named, or the one that a plan takes. */
static int find_kernel(ith_tune *t, ith_tune_cell *cell)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    problem.heads = 1, problem.head_dim = cell->about.head_dim, problem.dtype = cell->about.dtype;
    problem.q_len = problem.kv_len = cell->about.keys;
    options.kernel = t->settings->kernel, options.softmax = cell->about.softmax, options.threads = 1;
    if (ith_plan_predict(t->context, &problem, &options, 1, 0, true, &info))
        return ith_cli_error("%s", ith_context_error(t->context));
    snprintf(cell->kernel, sizeof cell->kernel, "%s", info.kernel);
    cell->about.kernel = cell->kernel;
    return ITH_EXIT_DONE;
}

int ith_tune_tiles(ith_tune *t)
{
    const ith_tune_settings *s = t->settings;
    int code = ITH_EXIT_DONE;
    for (int i = 0; !code && i < s->seq.count * s->dtype.count * s->softmax.count; i++) {
        ith_tune_cell *cell = &t->cells[t->cell_count++];
        cell->about = (ith_tile_search)ITH_TILE_SEARCH_INIT;
        cell->about.keys = s->seq.values[i % s->seq.count];
        cell->about.dtype = (ith_dtype)s->dtype.values[i / s->seq.count % s->dtype.count];
        cell->about.softmax = (ith_softmax)s->softmax.values[i / s->seq.count / s->dtype.count];
        cell->about.head_dim = t->video.head_dim;
        code = find_kernel(t, cell);
        if (!code && !ith_interrupt_came())
            code = tune_cell(t, cell);
    }
    return code;
}
