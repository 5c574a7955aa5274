/* SPDX-License-Identifier: Apache-2.0 */
/* Measures linear layers, with the conversion of their weights, in GFLOP/s and as a share of the peak of the kernel's
 * instructions. Layers and peak are measured in turn on the same number of threads.
 *
 *     bench_linear [--in N] [--out N] [--hidden N] [--rows N] [--weights TYPE] [--multiply f32|bf16]
 *                  [--keep-packed 0|1] [--threads N] [--repeat N]
 *
 * TYPE is the name of a type of weights in files: f32, bf16, f16, i8, f8_e4m3, q8_0, q4_k, ...
 *
 * Without --in and --out the layers of Wan 1.3B and A14B are measured. --hidden N measures a feed-forward network of in
 * to N to out features.
 *
 * of peak   share of the peak by the wall clock, the median of the repeats
 * quiet     one thread: the share of the peak if nobody else used the core. A run is cut into slices of about a
 *           millisecond, between bursts of the peak, because the clock changes. Each slice counts with its best share
 *           over all repeats, where its peak is the faster burst beside it
 * convert   share of the time in which weights are converted
 * pack      share of the time in which rows of x are packed
 * other     share of the time in which sums are turned into rows, hidden rows are packed, and threads wait
 *
 * The layer gets a copy of its product kernel whose functions read the clock before and after they do their work. */
#include "../src/base/clock.h"
#include "../src/base/dtype.h"
#include "../src/base/median.h"
#include "../src/kernels/rowops.h"
#include "../src/linear/linear_set.h"
#include "common.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS_MAX = 100, SLICES_MAX = 1 << 20, LAYERS = 2 };
enum { CONVERT, PACK, OTHER, PARTS };
static const double PEAK_SECONDS = 0.05, SLICE_SECONDS = 0.001;

typedef struct settings {
    int64_t in, out, hidden, rows;
    ith_dtype weights, multiply;
    int keeps_packed; /* 0 or 1 */
    int threads, repeats;
} settings;

/* One layer, or a feed-forward network, with its weights and its rows. */
typedef struct subject {
    ith_context *context;
    const settings *set;
    ith_linear_set *linears;
    ith_linear *layers[LAYERS];
    ith_arena layers_arena, workspace_arena;
    ith_linear_workspace workspace;
    void *weights;
    float *x, *y;
} subject;

/* ---- The kernel with a clock ----------------------------------------------------------------------------------- */

/* The times that one thread measured in one run. */
typedef struct meter {
    double last;           /* the time at which the current work began */
    int since;             /* the current work: CONVERT, PACK or OTHER */
    double seconds[PARTS]; /* time of each kind of work outside of multiply */
    int64_t calls;         /* number of calls of multiply */
} meter;

static const ith_product_kernel *timed;
static ith_unpack_fn timed_unpacking;
static _Thread_local meter own;
/* For each slice: 10^9 operations that the peak does in the time of the slice, the fewest of all runs. */
static double capacity[SLICES_MAX];
static double slice_begin, burst; /* when the current slice began; the peak just before */
static double burst_seconds;      /* time of all bursts of a run */
static const ith_instructions *slice_instructions;
static uint32_t slice_cpu;
static int64_t slice_calls; /* calls of multiply in a slice; 0: slices are not measured */

/* Called when a thread begins to convert or to pack: adds the time since `last` to the work before. */
static void begin_part(int part)
{
    if (own.since == part)
        return;
    double now = ith_clock_seconds();
    own.seconds[own.since] += now - own.last;
    own.last = now, own.since = part;
}

static void timed_unpack(ith_dtype type, const void *data, int64_t first, int64_t count, float *out)
{
    begin_part(CONVERT);
    timed_unpacking(type, data, first, count, out);
}

static void timed_pack_left(const ith_product_left *left)
{
    begin_part(CONVERT);
    timed->pack_left(left);
}

static void timed_pack_right(const ith_product_right *right)
{
    begin_part(PACK);
    timed->pack_right(right);
}

/* Measures a burst of the peak, and begins a slice. */
static void begin_slice(void)
{
    double begin = ith_clock_seconds();
    burst = bench_burst(slice_instructions, slice_cpu);
    slice_begin = ith_clock_seconds();
    burst_seconds += slice_begin - begin;
}

