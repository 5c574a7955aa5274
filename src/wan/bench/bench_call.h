/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all benchmarks share: reading options, checking memory, the observer, the threads, the report. */
#ifndef ITH_WAN_BENCH_CALL_H
#define ITH_WAN_BENCH_CALL_H

#include "bench_clock.h"

/* One call of a benchmark. */
typedef struct ith_bench_call {
    ith_context *context;
    ith_bench_options options; /* with all defaults filled in */
    ith_attn_options attention;
    ith_number_types types;
    ith_bench_report report;
    ith_observer observer;
    ith_bench_clock clock;
    bool measuring;                /* whether the clock runs: it gets the ticks of the observer */
    ith_observer *observer_before; /* the context's observer before the call */
    int64_t bytes_before;          /* bytes that the context held before the call */
    int64_t peak_before;           /* the context's peak before the call */
    int threads_before;
} ith_bench_call;

/* The functions of one kind of benchmark, in the order of their calls. `user` is the argument of
 * ith_bench_call_perform. */
typedef struct ith_bench_kind {
    const char *whole;                      /* name of the intervals of the trace that contain the stages */
    ith_status (*check_memory)(void *user); /* predicts the memory and calls ith_bench_call_check_memory */
    ith_status (*make)(void *user);         /* makes the weights and the inputs */
    ith_status (*add_stages)(void *user);   /* adds the stages to call.clock */
    ith_bench_run_fn run;                   /* one repeat */
    void (*destroy)(void *user);            /* frees the results of `make`, also after it has failed */
    bool takes_quantised;                   /* weights may have a quantised type */
} ith_bench_kind;

/* Copies the caller's options (NULL: defaults), checks them and fills in defaults. Performs the benchmark with this
 * number of OpenMP threads, and with call->observer instead of the context's observer. Fills in the caller's report,
 * which may be NULL. */
ith_status ith_bench_call_perform(ith_bench_call *call, ith_context *context, const ith_bench_options *options,
                                  ith_bench_report *report, const ith_bench_kind *kind, void *user);

/* Predicts the bytes of a benchmark of size `size`, with all else as in this call. */
typedef ith_status (*ith_bench_predict_fn)(void *user, int64_t size, int64_t *bytes);
/* Checks that the machine has report.predicted_bytes of memory, the prediction for a benchmark of size `size`. The
 * sentence of ITH_ERR_MEMORY names the largest size that fits, a multiple of `multiple`, and calls it `noun`. */
ith_status ith_bench_call_check_memory(ith_bench_call *call, ith_bench_predict_fn predict, void *user, int64_t size,
                                       int64_t multiple, const char *noun);

/* Checks that `value` lies between `least` and `most`. */
ith_status ith_bench_check_range(ith_context *context, const char *name, int64_t value, int64_t least, int64_t most);

#endif
