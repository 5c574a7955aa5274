/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies of attention on several ranks of this process. The plans that the cost model expects to be the fastest
 * are executed in turn with the plan that the library makes by its rules; the fastest becomes wisdom. */
#include "../cli.h"
#include "../launch/interrupt.h"
#include "tune_state.h"

#include <math.h>
#include <string.h>

enum { TURNS = 2, TRIALS = 5 };

/* The candidates of one problem; the first one leaves all choices to the library. */
typedef struct trials {
    ith_attn_options options[TRIALS];
    double times[TRIALS][TURNS];
    ith_plan_info infos[TRIALS];
    int count;
} trials;

static bool is_same(const ith_plan_info *a, const ith_plan_info *b)
{
    return a->ulysses == b->ulysses && a->ring == b->ring && a->direction == b->direction && a->chunks == b->chunks;
}

/* Keeps the first legal plans of the list (ith_plan_candidate_fn). */
static ith_status take(void *user, const ith_plan_candidate *candidate)
{
    trials *t = user;
    if (!candidate->legal || t->count == TRIALS || is_same(candidate->info, &t->infos[0]))
        return ITH_OK;
    t->options[t->count++] = *candidate->options;
    return ITH_OK;
}

/* Lists the candidates of a problem. */
static int list(ith_tune *t, ith_context *plain, ith_tune_strategy *x, trials *all)
{
    ith_attn_options open = ITH_ATTN_OPTIONS_INIT;
    const int ranks = (int)t->settings->ranks;
    open.softmax = x->softmax;
    all->options[0] = open;
    all->infos[0] = (ith_plan_info)ITH_PLAN_INFO_INIT;
    all->count = 1;
    if (ith_plan_predict(plain, &x->problem, &open, ranks, 0, true, &all->infos[0]) ||
        ith_plan_list(plain, &x->problem, &open, &t->machine, ranks, take, all))
        return ith_cli_error("%s", ith_context_error(plain));
    return ITH_EXIT_DONE;
}

/* Executes all candidates in turn. */
static int run_all(ith_tune *t, ith_context *plain, const ith_tune_strategy *x, trials *all)
{
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < all->count; i++) {
            ith_tune_show(t, "strategies of %s %s, %lld tokens: candidate %d of %d, turn %d of %d",
                          ith_dtype_name(x->problem.dtype), ith_softmax_name(x->softmax), (long long)x->problem.q_len,
                          i + 1, all->count, turn + 1, TURNS);
            ith_status status = ith_tune_time_plan(t, plain, &x->problem, &all->options[i], (int)t->settings->ranks,
                                                   &all->times[i][turn], &all->infos[i]);
            t->late = t->late || status == ITH_ERR_INTERRUPTED;
            if (t->late)
                return ITH_EXIT_DONE;
            if (status)
                return ith_cli_error("%s", ith_context_error(plain));
        }
    return ITH_EXIT_DONE;
}

/* Keeps the fastest candidate if it is faster than the library's choice by more than the noise. */
static void choose(ith_tune_strategy *x, const trials *all)
{
    x->usual = x->best = all->infos[0];
    x->usual_seconds = x->best_seconds = fmin(all->times[0][0], all->times[0][1]);
    for (int i = 1; i < all->count; i++) {
        const double seconds = fmin(all->times[i][0], all->times[i][1]);
        if (seconds < x->best_seconds && ith_tune_is_faster(seconds, all->times[0]))
            x->best = all->infos[i], x->best_seconds = seconds;
    }
    x->done = true;
}

/* Finds the strategy of one problem. Candidates run in a context without wisdom about strategies. */
static int tune_problem(ith_tune *t, ith_tune_strategy *x)
{
    trials all;
    ith_context *plain = NULL;
    int known = 0;
    memset(&all, 0, sizeof all);
    if (ith_wisdom_has_strategy(t->context, &x->problem, x->softmax, (int)t->settings->ranks, 0, 0, &known))
        return ith_cli_error("%s", ith_context_error(t->context));
    x->known = x->done = known && !t->settings->again;
    t->late = t->late || (!x->done && ith_tune_stops(t));
    if (x->done || t->late)
        return ITH_EXIT_DONE;
    int code = ith_cli_context(ITH_TALK_QUIET, &plain);
    if (!code)
        code = list(t, plain, x, &all);
    if (!code)
        code = run_all(t, plain, x, &all);
    ith_context_destroy(&plain);
    if (code || t->late)
        return code;
    choose(x, &all);
    if (ith_wisdom_put_strategy(t->context, &x->problem, &x->best, 0, 0, x->best_seconds, x->usual_seconds))
        return ith_cli_error("%s", ith_context_error(t->context));
    return ith_tune_save(t);
}

int ith_tune_strategies(ith_tune *t)
{
    const ith_tune_settings *s = t->settings;
    int code = ITH_EXIT_DONE;
    if (s->ranks < 2)
        return ITH_EXIT_DONE;
    for (int i = 0; !code && i < s->seq.count * s->dtype.count * s->softmax.count; i++) {
        ith_tune_strategy *x = &t->strategies[t->strategy_count++];
        x->problem = (ith_attn_problem)ITH_ATTN_PROBLEM_INIT;
        x->problem.heads = t->video.heads, x->problem.head_dim = t->video.head_dim;
        x->problem.q_len = x->problem.kv_len = s->seq.values[i % s->seq.count];
        x->problem.dtype = (ith_dtype)s->dtype.values[i / s->seq.count % s->dtype.count];
        x->softmax = (ith_softmax)s->softmax.values[i / s->seq.count / s->dtype.count];
        if (!ith_interrupt_came())
            code = tune_problem(t, x);
    }
    return code;
}
