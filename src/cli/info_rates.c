/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of instruction sets and of kernels. A kernel attends to a head of its own on every thread, head size 128. */
#include "info_rates.h"

#include "attend_random.h"
#include "cli.h"

#include <stdio.h>

static const double PEAK_SECONDS = 0.1, KERNEL_SECONDS = 0.05;

json_t *ith_info_peaks(ith_context *context, int threads)
{
    json_t *peaks = json_array();
    ith_peak peak = ITH_PEAK_INIT;
    for (int i = 0; !ith_peak_rate(context, i, threads, PEAK_SECONDS, &peak) && peak.name[0]; i++)
        json_array_append_new(peaks, json_pack("{s:s, s:f}", "name", peak.name, "gflops", peak.gflops));
    return peaks;
}

/* The shortest time of one execution among those that fit into `seconds`, after one to warm up; 0 on failure. */
static double time_plan(ith_plan *plan, const ith_attn_tensors *tensors, double seconds)
{
    if (ith_plan_execute(plan, tensors))
        return 0;
    double begin = ith_cli_seconds(), now = begin, least = 0;
    while (now - begin < seconds) {
        if (ith_plan_execute(plan, tensors))
            return 0;
        double end = ith_cli_seconds();
        least = least > 0 && least < end - now ? least : end - now;
        now = end;
    }
    return least;
}

/* 10^9 operations a second with `rows` queries and keys; 0 if the kernel does not take the type. */
static double rate_of(ith_context *context, const char *kernel, ith_dtype type, int64_t rows, int threads)
{
    ith_attend_whole whole = {.problem = ITH_ATTN_PROBLEM_INIT};
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plan = NULL;
    double rate = 0;
    whole.problem.heads = whole.problem.kv_heads = threads, whole.problem.head_dim = 128;
    whole.problem.q_len = whole.problem.kv_len = rows, whole.problem.dtype = type;
    options.kernel = kernel;
    options.threads = threads;
    if (!ith_plan_create(context, &whole.problem, &options, NULL, &plan) &&
        !ith_attend_make_random(context, 0, 1, &whole)) {
        const ith_attn_tensors tensors = ith_attend_share(&whole, 1, 0);
        double seconds = time_plan(plan, &tensors, KERNEL_SECONDS);
        rate = seconds > 0 ? 1e-9 * ith_attend_operations(&whole.problem) / seconds : 0;
    }
    ith_plan_destroy(&plan);
    ith_attend_free(&whole);
    return rate;
}

/* Of a slow kernel a small problem has to do, of a fast one it would measure the edges. */
static void add_rate(ith_context *context, json_t *row, const char *kernel, ith_dtype type, int threads)
{
    static const int64_t small_rows = 256, rows = 2048;
    static const double fast = 10; /* GFLOP/s a thread */
    char name[32];
    double rate = rate_of(context, kernel, type, small_rows, threads);
    if (rate > fast * threads)
        rate = rate_of(context, kernel, type, rows, threads);
    if (rate <= 0)
        return;
    snprintf(name, sizeof name, "%s_gflops", ith_dtype_name(type));
    json_object_set_new(row, name, json_real(rate));
    snprintf(name, sizeof name, "%s_share", ith_dtype_name(type));
    json_object_set_new(row, name, json_real(rate / json_real_value(json_object_get(row, "peak_gflops"))));
}

static void add_peak(ith_context *context, json_t *row, const char *kernel, int threads)
{
    ith_peak peak = ITH_PEAK_INIT;
    if (ith_kernel_peak(context, kernel, threads, PEAK_SECONDS, &peak))
        return;
    json_object_set_new(row, "peak", json_string(peak.name));
    json_object_set_new(row, "peak_gflops", json_real(peak.gflops));
}

json_t *ith_info_kernels(ith_context *context, int threads)
{
    json_t *kernels = json_array();
    bool usable = false;
    const char *name;
    for (int i = 0; (name = ith_kernel_list(context, i, &usable)); i++) {
        json_t *row = json_pack("{s:s, s:b}", "name", name, "usable", usable);
        if (usable) {
            add_peak(context, row, name, threads);
            add_rate(context, row, name, ITH_BF16, threads);
            add_rate(context, row, name, ITH_F16, threads);
            add_rate(context, row, name, ITH_F32, threads);
        }
        json_array_append_new(kernels, row);
    }
    return kernels;
}
