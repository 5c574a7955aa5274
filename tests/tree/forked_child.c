/* SPDX-License-Identifier: Apache-2.0 */
/* A program on the shared libraries that forks after it has computed on two threads, in libithaca ("plan") or in
 * libithaca_wan ("engine"). Both refuse the child with a sentence, and neither waits for threads that are not there.
 * "limited": does not fork, and computes on as many threads as it may have. Returns the number of the first check that
 * failed. */
#include <ithaca/bench.h>
#include <ithaca/tune.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ith_status plan(ith_context *context, int threads)
{
    static float tensors[4][2 * 8 * 64];
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    ith_plan *made = NULL;
    problem.heads = 2, problem.head_dim = 8, problem.q_len = problem.kv_len = 64;
    options.threads = threads;
    t.q = tensors[0], t.k = tensors[1], t.v = tensors[2], t.o = tensors[3];
    ith_status status = ith_plan_create(context, &problem, &options, NULL, &made);
    if (!status)
        status = ith_plan_execute(made, &t);
    ith_plan_destroy(&made);
    return status;
}

static ith_status bench(ith_context *context, int threads)
{
    ith_decode_problem problem = ITH_DECODE_PROBLEM_INIT;
    ith_bench_options options = ITH_BENCH_OPTIONS_INIT;
    problem.frames = 1, problem.height = problem.width = 32;
    options.threads = threads, options.repeats = 1;
    return ith_bench_decode(context, &problem, &options, NULL);
}

static ith_status generate(ith_pipeline *pipeline, int threads)
{
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "a circle", options.frames = 1, options.height = options.width = 16, options.steps = 1;
    options.threads = threads;
    return ith_pipeline_generate(pipeline, NULL, &options, NULL);
}

static int in_child(ith_context *old, ith_pipeline *pipeline, const char *model)
{
    ith_context *own = NULL;
    ith_pipeline *opened = NULL;
    ith_peak peak = ITH_PEAK_INIT;
    ith_tile_search search = ITH_TILE_SEARCH_INIT;
    ith_tile_report report = ITH_TILE_REPORT_INIT;
    alarm(60);
    search.seconds = 0.1;
    if (plan(old, 1) != ITH_ERR_UNSUPPORTED || bench(old, 1) != ITH_ERR_UNSUPPORTED ||
        generate(pipeline, 1) != ITH_ERR_UNSUPPORTED)
        return 1;
    if (ith_peak_rate(old, 0, 1, 0, &peak) != ITH_ERR_UNSUPPORTED ||
        ith_kernel_peak(old, "f32_ref", 1, 0, &peak) != ITH_ERR_UNSUPPORTED ||
        ith_tiles_search(old, &search, &report) != ITH_ERR_UNSUPPORTED)
        return 2;
    if (ith_context_create(NULL, &own) || ith_pipeline_open(own, model, &opened))
        return 3;
    if (plan(own, 2) != ITH_ERR_UNSUPPORTED || bench(own, 2) != ITH_ERR_UNSUPPORTED ||
        generate(opened, 2) != ITH_ERR_UNSUPPORTED || !strstr(ith_context_error(own), "fork"))
        return 4;
    return plan(own, 1) || bench(own, 1) || generate(opened, 1) ? 5 : 0;
}

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    ith_pipeline *pipeline = NULL;
    int status = 0;
    if (argc != 3 || ith_context_create(NULL, &context) || ith_pipeline_open(context, argv[1], &pipeline))
        return 10;
    if (!strcmp(argv[2], "limited"))
        return plan(context, 0) || bench(context, 0) || generate(pipeline, 0) ? 14 : 0;
    if (strcmp(argv[2], "plan") ? bench(context, 2) : plan(context, 2))
        return 11;
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(context, pipeline, argv[1]));
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 12;
    if (plan(context, 2) || bench(context, 2))
        return 13;
    ith_pipeline_close(&pipeline);
    ith_context_destroy(&context);
    return WEXITSTATUS(status);
}
