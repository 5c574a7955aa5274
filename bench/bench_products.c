/* SPDX-License-Identifier: Apache-2.0 */
/* Measures every product kernel that this machine can run, in GFLOP/s and as a share of the peak of its instructions.
 * Kernel and peak are measured in turn on the same number of threads.
 *
 *     bench_products [--kernel NAME] [--case NAME] [--dtype f32|bf16|f16] [--depth N] [--threads N] [--repeat N]
 *
 * Each thread has its own left operands and outputs; the panels of right belong to all.
 *
 * tile      one tile by one panel of `depth` steps, all of it in the first-level cache
 * linear K  a block of a linear layer of K inputs: 192 features by 20 panels of x. Weights are unpacked on the way:
 *           for each block of `depth` steps, pack_left, then the products with every panel of x
 * conv C    a row of 240 pixels of a convolution of 3 x 3 x 3 taps, C channels to C. Each three taps that lie side by
 *           side in a row are one product of 3 C steps; frames are packed beforehand
 *
 * mean      share of the peak by processor time, in the median of the repeats
 * quiet     share of the peak if nobody else used the core: a run is cut into slices of a millisecond or less, each
 *           between bursts of the peak, because the clock changes. Each slice counts with its best share over all
 *           repeats, where its peak is the fastest burst beside it */
#include "../src/base/clock.h"
#include "../src/base/cpu.h"
#include "../src/base/dtype.h"
#include "../src/base/median.h"
#include "../src/base/size.h"
#include "../src/kernels/product.h"
#include "common.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS_MAX = 200, THREADS_MAX = 256, SLICES_MAX = 512 };
static const double PEAK_SECONDS = 0.01;

typedef struct settings {
    const char *kernel, *only;
    ith_dtype dtype;
    int64_t depth; /* 0: the kernel's */
    int threads, repeats;
} settings;

/* Sizes of a case: `taps` products of `steps` steps, each cut into blocks, are added. `left_step` is the distance
 * between two rows of left, in numbers; 0: `steps`. */
typedef struct sizes {
    const char *name;
    int64_t rows, columns, steps, taps, left_step;
    bool unpacks;
    int calls; /* of each product in a slice */
} sizes;

/* rows = 0 and steps = 0 stand for the kernel's rows and depth. columns = -n stands for n panels of the kernel. */
static const sizes cases[] = {
    {"tile", 0, -1, 0, 1, 0, false, 200},           {"linear 1536", 192, -20, 1536, 1, 0, true, 1},
    {"linear 5120", 192, -20, 5120, 1, 0, true, 1}, {"conv 96", 240, 96, 288, 9, 96, false, 4},
    {"conv 192", 240, 192, 576, 9, 192, false, 1},  {"conv 384", 240, 384, 1152, 9, 384, false, 1}};
enum { CASES = sizeof cases / sizeof *cases };

/* The data that all threads read: sizes, kernel and right panels. */
typedef struct work {
    sizes is;
    const ith_product_kernel *kernel;
    ith_context *ctx;
    ith_dtype dtype; /* of left as it is stored */
    int parts;
    int64_t depth, blocks; /* steps of a block, the last of which may have fewer; number of blocks of a tap */
    char *right;
    int64_t panels, panel_bytes, tap_bytes; /* panels of a tap; bytes of a panel; bytes of a tap */
} work;

typedef struct operands {
    char *stored;        /* numbers of left as they are stored */
    char *left;          /* the packed left operand */
    int64_t left_stride; /* bytes between rows of `left` */
    int64_t part_bytes;
    float *out;
    double best[SLICES_MAX]; /* operations that each slice could have done at the peak, the fewest of all repeats */
    double seconds;          /* processor time of the last run */
} operands;

/* Allocates cleared memory from the context, which asks for large pages. Ends the program if there is none. */
static void *allocate(ith_context *ctx, int64_t bytes)
{
    void *memory = ith_alloc(ctx, bytes, 1, "operands");
    if (!memory) {
        fprintf(stderr, "bench_products: %s\n", ith_context_error(ctx));
        exit(1);
    }
    memset(memory, 0, (size_t)bytes);
    return memory;
}

