/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on a device against the definition in double, with the bounds of plans on the processor: every strategy on 1 to
 * 16 ranks that share the device, and every kind of problem. ITHACA_TEST_DEVICE names the device. On a GPU the groups
 * of cases stop after ITHACA_TEST_SECONDS (60) in all, and print the number of cases that ran. ITHACA_PLAN_STEP=n
 * leaves out most plans of the small problem: it takes all plans on one rank, and every n-th plan on several ranks. */
#include "base/clock.h"
#include "device/device_fixture.h"
#include "support/attention_check.h"
#include "support/compare.h"
#include "support/in_rank.h"
#include "support/keyless_case.h"
#include "support/random_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16 };

/* ---- Groups of cases --------------------------------------------------------------------------------------------- */

/* Cases that are reported in one line. */
typedef struct case_group {
    const char *name;
    int done, all;
    double begin, seconds; /* seconds: no case begins after this time; 0: no limit */
    double worst;          /* the largest error in units of its bound */
} case_group;

static case_group begin_group(const char *name, int all, double share)
{
    const char *wanted = getenv("ITHACA_TEST_SECONDS");
    const double seconds = wanted ? atof(wanted) : 60;
    return (case_group){name, 0, all, ith_clock_seconds(), device_fake ? 0 : share * seconds, 0};
}

/* Whether the time of the group allows another case. */
static bool goes_on(const case_group *g)
{
    return g->done < g->all && (g->seconds == 0 || ith_clock_seconds() - g->begin < g->seconds);
}

/* Runs a case and compares it with the truth. */
static void run_case(case_group *g, attention_case *c, int ranks, const float *o, const float *lse, uint32_t seed)
{
    const int64_t count = c->problem.batch * c->problem.heads * c->problem.q_len * c->problem.head_dim;
    check_run(context, c, ranks);
    check_result(c, o, lse, seed);
    g->worst = fmax(g->worst, relative_l2(c->o, o, count) / case_bound(c));
}

static void end_group(const case_group *g)
{
    printf("%s: %d of %d cases, largest error %.2f of its bound, %.1f s\n", g->name, g->done, g->all, g->worst,
           ith_clock_seconds() - g->begin);
    fflush(stdout);
    assert_true(g->done > 0);
}

/* Arrays for the truth of a case. */
typedef struct truth {
    float *o, *lse;
} truth;

static truth find_truth(attention_case *c)
{
    const int64_t rows = c->problem.batch * c->problem.heads * c->problem.q_len;
    truth t = {malloc((size_t)(rows * c->problem.head_dim + 1) * sizeof(float)),
               malloc((size_t)(rows + 1) * sizeof(float))};
    case_oracle(c, t.o, t.lse);
    return t;
}

static void free_truth(truth *t)
{
    free(t->o), free(t->lse);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Whether the case has a plan with a kernel of the device. */
static bool takes(const attention_case *c, const char *kernel, int ranks)
{
    ith_attn_problem problem = c->problem;
    ith_attn_options options = c->options;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    if (c->gap) {
        problem.q_row_stride = problem.o_row_stride = problem.heads * problem.head_dim + c->gap;
        problem.k_row_stride = problem.v_row_stride = case_kv_heads(c) * problem.head_dim + c->gap;
    }
    options.kernel = kernel;
    return ith_plan_predict(context, &problem, &options, ranks, 0, true, &info) == ITH_OK;
}

/* The first kernel of the device that takes the case, from kernel number `number` on; after the last comes the
 * first. */
static const char *kernel_for(const attention_case *c, int number, int ranks)
{
    const ith_device_kernel *const *kernels = device_use->module->kernels;
    int count = 0;
    while (kernels[count])
        count++;
    for (int i = 0; i < count; i++)
        if (takes(c, kernels[(number + i) % count]->name, ranks))
            return kernels[(number + i) % count]->name;
    fail_msg("no kernel takes a case: %s", ith_context_error(context));
    return NULL;
}

/* ---- Every plan of a small problem ------------------------------------------------------------------------------- */

static const int meshes[][2] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 2}, {2, 4}, {4, 2}};
enum {
    MESHES = sizeof meshes / sizeof *meshes,
    SOFTMAXES = 3,
    CHUNKS = 3,
    PLANS = MESHES * 2 * CHUNKS * 2 * SOFTMAXES
};

/* Sets the options of plan number `index`. Returns false if another number has the same plan. *softmax: 0 to SOFTMAXES
 * - 1. */
