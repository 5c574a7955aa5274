/* SPDX-License-Identifier: Apache-2.0 */
/* Observers: when, and from which threads, should_stop is called and progress is shown. */
#include "base/clock.h"
#include "base/context.h"
#include "base/observer.h"
#include "support/fixture.h"
#include "support/in_range.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

typedef struct account {
    atomic_int asked, shown, inside;
    atomic_bool stop, overlap, foreign;
    int64_t done;
    double shown_at; /* by ith_clock_seconds */
} account;

static void enter(account *a)
{
    if (atomic_fetch_add(&a->inside, 1))
        a->overlap = true;
    if (omp_get_thread_num())
        a->foreign = true;
    double end = ith_clock_seconds() + 0.001; /* long enough for another thread to come */
    while (ith_clock_seconds() < end)
        ;
    atomic_fetch_sub(&a->inside, 1);
}

static void count_show(void *user, int stage, int64_t done, int64_t total)
{
    account *a = user;
    enter(a);
    assert_int_equal(stage, 2);
    assert_int_equal(total, 10);
    a->done = done;
    a->shown++;
    a->shown_at = ith_clock_seconds();
}

static bool count_ask(void *user)
{
    account *a = user;
    enter(a);
    a->asked++;
    return a->stop;
}

static void begin(account *a, ith_observer *o)
{
    memset(a, 0, sizeof *a);
    *o = (ith_observer){.show = count_show, .should_stop = count_ask, .user = a};
    ith_observer_open(o);
    ith_context_set_observer(context, o);
}

static void end(ith_observer *o)
{
    ith_context_set_observer(context, NULL);
    ith_observer_close(o);
}

static void look_for(double seconds)
{
    double stop = ith_clock_seconds() + seconds;
    do
        assert_false(ith_context_interrupted(context));
    while (ith_clock_seconds() < stop);
}

static void is_asked_twenty_times_a_second(void **state)
{
    (void)state;
    account a;
    ith_observer o;
    begin(&a, &o);
    look_for(0.32);
    assert_true(in_range(a.asked, 1, 7));
    assert_int_equal(a.shown, 0);
    int before = a.asked;
    ith_observer_ask(context);
    assert_int_equal(ith_context_check(context), ITH_OK);
    assert_int_equal(a.asked, before + 1);
    end(&o);
}

static void what_it_said_once_stays(void **state)
{
    (void)state;
    account a;
    ith_observer o;
    begin(&a, &o);
    a.stop = true;
    assert_int_equal(ith_context_check(context), ITH_ERR_INTERRUPTED);
    assert_string_equal(ith_context_error(context), "stopped on request");
    a.stop = false;
    ith_observer_ask(context);
    assert_int_equal(ith_context_check(context), ITH_ERR_INTERRUPTED);
    end(&o);
    assert_int_equal(ith_context_check(context), ITH_OK);
}

static void is_told_again_after_a_second(void **state)
{
    (void)state;
    account a;
    ith_observer o;
    begin(&a, &o);
    ith_observer_show(context, 2, 3, 10);
    assert_int_equal(a.shown, 1);
    double first = a.shown_at, due = ith_clock_seconds() + ITH_OBSERVER_SHOW_SECONDS, looked;
    do {
        looked = ith_clock_seconds();
        assert_false(ith_context_interrupted(context));
    } while (looked <= due && a.shown < 2);
    assert_int_equal(a.shown, 2);
    assert_int_equal(a.done, 3);
    assert_true(a.shown_at - first >= ITH_OBSERVER_SHOW_SECONDS);
    end(&o);
}

static void *look_from_a_rank(void *user)
{
    ith_context *own = NULL;
    assert_int_equal(ith_context_clone(user, &own), ITH_OK);
    for (int i = 0; i < 20; i++) {
        ith_observer_show(own, 2, i, 10);
#pragma omp parallel num_threads(2)
        for (double stop = ith_clock_seconds() + 0.005; ith_clock_seconds() < stop;)
            ith_context_interrupted(own);
    }
    ith_context_destroy(&own);
    return NULL;
}

static void one_thread_at_a_time_calls_it(void **state)
{
    (void)state;
    account a;
    ith_observer o;
    pthread_t ranks[3];
    begin(&a, &o);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&ranks[i], NULL, look_from_a_rank, context), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(ranks[i], NULL);
    assert_true(a.asked > 0);
    assert_int_equal(a.shown, 60);
    assert_false(a.overlap);
    assert_false(a.foreign);
    end(&o);
}

static void an_empty_one_does_nothing(void **state)
{
    (void)state;
    ith_observer o = {0};
    ith_observer_open(&o);
    ith_context_set_observer(context, &o);
    ith_observer_show(context, 2, 3, 10);
    look_for(0.01);
    ith_observer_ask(context);
    assert_int_equal(ith_context_check(context), ITH_OK);
    ith_context_interrupt(context);
    assert_int_equal(ith_context_check(context), ITH_ERR_INTERRUPTED);
    ith_context_end_interruption(context);
    end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_asked_twenty_times_a_second), cmocka_unit_test(what_it_said_once_stays),
        cmocka_unit_test(is_told_again_after_a_second),   cmocka_unit_test(one_thread_at_a_time_calls_it),
        cmocka_unit_test(an_empty_one_does_nothing),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