static void end_slice(double now)
{
    int64_t slice = own.calls / slice_calls;
    double seconds = now - slice_begin, before = burst;
    begin_slice();
    double most = seconds * (before > burst ? before : burst);
    if (slice < SLICES_MAX && (capacity[slice] <= 0 || most < capacity[slice]))
        capacity[slice] = most;
    own.last = slice_begin;
}

static void timed_multiply(const ith_product_call *call)
{
    double begin = ith_clock_seconds();
    own.seconds[own.since] += begin - own.last;
    timed->multiply(call);
    own.last = ith_clock_seconds(), own.since = OTHER;
    if (slice_calls && (own.calls + 1) % slice_calls == 0)
        end_slice(own.last);
    own.calls++;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

/* Packed numbers, the same in every run. No byte is 0x3c or above, so that the f16 scales of quantisation blocks are
 * below 1. */
static void fill_packed(unsigned char *packed, int64_t bytes)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        packed[i] = (unsigned char)((state >> 16) % 0x3c);
    }
}

/* Numbers around 0, the same in every run, of the type of the weights. */
static void fill(void *numbers, ith_dtype type, int64_t count)
{
    uint32_t state = 1;
    if (ith_unpack_has(type)) {
        fill_packed(numbers, ith_dtype_row_bytes(type, count));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float value = (float)(int32_t)state * 0x1p-31f;
        ith_from_f32((char *)numbers + i * ith_dtype_bytes(type), type, &value, 1);
    }
}

static void lay_out_layers(subject *s)
{
    const settings *set = s->set;
    const ith_operand_types types = set->multiply == ITH_BF16 ? (ith_operand_types){ITH_BF16, ITH_BF16, ITH_BF16}
                                                              : (ith_operand_types){ITH_F32, ITH_F32, ITH_F32};
    s->layers[0] =
        ith_linear_lay_out(s->linears, set->in, set->hidden ? set->hidden : set->out, types, &s->layers_arena);
    s->layers[1] = set->hidden ? ith_linear_lay_out(s->linears, set->hidden, set->out, types, &s->layers_arena) : NULL;
}

static int64_t widest(const settings *set)
{
    return set->hidden ? set->hidden * (set->in > set->out ? set->in : set->out) : set->in * set->out;
}

static ith_status make(subject *s)
{
    const settings *set = s->set;
    ith_status status = ith_linear_set_create(s->context, (ith_linear_keep)set->keeps_packed, &s->linears);
    if (!status) {
        lay_out_layers(s);
        status = ith_linear_set_status(s->linears);
    }
    if (!status)
        status = ith_arena_allocate(s->context, &s->layers_arena, "layers");
    if (status)
        return status;
    lay_out_layers(s);
    ith_linear_workspace_lay_out(s->linears, set->threads, set->rows, &s->workspace_arena, &s->workspace);
    status = ith_arena_allocate(s->context, &s->workspace_arena, "a workspace");
    s->weights = ith_alloc(s->context, ith_dtype_row_bytes(set->weights, widest(set)), 1, "weights");
    s->x = ith_alloc(s->context, set->rows * set->in, sizeof *s->x, "rows");
    s->y = ith_alloc(s->context, set->rows * set->out, sizeof *s->y, "rows");
    if (status || !s->weights || !s->x || !s->y)
        return ITH_ERR_MEMORY;
    ith_linear_workspace_lay_out(s->linears, set->threads, set->rows, &s->workspace_arena, &s->workspace);
    fill(s->weights, set->weights, widest(set));
    fill(s->x, ITH_F32, set->rows * set->in);
    for (int i = 0; i < LAYERS && s->layers[i] && !status; i++) {
        const ith_linear_weight weight = {.data = s->weights, .type = set->weights, .rows = s->layers[i]->size->out};
        status = ith_linear_attach(s->context, s->layers[i], &weight, 1, NULL);
    }
    return status;
}

