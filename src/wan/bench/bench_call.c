/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning and the end of each benchmark. */
#include "bench_call.h"

#include "../../base/dtype.h"
#include "../../base/machine_memory.h"
#include "../../base/size.h"
#include "../../base/sized.h"
#include "../../base/team_limit.h"
#include "../../kernels/unpack.h"

#include <omp.h>

#define USUAL_REPEATS 5
#define MOST_REPEATS 1000

ith_status ith_bench_check_range(ith_context *context, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %lld; it must lie between %lld and %lld", name, (long long)value,
                    (long long)least, (long long)most);
}

/* ---- Options --------------------------------------------------------------------------------------------------- */

static void put_defaults(ith_bench_options *o)
{
    o->weights = o->weights ? o->weights : ITH_BF16;
    o->threads = ith_threads_or(o->threads, ith_processor_count());
    o->repeats = o->repeats ? o->repeats : USUAL_REPEATS;
}

static ith_status read_options(ith_bench_call *call, const ith_bench_kind *kind, const ith_bench_options *given)
{
    ith_context *context = call->context;
    ith_bench_options *o = &call->options;
    ith_status status = ITH_OK;
    if (given)
        status = ITH_SIZED_READ(context, ith_bench_options, ITH_BENCH_OPTIONS_INIT, given, o);
    if (!status && o->attention)
        status = ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, o->attention, &call->attention);
    if (status)
        return status;
    o->attention = &call->attention;
    put_defaults(o);
    status = ith_precision_check(context, o->precision);
    if (!status && !ith_dtype_bytes(o->weights))
        return ith_fail(context, ITH_ERR_ARGUMENT, "weights is %d, and is no ith_dtype", (int)o->weights);
    if (!status && !ith_dtype_is_operand(o->weights) && !(kind->takes_quantised && ith_unpack_has(o->weights)))
        return ith_fail(context, ITH_ERR_ARGUMENT, "weights of type %s: they must be F32, BF16%s",
                        ith_dtype_name(o->weights),
                        kind->takes_quantised ? ", F16, fp8, I8 or a type of GGUF files" : " or F16");
    if (!status)
        status = ith_bench_check_range(context, "repeats", o->repeats, 0, MOST_REPEATS);
    if (!status)
        status = ith_bench_check_range(context, "threads", o->threads, 0, INT32_MAX);
    return status ? status : ith_thread_limit_check(context, "threads", o->threads);
}

/* ---- Observer -------------------------------------------------------------------------------------------------- */

/* Passes the clock's progress on. A decoder and an encoder show progress of their own, which is shown as a part of the
 * current repeat. Progress of other stages, such as loading, is not shown. */
static void show_progress(void *user, int stage, int64_t done, int64_t total)
{
    const ith_bench_call *call = user;
    const ith_bench_options *o = &call->options;
    const ith_span *span = &call->clock.span;
    if (stage == ITH_BENCH_PROGRESS)
        o->on_progress(o->user, done, total);
    else if ((stage == ITH_STAGE_DECODE || stage == ITH_STAGE_ENCODE) && call->measuring)
        o->on_progress(o->user, span->begin + done * (span->end - span->begin) / total, span->total);
}

static bool should_stop(void *user)
{
    const ith_bench_call *call = user;
    return call->options.should_stop(call->options.user);
}

static void tick(void *user)
{
    ith_bench_call *call = user;
    if (call->measuring)
        ith_bench_clock_tick(&call->clock);
}

