/* SPDX-License-Identifier: Apache-2.0 */
/* Measures every attention kernel that this machine can run, in GFLOP/s and as a share of the peak of its instructions.
 * Kernel and peak are measured in turn on the same number of threads.
 *
 *     bench_kernels [--kernel NAME] [--dtype f32|bf16|f16] [--softmax online|fixed_m|both] [--head-dim N] [--seq N]
 *                   [--threads N] [--repeat N]
 *
 * Each thread has its own head, with S queries, keys and values of size D. It does the work of a plan: it packs k
 * and v, then attends with one block of queries after the other, with the default tiles of the kernel. (The offsets of
 * fixed_m are given as 0; finding them is the work of the plan.) One head takes 4 S^2 D operations. Every repeat
 * measures online, fixed_m and the peak; the medians of the repeats are printed.
 *
 * peak      the peak, sustained in registers for as long as the kernel ran
 * of peak   share of the peak by the wall clock
 * cpu       share of the peak by processor time, for a machine that other programs use too
 * at clock  share of the peak in the first two milliseconds after the kernel: some processors lower their clock under
 *           its load, and have not raised it again by then
 * quiet     one thread: the share of the peak if nobody else used the core. Each call of the kernel counts with its
 *           shortest time over all repeats, and the peak with its fastest burst. Packing is not part of it */
#include "../src/base/clock.h"
#include "../src/base/cpu.h"
#include "../src/base/dtype.h"
#include "../src/base/median.h"
#include "../src/plan/measure.h"
#include "common.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS_MAX = 100, SOFTMAXES = 2 };
static const double PEAK_SECONDS = 0.06, BURST_SECONDS = 0.002;
static const ith_softmax softmaxes[SOFTMAXES] = {ITH_SOFTMAX_ONLINE, ITH_SOFTMAX_FIXED_M};
static const char *const softmax_names[SOFTMAXES] = {"online", "fixed_m"};

typedef struct settings {
    const char *kernel;
    ith_dtype dtype;
    bool wanted[SOFTMAXES];
    int64_t head_dim, seq; /* 0: the default sizes */
    int threads, repeats;
} settings;

/* The kernel of one thread is a copy whose calls are timed. */
enum { CALLS_MAX = 1 << 16 };
static const ith_attn_kernel *timed;
static int calls;                             /* number of calls in this attention so far */
static double shortest[SOFTMAXES][CALLS_MAX]; /* the shortest time of each call, over all repeats; 0: none */

static void timed_attend(const ith_attn_call *call)
{
    double start = ith_clock_seconds();
    timed->attend(call);
    double seconds = ith_clock_seconds() - start;
    double *least = &shortest[call->softmax == ITH_SOFTMAX_FIXED_M][calls % CALLS_MAX];
    if (*least <= 0 || seconds < *least)
        *least = seconds;
    calls++;
}

typedef struct problem {
    const ith_attn_kernel *kernel;
    uint32_t cpu; /* instruction sets that may be used */
    ith_dtype dtype;
    int64_t D, S;
    int threads;
} problem;

/* The figures of one repeat. */
typedef struct sample {
    double rate, cpu_rate, burst, peak, cpu_peak;
} sample;

/* The operations of one head, in 10^9. */
static double work_of(const problem *p)
{
    return 4e-9 * (double)p->S * (double)p->S * (double)p->D;
}

/* The time of an attention on one thread if nobody else used the core. */
static double quiet_seconds(ith_softmax softmax)
{
    double seconds = 0;
    for (int i = 0; i < calls && i < CALLS_MAX; i++)
        seconds += shortest[softmax == ITH_SOFTMAX_FIXED_M][i];
    return seconds;
}

static sample measure(const problem *p, ith_trial *heads, ith_softmax softmax)
{
    double work = work_of(p) * p->threads, cpu_seconds = 0;
    calls = 0;
    double start = ith_clock_seconds();
#pragma omp parallel num_threads(p->threads) reduction(max : cpu_seconds)
    {
        double thread_start = ith_clock_thread_seconds();
        ith_trial *head = &heads[omp_get_thread_num()];
        head->softmax = softmax;
        ith_trial_pack(head);
        ith_trial_attend(head);
        cpu_seconds = ith_clock_thread_seconds() - thread_start;
    }
    sample s = {.rate = work / (ith_clock_seconds() - start), .cpu_rate = work / cpu_seconds};
    s.burst = ith_peak_of_kernel(p->kernel, p->cpu, p->threads, BURST_SECONDS);
    double peak_start = ith_clock_seconds(), peak_thread_start = ith_clock_thread_seconds();
    s.peak = ith_peak_of_kernel(p->kernel, p->cpu, p->threads, PEAK_SECONDS);
    s.cpu_peak = s.peak * (ith_clock_seconds() - peak_start) / (ith_clock_thread_seconds() - peak_thread_start);
    return s;
}