/* Gives the layers a copy of their kernel that looks at the clock. */
static void take_time(subject *s)
{
    static ith_product_kernel kernel;
    timed = s->layers[0]->size->kernel, timed_unpacking = s->layers[0]->size->unpack;
    kernel = *timed;
    kernel.pack_left = timed_pack_left, kernel.pack_right = timed_pack_right, kernel.multiply = timed_multiply;
    for (int i = 0; i < LAYERS && s->layers[i]; i++) {
        ith_linear_size *size = (ith_linear_size *)(void *)s->layers[i]->size;
        size->kernel = &kernel, size->unpack = timed_unpack;
    }
}

static void unmake(subject *s)
{
    ith_linear_set_destroy(&s->linears);
    ith_free(s->context, s->layers_arena.base);
    ith_free(s->context, s->workspace_arena.base);
    ith_free(s->context, s->weights);
    ith_free(s->context, s->x);
    ith_free(s->context, s->y);
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

static const float *row_of_x(const void *user, int64_t row, float *space)
{
    const subject *s = user;
    (void)space;
    return s->x + row * s->set->in;
}

static void take_row(void *user, int64_t row, int64_t first, int64_t count, const float *y)
{
    const subject *s = user;
    memcpy(s->y + row * s->set->out + first, y, (size_t)count * sizeof *y);
}

static ith_status run(subject *s)
{
    const ith_linear_input x = {row_of_x, s};
    const ith_linear_rows rows = {s->y, s->set->out};
    const ith_linear_output y = {take_row, NULL, s, &rows};
    const ith_feed_forward network = {s->layers[0], NULL, s->layers[1],
                                      ith_rowops_choose(ith_context_cpu(s->context))->gelu_tanh};
    return s->set->hidden ? ith_feed_forward_apply(s->context, &network, &s->workspace, s->set->rows, &x, &y)
                          : ith_linear_apply(s->context, s->layers[0], &s->workspace, s->set->rows, &x, &y);
}

/* Runs the layer once. Adds each kind of work outside of multiply to `parts`: its mean time over the threads. */
static ith_status run_timed(subject *s, double *seconds, double *parts)
{
    if (slice_calls)
        begin_slice();
    burst_seconds = 0;
    double begin = ith_clock_seconds();
#pragma omp parallel num_threads(s->set->threads)
    own = (meter){.last = begin, .since = OTHER};
    ith_status status = run(s);
    double end = ith_clock_seconds();
    *seconds = end - begin - burst_seconds;
    if (slice_calls)
        end_slice(end);
#pragma omp parallel num_threads(s->set->threads)
    {
        own.seconds[OTHER] += end > own.last ? end - own.last : 0;
        for (int i = 0; i < PARTS; i++)
#pragma omp atomic
            parts[i] += own.seconds[i] / s->set->threads;
    }
    return status;
}

/* Operations of the peak in the time of a whole run, in 10^9. */
static double quiet_capacity(void)
{
    double sum = 0;
    for (int i = 0; i < SLICES_MAX && capacity[i] > 0; i++)
        sum += capacity[i];
    return sum;
}

static ith_status measure(subject *s)
{
    const settings *set = s->set;
    uint32_t cpu = ith_context_cpu(s->context);
    const ith_instructions *instructions = &s->layers[0]->size->kernel->instructions[s->layers[0]->parts - 1];
    double wide = (double)(set->hidden ? set->hidden * (set->in + set->out) : set->in * set->out);
    double work = 2e-9 * wide * (double)set->rows, peaks[REPEATS_MAX], shares[REPEATS_MAX], rates[REPEATS_MAX];
    double seconds = 0, all = 0, parts[PARTS] = {0};
    memset(capacity, 0, sizeof capacity);
    slice_calls = 0, slice_instructions = instructions, slice_cpu = cpu;
    ith_status status = run_timed(s, &seconds, parts);
    if (set->threads == 1)
        slice_calls = 1 + (int64_t)((double)own.calls * SLICE_SECONDS / seconds);
    memset(parts, 0, sizeof parts);
    for (int n = 0; n < set->repeats && !status; n++) {
        status = run_timed(s, &seconds, parts);
        all += seconds;
        peaks[n] = ith_peak_of_product(instructions, cpu, set->threads, PEAK_SECONDS);
        rates[n] = work / seconds, shares[n] = rates[n] / peaks[n];
    }
    if (status)
        return status;
    char peak[64];
    ith_peak_describe_product(instructions, cpu, peak, sizeof peak);
    printf("%-7s %-7s %-13s %6lld %6lld %6lld %6lld %3d %9.1f %9.1f %7.1f%%", ith_dtype_name(set->weights),
           ith_dtype_name(set->multiply), peak, (long long)set->in, (long long)set->hidden, (long long)set->out,
           (long long)set->rows, set->threads, ith_median(rates, set->repeats), ith_median(peaks, set->repeats),
           100 * ith_median(shares, set->repeats));
    if (set->threads == 1)
        printf(" %6.1f%%", 100 * work / quiet_capacity());
    else
        printf(" %7s", "-");
    printf(" %6.1f%% %6.1f%% %6.1f%%\n", 100 * parts[CONVERT] / all, 100 * parts[PACK] / all, 100 * parts[OTHER] / all);
    fflush(stdout);
    return ITH_OK;
}

static ith_status bench(ith_context *context, const settings *set)
{
    subject s = {.context = context, .set = set};
    omp_set_num_threads(set->threads);
    ith_status status = make(&s);
    if (!status) {
        take_time(&s);
        status = measure(&s);
    }
    unmake(&s);
    return status;
}

static ith_status bench_all(ith_context *context, const void *user)
{
    const settings *set = user;
    static const int64_t sizes[][2] = {{1536, 1536}, {1536, 8960}, {8960, 1536}, {5120, 5120}, {5120, 13824}};
    static const ith_dtype types[][2] = {{ITH_F32, ITH_F32}, {ITH_BF16, ITH_F32}, {ITH_BF16, ITH_BF16}};
    ith_status status = ITH_OK;
    printf("%-7s %-7s %-13s %6s %6s %6s %6s %3s %9s %9s %8s %7s %7s %7s %7s\n", "weights", "product", "peak", "in",
           "hidden", "out", "rows", "thr", "GFLOP/s", "peak", "of peak", "quiet", "convert", "pack", "other");
    for (int size = 0; size < (set->in ? 1 : 5) && !status; size++)
        for (int type = 0; type < 3 && !status; type++) {
            settings one = *set;
            one.weights = set->weights ? set->weights : types[type][0];
            one.multiply = set->multiply ? set->multiply : types[type][1];
            one.in = set->in ? set->in : sizes[size][0], one.out = set->in ? set->out : sizes[size][1];
            bool again = type && (set->weights || set->multiply);
            if (!again && ith_product_kernel_choose(one.multiply, ith_context_cpu(context)))
                status = bench(context, &one);
        }
    return status;
}

/* ---- The command line ------------------------------------------------------------------------------------------ */

static bool parse(int argc, char **argv, settings *set)
{
    const bench_option options[] = {{"--in", .number = &set->in},
                                    {"--out", .number = &set->out},
                                    {"--hidden", .number = &set->hidden},
                                    {"--rows", .number = &set->rows},
                                    {"--weights", .weights = &set->weights},
                                    {"--multiply", .dtype = &set->multiply},
                                    {"--keep-packed", .count = &set->keeps_packed},
                                    {"--threads", .count = &set->threads},
                                    {"--repeat", .count = &set->repeats}};
    if (!bench_parse(argc, argv, options, sizeof options / sizeof *options))
        return false;
    if (set->multiply && !set->weights)
        set->weights = set->multiply;
    if (set->weights && !set->multiply)
        set->multiply = ITH_F32;
    const int64_t run = ith_dtype_run(set->weights);
    return set->in % run == 0 && set->hidden % run == 0 && set->in >= 0 && set->hidden >= 0 && !set->in == !set->out &&
           set->rows >= 1 && set->threads >= 1 && set->repeats >= 1 && set->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv)
{
    settings set = {.rows = 2048, .threads = 1, .repeats = 5};
    if (!parse(argc, argv, &set)) {
        fprintf(stderr, "usage: bench_linear [--in N] [--out N] [--hidden N] [--rows N] [--weights TYPE]\n"
                        "                    [--multiply f32|bf16] [--keep-packed 0|1] [--threads N] [--repeat N]\n");
        return 2;
    }
    return bench_run("bench_linear", bench_all, &set);
}
