/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a kernel of attention on a GPU with float64: o and lse of some rows of every head, all columns. The outputs are
 * poisoned first. A line for each case has the relative L2 error of o, the largest error of lse, and what else is wrong.
 * If lse is right and o is wrong, the products with v are wrong; if both are wrong, the logits or the sums are. */
#include "gpu_problem.h"

#include "../src/base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_MOST = 3, SAMPLES = 24, BINS = 16 };

typedef struct check_case {
    const char *name;
    ith_dtype dtype;
    ith_softmax softmax;
    int64_t head_dim, batch, heads, per_kv, q_rows, kv_rows;
    int shards;         /* the second of three is empty */
    bool lengths;       /* the batch entries have fewer keys, and NaN behind those that a kernel may read */
    bool flags;         /* only odd heads are computed */
    bool nan_query;     /* row 1 of head 0 is NaN */
    bool halted;        /* the call is cancelled: nothing may be written */
    bool online_only;   /* logits so large that fixed_m cannot take them */
    float scale_factor; /* 0: 1 */
} check_case;

/* A case in memory. Arrays of the host unless named otherwise. */
typedef struct trial {
    const check_case *c;
    gpu_problem problem;
    ith_device_attend call;
    float *q, *k, *v; /* rounded to the type */
    float *m;         /* offsets of fixed_m */
    int64_t lengths[8], begins[SHARDS_MOST + 1];
    float *o, *lse;
    uint16_t *bits;
} trial;

static float round_to(ith_dtype dtype, float value)
{
    return dtype == ITH_BF16  ? ith_round_to_bf16(value)
           : dtype == ITH_F16 ? ith_f32_from_f16(ith_f16_from_f32(value))
                              : value;
}

static int64_t width(ith_dtype dtype)
{
    return dtype == ITH_F32 ? 4 : 2;
}

static void upload(bench_gpu *gpu, ith_dtype dtype, void *to, const float *from, int64_t count)
{
    void *values = malloc((size_t)(count * width(dtype)) + 1);
    ith_from_f32(values, dtype, from, count);
    gpu_copy(gpu, to, values, count * width(dtype));
    free(values);
}

/* The number of keys of batch entry b in shard r. */
static int64_t keys_in_shard(const trial *t, int64_t b, int r)
{
    int64_t keys = t->lengths[b] - t->begins[r];
    const int64_t rows = t->begins[r + 1] - t->begins[r];
    return keys < 0 ? 0 : keys > rows ? rows : keys;
}

static void make_values(trial *t)
{
    const check_case *c = t->c;
    const int64_t q_count = c->batch * c->heads * c->q_rows * c->head_dim, kv_heads = c->heads / c->per_kv;
    const int64_t kv_row = kv_heads * c->head_dim, kv_count = c->batch * c->kv_rows * kv_row;
    t->q = malloc((size_t)q_count * 4);
    t->k = malloc((size_t)kv_count * 4 + 4);
    t->v = malloc((size_t)kv_count * 4 + 4);
#pragma omp parallel for
    for (int64_t i = 0; i < q_count; i++)
        t->q[i] = round_to(c->dtype, gpu_random(3 * t->problem.seed, i));
#pragma omp parallel for
    for (int64_t i = 0; i < kv_count; i++) {
        t->k[i] = round_to(c->dtype, gpu_random(3 * t->problem.seed + 1, i));
        t->v[i] = round_to(c->dtype, gpu_random(3 * t->problem.seed + 2, i));
    }
    for (int64_t i = 0; i < c->head_dim && c->nan_query; i++)
        t->q[c->heads * c->head_dim + i] = NAN;
    for (int64_t b = 0; b < c->batch; b++) {
        t->lengths[b] = !c->lengths ? c->kv_rows : b == 0 ? c->kv_rows * 5 / 7 : b == 1 ? 1 : 0;
        for (int r = 0; r < c->shards; r++) {
            const int64_t keys = keys_in_shard(t, b, r);
            int64_t j = t->begins[r] + (keys + ITH_DEVICE_KEYS - 1) / ITH_DEVICE_KEYS * ITH_DEVICE_KEYS;
            for (; j < t->begins[r + 1]; j++)
                for (int64_t i = 0; i < kv_row; i++)
                    t->k[(b * c->kv_rows + j) * kv_row + i] = t->v[(b * c->kv_rows + j) * kv_row + i] = NAN;
        }
    }
}

