/* SPDX-License-Identifier: Apache-2.0 */
/* If an execution goes wrong, every rank gets an error, and the next right execution works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/context.h"
#include "support/execution_scene.h"
#include "support/in_rank.h"
#include "support/memory.h"
#include "support/times.h"

/* ---- Ranks that do not agree ----------------------------------------------------------------------------------- */

static void swap_plans(rank_group *g, scene *s)
{
    char words[32];
    for (s->odd = 0; s->odd < g->ranks; s->odd++)
        for (s->first_plan = 0; s->first_plan < 2; s->first_plan++) {
            group_run(g, execute_in_rank, s);
            snprintf(words, sizeof words, "rank %d is in execution", s->odd ? s->odd : 1);
            expect_all_refused(g, s, ITH_ERR_ARGUMENT, words, "in the same order");
        }
}

static void plans_are_executed_in_the_same_order(void **state)
{
    (void)state;
    int64_t alike[2] = {24, 24}, different[2] = {200, 24};
    for_each_way(alike, false, false, swap_plans);
    for_each_way(different, false, false, swap_plans);
}

static void make_or_execute(rank_group *g, int rank, void *user)
{
    scene *s = user;
    if (rank != s->odd) {
        execute_in_rank(g, rank, s);
        return;
    }
    ith_attn_problem problem = problem_of(&s->samples[0]);
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(g->contexts[rank], &problem, &s->options, g->comms[rank], &plan);
    note(g, rank, s, plan ? ITH_OK : status); /* a plan after a failure is as wrong as no failure */
}

static void make_among_executions(rank_group *g, scene *s)
{
    for (int odd = 0; odd < g->ranks; odd++) {
        s->odd = odd;
        group_run(g, make_or_execute, s);
        expect_all_refused(g, s, ITH_ERR_ARGUMENT, "is making plan 3", "in the same order");
    }
}

static void making_is_not_executing(void **state)
{
    (void)state;
    int64_t lengths[2] = {24, 24};
    for_each_way(lengths, false, false, make_among_executions);
}

static void spoil_in_rank(rank_group *g, int rank, void *user)
{
    scene *s = user;
    int32_t lengths;
    ith_attn_tensors tensors = tensors_of(&s->samples[0], rank, g->ranks, &lengths);
    if (rank == s->odd)
        s->spoil(&tensors);
    note(g, rank, s, ith_plan_execute(s->plans[0][rank], &tensors));
}

static float other_bias[200];
static uint8_t other_mask[200 * 200];
static float somewhere[4096];

static void no_q(ith_attn_tensors *t)
{
    t->q = NULL;
}
static void no_v(ith_attn_tensors *t)
{
    t->v = NULL;
}
static void o_in_k(ith_attn_tensors *t)
{
    t->o = (void *)t->k;
}
static void no_lengths(ith_attn_tensors *t)
{
    t->kv_lengths = NULL;
}
static void too_long(ith_attn_tensors *t)
{
    *(int32_t *)t->kv_lengths = 1 << 30;
}
static void shorter(ith_attn_tensors *t)
{
    *(int32_t *)t->kv_lengths -= 1;
}
static void biased(ith_attn_tensors *t)
{
    t->key_bias = other_bias;
}
static void masked(ith_attn_tensors *t)
{
    t->mask = other_mask;
}
static void wants_lse(ith_attn_tensors *t)
{
    t->lse = somewhere;
}

