/* SPDX-License-Identifier: Apache-2.0 */
/* The state of ithaca bench attention: its problems and its rows. Each repeat executes every row once, so a machine
 * that becomes slower affects all rows alike. */
#ifndef ITH_CLI_BENCH_ROWS_H
#define ITH_CLI_BENCH_ROWS_H

#include "../../oracle/oracle.h"
#include "../attend/attend_whole.h"
#include "../launch/launch.h"
#include "../launch/progress.h"
#include "bench_output.h"

/* One attention problem, which several rows of the table measure. */
typedef struct ith_bench_problem {
    ith_attend_whole whole;
    ith_oracle_rows exact, found; /* sampled rows of o and lse: in float64, and as a plan computed them */
} ith_bench_problem;

/* A row of the table: one plan and its measurements. */
typedef struct ith_bench_row {
    ith_bench_problem *problem;
    char name[64]; /* name of the strategy on the command line, with its number of chunks */
    ith_attn_options options;
    int ranks;
    ith_plan_info info;                       /* the plan as rank 0 has it */
    char kernel[64], peak[64];                /* names of the kernel and of the instructions that it multiplies with */
    double *seconds, *peaks;                  /* [repeats]: duration, and peak rate in GFLOP/s right after it */
    double plan_seconds;                      /* time to make the plan, of the slowest rank */
    double predicted_seconds;                 /* by the cost model; NAN: not predicted */
    double rel_l2;                            /* relative L2 error of the sampled rows of o */
    int64_t predicted_bytes, held_bytes;      /* memory of the plans of all ranks: predicted, and measured */
    int64_t device_bytes;                     /* memory of a device that the plans of all ranks hold, predicted */
    int64_t sent_bytes;                       /* bytes sent in one execution by the rank that sends most */
    double exchange_seconds, waiting_seconds; /* time in exchanges, and waiting for them, summed over all ranks */
    double compression_error;                 /* the largest of all ranks */
} ith_bench_row;

/* All problems and rows of one command, and the settings that the rows share. Only in the process of rank 0 do rows
 * hold measurements. */
typedef struct ith_bench {
    ith_context *context;
    const ith_launch *launch; /* each row has its ranks; rows with strategy `single` have one */
    int threads;              /* threads of each row, divided among its ranks */
    int threads_here;         /* threads of this process */
    int64_t trace_batch;      /* the batch whose rows alone the trace holds; 0: it holds everything */
    bool measures_machine;    /* the ranks measure their machine together, to predict the rows */
    bool on_device;           /* the context uses a device, `device`, on which nothing is predicted */
    ith_device_info device;
    char machine[64]; /* name of the machine by whose rates the rows were predicted; "" if there is none */
    int repeats;      /* number of measured executions of each row */
    ith_bench_problem *problems;
    int problem_count;
    ith_bench_row *rows;
    int row_count;
    ith_progress progress; /* shown by rank 0 */
} ith_bench;

/* Executes the plan of every table row once to warm up and to compare it with float64, then once per repeat.
 * Collective: every rank calls it. Returns its status on the rank that failed, or on all. */
ith_status ith_bench_run(ith_bench *bench, ith_context *context, ith_comm *comm);

/* Predicts the time of each row. name: the value of --machine; NULL: this machine, as one process. Prints errors and
 * returns an exit status. */
int ith_bench_predict(ith_bench *bench, const char *name);
/* Measures the machine that the processes of the run make up, and predicts the time of each row. Collective. */
ith_status ith_bench_predict_together(ith_bench *bench, ith_context *context, ith_comm *comm);

/* Prints, compares and draws the rows as `output` asks. Returns an exit status. */
int ith_bench_report_rows(const ith_bench *bench, const ith_bench_output *output);

#endif
