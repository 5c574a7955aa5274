/* SPDX-License-Identifier: Apache-2.0 */
/* A task that runs apart leaves nothing behind in the thread that calls it, also where no thread can be started. This
 * program is linked with --wrap=pthread_create. */
#include "base/parallel.h"
#include "support/fixture.h"

#include <errno.h>
#include <omp.h>
#include <pthread.h>

static bool refused; /* no thread can be started */
static int calls;
static pthread_t caller, runner;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    return refused ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

static void set_one_thread(void *user, int thread)
{
    assert_ptr_equal(user, &calls);
    assert_int_equal(thread, 0);
    omp_set_num_threads(1);
    runner = pthread_self();
    calls++;
}

static void the_number_of_threads_stays(void **state)
{
    (void)state;
    caller = pthread_self();
    omp_set_num_threads(3);
    for (int i = 0; i < 2; i++) {
        refused = i;
        calls = 0;
        ith_parallel_apart(set_one_thread, &calls);
        assert_int_equal(calls, 1);
        assert_int_equal(pthread_equal(caller, runner) != 0, refused);
        assert_int_equal(omp_get_max_threads(), 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_threads_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
