/* SPDX-License-Identifier: Apache-2.0 */
/* Measures kernels of attention (kernel_rate.h). */
#include "kernel_rate.h"

#include "../base/arena.h"
#include "../base/clock.h"
#include "../base/parallel.h"
#include "../base/random_numbers.h"
#include "../kernels/keyops.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    HEADS = 16,        /* the most heads of k and v: rows of a head lie as far apart as in a model's tensors */
    SHORT = 8,         /* a short KV block has 1 / SHORT of the keys of a whole block */
    LEAST_REPEATS = 3, /* measured repeats, after one to warm up */
    MOST_REPEATS = 400,
    PACKED_BLOCKS = 4,      /* packed blocks that are written in turn: together more than a second-level cache */
    MOST_BLOCK_KEYS = 4096, /* the longest KV block with which ith_rate_measure measures */
    RANDOM_NUMBERS = 16411  /* random numbers, which k and v repeat; a prime, so that rows differ */
};
/* bytes of k: more than a core's second-level cache, so that packing reads memory that is not near */
#define SOURCE_BYTES (8 << 20)
#define MOST_SOURCE_BYTES (64 << 20) /* bytes of k with more than one head */
#define ASK_SECONDS 0.005            /* between two questions whether to stop */

/* ---- The scene ------------------------------------------------------------------------------------------------- */

static void lay_out(ith_rate_scene *s, ith_arena *arena)
{
    const int64_t row_bytes = s->heads * s->head_dim * ith_dtype_bytes(s->dtype), pointer = sizeof(void *);
    s->k = ith_arena_take(arena, s->rows, row_bytes);
    s->v = ith_arena_take(arena, s->rows, row_bytes);
    s->k_rows = ith_arena_take(arena, s->heads * s->rows, pointer);
    s->v_rows = ith_arena_take(arena, s->heads * s->rows, pointer);
    s->quiet = ith_arena_take(arena, 1, sizeof *s->quiet);
}

static void fill(ith_dtype dtype, char *data, int64_t count, uint32_t seed)
{
    const int64_t bytes = ith_dtype_bytes(dtype), made = ith_min64(count, RANDOM_NUMBERS);
    ith_random_numbers(dtype, data, made, &seed);
    for (int64_t i = made; i < count; i += made)
        memcpy(data + i * bytes, data, (size_t)(ith_min64(made, count - i) * bytes));
}

ith_status ith_rate_scene_create(ith_context *context, ith_dtype dtype, int64_t head_dim, int64_t threads,
                                 ith_rate_scene *s)
{
    const int64_t bytes = ith_dtype_bytes(dtype);
    const int64_t heads = MOST_SOURCE_BYTES / (ITH_KEYOPS_PIECE * head_dim * bytes);
    *s = (ith_rate_scene){.context = context, .dtype = dtype, .head_dim = head_dim, .threads = threads};
    s->heads = ith_max64(ith_min64(heads, HEADS), 1);
    s->rows = ith_round_up(SOURCE_BYTES / (s->heads * head_dim * bytes), ITH_KEYOPS_PIECE);
    ith_arena arena = {0};
    lay_out(s, &arena);
    ith_status status = ith_arena_allocate(context, &arena, "timing kernels");
    if (status)
        return status;
    lay_out(s, &arena);
    s->memory = arena.base;
    fill(dtype, s->k, s->rows * s->heads * head_dim, 1);
    fill(dtype, s->v, s->rows * s->heads * head_dim, 2);
    for (int64_t n = 0; n < s->heads * s->rows; n++) {
        int64_t element = (n % s->rows * s->heads + n / s->rows) * head_dim;
        s->k_rows[n] = s->k + element * bytes;
        s->v_rows[n] = s->v + element * bytes;
    }
    return ITH_OK;
}

void ith_rate_scene_free(ith_rate_scene *s)
{
    ith_free(s->context, s->memory);
    ith_free(s->context, s->run_memory);
    *s = (ith_rate_scene){0};
}

/* ---- The memory of a thread ------------------------------------------------------------------------------------ */