static const float *q_row(const trial *t, int64_t n, int64_t i)
{
    const check_case *c = t->c;
    return t->q + ((n / c->heads * c->q_rows + i) * c->heads + n % c->heads) * c->head_dim;
}

static const float *kv_row(const trial *t, const float *kv, int64_t n, int64_t j)
{
    const check_case *c = t->c;
    return kv + ((n / c->heads * c->kv_rows + j) * (c->heads / c->per_kv) + n % c->heads / c->per_kv) * c->head_dim;
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* m_i = ceil(c |q_i| max_j |k_j|) - 88. */
static void make_offsets(trial *t)
{
    const check_case *c = t->c;
    t->m = malloc((size_t)(c->batch * c->heads * c->q_rows) * 4);
    for (int64_t n = 0; n < c->batch * c->heads; n++) {
        double longest = 0;
        for (int64_t j = 0; j < t->lengths[n / c->heads]; j++)
            longest = fmax(longest, dot(kv_row(t, t->k, n, j), kv_row(t, t->k, n, j), c->head_dim));
        for (int64_t i = 0; i < c->q_rows; i++) {
            const double square = dot(q_row(t, n, i), q_row(t, n, i), c->head_dim);
            t->m[n * c->q_rows + i] = (float)(ceil(t->call.scale * M_LOG2E * sqrt(longest * square)) - 88);
        }
    }
}

static bool is_computed(const check_case *c, int64_t n)
{
    return !c->halted && (!c->flags || n % 2);
}

/* ---- The kernel's results --------------------------------------------------------------------------------------- */

/* One call for each shard, on poisoned outputs. */
static void run_shards(bench_gpu *gpu, trial *t)
{
    const check_case *c = t->c;
    const int64_t heads = c->batch * c->heads, rows = heads * c->q_rows,
                  kv_row_size = c->heads / c->per_kv * c->head_dim;
    char said[ITH_DEVICE_SENTENCE] = "";
    uint8_t flags[256];
    int32_t keys[8];
    uint8_t *device_flags = gpu_allocate(gpu, sizeof flags);
    int32_t *device_keys = gpu_allocate(gpu, sizeof keys), *halt = gpu_allocate(gpu, sizeof *halt);
    int failed = gpu->module->fill(gpu->stream, t->problem.o, 0xff, rows * c->head_dim * width(c->dtype), said) ||
                 gpu->module->fill(gpu->stream, t->problem.o_sum, 0xff, rows * c->head_dim * 4, said) ||
                 gpu->module->fill(gpu->stream, t->problem.m, 0xff, rows * 4, said) ||
                 gpu->module->fill(gpu->stream, t->problem.l, 0xff, rows * 4, said) ||
                 gpu->module->fill(gpu->stream, t->problem.lse, 0xff, rows * 4, said);
    gpu_check(failed, "poisoning");
    if (c->softmax == ITH_SOFTMAX_FIXED_M)
        gpu_copy(gpu, t->problem.m, t->m, rows * 4);
    for (int64_t n = 0; n < heads; n++)
        flags[n] = (uint8_t)((n % 2) == (c->softmax == ITH_SOFTMAX_FIXED_M));
    gpu_copy(gpu, device_flags, flags, sizeof flags);
    gpu_copy(gpu, halt, &(int32_t){c->halted}, sizeof *halt);
    for (int r = 0; r < c->shards; r++) {
        ith_device_attend call = t->call;
        const int64_t offset = t->begins[r] * kv_row_size * width(c->dtype);
        for (int64_t b = 0; b < c->batch; b++)
            keys[b] = (int32_t)keys_in_shard(t, b, r);
        gpu_copy(gpu, device_keys, keys, sizeof keys);
        call.k.data = (char *)call.k.data + offset;
        call.v.data = (char *)call.v.data + offset;
        call.kv_rows = t->begins[r + 1] - t->begins[r];
        call.first_shard = r == 0;
        call.last_shard = r == c->shards - 1;
        call.keys = c->lengths ? device_keys : NULL;
        call.fixed = c->flags ? device_flags : NULL;
        call.halt = halt;
        gpu_attend(gpu, &call);
        gpu_wait(gpu);
    }
    gpu->module->release(gpu->device, device_flags);
    gpu->module->release(gpu->device, device_keys);
    gpu->module->release(gpu->device, halt);
}

/* Copies o, as bits and as numbers, and lse to the host. */
static void download(bench_gpu *gpu, trial *t)
{
    const int64_t rows = t->c->batch * t->c->heads * t->c->q_rows, count = rows * t->c->head_dim;
    t->bits = malloc((size_t)(count * width(t->c->dtype)));
    t->o = malloc((size_t)count * 4);
    t->lse = malloc((size_t)rows * 4);
    gpu_copy(gpu, t->bits, t->problem.o, count * width(t->c->dtype));
    gpu_copy(gpu, t->lse, t->problem.lse, rows * 4);
    ith_to_f32(t->o, t->bits, t->c->dtype, count);
}

/* Whether a second run, which wants no lse, gives the same bits of o. */
static bool repeats(bench_gpu *gpu, trial *t)
{
    const int64_t bytes = t->c->batch * t->c->heads * t->c->q_rows * t->c->head_dim * width(t->c->dtype);
    void *again = malloc((size_t)bytes);
    t->call.lse = NULL;
    run_shards(gpu, t);
    gpu_copy(gpu, again, t->problem.o, bytes);
    const bool same = !memcmp(again, t->bits, (size_t)bytes);
    free(again);
    return same;
}

/* ---- float64 ---------------------------------------------------------------------------------------------------- */

/* Row i of head n: o [head_dim], and lse as the result. */
static double exact_row(const trial *t, int64_t n, int64_t i, double *o)
{
    const check_case *c = t->c;
    const int64_t keys = t->lengths[n / c->heads];
    double *s = malloc((size_t)(keys + 1) * sizeof *s), top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        s[j] = t->call.scale * dot(q_row(t, n, i), kv_row(t, t->k, n, j), c->head_dim);
        top = fmax(top, s[j]);
    }
    for (int64_t x = 0; x < c->head_dim; x++)
        o[x] = 0;
    for (int64_t j = 0; j < keys; j++) {
        const float *v = kv_row(t, t->v, n, j);
        const double p = exp(s[j] - top);
        sum += p;
        for (int64_t x = 0; x < c->head_dim; x++)
            o[x] += p * v[x];
    }
    for (int64_t x = 0; x < c->head_dim && keys; x++)
        o[x] /= sum;
    free(s);
    return keys ? top + log(sum) : -INFINITY;
}

