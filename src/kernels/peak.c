/* SPDX-License-Identifier: Apache-2.0 */
/* Measures peak rates: the operations of all threads over the time that the slowest took. */
#include "peak.h"

#include "../base/clock.h"

#include <stdio.h>
#include <string.h>

#define ITH_PEAK(type, isa, symbol) extern const ith_peak symbol;
#include "kernels.inc"

static const ith_peak *const peaks[] = {
#define ITH_PEAK(type, isa, symbol) &symbol,
#include "kernels.inc"
};
enum { PEAKS = sizeof peaks / sizeof *peaks };

const ith_peak *ith_peak_at(int index)
{
    return index >= 0 && index < PEAKS ? peaks[index] : NULL;
}

static bool usable(const ith_peak *peak, uint32_t cpu)
{
    return (peak->cpu & ~cpu) == 0;
}

/* Sustained: everything done over all the time it took. */
static double rate_of(const ith_peak *peak, int threads, double seconds)
{
    double operations = 0.0, start = ith_clock_seconds();
#pragma omp parallel num_threads(threads) reduction(+ : operations)
    do
        operations += peak->work(200);
    while (ith_clock_seconds() - start < seconds);
    return operations / (ith_clock_seconds() - start) * 1e-9;
}

/* What a product of a kernel runs on; NULL if `cpu` has nothing for it. */
static const ith_peak *row_of(const ith_attn_product *product, uint32_t cpu)
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

double ith_peak_of_kernel(const ith_attn_kernel *kernel, uint32_t cpu, int threads, double seconds)
{
    const ith_peak *logits = row_of(&kernel->logits, cpu), *outputs = row_of(&kernel->outputs, cpu);
    if (!logits || !outputs)
        return 0.0;
    double first = rate_of(logits, threads, logits == outputs ? seconds : seconds / 2);
    double second = logits == outputs ? first : rate_of(outputs, threads, seconds / 2);
    return ith_peak_combine(kernel, first, second);
}

static void describe_row(const ith_peak *row, double times, char *text, size_t text_bytes)
{
    if (times > 1)
        snprintf(text, text_bytes, "%s/%g", row->name, times);
    else
        snprintf(text, text_bytes, "%s", row->name);
}

const char *ith_peak_describe(const ith_attn_kernel *kernel, uint32_t cpu, char *text, size_t text_bytes)
{
    const ith_peak *logits = row_of(&kernel->logits, cpu), *outputs = row_of(&kernel->outputs, cpu);
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

bool ith_peak_rate(const ith_context *context, int index, int threads, double seconds, const char **name, double *rate)
{
    uint32_t cpu = ith_context_cpu(context);
    if (!context || !name || !rate)
        return false;
    for (int i = 0; i < PEAKS && index >= 0; i++) {
        if (!usable(peaks[i], cpu))
            continue;
        if (index-- > 0)
            continue;
        *name = peaks[i]->name;
        *rate = rate_of(peaks[i], threads > 0 ? threads : 1, seconds);
        return true;
    }
    return false;
}

ith_status ith_kernel_peak(ith_context *context, const char *name, int threads, double seconds, char *text,
                           size_t text_bytes, double *rate)
{
    if (!context)
        return ITH_ERR_ARGUMENT;
    if (!name || !rate || (text_bytes && !text))
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s is NULL", !name ? "name" : !rate ? "rate" : "text");
    const ith_attn_kernel *kernel = ith_attn_kernel_named(name);
    uint32_t cpu = ith_context_cpu(context);
    char lacking[128];
    if (!kernel)
        return ith_fail(context, ITH_ERR_ARGUMENT, "no kernel is named '%.100s'; ith_kernel_list has the names", name);
    if (kernel->cpu & ~cpu)
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "kernel %s needs %s, which this machine lacks", name,
                        ith_cpu_describe(kernel->cpu & ~cpu, lacking, sizeof lacking));
    *rate = ith_peak_of_kernel(kernel, cpu, threads > 0 ? threads : 1, seconds);
    if (text_bytes)
        ith_peak_describe(kernel, cpu, text, text_bytes);
    return ITH_OK;
}
