/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench: the rows of a measurement. Repeats go round the rows, so that a machine that slows down slows all rows
 * alike. */
#ifndef ITH_CLI_BENCH_H
#define ITH_CLI_BENCH_H

#include "../oracle/oracle.h"
#include "attend_whole.h"
#include "progress.h"

/* The tensors of one problem, which its rows share, and the exact result of some rows of o. */
typedef struct ith_bench_problem {
    ith_attend_whole whole;
    ith_oracle_rows exact, found;
} ith_bench_problem;

/* One plan and its measurements. */
typedef struct ith_bench_row {
    ith_bench_problem *problem;
    char name[64]; /* the strategy as named on the command line */
    ith_attn_options options;
    int ranks;
    ith_plan_info info;        /* of rank 0 */
    char kernel[64], peak[64]; /* the kernel, and the instructions that it multiplies with */
    double *seconds, *peaks;   /* of each repeat; the peak in GFLOP/s is measured right after it */
    double rel_l2;
    int64_t predicted_bytes, held_bytes;      /* of the plans of all ranks; execution allocates nothing */
    int64_t sent_bytes;                       /* in one execution, of the rank that sends most */
    double exchange_seconds, waiting_seconds; /* summed over ranks and executions */
} ith_bench_row;

typedef struct ith_bench {
    ith_context *context;
    int ranks;   /* of every row but `single` */
    int threads; /* of every row, distributed over its ranks */
    int repeats;
    ith_bench_problem *problems;
    int problem_count;
    ith_bench_row *rows;
    int row_count;
    ith_progress progress;
} ith_bench;

/* Executes every row once to warm up and to compare it with float64, then once per repeat. Prints errors and returns an
 * exit status. */
int ith_bench_run(ith_bench *bench);

#endif
