/* SPDX-License-Identifier: Apache-2.0 */
/* Execution that goes wrong is an error on every rank, and the next right one works. */
#include <math.h>
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/context.h"
#include "support/memory.h"
#include "support/rank_group.h"

#define SENTENCE 1024
#define UNTOUCHED (-77.0f)

static void nap(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&time, NULL);
}

/* ---- Plans whose results are known ----------------------------------------------------------------------------- */

/* Queries are 0, so that every key counts alike, and value j is j: a row of o is the mean of the keys' numbers. */
typedef struct sample {
    int64_t length, heads, dim;
    float *q, *k, *v, *o, *lse, *bias; /* whole */
    uint8_t *mask;                     /* [length, length] */
    int32_t kv_length;
} sample;

static ith_attn_problem problem_of(const sample *s)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = s->heads, problem.head_dim = s->dim;
    problem.q_len = problem.kv_len = s->length;
    problem.has_kv_lengths = true;
    problem.has_key_bias = s->bias != NULL;
    problem.mask = s->mask ? ITH_MASK_BOOL : ITH_MASK_NONE;
    return problem;
}

static void sample_create(sample *s, int64_t length, int64_t heads, int64_t dim)
{
    int64_t row = heads * dim;
    size_t count = (size_t)(length * row);
    *s = (sample){.length = length, .heads = heads, .dim = dim, .kv_length = (int32_t)length};
    s->q = calloc(count, sizeof(float)), s->k = calloc(count, sizeof(float));
    s->v = calloc(count, sizeof(float)), s->o = calloc(count, sizeof(float));
    s->lse = calloc((size_t)(length * heads), sizeof(float));
    for (size_t i = 0; i < count; i++) {
        s->v[i] = (float)((int64_t)i / row);
        s->o[i] = UNTOUCHED;
    }
}

static void sample_destroy(sample *s)
{
    free(s->q), free(s->k), free(s->v), free(s->o), free(s->lse), free(s->bias), free(s->mask);
}

/* One rank's share; `lengths` is the caller's. */
static ith_attn_tensors tensors_of(sample *s, int rank, int ranks, int32_t *lengths)
{
    int64_t begin, rows, row = s->heads * s->dim;
    ith_share(s->length, ranks, rank, &begin, &rows);
    *lengths = s->kv_length;
    return (ith_attn_tensors){.struct_size = sizeof(ith_attn_tensors),
                              .q = s->q + begin * row,
                              .k = s->k + begin * row,
                              .v = s->v + begin * row,
                              .o = s->o + begin * row,
                              .kv_lengths = lengths,
                              .key_bias = s->bias,
                              .mask = s->mask};
}

static bool untouched(const sample *s)
{
    for (int64_t i = 0; i < s->length * s->heads * s->dim; i++)
        if (s->o[i] != UNTOUCHED)
            return false;
    return true;
}

/* Checks o, and forgets it. */
static void expect_mean(sample *s)
{
    double mean = (double)(s->kv_length - 1) / 2;
    for (int64_t i = 0; i < s->length * s->heads * s->dim; i++) {
        if (fabs((double)s->o[i] - mean) > 1e-4 * mean)
            fail_msg("o[%lld] is %g, not %g", (long long)i, (double)s->o[i], mean);
        s->o[i] = UNTOUCHED;
    }
}

/* What ranks do in turn. */
typedef struct scene {
    ith_attn_options options;
    sample samples[2];
    ith_plan *plans[2][GROUP_RANKS];
    int odd; /* the rank that does something else */
    int step;
    void (*spoil)(ith_attn_tensors *tensors);
    int first_plan; /* the others execute this one */
    ith_status seen[GROUP_RANKS];
    char sentences[GROUP_RANKS][SENTENCE];
} scene;

