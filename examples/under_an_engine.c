/* SPDX-License-Identifier: Apache-2.0 */
/* Ithaca under an engine that has its own threads, allocator and log, and keeps q, k and v as one tensor
 * [LENGTH, 3, HEADS, DIM], as most do behind a fused projection: strides say where rows lie, and nothing is copied.
 *
 *     cc under_an_engine.c $(pkg-config --cflags --libs ithaca) -lpthread -o engine && ./engine
 */
#include <ithaca/ithaca.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 2, HEADS = 6, DIM = 128, LENGTH = 1500, ROW = HEADS * DIM };

/* The allocator of the engine (ith_allocator.allocate). */
static void *engine_allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void engine_release(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

static void engine_log(void *user, ith_log_level level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "engine: %s\n", line);
}

/* A worker thread of the engine, which becomes one rank. */
typedef struct worker {
    ith_context *context;
    ith_comm *comm;
    uint16_t *qkv, *o; /* this rank's rows in bf16 */
    ith_status status;
} worker;

/* Runs in each worker: makes a plan and executes it on this rank's rows. */
static void *work(void *user)
{
    worker *w = user;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = HEADS;
    problem.head_dim = DIM;
    problem.q_len = problem.kv_len = LENGTH;
    problem.dtype = ITH_BF16;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = 3 * ROW;
    ith_attn_tensors share = ITH_ATTN_TENSORS_INIT;
    share.q = w->qkv;
    share.k = w->qkv + ROW;
    share.v = w->qkv + 2 * ROW;
    share.o = w->o;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    options.threads = cores > RANKS ? cores / RANKS : 1; /* each rank uses its share of the cores */
    ith_plan *plan = NULL;
    w->status = ith_plan_create(w->context, &problem, &options, w->comm, &plan);
    if (!w->status)
        w->status = ith_plan_execute(plan, &share);
    ith_plan_destroy(&plan);
    return NULL;
}

/* Makes a context, a communicator and tensors for each worker. */
static ith_status make_workers(ith_context *context, worker workers[RANKS])
{
    ith_context *contexts[RANKS] = {0};
    ith_comm *comms[RANKS] = {0};
    ith_status status = ITH_OK;
    for (int i = 0; !status && i < RANKS; i++)
        status = ith_context_clone(context, &contexts[i]);
    if (!status)
        status = ith_comm_create_local(contexts, RANKS, comms);
    for (int i = 0; i < RANKS; i++) {
        int64_t first, rows;
        ith_share(LENGTH, RANKS, i, &first, &rows);
        workers[i] = (worker){.context = contexts[i], .comm = comms[i]};
        workers[i].qkv = calloc((size_t)(rows * 3 * ROW), sizeof(uint16_t));
        workers[i].o = calloc((size_t)(rows * ROW), sizeof(uint16_t));
        if (!status && (!workers[i].qkv || !workers[i].o))
            status = ITH_ERR_MEMORY;
    }
    return status;
}

int main(void)
{
    ith_allocator allocator = ITH_ALLOCATOR_INIT;
    allocator.allocate = engine_allocate;
    allocator.release = engine_release;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    options.log = engine_log;
    ith_context *context = NULL;
    worker workers[RANKS] = {{NULL}};
    ith_status status = ith_context_create(&options, &context);
    if (!status)
        status = make_workers(context, workers);
    pthread_t threads[RANKS];
    int started = 0;
    while (!status && started < RANKS && !pthread_create(&threads[started], NULL, work, &workers[started]))
        started++;
    if (!status && started < RANKS)
        status = ITH_ERR_MEMORY;
    for (int i = started; i < RANKS; i++)
        ith_comm_destroy(&workers[i].comm); /* a rank without a thread leaves, so that no other rank waits for it */
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++) {
        if (workers[i].status)
            fprintf(stderr, "rank %d: %s\n", i, ith_context_error(workers[i].context));
        status = status ? status : workers[i].status;
        ith_comm_destroy(&workers[i].comm);
        free(workers[i].qkv), free(workers[i].o);
    }
    for (int i = 0; i < RANKS; i++)
        ith_context_destroy(&workers[i].context);
    ith_context_destroy(&context);
    puts(status ? "failed" : "attended");
    return status ? 1 : 0;
}
