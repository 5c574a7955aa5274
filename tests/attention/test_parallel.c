/* SPDX-License-Identifier: Apache-2.0 */
/* Loops on a pool of threads of the caller. The results have the same bits as with OpenMP's threads, for every order
 * in which the pool runs the tasks. */
#include "base/parallel.h"
#include "support/in_rank.h"
#include "support/random.h"
#include "support/times.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Pools ----------------------------------------------------------------------------------------------------- */

typedef struct pool {
    atomic_int calls, tasks;
} pool;

static void note(pool *p, int threads)
{
    atomic_fetch_add(&p->calls, 1);
    atomic_fetch_add(&p->tasks, threads);
}

/* Runs the tasks one after the other, the last first. */
static void in_turn(void *user, int threads, ith_task_fn task, void *task_user)
{
    note(user, threads);
    for (int thread = threads - 1; thread >= 0; thread--)
        task(task_user, thread);
}

typedef struct one_task {
    pthread_t id;
    ith_task_fn task;
    void *user;
    int thread;
} one_task;

static void *run_one(void *user)
{
    one_task *t = user;
    t->task(t->user, t->thread);
    return NULL;
}

/* Runs each task in a thread of its own. */
static void in_threads(void *user, int threads, ith_task_fn task, void *task_user)
{
    one_task all[16];
    note(user, threads);
    for (int thread = 0; thread < threads; thread++) {
        all[thread] = (one_task){.task = task, .user = task_user, .thread = thread};
        pthread_create(&all[thread].id, NULL, run_one, &all[thread]);
    }
    for (int thread = 0; thread < threads; thread++)
        pthread_join(all[thread].id, NULL);
}

/* A wrong pool: it runs one task twice, leaves out others, and asks for tasks that do not exist. */
static void badly(void *user, int threads, ith_task_fn task, void *task_user)
{
    note(user, threads);
    task(task_user, threads - 1);
    task(task_user, threads - 1);
    task(task_user, threads);
    task(task_user, -1);
}

static const ith_parallel_fn pools[] = {NULL, in_turn, in_threads, badly};
enum { POOLS = sizeof pools / sizeof *pools };

/* Makes a context whose loops run on a pool. */
static ith_context *context_on(ith_parallel_fn fn, pool *p)
{
    ith_context *context = NULL;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.parallel = fn, options.parallel_user = p;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    return context;
}

/* ---- One loop -------------------------------------------------------------------------------------------------- */

static void count_task(void *user, int thread)
{
    atomic_fetch_add((atomic_int *)user + thread, 1);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    for (int i = 0; i < POOLS; i++) {
        pool p = {0};
        ith_context *context = context_on(pools[i], &p);
        for (int threads = 1; threads <= 13; threads++) {
            atomic_int counts[13] = {0};
            ith_parallel(context, threads, count_task, counts);
            for (int thread = 0; thread < 13; thread++)
                assert_int_equal(atomic_load(&counts[thread]), thread < threads);
        }
        assert_int_equal(atomic_load(&p.calls), i ? 12 : 0);
        ith_context_destroy(&context);
    }
}

/* ---- Attention ------------------------------------------------------------------------------------------------- */

enum { BATCH = 2, HEADS = 4, DIM = 16, LENGTH = 300, COUNT = BATCH * LENGTH * HEADS * DIM };

typedef struct run {
    ith_attn_options options;
    const float *in;
    float *o;
} run;

static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    const run *r = user;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    int64_t begin, rows;
    ith_share(LENGTH, ith_comm_size(comm), ith_comm_rank(comm), &begin, &rows);
    problem.q_batch_stride = problem.k_batch_stride = problem.v_batch_stride = problem.o_batch_stride =
        (int64_t)LENGTH * HEADS * DIM;
    ith_attn_tensors share = ITH_ATTN_TENSORS_INIT;
    int64_t at = begin * HEADS * DIM;
    share.q = r->in + at, share.k = r->in + COUNT + at, share.v = r->in + 2 * COUNT + at, share.o = r->o + at;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, &r->options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &share);
    ith_plan_destroy(&plan);
    return status;
}