static void spoil_tensors(rank_group *g, scene *s)
{
    static const struct {
        void (*spoil)(ith_attn_tensors *);
        const char *words;
        bool names_odd;
    } rows[] = {
        {no_q, ": q is NULL", true},
        {no_v, ": v is NULL", true},
        {o_in_k, ": o overlaps k", true},
        {no_lengths, ": kv_lengths is NULL", true},
        {too_long, "kv_lengths[0] is 1073741824", true},
        {shorter, "kv_lengths on rank", false},
        {biased, "key_bias on rank", false},
        {masked, "mask on rank", false},
        {wants_lse, "lse must be given on every rank or on none", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (s->odd = 0; s->odd < g->ranks; s->odd++) {
            char name[16] = "rank";
            s->spoil = rows[i].spoil;
            group_run(g, spoil_in_rank, s);
            if (rows[i].names_odd)
                snprintf(name, sizeof name, "rank %d: ", s->odd);
            expect_all_refused(g, s, ITH_ERR_ARGUMENT, rows[i].words, name);
        }
}

static void tensors_are_right_and_the_same(void **state)
{
    (void)state;
    int64_t lengths[2] = {40, 24};
    other_bias[3] = 1;
    for_each_way(lengths, true, true, spoil_tensors);
}

static void copied_mask(rank_group *g, int rank, void *user)
{
    scene *s = user;
    int32_t lengths;
    size_t bytes = (size_t)(s->samples[0].length * s->samples[0].length);
    ith_attn_tensors tensors = tensors_of(&s->samples[0], rank, g->ranks, &lengths);
    uint8_t *copy = memcpy(malloc(bytes), tensors.mask, bytes);
    copy[bytes - 1] = rank == s->odd ? 0 : copy[bytes - 1];
    tensors.mask = copy;
    note(g, rank, s, ith_plan_execute(s->plans[0][rank], &tensors));
    free(copy);
}

static void copy_masks(rank_group *g, scene *s)
{
    group_run(g, copied_mask, s);
    for (int rank = 0; rank < g->ranks; rank++)
        assert_int_equal(s->seen[rank], ITH_OK);
    expect_mean(&s->samples[0]);
    s->odd = g->ranks - 1;
    group_run(g, copied_mask, s);
    expect_all_refused(g, s, ITH_ERR_ARGUMENT, "mask on rank", "every rank needs all of it");
}

static void masks_may_be_copies(void **state)
{
    (void)state;
    int64_t lengths[2] = {100, 24};
    for_each_way(lengths, false, true, copy_masks);
}

/* The parts of a tensor that one rank changes: the last number, which belongs to the last batch entry and head. */
typedef enum change { CHANGE_NOTHING, CHANGE_LENGTH, CHANGE_BIAS, CHANGE_BYTE, CHANGE_NUMBER, CHANGES } change;

/* An ith_rank_fn; user: a change, which rank 1 makes. A mask of floats has more than one piece that is hashed. */
static ith_status change_last_number(ith_context *context, ith_comm *comm, void *user)
{
    enum { BATCH = 2, HEADS = 2, LENGTH = 300, NUMBERS = BATCH * HEADS * LENGTH, MASK = NUMBERS * LENGTH };
    const change made = *(const change *)user;
    float *mask = ith_alloc_zero(context, MASK, sizeof *mask, "a mask");
    float x[NUMBERS] = {0}, o[NUMBERS], bias[BATCH * LENGTH] = {0};
    int32_t lengths[BATCH] = {LENGTH, LENGTH};
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    RANK_CHECK(context, mask);
    problem.batch = BATCH, problem.heads = HEADS, problem.head_dim = 1, problem.q_len = problem.kv_len = LENGTH;
    problem.has_kv_lengths = problem.has_key_bias = true;
    problem.mask = made == CHANGE_BYTE ? ITH_MASK_BOOL : ITH_MASK_ADDITIVE;
    problem.mask_batch = BATCH, problem.mask_heads = HEADS;
    if (made == CHANGE_BYTE)
        memset(mask, 1, MASK);
    if (ith_comm_rank(comm) == 1) {
        lengths[BATCH - 1] -= made == CHANGE_LENGTH;
        bias[BATCH * LENGTH - 1] = made == CHANGE_BIAS;
        mask[MASK - 1] = made == CHANGE_NUMBER;
        if (made == CHANGE_BYTE)
            ((char *)mask)[MASK - 1] = 0;
    }
    tensors.q = tensors.k = tensors.v = x, tensors.o = o;
    tensors.kv_lengths = lengths, tensors.key_bias = bias, tensors.mask = mask;
    RANK_TRY(ith_plan_create(context, &problem, NULL, comm, &plan));
    const ith_status status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    ith_free(context, mask);
    return status;
}

static void the_last_numbers_are_compared(void **state)
{
    (void)state;
    static const char *const words[CHANGES] = {[CHANGE_LENGTH] = "kv_lengths on rank 1 differs",
                                               [CHANGE_BIAS] = "key_bias on rank 1 differs",
                                               [CHANGE_BYTE] = "mask on rank 1 differs",
                                               [CHANGE_NUMBER] = "mask on rank 1 differs"};
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (change made = CHANGE_NOTHING; made < CHANGES; made++) {
        const ith_status status = ith_run_ranks(context, 2, 2, change_last_number, &made);
        assert_int_equal(status, made == CHANGE_NOTHING ? ITH_OK : ITH_ERR_ARGUMENT);
        if (status)
            assert_non_null(strstr(ith_context_error(context), words[made]));
    }
    ith_context_destroy(&context);
}

/* ---- Several threads ------------------------------------------------------------------------------------------- */

/* A pool that runs a loop's tasks in turn. While `holds` is set, a loop first waits: an execution on this pool lasts as
 * long as the test wants. */
typedef struct holding_pool {
    atomic_bool holds, waits; /* waits: a loop has come */
} holding_pool;

static void run_when_let(void *user, int threads, ith_task_fn task, void *task_user)
{
    holding_pool *pool = user;
    atomic_store(&pool->waits, true);
    while (atomic_load(&pool->holds))
        nap(1e-3);
    for (int thread = 0; thread < threads; thread++)
        task(task_user, thread);
}

/* One execution of a plan, on a thread of its own. */
typedef struct long_execution {
    ith_plan *plan;
    sample sample;
    ith_status status;
} long_execution;

static void *execute_long(void *argument)
{
    long_execution *e = argument;
    int32_t lengths;
    ith_attn_tensors tensors = tensors_of(&e->sample, 0, 1, &lengths);
    e->status = ith_plan_execute(e->plan, &tensors);
    return NULL;
}

/* While another thread executes e->plan, an execution of `plan` is refused. Afterwards it works. */
static void execute_during(ith_context *root, holding_pool *pool, long_execution *e, ith_plan *plan)
{
    sample own;
    int32_t lengths;
    pthread_t thread;
    sample_create(&own, 600, 4, 64);
    ith_attn_tensors tensors = tensors_of(&own, 0, 1, &lengths);
    atomic_store(&pool->waits, false);
    atomic_store(&pool->holds, true);
    assert_int_equal(pthread_create(&thread, NULL, execute_long, e), 0);
    for (int i = 0; i < 60000 && !atomic_load(&pool->waits); i++)
        nap(1e-3);
    assert_true(atomic_load(&pool->waits));
    assert_int_equal(ith_plan_execute(plan, &tensors), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(root), "another thread"));
    atomic_store(&pool->holds, false);
    pthread_join(thread, NULL);
    assert_int_equal(e->status, ITH_OK);
    expect_mean(&e->sample);
    assert_int_equal(ith_plan_execute(plan, &tensors), ITH_OK);
    expect_mean(&own);
    sample_destroy(&own);
}

static void only_one_thread_at_a_time(void **state)
{
    (void)state;
    /* kind 0: one plan of one rank; 1: one plan on a communicator; 2: two plans on a communicator. */
    for (int kind = 0; kind < 3; kind++) {
        ith_context *root = NULL;
        rank_group g;
        holding_pool pool = {0};
        long_execution e = {0};
        ith_plan *second = NULL;
        ith_context_options context_options = ITH_CONTEXT_OPTIONS_INIT;
        context_options.parallel = run_when_let, context_options.parallel_user = &pool;
        assert_int_equal(ith_context_create(&context_options, &root), ITH_OK);
        assert_int_equal(group_create(&g, root, 1), ITH_OK);
        sample_create(&e.sample, 600, 4, 64);
        ith_attn_problem problem = problem_of(&e.sample);
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        options.threads = 2; /* a loop of one task does not use the pool */
        ith_comm *comm = kind ? g.comms[0] : NULL;
        assert_int_equal(ith_plan_create(root, &problem, &options, comm, &e.plan), ITH_OK);
        if (kind == 2)
            assert_int_equal(ith_plan_create(root, &problem, &options, comm, &second), ITH_OK);
        execute_during(root, &pool, &e, kind == 2 ? second : e.plan);
        ith_plan_destroy(&second);
        ith_plan_destroy(&e.plan);
        sample_destroy(&e.sample);
        group_destroy(&g);
        ith_context_destroy(&root);
    }
}

/* ---- Any order of destruction ---------------------------------------------------------------------------------- */

enum { CONTEXTS = 0, COMMS = 2, PLANS = 4, THINGS = 6 };

/* Sets `order` to permutation number n of THINGS things. */
static void permute(int n, int order[THINGS])
{
    int left[THINGS] = {0, 1, 2, 3, 4, 5};
    for (int i = 0; i < THINGS; i++) {
        int at = n % (THINGS - i);
        n /= THINGS - i;
        order[i] = left[at];
        memmove(left + at, left + at + 1, sizeof(int) * (size_t)(THINGS - i - at - 1));
    }
}

static void destroy_in_any_order(void **state)
{
    (void)state;
    sample all;
    sample_create(&all, 20, 4, 8);
    for (int n = 0; n < 720; n++) {
        failing_allocator allocator;
        ith_context *root = failing_context(&allocator, -1);
        rank_group g;
        scene s = {.options = ITH_ATTN_OPTIONS_INIT, .odd = -1};
        int order[THINGS];
        assert_int_equal(group_create(&g, root, 2), ITH_OK);
        s.samples[0] = s.samples[1] = all;
        s.options.kernel = "f32_ref";
        s.options.strategy = n % 2 ? ITH_STRATEGY_RING : ITH_STRATEGY_ULYSSES;
        group_run(&g, plan_in_rank, &s);
        for (int rank = 0; rank < 2; rank++)
            ith_plan_destroy(&s.plans[1][rank]);
        permute(n, order);
        for (int i = 0; i < THINGS; i++) {
            int which = order[i] % 2;
            if (order[i] >= PLANS)
                ith_plan_destroy(&s.plans[0][which]);
            else if (order[i] >= COMMS)
                ith_comm_destroy(&g.comms[which]);
            else
                ith_context_destroy(&g.contexts[which]);
            int32_t lengths;
            ith_attn_tensors tensors = tensors_of(&all, which, 2, &lengths);
            if (order[i] / 2 == COMMS / 2 && s.plans[0][which])
                assert_int_equal(ith_plan_execute(s.plans[0][which], &tensors), ITH_ERR_ARGUMENT);
        }
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
    sample_destroy(&all);
}

static void a_plan_outlives_its_context(void **state)
{
    (void)state;
    ith_context *root = NULL, *clone = NULL;
    ith_plan *plan = NULL;
    sample s;
    int32_t lengths;
    sample_create(&s, 20, 2, 8);
    ith_attn_problem problem = problem_of(&s);
    ith_attn_tensors tensors = tensors_of(&s, 0, 1, &lengths);
    ith_context_create(NULL, &root);
    assert_int_equal(ith_context_clone(root, &clone), ITH_OK);
    ith_context_destroy(&root);
    assert_int_equal(ith_plan_create(clone, &problem, NULL, NULL, &plan), ITH_OK);
    ith_context_destroy(&clone);
    assert_int_equal(ith_plan_execute(plan, &tensors), ITH_OK);
    expect_mean(&s);
    ith_plan_destroy(&plan);
    sample_destroy(&s);
}

/* A group of one rank ends, too: its calls fail with the status and the sentence of ith_comm_abort. */
static void a_group_of_one_rank_ends(void **state)
{
    (void)state;
    ith_context *root = NULL;
    ith_comm *comm = NULL;
    ith_plan *plan = NULL, *late = NULL;
    sample s;
    int32_t lengths;
    sample_create(&s, 20, 2, 8);
    ith_attn_problem problem = problem_of(&s);
    ith_attn_tensors tensors = tensors_of(&s, 0, 1, &lengths);
    ith_context_create(NULL, &root);
    assert_int_equal(ith_comm_create_local(&root, 1, &comm), ITH_OK);
    assert_int_equal(ith_plan_create(root, &problem, NULL, comm, &plan), ITH_OK);
    assert_int_equal(ith_plan_execute(plan, &tensors), ITH_OK);
    expect_mean(&s);
    ith_fail(root, ITH_ERR_IO, "the disk is full");
    ith_comm_abort(comm, ITH_ERR_IO);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ith_plan_execute(plan, &tensors), ITH_ERR_IO);
        assert_ptr_equal(strstr(ith_context_error(root), "the disk is full; the group has ended"),
                         ith_context_error(root));
        assert_int_equal(ith_plan_create(root, &problem, NULL, comm, &late), ITH_ERR_IO);
        assert_null(late);
        assert_ptr_equal(strstr(ith_context_error(root), "the disk is full; the group has ended"),
                         ith_context_error(root));
    }
    ith_plan_destroy(&plan);
    ith_comm_destroy(&comm);
    ith_context_destroy(&root);
    sample_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_executed_in_the_same_order),
        cmocka_unit_test(making_is_not_executing),
        cmocka_unit_test(tensors_are_right_and_the_same),
        cmocka_unit_test(masks_may_be_copies),
        cmocka_unit_test(the_last_numbers_are_compared),
        cmocka_unit_test(only_one_thread_at_a_time),
        cmocka_unit_test(destroy_in_any_order),
        cmocka_unit_test(a_plan_outlives_its_context),
        cmocka_unit_test(a_group_of_one_rank_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
