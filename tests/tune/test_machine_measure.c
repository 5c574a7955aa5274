/* SPDX-License-Identifier: Apache-2.0 */
/* The measured description of this machine has the right rows, finite figures above 0, and the rows that options ask
 * for. All ranks of a group get the same description. */
#include "base/clock.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/placed_group.h"
#include "support/refused.h"
#include "support/sanitizers.h"

#include <ithaca/tune.h>

#include <math.h>
#include <string.h>
#include <sys/resource.h>

static const ith_machine_case short_cases[] = {
    {sizeof *short_cases, ITH_F32, ITH_SOFTMAX_ONLINE, 64},
    {sizeof *short_cases, ITH_BF16, ITH_SOFTMAX_AUTO, 32},
};

static ith_measure_options short_options(void)
{
    ith_measure_options options = ITH_MEASURE_OPTIONS_INIT;
    options.cases = short_cases, options.case_count = 2;
    options.seconds = 0.2, options.threads = 2;
    return options;
}

/* A macro, so that a failure shows the line of the figure. */
#define is_rate(value) assert_true(isfinite(value) && (value) > 0)

/* Checks that a row has the tiles that a plan with its kernel would take. */
static void check_row(const ith_machine_attention *row)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options wanted = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    problem.heads = 1, problem.head_dim = row->head_dim, problem.dtype = row->dtype;
    problem.q_len = problem.kv_len = 1 << 20;
    wanted.kernel = row->kernel, wanted.softmax = row->softmax, wanted.threads = 1;
    check(context, ith_plan_predict(context, &problem, &wanted, 1, 0, true, &info));
    assert_int_equal(row->block_q, info.block_q);
    assert_int_equal(row->block_kv, info.block_kv);
    assert_int_equal(row->block_kv_compute, info.block_kv_compute);
    assert_int_equal(row->block_kv_compute_in, info.block_kv_compute_in);
    is_rate(row->gflops);
    is_rate(row->pack_bytes_per_second);
    assert_true(row->call_seconds >= 0 && row->call_seconds < 1);
    assert_int_equal(row->offset_bytes_per_second > 0, row->softmax == ITH_SOFTMAX_FIXED_M);
}

static void rows_are_complete(void **state)
{
    (void)state;
    ith_measure_options options = short_options();
    ith_machine *machine = NULL;
    check(context, ith_machine_measure(context, &options, NULL, &machine));
    bool seen[2][2] = {{false}};
    for (int64_t i = 0; i < machine->attention_count; i++) {
        const ith_machine_attention *row = &machine->attention[i];
        check_row(row);
        seen[row->dtype == ITH_BF16][row->softmax == ITH_SOFTMAX_FIXED_M] = true;
    }
    assert_true(seen[0][0] && !seen[0][1] && seen[1][0] && seen[1][1]);
    is_rate(machine->row_bytes_per_second);
    is_rate(machine->memory_bytes);
    is_rate(machine->start_seconds);
    is_rate(machine->busy_share);
    assert_true(machine->busy_share <= 1);
    assert_int_equal(machine->host_units, 2);
    assert_int_equal(machine->level_count, 1);
    assert_true(machine->levels[0].shares_memory);
    is_rate(machine->levels[0].latency_seconds);
    is_rate(machine->levels[0].copy_bytes_per_second);
    assert_true(machine->levels[0].bytes_per_second == 0);
    ith_machine_free(&machine);
    assert_null(machine);
    ith_machine_free(&machine);
}

/* No kernel is faster than the instructions that it multiplies with. A sanitizer makes the loop of the peak slower than
 * kernels, whose loops are partly assembly. Twice the peak leaves room for a processor that
 * changes its clock. */
static void no_kernel_is_faster_than_its_peak(void **state)
{
    (void)state;
    ith_measure_options options = short_options();
    ith_machine *machine = NULL;
    if (SANITIZED)
        skip();
    options.case_count = 1;
    check(context, ith_machine_measure(context, &options, NULL, &machine));
    for (int64_t i = 0; i < machine->attention_count; i++) {
        ith_peak peak = ITH_PEAK_INIT;
        double most = 0;
        /* another program may use the processor while the peak is measured, so some tries are too low */
        for (int n = 0; n < 200 && machine->attention[i].gflops >= 2 * most; n++) {
            check(context, ith_kernel_peak(context, machine->attention[i].kernel, 1, 0.005, &peak));
            most = fmax(most, peak.gflops);
        }
        assert_true(machine->attention[i].gflops < 2 * most);
        assert_true(machine->attention[i].gflops > 0.001 * most);
    }
    ith_machine_free(&machine);
}