/* Calls of one kernel on KV blocks of `block` keys. */
typedef struct rate_run {
    const ith_rate_scene *scene;
    const ith_attn_kernel *kernel;
    ith_softmax softmax;
    ith_attn_tiles tiles;
    int64_t block, calls;
    int64_t block_bytes;  /* of a packed KV block, aligned */
    int64_t thread_bytes; /* memory of a thread */
} rate_run;

typedef struct thread_memory {
    char *packed, *o, *scratch;
    const void **q_rows;
    void **o_rows;
    float *m, *l, *o_sum;
    double *sum; /* [head_dim] */
} thread_memory;

/* Divides the memory of a thread into its parts. If memory is NULL, only counts the bytes. */
static bool split_memory(const rate_run *r, char *memory, int64_t *bytes, thread_memory *t)
{
    const int64_t rows = r->tiles.block_q, D = r->scene->head_dim, f32 = sizeof(float);
    ith_arena arena = {.base = memory};
    t->packed = ith_arena_take(&arena, r->calls, r->block_bytes);
    t->o = ith_arena_take(&arena, rows, D * ith_dtype_bytes(r->scene->dtype));
    t->scratch = ith_arena_take(&arena, r->kernel->scratch_bytes(D, &r->tiles), 1);
    t->q_rows = ith_arena_take(&arena, rows, sizeof *t->q_rows);
    t->o_rows = ith_arena_take(&arena, rows, sizeof *t->o_rows);
    t->m = ith_arena_take(&arena, rows, f32);
    t->l = ith_arena_take(&arena, rows, f32);
    t->o_sum = ith_arena_take(&arena, rows, D * f32);
    t->sum = ith_arena_take(&arena, D, sizeof *t->sum);
    *bytes = arena.used_bytes;
    return !arena.overflow;
}

/* Describes calls on KV blocks of `block` keys, and makes room for them on all threads. */
static ith_status prepare(ith_rate_scene *s, const ith_rate_request *request, int64_t block, int64_t calls, rate_run *r)
{
    thread_memory unused;
    int64_t packed = request->kernel->packed_bytes(block, s->head_dim), all = 0;
    *r = (rate_run){.scene = s,
                    .kernel = request->kernel,
                    .softmax = request->softmax,
                    .tiles = request->tiles,
                    .block = block,
                    .calls = calls,
                    .block_bytes = packed < 0 ? -1 : ith_round_up(packed, ITH_ARENA_ALIGNMENT)};
    if (packed < 0 || !split_memory(r, NULL, &r->thread_bytes, &unused) ||
        !ith_size_mul(r->thread_bytes, s->threads, &all))
        return ith_fail(s->context, ITH_ERR_MEMORY, "timing kernel %s takes more than a size can hold",
                        request->kernel->name);
    if (all <= s->run_bytes)
        return ITH_OK;
    ith_free(s->context, s->run_memory);
    s->run_memory = ith_alloc(s->context, all, 1, "timing kernels"); /* the threads fill it in, and ask meanwhile */
    s->run_bytes = s->run_memory ? all : 0;
    return s->run_memory ? ITH_OK : ITH_ERR_MEMORY;
}

/* ---- Ticks ------------------------------------------------------------------------------------------------------ */

/* Whether some work is to stop. Any of its threads asks the scene, one at a time. With more threads than processors a
 * thread may not run for seconds, so the question is not the task of one thread. */
typedef struct rate_end {
    const ith_rate_scene *scene; /* has the function that says whether to stop */
    _Atomic double next_ask;     /* the time of the next question (ith_clock_seconds) */
    atomic_flag asking;          /* set while a thread asks */
    atomic_bool stopped;         /* whether the caller wants to stop */
    atomic_bool done;            /* the caller wants to stop, or the first thread has measured the work */
} rate_end;

/* The ticks of a thread's work. At each tick the work learns whether to stop. */
typedef struct rate_ticks {
    rate_end *end;
    ith_quiet *quiet; /* NULL: nothing is measured */
} rate_ticks;

static bool stopped(const ith_rate_scene *s)
{
    return s->stopped && s->stopped(s->user);
}

