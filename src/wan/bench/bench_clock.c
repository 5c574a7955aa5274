/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of benchmarks: listens to the stages of each repeat, and measures peaks between repeats. */
#include "bench_clock.h"

#include "../../base/clock.h"
#include "../../base/context.h"
#include "../../base/median.h"
#include "../../base/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* After each repeat the peaks are measured for a fifth of its duration, within these limits, in slices. */
static const double PEAK_SECONDS_MIN = 0.05, PEAK_SECONDS_MAX = 0.5, PEAK_SLICE_SECONDS = 0.002;

/* ---- Instructions ---------------------------------------------------------------------------------------------- */

static int add_unit(ith_bench_clock *clock, const ith_bench_unit *unit)
{
    for (int i = 0; i < clock->unit_count; i++) {
        const ith_bench_unit *u = &clock->units[i];
        if (u->device == unit->device && !strcmp(u->kernel, unit->kernel) && u->product.times == unit->product.times &&
            !strcmp(u->product.peak, unit->product.peak))
            return i;
    }
    clock->units[clock->unit_count] = *unit;
    return clock->unit_count++;
}

int ith_bench_clock_add_product(ith_bench_clock *clock, ith_instructions product)
{
    const ith_bench_unit unit = {.product = product};
    return add_unit(clock, &unit);
}

int ith_bench_clock_add_kernel(ith_bench_clock *clock, const char *kernel)
{
    ith_bench_unit unit = {.product = {"", 0}};
    snprintf(unit.kernel, sizeof unit.kernel, "%s", kernel);
    return add_unit(clock, &unit);
}

int ith_bench_clock_add_device(ith_bench_clock *clock, ith_device_rate *rate)
{
    const ith_bench_unit unit = {.device = rate, .product = {"", 0}};
    return add_unit(clock, &unit);
}

void ith_bench_clock_add(ith_bench_clock *clock, const char *name, double operations, int unit)
{
    clock->stages[clock->stage_count++] = (ith_bench_clock_stage){name, operations, unit};
}

/* Measures the peak of instructions once, and describes them. libithaca measures the peak of an attention kernel,
 * because it also knows the kernels of modules. */
static ith_peak peak_of(const ith_bench_clock *clock, const ith_bench_unit *unit, double seconds)
{
    const uint32_t cpu = ith_context_cpu(clock->context);
    ith_peak peak = ITH_PEAK_INIT;
    if (unit->device) {
        snprintf(peak.name, sizeof peak.name, "%s", ith_device_rate_name(unit->device));
        peak.gflops = seconds > 0 ? ith_device_rate_measure(unit->device, seconds) : 0;
    } else if (unit->kernel[0]) {
        ith_kernel_peak(clock->context, unit->kernel, clock->threads, seconds, &peak);
    } else {
        ith_peak_describe_product(&unit->product, cpu, peak.name, sizeof peak.name);
        peak.gflops = ith_peak_of_product(&unit->product, cpu, clock->threads, seconds);
    }
    return peak;
}

/* Measures the peak of instructions for about `seconds`, in slices. Returns their mean rate. */
static double measure_unit(const ith_bench_clock *clock, ith_bench_unit *unit, double seconds)
{
    const double begin = ith_clock_seconds();
    double sum = 0;
    int slices = 0;
    do {
        const ith_peak peak = peak_of(clock, unit, PEAK_SLICE_SECONDS);
        unit->burst = fmax(unit->burst, peak.gflops);
        sum += peak.gflops, slices++;
    } while (ith_clock_seconds() - begin < seconds);
    return sum / slices;
}

void ith_bench_clock_tick(ith_bench_clock *clock)
{
    ith_bench_slices_tick(&clock->slices);
}

/* ---- Repeats --------------------------------------------------------------------------------------------------- */

/* Gets every interval of the trace. Names of stages are compared by their text, because the trace has no others. */
static void listen(void *user, const char *name, double begin, double end)
{
    ith_bench_clock *clock = user;
    if (!strcmp(name, clock->whole)) {
        clock->now[clock->stage_count] += end - begin;
        return;
    }
    for (int i = 0; i < clock->stage_count; i++) {
        if (strcmp(name, clock->stages[i].name) != 0)
            continue;
        clock->now[i] += end - begin;
        ith_bench_slices_end(&clock->slices, i, begin, end);
        return;
    }
}

/* Takes memory for the measurements once the first repeat has counted the slices. It does not count as held, so that
 * the memory of the computation alone is compared with its prediction. */
static ith_status make_room(ith_bench_clock *clock)
{
    int64_t doubles = clock->repeats * (clock->stage_count + 2 + clock->unit_count);
    clock->seconds = ith_context_keep(clock->context, doubles * (int64_t)sizeof(double), "the times of a benchmark");
    if (!clock->seconds)
        return ITH_ERR_MEMORY;
    clock->peaks = clock->seconds + clock->repeats * (clock->stage_count + 2);
    return ith_bench_slices_make_room(clock->context, &clock->slices);
}

/* Keeps the times of a repeat, and measures the peaks. */
static void finish_repeat(ith_bench_clock *clock)
{
    const int n = clock->stage_count;
    double *seconds = clock->seconds + clock->repeat * (n + 2), rest = clock->now[n];
    for (int i = 0; i < n; i++) {
        seconds[i] = clock->now[i];
        rest -= clock->now[i];
    }
    seconds[n] = fmax(rest, 0);
    seconds[n + 1] = clock->now[n];
    double some = fmin(fmax(clock->now[n] / 5, PEAK_SECONDS_MIN), PEAK_SECONDS_MAX) / clock->unit_count;
    for (int i = 0; i < clock->unit_count; i++)
        clock->peaks[clock->repeat * clock->unit_count + i] = measure_unit(clock, &clock->units[i], some);
}