static bool small_plan(int index, ith_attn_options *o, int *ranks, int *softmax)
{
    const int *mesh = meshes[index / (2 * CHUNKS * 2 * SOFTMAXES)];
    *softmax = index % SOFTMAXES;
    const int fold = index / SOFTMAXES % 2, chunk = index / (SOFTMAXES * 2) % CHUNKS;
    const int direction = index / (SOFTMAXES * 2 * CHUNKS) % 2;
    *ranks = mesh[0] * mesh[1];
    o->ulysses = mesh[0], o->ring = mesh[1];
    o->strategy = *ranks == 1    ? ITH_STRATEGY_SINGLE
                  : mesh[1] == 1 ? ITH_STRATEGY_ULYSSES
                  : mesh[0] == 1 ? ITH_STRATEGY_RING
                                 : ITH_STRATEGY_ULYSSES_RING;
    o->direction = direction ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
    o->chunks = chunk + 1;
    o->fold = fold ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
    o->softmax = *softmax ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
    o->smooth = *softmax == 2 ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
    return !(mesh[1] == 1 && direction) && !(mesh[0] == 1 && (fold || chunk));
}

/* The plan at a position of the order: first plans of one rank, then plans of all other meshes in turn, so that a group
 * that ends early has run some of each. */
static int plan_at(int position)
{
    const int of_mesh = PLANS / MESHES;
    if (position < of_mesh)
        return position;
    position -= of_mesh;
    return (1 + position % (MESHES - 1)) * of_mesh + position / (MESHES - 1) * 5 % of_mesh;
}

/* Runs all plans of one kernel. Plans that keep the keys in one piece (single, ulysses) have the same bits. */
static void every_plan(ith_dtype dtype, case_kind kind, int kernel, double share)
{
    attention_case c = {
        .problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .kind = kind, .wants_lse = true};
    ith_attn_problem *p = &c.problem;
    p->batch = 2, p->heads = 6, p->kv_heads = 3, p->head_dim = device_fake ? 32 : 64;
    p->q_len = device_fake ? 23 : 150, p->kv_len = device_fake ? 37 : 330, p->dtype = dtype;
    case_fill(&c, (uint64_t)kernel + 2, 0);
    const size_t bytes = (size_t)(p->batch * p->heads * p->q_len * p->head_dim * ith_dtype_bytes(dtype));
    const char *wanted = getenv("ITHACA_PLAN_STEP");
    const int step = wanted && atoi(wanted) > 0 ? atoi(wanted) : 1;
    char name[96], *singles = malloc(bytes * SOFTMAXES);
    c.options.kernel = kernel_for(&c, kernel, 1);
    snprintf(name, sizeof name, "plans of %s with %s, one in %d", c.options.kernel, ith_dtype_name(dtype), step);
    truth t = find_truth(&c);
    case_group group = begin_group(name, PLANS, share);
    for (; goes_on(&group); group.done++) {
        int ranks, softmax;
        if (group.done >= PLANS / MESHES && group.done % step)
            continue;
        if (!small_plan(plan_at(group.done), &c.options, &ranks, &softmax) || !takes(&c, c.options.kernel, ranks))
            continue; /* a named kernel may refuse a softmax */
        run_case(&group, &c, ranks, t.o, t.lse, 0);
        if (ranks == 1)
            memcpy(singles + (size_t)softmax * bytes, c.o_bits, bytes);
        if (c.options.ring == 1)
            assert_memory_equal(c.o_bits, singles + (size_t)softmax * bytes, bytes);
    }
    end_group(&group);
    free_truth(&t);
    free(singles);
    case_free(&c);
}

static void every_legal_plan(void **state)
{
    (void)state;
    static const struct {
        ith_dtype dtype;
        case_kind kind;
        int kernel;
    } all[] = {{ITH_BF16, CASE_UNEVEN, 0}, {ITH_F32, CASE_UNEVEN, 0}, {ITH_F16, CASE_NORMAL, 0},
               {ITH_BF16, CASE_OFFSET, 1}, {ITH_F16, CASE_UNEVEN, 1}, {ITH_BF16, CASE_UNEVEN, 2}};
    const size_t count = device_fake ? 3 : sizeof all / sizeof *all; /* the fake device's kernels share their code */
    for (size_t i = 0; i < count; i++)
        every_plan(all[i].dtype, all[i].kind, all[i].kernel, 0.08);
}

/* ---- Random problems --------------------------------------------------------------------------------------------- */