/* ---- Operands -------------------------------------------------------------------------------------------------- */

static int64_t left_bytes(const ith_product_kernel *kernel)
{
    return kernel->type == ITH_F32 && kernel->parts == 1 ? 4 : 2;
}

/* The number of numbers in left. Each tap of a convolution reads a row of `rows` pixels and two pixels at its ends. */
static int64_t left_count(const work *w)
{
    return w->is.left_step ? w->is.taps * (w->is.rows + 2) * w->is.left_step : w->is.rows * w->is.steps;
}

static void make_right(work *w)
{
    int64_t columns = w->kernel->columns;
    float *x = allocate(w->ctx, w->is.steps * 4);
    const float **pointers = allocate(w->ctx, columns * (int64_t)sizeof *pointers);
    for (int64_t k = 0; k < w->is.steps; k++)
        x[k] = (float)(k % 17) * 0x1p-6f;
    for (int64_t j = 0; j < columns; j++)
        pointers[j] = x;
    w->panels = ith_div_up(w->is.columns, columns);
    w->panel_bytes = w->kernel->right_bytes(w->is.steps);
    w->tap_bytes = w->panels * w->panel_bytes;
    w->right = allocate(w->ctx, w->is.taps * w->tap_bytes);
    for (int64_t n = 0; n < w->is.taps * w->panels; n++)
        w->kernel->pack_right(
            &(ith_product_right){pointers, false, w->is.steps, 0, columns, w->right + n * w->panel_bytes});
    ith_free(w->ctx, x);
    ith_free(w->ctx, pointers);
}

static void make_operands(const work *w, operands *o)
{
    int64_t count = left_count(w), bytes = left_bytes(w->kernel);
    o->stored = allocate(w->ctx, count * 4);
    for (int64_t i = 0; i < count; i++) {
        float x = (float)(i % 13) * 0x1p-7f;
        ith_from_f32(o->stored + i * ith_dtype_bytes(w->dtype), w->dtype, &x, 1);
    }
    o->part_bytes = (w->is.unpacks ? w->is.rows * w->depth : count) * bytes;
    o->left_stride = (w->is.unpacks ? w->depth : w->is.left_step ? w->is.left_step : w->is.steps) * bytes;
    o->left = allocate(w->ctx, o->part_bytes * w->parts);
    if (!w->is.unpacks)
        w->kernel->pack_left(&(ith_product_left){o->stored, w->dtype, false, count, o->left, o->part_bytes});
    o->out = allocate(w->ctx, w->is.rows * w->panels * w->kernel->columns * 4);
    for (int n = 0; n < SLICES_MAX; n++)
        o->best[n] = INFINITY;
}

static void free_operands(const work *w, operands *o)
{
    ith_free(w->ctx, o->stored);
    ith_free(w->ctx, o->left);
    ith_free(w->ctx, o->out);
}

/* ---- One slice ------------------------------------------------------------------------------------------------- */

/* The address of step `first` in a right panel. */
static const char *panel_at(const work *w, int64_t tap, int64_t panel, int64_t first)
{
    return w->right + tap * w->tap_bytes + panel * w->panel_bytes + (first ? w->kernel->right_bytes(first) : 0);
}

static void unpack(const work *w, const operands *o, int64_t first, int64_t steps)
{
    ith_product_left left = {.dtype = w->dtype, .count = steps, .part_bytes = o->part_bytes};
    for (int64_t i = 0; i < w->is.rows; i++) {
        left.x = o->stored + (i * w->is.steps + first) * ith_dtype_bytes(w->dtype);
        left.to = o->left + i * o->left_stride;
        w->kernel->pack_left(&left);
    }
}

/* The steps [first, first + steps) of a tap, by all panels. While a panel is multiplied, the next one is fetched, and
 * its share of the weights that are unpacked next. */