/* A tick. Returns whether to stop. A kernel calls it every few keys (ith_attn_call.halted). */
static bool tick(void *ticks)
{
    rate_ticks *t = ticks;
    if (t->quiet)
        ith_quiet_tick(t->quiet);
    rate_end *end = t->end;
    if (ith_clock_seconds() >= atomic_load_explicit(&end->next_ask, memory_order_relaxed) &&
        !atomic_flag_test_and_set(&end->asking)) {
        if (stopped(end->scene)) {
            atomic_store(&end->stopped, true);
            atomic_store(&end->done, true);
        }
        atomic_store(&end->next_ask, ith_clock_seconds() + ASK_SECONDS);
        atomic_flag_clear(&end->asking);
    }
    return atomic_load(&end->done);
}

/* ---- Work ------------------------------------------------------------------------------------------------------ */

/* Packs keys [begin, begin + keys) of a head to a KV block. Rows repeat if the scene has fewer than `keys`. */
static void pack_block(const rate_run *r, int64_t head, int64_t begin, int64_t keys, char *packed, rate_ticks *ticks)
{
    const ith_rate_scene *s = r->scene;
    const int64_t piece = ith_round_up(ITH_ATTN_PIECE_KEYS, r->tiles.block_kv_compute_in);
    const void *k[ITH_ATTN_PIECE_KEYS + ITH_ATTN_PANEL_MAX], *v[ITH_ATTN_PIECE_KEYS + ITH_ATTN_PANEL_MAX];
    for (int64_t j = 0; j < keys && !tick(ticks); j += piece) {
        ith_attn_pack pack = {.dtype = s->dtype,
                              .head_dim = s->head_dim,
                              .first = j,
                              .keys = ith_min64(piece, keys - j),
                              .k = k,
                              .v = v,
                              .packed = packed};
        for (int64_t i = 0; i < pack.keys; i++) {
            int64_t row = head * s->rows + (begin + j + i) % s->rows;
            k[i] = s->k_rows[row], v[i] = s->v_rows[row];
        }
        r->kernel->pack(&pack);
    }
}

/* One block of queries attends to all KV blocks, as in a plan. */
static void attend(const rate_run *r, const thread_memory *t, rate_ticks *ticks)
{
    ith_attn_call call = {.dtype = r->scene->dtype,
                          .q_rows = r->tiles.block_q,
                          .keys = r->block,
                          .head_dim = r->scene->head_dim,
                          .tiles = r->tiles,
                          .q = t->q_rows,
                          .scale = 1 / sqrtf((float)r->scene->head_dim),
                          .softmax = r->softmax,
                          .o_sum = t->o_sum,
                          .m = t->m,
                          .l = t->l,
                          .o = t->o_rows,
                          .scratch = t->scratch,
                          .halted = tick,
                          .halt = ticks};
    for (int64_t i = 0; i < r->calls && !tick(ticks); i++) {
        call.first = i == 0, call.last = i == r->calls - 1;
        call.packed = t->packed + i * r->block_bytes;
        r->kernel->attend(&call);
    }
}

/* Packs one block of each head. Heads lie in memory as far apart as a model's, and packed blocks follow one another, so
 * that neither the rows nor the packed blocks are in a near cache. */
static void pack_all(const rate_run *r, const thread_memory *t, rate_ticks *ticks)
{
    for (int64_t head = 0; head < r->scene->heads; head++)
        pack_block(r, head, 0, ith_min64(r->block, r->scene->rows), t->packed + head % r->calls * r->block_bytes,
                   ticks);
}

/* The statistics and the offsets of fixed_m. k is read twice, v once, and q twice; q has the numbers of k here. */
static void find_offsets(const rate_run *r, const thread_memory *t, rate_ticks *ticks)
{
    const ith_rate_scene *s = r->scene;
    const ith_keyops *ops = ith_keyops_choose(ith_context_cpu(s->context));
    const int64_t D = s->head_dim, pieces = s->rows / ITH_KEYOPS_PIECE;
    float dot[ITH_KEYOPS_PIECE], square[ITH_KEYOPS_PIECE];
    for (int64_t turn = 0; turn < 4; turn++)
        for (int64_t n = 0; n < s->heads * pieces && !tick(ticks); n++) {
            const int64_t row = n / pieces * s->rows + n % pieces * ITH_KEYOPS_PIECE;
            if (turn == 0) {
                ops->most_magnitude(s->v_rows + row, ITH_KEYOPS_PIECE, s->dtype, D);
                ops->add_rows(t->sum, s->k_rows + row, ITH_KEYOPS_PIECE, s->dtype, D);
            } else if (turn == 1) {
                ops->most_distance(t->o_sum, s->k_rows + row, ITH_KEYOPS_PIECE, s->dtype, D);
            } else {
                ops->dots(dot, square, turn == 2 ? NULL : t->o_sum, s->k_rows + row, ITH_KEYOPS_PIECE, s->dtype, D);
            }
        }
}

