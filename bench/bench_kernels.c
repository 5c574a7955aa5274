/* How fast the attention kernels are: every row of the table that this machine runs, as GFLOP/s and as a share of the
 * f32 multiply-add peak, which is measured between the same runs on as many threads.
 *
 *     bench_kernels [--kernel NAME] [--dtype f32|bf16|f16] [--head-dim N] [--seq N] [--threads N] [--repeat N]
 *
 * Each thread has a head of its own, [S, D] queries, keys and values, and does all that a plan would: it packs k and v,
 * then takes its queries block by block. 4 S^2 D operations a head. Medians of the repeats.
 *
 * peak      sustained for as long as a run takes, in registers alone
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

enum { REPEATS_MAX = 100 };
static const double PEAK_SECONDS = 0.06, BURST_SECONDS = 0.002;

typedef struct settings {
    const char *kernel;
    ith_dtype dtype;
    int64_t head_dim, seq; /* 0: the usual ones */
    int threads, repeats;
} settings;

typedef struct problem {
    const ith_attn_kernel *kernel;
    ith_dtype dtype;
    int64_t D, S;
    int threads;
} problem;

/* One thread's head. */
typedef struct head {
    void *q, *k, *v, *o, *packed, *scratch;
} head;

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

static void head_free(ith_context *ctx, head *h)
{
    void *all[] = {h->q, h->k, h->v, h->o, h->packed, h->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ith_free(ctx, all[i]);
}

static bool head_create(ith_context *ctx, const problem *p, int index, head *h)
{
    int64_t count = p->S * p->D;
    uint32_t seed = 1u + 3u * (uint32_t)index;
    h->q = random_rows(ctx, p->dtype, count, seed);
    h->k = random_rows(ctx, p->dtype, count, seed + 1);
    h->v = random_rows(ctx, p->dtype, count, seed + 2);
    h->o = ith_alloc_zero(ctx, count, ith_dtype_bytes(p->dtype), "the output");
    h->packed = ith_alloc_zero(ctx, p->kernel->packed_bytes(p->S, p->D), 1, "packed keys and values");
    h->scratch = ith_alloc_zero(ctx, p->kernel->scratch_bytes(p->D), 1, "scratch");
    return h->q && h->k && h->v && h->o && h->packed && h->scratch;
}

static void attend(const problem *p, const head *h)
{
    ith_attn_pack pack = {.dtype = p->dtype, .keys = p->S, .head_dim = p->D, .k = h->k, .v = h->v};
    pack.k_stride = pack.v_stride = p->D;
    pack.packed = h->packed;
    p->kernel->pack(&pack);
    int64_t row_bytes = p->D * ith_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < p->S; i += p->kernel->q_block) {
        ith_attn_run run = {.dtype = p->dtype, .keys = p->S, .head_dim = p->D, .first = true, .last = true};
        run.q_rows = ith_min64(p->kernel->q_block, p->S - i);
        run.q = (const char *)h->q + i * row_bytes;
        run.o = (char *)h->o + i * row_bytes;
        run.q_stride = run.o_stride = p->D;
        run.packed = h->packed;
        run.scratch = h->scratch;
        run.scale = 1.0f / sqrtf((float)p->D);
        p->kernel->run(&run);
    }
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

static void measure(ith_context *ctx, const problem *p, const head *heads, int repeats)
{
    uint32_t cpu = ith_context_cpu(ctx);
    double rates[REPEATS_MAX], peaks[REPEATS_MAX], at_clock[REPEATS_MAX], shares[REPEATS_MAX];
    double work = 4e-9 * (double)p->S * (double)p->S * (double)p->D * p->threads;
    for (int n = 0; n < repeats; n++) {
        double start = ith_clock_seconds();
#pragma omp parallel num_threads(p->threads)
        attend(p, &heads[omp_get_thread_num()]);
        rates[n] = work / (ith_clock_seconds() - start);
        at_clock[n] = 100.0 * rates[n] / ith_peak_measure(cpu, p->threads, BURST_SECONDS);
        peaks[n] = ith_peak_measure(cpu, p->threads, PEAK_SECONDS);
        shares[n] = 100.0 * rates[n] / peaks[n];
    }
    printf("%-12s %-5s %5lld %7lld %8d %10.1f %10.1f %8.1f%% %8.1f%%\n", p->kernel->name, ith_dtype_name(p->dtype),
           (long long)p->D, (long long)p->S, p->threads, median(rates, repeats), median(peaks, repeats),
           median(shares, repeats), median(at_clock, repeats));
    fflush(stdout);
}

static bool bench(ith_context *ctx, const problem *p, int repeats)
{
    head *heads = ith_alloc_zero(ctx, p->threads, sizeof *heads, "heads");
    bool good = heads != NULL;
    for (int t = 0; good && t < p->threads; t++)
        good = head_create(ctx, p, t, &heads[t]);
    if (good)
        measure(ctx, p, heads, repeats);
    for (int t = 0; heads != NULL && t < p->threads; t++)
        head_free(ctx, &heads[t]);
    ith_free(ctx, heads);
    return good;
}

static bool bench_all(ith_context *ctx, const settings *set)
{
    static const int64_t dims[] = {128, 64, 32};
    printf("%-12s %-5s %5s %7s %8s %10s %10s %9s %9s\n", "kernel", "dtype", "D", "S", "threads", "GFLOP/s", "peak",
           "of peak", "at clock");
    for (int i = 0; ith_attn_kernel_at(i) != NULL; i++) {
        const ith_attn_kernel *kernel = ith_attn_kernel_at(i);
        if ((kernel->cpu & ~ith_context_cpu(ctx)) != 0 || (set->kernel && strcmp(set->kernel, kernel->name) != 0))
            continue;
        for (size_t n = 0; n < (set->head_dim ? 1 : sizeof dims / sizeof *dims); n++) {
            problem p = {.kernel = kernel, .dtype = set->dtype, .threads = set->threads};
            p.D = set->head_dim ? set->head_dim : dims[n];
            p.S = set->seq ? set->seq : kernel->cpu == ITH_CPU_BASELINE ? 1024 : 8192;
            if (!bench(ctx, &p, set->repeats))
                return false;
        }
    }
    return true;
}

static bool parse(int argc, char **argv, settings *set)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--kernel") == 0)
            set->kernel = value;
        else if (strcmp(argv[i], "--dtype") == 0)
            set->dtype = strcmp(value, "f32") == 0    ? ITH_F32
                         : strcmp(value, "bf16") == 0 ? ITH_BF16
                         : strcmp(value, "f16") == 0  ? ITH_F16
                                                      : ITH_DTYPE_NONE;
        else if (strcmp(argv[i], "--head-dim") == 0)
            set->head_dim = atoll(value);
        else if (strcmp(argv[i], "--seq") == 0)
            set->seq = atoll(value);
        else if (strcmp(argv[i], "--threads") == 0)
            set->threads = atoi(value);
        else if (strcmp(argv[i], "--repeat") == 0)
            set->repeats = atoi(value);
        else
            return false;
    }
    return argc % 2 == 1 && set->dtype != ITH_DTYPE_NONE && set->head_dim >= 0 && set->seq >= 0 && set->threads >= 1 &&
           set->repeats >= 1 && set->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv)
{
    settings set = {.dtype = ITH_BF16, .threads = 1, .repeats = 11};
    if (!parse(argc, argv, &set)) {
        fprintf(stderr, "usage: bench_kernels [--kernel NAME] [--dtype f32|bf16|f16] [--head-dim N] [--seq N]\n"
                        "                     [--threads N] [--repeat N]\n");
        return 2;
    }
    ith_context *ctx = NULL;
    if (ith_context_create(NULL, &ctx) != ITH_OK) {
        fprintf(stderr, "bench_kernels: no memory\n");
        return 1;
    }
    bool good = bench_all(ctx, &set);
    if (!good)
        fprintf(stderr, "bench_kernels: %s\n", ith_context_error(ctx));
    ith_context_destroy(&ctx);
    return good ? 0 : 1;
}