static void multiply_block(const work *w, const operands *o, int64_t tap, int64_t first, int64_t steps)
{
    int64_t rows = w->is.rows, columns = w->kernel->columns, share = ith_div_up(rows, w->panels);
    int64_t stored_row = w->is.steps * ith_dtype_bytes(w->dtype);
    bool last = first + steps >= w->is.steps;
    ith_product_call call = {.rows = rows, .columns = columns, .steps = steps, .parts = w->parts};
    call.left = o->left + (w->is.unpacks ? 0 : (tap * (rows + 2) * w->is.left_step + first) * left_bytes(w->kernel));
    call.left_stride = o->left_stride;
    call.part_bytes = o->part_bytes;
    call.out_stride = columns;
    call.adds = tap > 0 || first > 0;
    if (w->is.unpacks)
        unpack(w, o, first, steps);
    for (int64_t n = 0; n < w->panels; n++) {
        call.right = panel_at(w, tap, n, first);
        call.next = n + 1 < w->panels ? panel_at(w, tap, n + 1, first)
                    : last            ? NULL
                                      : panel_at(w, tap, 0, first + steps);
        call.out = o->out + n * rows * columns;
        if (w->is.unpacks && !last) {
            call.next_left = o->stored + n * share * stored_row + (first + steps) * ith_dtype_bytes(w->dtype);
            call.next_left_rows = ith_max64(ith_min64(share, rows - n * share), 0);
            call.next_left_stride = stored_row;
        }
        for (int m = 0; m < w->is.calls; m++)
            w->kernel->multiply(&call);
    }
}

/* The peak at this moment. */
static double burst_of(const work *w)
{
    return bench_burst(&w->kernel->instructions[w->parts - 1], ith_context_cpu(w->ctx));
}

/* Computes the whole product, slice by slice. */
static void run(const work *w, operands *o)
{
    double before = burst_of(w), after;
    int slice = 0;
    o->seconds = 0;
    for (int64_t tap = 0; tap < w->is.taps; tap++)
        for (int64_t n = 0; n < w->blocks; n++, slice++, before = after) {
            double thread_start = ith_clock_thread_seconds(), start = ith_clock_seconds();
            multiply_block(w, o, tap, n * w->depth, ith_min64(w->depth, w->is.steps - n * w->depth));
            double seconds = ith_clock_seconds() - start;
            o->seconds += ith_clock_thread_seconds() - thread_start;
            after = burst_of(w);
            o->best[slice] = fmin(o->best[slice], seconds * fmax(before, after));
        }
}

/* ---- A case ---------------------------------------------------------------------------------------------------- */

/* The peak by processor time. */
static double peak_of(const work *w, int threads)
{
    const ith_instructions *product = &w->kernel->instructions[w->parts - 1];
    double start = ith_clock_seconds(), thread_start = ith_clock_thread_seconds();
    double peak = ith_peak_of_product(product, ith_context_cpu(w->ctx), threads, PEAK_SECONDS);
    return peak * (ith_clock_seconds() - start) / (ith_clock_thread_seconds() - thread_start);
}

/* Share of the peak, in %, in the best slices of a thread; the smallest of all threads. `operations` of one thread. */
static double quiet_share(const work *w, const operands *all, int threads, double operations)
{
    double most = 0;
    for (int t = 0; t < threads; t++) {
        double possible = 0;
        for (int n = 0; n < w->is.taps * w->blocks; n++)
            possible += all[t].best[n];
        most = fmax(most, possible);
    }
    return 100 * operations / most;
}

static void measure(const work *w, operands *all, const settings *set)
{
    double rates[REPEATS_MAX], peaks[REPEATS_MAX], shares[REPEATS_MAX];
    double operations =
        2e-9 * (double)(w->is.rows * w->panels * w->kernel->columns * w->is.steps * w->is.taps) * w->is.calls;
    for (int n = 0; n < set->repeats; n++) {
        double seconds = 0;
#pragma omp parallel num_threads(set->threads) reduction(max : seconds)
        {
            run(w, &all[omp_get_thread_num()]);
            seconds = all[omp_get_thread_num()].seconds;
        }
        rates[n] = operations * set->threads / seconds;
        peaks[n] = peak_of(w, set->threads);
        shares[n] = 100 * rates[n] / peaks[n];
    }
    char peak[48];
    ith_peak_describe_product(&w->kernel->instructions[w->parts - 1], ith_context_cpu(w->ctx), peak, sizeof peak);
    printf("%-15s %-12s %-5s %6lld %8d %10.1f %-20s %10.1f %8.1f%% %8.1f%%\n", w->kernel->name, w->is.name,
           ith_dtype_name(w->dtype), (long long)w->depth, set->threads, ith_median(rates, set->repeats), peak,
           ith_median(peaks, set->repeats), ith_median(shares, set->repeats),
           quiet_share(w, all, set->threads, operations));
    fflush(stdout);
}