/* What the comparison finds. */
typedef struct findings {
    double error, norm, lse_error;
    double by_column[BINS], by_row[8];          /* squares of errors by column / 8, and by row % 64 / 8 */
    int64_t poisoned, head, row, column, wrong; /* the first wrong number, and how many there are */
    float got;
    double wanted;
} findings;

static int64_t sample_row(int64_t q_rows, int64_t sample, uint64_t seed)
{
    static const int64_t edges[] = {0, 1, 7, 8, 63, 64, 127, 128, 191, 192};
    const int64_t count = (int64_t)(sizeof edges / sizeof *edges);
    if (sample < count)
        return edges[sample] % q_rows;
    return sample == count ? q_rows - 1 : (int64_t)(fabsf(gpu_random(seed + 77, sample)) * 1e6f) % q_rows;
}

static void compare_row(const trial *t, int64_t n, int64_t i, findings *f)
{
    const check_case *c = t->c;
    double wanted[256];
    const double lse = exact_row(t, n, i, wanted);
    const float *got = t->o + ((n / c->heads * c->q_rows + i) * c->heads + n % c->heads) * c->head_dim;
    const float got_lse = t->lse[n * c->q_rows + i];
    const double lse_error = isinf(lse) ? (got_lse == (float)lse ? 0 : INFINITY) : fabs(got_lse - lse);
#pragma omp critical
    {
        f->lse_error = isnan(lse_error) || lse_error > f->lse_error ? lse_error : f->lse_error;
        for (int64_t x = 0; x < c->head_dim; x++) {
            const double difference = got[x] - wanted[x], square = difference * difference;
            f->error += square;
            f->norm += wanted[x] * wanted[x];
            f->by_column[x / 8 % BINS] += square;
            f->by_row[i % 64 / 8] += square;
            if (!(fabs(difference) <= 0.05 * fabs(wanted[x]) + 0.02)) {
                if (f->wrong++ == 0 || n < f->head || (n == f->head && i < f->row)) {
                    f->head = n, f->row = i, f->column = x;
                    f->got = got[x], f->wanted = wanted[x];
                }
            }
        }
    }
}

/* Rows that must hold NaN, or must be untouched. */
static bool is_spoiled(const check_case *c, int64_t n, int64_t i)
{
    return !is_computed(c, n) || (c->nan_query && n == 0 && i == 1);
}

