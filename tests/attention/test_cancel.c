/* SPDX-License-Identifier: Apache-2.0 */
/* Executions that are cancelled, that take long, or that another process attempts. */
#include <omp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "support/execution_scene.h"
#include "support/sanitizers.h"
#include "support/times.h"

/* ---- Cancelling ------------------------------------------------------------------------------------------------ */

#define LONG_LENGTH 60000 /* keys: minutes of work in plain C; kv_lengths shortens runs that must end by themselves */
#define SOON 1.0          /* seconds; an idle machine takes a tenth of a second */

typedef struct cancelling {
    scene *scene;
    double at;
    atomic_bool begun;
    _Atomic double cancelled, latest;
    int rank;
} cancelling;

static void execute_until_cancelled(rank_group *g, int rank, void *user)
{
    cancelling *c = user;
    scene *s = c->scene;
    if (rank == g->ranks - 1) /* from now on the cancel may come */
        atomic_store(&c->begun, true);
    execute_in_rank(g, rank, s);
    double now = ith_clock_seconds();
    if (now > atomic_load(&c->latest)) /* no exact maximum if two ranks end at the same time, but near enough */
        atomic_store(&c->latest, now);
}

static void *cancel_soon(void *argument)
{
    cancelling *c = argument;
    while (!atomic_load(&c->begun))
        nap(1e-3);
    nap(c->at);
    atomic_store(&c->cancelled, ith_clock_seconds());
    ith_plan_cancel(c->scene->plans[0][c->rank]);
    return NULL;
}

/* Returns the seconds from the cancel to the end of the last rank. */
static double cancel_one(rank_group *g, scene *s, int rank, double at)
{
    cancelling c = {.scene = s, .rank = rank, .at = at};
    pthread_t thread;
    s->first_plan = 0, s->odd = -1;
    s->samples[0].kv_length = LONG_LENGTH;
    pthread_create(&thread, NULL, cancel_soon, &c);
    group_run(g, execute_until_cancelled, &c);
    pthread_join(thread, NULL);
    double late = atomic_load(&c.latest) - atomic_load(&c.cancelled);
    if (getenv("ITHACA_TIMES"))
        print_message("%d ranks, strategy %d, exchange %d, softmax %d: %.1f ms\n", g->ranks, (int)s->options.strategy,
                      (int)s->options.exchange, (int)s->options.softmax, 1e3 * late);
    char name[32];
    snprintf(name, sizeof name, g->ranks > 1 ? "rank %d: cancelled" : "cancelled", rank);
    for (int i = 0; i < g->ranks; i++) {
        if (s->seen[i] != ITH_ERR_INTERRUPTED)
            print_error("%s: %s\n", ith_status_name(s->seen[i]), s->sentences[i]);
        assert_int_equal(s->seen[i], ITH_ERR_INTERRUPTED);
        assert_string_equal(s->sentences[i], name);
    }
    s->samples[0].kv_length = 9;
    return late;
}

/* A busy machine may hold up a rank: the best of a few attempts counts. */
static void expect_soon(rank_group *g, scene *s, int rank, double at)
{
    double late = cancel_one(g, s, rank, at);
    for (int n = 0; n < 10 && late > SOON; n++)
        late = cancel_one(g, s, rank, at);
    if (late > SOON)
        fail_msg("%.3f s after it was cancelled", late);
}

static void run_again(rank_group *g, scene *s)
{
    group_run(g, execute_in_rank, s);
    for (int rank = 0; rank < g->ranks; rank++)
        if (s->seen[rank])
            fail_msg("rank %d: %s", rank, s->sentences[rank]);
    expect_mean(&s->samples[0]);
}

