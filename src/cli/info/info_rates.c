/* SPDX-License-Identifier: Apache-2.0 */
/* Measures instruction sets and kernels for ithaca info (info_rates.h). */
#include "info_rates.h"

#include "../attend/attend_device.h"
#include "../cli.h"
#include "../shared_option/device_option.h"

#include <stdio.h>

/* The duration of each measurement in seconds. */
static const double PEAK_SECONDS = 0.1, KERNEL_SECONDS = 0.05;

/* Other programs disturb some parts of a measurement. So the highest rate of a part is the peak, and the shortest
 * execution gives the rate of a kernel. */
enum { PEAK_PARTS = 50, LEAST_EXECUTIONS = 5 };

json_t *ith_info_peaks(ith_context *context, int threads)
{
    json_t *peaks = json_array();
    ith_peak peak = ITH_PEAK_INIT;
    for (int i = 0; !ith_peak_rate(context, i, threads, PEAK_SECONDS / PEAK_PARTS, &peak) && peak.name[0]; i++) {
        double most = peak.gflops;
        for (int part = 1; part < PEAK_PARTS; part++)
            if (!ith_peak_rate(context, i, threads, PEAK_SECONDS / PEAK_PARTS, &peak) && peak.gflops > most)
                most = peak.gflops;
        json_array_append_new(peaks, json_pack("{s:s, s:f}", "name", peak.name, "gflops", most));
    }
    return peaks;
}

/* Executes a plan again and again for about `seconds`, at least LEAST_EXECUTIONS times, after one execution to warm up.
 * Returns the shortest duration, or 0 on failure. */
static double time_plan(ith_plan *plan, const ith_attn_tensors *tensors, double seconds)
{
    if (ith_plan_execute(plan, tensors))
        return 0;
    double begin = ith_cli_seconds(), now = begin, least = 0;
    for (int done = 0; done < LEAST_EXECUTIONS || now - begin < seconds; done++) {
        if (ith_plan_execute(plan, tensors))
            return 0;
        double end = ith_cli_seconds();
        least = least > 0 && least < end - now ? least : end - now;
        now = end;
    }
    return least;
}

/* Measures a kernel's rate in GFLOP/s on `rows` queries and keys of `heads` heads. Returns 0 if the kernel does not
 * support the type. */
static double rate_of(ith_context *context, const char *kernel, ith_dtype type, int64_t rows, int64_t heads,
                      int threads)
{
    ith_attend_whole whole = {.problem = ITH_ATTN_PROBLEM_INIT};
    ith_attend_placed placed = {.memory_count = 0};
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan *plan = NULL;
    double rate = 0;
    whole.problem.heads = whole.problem.kv_heads = heads, whole.problem.head_dim = 128;
    whole.problem.q_len = whole.problem.kv_len = rows, whole.problem.dtype = type;
    options.kernel = kernel;
    options.threads = threads;
    if (!ith_plan_create(context, &whole.problem, &options, NULL, &plan) &&
        !ith_attend_make_random(context, 0, 1, &whole) && !ith_attend_place(context, &whole, 1, 0, &placed)) {
        double seconds = time_plan(plan, &placed.tensors, KERNEL_SECONDS);
        rate = seconds > 0 ? 1e-9 * ith_attend_operations(&whole.problem) / seconds : 0;
    }
    ith_plan_destroy(&plan);
    ith_attend_leave(&placed);
    ith_attend_free(&whole);
    return rate;
}

/* Adds the rate of a kernel for a type, and the rate's share of the peak if there is one, to a JSON object. A slow
 * kernel is measured with a small problem; a fast one needs a larger problem, in which packing and borders take a small
 * part of the time. A device needs a larger one still, to keep all of its processors busy. */
static void add_rate(ith_context *context, json_t *row, const char *kernel, ith_dtype type, int threads)
{
    static const int64_t small_rows = 256, rows = 1024, device_rows = 8192, device_heads = 32;
    static const double fast = 10; /* GFLOP/s per thread: a kernel above this counts as fast */
    ith_device_info device;
    const bool on_device = ith_device_in_use(context, &device);
    char name[32];
    double rate = rate_of(context, kernel, type, small_rows, threads, threads);
    if (rate > fast * threads)
        rate =
            rate_of(context, kernel, type, on_device ? device_rows : rows, on_device ? device_heads : threads, threads);
    if (rate <= 0)
        return;
    snprintf(name, sizeof name, "%s_gflops", ith_dtype_name(type));
    json_object_set_new(row, name, json_real(rate));
    const double peak = json_real_value(json_object_get(row, "peak_gflops"));
    snprintf(name, sizeof name, "%s_share", ith_dtype_name(type));
    if (peak > 0)
        json_object_set_new(row, name, json_real(rate / peak));
}

/* Adds the name and the measured rate of a kernel's peak (ith_kernel_peak); nothing if there is none. The peak of a
 * device is measured in one part, because each measurement allocates memory there. */
static void add_peak(ith_context *context, json_t *row, const char *kernel, int threads)
{
    ith_device_info device;
    const int parts = ith_device_in_use(context, &device) ? 1 : PEAK_PARTS;
    ith_peak peak = ITH_PEAK_INIT;
    double most = 0;
    for (int part = 0; part < parts; part++) {
        if (ith_kernel_peak(context, kernel, threads, PEAK_SECONDS / parts, &peak))
            return;
        most = peak.gflops > most ? peak.gflops : most;
    }
    json_object_set_new(row, "peak", json_string(peak.name));
    json_object_set_new(row, "peak_gflops", json_real(most));
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
