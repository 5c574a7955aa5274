/* SPDX-License-Identifier: Apache-2.0 */
/* The times by which a tuner decides: of a whole block of the transformer, and of an execution of a plan. */
#include "tune_state.h"

#include "../cli.h"

#include <ithaca/bench.h>
#include <ithaca/transport.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_REPEATS 2
#define PLAN_REPEATS 4 /* measured executions of a plan, after one to warm up */

bool ith_tune_is_faster(double seconds, const double usual[2])
{
    const double least = fmin(usual[0], usual[1]), noise = fabs(usual[0] - usual[1]) / least;
    return seconds > 0 && seconds < least * (1 - fmax(noise, ITH_TUNE_MARGIN));
}

/* ---- A block --------------------------------------------------------------------------------------------------- */

/* Keeps the quiet time of the last stage, which is the whole block. */
static void take_stage(void *user, const ith_bench_stage *stage)
{
    ith_tune *t = user;
    t->block_seconds = stage->quiet_seconds;
}

ith_status ith_tune_time_block(ith_tune *t, ith_context *context, const ith_tune_cell *cell, int64_t tokens,
                               double *seconds)
{
    ith_block_problem block = ITH_BLOCK_PROBLEM_INIT;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    ith_bench_options options = ITH_BENCH_OPTIONS_INIT;
    block.heads = t->video.heads, block.head_dim = t->video.head_dim, block.ffn_dim = t->video.ffn_dim;
    block.tokens = tokens;
    attention.kernel = cell->kernel, attention.softmax = cell->about.softmax;
    options.precision = cell->about.dtype == ITH_F32 ? ITH_PRECISION_F32 : ITH_PRECISION_BF16;
    options.threads = (int)t->settings->threads, options.repeats = BLOCK_REPEATS;
    options.attention = &attention;
    options.on_stage = take_stage, options.should_stop = ith_tune_stops, options.user = t;
    ith_status status = ith_bench_block(context, &block, &options, NULL);
    *seconds = t->block_seconds;
    return status;
}

/* ---- A plan ---------------------------------------------------------------------------------------------------- */

/* Executions of a plan on all ranks of a group. */
typedef struct execution {
    ith_tune *tune;
    const ith_attn_problem *problem;
    const ith_attn_options *options;
    double seconds;
    ith_plan_info info;
} execution;

/* Allocates a tensor and fills it with numbers that repeat. */
static void *make_tensor(const ith_attn_problem *p, int64_t rows, int64_t seed)
{
    const int64_t count = p->batch * rows * p->heads * p->head_dim, bytes = ith_dtype_bytes(p->dtype);
    char *data = malloc((size_t)(count * bytes) + 64);
    for (int64_t i = 0; data && i < count; i++) {
        const float value = (float)((i * 7919 + seed) % 509) / 127.0f - 2;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t upper = (uint16_t)(bits >> 16);
        const uint16_t half = (uint16_t)(0x2c00u + (uint32_t)((i * 7919 + seed) % 4096)); /* from 1/16 to 1 */
        memcpy(data + i * bytes,
               p->dtype == ITH_F32    ? (const void *)&bits
               : p->dtype == ITH_BF16 ? &upper
                                      : &half,
               (size_t)bytes);
    }
    return data;
}

/* Executes the plan once, and sets *seconds to the time of the rank that took longest. */
static ith_status execute(ith_comm *comm, ith_plan *plan, const ith_attn_tensors *tensors, double *seconds)
{
    ith_status status = ith_comm_barrier(comm);
    double start = ith_cli_seconds();
    if (!status)
        status = ith_plan_execute(plan, tensors);
    float time = (float)(ith_cli_seconds() - start);
    if (!status)
        status = ith_comm_allreduce(comm, &time, 1, ITH_REDUCE_MAX);
    *seconds = (double)time;
    return status;
}

/* Repeats executions until rank 0 has enough, or the work is to stop. */
static ith_status repeat(execution *e, ith_comm *comm, ith_plan *plan, const ith_attn_tensors *tensors)
{
    double least = INFINITY, seconds = 0;
    ith_status status = ITH_OK;
    for (int n = 0; !status && n <= PLAN_REPEATS; n++) {
        int32_t ends = ith_comm_rank(comm) == 0 && ith_tune_stops(e->tune);
        status = ith_comm_broadcast(comm, &ends, sizeof ends, 0);
        if (!status && ends)
            return ITH_ERR_INTERRUPTED;
        if (!status)
            status = execute(comm, plan, tensors, &seconds);
        if (n > 0)
            least = fmin(least, seconds);
    }
    if (ith_comm_rank(comm) == 0)
        e->seconds = least;
    return status;
}

static ith_status run_rank(ith_context *context, ith_comm *comm, void *user)
{
    execution *e = user;
    const ith_attn_problem *p = e->problem;
    int64_t first, rows;
    ith_plan *plan = NULL;
    ith_share(p->q_len, ith_comm_size(comm), ith_comm_rank(comm), &first, &rows);
    void *data[4];
    for (int i = 0; i < 4; i++)
        data[i] = make_tensor(p, rows, i);
    ith_attn_tensors tensors = ITH_ATTN_TENSORS_INIT;
    tensors.q = data[0], tensors.k = data[1], tensors.v = data[2], tensors.o = data[3];
    ith_status status = data[0] && data[1] && data[2] && data[3] ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = ith_plan_create(context, p, e->options, comm, &plan);
    if (!status)
        status = repeat(e, comm, plan, &tensors);
    if (!status && ith_comm_rank(comm) == 0) {
        status = ith_plan_describe(plan, &e->info);
        e->info.kernel = NULL; /* lives as long as the plan */
    }
    ith_plan_destroy(&plan);
    for (int i = 0; i < 4; i++)
        free(data[i]);
    return status;
}

ith_status ith_tune_time_plan(ith_tune *t, ith_context *context, const ith_attn_problem *problem,
                              const ith_attn_options *options, int ranks, double *seconds, ith_plan_info *info)
{
    execution e = {.tune = t, .problem = problem, .options = options, .info = ITH_PLAN_INFO_INIT};
    ith_status status = ith_run_ranks(context, ranks, (int)t->settings->threads, run_rank, &e);
    *seconds = e.seconds;
    *info = e.info;
    return status;
}
