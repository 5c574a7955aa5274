/* SPDX-License-Identifier: Apache-2.0 */
/* The search for tiles proposes only legal tiles, uses earlier rates, and ends in time and on request. Tiles and
 * strategies become wisdom through the public functions. */
#include "base/clock.h"
#include "support/fixture.h"
#include "support/refused.h"

#include <ithaca/tune.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static ith_tile_search short_search(void)
{
    ith_tile_search search = ITH_TILE_SEARCH_INIT;
    search.dtype = ITH_F32, search.head_dim = 16, search.keys = 300;
    search.seconds = 0.5;
    return search;
}

/* Checks that a plan takes the tiles. */
static void check_legal(const char *kernel, const ith_tile_choice *tiles)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    problem.heads = 1, problem.head_dim = 16, problem.q_len = problem.kv_len = 1 << 20;
    options.kernel = kernel, options.threads = 1;
    options.block_q = tiles->block_q, options.block_kv = tiles->block_kv;
    options.block_kv_compute = tiles->block_kv_compute, options.block_kv_compute_in = tiles->block_kv_compute_in;
    check(context, ith_plan_predict(context, &problem, &options, 1, 0, true, &info));
    assert_true(isfinite(tiles->gflops) && tiles->gflops > 0);
}

static void what_is_proposed_is_legal(void **state)
{
    (void)state;
    const char *kernel;
    bool usable;
    for (int i = 0; (kernel = ith_kernel_list(context, i, &usable)); i++) {
        ith_tile_search search = short_search();
        ith_tile_report report = ITH_TILE_REPORT_INIT;
        search.kernel = kernel;
        if (!usable || ith_tiles_search(context, &search, &report))
            continue; /* a kernel of another type */
        assert_string_equal(report.kernel, kernel);
        assert_true(report.count >= 1 && report.count <= ITH_TILE_CHOICES && report.tried >= report.count);
        for (int64_t n = 0; n < report.count; n++) {
            check_legal(kernel, &report.best[n]);
            assert_true(n == 0 || report.best[n].gflops > report.best[0].gflops);
            assert_true(n < 2 || report.best[n].gflops <= report.best[n - 1].gflops);
        }
    }
}

/* Invented earlier rates, which grow with the block of queries. */
static double remembered(void *user, const ith_tile_choice *tiles)
{
    ++*(int *)user;
    return 1e6 + (double)tiles->block_q;
}

static void never(void *user, const ith_tile_choice *tiles)
{
    (void)tiles;
    *(int *)user = -1000000;
}

/* Tiles with earlier rates are not measured again, and the search climbs to the largest rate. */
static void earlier_rates_are_used(void **state)
{
    (void)state;
    int asked = 0;
    ith_tile_search search = short_search();
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    search.known = remembered, search.measured = never, search.user = &asked;
    search.seconds = 1000; /* its last round measures, which takes long on a busy machine */
    check(context, ith_tiles_search(context, &search, &report));
    assert_true(asked > 4);
    assert_true(report.complete);
}

static double infinite(void *user, const ith_tile_choice *tiles)
{
    (void)user;
    (void)tiles;
    return (double)INFINITY;
}

static void count(void *user, const ith_tile_choice *tiles)
{
    assert_true(isfinite(tiles->gflops));
    ++*(int *)user;
}

/* An earlier search cannot have measured an infinite rate, so tiles with this rate are measured. */
static void rates_are_finite(void **state)
{
    (void)state;
    ith_tile_search search = short_search();
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    int measured = 0;
    search.known = infinite, search.measured = count, search.user = &measured;
    check(context, ith_tiles_search(context, &search, &report));
    assert_true(measured > 0 && report.count > 0);
}

static bool now(void *user)
{
    return ++*(int *)user > 5;
}