static void refuse(const ith_measure_options *options, ith_status status, const char *part)
{
    ith_machine *machine = (ith_machine *)&options;
    assert_int_equal(ith_machine_measure(context, options, NULL, &machine), status);
    assert_null(machine);
    if (!strstr(ith_context_error(context), part))
        fail_msg("\"%s\" is not in: %s", part, ith_context_error(context));
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    ith_measure_options options = short_options();
    ith_machine_case wrong = short_cases[0];
    options.cases = &wrong, options.case_count = 1;
    wrong.dtype = ITH_I8;
    refuse(&options, ITH_ERR_ARGUMENT, "the type of a case is 7 (i8)");
    wrong = short_cases[0], wrong.head_dim = 0;
    refuse(&options, ITH_ERR_ARGUMENT, "head_dim of a case is 0");
    wrong = short_cases[0], wrong.softmax = (ith_softmax)7;
    refuse(&options, ITH_ERR_ARGUMENT, "softmax of a case is 7; 0 (both), 1 (online) and 2");
    wrong = short_cases[0], wrong.struct_size = 3;
    refuse(&options, ITH_ERR_ARGUMENT, "ith_machine_case");
    ith_machine_case unlike[2] = {short_cases[0], short_cases[0]};
    unlike[1].struct_size -= 8;
    options.cases = unlike, options.case_count = 2;
    refuse(&options, ITH_ERR_ARGUMENT, "struct_size of element 1");
    options = short_options(), options.case_count = -1;
    refuse(&options, ITH_ERR_ARGUMENT, "case_count");
    options = short_options(), options.seconds = NAN;
    refuse(&options, ITH_ERR_ARGUMENT, "seconds");
    options = short_options(), options.threads = -1;
    refuse(&options, ITH_ERR_ARGUMENT, "threads");
    assert_int_equal(ith_machine_measure(context, NULL, NULL, NULL), ITH_ERR_ARGUMENT);
}

typedef struct wishes {
    int asked, stop_at;
    int64_t done, total;
} wishes;

static bool should_stop(void *user)
{
    wishes *w = user;
    return w->asked++ >= w->stop_at;
}

/* If the process may have only one thread, as with OMP_THREAD_LIMIT=1, nothing is measured on several ranks at once. */
static void one_thread_will_do(void **state)
{
    (void)state;
    struct rlimit old, one;
    ith_measure_options options = short_options();
    ith_machine *machine = NULL;
    assert_int_equal(getrlimit(RLIMIT_NPROC, &old), 0);
    one = (struct rlimit){1, old.rlim_max};
    options.threads = 0;
    assert_int_equal(setrlimit(RLIMIT_NPROC, &one), 0);
    ith_status status = ith_machine_measure(context, &options, NULL, &machine);
    assert_int_equal(setrlimit(RLIMIT_NPROC, &old), 0);
    check(context, status);
    assert_int_equal(machine->host_units, 1);
    assert_int_equal(machine->level_count, 0);
    is_rate(machine->attention[0].gflops);
    ith_machine_free(&machine);
}

static void on_progress(void *user, int64_t done, int64_t total)
{
    wishes *w = user;
    assert_true(done == w->done + 1 && done <= total);
    w->done = done, w->total = total;
}

static void it_stops_and_shows_progress(void **state)
{
    (void)state;
    wishes w = {.stop_at = 1000000};
    ith_measure_options options = short_options();
    ith_machine *machine = NULL;
    options.case_count = 1;
    options.should_stop = should_stop, options.on_progress = on_progress, options.user = &w;
    check(context, ith_machine_measure(context, &options, NULL, &machine));
    assert_true(w.done == w.total && w.total > 3);
    ith_machine_free(&machine);
    for (int at = 0; at < 8; at++) { /* fewer calls of should_stop than for a machine with one kernel */
        wishes again = {.stop_at = at};
        options.user = &again;
        assert_int_equal(ith_machine_measure(context, &options, NULL, &machine), ITH_ERR_INTERRUPTED);
        assert_null(machine);
    }
}

/* ---- Groups ---------------------------------------------------------------------------------------------------- */

