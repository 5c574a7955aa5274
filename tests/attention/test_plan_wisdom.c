/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that follow wisdom about tiles and strategies. */
#include "plan/strategy_wisdom.h"
#include "plan/tile_wisdom.h"
#include "support/fixture.h"
#include "support/in_rank.h"
#include "support/plan_trial.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const ith_attn_tiles small = {2, 6, 4, 1}, other = {3, 8, 2, 1};

static ith_tile_case case_of(int64_t keys)
{
    return (ith_tile_case){"f32_ref", ITH_F32, ITH_SOFTMAX_ONLINE, 8, keys};
}

static void put_tiles(ith_context *c, int64_t keys, const ith_attn_tiles *tiles)
{
    const ith_tile_case measured = case_of(keys);
    ith_wisdom *wisdom = NULL;
    check(c, ith_wisdom_open(c, &wisdom));
    ith_tile_wisdom_put(wisdom, &measured, tiles, 2, 1);
    ith_wisdom_close(c);
}

static bool has_tiles(const ith_plan_info *info, const ith_attn_tiles *tiles)
{
    return info->block_q == tiles->block_q && info->block_kv == tiles->block_kv &&
           info->block_kv_compute == tiles->block_kv_compute && info->block_kv_compute_in == tiles->block_kv_compute_in;
}

/* A trial with the plain kernel, whose tiles may have any size. */
static trial plain_trial(void)
{
    trial t = new_trial();
    t.problem.q_len = t.problem.kv_len = 13;
    t.options.kernel = "f32_ref", t.options.threads = 1;
    return t;
}

static void tiles_are_taken(void **state)
{
    (void)state;
    trial t = plain_trial();
    check(context, run_trial_in(context, &t, 1));
    assert_false(has_tiles(&t.info, &small));
    const ith_plan_info usual = t.info;
    put_tiles(context, 13, &small);
    for (int ranks = 1; ranks <= 3; ranks++) {
        check(context, run_trial_in(context, &t, ranks));
        assert_true(has_tiles(&t.info, &small));
    }
    t.options.softmax = ITH_SOFTMAX_FIXED_M; /* wisdom has no entry for this softmax */
    check(context, run_trial_in(context, &t, 1));
    assert_int_equal(t.info.block_q, usual.block_q);
    t = plain_trial();
    t.problem.kv_len = t.problem.q_len = 30; /* lengths of the same class, so the same entry */
    check(context, run_trial_in(context, &t, 1));
    assert_true(has_tiles(&t.info, &small));
}

/* If the options name one tile size, wisdom is not used, and the other sizes are the kernel's usual ones. */
static void sizes_that_are_asked_for_come_first(void **state)
{
    (void)state;
    trial t = plain_trial();
    put_tiles(context, 13, &small);
    t.options.block_kv = 8;
    check(context, run_trial_in(context, &t, 2));
    assert_int_equal(t.info.block_kv, 8);
    assert_int_not_equal(t.info.block_kv_compute, small.block_kv_compute);
}

/* The tiles of wisdom are lowered to the size of the problem, like the kernel's usual tiles. */
static void tiles_fit_the_problem(void **state)
{
    (void)state;
    trial t = plain_trial();
    put_tiles(context, 13, &small);
    t.problem.kv_len = 5;
    check(context, run_trial_in(context, &t, 1));
    assert_int_equal(t.info.block_kv, 5);
    assert_int_equal(t.info.block_kv_compute, 4);
}

/* Wisdom in memory may hold tiles that the kernel cannot take, after a change of the kernel or through a defect. Such
 * tiles are not used. */
static void illegal_tiles_are_passed_over(void **state)
{
    (void)state;
    trial t = plain_trial();
    const ith_attn_tiles inside_out = {2, 2, 4, 1};
    check(context, run_trial_in(context, &t, 2));
    const ith_plan_info usual = t.info;
    put_tiles(context, 13, &inside_out);
    check(context, run_trial_in(context, &t, 2));
    assert_true(t.info.block_q == usual.block_q && t.info.block_kv == usual.block_kv &&
                t.info.block_kv_compute == usual.block_kv_compute &&
                t.info.block_kv_compute_in == usual.block_kv_compute_in);
}

/* ---- Ranks whose wisdom differs -------------------------------------------------------------------------------- */

enum { RANKS = 2, NUMBERS = 24 * 8 };

