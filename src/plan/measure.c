/* SPDX-License-Identifier: Apache-2.0 */
/* One head, ROWS queries of pseudo-random numbers over KEYS keys; fewer of both for very large heads. The rate is that
 * of 4 * queries * keys * head_dim operations in the fastest of a few passes over packed keys. */
#include "measure.h"

#include "../base/arena.h"
#include "../base/dtype.h"
#include "tiles.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum {
    ROWS = 384,
    KEYS = 512,
    WHOLE_HEAD_DIM = 256, /* up to this, all of them */
    FEWEST_ROWS = 16,
    FEWEST_KEYS = 64,
    TURNS = 4,    /* after a first one that does not count: some kernels are made when they are first run */
    HOPELESS = 4, /* times slower than the fastest so far: no more turns */
    HOPELESS_AT_FIRST = 8
};

typedef struct bench {
    ith_attn_setting setting; /* of the problem that is timed: tiles and kernel are those of the candidate's turn */
    char *q, *k, *v, *o;
    const void **q_rows, **k_rows, **v_rows;
    void **o_rows;
    float *m, *values;
    char *packed, *scratch;
} bench;

/* Time that this thread was given, so that others on the machine count less. */
static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ith_status take_turn(bench *b, const ith_attn_kernel *kernel)
{
    b->setting.kernel = kernel;
    const ith_attn_tiles best = {0};
    return ith_tiles_resolve(&best, &b->setting);
}

static int64_t rows_of_turn(const bench *b)
{
    return ith_min64(b->setting.problem.q_len, b->setting.tiles.block_q);
}

static int64_t keys_of_turn(const bench *b)
{
    return ith_min64(b->setting.problem.kv_len, b->setting.tiles.block_kv);
}

static void lay_out(ith_arena *arena, bench *b, int64_t packed_bytes, int64_t scratch_bytes)
{
    const ith_attn_problem *p = &b->setting.problem;
    int64_t size = b->setting.element_bytes * p->head_dim;
    b->q = ith_arena_take(arena, p->q_len, size);
    b->o = ith_arena_take(arena, p->q_len, size);
    b->k = ith_arena_take(arena, p->kv_len, size);
    b->v = ith_arena_take(arena, p->kv_len, size);
    b->q_rows = ith_arena_take(arena, p->q_len, sizeof *b->q_rows);
    b->o_rows = ith_arena_take(arena, p->q_len, sizeof *b->o_rows);
    b->k_rows = ith_arena_take(arena, p->kv_len, sizeof *b->k_rows);
    b->v_rows = ith_arena_take(arena, p->kv_len, sizeof *b->v_rows);
    b->m = ith_arena_take(arena, p->q_len, sizeof *b->m);
    b->values = ith_arena_take(arena, p->head_dim, sizeof *b->values);
    b->packed = ith_arena_take(arena, packed_bytes, 1);
    b->scratch = ith_arena_take(arena, scratch_bytes, 1);
}

/* Rows of numbers from -1 to 1, and pointers to them. */
static void fill(const bench *b, char *data, const void **rows, int64_t count, uint32_t seed)
{
    int64_t D = b->setting.problem.head_dim;
    for (int64_t i = 0; i < count; i++) {
        char *row = data + i * D * b->setting.element_bytes;
        for (int64_t d = 0; d < D; d++) {
            seed = seed * 1664525u + 1013904223u;
            b->values[d] = (float)(seed >> 8) * 0x1p-23f - 1;
        }
        ith_from_f32(row, b->setting.problem.dtype, b->values, D);
        rows[i] = row;
    }
}

static void init(bench *b)
{
    const ith_attn_problem *p = &b->setting.problem;
    fill(b, b->q, b->q_rows, p->q_len, 1);
    fill(b, b->k, b->k_rows, p->kv_len, 2);
    fill(b, b->v, b->v_rows, p->kv_len, 3);
    for (int64_t i = 0; i < p->q_len; i++)
        b->o_rows[i] = b->o + i * p->head_dim * b->setting.element_bytes;
    memset(b->m, 0, (size_t)p->q_len * sizeof *b->m); /* as good as any offset for logits as small as these */
}

