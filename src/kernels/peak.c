/* SPDX-License-Identifier: Apache-2.0 */
/* Measures peak rates of instructions: the number of operations of all threads, divided by the time of the slowest
 * thread. */
#include "peak.h"

#include "../base/clock.h"
#include "../base/cpu.h"
#include "../base/plain_text.h"
#include "../base/sized.h"
#include "../base/team_limit.h"
#include "device_rate.h"
#include "device_use.h"

#include <stdio.h>
#include <string.h>

/* The longest measurement that a caller may ask for. */
static const double SECONDS_MOST = 3600;

#define ITH_PEAK(type, isa, symbol) extern const ith_peak_row symbol;
#include "kernels.inc"

static const ith_peak_row *const peaks[] = {
#define ITH_PEAK(type, isa, symbol) &symbol,
#include "kernels.inc"
};
enum { PEAKS = sizeof peaks / sizeof *peaks };

/* Whether the instruction sets `cpu` include every set that the loop of multiply-adds needs. */
static bool usable(const ith_peak_row *peak, uint32_t cpu)
{
    return ith_cpu_has(cpu, peak->cpu);
}

/* Runs a loop of multiply-adds on all threads for about `seconds`. Returns the rate of all threads together, in 10^9
 * operations a second. */
static double rate_of(const ith_peak_row *peak, int threads, double seconds)
{
    double operations = 0.0, start = ith_clock_seconds();
#pragma omp parallel num_threads(threads) reduction(+ : operations)
    do
        operations += peak->work(200);
    while (ith_clock_seconds() - start < seconds);
    return operations / (ith_clock_seconds() - start) * 1e-9;
}

/* The row of the peak table whose instructions compute a product of a kernel: the first row whose name begins with
 * product->peak and that `cpu` can run. NULL if there is none. */
static const ith_peak_row *row_of(const ith_instructions *product, uint32_t cpu)
{
    for (int i = 0; i < PEAKS; i++)
        if (usable(peaks[i], cpu) && !strncmp(peaks[i]->name, product->peak, strlen(product->peak)))
            return peaks[i];
    return NULL;
}

double ith_peak_combine(const ith_attn_kernel *kernel, double logits_rate, double outputs_rate)
{
    return 2.0 / (kernel->logits.times / logits_rate + kernel->outputs.times / outputs_rate);
}

/* Measures the instructions of logits and outputs for half of the time each, or only once if they are the same. */
double ith_peak_of_kernel(const ith_attn_kernel *kernel, uint32_t cpu, int threads, double seconds)
{
    const ith_peak_row *logits = row_of(&kernel->logits, cpu), *outputs = row_of(&kernel->outputs, cpu);
    if (!logits || !outputs)
        return 0.0;
    double first = rate_of(logits, threads, logits == outputs ? seconds : seconds / 2);
    double second = logits == outputs ? first : rate_of(outputs, threads, seconds / 2);
    return ith_peak_combine(kernel, first, second);
}

double ith_peak_of_product(const ith_instructions *product, uint32_t cpu, int threads, double seconds)
{
    const ith_peak_row *row = row_of(product, cpu);
    return row ? rate_of(row, threads, seconds) / product->times : 0.0;
}

/* Writes the name of a row of the peak table, followed by `times` if it is above 1: "bf16_amx/6" means that six
 * products of bf16_amx make one product of the tensors' type. */
static void describe_row(const ith_peak_row *row, double times, char *text, size_t text_bytes)
{
    char number[32] = "";
    if (times > 1)
        ith_number_print(times, 6, number, sizeof number);
    snprintf(text, text_bytes, "%s%s%s", row->name, *number ? "/" : "", number);
}

const char *ith_peak_describe_product(const ith_instructions *product, uint32_t cpu, char *text, size_t text_bytes)
{
    const ith_peak_row *row = row_of(product, cpu);
    if (row)
        describe_row(row, product->times, text, text_bytes);
    else
        snprintf(text, text_bytes, "none");
    return text;
}

/* If logits and outputs run on the same instructions, the text has one name, with the mean of their `times`. */
const char *ith_peak_describe(const ith_attn_kernel *kernel, uint32_t cpu, char *text, size_t text_bytes)
{
    const ith_peak_row *logits = row_of(&kernel->logits, cpu), *outputs = row_of(&kernel->outputs, cpu);
    char first[48], second[48];
    if (!logits || !outputs) {
        snprintf(text, text_bytes, "none");
    } else if (logits == outputs) {
        describe_row(logits, 0.5 * (kernel->logits.times + kernel->outputs.times), text, text_bytes);
    } else {
        describe_row(logits, kernel->logits.times, first, sizeof first);
        describe_row(outputs, kernel->outputs.times, second, sizeof second);
        snprintf(text, text_bytes, "%s+%s", first, second);
    }
    return text;
}

/* ---- For programs ---------------------------------------------------------------------------------------------- */

