/* SPDX-License-Identifier: Apache-2.0 */
/* Times a whole run of the small model by stage: load, text, plan, per step, decode. The run is that of
 * tests/golden/shapes/denoise_unipc_diffusers: 17 frames of 128 x 128, 8 steps of both guidance branches.
 *
 *     bench_generate [repeats] [ranks] [f32|bf16]
 *
 * Prints medians over the repeats, and the peak memory of the process. tools/bench_peer.py runs diffusers beside it. */
#include <ithaca/wan.h>

#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MODEL "models/shapes"
#define MAX_REPEATS 100

typedef struct sample {
    double load, text, plan, denoise, decode, whole;
} sample;

/* The median of one member over all samples, in milliseconds. */
static double median_ms(const sample *samples, int count, size_t offset)
{
    double values[MAX_REPEATS];
    for (int i = 0; i < count; i++)
        memcpy(&values[i], (const char *)&samples[i] + offset, sizeof values[i]);
    return 1e3 * bench_median(values, count);
}

typedef struct job {
    ith_pipeline *pipeline;
    const ith_generate_options *options;
    ith_generate_report report; /* of rank 0 */
} job;

static ith_status run_rank(ith_context *context, ith_comm *comm, void *user)
{
    (void)context;
    job *j = user;
    return ith_pipeline_generate(j->pipeline, comm, j->options, ith_comm_rank(comm) ? NULL : &j->report);
}

static ith_status measure(ith_context *context, int ranks, ith_pipeline *pipeline, const ith_generate_options *options,
                          sample *out)
{
    job j = {pipeline, options, ITH_GENERATE_REPORT_INIT};
    ith_status status = ith_run_ranks(context, ranks, options->threads, run_rank, &j);
    const ith_generate_report report = j.report;
    *out = (sample){report.load_seconds,    report.text_seconds,   report.plan_seconds,
                    report.denoise_seconds, report.decode_seconds, 0};
    out->whole = out->text + out->plan + out->denoise + out->decode;
    return status;
}

static void print_table(const sample *samples, int count, const ith_generate_options *options)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%-28s %9s\n", "stage", "ms");
    printf("%-28s %9.2f\n", "load", median_ms(samples, count, offsetof(sample, load)));
    printf("%-28s %9.2f\n", "text", median_ms(samples, count, offsetof(sample, text)));
    printf("%-28s %9.2f\n", "plan", median_ms(samples, count, offsetof(sample, plan)));
    double denoise = median_ms(samples, count, offsetof(sample, denoise));
    printf("%-28s %9.2f\n", "denoise", denoise);
    printf("%-28s %9.2f\n", "  per step", denoise / (double)options->steps);
    printf("%-28s %9.2f\n", "decode", median_ms(samples, count, offsetof(sample, decode)));
    printf("%-28s %9.2f\n", "text + plan + denoise + decode", median_ms(samples, count, offsetof(sample, whole)));
    printf("%-28s %9.1f MB\n", "peak memory of the process", (double)usage.ru_maxrss * 1024 / 1e6);
}

int main(int argc, char **argv)
{
    int repeats = argc > 1 ? atoi(argv[1]) : 5;
    ith_generate_options options = ITH_GENERATE_OPTIONS_INIT;
    options.prompt = "A red circle moves to the right on a black background.";
    options.negative = "";
    options.frames = 17, options.height = options.width = 128, options.steps = 8;
    options.shift = 3, options.guidance[0] = 4, options.guidance[1] = 3, options.boundary = 0.875;
    options.sigmas = ITH_SIGMAS_DIFFUSERS;
    int ranks = argc > 2 ? atoi(argv[2]) : 1;
    options.precision = argc > 3 && !strcmp(argv[3], "bf16") ? ITH_PRECISION_BF16 : ITH_PRECISION_F32;
    if (repeats < 1 || repeats > MAX_REPEATS) {
        fprintf(stderr, "usage: bench_generate [repeats, 1 to %d] [ranks] [f32|bf16]\n", MAX_REPEATS);
        return 2;
    }
    ith_context *context = NULL;
    ith_pipeline *pipeline = NULL;
    sample samples[MAX_REPEATS], warm_up;
    ith_status status = ith_context_create(NULL, &context);
    if (!status)
        status = ith_pipeline_open(context, MODEL, &pipeline);
    if (!status)
        status = measure(context, ranks, pipeline, &options, &warm_up);
    for (int i = 0; i < repeats && !status; i++)
        status = measure(context, ranks, pipeline, &options, &samples[i]);
    if (status)
        fprintf(stderr, "%s\n", ith_context_error(context));
    else
        print_table(samples, repeats, &options);
    ith_pipeline_close(&pipeline);
    ith_context_destroy(&context);
    return status ? 1 : 0;
}