typedef void (*work_fn)(const rate_run *run, const thread_memory *memory, rate_ticks *ticks);

/* The times of one repeat of some work, in seconds (quiet.h). */
typedef struct rate_times {
    double quiet, typical;
} rate_times;

/* Work that all threads repeat until the first one has measured it. */
typedef struct rate_work {
    const rate_run *run;
    work_fn work;
    double until; /* when the measurement is to end, on ith_clock_seconds */
    rate_end end;
    rate_times times; /* the result */
} rate_work;

/* Fills the memory of a thread. Queries are rows of the last head; keys and values are rows of the head whose number is
 * the thread's (modulo the number of heads). */
static void open_memory(const rate_run *r, int thread, rate_ticks *ticks, thread_memory *t)
{
    const ith_rate_scene *s = r->scene;
    int64_t bytes;
    split_memory(r, s->run_memory + thread * r->thread_bytes, &bytes, t);
    for (int64_t i = 0; i < r->tiles.block_q; i++) {
        t->q_rows[i] = s->k_rows[(s->heads - 1) * s->rows + i % s->rows];
        t->o_rows[i] = t->o + i * s->head_dim * ith_dtype_bytes(s->dtype);
        t->m[i] = 0; /* logits are small here, so any small offset of fixed_m will do */
    }
    memset(t->o_sum, 0, (size_t)(r->tiles.block_q * s->head_dim) * sizeof *t->o_sum);
    memset(t->sum, 0, (size_t)s->head_dim * sizeof *t->sum);
    for (int64_t i = 0; i < r->calls; i++)
        pack_block(r, thread % s->heads, i * r->block, r->block, t->packed + i * r->block_bytes, ticks);
}

/* The first thread measures repeats until the time is over. The other threads repeat the work until the first one ends;
 * they watch the time too, because a pool may run them before it. */
static void work_in_thread(void *user, int thread)
{
    rate_work *w = user;
    const ith_rate_scene *s = w->run->scene;
    ith_quiet *quiet = s->quiet;
    thread_memory memory;
    rate_ticks ticks = {.end = &w->end};
    if (tick(&ticks)) /* before the thread touches its memory, whose pages the system clears then */
        return;
    open_memory(w->run, thread, &ticks, &memory);
    w->work(w->run, &memory, &ticks); /* warms up */
    if (thread) {
        while (!atomic_load(&w->end.done) && ith_clock_seconds() < w->until)
            w->work(w->run, &memory, &ticks);
        return;
    }
    ith_quiet_reset(quiet);
    ticks.quiet = quiet;
    for (int n = 0;
         n < MOST_REPEATS && (n < LEAST_REPEATS || ith_clock_seconds() < w->until) && !atomic_load(&w->end.done); n++) {
        ith_quiet_begin(quiet);
        w->work(w->run, &memory, &ticks);
        ith_quiet_end(quiet);
    }
    w->times = (rate_times){fmax(ith_quiet_seconds(quiet), 1e-9), fmax(ith_quiet_typical(quiet), 1e-9)};
    atomic_store(&w->end.done, true);
}

static void work_in_threads(void *user, int thread)
{
    rate_work *w = user;
    (void)thread;
    ith_parallel(w->run->scene->context, (int)w->run->scene->threads, work_in_thread, w);
}

/* Measures some work on calls of `block` keys for about `seconds`. */
static ith_status measure(ith_rate_scene *s, const ith_rate_request *request, int64_t block, int64_t calls,
                          work_fn work, double seconds, rate_times *times)
{
    rate_run run;
    ith_status status = prepare(s, request, block, calls, &run);
    if (status)
        return status;
    rate_work w = {.run = &run,
                   .work = work,
                   .until = ith_clock_seconds() + seconds,
                   .end = {.scene = s, .asking = ATOMIC_FLAG_INIT}};
    ith_parallel_apart(work_in_threads, &w);
    *times = w.times;
    return atomic_load(&w.end.stopped) ? ith_fail_interrupted(s->context) : ITH_OK;
}