static ith_machine *found[GROUP_RANKS];
static ith_status statuses[GROUP_RANKS];

/* A stop that is wanted half a second after the first thread alone was measured, while all threads compute. */
typedef struct late_stop {
    double due, told; /* ith_clock_seconds; told: when should_stop first returned true; 0: not yet */
} late_stop;

static bool stops_when_due(void *user)
{
    late_stop *s = user;
    const double now = ith_clock_seconds();
    if (s->due > 0 && now >= s->due && s->told == 0)
        s->told = now;
    return s->told > 0;
}

static void sets_due(void *user, int64_t done, int64_t total)
{
    late_stop *s = user;
    if (done == total - 3) /* three parts are left: all units together, the rows and the level */
        s->due = ith_clock_seconds() + 0.5;
}

/* With far more threads than processors, too, a request to stop is heard soon, and no thread fills its memory after
 * it. */
static void many_threads_stop_soon(void **state)
{
    (void)state;
    late_stop s = {0, 0};
    ith_measure_options options = short_options();
    ith_machine *machine = NULL;
    if (SANITIZED)
        skip();
    options.case_count = 1, options.threads = 800, options.seconds = 8;
    options.should_stop = stops_when_due, options.on_progress = sets_due, options.user = &s;
    ith_status status = ith_machine_measure(context, &options, NULL, &machine);
    const double end = ith_clock_seconds();
    ith_machine_free(&machine);
    if (status == ITH_ERR_ARGUMENT) /* the process may not have so many threads */
        skip();
    assert_int_equal(status, ITH_ERR_INTERRUPTED);
    assert_true(s.told > 0);
    if (end - s.due > 4) /* a second, and time for other programs */
        fail_msg("heard after %.2f s, ended after %.2f s", s.told - s.due, end - s.due);
}

static void measure_in_group(rank_group *g, int rank, void *user)
{
    statuses[rank] = ith_machine_measure(g->contexts[rank], user, g->comms[rank], &found[rank]);
}

/* Measures on a group of ranks. Keeps the description of rank 0, and compares the others with it. */
static void measure_group(int ranks, ith_measure_options *options)
{
    rank_group g;
    group_connect = placed_group_create;
    check(context, group_create(&g, context, ranks));
    const int64_t before = memory_of(context).current_bytes;
    group_run(&g, measure_in_group, options);
    assert_true(memory_of(context).current_bytes < before + (1 << 20)); /* only descriptions, no messages */
    for (int rank = 1; rank < ranks; rank++) {
        assert_int_equal(statuses[rank], statuses[0]);
        if (statuses[0])
            continue;
        const ith_machine *a = found[0], *b = found[rank];
        assert_memory_equal(a->attention, b->attention, (size_t)a->attention_count * sizeof *a->attention);
        assert_memory_equal(a->levels, b->levels, (size_t)a->level_count * sizeof *a->levels);
        ith_machine_free(&found[rank]);
    }
    group_destroy(&g);
}

static void a_group_has_levels(void **state)
{
    (void)state;
    ith_measure_options options = short_options();
    options.case_count = 1;
    placed_evenly(1, 2);
    measure_group(4, &options);
    check(context, statuses[0]);
    assert_int_equal(found[0]->level_count, 2);
    assert_string_equal(found[0]->levels[0].name, "host");
    assert_int_equal(found[0]->levels[0].ranks, 2);
    assert_false(found[0]->levels[0].between_hosts);
    assert_string_equal(found[0]->levels[1].name, "network");
    assert_int_equal(found[0]->levels[1].ranks, 0);
    assert_true(found[0]->levels[1].between_hosts);
    assert_int_equal(found[0]->unit_hosts, 2); /* both ranks run on this machine */
    ith_machine_free(&found[0]);
    placed_evenly(2, 1);
    measure_group(4, &options);
    check(context, statuses[0]);
    assert_int_equal(found[0]->level_count, 2);
    assert_string_equal(found[0]->levels[0].name, "process");
    assert_int_equal(found[0]->levels[0].ranks, 2);
    assert_true(found[0]->levels[0].shares_memory);
    assert_string_equal(found[0]->levels[1].name, "network");
    ith_machine_free(&found[0]);
}

/* Measures a link between two ranks that carries 2e8 bytes a second, and its first bytes faster. Returns the measured
 * rate. */
