/* SPDX-License-Identifier: Apache-2.0 */
#include "small_stack.h"

#include "sanitizers.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

bool stack_is_usual(void)
{
    return !SANITIZES_ADDRESSES;
}

void run_on_stack(size_t bytes, void *(*work)(void *user), void *user)
{
    pthread_t thread;
    pthread_attr_t small;
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, bytes), 0);
    assert_int_equal(pthread_create(&thread, &small, work, user), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
}