static void it_ends_on_request_and_in_time(void **state)
{
    (void)state;
    int asked = 0;
    ith_tile_search search = short_search();
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    search.should_stop = now, search.user = &asked, search.seconds = 1000;
    check(context, ith_tiles_search(context, &search, &report));
    assert_int_equal(report.complete, 0);
    search = short_search();
    search.seconds = 1e-9;
    const double start = ith_clock_seconds();
    check(context, ith_tiles_search(context, &search, &report));
    assert_int_equal(report.complete, 0);
    assert_true(ith_clock_seconds() - start < 100);
}

static bool after(void *user)
{
    return ith_clock_seconds() > *(double *)user;
}

/* Invented earlier rates of short blocks of queries. They lead the search to long blocks, which have no earlier
 * rates. */
static double of_short_blocks(void *user, const ith_tile_choice *tiles)
{
    (void)user;
    return tiles->block_q < 500 ? (double)tiles->block_q : 0;
}

/* Asks a search to stop in half a second, while it times the slowest kernel on blocks that take it many seconds.
 * Returns the seconds from the request to the end. */
static double seconds_to_stop(void)
{
    ith_tile_search search = ITH_TILE_SEARCH_INIT;
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    double moment = ith_clock_seconds() + 0.5;
    search.kernel = "f32_ref", search.dtype = ITH_F32, search.head_dim = 1024, search.keys = 16384;
    search.known = of_short_blocks, search.should_stop = after, search.user = &moment, search.seconds = 1000;
    check(context, ith_tiles_search(context, &search, &report));
    assert_int_equal(report.complete, 0);
    return ith_clock_seconds() - moment;
}

/* A request to stop ends a call of a kernel. Other programs may keep the processors busy, so one of ten searches
 * counts. */
static void it_ends_within_a_call(void **state)
{
    (void)state;
    double seconds = seconds_to_stop();
    for (int n = 1; n < 10 && seconds >= 1; n++)
        seconds = seconds_to_stop();
    assert_true(seconds < 1);
}

/* The search asks whether to stop while it makes the numbers of the widest heads. This once took 37 s without a
 * question. */
static void it_asks_while_it_makes_wide_heads(void **state)
{
    (void)state;
    ith_tile_search search = ITH_TILE_SEARCH_INIT;
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    double moment = ith_clock_seconds();
    search.dtype = ITH_F32, search.head_dim = 65536, search.keys = 8192;
    search.should_stop = after, search.user = &moment, search.seconds = 1000;
    check(context, ith_tiles_search(context, &search, &report));
    assert_int_equal(report.complete, 0);
    assert_true(ith_clock_seconds() - moment < 8);
}

static void refuse(const ith_tile_search *search, ith_status status, const char *part)
{
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    assert_int_equal(ith_tiles_search(context, search, &report), status);
    if (!strstr(ith_context_error(context), part))
        fail_msg("\"%s\" is not in: %s", part, ith_context_error(context));
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    ith_tile_search search = short_search();
    search.kernel = "none_such";
    refuse(&search, ITH_ERR_ARGUMENT, "none_such");
    search = short_search(), search.dtype = ITH_U8;
    refuse(&search, ITH_ERR_ARGUMENT, "dtype is 6 (u8)");
    search = short_search(), search.head_dim = 1 << 20;
    refuse(&search, ITH_ERR_ARGUMENT, "head_dim");
    search = short_search(), search.keys = 0;
    refuse(&search, ITH_ERR_ARGUMENT, "keys is 0");
    search = short_search(), search.seconds = INFINITY;
    refuse(&search, ITH_ERR_ARGUMENT, "seconds");
    refuse(NULL, ITH_ERR_ARGUMENT, "search");
}

/* ---- Wisdom ---------------------------------------------------------------------------------------------------- */

