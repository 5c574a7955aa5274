/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of ithaca bench. One group of ranks holds the plans of all rows of the table at the same time, so
 * that each repeat can execute every plan once. A plan with strategy `single` runs on rank 0 with all threads of its
 * process while the other ranks sleep.
 *
 * All ranks meet before and after every execution and show one another a note. A rank that fails says so in its note,
 * and all ranks then return. So no rank waits for a rank that has left. */
#include "bench_rows.h"

#include "../attend/attend_device.h"
#include "../attend/attend_transfer.h"
#include "../cli.h"
#include "../launch/launch.h"
#include "../launch/launch_records.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The peak rate is measured for a fifth of the row's duration, within these limits in seconds. */
static const double PEAK_SECONDS_MIN = 0.05, PEAK_SECONDS_MAX = 0.5;

/* The data that a rank shows the others about the current row. */
typedef struct rank_note {
    int64_t failed;
    double begin, end;       /* times of the execution */
    double plan_seconds;     /* time to make the plan */
    int64_t predicted_bytes; /* memory of the rank's plan */
    int64_t device_bytes;    /* memory of a device that the rank's plan holds */
    int64_t held_bytes;      /* memory that plans of the process hold; on its lowest rank, otherwise 0 */
    double peak;             /* peak rate of the process in GFLOP/s; on its lowest rank, otherwise 0 */
    int64_t sent_bytes;      /* bytes sent in one execution */
    double exchange_seconds, waiting_seconds, compression_error;
} rank_note;

/* The state of one rank of the measurement. */
typedef struct bench_rank {
    ith_bench *bench;
    ith_context *context;
    ith_comm *comm;
    int rank, ranks;
    bool first;       /* the lowest rank of its process */
    rank_note own;    /* this rank's note */
    rank_note *notes; /* [ranks]: the notes of all ranks when they last met */
    ith_plan **plans; /* [rows]: this rank's plan of each row; NULL if it takes no part */
    /* [rows]: this rank's tensors, in the place of the first row that has the same tensors (first_alike) */
    ith_attend_placed *placed;
    ith_status status; /* failure of this rank; ITH_OK if it has not failed */
} bench_rank;

/* Shows this rank's note to all ranks, with its status, and waits for theirs. Returns whether no rank has failed. */
static bool meet(bench_rank *r, ith_status status)
{
    r->own.failed = status != ITH_OK;
    r->status = status ? status : r->status;
    status = ith_comm_allgather(r->comm, &r->own, sizeof r->own, r->notes);
    r->status = r->status ? r->status : status;
    for (int rank = 0; !status && rank < r->ranks; rank++)
        if (r->notes[rank].failed)
            return false;
    return !status;
}

/* Whether this rank executes the plan of a table row. Rank 0 alone executes a plan of a single rank. */
static bool takes_part(const bench_rank *r, const ith_bench_row *row)
{
    return r->rank == 0 || row->ranks > 1;
}

/* ---- Peaks ----------------------------------------------------------------------------------------------------- */

/* The arguments and the result of measure_peak. */
typedef struct peak_part {
    ith_context *context;
    const ith_bench_row *row;
    int threads;
    double seconds;
    ith_peak peak;
} peak_part;

/* Measures the peak of the row's kernel (ith_kernel_peak); 0 on failure. */
static void measure_peak(void *user)
{
    peak_part *part = user;
    double seconds = fmin(fmax(part->seconds / 5, PEAK_SECONDS_MIN), PEAK_SECONDS_MAX);
    ith_kernel_peak(part->context, part->row->kernel, part->threads, seconds, &part->peak);
}

/* Measures the peak in all processes that have taken part in the row, at the same time. *peak becomes its sum. Returns
 * false if a rank has failed. */
static bool measure_peaks(bench_rank *r, ith_bench_row *row, double row_seconds, double *peak)
{
    peak_part part = {r->context, row, r->bench->threads_here, row_seconds, ITH_PEAK_INIT};
    if (r->first && takes_part(r, row)) {
        ith_launch_alone(r->comm, measure_peak, &part);
        memcpy(row->peak, part.peak.name, sizeof row->peak);
    }
    r->own.peak = part.peak.gflops;
    *peak = 0;
    if (!meet(r, ITH_OK))
        return false;
    for (int rank = 0; rank < row->ranks; rank++)
        *peak += r->notes[rank].peak;
    return true;
}

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

/* The first row of the table that has the tensors of row `index`: the same problem on as many ranks. */
static int first_alike(const ith_bench *bench, int index)
{
    int first = 0;
    while (bench->rows[first].problem != bench->rows[index].problem ||
           bench->rows[first].ranks != bench->rows[index].ranks)
        first++;
    return first;
}

/* Brings this rank's tensors of a table row to where the context computes, unless an earlier row has them there. */
static ith_status place_tensors(bench_rank *r, int index)
{
    const ith_bench_row *row = &r->bench->rows[index];
    if (first_alike(r->bench, index) != index)
        return ITH_OK;
    return ith_attend_place(r->context, &row->problem->whole, row->ranks, r->rank, &r->placed[index]);
}