/* Fails if `threads` is more than the process may start, or if `seconds` is beyond SECONDS_MOST. */
static ith_status check_measurement(ith_context *context, int threads, double seconds)
{
    if (threads < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT, "threads is %d, and must be 0 (one) or more", threads);
    if (!(seconds >= 0 && seconds <= SECONDS_MOST))
        return ith_fail(context, ITH_ERR_ARGUMENT, "seconds is %g, and must be from 0 to %g", seconds, SECONDS_MOST);
    ith_status status = ith_thread_limit_check(context, "threads", threads);
    return status ? status : ith_team_check(context, threads);
}

/* Measures row number `index` of the peak table, counting only rows that this machine can run. Beyond the last of these
 * rows, peak->name stays empty. */
ith_status ith_peak_rate(ith_context *context, int index, int threads, double seconds, ith_peak *peak)
{
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ITH_SIZED_CHECK(context, ith_peak, ITH_PEAK_INIT, peak);
    if (!status)
        status = check_measurement(context, threads, seconds);
    if (!status && index < 0)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "index is %d, and must be 0 or more", index);
    if (status)
        return status;
    ith_peak found = ITH_PEAK_INIT;
    uint32_t cpu = ith_context_cpu(context);
    for (int i = 0; i < PEAKS; i++) {
        if (!usable(peaks[i], cpu) || index-- > 0)
            continue;
        describe_row(peaks[i], 1, found.name, sizeof found.name);
        found.gflops = rate_of(peaks[i], threads > 0 ? threads : 1, seconds);
        break;
    }
    return ITH_SIZED_FILL(context, ith_peak, ITH_PEAK_INIT, peak, &found);
}

/* Whether a kernel of a device computes with f32, which it then takes too. */
static bool computes_in_f32(const ith_device_use *use, const ith_device_kernel *kernel)
{
    enum { D = 64, ROWS = 64 };
    const ith_device_rows rows = {.heads = 1, .row_stride = D, .batch_stride = ROWS * D};
    const ith_device_attend call = {.dtype = ITH_F32,
                                    .head_dim = D,
                                    .scale = 1,
                                    .softmax = ITH_SOFTMAX_ONLINE,
                                    .count = 1,
                                    .heads = 1,
                                    .per_kv = 1,
                                    .q = rows,
                                    .k = rows,
                                    .v = rows,
                                    .o = rows,
                                    .q_rows = ROWS,
                                    .kv_rows = ROWS};
    return kernel->refuses(use->device, &call) == NULL;
}

/* The peak of a kernel of the context's device: the rate of large matrix products of its number type there. */
static ith_status device_peak(ith_context *context, const char *name, double seconds, ith_peak *found)
{
    const ith_device_use *use = ith_context_device_use(context);
    const ith_device_kernel *kernel = ith_device_kernel_named(use, name);
    ith_device_rate *rate = NULL;
    if (!kernel)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "no kernel of the device %s is named '%.100s'; ith_kernel_list has the names", use->name, name);
    ith_status status = ith_device_rate_create(context, computes_in_f32(use, kernel) ? ITH_F32 : ITH_BF16, &rate);
    if (status)
        return status;
    snprintf(found->name, sizeof found->name, "%s", ith_device_rate_name(rate));
    found->gflops = ith_device_rate_measure(rate, seconds);
    ith_device_rate_free(&rate);
    return found->gflops > 0 ? ITH_OK : ITH_ERR_INTERNAL;
}

/* The peak of a kernel of this processor. */
static ith_status processor_peak(ith_context *context, const char *name, int threads, double seconds, ith_peak *found)
{
    const ith_attn_kernel *kernel = ith_attn_kernel_named(name);
    const uint32_t cpu = ith_context_cpu(context);
    char lacking[128];
    if (!kernel)
        return ith_fail(context, ITH_ERR_ARGUMENT, "no kernel is named '%.100s'; ith_kernel_list has the names", name);
    if (!ith_cpu_has(cpu, kernel->cpu))
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "kernel %s needs %s, which this machine lacks", name,
                        ith_cpu_describe(kernel->cpu & ~cpu, lacking, sizeof lacking));
    ith_peak_describe(kernel, cpu, found->name, sizeof found->name);
    found->gflops = ith_peak_of_kernel(kernel, cpu, threads > 0 ? threads : 1, seconds);
    return ITH_OK;
}

ith_status ith_kernel_peak(ith_context *context, const char *name, int threads, double seconds, ith_peak *peak)
{
    ith_peak found = ITH_PEAK_INIT;
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, name, "name");
    if (!status)
        status = ITH_SIZED_CHECK(context, ith_peak, ITH_PEAK_INIT, peak);
    if (!status)
        status = check_measurement(context, threads, seconds);
    if (!status)
        status = ith_context_device_use(context) ? device_peak(context, name, seconds, &found)
                                                 : processor_peak(context, name, threads, seconds, &found);
    return status ? status : ITH_SIZED_FILL(context, ith_peak, ITH_PEAK_INIT, peak, &found);
}