static void tiles_become_wisdom(void **state)
{
    (void)state;
    ith_tile_search search = short_search();
    ith_tile_choice tiles = {4, 8, 4, 1, 2.5}, found;
    search.kernel = "f32_ref";
    check(context, ith_wisdom_get_tiles(context, &search, &found));
    assert_int_equal(found.block_q, 0);
    check(context, ith_wisdom_put_tiles(context, &search, &tiles, 2));
    search.keys = 250; /* a number of keys of the same class */
    check(context, ith_wisdom_get_tiles(context, &search, &found));
    assert_true(found.block_q == 4 && found.block_kv == 8 && found.block_kv_compute == 4);
    assert_int_equal(found.block_kv_compute_in, 1);
    search.keys = 600;
    check(context, ith_wisdom_get_tiles(context, &search, &found));
    assert_int_equal(found.block_q, 0);
    tiles.block_kv = 2;
    assert_int_equal(ith_wisdom_put_tiles(context, &search, &tiles, 2), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "block_kv is 2, and must be at least block_kv_compute"));
    tiles.block_kv = 0;
    assert_int_equal(ith_wisdom_put_tiles(context, &search, &tiles, 2), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "block_kv is 0, and must be a multiple of 1"));
    assert_non_null(strstr(ith_context_error(context), "the nearest is 1"));
    tiles.block_kv = 8, tiles.block_q = -100;
    assert_int_equal(ith_wisdom_put_tiles(context, &search, &tiles, 2), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "block_q is -100, and must be"));
    assert_int_equal(ith_wisdom_put_tiles(context, &search, NULL, 2), ITH_ERR_ARGUMENT);
    static const double wrong[] = {0, -1, NAN, INFINITY};
    tiles.block_q = 4;
    for (int i = 0; i < 4; i++) {
        tiles.gflops = 1;
        assert_int_equal(ith_wisdom_put_tiles(context, &search, &tiles, wrong[i]), ITH_ERR_ARGUMENT);
        tiles.gflops = wrong[i];
        assert_int_equal(ith_wisdom_put_tiles(context, &search, &tiles, 1), ITH_ERR_ARGUMENT);
        assert_non_null(strstr(ith_context_error(context), "both must be finite and above 0"));
    }
    search.kernel = NULL;
    assert_int_equal(ith_wisdom_get_tiles(context, &search, &found), ITH_ERR_ARGUMENT);
}

static void strategies_become_wisdom(void **state)
{
    (void)state;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    int known = -1;
    problem.heads = 8, problem.head_dim = 16, problem.q_len = problem.kv_len = 300;
    check(context, ith_plan_predict(context, &problem, NULL, 4, 0, true, &info));
    assert_int_equal(info.strategy, ITH_STRATEGY_ULYSSES);
    check(context, ith_wisdom_has_strategy(context, &problem, ITH_SOFTMAX_AUTO, 4, 0, 0, &known));
    assert_int_equal(known, 0);
    info.ulysses = 2, info.ring = 2;
    check(context, ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 2));
    check(context, ith_wisdom_has_strategy(context, &problem, ITH_SOFTMAX_AUTO, 4, 0, 0, &known));
    assert_int_equal(known, 1);
    check(context, ith_plan_predict(context, &problem, NULL, 4, 0, true, &info));
    assert_int_equal(info.strategy, ITH_STRATEGY_ULYSSES_RING);
    check(context, ith_plan_predict(context, &problem, NULL, 4, 0, false, &info)); /* a group of other processes */
    assert_int_equal(info.strategy, ITH_STRATEGY_ULYSSES);
    problem.replicated_kv = true;
    check(context, ith_wisdom_has_strategy(context, &problem, ITH_SOFTMAX_AUTO, 4, 0, 0, &known));
    assert_int_equal(known, 0);
    check(context, ith_plan_predict(context, &problem, NULL, 4, 0, true, &info));
    REFUSED(context, "replicated_kv", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 2));
    problem.replicated_kv = false;
    problem.heads = 0;
    assert_int_equal(ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 2), ITH_ERR_ARGUMENT);
}