static double measure_burst(void)
{
    ith_measure_options options = short_options();
    options.case_count = 1;
    placed_bytes_per_second = 2e8, placed_burst = 4e6;
    placed_evenly(1, 1);
    measure_group(2, &options);
    placed_bytes_per_second = placed_burst = 0;
    check(context, statuses[0]);
    const ith_machine_level *link = &found[0]->levels[0];
    /* if other programs disturb the ranks, the measurement may take the whole time for copying */
    const double rate = link->bytes_per_second > 0 ? link->bytes_per_second : link->copy_bytes_per_second;
    ith_machine_free(&found[0]);
    return rate;
}

/* A link may carry the first bytes faster than later bytes; this must not count as its rate. The measurement is
 * repeated if other programs disturb it. */
static void a_burst_is_no_rate(void **state)
{
    (void)state;
    double rate = measure_burst();
    for (int n = 0; n < 10 && !(rate > 0.2 * 2e8 && rate < 1.5 * 2e8); n++)
        rate = measure_burst();
    assert_true(rate > 0.2 * 2e8 && rate < 1.5 * 2e8);
}

/* Wisdom is about this machine alone, so a plan that is priced for a machine with another name has the usual tiles. */
static void wisdom_is_of_this_machine(void **state)
{
    (void)state;
    const ith_measure_options options = short_options();
    ith_tile_search search = ITH_TILE_SEARCH_INIT;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options wanted = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_context *wise = NULL;
    ith_machine *machine = NULL;
    problem.heads = 1, problem.head_dim = search.head_dim = 64, problem.dtype = search.dtype = ITH_F32;
    problem.q_len = problem.kv_len = search.keys;
    wanted.threads = 1;
    assert_int_equal(ith_context_create(NULL, &wise), ITH_OK);
    check(wise, ith_machine_measure(wise, &options, NULL, &machine));
    const ith_machine_attention *row = &machine->attention[0];
    const ith_tile_choice tiles = {row->block_q, row->block_kv_compute, row->block_kv_compute, row->block_kv_compute_in,
                                   2};
    wanted.kernel = search.kernel = row->kernel;
    check(wise, ith_wisdom_put_tiles(wise, &search, &tiles, 1));
    ith_machine other = *machine;
    strcpy(other.name, "another");
    check(wise, ith_plan_cost(wise, &problem, &wanted, machine, 1, &info, NULL));
    assert_int_equal(info.block_kv, row->block_kv_compute);
    check(wise, ith_plan_cost(wise, &problem, &wanted, &other, 1, &info, NULL));
    assert_int_not_equal(info.block_kv, row->block_kv_compute);
    ith_machine_free(&machine);
    ith_context_destroy(&wise);
}

/* If rank 0 refuses something, all ranks get an error. */
static void a_group_fails_together(void **state)
{
    (void)state;
    ith_measure_options options = short_options();
    options.seconds = -1;
    placed_evenly(1, 3);
    measure_group(3, &options);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(statuses[rank], ITH_ERR_ARGUMENT);
    assert_null(found[0]);
}

static void a_start_takes_time(void **state)
{
    (void)state;
    double two = 0, start = -1;
    for (int n = 0; n < 10 && !(two > 0 && two < 1); n++) /* repeated on a busy machine */
        assert_int_equal(ith_machine_start_measure(context, 2, 0.02, &two), ITH_OK);
    assert_true(two > 0 && two < 1);
    REFUSED(context, "ranks", ith_machine_start_measure(context, 1, 0.02, &start));
    REFUSED(context, "seconds", ith_machine_start_measure(context, 2, -1, &start));
    REFUSED(context, "start_seconds", ith_machine_start_measure(context, 2, 0.02, NULL));
    REFUSED(NULL, "context", ith_machine_start_measure(NULL, 2, 0.02, &start));
    assert_true(start == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),         cmocka_unit_test(no_kernel_is_faster_than_its_peak),
        cmocka_unit_test(nonsense_is_refused),       cmocka_unit_test(it_stops_and_shows_progress),
        cmocka_unit_test(one_thread_will_do),        cmocka_unit_test(a_group_has_levels),
        cmocka_unit_test(a_group_fails_together),    cmocka_unit_test(a_burst_is_no_rate),
        cmocka_unit_test(wisdom_is_of_this_machine), cmocka_unit_test(a_start_takes_time),
        cmocka_unit_test(many_threads_stop_soon),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