/* Seconds of one pass of all queries, with the keys packed for it. */
static double time_pass(const bench *b)
{
    const ith_attn_problem *p = &b->setting.problem;
    const ith_attn_kernel *kernel = b->setting.kernel;
    int64_t rows = rows_of_turn(b), keys = keys_of_turn(b);
    ith_attn_pack pack = {
        .dtype = p->dtype, .head_dim = p->head_dim, .keys = keys, .k = b->k_rows, .v = b->v_rows, .packed = b->packed};
    kernel->pack(&pack);
    ith_attn_call call = {.dtype = p->dtype,
                          .keys = keys,
                          .head_dim = p->head_dim,
                          .tiles = b->setting.tiles,
                          .packed = b->packed,
                          .scale = p->scale,
                          .softmax = b->setting.softmax,
                          .first = true,
                          .last = true,
                          .scratch = b->scratch};
    double start = thread_seconds();
    for (int64_t i = 0; i < p->q_len; i += rows) {
        call.q_rows = ith_min64(rows, p->q_len - i);
        call.q = b->q_rows + i;
        call.o = b->o_rows + i;
        call.m = b->setting.softmax == ITH_SOFTMAX_FIXED_M ? b->m + i : NULL;
        kernel->attend(&call);
    }
    return thread_seconds() - start;
}

/* The most that a candidate needs. */
static ith_status find_sizes(bench *b, const bool *candidates, int64_t *packed_bytes, int64_t *scratch_bytes)
{
    const ith_attn_kernel *kernel;
    *packed_bytes = *scratch_bytes = 0;
    for (int i = 0; i < ITH_WISDOM_KERNELS && (kernel = ith_attn_kernel_at(i)); i++) {
        if (!candidates[i])
            continue;
        ith_status status = take_turn(b, kernel);
        if (status)
            return status;
        int64_t packed = kernel->packed_bytes(keys_of_turn(b), b->setting.problem.head_dim);
        int64_t scratch = kernel->scratch_bytes(b->setting.problem.head_dim, &b->setting.tiles);
        if (packed < 0 || scratch < 0)
            return ith_fail(b->setting.context, ITH_ERR_MEMORY, "timing kernel %s takes more than a size can hold",
                            kernel->name);
        *packed_bytes = ith_max64(*packed_bytes, packed);
        *scratch_bytes = ith_max64(*scratch_bytes, scratch);
    }
    return ITH_OK;
}

/* 10^6 operations a second in one pass. */
static int32_t rate_of_pass(const bench *b)
{
    const ith_attn_problem *p = &b->setting.problem;
    double operations = 4.0 * (double)p->q_len * (double)keys_of_turn(b) * (double)p->head_dim;
    double rate = 1e-6 * operations / fmax(time_pass(b), 1e-9);
    return (int32_t)fmin(fmax(rate, 1), ITH_WISDOM_MOST_RATE);
}

static ith_status take_turns(bench *b, const bool *candidates, ith_wisdom_entry *entry)
{
    int32_t most = 0;
    const ith_attn_kernel *kernel;
    for (int turn = 0; turn <= TURNS; turn++)
        for (int i = 0; i < ITH_WISDOM_KERNELS && (kernel = ith_attn_kernel_at(i)); i++) {
            int32_t *rate = &entry->rates[i];
            if (!candidates[i] || (turn && *rate < most / (turn == 1 ? HOPELESS_AT_FIRST : HOPELESS)))
                continue;
            ith_status status = take_turn(b, kernel);
            if (status)
                return status;
            int32_t now = rate_of_pass(b);
            *rate = turn > 1 && *rate > now ? *rate : now;
            most = most > now ? most : now;
        }
    return ITH_OK;
}

ith_status ith_measure_kernels(ith_context *context, const bool candidates[ITH_WISDOM_KERNELS], ith_wisdom_entry *entry)
{
    int64_t D = entry->head_dim, large = ith_max64(D, WHOLE_HEAD_DIM), packed_bytes, scratch_bytes;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = 1;
    problem.head_dim = D;
    problem.dtype = entry->dtype;
    problem.q_len = ith_max64(ROWS * WHOLE_HEAD_DIM / large, FEWEST_ROWS);
    problem.kv_len = ith_max64(KEYS * WHOLE_HEAD_DIM / large, FEWEST_KEYS);
    bench b = {0};
    ith_status status = ith_attn_setting_init(context, &problem, 1, 0, &b.setting);
    b.setting.softmax = entry->softmax;
    if (!status)
        status = find_sizes(&b, candidates, &packed_bytes, &scratch_bytes);
    if (status)
        return status;
    ith_arena arena = {0};
    lay_out(&arena, &b, packed_bytes, scratch_bytes);
    if (arena.overflow)
        return ith_fail(context, ITH_ERR_MEMORY, "timing kernels takes more memory than a size can hold");
    arena.base = ith_alloc(context, arena.used_bytes, 1, "timing kernels");
    if (!arena.base)
        return ITH_ERR_MEMORY;
    memset(arena.base, 0, (size_t)arena.used_bytes); /* so that no pass meets memory that was never touched */
    char *memory = arena.base;
    arena.used_bytes = 0;
    lay_out(&arena, &b, packed_bytes, scratch_bytes);
    init(&b);
    status = take_turns(&b, candidates, entry);
    ith_free(context, memory);
    return status;
}