static findings compare(const trial *t)
{
    const check_case *c = t->c;
    findings f = {0};
    for (int64_t n = 0; n < c->batch * c->heads; n++)
        for (int64_t i = 0; i < c->q_rows; i++) {
            const float *row = t->o + ((n / c->heads * c->q_rows + i) * c->heads + n % c->heads) * c->head_dim;
            for (int64_t x = 0; x < c->head_dim; x++)
                f.poisoned += isnan(row[x]) != is_spoiled(c, n, i);
        }
    const int64_t samples = c->q_rows < SAMPLES ? c->q_rows : SAMPLES;
#pragma omp parallel for schedule(dynamic)
    for (int64_t at = 0; at < c->batch * c->heads * samples; at++) {
        const int64_t n = at / samples, sample = at % samples;
        const int64_t i = c->q_rows < SAMPLES ? sample : sample_row(c->q_rows, sample, t->problem.seed + (uint64_t)n);
        if (!is_spoiled(c, n, i))
            compare_row(t, n, i, &f);
    }
    return f;
}

/* ---- Cases ------------------------------------------------------------------------------------------------------ */

static void print_pattern(const findings *f)
{
    printf("      first wrong: head %lld row %lld column %lld is %g, not %g; %lld wrong numbers in the sampled rows\n",
           (long long)f->head, (long long)f->row, (long long)f->column, f->got, f->wanted, (long long)f->wrong);
    printf("      errors by column / 8:");
    for (int i = 0; i < BINS; i++)
        printf(" %.1e", sqrt(f->by_column[i]));
    printf("\n      errors by row %% 64 / 8:");
    for (int i = 0; i < 8; i++)
        printf(" %.1e", sqrt(f->by_row[i]));
    printf("\n");
}

static bool report(const trial *t, const findings *f, bool same)
{
    const check_case *c = t->c;
    const double error = f->norm > 0 ? sqrt(f->error / f->norm) : sqrt(f->error);
    const double most = c->dtype == ITH_BF16 ? 4e-3 : c->dtype == ITH_F16 ? 6e-4 : 1e-5;
    const bool right = error <= most && f->lse_error <= 2e-4 && f->poisoned == 0 && same;
    printf("%s %-22s %s %-7s D %3lld B %lld H %lld/%lld Sq %5lld Skv %5lld  o %.2e  lse %.2e%s",
           right ? "ok   " : "WRONG", c->name,
           c->dtype == ITH_BF16  ? "bf16"
           : c->dtype == ITH_F16 ? "f16 "
                                 : "f32 ",
           c->softmax == ITH_SOFTMAX_ONLINE ? "online" : "fixed_m", (long long)c->head_dim, (long long)c->batch,
           (long long)c->heads, (long long)c->per_kv, (long long)c->q_rows, (long long)c->kv_rows, error, f->lse_error,
           same ? "" : "  bits change from run to run");
    if (f->poisoned)
        printf("  %lld numbers wrongly NaN or written", (long long)f->poisoned);
    printf("\n");
    if (!right)
        print_pattern(f);
    fflush(stdout);
    return right;
}

static bool check(bench_gpu *gpu, const check_case *c, uint64_t seed)
{
    trial t = {.c = c,
               .problem = {.dtype = c->dtype,
                           .head_dim = c->head_dim,
                           .batch = c->batch,
                           .heads = c->heads,
                           .per_kv = c->per_kv,
                           .q_rows = c->q_rows,
                           .kv_rows = c->kv_rows,
                           .seed = seed}};
    for (int r = 0; r < c->shards; r++) /* unequal parts, the second of them empty */
        t.begins[r] = r == 0 ? 0 : c->kv_rows * 2 / 5;
    t.begins[c->shards] = c->kv_rows;
    t.call = gpu_make_problem(gpu, &t.problem);
    t.call.softmax = c->softmax;
    t.call.scale *= c->scale_factor ? c->scale_factor : 1;
    const int64_t kv_count = c->batch * c->kv_rows * (c->heads / c->per_kv) * c->head_dim;
    make_values(&t);
    make_offsets(&t);
    upload(gpu, c->dtype, t.problem.q, t.q, c->batch * c->heads * c->q_rows * c->head_dim);
    upload(gpu, c->dtype, t.problem.k, t.k, kv_count);
    upload(gpu, c->dtype, t.problem.v, t.v, kv_count);
    bool right = true;
    if (!gpu->kernel->refuses(gpu->device, &t.call)) {
        run_shards(gpu, &t);
        download(gpu, &t);
        const findings f = compare(&t);
        right = report(&t, &f, repeats(gpu, &t));
    } else {
        printf("refused: %s\n", gpu->kernel->refuses(gpu->device, &t.call));
    }
    gpu_free_problem(gpu, &t.problem);
    free(t.q), free(t.k), free(t.v), free(t.m), free(t.o), free(t.lse), free(t.bits);
    return right;
}