static void executions_are_cancelled(void **state)
{
    (void)state;
    sample all;
    sample_create(&all, LONG_LENGTH, 4, 8);
    for (int way = SANITIZED; way < 12; way += 1 + SANITIZED) { /* half of the ways under a sanitizer */
        scene s = {.options = ITH_ATTN_OPTIONS_INIT, .odd = -1};
        rank_group g;
        ith_context *root = NULL;
        int ranks = way < 2 ? 1 : 2 + way % 3;
        s.options.strategy = ranks == 1 ? ITH_STRATEGY_SINGLE : (ith_strategy)(ITH_STRATEGY_ULYSSES + way / 2 % 3);
        s.options.exchange = ranks == 1 ? ITH_EXCHANGE_AUTO : (ith_exchange_mode)(ITH_EXCHANGE_IN_PLACE + way % 3);
        s.options.softmax = way % 4 == 3 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        s.options.kernel = "f32_ref";
        ith_context_create(NULL, &root);
        assert_int_equal(group_create(&g, root, ranks), ITH_OK);
        s.samples[0] = s.samples[1] = all;
        group_run(&g, plan_in_rank, &s);
        for (int i = 0; i < 2; i++)
            expect_soon(&g, &s, i % ranks, i * 0.03);
        s.samples[0].kv_length = 9;
        run_again(&g, &s);
        ith_plan_cancel(s.plans[0][ranks - 1]); /* cancels the next execution */
        group_run(&g, execute_in_rank, &s);
        for (int rank = 0; rank < ranks; rank++)
            assert_int_equal(s.seen[rank], ITH_ERR_INTERRUPTED);
        assert_true(untouched(&s.samples[0]));
        run_again(&g, &s);
        for (int i = 0; i < 2; i++)
            for (int rank = 0; rank < ranks; rank++)
                ith_plan_destroy(&s.plans[i][rank]);
        group_destroy(&g);
        ith_context_destroy(&root);
    }
    ith_plan_cancel(NULL);
    sample_destroy(&all);
}

static ith_plan *alarmed;

static void on_alarm(int number)
{
    (void)number;
    ith_plan_cancel(alarmed);
}

static void a_signal_handler_may_cancel(void **state)
{
    (void)state;
    ith_context *root = NULL;
    sample s;
    int32_t lengths;
    sample_create(&s, LONG_LENGTH, 1, 8);
    ith_attn_problem problem = problem_of(&s);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors tensors = tensors_of(&s, 0, 1, &lengths);
    options.kernel = "f32_ref";
    ith_context_create(NULL, &root);
    assert_int_equal(ith_plan_create(root, &problem, &options, NULL, &alarmed), ITH_OK);
    struct itimerval timer = {.it_value = {0, 30000}};
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &timer, NULL);
    assert_int_equal(ith_plan_execute(alarmed, &tensors), ITH_ERR_INTERRUPTED);
    signal(SIGALRM, SIG_DFL);
    ith_plan_destroy(&alarmed);
    ith_context_destroy(&root);
    sample_destroy(&s);
}

/* ---- Long computing, and other processes ----------------------------------------------------------------------- */

static double time_limit;

static void execute_with_a_limit(rank_group *g, int rank, void *user)
{
    ith_comm_set_timeout(g->comms[rank], time_limit);
    execute_in_rank(g, rank, user);
}

/* Executes ulysses with one head, so that rank 0 has all the work. Returns its seconds, or -1 if a rank waited for
 * longer than the limit. */
static double compute_on_one(int64_t length, ith_exchange_mode exchange, double limit)
{
    scene s = {.options = ITH_ATTN_OPTIONS_INIT, .odd = -1};
    rank_group g;
    ith_context *root = NULL;
    ith_context_create(NULL, &root);
    assert_int_equal(group_create(&g, root, 2), ITH_OK);
    sample_create(&s.samples[0], length, 1, 32);
    s.samples[1] = s.samples[0];
    s.options.strategy = ITH_STRATEGY_ULYSSES;
    s.options.exchange = exchange;
    s.options.kernel = "f32_ref";
    group_run(&g, plan_in_rank, &s);
    time_limit = limit;
    double start = ith_clock_seconds();
    group_run(&g, execute_with_a_limit, &s);
    double seconds = ith_clock_seconds() - start;
    for (int rank = 0; rank < 2; rank++)
        if (s.seen[rank]) {
            print_message("rank %d, with %.3f s: %s\n", rank, limit, s.sentences[rank]);
            assert_int_equal(s.seen[rank], ITH_ERR_TIMEOUT);
            seconds = -1;
        }
    if (seconds >= 0)
        expect_mean(&s.samples[0]);
    for (int i = 0; i < 4; i++)
        ith_plan_destroy(&s.plans[i / 2][i % 2]);
    group_destroy(&g);
    ith_context_destroy(&root);
    sample_destroy(&s.samples[0]);
    return seconds;
}