/* Reads the options, and sets the number of threads and the observer until `end`. */
static ith_status begin(ith_bench_call *call, ith_context *context, const ith_bench_kind *kind,
                        const ith_bench_options *options, const ith_bench_report *report)
{
    *call = (ith_bench_call){.context = context,
                             .options = ITH_BENCH_OPTIONS_INIT,
                             .attention = ITH_ATTN_OPTIONS_INIT,
                             .report = ITH_BENCH_REPORT_INIT};
    ith_status status = ITH_OK;
    if (report)
        status = ITH_SIZED_CHECK(context, ith_bench_report, ITH_BENCH_REPORT_INIT, report);
    if (!status)
        status = read_options(call, kind, options);
    if (!status)
        status = ith_team_check(context, call->options.threads);
    if (status)
        return status;
    const ith_bench_options *o = &call->options;
    call->report.precision = ith_precision_resolve(context, o->precision);
    call->report.threads = o->threads;
    call->types = ith_number_types_choose(context, call->report.precision);
    call->bytes_before = ith_context_bytes(context);
    call->peak_before = ith_context_restart_peak(context);
    call->threads_before = omp_get_max_threads();
    omp_set_num_threads(o->threads);
    call->observer_before = ith_context_observer(context);
    call->observer = (ith_observer){.show = o->on_progress ? show_progress : NULL,
                                    .should_stop = o->should_stop ? should_stop : NULL,
                                    .tick = tick,
                                    .user = call};
    ith_observer_open(&call->observer);
    ith_context_set_observer(context, &call->observer);
    return ITH_OK;
}

static void end(ith_bench_call *call, ith_bench_report *report)
{
    ith_context_set_observer(call->context, call->observer_before);
    ith_observer_close(&call->observer);
    omp_set_num_threads(call->threads_before);
    call->report.peak_bytes = ith_context_peak_bytes(call->context) - call->bytes_before;
    ith_context_raise_peak(call->context, call->peak_before);
    if (report)
        ITH_SIZED_FILL(call->context, ith_bench_report, ITH_BENCH_REPORT_INIT, report, &call->report);
}

static ith_status measure(ith_bench_call *call, const ith_bench_kind *kind, void *user)
{
    call->clock = (ith_bench_clock){.context = call->context,
                                    .options = &call->options,
                                    .threads = call->options.threads,
                                    .repeats = call->options.repeats,
                                    .whole = kind->whole};
    ith_status status = kind->add_stages(user);
    call->measuring = !status;
    return status ? status : ith_bench_clock_run(&call->clock, kind->run, user);
}

ith_status ith_bench_call_perform(ith_bench_call *call, ith_context *context, const ith_bench_options *options,
                                  ith_bench_report *report, const ith_bench_kind *kind, void *user)
{
    ith_status status = begin(call, context, kind, options, report);
    if (status)
        return status;
    status = kind->check_memory(user);
    if (!status)
        status = kind->make(user);
    if (!status)
        status = measure(call, kind, user);
    kind->destroy(user);
    end(call, report);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

ith_status ith_bench_call_check_memory(ith_bench_call *call, ith_bench_predict_fn predict, void *user, int64_t size,
                                       int64_t multiple, const char *noun)
{
    const ith_memory_limit memory = ith_machine_memory_read("").free;
    const double needed = 1e-9 * (double)call->report.predicted_bytes, free_gb = 1e-9 * (double)memory.bytes;
    if (call->options.force || call->report.predicted_bytes <= memory.bytes)
        return ITH_OK;
    int64_t fits = 0, too_large = ith_div_up(size, multiple), bytes = 0;
    while (too_large - fits > 1) {
        int64_t middle = fits + (too_large - fits) / 2;
        if (!predict(user, middle * multiple, &bytes) && bytes <= memory.bytes)
            fits = middle;
        else
            too_large = middle;
    }
    if (!fits)
        return ith_fail(call->context, ITH_ERR_MEMORY,
                        "this benchmark holds %.2f GB at its peak, and %.2f GB %s, too little for any %s; force tries "
                        "it all the same",
                        needed, free_gb, memory.source, noun);
    return ith_fail(call->context, ITH_ERR_MEMORY,
                    "this benchmark holds %.2f GB at its peak, and %.2f GB %s: %s %lld would do; force tries it all "
                    "the same",
                    needed, free_gb, memory.source, noun, (long long)(fits * multiple));
}