static void plan_in_rank(rank_group *g, int rank, void *user)
{
    scene *s = user;
    for (int i = 0; i < 2; i++) {
        ith_attn_problem problem = problem_of(&s->samples[i]);
        s->seen[rank] = ith_plan_create(g->contexts[rank], &problem, &s->options, g->comms[rank], &s->plans[i][rank]);
        if (s->seen[rank])
            return;
    }
}

static void note(const rank_group *g, int rank, scene *s, ith_status status)
{
    s->seen[rank] = status;
    snprintf(s->sentences[rank], SENTENCE, "%s", ith_context_error(g->contexts[rank]));
}

static void execute_in_rank(rank_group *g, int rank, void *user)
{
    scene *s = user;
    int plan = rank == s->odd ? 1 - s->first_plan : s->first_plan;
    int32_t lengths;
    ith_attn_tensors tensors = tensors_of(&s->samples[plan], rank, g->ranks, &lengths);
    note(g, rank, s, ith_plan_execute(s->plans[plan][rank], &tensors));
}

/* All ranks failed alike, and say so with these words; nothing was written. */
static void expect_all_refused(const rank_group *g, const scene *s, ith_status status, const char *words,
                               const char *more)
{
    for (int rank = 0; rank < g->ranks; rank++) {
        if (s->seen[rank] != status || !strstr(s->sentences[rank], words) || !strstr(s->sentences[rank], more))
            print_error("rank %d of %d: %s: %s\n", rank, g->ranks, ith_status_name(s->seen[rank]), s->sentences[rank]);
        assert_int_equal(s->seen[rank], status);
        assert_non_null(strstr(s->sentences[rank], words));
        assert_non_null(strstr(s->sentences[rank], more));
        assert_string_equal(s->sentences[rank], s->sentences[0]);
    }
    assert_true(untouched(&s->samples[0]) && untouched(&s->samples[1]));
}

/* Both plans work on all ranks. */
static void expect_right(rank_group *g, scene *s)
{
    s->odd = -1;
    for (s->first_plan = 0; s->first_plan < 2; s->first_plan++) {
        group_run(g, execute_in_rank, s);
        for (int rank = 0; rank < g->ranks; rank++)
            if (s->seen[rank])
                fail_msg("rank %d: %s", rank, s->sentences[rank]);
        expect_mean(&s->samples[s->first_plan]);
    }
    s->first_plan = 0;
}

typedef void (*scene_fn)(rank_group *g, scene *s);

/* Every strategy and way of exchange, on two to four ranks. */
static void for_each_way(int64_t lengths[2], bool bias, bool mask, scene_fn act)
{
    for (int strategy = ITH_STRATEGY_ULYSSES; strategy <= ITH_STRATEGY_ULYSSES_RING; strategy++)
        for (int exchange = ITH_EXCHANGE_IN_PLACE; exchange <= ITH_EXCHANGE_COPY; exchange++)
            for (int ranks = 2; ranks <= 4; ranks++) {
                scene s = {.options = ITH_ATTN_OPTIONS_INIT, .odd = -1};
                rank_group g;
                ith_context *root = NULL;
                s.options.strategy = (ith_strategy)strategy;
                s.options.exchange = (ith_exchange_mode)exchange;
                s.options.softmax = ranks % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
                assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
                assert_int_equal(group_create(&g, root, ranks), ITH_OK);
                for (int i = 0; i < 2; i++) {
                    sample_create(&s.samples[i], lengths[i], 4, 8);
                    if (bias)
                        s.samples[i].bias = calloc((size_t)lengths[i], sizeof(float));
                    if (mask)
                        s.samples[i].mask =
                            memset(malloc((size_t)(lengths[i] * lengths[i])), 1, (size_t)(lengths[i] * lengths[i]));
                }
                group_run(&g, plan_in_rank, &s);
                for (int rank = 0; rank < ranks; rank++)
                    assert_int_equal(s.seen[rank], ITH_OK);
                act(&g, &s);
                expect_right(&g, &s);
                for (int i = 0; i < 2; i++) {
                    for (int rank = 0; rank < ranks; rank++)
                        ith_plan_destroy(&s.plans[i][rank]);
                    sample_destroy(&s.samples[i]);
                }
                group_destroy(&g);
                assert_int_equal(ith_context_bytes(root), 0);
                ith_context_destroy(&root);
            }
}

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
    note(g, rank, s, ith_plan_create(g->contexts[rank], &problem, &s->options, g->comms[rank], &plan));
    assert_null(plan);
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
    expect_all_refused(g, s, ITH_ERR_ARGUMENT, "mask on rank", "the same on every rank");
}