/* Returns a length whose execution takes at least the wanted seconds, and sets *seconds to the time that it took. */
static int64_t long_enough(double wanted, double *seconds)
{
    int64_t length = 1000;
    *seconds = 0;
    while (*seconds < wanted && length < 20000) {
        length += length / 2;
        *seconds = compute_on_one(length, ITH_EXCHANGE_IN_PLACE, 600);
    }
    return length;
}

/* A rank that computes gives signs of life, so a time limit shorter than the computation does not end it. On a busy
 * machine a rank may have no processor, and so give no sign of life, for as long as the limit; then longer times are
 * tried. */
static void who_computes_is_alive(void **state)
{
    (void)state;
    double wanted = 0.4, seconds;
    int64_t length = long_enough(wanted, &seconds);
    for (int exchange = ITH_EXCHANGE_IN_PLACE; exchange <= ITH_EXCHANGE_MIXED; exchange++)
        while (compute_on_one(length, (ith_exchange_mode)exchange, 0.4 * seconds) < 0) {
            assert_true(wanted < 5);
            length = long_enough(wanted *= 2, &seconds);
        }
}

/* Runs in a forked child. Returns 0 if all calls there behave as they should, otherwise the number of the first wrong
 * call. */
static int in_child(ith_context *context, ith_plan *plan, const ith_attn_problem *problem, ith_attn_tensors *tensors)
{
    ith_context *own = NULL;
    ith_plan *made = NULL;
    alarm(100);
    if (ith_plan_execute(plan, tensors) != ITH_ERR_UNSUPPORTED || !strstr(ith_context_error(context), "fork"))
        return 1;
    if (ith_plan_create(context, problem, NULL, NULL, &made) != ITH_ERR_UNSUPPORTED || made)
        return 2;
    if (ith_context_create(NULL, &own))
        return 3;
    omp_set_num_threads(2);
    if (ith_plan_create(own, problem, NULL, NULL, &made))
        return 4;
    if (ith_plan_execute(made, tensors) != ITH_ERR_UNSUPPORTED || !strstr(ith_context_error(own), "exec"))
        return 5;
    ith_plan_destroy(&made);
    omp_set_num_threads(1);
    if (ith_plan_create(own, problem, NULL, NULL, &made))
        return 6;
    return ith_plan_execute(made, tensors) ? 7 : 0;
}

static void a_child_is_told(void **state)
{
    (void)state;
    if (SANITIZES_THREADS)
        skip();
    ith_context *root = NULL;
    ith_plan *plan = NULL;
    sample s;
    int32_t lengths;
    sample_create(&s, 100, 2, 8);
    ith_attn_problem problem = problem_of(&s);
    ith_attn_tensors tensors = tensors_of(&s, 0, 1, &lengths);
    ith_context_create(NULL, &root);
    omp_set_num_threads(2);
    assert_int_equal(ith_plan_create(root, &problem, NULL, NULL, &plan), ITH_OK);
    assert_int_equal(ith_plan_execute(plan, &tensors), ITH_OK);
    expect_mean(&s);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(root, plan, &problem, &tensors));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(ith_plan_execute(plan, &tensors), ITH_OK);
    expect_mean(&s);
    ith_plan_destroy(&plan);
    ith_context_destroy(&root);
    sample_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(executions_are_cancelled),
        cmocka_unit_test(a_signal_handler_may_cancel),
        cmocka_unit_test(who_computes_is_alive),
        cmocka_unit_test(a_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