bool gpu_check_cases(bench_gpu *gpu, int64_t head_dim)
{
    static const check_case cases[] = {
        {.name = "one tile", .batch = 1, .heads = 1, .per_kv = 1, .q_rows = 64, .kv_rows = 128, .shards = 1},
        {.name = "whole tiles", .batch = 1, .heads = 2, .per_kv = 1, .q_rows = 256, .kv_rows = 1408, .shards = 1},
        {.name = "one key", .batch = 1, .heads = 1, .per_kv = 1, .q_rows = 1, .kv_rows = 1, .shards = 1},
        {.name = "tails", .batch = 2, .heads = 3, .per_kv = 1, .q_rows = 333, .kv_rows = 1001, .shards = 1},
        {.name = "no keys", .batch = 1, .heads = 2, .per_kv = 1, .q_rows = 130, .kv_rows = 0, .shards = 1},
        {.name = "shared keys, lengths",
         .batch = 3,
         .heads = 6,
         .per_kv = 3,
         .q_rows = 200,
         .kv_rows = 1400,
         .shards = 1,
         .lengths = true},
        {.name = "shards", .batch = 1, .heads = 2, .per_kv = 1, .q_rows = 300, .kv_rows = 1500, .shards = 3},
        {.name = "shards, lengths",
         .batch = 3,
         .heads = 4,
         .per_kv = 2,
         .q_rows = 190,
         .kv_rows = 900,
         .shards = 3,
         .lengths = true},
        {.name = "peaked",
         .batch = 1,
         .heads = 2,
         .per_kv = 1,
         .q_rows = 256,
         .kv_rows = 2000,
         .shards = 1,
         .scale_factor = 5},
        {.name = "rising maxima",
         .batch = 1,
         .heads = 2,
         .per_kv = 1,
         .q_rows = 256,
         .kv_rows = 2000,
         .shards = 3,
         .scale_factor = 40,
         .online_only = true},
        {.name = "NaN in a query",
         .batch = 1,
         .heads = 2,
         .per_kv = 1,
         .q_rows = 130,
         .kv_rows = 700,
         .shards = 1,
         .nan_query = true},
        {.name = "flags of heads",
         .batch = 1,
         .heads = 5,
         .per_kv = 1,
         .q_rows = 130,
         .kv_rows = 700,
         .shards = 1,
         .flags = true},
        {.name = "cancelled",
         .batch = 1,
         .heads = 2,
         .per_kv = 1,
         .q_rows = 130,
         .kv_rows = 700,
         .shards = 1,
         .halted = true},
        {.name = "many items", .batch = 1, .heads = 9, .per_kv = 3, .q_rows = 7001, .kv_rows = 5003, .shards = 1},
    };
    static const struct {
        ith_dtype dtype;
        ith_softmax softmax;
        int64_t head_dim;
    } kinds[] = {{ITH_BF16, ITH_SOFTMAX_ONLINE, 128}, {ITH_BF16, ITH_SOFTMAX_FIXED_M, 128},
                 {ITH_F16, ITH_SOFTMAX_ONLINE, 128},  {ITH_BF16, ITH_SOFTMAX_ONLINE, 64},
                 {ITH_BF16, ITH_SOFTMAX_FIXED_M, 64}, {ITH_F16, ITH_SOFTMAX_ONLINE, 64}};
    bool right = true;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            check_case c = cases[i];
            const bool wanted = head_dim == 0 || (head_dim == kinds[kind].head_dim && kinds[kind].dtype == ITH_BF16);
            if (!wanted || (c.online_only && kinds[kind].softmax == ITH_SOFTMAX_FIXED_M))
                continue;
            c.dtype = kinds[kind].dtype;
            c.softmax = kinds[kind].softmax;
            c.head_dim = kinds[kind].head_dim;
            right = check(gpu, &c, 100 * kind + i) && right;
        }
    printf("%s\n", right ? "all cases are right" : "SOME CASES ARE WRONG");
    return right;
}
