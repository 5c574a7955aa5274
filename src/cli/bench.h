/* SPDX-License-Identifier: Apache-2.0 */
/* ithaca bench: rows of measurements, taken in turn. */
#ifndef ITH_CLI_BENCH_H
#define ITH_CLI_BENCH_H

#include "../oracle/oracle.h"
#include "attend_whole.h"
#include "progress.h"

/* Tensors that several rows share, and what a sample of the output's rows should come to. */
typedef struct ith_bench_problem {
    ith_attend_whole whole;
    ith_oracle_rows exact, found;
} ith_bench_problem;

/* One plan, and what was measured of it. */
typedef struct ith_bench_row {
    ith_bench_problem *problem;
    char name[64]; /* of the strategy, as it was asked for */
    ith_attn_options options;
    int ranks;
    ith_plan_info info;        /* of rank 0 */
    char kernel[64], peak[64]; /* the kernel, and the instructions that it multiplies with */
    double *seconds, *peaks;   /* of each repeat; peaks in GFLOP/s, measured right after it */
    double rel_l2;
    int64_t predicted_bytes, held_bytes; /* of all ranks' plans; from creation on, since execution allocates nothing */
    int64_t sent_bytes;                  /* by the rank that sends most, in one execution */
    double exchange_seconds, waiting_seconds; /* of all ranks and executions */
} ith_bench_row;

typedef struct ith_bench {
    ith_context *context;
    int ranks;   /* of rows with more than one */
    int threads; /* of every row, shared out to its ranks */
    int repeats;
    ith_bench_problem *problems;
    int problem_count;
    ith_bench_row *rows;
    int row_count;
    ith_progress progress;
} ith_bench;

/* Runs every row once to warm up and to compare it with float64, then once a repeat, one row after the other. Prints
 * what is wrong and returns an exit status. */
int ith_bench_run(ith_bench *bench);

#endif
