/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of attention on a GPU, called through the device module (kernels/device.h).
 *
 *     bench_gpu_attention [--kernel 16bit_sm90] [--seq 16384,32768] [--heads 16] [--head-dim 128]
 *                         [--dtype bf16|f16|f32] [--softmax online|fixed_m|both] [--rounds 5] [--json]
 *
 * Times calls of random q, k, v [1, S, H, D], without a mask: the median over the rounds, in which both softmaxes take
 * turns. A head takes 4 S^2 D operations. tools/bench_gpu_sdpa.py compares the rates with PyTorch's. */
#include "gpu_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MOST = 64 };
#define SAMPLE_SECONDS 0.04

typedef struct settings {
    const char *kernel, *softmax, *dtype;
    int64_t seqs[16], heads, head_dim;
    int seq_count, rounds;
    bool json;
} settings;

/* One softmax that is measured. */
typedef struct series {
    ith_softmax softmax;
    int calls; /* calls of a sample */
    double seconds[ROUNDS_MOST];
} series;

static bool parse_seqs(settings *s, const char *text)
{
    char *end = NULL;
    for (s->seq_count = 0; s->seq_count < 16; text = end + 1) {
        s->seqs[s->seq_count++] = strtoll(text, &end, 10);
        if (end == text || (*end && *end != ','))
            return false;
        if (!*end)
            return true;
    }
    return false;
}

static bool parse(settings *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(name, "--json")) {
            s->json = true;
            continue;
        }
        if (!value)
            return false;
        i++;
        if (!strcmp(name, "--kernel"))
            s->kernel = value;
        else if (!strcmp(name, "--softmax"))
            s->softmax = value;
        else if (!strcmp(name, "--dtype"))
            s->dtype = value;
        else if (!strcmp(name, "--heads"))
            s->heads = atoll(value);
        else if (!strcmp(name, "--head-dim"))
            s->head_dim = atoll(value);
        else if (!strcmp(name, "--rounds"))
            s->rounds = atoi(value);
        else if (strcmp(name, "--seq") || !parse_seqs(s, value))
            return false;
    }
    return s->rounds >= 1 && s->rounds <= ROUNDS_MOST && s->heads >= 1 && s->head_dim >= 1;
}

/* ---- Timing ----------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds of one call, as the mean of `calls`, which are enqueued at once. */
static double time_calls(bench_gpu *gpu, const ith_device_attend *call, int calls)
{
    const double begin = now();
    for (int i = 0; i < calls; i++)
        gpu_attend(gpu, call);
    gpu_wait(gpu);
    return (now() - begin) / calls;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The series that the settings ask for. */
static int list_series(const settings *s, series list[2])
{
    int count = 0;
    for (int fixed = 0; fixed < 2; fixed++) {
        if (fixed && !strcmp(s->dtype, "f16"))
            continue; /* no kernel computes this softmax */
        if (strcmp(s->softmax, "both") && strcmp(s->softmax, fixed ? "fixed_m" : "online"))
            continue;
        list[count++] = (series){.softmax = fixed ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE};
    }
    return count;
}

static void print_series(const settings *s, int64_t seq, series *x, bool first)
{
    qsort(x->seconds, (size_t)s->rounds, sizeof *x->seconds, compare_doubles);
    const double operations = 4. * (double)seq * (double)seq * (double)s->head_dim * (double)s->heads;
    const double median = x->seconds[s->rounds / 2], best = x->seconds[0], worst = x->seconds[s->rounds - 1];
    const char *softmax = x->softmax == ITH_SOFTMAX_FIXED_M ? "fixed_m" : "online";
    if (s->json)
        printf("%s{\"kernel\": \"%s\", \"softmax\": \"%s\", \"dtype\": \"%s\", \"seq\": %lld, "
               "\"heads\": %lld,"
               " \"head_dim\": %lld, \"seconds\": %.9f, \"tflops\": %.2f}",
               first ? "" : ",\n", s->kernel, softmax, s->dtype, (long long)seq, (long long)s->heads,
               (long long)s->head_dim, median, 1e-12 * operations / median);
    else
        printf("%-12s %-8s S %7lld H %3lld D %3lld  %9.3f ms  %7.1f TFLOP/s  (%.1f to %.1f)\n", s->kernel, softmax,
               (long long)seq, (long long)s->heads, (long long)s->head_dim, 1e3 * median, 1e-12 * operations / median,
               1e-12 * operations / worst, 1e-12 * operations / best);
    fflush(stdout);
}

static void time_seq(bench_gpu *gpu, const settings *s, int64_t seq, series *list, int count, bool first)
{
    gpu_problem problem = {.dtype = gpu_dtype(s->dtype),
                           .head_dim = s->head_dim,
                           .batch = 1,
                           .heads = s->heads,
                           .per_kv = 1,
                           .q_rows = seq,
                           .kv_rows = seq,
                           .seed = (uint64_t)seq};
    ith_device_attend call = gpu_make_problem(gpu, &problem);
    /* Offsets of fixed_m that fit random tensors of these sizes: logits stay below the offset + 88. */
    gpu_fill_floats(gpu, call.m, s->heads * seq, -69);
    call.lse = NULL;
    for (int i = 0; i < count; i++) {
        call.softmax = list[i].softmax;
        time_calls(gpu, &call, 1);
        list[i].calls = 1 + (int)(SAMPLE_SECONDS / time_calls(gpu, &call, 1));
    }
    for (int round = 0; round < s->rounds; round++)
        for (int i = 0; i < count; i++) {
            call.softmax = list[i].softmax;
            list[i].seconds[round] = time_calls(gpu, &call, list[i].calls);
        }
    for (int i = 0; i < count; i++)
        print_series(s, seq, &list[i], first && i == 0);
    gpu_free_problem(gpu, &problem);
}

int main(int argc, char **argv)
{
    settings s = {.kernel = "16bit_sm90",
                  .softmax = "both",
                  .dtype = "bf16",
                  .seqs = {16384},
                  .heads = 16,
                  .head_dim = 128,
                  .seq_count = 1,
                  .rounds = 5};
    if (!parse(&s, argc, argv)) {
        fprintf(stderr, "bench_gpu_attention: unknown option or value; the file's first comment has them\n");
        return 2;
    }
    bench_gpu gpu;
    if (!gpu_open(&gpu, s.kernel))
        return 77;
    series list[2];
    const int count = list_series(&s, list);
    printf("%s", s.json ? "[" : "");
    for (int i = 0; i < s.seq_count; i++)
        time_seq(&gpu, &s, s.seqs[i], list, count, i == 0);
    printf("%s", s.json ? "]\n" : "");
    return 0;
}