static void masks_may_be_copies(void **state)
{
    (void)state;
    int64_t lengths[2] = {100, 24};
    for_each_way(lengths, false, true, copy_masks);
}

/* ---- Several threads ------------------------------------------------------------------------------------------- */

typedef struct pair {
    rank_group *group;
    ith_plan *plans[2];
    sample samples[2];
    atomic_bool done;
    int refused;
} pair;

static void *execute_all_the_time(void *argument)
{
    pair *p = argument;
    int32_t lengths;
    ith_attn_tensors tensors = tensors_of(&p->samples[1], 0, 1, &lengths);
    omp_set_num_threads(1);
    while (!atomic_load(&p->done)) {
        ith_status status = ith_plan_execute(p->plans[1], &tensors);
        p->refused += status == ITH_ERR_ARGUMENT;
        nap(1e-4);
    }
    return NULL;
}

static void only_one_thread_at_a_time(void **state)
{
    (void)state;
    /* One plan of one rank; one plan on a communicator; two plans on a communicator. */
    for (int kind = 0; kind < 3; kind++) {
        ith_context *root = NULL;
        rank_group g;
        pair p = {.group = &g};
        int32_t lengths;
        pthread_t thread;
        ith_context_create(NULL, &root);
        assert_int_equal(group_create(&g, root, 1), ITH_OK);
        for (int i = 0; i < 2; i++)
            sample_create(&p.samples[i], 600, 4, 64);
        ith_attn_problem problem = problem_of(&p.samples[0]);
        ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
        options.kernel = "f32_ref"; /* slow */
        omp_set_num_threads(1);
        for (int i = 0; i < 1 + (kind == 2); i++)
            assert_int_equal(ith_plan_create(root, &problem, &options, kind ? g.comms[0] : NULL, &p.plans[i]), ITH_OK);
        if (kind < 2)
            p.plans[1] = p.plans[0];
        ith_attn_tensors tensors = tensors_of(&p.samples[0], 0, 1, &lengths);
        pthread_create(&thread, NULL, execute_all_the_time, &p);
        int right = 0;
        for (int i = 0; i < 20000 && !(right && i > 200); i++) {
            right += ith_plan_execute(p.plans[0], &tensors) == ITH_OK;
            nap(1e-4);
        }
        atomic_store(&p.done, true);
        pthread_join(thread, NULL);
        assert_true(right > 0 && p.refused > 0);
        expect_mean(&p.samples[0]);
        assert_non_null(strstr(ith_context_error(root), "another thread"));
        ith_plan_destroy(&p.plans[0]);
        if (kind == 2)
            ith_plan_destroy(&p.plans[1]);
        for (int i = 0; i < 2; i++)
            sample_destroy(&p.samples[i]);
        group_destroy(&g);
        ith_context_destroy(&root);
    }
}

/* ---- Any order of destruction ---------------------------------------------------------------------------------- */

enum { CONTEXTS = 0, COMMS = 2, PLANS = 4, THINGS = 6 };

/* The n-th order of THINGS things. */
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

/* ---- Cancelling ------------------------------------------------------------------------------------------------ */

