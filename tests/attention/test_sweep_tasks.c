/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a loop over blocks of queries: together they have every query once, and threads that take them in turn
 * end nearly together. */
#include "attention/run/cpu/sweep.h"
#include "base/size.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LOOPS = 3000, THREADS_MOST = 16 };

/* A loop over the blocks of queries of one head. */
typedef struct loop {
    int64_t rows, block_q, step, threads;
    int64_t part_rows;
    ith_sweep_tasks tasks;
} loop;

static loop random_loop(uint64_t *seed)
{
    loop l = {.step = random_between(seed, 1, 48), .threads = random_between(seed, 1, THREADS_MOST)};
    l.block_q = l.step * random_between(seed, 1, 12);
    l.rows = random_between(seed, 1, 40 * l.block_q);
    l.part_rows = ith_sweep_part_rows(l.block_q, l.step);
    l.tasks = ith_sweep_tasks_of(ith_div_up(l.rows, l.block_q), l.threads);
    return l;
}

/* Sets *begin to the first query of a task, and returns the number of its queries. */
static int64_t rows_of(const loop *l, int64_t task, int64_t *begin)
{
    int64_t block, part;
    ith_sweep_task(&l->tasks, task, &block, &part);
    *begin = block * l->block_q + (part < 0 ? 0 : part * l->part_rows);
    const int64_t end = ith_min64((block + 1) * l->block_q, l->rows);
    return ith_min64(part < 0 ? l->block_q : l->part_rows, end - *begin);
}

static void test_every_query_once(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int n = 0; n < LOOPS; n++) {
        const loop l = random_loop(&seed);
        char *found = calloc((size_t)l.rows, 1);
        assert_non_null(found);
        assert_int_equal(l.part_rows % l.step, 0);
        for (int64_t task = 0, begin; task < l.tasks.count; task++) {
            const int64_t rows = rows_of(&l, task, &begin);
            for (int64_t i = 0; i < rows; i++)
                assert_int_equal(found[begin + i]++, 0);
        }
        for (int64_t i = 0; i < l.rows; i++)
            assert_int_equal(found[i], 1);
        free(found);
    }
}

/* The thread that is free first takes the next task. If there are at least as many blocks as threads, the last thread
 * ends at most the time of one part after the mean. */
static void test_threads_end_together(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int n = 0; n < LOOPS; n++) {
        const loop l = random_loop(&seed);
        int64_t ends[THREADS_MOST] = {0}, last = 0;
        for (int64_t task = 0, begin; task < l.tasks.count; task++) {
            int64_t free = 0;
            for (int64_t i = 1; i < l.threads; i++)
                free = ends[i] < ends[free] ? i : free;
            ends[free] += ith_max64(rows_of(&l, task, &begin), 0);
            last = ith_max64(last, ends[free]);
        }
        if (l.tasks.whole >= l.threads)
            assert_true(last <= ith_div_up(l.rows, l.threads) + l.part_rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_query_once),
        cmocka_unit_test(test_threads_end_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