static ith_status run_repeat(ith_bench_clock *clock, ith_bench_run_fn run, void *user)
{
    const int64_t unit = ITH_PROGRESS_UNIT, done = clock->repeat + 1, total = clock->repeats + 1;
    clock->span =
        (ith_span){.stage = ITH_BENCH_PROGRESS, .begin = done * unit, .end = (done + 1) * unit, .total = total * unit};
    memset(clock->now, 0, sizeof clock->now);
    ith_bench_slices_begin(&clock->slices);
    ith_status status = run(user, &clock->span);
    if (!status && clock->repeat < 0)
        status = make_room(clock);
    else if (!status)
        finish_repeat(clock);
    ith_span_show(clock->context, &clock->span, 1, 1);
    return status ? status : ith_context_check(clock->context);
}

/* ---- Figures --------------------------------------------------------------------------------------------------- */

/* Copies every `stride`-th value to `sorted`, sorts the copies, and returns their median. */
static double median_of(const double *values, int count, int stride, double *sorted)
{
    for (int i = 0; i < count; i++)
        sorted[i] = values[(int64_t)i * stride];
    return ith_median(sorted, count);
}

/* Fills in the times of column `index` of clock.seconds. `sorted`: room for a number of each repeat. */
static ith_bench_stage times_of(const ith_bench_clock *clock, int index, const char *name, double *sorted)
{
    ith_bench_stage stage = ITH_BENCH_STAGE_INIT;
    snprintf(stage.name, sizeof stage.name, "%s", name);
    stage.seconds = median_of(clock->seconds + index, clock->repeats, clock->stage_count + 2, sorted);
    stage.spread = stage.seconds > 0 ? (sorted[clock->repeats - 1] - sorted[0]) / stage.seconds : 0;
    stage.quiet_seconds = sorted[0];
    return stage;
}

static ith_bench_stage figures_of(const ith_bench_clock *clock, int index, double *sorted)
{
    const ith_bench_clock_stage *s = &clock->stages[index];
    ith_bench_stage stage = times_of(clock, index, s->name, sorted);
    stage.operations = s->operations;
    stage.quiet_seconds = ith_bench_slices_quiet(&clock->slices, index);
    if (s->unit == ITH_BENCH_NO_UNIT)
        return stage;
    memcpy(stage.peak, peak_of(clock, &clock->units[s->unit], 0).name, sizeof stage.peak);
    stage.peak_gflops = median_of(clock->peaks + s->unit, clock->repeats, clock->unit_count, sorted);
    stage.burst_gflops = clock->units[s->unit].burst;
    return stage;
}

/* Writes the names of all instructions that stages use, such as "bf16_amx+f32_avx512". */
static void describe_all(const ith_bench_clock *clock, char *text, size_t bytes)
{
    size_t length = 0;
    for (int i = 0; i < clock->unit_count; i++) {
        const ith_peak peak = peak_of(clock, &clock->units[i], 0);
        if (length < bytes && !strstr(text, peak.name))
            length += (size_t)snprintf(text + length, bytes - length, "%s%s", length ? "+" : "", peak.name);
    }
}

/* Calls on_stage for every stage, for the rest, and for the whole. The peak of the whole is the rate at which it would
 * run if every stage ran at its own peak. */
static void report(const ith_bench_clock *clock, double *sorted)
{
    const ith_bench_options *o = clock->options;
    const int n = clock->stage_count;
    double ideal = 0, burst_ideal = 0, operations = 0, quiet = 0;
    for (int i = 0; i < n; i++) {
        ith_bench_stage stage = figures_of(clock, i, sorted);
        quiet += stage.quiet_seconds, operations += stage.operations;
        ideal += stage.peak_gflops > 0 ? stage.operations / stage.peak_gflops : 0;
        burst_ideal += stage.burst_gflops > 0 ? stage.operations / stage.burst_gflops : 0;
        o->on_stage(o->user, &stage);
    }
    ith_bench_stage rest = times_of(clock, n, "rest", sorted);
    o->on_stage(o->user, &rest);
    ith_bench_stage whole = times_of(clock, n + 1, clock->whole, sorted);
    describe_all(clock, whole.peak, sizeof whole.peak);
    whole.operations = operations, whole.quiet_seconds = quiet + rest.quiet_seconds;
    whole.peak_gflops = operations / ideal, whole.burst_gflops = operations / burst_ideal;
    o->on_stage(o->user, &whole);
}

ith_status ith_bench_clock_run(ith_bench_clock *clock, ith_bench_run_fn run, void *user)
{
    struct ith_trace *before = NULL;
    clock->slices.cuts = clock->threads == 1;
    ith_status status = ith_trace_listen(clock->context, listen, clock, &before);
    if (status)
        return status;
    for (clock->repeat = -1; clock->repeat < clock->repeats && !status; clock->repeat++)
        status = run_repeat(clock, run, user);
    ith_trace_stop_listening(clock->context, before);
    double *sorted =
        status ? NULL : ith_context_keep(clock->context, clock->repeats * (int64_t)sizeof(double), "times");
    if (!status && !sorted)
        status = ITH_ERR_MEMORY;
    if (!status && clock->options->on_stage)
        report(clock, sorted);
    ith_context_drop(clock->context, sorted);
    ith_context_drop(clock->context, clock->seconds);
    ith_bench_slices_free(clock->context, &clock->slices);
    return status;
}
