/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of ithaca bench. One group of ranks holds the plans of all rows of the table at the same time, so
 * that each repeat can execute every plan once. A plan with strategy `single` runs on rank 0 with all threads while the
 * other ranks sleep.
 *
 * A barrier stands before and after every execution. A rank that fails sets a flag and still arrives at the next
 * barrier, after which all ranks see the flag and return. So no rank waits for a rank that has left. */
#include "bench_rows.h"

#include "cli.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The peak rate is measured for a fifth of the row's duration, within these limits in seconds. */
static const double PEAK_SECONDS_MIN = 0.05, PEAK_SECONDS_MAX = 0.5;

/* The data of one rank about the current row. Rank 0 reads them after all ranks have passed a barrier. */
typedef struct rank_note {
    double begin, end; /* times of the execution */
    ith_plan_info info;
    ith_plan_counters counters;
} rank_note;

/* The state that all ranks of the measurement share. */
typedef struct bench_run {
    ith_bench *bench;
    pthread_barrier_t barrier;
    atomic_bool failed; /* whether any rank has failed */
    rank_note *notes;   /* [ranks]: the data of each rank about the current row */
    ith_plan **plans;   /* [ranks, rows]; NULL if a rank takes no part in a row */
} bench_run;

/* The state of one rank of the measurement. */
typedef struct bench_rank {
    bench_run *run;
    ith_context *context;
    ith_comm *comm;
    int rank;
    ith_plan **plans;  /* [rows]: this rank's plan of each row */
    ith_status status; /* failure of this rank; ITH_OK if it has not failed */
} bench_rank;

/* Reports this rank's status, waits at the barrier, and returns whether no rank has failed. */
static bool meet(bench_rank *r, ith_status status)
{
    if (status) {
        r->status = status;
        atomic_store(&r->run->failed, true);
    }
    pthread_barrier_wait(&r->run->barrier);
    return !atomic_load(&r->run->failed);
}

/* Whether this rank executes the plan of a table row. Rank 0 alone executes a plan of a single rank. */
static bool takes_part(const bench_rank *r, const ith_bench_row *row)
{
    return r->rank == 0 || row->ranks > 1;
}

/* ---- Peaks ----------------------------------------------------------------------------------------------------- */

/* The peak of the instructions that the row's kernel multiplies with, in GFLOP/s; 0 on failure. */
static double measure_peak(const bench_run *run, ith_context *context, ith_bench_row *row, double row_seconds)
{
    double seconds = fmin(fmax(row_seconds / 5, PEAK_SECONDS_MIN), PEAK_SECONDS_MAX);
    ith_peak peak = ITH_PEAK_INIT;
    ith_kernel_peak(context, row->kernel, run->bench->threads, seconds, &peak);
    memcpy(row->peak, peak.name, sizeof row->peak);
    return peak.gflops;
}

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

/* Creates this rank's plan of a table row, and stores the description of the plan for rank 0. */
static ith_status create_plan(bench_rank *r, const ith_bench_row *row, ith_plan **plan)
{
    ith_attn_options options = row->options;
    if (row->ranks == 1)
        options.threads = r->run->bench->threads;
    ith_status status =
        ith_plan_create(r->context, &row->problem->whole.problem, &options, row->ranks > 1 ? r->comm : NULL, plan);
    r->run->notes[r->rank].info = (ith_plan_info)ITH_PLAN_INFO_INIT;
    if (!status)
        status = ith_plan_describe(*plan, &r->run->notes[r->rank].info);
    return status;
}

/* The bytes of memory that the library holds now, on all ranks together. */
static int64_t held_bytes(ith_context *context)
{
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    ith_context_memory(context, &use);
    return use.current_bytes;
}

/* Stores the description of a row's plan and the memory of all ranks' plans. Rank 0 calls this when every rank has
 * created its plan. */
static void note_plan(const bench_run *run, ith_context *context, ith_bench_row *row, int64_t bytes_before)
{
    row->info = run->notes[0].info;
    snprintf(row->kernel, sizeof row->kernel, "%s", row->info.kernel);
    row->info.kernel = row->kernel;
    for (int rank = 0; rank < row->ranks; rank++)
        row->predicted_bytes += run->notes[rank].info.memory_bytes;
    row->held_bytes = held_bytes(context) - bytes_before;
}

/* Creates this rank's plans of all table rows, at the same time as the other ranks. Returns false if a rank has
 * failed. */
static bool create_plans(bench_rank *r)
{
    const ith_bench *bench = r->run->bench;
    for (int i = 0; i < bench->row_count; i++) {
        ith_bench_row *row = &bench->rows[i];
        int64_t before = held_bytes(r->context);
        if (!meet(r, ITH_OK) || !meet(r, takes_part(r, row) ? create_plan(r, row, &r->plans[i]) : ITH_OK))
            return false;
        if (r->rank == 0)
            note_plan(r->run, r->context, row, before);
    }
    return true;
}

/* ---- Executions ------------------------------------------------------------------------------------------------ */

/* Executes the plan of a table row on its ranks. *seconds becomes the time from when the first rank begins to when the
 * last rank ends. Returns false if a rank has failed. */