/* A problem that is not too large for float64. */
static attention_case affordable_case(uint32_t seed, int64_t longest)
{
    const int64_t most = device_fake ? 1000000 : 40000000; /* queries x keys x head_dim x heads */
    for (;; longest = longest * 3 / 4) {
        attention_case c = random_case(seed, longest);
        const ith_attn_problem *p = &c.problem;
        if (p->q_len * p->kv_len * p->head_dim * p->heads * p->batch <= most)
            return c;
        case_free(&c);
    }
}

static void random_problems_under_random_plans(void **state)
{
    (void)state;
    enum { PLANS_PER_PROBLEM = 3 };
    const char *wanted = getenv("ITHACA_PROBLEMS");
    uint64_t r = 21;
    draw_table *table = malloc(sizeof *table);
    draw_init(context, table);
    case_group group = begin_group("random problems", wanted ? atoi(wanted) : device_fake ? 40 : 150, 0.4);
    for (; goes_on(&group); group.done++) {
        const uint32_t seed = (uint32_t)group.done + 1;
        attention_case c = affordable_case(seed, device_fake ? 150 : 1500);
        truth t = find_truth(&c);
        for (int i = 0; i < PLANS_PER_PROBLEM; i++) {
            int ranks;
            drawn_plan plan = draw_plan(table, &r);
            c.options = draw_options(table, &plan, &ranks);
            draw_mark(table, &plan);
            c.options.exchange = ITH_EXCHANGE_AUTO;
            c.options.kernel = NULL;
            c.options.kernel = kernel_for(&c, plan.value[DRAW_KERNEL], ranks);
            run_case(&group, &c, ranks, t.o, t.lse, seed);
        }
        free_truth(&t);
        case_free(&c);
    }
    end_group(&group);
    free(table);
}

/* ---- Rings ------------------------------------------------------------------------------------------------------- */

/* The error does not grow with the number of hops. */
static void hops_add_no_error(void **state)
{
    (void)state;
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
    c.problem.heads = 2, c.problem.head_dim = 64, c.problem.q_len = 64, c.problem.kv_len = device_fake ? 300 : 1500;
    case_fill(&c, 4, 0);
    const int64_t count = c.problem.heads * c.problem.q_len * c.problem.head_dim;
    truth t = find_truth(&c);
    case_group group = begin_group("hops", 2 * 5, 1);
    double first = 0;
    for (; goes_on(&group); group.done++) {
        const int hops = 1 << group.done % 5;
        c.options.softmax = group.done < 5 ? ITH_SOFTMAX_ONLINE : ITH_SOFTMAX_FIXED_M;
        c.options.strategy = hops > 1 ? ITH_STRATEGY_RING : ITH_STRATEGY_SINGLE;
        run_case(&group, &c, hops, t.o, t.lse, 4);
        const double error = relative_l2(c.o, t.o, count);
        first = hops == 1 ? error : first;
        assert_true(error <= fmax(1.5 * first, 0x1p-22)); /* the fake device sums in f64 */
    }
    end_group(&group);
    free_truth(&t);
    case_free(&c);
}

/* Shards without keys: fewer keys than ranks, or lengths that hide the last shards. */
static void shards_may_have_no_keys(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = {{1, 1}, {3, 3}, {90, 20}, {90, 0}, {90, 89}, {0, 0}};
    case_group group = begin_group("shards without keys", 6 * 6, 1);
    for (; goes_on(&group); group.done++) {
        attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
        const int64_t *length = lengths[group.done / 6];
        c.problem.heads = 2, c.problem.head_dim = 32, c.problem.q_len = 40, c.problem.kv_len = length[0];
        c.problem.dtype = group.done % 2 ? ITH_F32 : ITH_F16;
        c.problem.has_kv_lengths = true;
        case_fill(&c, (uint64_t)group.done, 0);
        c.kv_lengths[0] = (int32_t)length[1];
        c.options.strategy = group.done % 6 < 4 ? ITH_STRATEGY_RING : ITH_STRATEGY_ULYSSES;
        c.options.softmax = group.done % 2 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        c.options.direction = group.done % 6 < 2 ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_AUTO;
        truth t = find_truth(&c);
        run_case(&group, &c, 4, t.o, t.lse, (uint32_t)group.done);
        free_truth(&t);
        case_free(&c);
    }
    end_group(&group);
}