static void the_bits_do_not_depend_on_the_pool(void **state)
{
    (void)state;
    uint64_t seed = 1;
    float *in = random_floats(&seed, 3 * COUNT), *expected = malloc(COUNT * sizeof *in),
          *o = malloc(COUNT * sizeof *in);
    for (int kind = 0; kind < 6; kind++) {
        run r = {ITH_ATTN_OPTIONS_INIT, in, expected};
        r.options.kernel = "f32_ref", r.options.softmax = kind % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        r.options.strategy = kind / 2 == 1 ? ITH_STRATEGY_ULYSSES : kind / 2 == 2 ? ITH_STRATEGY_RING : 0;
        int ranks = kind / 2 ? 2 : 1;
        for (int i = 0; i < POOLS; i++) {
            pool p = {0};
            ith_context *context = context_on(pools[i], &p);
            r.options.threads = 1 + i, r.o = i ? o : expected;
            memset(r.o, 0xff, COUNT * sizeof *o);
            assert_int_equal(ith_run_ranks(context, ranks, ranks, attend, &r), ITH_OK);
            if (i) {
                assert_memory_equal(o, expected, COUNT * sizeof *o);
                assert_true(atomic_load(&p.tasks) == (1 + i) * atomic_load(&p.calls) && atomic_load(&p.calls) > 0);
            }
            ith_context_destroy(&context);
        }
    }
    free(in), free(expected), free(o);
}

static void too_many_threads_are_refused(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plan = NULL;
    problem.heads = 1, problem.head_dim = 8, problem.q_len = problem.kv_len = 8;
    options.threads = 65536;
    assert_int_equal(ith_plan_create(context, &problem, &options, NULL, &plan), ITH_ERR_ARGUMENT);
    int most = 0; /* the error message names the largest legal number */
    if (!strstr(ith_context_error(context), "threads is 65536, and ") ||
        sscanf(strstr(ith_context_error(context), "at most "), "at most %d", &most) != 1)
        fail_msg("%s", ith_context_error(context));
    options.threads = most;
    assert_int_equal(ith_plan_create(context, &problem, &options, NULL, &plan), ITH_OK);
    ith_plan_destroy(&plan);
    options.threads = most + 1;
    assert_int_equal(ith_plan_create(context, &problem, &options, NULL, &plan), ITH_ERR_ARGUMENT);
    options.threads = 3;
    assert_int_equal(ith_plan_create(context, &problem, &options, NULL, &plan), ITH_OK);
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    assert_int_equal(ith_plan_describe(plan, &info), ITH_OK);
    assert_int_equal(info.threads, 3);
    ith_plan_destroy(&plan);
    ith_context_destroy(&context);
}

/* ---- Ranks of different speed ---------------------------------------------------------------------------------- */

static _Thread_local bool is_slow;

/* Runs the tasks in turn. The tasks of a slow rank begin late. */
static void at_its_speed(void *user, int threads, ith_task_fn task, void *task_user)
{
    if (is_slow)
        nap(0.02);
    in_turn(user, threads, task, task_user);
}

/* An ith_rank_fn of 4 ranks, two of which are slow. All values of a head are the same number, which is then its
 * output. */
static ith_status attend_by_chunks(ith_context *context, ith_comm *comm, void *user)
{
    enum { H = 4, D = 8, ROWS = 3, NUMBERS = ROWS * H * D };
    float zeros[NUMBERS] = {0}, v[NUMBERS], o[NUMBERS];
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan *plan = NULL;
    is_slow = ith_comm_rank(comm) / 2 == *(const int *)user;
    for (int i = 0; i < NUMBERS; i++)
        v[i] = (float)(i / D % H + 1);
    problem.heads = H, problem.head_dim = D, problem.q_len = problem.kv_len = 4 * ROWS;
    options.ulysses = options.ring = options.chunks = options.threads = 2;
    options.exchange = ITH_EXCHANGE_IN_PLACE;
    tensors.q = tensors.k = zeros, tensors.v = v, tensors.o = o;
    RANK_TRY(ith_plan_create(context, &problem, &options, comm, &plan));
    RANK_TRY(ith_plan_describe(plan, &info));
    RANK_CHECK(context, info.chunks == 2);
    const ith_status status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    for (int i = 0; i < NUMBERS && !status; i++)
        RANK_CHECK(context, fabsf(o[i] - v[i]) < 1e-5f);
    return status;
}

/* In place, a rank packs its shard of the next chunk only after the slowest rank has read the shard of the chunk
 * before. */
static void a_shard_stays_until_all_have_read_it(void **state)
{
    (void)state;
    pool p = {0};
    ith_context *context = context_on(at_its_speed, &p);
    for (int slow = 0; slow < 2; slow++)
        if (ith_run_ranks(context, 4, 0, attend_by_chunks, &slow))
            fail_msg("%s", ith_context_error(context));
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(the_bits_do_not_depend_on_the_pool),
        cmocka_unit_test(a_shard_stays_until_all_have_read_it),
        cmocka_unit_test(too_many_threads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