static bool execute(bench_rank *r, int index, double *seconds)
{
    const ith_bench_row *row = &r->run->bench->rows[index];
    rank_note *notes = r->run->notes, *own = &notes[r->rank];
    ith_status status = ITH_OK;
    if (!meet(r, ITH_OK))
        return false;
    if (takes_part(r, row)) {
        ith_attn_tensors share = ith_attend_share(&row->problem->whole, row->ranks, r->rank);
        own->begin = ith_cli_seconds();
        status = ith_plan_execute(r->plans[index], &share);
        own->end = ith_cli_seconds();
    }
    if (!meet(r, status))
        return false;
    double begin = notes[0].begin, end = notes[0].end;
    for (int rank = 1; rank < row->ranks; rank++) {
        begin = notes[rank].begin < begin ? notes[rank].begin : begin;
        end = notes[rank].end > end ? notes[rank].end : end;
    }
    *seconds = end - begin;
    return true;
}

/* Computes row->rel_l2, the error of the sampled rows of o against float64. */
static void compare(ith_bench_row *row)
{
    ith_bench_problem *x = row->problem;
    ith_attend_gather_lse(&x->whole, row->ranks);
    ith_oracle_found(&x->whole.problem, &x->whole.tensors, &x->found);
    row->rel_l2 = ith_oracle_error(&x->whole.problem, &x->found, &x->exact, INFINITY);
}

/* Executes the plan of every table row once. Repeat -1 warms up and compares the results with float64; repeats from 0
 * on are measured. */
static bool run_repeat(bench_rank *r, int repeat)
{
    ith_bench *bench = r->run->bench;
    for (int i = 0; i < bench->row_count; i++) {
        double seconds;
        if (!execute(r, i, &seconds))
            return false;
        if (r->rank != 0)
            continue;
        ith_bench_row *row = &bench->rows[i];
        if (repeat < 0) {
            compare(row);
        } else {
            row->seconds[repeat] = seconds;
            row->peaks[repeat] = measure_peak(r->run, r->context, row, seconds);
        }
        ith_progress_show(&bench->progress, 0, (int64_t)(repeat + 1) * bench->row_count + i + 1,
                          (int64_t)(bench->repeats + 1) * bench->row_count);
    }
    return true;
}

/* Adds the counters of all ranks to a row: bytes sent, and the times of exchanges. Rank 0 calls this. */
static void add_counters(const bench_run *run, ith_bench_row *row)
{
    for (int rank = 0; rank < row->ranks; rank++) {
        const ith_plan_counters *c = &run->notes[rank].counters;
        int64_t sent = c->executions ? c->sent_bytes / c->executions : 0;
        row->sent_bytes = sent > row->sent_bytes ? sent : row->sent_bytes;
        row->exchange_seconds += c->exchange_seconds;
        row->waiting_seconds += c->waiting_seconds;
    }
}

/* Collects the counters of all plans from all ranks. Returns false if a rank has failed. */
static bool collect_counters(bench_rank *r)
{
    for (int i = 0; i < r->run->bench->row_count; i++) {
        ith_bench_row *row = &r->run->bench->rows[i];
        ith_status status = ITH_OK;
        r->run->notes[r->rank].counters = (ith_plan_counters)ITH_PLAN_COUNTERS_INIT;
        if (takes_part(r, row))
            status = ith_plan_count(r->plans[i], &r->run->notes[r->rank].counters);
        if (!meet(r, status))
            return false;
        if (r->rank == 0)
            add_counters(r->run, row);
        if (!meet(r, ITH_OK))
            return false;
    }
    return true;
}

/* Runs on each rank: creates all plans, executes the repeats, collects the counters and destroys the plans. */
static ith_status bench_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    bench_run *run = user;
    int rows = run->bench->row_count;
    bench_rank r = {.run = run, .context = context, .comm = comm, .rank = ith_comm_rank(comm)};
    r.plans = run->plans + (ptrdiff_t)r.rank * rows;
    bool good = create_plans(&r);
    for (int repeat = -1; good && repeat < run->bench->repeats; repeat++)
        good = run_repeat(&r, repeat);
    if (good)
        collect_counters(&r);
    for (int i = 0; i < rows; i++)
        ith_plan_destroy(&r.plans[i]);
    return r.status;
}

int ith_bench_run(ith_bench *bench)
{
    size_t ranks = (size_t)bench->ranks;
    bench_run run = {.bench = bench, .notes = calloc(ranks, sizeof(rank_note))};
    run.plans = calloc(ranks * (size_t)bench->row_count, sizeof *run.plans);
    int code = ITH_EXIT_DONE;
    if (!run.notes || !run.plans || pthread_barrier_init(&run.barrier, NULL, (unsigned)ranks)) {
        code = ith_cli_error("there is no memory for %d ranks", bench->ranks);
    } else {
        if (ith_run_ranks(bench->context, bench->ranks, bench->threads, bench_in_rank, &run))
            code = ith_cli_error("%s", ith_context_error(bench->context));
        pthread_barrier_destroy(&run.barrier);
    }
    free(run.plans);
    free(run.notes);
    return code;
}