/* Creates this rank's plan of a table row. Every process keeps the plan's description. */
static ith_status create_plan(bench_rank *r, int index)
{
    ith_bench_row *row = &r->bench->rows[index];
    ith_attn_options options = row->options;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan **plan = &r->plans[index];
    const ith_attn_problem *problem = &r->placed[first_alike(r->bench, index)].problem;
    if (row->ranks == 1)
        options.threads = r->bench->threads_here;
    double begin = ith_cli_seconds();
    ith_status status = ith_plan_create(r->context, problem, &options, row->ranks > 1 ? r->comm : NULL, plan);
    r->own.plan_seconds = ith_cli_seconds() - begin;
    if (!status)
        status = ith_plan_describe(*plan, &info);
    r->own.predicted_bytes = info.memory_bytes;
    r->own.device_bytes = info.device_bytes;
    if (!status && r->first) {
        row->info = info;
        snprintf(row->kernel, sizeof row->kernel, "%s", info.kernel);
        row->info.kernel = row->kernel;
    }
    return status;
}

/* The bytes of memory that the library holds now, on all ranks of this process. */
static int64_t held_bytes(ith_context *context)
{
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    ith_context_memory(context, &use);
    return use.current_bytes;
}

/* Creates this rank's plans of all table rows, at the same time as the other ranks. Returns false if a rank has
 * failed. */
static bool create_plans(bench_rank *r)
{
    const ith_bench *bench = r->bench;
    for (int i = 0; i < bench->row_count; i++) {
        ith_bench_row *row = &bench->rows[i];
        const bool takes = takes_part(r, row);
        if (!meet(r, takes ? place_tensors(r, i) : ITH_OK))
            return false;
        int64_t before = held_bytes(r->context);
        if (!meet(r, ITH_OK) || !meet(r, takes ? create_plan(r, i) : ITH_OK))
            return false;
        r->own.held_bytes = r->first ? held_bytes(r->context) - before : 0;
        if (!meet(r, ITH_OK))
            return false;
        for (int rank = 0; r->rank == 0 && rank < row->ranks; rank++) {
            row->predicted_bytes += r->notes[rank].predicted_bytes;
            row->held_bytes += r->notes[rank].held_bytes;
            row->device_bytes += r->notes[rank].device_bytes;
            row->plan_seconds = fmax(row->plan_seconds, r->notes[rank].plan_seconds);
        }
    }
    return true;
}

/* ---- Executions ------------------------------------------------------------------------------------------------ */

/* The execution of a row's plan on one rank. */
typedef struct execution {
    bench_rank *r;
    int index;
    ith_status status;
} execution;

static void execute_here(void *user)
{
    execution *e = user;
    bench_rank *r = e->r;
    const ith_bench_row *row = &r->bench->rows[e->index];
    const ith_attend_placed *placed = &r->placed[first_alike(r->bench, e->index)];
    r->own.begin = ith_cli_seconds();
    e->status = ith_launch_execute(row->ranks > 1 ? r->comm : NULL, r->plans[e->index], &placed->tensors);
    r->own.end = ith_cli_seconds();
}

/* Whether the clocks of all ranks are one clock. */
static bool on_one_host(const ith_comm *comm)
{
    ith_place first = ITH_PLACE_INIT, last = ITH_PLACE_INIT;
    return !ith_comm_place(comm, 0, &first) && !ith_comm_place(comm, ith_comm_size(comm) - 1, &last) &&
           first.host == last.host;
}

/* The duration of an execution: from the moment when the first rank begins to the moment when the last rank ends; over
 * several hosts, whose clocks differ, the longest duration of a rank. */
static double duration(const bench_rank *r, const ith_bench_row *row)
{
    double begin = r->notes[0].begin, end = r->notes[0].end, longest = end - begin;
    for (int rank = 1; rank < row->ranks; rank++) {
        const rank_note *note = &r->notes[rank];
        begin = fmin(begin, note->begin), end = fmax(end, note->end);
        longest = fmax(longest, note->end - note->begin);
    }
    return on_one_host(r->comm) ? end - begin : longest;
}

/* Executes the plan of a table row on its ranks. Returns false if a rank has failed. */
static bool execute(bench_rank *r, int index, double *seconds)
{
    const ith_bench_row *row = &r->bench->rows[index];
    execution e = {r, index, ITH_OK};
    if (!meet(r, ITH_OK))
        return false;
    if (row->ranks > 1)
        execute_here(&e);
    else if (r->rank == 0)
        ith_launch_alone(r->comm, execute_here, &e);
    if (!meet(r, e.status))
        return false;
    *seconds = duration(r, row);
    return true;
}

/* Computes row->rel_l2, the error of the sampled rows of o against float64. user: the row. */
static void compare_results(void *user)
{
    ith_bench_row *row = user;
    ith_bench_problem *x = row->problem;
    ith_attend_gather_lse(&x->whole, row->ranks);
    ith_oracle_copy_results(&x->whole.problem, &x->whole.tensors, &x->found);
    row->rel_l2 = ith_oracle_error(&x->whole.problem, &x->found, &x->exact, INFINITY);
}