typedef struct lone_rank {
    ith_context *context;
    ith_comm *comm;
    ith_attn_options options;
    ith_plan_info info;
    float o[NUMBERS];
    ith_status status;
} lone_rank;

static float numbers[3 * NUMBERS]; /* q, k and v */

static void *attend(void *user)
{
    lone_rank *r = user;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    problem.heads = 1, problem.head_dim = 8, problem.q_len = problem.kv_len = 24;
    const int first = ith_comm_rank(r->comm) * NUMBERS / 2;
    tensors.q = numbers + first, tensors.k = numbers + NUMBERS + first, tensors.v = numbers + 2 * NUMBERS + first;
    tensors.o = r->o;
    r->info = (ith_plan_info)ITH_PLAN_INFO_INIT;
    r->status = ith_plan_create(r->context, &problem, &r->options, r->comm, &plan);
    if (!r->status)
        r->status = ith_plan_describe(plan, &r->info);
    if (!r->status)
        r->status = ith_plan_execute(plan, &tensors);
    ith_plan_destroy(&plan);
    return NULL;
}

/* Runs two ranks whose contexts are not clones of one another. */
static void attend_together(lone_rank *ranks)
{
    ith_context *contexts[RANKS] = {ranks[0].context, ranks[1].context};
    ith_comm *comms[RANKS];
    pthread_t threads[RANKS];
    for (int i = 0; i < 3 * NUMBERS; i++)
        numbers[i] = (float)(i % 37) / 17 - 1;
    check(contexts[0], ith_comm_create_local(contexts, RANKS, comms));
    for (int i = 0; i < RANKS; i++) {
        ranks[i].comm = comms[i];
        assert_int_equal(pthread_create(&threads[i], NULL, attend, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        check(ranks[i].context, ranks[i].status);
        ith_comm_destroy(&comms[i]);
    }
}

/* Rank 0's wisdom decides for all. A plan whose options name the same tiles gives the same bits. */
static void rank_0_decides(void **state)
{
    (void)state;
    lone_rank ranks[RANKS], named[RANKS];
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (lone_rank){.options = ITH_ATTN_OPTIONS_INIT};
        ranks[i].options.kernel = "f32_ref", ranks[i].options.threads = 1;
        ranks[i].options.strategy = ITH_STRATEGY_RING;
        check(NULL, ith_context_create(NULL, &ranks[i].context));
        put_tiles(ranks[i].context, 24, i ? &other : &small);
        named[i] = ranks[i];
        named[i].options.block_q = small.block_q, named[i].options.block_kv = small.block_kv;
        named[i].options.block_kv_compute = small.block_kv_compute;
        named[i].options.block_kv_compute_in = small.block_kv_compute_in;
    }
    attend_together(ranks);
    attend_together(named);
    for (int i = 0; i < RANKS; i++) {
        assert_true(has_tiles(&ranks[i].info, &small));
        assert_memory_equal(ranks[i].o, named[i].o, NUMBERS / 2 * sizeof(float));
        ith_context_destroy(&ranks[i].context);
    }
}

/* ---- Strategies ------------------------------------------------------------------------------------------------ */

/* Remembers a mesh for the problem of a trial on `ranks` ranks of this process. */
static void put_strategy(const trial *t, int ranks, int ulysses, int ring, int chunks)
{
    ith_attn_setting setting;
    const ith_group group = {.ranks = ranks, .blocks = {ranks, ranks}};
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_wisdom *wisdom = NULL;
    info.ulysses = ulysses, info.ring = ring, info.chunks = chunks;
    info.softmax = ITH_SOFTMAX_ONLINE, info.direction = ITH_DIRECTION_BIDIR;
    check(context, ith_attn_setting_init(context, &t->problem, ranks, 0, &setting));
    check(context, ith_wisdom_open(context, &wisdom));
    ith_strategy_wisdom_put(wisdom, &setting, &group, &info, 0.1, 0.2);
    ith_wisdom_close(context);
}

static void strategies_are_taken(void **state)
{
    (void)state;
    trial t = plain_trial();
    check(context, run_trial_in(context, &t, 3));
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    put_strategy(&t, 3, 1, 3, 2);
    check(context, run_trial_in(context, &t, 3));
    assert_int_equal(t.info.strategy, ITH_STRATEGY_RING);
    assert_int_equal(t.info.direction, ITH_DIRECTION_BIDIR);
    put_strategy(&t, 3, 3, 1, 2);
    check(context, run_trial_in(context, &t, 3));
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    assert_int_equal(t.info.chunks, 2);
    put_strategy(&t, 3, 1, 3, 1);
    check(context, run_trial_in(context, &t, 2)); /* another number of ranks */
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    t.options.strategy = ITH_STRATEGY_ULYSSES;
    check(context, run_trial_in(context, &t, 3));
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    t = plain_trial();
    t.options.chunks = 1;
    check(context, run_trial_in(context, &t, 3));
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    t = plain_trial();
    t.problem.replicated_kv = true;
    check(context, run_trial_in(context, &t, 3));
    assert_int_equal(t.info.strategy, ITH_STRATEGY_SINGLE);
}

/* Wisdom was measured with every other choice left open. If the caller makes a choice that may change the fastest
 * strategy, the planner chooses without wisdom. */
static void strategies_are_for_open_choices(void **state)
{
    (void)state;
    enum { CHOICES = 7 };
    for (int choice = 0; choice < CHOICES; choice++) {
        trial t = plain_trial();
        put_strategy(&t, 3, 1, 3, 1);
        t.options.direction = choice == 1 ? ITH_DIRECTION_UNI : ITH_DIRECTION_AUTO;
        t.options.exchange = choice == 2 ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_AUTO;
        t.options.fold = choice == 3 ? ITH_CHOICE_ON : ITH_CHOICE_AUTO;
        t.options.compress = choice == 4 ? ITH_COMPRESS_8BIT : ITH_COMPRESS_OFF;
        t.options.overlap = choice == 5 ? ITH_CHOICE_OFF : ITH_CHOICE_AUTO;
        t.problem.replicated_kv = choice == 6;
        check(context, run_trial_in(context, &t, 3));
        assert_int_equal(t.info.ring, choice == 0 ? 3 : 1);
    }
}

/* The hosts and processes of the ranks are a part of an entry's subject. */
static void strategies_are_for_one_placement(void **state)
{
    (void)state;
    const trial t = plain_trial();
    const ith_group measured = {.ranks = 4, .blocks = {4, 4}}, others[] = {{.ranks = 8, .blocks = {4, 4}},
                                                                           {.ranks = 4, .blocks = {2, 4}},
                                                                           {.ranks = 4, .blocks = {4, 8}}};
    ith_attn_setting setting;
    ith_wisdom *wisdom = NULL;
    put_strategy(&t, 4, 1, 4, 1);
    check(context, ith_attn_setting_init(context, &t.problem, 4, 0, &setting));
    check(context, ith_wisdom_open(context, &wisdom));
    assert_non_null(ith_strategy_wisdom_find(wisdom, &setting, ITH_SOFTMAX_ONLINE, &measured));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_null(ith_strategy_wisdom_find(wisdom, &setting, ITH_SOFTMAX_ONLINE, &others[i]));
    ith_wisdom_close(context);
}

/* An entry whose mesh does not have the plan's number of ranks, as a file that was edited may hold, is not used. */
static void illegal_strategies_are_passed_over(void **state)
{
    (void)state;
    trial t = plain_trial();
    check(context, run_trial_in(context, &t, 6));
    const ith_plan_info usual = t.info;
    put_strategy(&t, 6, 2, 2, 1);
    check(context, run_trial_in(context, &t, 6));
    assert_int_equal(t.info.ulysses, usual.ulysses);
    assert_int_equal(t.info.ring, usual.ring);
}

/* A number of keys belongs to the class that is nearest by ratio: the border of two classes is their geometric mean. */
static void keys_fall_into_the_nearest_class(void **state)
{
    (void)state;
    static const int64_t rows[][2] = {{0, 256},           {256, 256},          {362, 256},     {363, 512},
                                      {724, 512},         {725, 1024},         {75600, 65536}, {100000, 131072},
                                      {1 << 20, 1 << 20}, {INT64_MAX, 1 << 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ith_tile_class(rows[i][0]), rows[i][1]);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, context_set_up, context_tear_down)
    const struct CMUnitTest tests[] = {
        EACH(tiles_are_taken),
        EACH(sizes_that_are_asked_for_come_first),
        EACH(tiles_fit_the_problem),
        EACH(illegal_tiles_are_passed_over),
        EACH(rank_0_decides),
        EACH(strategies_are_taken),
        EACH(strategies_are_for_open_choices),
        EACH(strategies_are_for_one_placement),
        EACH(illegal_strategies_are_passed_over),
        EACH(keys_fall_into_the_nearest_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