/* Rows without keys are 0, whatever their queries hold. */
static void rows_may_have_no_keys(void **state)
{
    (void)state;
    uint64_t r = 22;
    draw_table *table = malloc(sizeof *table);
    draw_init(context, table);
    case_group group = begin_group("rows without keys", device_fake ? 40 : 150, 0.1);
    for (; goes_on(&group); group.done++) {
        static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
        keyless_case k = keyless_case_make((uint32_t)group.done + 1, dtypes[group.done % 3], device_fake ? 60 : 400);
        int ranks;
        drawn_plan plan = draw_plan(table, &r);
        k.c.options = draw_options(table, &plan, &ranks);
        draw_mark(table, &plan);
        k.c.options.exchange = ITH_EXCHANGE_AUTO;
        k.c.options.kernel = NULL;
        k.c.options.kernel = kernel_for(&k.c, plan.value[DRAW_KERNEL], ranks);
        keyless_case_check(context, &k, ranks);
        keyless_case_free(&k);
    }
    end_group(&group);
    free(table);
}

/* ---- Counts ------------------------------------------------------------------------------------------------------ */

/* The counts of the ranks of a run. */
typedef struct count_run {
    const attention_case *c;
    ith_plan_counters counters[MOST_RANKS];
    ith_plan_info info[MOST_RANKS];
} count_run;

static ith_status count_in_rank(ith_context *rank_context, ith_comm *comm, void *user)
{
    count_run *out = user;
    const int rank = ith_comm_rank(comm);
    case_placed placed;
    ith_plan *plan = NULL;
    RANK_TRY(case_place(rank_context, comm, out->c, &placed));
    out->counters[rank] = (ith_plan_counters)ITH_PLAN_COUNTERS_INIT;
    out->info[rank] = (ith_plan_info)ITH_PLAN_INFO_INIT;
    ith_status status = ith_plan_create(rank_context, &placed.problem, &out->c->options, comm, &plan);
    for (int i = 0; i < 2 && !status; i++)
        status = ith_plan_execute(plan, &placed.tensors);
    if (!status)
        status = ith_plan_count(plan, &out->counters[rank]);
    if (!status)
        status = ith_plan_describe(plan, &out->info[rank]);
    ith_plan_destroy(&plan);
    case_leave(&placed);
    return status;
}

/* Runs a case on the device and on the processor: the same heads use fixed_m, and as many bytes are sent. */
static void compare_counts(attention_case *c, int ranks)
{
    count_run here = {.c = c}, there = {.c = c};
    ith_context *processor = NULL;
    c->options.exchange = ranks > 1 && !c->problem.replicated_kv ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_AUTO;
    check(context, ith_run_ranks(context, ranks, ranks, count_in_rank, &there));
    check(NULL, ith_context_create(NULL, &processor));
    check(processor, ith_run_ranks(processor, ranks, ranks, count_in_rank, &here));
    for (int rank = 0; rank < ranks; rank++) {
        const ith_plan_counters *a = &here.counters[rank], *b = &there.counters[rank];
        assert_int_equal(b->executions, 2);
        assert_int_equal(b->sent_bytes, 2 * there.info[rank].sent_bytes);
        assert_int_equal(b->sent_bytes, a->sent_bytes);
        assert_int_equal(b->fixed_m_heads, a->fixed_m_heads);
        assert_int_equal(b->online_heads, a->online_heads);
        assert_true(b->seconds > 0 && b->compression_error == 0);
        assert_true(b->waiting_seconds <= b->seconds && b->exchange_seconds <= b->seconds);
        assert_int_equal(here.info[rank].device_bytes, 0);
    }
    ith_context_destroy(&processor);
}

static void counts_are_those_of_the_processor(void **state)
{
    (void)state;
    case_group group = begin_group("counts", device_fake ? 30 : 60, 0.1);
    for (; goes_on(&group); group.done++) {
        attention_case c = affordable_case(1000 + (uint32_t)group.done, device_fake ? 60 : 400);
        const int *mesh = meshes[group.done % MESHES];
        c.options.ulysses = mesh[0], c.options.ring = mesh[1];
        c.options.softmax = group.done % 4 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        c.options.smooth = group.done % 3 ? ITH_CHOICE_ON : ITH_CHOICE_OFF;
        c.options.chunks = 1 + group.done % 2;
        compare_counts(&c, mesh[0] * mesh[1]);
        case_free(&c);
    }
    end_group(&group);
}

int main(void)
{
    device_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_legal_plan),      cmocka_unit_test(random_problems_under_random_plans),
        cmocka_unit_test(hops_add_no_error),     cmocka_unit_test(shards_may_have_no_keys),
        cmocka_unit_test(rows_may_have_no_keys), cmocka_unit_test(counts_are_those_of_the_processor),
    };
    return cmocka_run_group_tests(tests, device_context_set_up, context_tear_down);
}