/* Brings the results of a row to rank 0, which compares them. Returns false if a rank has failed. */
static bool check_results(bench_rank *r, int index)
{
    ith_bench_row *row = &r->bench->rows[index];
    if (!meet(r, takes_part(r, row) ? ith_attend_bring_back(&r->placed[first_alike(r->bench, index)]) : ITH_OK))
        return false;
    if (!meet(r, row->ranks > 1 ? ith_attend_gather(&row->problem->whole, r->comm) : ITH_OK))
        return false;
    if (r->rank == 0)
        ith_launch_alone(r->comm, compare_results, row);
    return true;
}

/* Executes the plan of every table row once. Repeat -1 warms up and compares the results with float64; repeats from 0
 * on are measured. */
static bool run_repeat(bench_rank *r, int repeat)
{
    ith_bench *bench = r->bench;
    for (int i = 0; i < bench->row_count; i++) {
        ith_bench_row *row = &bench->rows[i];
        double seconds, peak;
        if (!execute(r, i, &seconds) || !(repeat < 0 ? check_results(r, i) : measure_peaks(r, row, seconds, &peak)))
            return false;
        if (r->rank != 0)
            continue;
        if (repeat >= 0)
            row->seconds[repeat] = seconds, row->peaks[repeat] = peak;
        ith_progress_show(&bench->progress, 0, (int64_t)(repeat + 1) * bench->row_count + i + 1,
                          (int64_t)(bench->repeats + 1) * bench->row_count);
    }
    return true;
}

/* Drops the events of the trace so far. Returns false if a rank has failed. */
static bool restart_trace(bench_rank *r)
{
    return meet(r, r->first ? ith_records_restart(r->bench->launch, r->context) : ITH_OK) &&
           meet(r, ith_records_align(r->bench->launch, r->comm));
}

/* Measures the machine that the processes make up, and predicts the rows. Returns false if a rank has failed. */
static bool predict(bench_rank *r)
{
    return !r->bench->measures_machine ||
           (meet(r, ith_bench_predict_together(r->bench, r->context, r->comm)) && restart_trace(r));
}

/* Executes each row with the batch of the trace once more, and lets the trace hold nothing else. Returns false if a
 * rank has failed. */
static bool run_traced(bench_rank *r)
{
    double seconds;
    if (!restart_trace(r))
        return false;
    for (int i = 0; i < r->bench->row_count; i++)
        if (r->bench->rows[i].problem->whole.problem.batch == r->bench->trace_batch && !execute(r, i, &seconds))
            return false;
    return true;
}

/* Collects the counters of all plans from all ranks. Returns false if a rank has failed. */
static bool collect_counters(bench_rank *r)
{
    for (int i = 0; i < r->bench->row_count; i++) {
        ith_bench_row *row = &r->bench->rows[i];
        ith_plan_counters c = ITH_PLAN_COUNTERS_INIT;
        ith_status status = takes_part(r, row) ? ith_plan_count(r->plans[i], &c) : ITH_OK;
        r->own.sent_bytes = c.executions ? c.sent_bytes / c.executions : 0;
        r->own.exchange_seconds = c.exchange_seconds, r->own.waiting_seconds = c.waiting_seconds;
        r->own.compression_error = c.compression_error;
        if (!meet(r, status))
            return false;
        for (int rank = 0; r->rank == 0 && rank < row->ranks; rank++) {
            const rank_note *note = &r->notes[rank];
            row->sent_bytes = note->sent_bytes > row->sent_bytes ? note->sent_bytes : row->sent_bytes;
            row->exchange_seconds += note->exchange_seconds;
            row->waiting_seconds += note->waiting_seconds;
            row->compression_error = fmax(row->compression_error, note->compression_error);
        }
    }
    return true;
}

/* Creates all plans, executes the repeats, collects the counters and destroys the plans. */
static void measure(bench_rank *r)
{
    bool good = predict(r) && create_plans(r);
    for (int repeat = -1; good && repeat < r->bench->repeats; repeat++)
        good = run_repeat(r, repeat);
    if (good && r->bench->trace_batch)
        good = run_traced(r);
    if (good)
        collect_counters(r);
    for (int i = 0; i < r->bench->row_count; i++) {
        ith_plan_destroy(&r->plans[i]);
        ith_attend_leave(&r->placed[i]);
    }
}

ith_status ith_bench_run(ith_bench *bench, ith_context *context, ith_comm *comm)
{
    bench_rank r = {.bench = bench,
                    .context = context,
                    .comm = comm,
                    .rank = ith_comm_rank(comm),
                    .ranks = ith_comm_size(comm),
                    .first = ith_launch_is_first(comm, ith_comm_rank(comm))};
    r.notes = calloc((size_t)r.ranks, sizeof *r.notes);
    r.plans = calloc((size_t)bench->row_count, sizeof *r.plans);
    r.placed = calloc((size_t)bench->row_count, sizeof *r.placed);
    r.status = r.notes && r.plans && r.placed ? ITH_OK : ith_launch_fail(comm, ITH_ERR_MEMORY);
    if (!r.status)
        measure(&r);
    free(r.placed);
    free(r.plans);
    free(r.notes);
    return r.status;
}
