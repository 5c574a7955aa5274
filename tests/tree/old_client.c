/* SPDX-License-Identifier: Apache-2.0 */
/* A program that does not use the last field of any struct. Compiled with the header, and with a header without these
 * fields (trim_header.awk), it prints the same. With a model folder as its argument it generates a video too. */
#include <ithaca/ithaca.h>
#ifdef WITH_ENGINE
#include <ithaca/files.h>
#include <ithaca/wan.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, HEADS = 6, DIM = 32, LENGTH = 200, ROW = HEADS * DIM };

static uint64_t hash(uint64_t seed, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return seed;
}

static void *take(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give_back(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

static void print_info(const ith_plan_info *i)
{
    printf("%s %d %d %d %s %d %d %s %d %s %s %d %lld %lld %lld %lld %lld\n", ith_strategy_name(i->strategy), i->ranks,
           i->ulysses, i->ring, ith_direction_name(i->direction), i->chunks, i->folded, ith_softmax_name(i->softmax),
           i->smoothed, ith_exchange_mode_name(i->exchange), i->kernel, i->threads, (long long)i->block_q,
           (long long)i->block_kv, (long long)i->block_kv_compute, (long long)i->block_kv_compute_in,
           (long long)i->sent_bytes);
}

static ith_status attend(ith_context *context, ith_comm *comm, void *user)
{
    float *const *all = user;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = HEADS, problem.head_dim = DIM, problem.q_len = problem.kv_len = LENGTH;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    if (ith_strategy_parse(context, "ulysses_fixed_m", &options))
        return ITH_ERR_INTERNAL;
    options.kernel = "f32_ref", options.threads = 1, options.chunks = 2, options.exchange = ITH_EXCHANGE_COPY;
    int64_t first, rows;
    ith_share(LENGTH, ith_comm_size(comm), ith_comm_rank(comm), &first, &rows);
    ith_attn_tensors share = ITH_ATTN_TENSORS_INIT;
    share.q = all[0] + first * ROW, share.k = all[1] + first * ROW, share.v = all[2] + first * ROW;
    share.o = all[3] + first * ROW;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, &problem, &options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &share);
    if (!status)
        status = ith_plan_describe(plan, &info);
    if (!status)
        status = ith_plan_count(plan, &counters);
    if (!status && ith_comm_rank(comm) == 0) {
        print_info(&info);
        printf("%lld executions, %lld bytes, %lld fixed_m, %lld online\n", (long long)counters.executions,
               (long long)counters.sent_bytes, (long long)counters.fixed_m_heads, (long long)counters.online_heads);
    }
    ith_plan_destroy(&plan);
    return status;
}

static ith_status run_attention(ith_context *context)
{
    float *all[4];
    for (int i = 0; i < 4; i++) {
        all[i] = calloc(LENGTH * ROW, sizeof(float));
        for (int j = 0; j < LENGTH * ROW; j++)
            all[i][j] = (float)((j * 7919 + i * 104729) % 1000) / 500.0f - 1.0f;
    }
    ith_status status = ith_run_ranks(context, RANKS, RANKS, attend, all);
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    if (!status)
        status = ith_context_memory(context, &use);
    printf("o %016llx, %lld bytes held\n", (unsigned long long)hash(1, all[3], sizeof(float) * LENGTH * ROW),
           (long long)use.current_bytes);
    for (int i = 0; i < 4; i++)
        free(all[i]);
    return status;
}

#ifdef WITH_ENGINE
static uint64_t frames_hash = 1;

static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    (void)user, (void)index;
    frames_hash = hash(frames_hash, rgb, (size_t)(height * width * 3));
    return ITH_OK;
}

typedef struct job {
    ith_pipeline *pipeline;
    ith_generate_options options;
    ith_generate_report report;
} job;

static ith_status rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    job *j = user;
    return ith_pipeline_generate(j->pipeline, comm, &j->options, ith_comm_rank(comm) ? NULL : &j->report);
}

static ith_status generate(ith_context *context, const char *folder)
{
    ith_pipeline *pipeline = NULL;
    ith_model_info info = ITH_MODEL_INFO_INIT;
    ith_attn_options attention = ITH_ATTN_OPTIONS_INIT;
    job j = {.options = ITH_GENERATE_OPTIONS_INIT, .report = ITH_GENERATE_REPORT_INIT};
    ith_generate_options *o = &j.options;
    attention.strategy = ITH_STRATEGY_RING;
    o->prompt = "a red circle", o->frames = 1, o->height = o->width = 32, o->steps = 2;
    o->threads = 2, o->precision = ITH_PRECISION_F32, o->attention = &attention;
    o->on_frame = take_frame;
    ith_status status = ith_pipeline_open(context, folder, &pipeline);
    j.pipeline = pipeline;
    if (!status)
        status = ith_pipeline_info(pipeline, &info);
    if (!status)
        status = ith_pipeline_resolve(pipeline, o);
    if (!status)
        status = ith_run_ranks(context, 2, 2, rank, &j);
    printf("%s: %lld layers, shift %g, sigmas %s, solver %s, %lld steps, %lld frames, %016llx\n",
           info.kind ? info.kind : "?", (long long)info.layers, o->shift, ith_sigmas_name(o->sigmas),
           ith_solver_name(o->solver), (long long)j.report.steps_done, (long long)j.report.frames_done,
           (unsigned long long)frames_hash);
    ith_pipeline_close(&pipeline);
    return status;
}
#endif

int main(int argc, char **argv)
{
    ith_allocator allocator = ITH_ALLOCATOR_INIT;
    allocator.allocate = take, allocator.release = give_back;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    ith_context *context = NULL;
    ith_status status = ith_context_create(&options, &context);
    if (!status)
        status = run_attention(context);
#ifdef WITH_ENGINE
    if (!status && argc > 1)
        status = generate(context, argv[1]);
#endif
    (void)argc, (void)argv;
    if (status)
        fprintf(stderr, "%s: %s\n", ith_status_name(status), ith_context_error(context));
    ith_context_destroy(&context);
    return status ? 1 : 0;
}