static void bench(const ith_product_kernel *kernel, ith_context *ctx, ith_dtype dtype, const sizes *is,
                  const settings *set)
{
    static operands all[THREADS_MAX];
    work w = {.is = *is, .kernel = kernel, .ctx = ctx, .dtype = dtype};
    int64_t depth = set->depth ? set->depth : kernel->depth;
    w.is.rows = w.is.rows ? w.is.rows : kernel->rows;
    w.is.columns = w.is.columns < 0 ? -w.is.columns * kernel->columns : w.is.columns;
    w.is.steps = w.is.steps ? w.is.steps : depth;
    if (kernel->cpu == ITH_CPU_BASELINE)
        w.is.columns = ith_min64(w.is.columns, 4 * kernel->columns);
    w.parts = ith_product_parts(kernel, dtype, false);
    w.blocks = ith_div_up(w.is.steps, depth);
    w.depth = ith_round_up(ith_div_up(w.is.steps, w.blocks), kernel->step); /* makes blocks about equal */
    w.blocks = ith_div_up(w.is.steps, w.depth);
    if (w.is.taps * w.blocks > SLICES_MAX)
        return;
    make_right(&w);
    for (int t = 0; t < set->threads; t++)
        make_operands(&w, &all[t]);
    measure(&w, all, set);
    for (int t = 0; t < set->threads; t++)
        free_operands(&w, &all[t]);
    ith_free(ctx, w.right);
}

static ith_status bench_all(ith_context *ctx, const void *user)
{
    const settings *set = user;
    static const ith_dtype dtypes[] = {ITH_F32, ITH_BF16, ITH_F16};
    printf("%-15s %-12s %-5s %6s %8s %10s %-20s %10s %9s %9s\n", "kernel", "case", "dtype", "depth", "threads",
           "GFLOP/s", "peak", "GFLOP/s", "mean", "quiet");
    for (int i = 0; ith_product_kernel_at(i); i++) {
        const ith_product_kernel *kernel = ith_product_kernel_at(i);
        if (!ith_cpu_has(ith_context_cpu(ctx), kernel->cpu) || (set->kernel && strcmp(set->kernel, kernel->name) != 0))
            continue;
        for (int n = 0; n < CASES; n++) {
            if (set->only && strncmp(cases[n].name, set->only, strlen(set->only)) != 0)
                continue;
            /* f16 is measured only if it is asked for; without unpacking, a type makes a difference by its parts. */
            for (int t = 0; t < 3; t++)
                if (set->dtype ? dtypes[t] == set->dtype
                               : t == 0 || (t == 1 && (cases[n].unpacks || kernel->parts > 1)))
                    bench(kernel, ctx, dtypes[t], &cases[n], set);
        }
    }
    return ITH_OK;
}

/* ---- The command line ------------------------------------------------------------------------------------------ */

static bool parse(int argc, char **argv, settings *set)
{
    const bench_option options[] = {{"--kernel", .text = &set->kernel},    {"--case", .text = &set->only},
                                    {"--dtype", .dtype = &set->dtype},     {"--depth", .number = &set->depth},
                                    {"--threads", .count = &set->threads}, {"--repeat", .count = &set->repeats}};
    return bench_parse(argc, argv, options, sizeof options / sizeof *options) && set->depth >= 0 && set->threads >= 1 &&
           set->threads <= THREADS_MAX && set->repeats >= 1 && set->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv)
{
    settings set = {.dtype = ITH_DTYPE_NONE, .threads = 1, .repeats = 11};
    if (!parse(argc, argv, &set)) {
        fprintf(stderr, "usage: bench_products [--kernel NAME] [--case NAME] [--dtype f32|bf16|f16] [--depth N]\n"
                        "                      [--threads N] [--repeat N]\n");
        return 2;
    }
    return bench_run("bench_products", bench_all, &set);
}