static void print_medians(const problem *p, ith_softmax softmax, const sample *samples, int count)
{
    double rates[REPEATS_MAX], peaks[REPEATS_MAX], shares[REPEATS_MAX], cpu[REPEATS_MAX], at_clock[REPEATS_MAX];
    double burst = 0;
    for (int n = 0; n < count; n++) {
        rates[n] = samples[n].rate;
        peaks[n] = samples[n].peak;
        shares[n] = 100.0 * samples[n].rate / samples[n].peak;
        cpu[n] = 100.0 * samples[n].cpu_rate / samples[n].cpu_peak;
        at_clock[n] = 100.0 * samples[n].rate / samples[n].burst;
        burst = samples[n].burst > burst ? samples[n].burst : burst;
    }
    char peak[64];
    printf("%-15s %-5s %-8s %5lld %7lld %8d %10.1f %-25s %10.1f %8.1f%% %8.1f%% %8.1f%%", p->kernel->name,
           ith_dtype_name(p->dtype), softmax_names[softmax == ITH_SOFTMAX_FIXED_M], (long long)p->D, (long long)p->S,
           p->threads, ith_median(rates, count), ith_peak_describe(p->kernel, p->cpu, peak, sizeof peak),
           ith_median(peaks, count), ith_median(shares, count), ith_median(cpu, count), ith_median(at_clock, count));
    if (p->threads == 1)
        printf(" %8.1f%%\n", 100.0 * work_of(p) / quiet_seconds(softmax) / burst);
    else
        printf(" %9s\n", "-");
    fflush(stdout);
}

static void measure_all(const problem *p, ith_trial *heads, const settings *set)
{
    static sample samples[SOFTMAXES][REPEATS_MAX];
    bool taken[SOFTMAXES];
    for (int x = 0; x < SOFTMAXES; x++)
        taken[x] = set->wanted[x] && p->kernel->supports(p->dtype, p->D, softmaxes[x]);
    memset(shortest, 0, sizeof shortest);
    for (int n = 0; n < set->repeats; n++)
        for (int x = 0; x < SOFTMAXES; x++)
            if (taken[x])
                samples[x][n] = measure(p, heads, softmaxes[x]);
    for (int x = 0; x < SOFTMAXES; x++)
        if (taken[x])
            print_medians(p, softmaxes[x], samples[x], set->repeats);
}

static ith_status bench(ith_context *ctx, const problem *p, const settings *set)
{
    ith_attn_kernel with_clock = *p->kernel;
    timed = p->kernel, with_clock.attend = timed_attend;
    ith_trial head = {.kernel = p->threads == 1 ? &with_clock : p->kernel,
                      .dtype = p->dtype,
                      .head_dim = p->D,
                      .q_len = p->S,
                      .kv_len = p->S};
    head.tiles = p->kernel->tiles(p->D).best;
    head.packed_bytes = p->kernel->packed_bytes(p->S, p->D);
    head.scratch_bytes = p->kernel->scratch_bytes(p->D, &head.tiles);
    ith_trial *heads = ith_alloc_zero(ctx, p->threads, sizeof *heads, "heads");
    ith_status status = heads ? ITH_OK : ITH_ERR_MEMORY;
    for (int t = 0; !status && t < p->threads; t++) {
        heads[t] = head;
        status = ith_trial_create(ctx, 1u + (uint32_t)t, &heads[t]);
    }
    if (!status)
        measure_all(p, heads, set);
    for (int t = 0; heads != NULL && t < p->threads; t++)
        ith_trial_free(ctx, &heads[t]);
    ith_free(ctx, heads);
    return status;
}

static ith_status bench_all(ith_context *ctx, const void *user)
{
    const settings *set = user;
    ith_status status = ITH_OK;
    static const int64_t dims[] = {128, 64, 32};
    printf("%-15s %-5s %-8s %5s %7s %8s %10s %-25s %10s %9s %9s %9s %9s\n", "kernel", "dtype", "softmax", "D", "S",
           "threads", "GFLOP/s", "peak", "GFLOP/s", "of peak", "cpu", "at clock", "quiet");
    for (int i = 0; ith_attn_kernel_at(i) != NULL && !status; i++) {
        const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
        if (!ith_cpu_has(ith_context_cpu(ctx), kernel->cpu) || (set->kernel && strcmp(set->kernel, kernel->name) != 0))
            continue;
        for (size_t n = 0; n < (set->head_dim ? 1 : sizeof dims / sizeof *dims) && !status; n++) {
            problem p = {.kernel = kernel, .cpu = ith_context_cpu(ctx), .dtype = set->dtype, .threads = set->threads};
            p.D = set->head_dim ? set->head_dim : dims[n];
            p.S = set->seq ? set->seq : kernel->cpu == ITH_CPU_BASELINE ? 1024 : 8192;
            status = bench(ctx, &p, set);
        }
    }
    return status;
}

static bool parse_softmax(const char *name, settings *set)
{
    bool both = strcmp(name, "both") == 0;
    for (int x = 0; x < SOFTMAXES; x++)
        set->wanted[x] = both || strcmp(name, softmax_names[x]) == 0;
    return set->wanted[0] || set->wanted[1];
}

static bool parse(int argc, char **argv, settings *set)
{
    const char *softmax = "both";
    const bench_option options[] = {{"--kernel", .text = &set->kernel},  {"--dtype", .dtype = &set->dtype},
                                    {"--softmax", .text = &softmax},     {"--head-dim", .number = &set->head_dim},
                                    {"--seq", .number = &set->seq},      {"--threads", .count = &set->threads},
                                    {"--repeat", .count = &set->repeats}};
    return bench_parse(argc, argv, options, sizeof options / sizeof *options) && parse_softmax(softmax, set) &&
           set->head_dim >= 0 && set->seq >= 0 && set->threads >= 1 && set->repeats >= 1 && set->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv)
{
    settings set = {.dtype = ITH_BF16, .threads = 1, .repeats = 11};
    if (!parse(argc, argv, &set)) {
        fprintf(stderr, "usage: bench_kernels [--kernel NAME] [--dtype f32|bf16|f16] [--softmax online|fixed_m|both]\n"
                        "                     [--head-dim N] [--seq N] [--threads N] [--repeat N]\n");
        return 2;
    }
    return bench_run("bench_kernels", bench_all, &set);
}