#define LONG_LENGTH 60000 /* keys: minutes of work in plain C, which is cut short by kv_lengths where it must end */
#define SOON 1.0          /* seconds; a tenth of one on a machine that does nothing else */

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
    if (rank == g->ranks - 1) /* the last thread cancels */
        atomic_store(&c->begun, true);
    execute_in_rank(g, rank, s);
    double now = ith_clock_seconds();
    if (now > atomic_load(&c->latest)) /* nearly */
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

static void cancel_one(rank_group *g, scene *s, int rank, double at)
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
    if (late > SOON)
        fail_msg("%.3f s after it was cancelled", late);
    s->samples[0].kv_length = 9;
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
    for (int way = 0; way < 12; way++) {
        scene s = {.options = ITH_ATTN_OPTIONS_INIT, .odd = -1};
        rank_group g;
        ith_context *root = NULL;
        int ranks = way < 2 ? 1 : 2 + way % 3;
        s.options.strategy = ranks == 1 ? ITH_STRATEGY_SINGLE : (ith_strategy)(ITH_STRATEGY_ULYSSES + way / 2 % 3);
        s.options.exchange = ranks == 1 ? ITH_EXCHANGE_AUTO : (ith_exchange_mode)(ITH_EXCHANGE_IN_PLACE + way % 2);
        s.options.softmax = way % 4 == 3 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        s.options.kernel = "f32_ref";
        ith_context_create(NULL, &root);
        assert_int_equal(group_create(&g, root, ranks), ITH_OK);
        s.samples[0] = s.samples[1] = all;
        group_run(&g, plan_in_rank, &s);
        for (int i = 0; i < 2; i++)
            cancel_one(&g, &s, i % ranks, i * 0.03);
        s.samples[0].kv_length = 9;
        run_again(&g, &s);
        ith_plan_cancel(s.plans[0][ranks - 1]); /* the next one */
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

/* Of one head rank 0 has all the work. Returns how long it took. */
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
        if (s.seen[rank])
            fail_msg("rank %d, with %.3f s: %s", rank, limit, s.sentences[rank]);
    expect_mean(&s.samples[0]);
    for (int i = 0; i < 4; i++)
        ith_plan_destroy(&s.plans[i / 2][i % 2]);
    group_destroy(&g);
    ith_context_destroy(&root);
    sample_destroy(&s.samples[0]);
    return seconds;
}

/* Seconds. A busy machine may leave a rank without a processor, and so without a sign of life, for a part of it. */
#define LONG 1.2

static void who_computes_is_alive(void **state)
{
    (void)state;
    for (int exchange = ITH_EXCHANGE_IN_PLACE; exchange <= ITH_EXCHANGE_COPY; exchange++) {
        double seconds = 0;
        int64_t length = 1000;
        while (seconds < LONG && length < 20000) {
            length += length / 2;
            seconds = compute_on_one(length, (ith_exchange_mode)exchange, 600);
        }
        compute_on_one(length, (ith_exchange_mode)exchange, 0.4 * seconds);
    }
}

/* What a forked child sees; 0: what it should. */
static int in_child(ith_context *context, ith_plan *plan, const ith_attn_problem *problem, ith_attn_tensors *tensors)
{
    ith_context *own = NULL;
    ith_plan *made = NULL;
    alarm(20);
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
#if defined(__SANITIZE_THREAD__)
    skip();
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    skip();
#endif
#endif
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
        cmocka_unit_test(plans_are_executed_in_the_same_order),
        cmocka_unit_test(making_is_not_executing),
        cmocka_unit_test(tensors_are_right_and_the_same),
        cmocka_unit_test(masks_may_be_copies),
        cmocka_unit_test(only_one_thread_at_a_time),
        cmocka_unit_test(destroy_in_any_order),
        cmocka_unit_test(a_plan_outlives_its_context),
        cmocka_unit_test(executions_are_cancelled),
        cmocka_unit_test(a_signal_handler_may_cancel),
        cmocka_unit_test(who_computes_is_alive),
        cmocka_unit_test(a_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