/* ---- Rates ----------------------------------------------------------------------------------------------------- */

/* The operations of `calls` calls on KV blocks of `block` keys. */
static double operations(const ith_rate_scene *s, const ith_rate_request *request, int64_t block, int64_t calls)
{
    return 4.0 * (double)request->tiles.block_q * (double)s->head_dim * (double)block * (double)calls;
}

ith_status ith_rate_measure_whole(ith_rate_scene *s, const ith_rate_request *request, double *gflops)
{
    const int64_t block = ith_min64(request->tiles.block_kv, request->keys), calls = ith_div_up(request->keys, block);
    rate_times times;
    ith_status status = measure(s, request, block, calls, attend, request->seconds, &times);
    if (!status)
        *gflops = 1e-9 * operations(s, request, block, calls) / times.quiet;
    return status;
}

/* Finds the time of a call on a short KV block, from `keys` keys in all, and estimates from it how many keys the rest
 * of the measurement can afford. */
static ith_status measure_short(ith_rate_scene *s, const ith_rate_request *request, int64_t block, int64_t keys,
                                double *call, int64_t *affordable)
{
    const int64_t calls = ith_max64(keys / block, 1);
    rate_times times;
    ith_status status = measure(s, request, block, calls, attend, request->seconds / 4, &times);
    if (status)
        return status;
    *call = times.typical / (double)calls;
    *affordable = (int64_t)(request->seconds / 2 / (LEAST_REPEATS + 2) * (double)(block * calls) / times.typical);
    return ITH_OK;
}

/* Measures calls on short KV blocks and on long ones. */
static ith_status measure_calls(ith_rate_scene *s, const ith_rate_request *request, ith_rate *rate)
{
    const int64_t step = request->tiles.block_kv_compute;
    int64_t whole = ith_max64(ith_min64(request->tiles.block_kv, MOST_BLOCK_KEYS) / step * step, step), affordable = 0;
    const int64_t part = ith_max64(whole / SHORT / step * step, step);
    double short_call = 0;
    rate_times times;
    ith_status status = measure_short(s, request, part, ith_min64(request->keys, 2 * part), &short_call, &affordable);
    whole = ith_max64(ith_min64(whole, affordable / step * step), part);
    const int64_t calls = ith_max64(ith_min64(request->keys, affordable) / whole, 1);
    if (!status)
        status = measure(s, request, whole, calls, attend, request->seconds / 2, &times);
    if (status)
        return status;
    const double call = times.typical / (double)calls, ratio = (double)whole / (double)part;
    rate->whole_gflops = 1e-9 * operations(s, request, whole, calls) / times.typical;
    if (whole > part)
        rate->call_seconds = fmin(fmax((short_call * ratio - call) / (ratio - 1), 0), fmin(short_call, call) / 2);
    rate->gflops = 1e-9 * operations(s, request, whole, 1) / (call - rate->call_seconds);
    return ITH_OK;
}

/* Short calls, packing and offsets are measured for a quarter of the time, long calls for half of it. */
ith_status ith_rate_measure(ith_rate_scene *s, const ith_rate_request *request, ith_rate *rate)
{
    const int64_t keys = ith_min64(MOST_BLOCK_KEYS, s->rows);
    const double row_bytes = (double)(s->heads * s->head_dim * ith_dtype_bytes(s->dtype));
    const bool fixed = request->softmax == ITH_SOFTMAX_FIXED_M;
    rate_times times;
    *rate = (ith_rate){0};
    ith_status status = measure_calls(s, request, rate);
    if (!status)
        status = measure(s, request, keys, PACKED_BLOCKS, pack_all, request->seconds / (fixed ? 8 : 4), &times);
    if (!status)
        rate->pack_bytes_per_second = 2 * (double)keys * row_bytes / times.typical;
    if (!status && fixed)
        status = measure(s, request, keys, 1, find_offsets, request->seconds / 8, &times);
    if (!status && fixed)
        rate->offset_bytes_per_second = 3 * (double)s->rows * row_bytes / times.typical;
    return status;
}
