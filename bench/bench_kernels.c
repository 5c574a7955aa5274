/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the attention kernels are: every row of the table that this machine runs, as GFLOP/s and as a share of the
 * peak of the instructions that the kernel multiplies with, which is measured between the same runs on as many threads.
 *
 *     bench_kernels [--kernel NAME] [--dtype f32|bf16|f16] [--softmax online|fixed_m|both] [--head-dim N] [--seq N]
 *                   [--threads N] [--repeat N]
 *
 * Each thread has a head of its own, [S, D] queries, keys and values, and does all that a plan would: it packs k and v
 * one KV block after the other, then takes its queries block by block, with the tiles that the kernel likes best. (The
 * offsets of fixed_m are given, 0: they are the plan's work.) 4 S^2 D operations a head. Every repeat runs online,
 * fixed_m and peak one after the other; medians of the repeats.
 *
 * peak      sustained for as long as a run takes, in registers alone
 * of peak   by the clock on the wall
 * cpu       the share by the time that the threads were given, of run and peak: where others use the machine too
 * at clock  share of the peak in the first two milliseconds after the run: a processor that lowers its clock while
 *           caches and multipliers are both busy has not yet raised it again */
#include "../src/base/clock.h"
#include "../src/base/dtype.h"
#include "../src/base/size.h"
#include "../src/kernels/kernel.h"
#include "../src/kernels/peak.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS_MAX = 100, SOFTMAXES = 2 };
static const double PEAK_SECONDS = 0.06, BURST_SECONDS = 0.002;
static const ith_softmax softmaxes[SOFTMAXES] = {ITH_SOFTMAX_ONLINE, ITH_SOFTMAX_FIXED_M};
static const char *const softmax_names[SOFTMAXES] = {"online", "fixed_m"};

typedef struct settings {
    const char *kernel;
    ith_dtype dtype;
    bool wanted[SOFTMAXES];
    int64_t head_dim, seq; /* 0: the usual ones */
    int threads, repeats;
} settings;

typedef struct problem {
    const ith_attn_kernel *kernel;
    uint32_t cpu; /* instruction sets that may be used */
    ith_dtype dtype;
    int64_t D, S;
    int threads;
    ith_attn_tiles tiles;
} problem;

/* One thread's head: tensors, pointers to their rows, offsets, and the memory of a call. */
typedef struct head {
    void *q, *k, *v, *o;
    void **q_rows, **k_rows, **v_rows, **o_rows;
    float *m, *l, *o_sum;
    void *packed, *scratch;
} head;

/* What a repeat gave. */
typedef struct sample {
    double rate, cpu_rate, burst, peak, cpu_peak;
} sample;

static void *random_rows(ith_context *ctx, ith_dtype dtype, int64_t count, uint32_t seed)
{
    void *x = ith_alloc(ctx, count, ith_dtype_bytes(dtype), "a tensor");
    for (int64_t i = 0; x != NULL && i < count; i++) {
        float sum = -2.0f; /* four uniform numbers: close enough to normal */
        for (int n = 0; n < 4; n++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        sum *= 1.7320508f;
        ith_from_f32((char *)x + i * ith_dtype_bytes(dtype), dtype, &sum, 1);
    }
    return x;
}

static void **pointers(ith_context *ctx, const problem *p, void *rows)
{
    void **row = ith_alloc(ctx, p->S, sizeof *row, "pointers to rows");
    for (int64_t i = 0; row != NULL && i < p->S; i++)
        row[i] = (char *)rows + i * p->D * ith_dtype_bytes(p->dtype);
    return row;
}

static void head_free(ith_context *ctx, head *h)
{
    void *all[] = {h->q,      h->k,      h->v,      h->o, h->packed, h->scratch, h->q_rows,
                   h->k_rows, h->v_rows, h->o_rows, h->m, h->l,      h->o_sum};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ith_free(ctx, all[i]);
}

static bool head_create(ith_context *ctx, const problem *p, int index, head *h)
{
    int64_t count = p->S * p->D, block = p->tiles.block_q;
    uint32_t seed = 1u + 3u * (uint32_t)index;
    h->q = random_rows(ctx, p->dtype, count, seed);
    h->k = random_rows(ctx, p->dtype, count, seed + 1);
    h->v = random_rows(ctx, p->dtype, count, seed + 2);
    h->o = ith_alloc_zero(ctx, count, ith_dtype_bytes(p->dtype), "the output");
    h->q_rows = pointers(ctx, p, h->q);
    h->k_rows = pointers(ctx, p, h->k);
    h->v_rows = pointers(ctx, p, h->v);
    h->o_rows = pointers(ctx, p, h->o);
    h->m = ith_alloc_zero(ctx, block, sizeof *h->m, "offsets");
    h->l = ith_alloc_zero(ctx, block, sizeof *h->l, "sums");
    h->o_sum = ith_alloc_zero(ctx, block * p->D, sizeof *h->o_sum, "sums");
    h->packed = ith_alloc_zero(ctx, p->kernel->packed_bytes(p->S, p->D), 1, "packed keys and values");
    h->scratch = ith_alloc_zero(ctx, p->kernel->scratch_bytes(p->D, &p->tiles), 1, "scratch");
    return h->q && h->k && h->v && h->o && h->q_rows && h->k_rows && h->v_rows && h->o_rows && h->m && h->l &&
           h->o_sum && h->packed && h->scratch;
}

/* Packs the keys, one KV block after the other in memory. */
static void pack(const problem *p, const head *h)
{
    for (int64_t j = 0; j < p->S; j += p->tiles.block_kv) {
        ith_attn_pack pack = {.dtype = p->dtype, .head_dim = p->D, .keys = ith_min64(p->tiles.block_kv, p->S - j)};
        pack.k = (const void *const *)h->k_rows + j, pack.v = (const void *const *)h->v_rows + j;
        pack.packed = (char *)h->packed + p->kernel->packed_bytes(j, p->D);
        p->kernel->pack(&pack);
    }
}

static void attend(const problem *p, const head *h, ith_softmax softmax)
{
    pack(p, h);
    for (int64_t i = 0; i < p->S; i += p->tiles.block_q) {
        ith_attn_call call = {.dtype = p->dtype, .head_dim = p->D, .softmax = softmax, .tiles = p->tiles};
        call.q_rows = ith_min64(p->tiles.block_q, p->S - i);
        call.q = (const void *const *)h->q_rows + i;
        call.o = h->o_rows + i;
        call.m = h->m, call.l = h->l, call.o_sum = h->o_sum;
        call.scratch = h->scratch;
        call.scale = 1.0f / sqrtf((float)p->D);
        for (int64_t j = 0; j < p->S; j += p->tiles.block_kv) {
            call.keys = ith_min64(p->tiles.block_kv, p->S - j);
            call.packed = (char *)h->packed + p->kernel->packed_bytes(j, p->D);
            call.first = j == 0, call.last = j + call.keys == p->S;
            p->kernel->attend(&call);
        }
    }
}

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sample measure(const problem *p, const head *heads, ith_softmax softmax)
{
    double work = 4e-9 * (double)p->S * (double)p->S * (double)p->D * p->threads, cpu_seconds = 0;
    double start = ith_clock_seconds();
#pragma omp parallel num_threads(p->threads) reduction(max : cpu_seconds)
    {
        double thread_start = thread_seconds();
        const head *h = &heads[omp_get_thread_num()];
        if (softmax == ITH_SOFTMAX_FIXED_M)
            memset(h->m, 0, (size_t)p->tiles.block_q * sizeof *h->m);
        attend(p, h, softmax);
        cpu_seconds = thread_seconds() - thread_start;
    }
    sample s = {.rate = work / (ith_clock_seconds() - start), .cpu_rate = work / cpu_seconds};
    s.burst = ith_peak_of_kernel(p->kernel, p->cpu, p->threads, BURST_SECONDS);
    double peak_start = ith_clock_seconds(), peak_thread_start = thread_seconds();
    s.peak = ith_peak_of_kernel(p->kernel, p->cpu, p->threads, PEAK_SECONDS);
    s.cpu_peak = s.peak * (ith_clock_seconds() - peak_start) / (thread_seconds() - peak_thread_start);
    return s;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void print_medians(const problem *p, ith_softmax softmax, const sample *samples, int count)
{
    double rates[REPEATS_MAX], peaks[REPEATS_MAX], shares[REPEATS_MAX], cpu[REPEATS_MAX], at_clock[REPEATS_MAX];
    for (int n = 0; n < count; n++) {
        rates[n] = samples[n].rate;
        peaks[n] = samples[n].peak;
        shares[n] = 100.0 * samples[n].rate / samples[n].peak;
        cpu[n] = 100.0 * samples[n].cpu_rate / samples[n].cpu_peak;
        at_clock[n] = 100.0 * samples[n].rate / samples[n].burst;
    }
    char peak[64];
    printf("%-15s %-5s %-8s %5lld %7lld %8d %10.1f %-25s %10.1f %8.1f%% %8.1f%% %8.1f%%\n", p->kernel->name,
           ith_dtype_name(p->dtype), softmax_names[softmax == ITH_SOFTMAX_FIXED_M], (long long)p->D, (long long)p->S,
           p->threads, median(rates, count), ith_peak_describe(p->kernel, p->cpu, peak, sizeof peak),
           median(peaks, count), median(shares, count), median(cpu, count), median(at_clock, count));
    fflush(stdout);
}

static void measure_all(const problem *p, const head *heads, const settings *set)
{
    static sample samples[SOFTMAXES][REPEATS_MAX];
    bool taken[SOFTMAXES];
    for (int x = 0; x < SOFTMAXES; x++)
        taken[x] = set->wanted[x] && p->kernel->supports(p->dtype, p->D, softmaxes[x]);
    for (int n = 0; n < set->repeats; n++)
        for (int x = 0; x < SOFTMAXES; x++)
            if (taken[x])
                samples[x][n] = measure(p, heads, softmaxes[x]);
    for (int x = 0; x < SOFTMAXES; x++)
        if (taken[x])
            print_medians(p, softmaxes[x], samples[x], set->repeats);
}

static bool bench(ith_context *ctx, const problem *p, const settings *set)
{
    head *heads = ith_alloc_zero(ctx, p->threads, sizeof *heads, "heads");
    bool good = heads != NULL;
    for (int t = 0; good && t < p->threads; t++)
        good = head_create(ctx, p, t, &heads[t]);
    if (good)
        measure_all(p, heads, set);
    for (int t = 0; heads != NULL && t < p->threads; t++)
        head_free(ctx, &heads[t]);
    ith_free(ctx, heads);
    return good;
}

static bool bench_all(ith_context *ctx, const settings *set)
{
    static const int64_t dims[] = {128, 64, 32};
    printf("%-15s %-5s %-8s %5s %7s %8s %10s %-25s %10s %9s %9s %9s\n", "kernel", "dtype", "softmax", "D", "S",
           "threads", "GFLOP/s", "peak", "GFLOP/s", "of peak", "cpu", "at clock");
    for (int i = 0; ith_attn_kernel_at(i) != NULL; i++) {
        const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
        if ((kernel->cpu & ~ith_context_cpu(ctx)) != 0 || (set->kernel && strcmp(set->kernel, kernel->name) != 0))
            continue;
        for (size_t n = 0; n < (set->head_dim ? 1 : sizeof dims / sizeof *dims); n++) {
            problem p = {.kernel = kernel, .cpu = ith_context_cpu(ctx), .dtype = set->dtype, .threads = set->threads};
            p.D = set->head_dim ? set->head_dim : dims[n];
            p.S = set->seq ? set->seq : kernel->cpu == ITH_CPU_BASELINE ? 1024 : 8192;
            p.tiles = kernel->tiles(p.D).best;
            if (!bench(ctx, &p, set))
                return false;
        }
    }
    return true;
}

static ith_dtype parse_dtype(const char *name)
{
    static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, ith_dtype_name(dtypes[i])) == 0)
            return dtypes[i];
    return ITH_DTYPE_NONE;
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
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--kernel") == 0)
            set->kernel = value;
        else if (strcmp(argv[i], "--dtype") == 0)
            set->dtype = parse_dtype(value);
        else if (strcmp(argv[i], "--head-dim") == 0)
            set->head_dim = atoll(value);
        else if (strcmp(argv[i], "--seq") == 0)
            set->seq = atoll(value);
        else if (strcmp(argv[i], "--threads") == 0)
            set->threads = atoi(value);
        else if (strcmp(argv[i], "--repeat") == 0)
            set->repeats = atoi(value);
        else if (strcmp(argv[i], "--softmax") != 0 || !parse_softmax(value, set))
            return false;
    }
    return argc % 2 == 1 && set->dtype != ITH_DTYPE_NONE && set->head_dim >= 0 && set->seq >= 0 && set->threads >= 1 &&
           set->repeats >= 1 && set->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv)
{
    settings set = {.dtype = ITH_BF16, .wanted = {true, true}, .threads = 1, .repeats = 11};
    if (!parse(argc, argv, &set)) {
        fprintf(stderr, "usage: bench_kernels [--kernel NAME] [--dtype f32|bf16|f16] [--softmax online|fixed_m|both]\n"
                        "                     [--head-dim N] [--seq N] [--threads N] [--repeat N]\n");
        return 2;
    }
    ith_context *ctx = NULL;
    if (ith_context_create(NULL, &ctx) != ITH_OK) {
        fprintf(stderr, "bench_kernels: %s\n", ith_context_error(NULL));
        return 1;
    }
    bool good = bench_all(ctx, &set);
    if (!good)
        fprintf(stderr, "bench_kernels: %s\n", ith_context_error(ctx));
    ith_context_destroy(&ctx);
    return good ? 0 : 1;
}