/* Wisdom about a strategy holds for one problem on one group. With any other size it is not used. */
static void wisdom_is_about_one_problem(void **state)
{
    (void)state;
    enum { CHANGES = 9 };
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT, other;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    int known = -1;
    problem.batch = 2, problem.heads = 8, problem.head_dim = 16, problem.q_len = problem.kv_len = 300;
    check(context, ith_plan_predict(context, &problem, NULL, 4, 0, true, &info));
    check(context, ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 2));
    for (int change = 0; change < CHANGES; change++) {
        other = problem;
        other.batch += change == 1, other.heads *= change == 2 ? 2 : 1, other.head_dim *= change == 4 ? 2 : 1;
        other.q_len *= change == 5 ? 9 : 1, other.kv_len *= change == 6 ? 9 : 1;
        other.kv_heads = change == 0 || change == 2 ? 8 : change == 3 ? 4 : 0;
        other.dtype = change == 7 ? ITH_BF16 : problem.dtype;
        check(context, ith_wisdom_has_strategy(context, &other, change == 8 ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_AUTO, 4,
                                               0, 0, &known));
        if (known != (change == 0)) /* change 0: each query head has its own kv head, which is the default */
            fail_msg("change %d: known %d", change, known);
    }
}

static void strategies_that_no_plan_has_are_refused(void **state)
{
    (void)state;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_plan_info right = ITH_PLAN_INFO_INIT, info;
    int known = -1;
    problem.heads = 8, problem.head_dim = 16, problem.q_len = problem.kv_len = 300;
    check(context, ith_plan_predict(context, &problem, NULL, 4, 0, true, &right));
    REFUSED(NULL, "context", ith_wisdom_put_strategy(NULL, &problem, &right, 0, 0, 1, 1));
    const double times[] = {-1, 0, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        REFUSED(context, "seconds", ith_wisdom_put_strategy(context, &problem, &right, 0, 0, times[i], 1));
        REFUSED(context, "seconds", ith_wisdom_put_strategy(context, &problem, &right, 0, 0, 1, times[i]));
    }
    REFUSED(context, "process_ranks -1", ith_wisdom_put_strategy(context, &problem, &right, -1, 0, 1, 1));
    REFUSED(context, "process_ranks is 3", ith_wisdom_put_strategy(context, &problem, &right, 3, 0, 1, 1));
    REFUSED(context, "a process runs on one host", ith_wisdom_put_strategy(context, &problem, &right, 4, 2, 1, 1));
    info = right, info.ulysses = 5;
    REFUSED(context, "ulysses 5", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.ulysses = info.ring = -2;
    REFUSED(context, "ulysses -2", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.ranks = 0;
    REFUSED(context, "ranks is 0", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.chunks = 0;
    REFUSED(context, "chunks is 0", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.chunks = 3; /* 8 heads on a ulysses axis of 4 */
    REFUSED(context, "chunks is 3, and a plan with ulysses 4 has at most 2 here",
            ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.ulysses = 1, info.ring = 4, info.chunks = 2;
    REFUSED(context, "chunks is 2, and a plan with ulysses 1 has at most 1 here",
            ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.direction = ITH_DIRECTION_AUTO;
    REFUSED(context, "direction is 0", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    info = right, info.softmax = (ith_softmax)9;
    REFUSED(context, "softmax 9", ith_wisdom_put_strategy(context, &problem, &info, 0, 0, 1, 1));
    REFUSED(context, "softmax is 9", ith_wisdom_has_strategy(context, &problem, (ith_softmax)9, 4, 0, 0, &known));
    REFUSED(context, "ranks is -2", ith_wisdom_has_strategy(context, &problem, ITH_SOFTMAX_AUTO, -2, 0, 0, &known));
    check(context, ith_wisdom_has_strategy(context, &problem, ITH_SOFTMAX_AUTO, 4, 0, 0, &known));
    assert_int_equal(known, 0);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, context_set_up, context_tear_down)
    const struct CMUnitTest tests[] = {
        EACH(wisdom_is_about_one_problem),
        EACH(what_is_proposed_is_legal),
        EACH(earlier_rates_are_used),
        EACH(it_ends_on_request_and_in_time),
        EACH(it_asks_while_it_makes_wide_heads),
        EACH(it_ends_within_a_call),
        EACH(rates_are_finite),
        EACH(nonsense_is_refused),
        EACH(tiles_become_wisdom),
        EACH(strategies_become_wisdom),
        EACH(strategies_that_no_plan_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
