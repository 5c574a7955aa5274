/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of a kernel: 4 q_len kv_len head_dim operations divided by the time of the fastest repetition.
 * Packing is not timed. */
#include "measure.h"

#include "../base/arena.h"
#include "../base/clock.h"
#include "../base/random_numbers.h"

#include <math.h>
#include <string.h>

/* The sizes of a trial, and how often kernels are timed on it. */
enum {
    ROWS = 384,           /* number of queries on which a kernel is timed */
    KEYS = 512,           /* number of keys on which a kernel is timed */
    WHOLE_HEAD_DIM = 256, /* if head_dim is larger than this, there are fewer queries and keys than ROWS and KEYS */
    FEWEST_ROWS = 16,     /* the fewest queries on which a kernel is timed */
    FEWEST_KEYS = 64,     /* the fewest keys on which a kernel is timed */
    /* how often each kernel is timed, after a first turn that only touches its memory and code and does not count */
    TURNS = 4,
    HOPELESS = 4, /* a kernel that is this many times slower than the fastest so far gets no more turns */
    /* the same number for the first turn that counts: only the rates of the warm-up turn are known then */
    HOPELESS_AT_FIRST = 8
};

/* ---- A trial --------------------------------------------------------------------------------------------------- */

/* Lays out the arrays of a trial, on which kernels are timed. Each query has its own row of o_sum, m and l, so that any
 * block_q fits. */
static void lay_out(ith_arena *arena, ith_trial *t)
{
    int64_t row_bytes = t->head_dim * ith_dtype_bytes(t->dtype);
    t->q = ith_arena_take(arena, t->q_len, row_bytes);
    t->o = ith_arena_take(arena, t->q_len, row_bytes);
    t->k = ith_arena_take(arena, t->kv_len, row_bytes);
    t->v = ith_arena_take(arena, t->kv_len, row_bytes);
    t->q_rows = ith_arena_take(arena, t->q_len, sizeof *t->q_rows);
    t->o_rows = ith_arena_take(arena, t->q_len, sizeof *t->o_rows);
    t->k_rows = ith_arena_take(arena, t->kv_len, sizeof *t->k_rows);
    t->v_rows = ith_arena_take(arena, t->kv_len, sizeof *t->v_rows);
    t->m = ith_arena_take(arena, t->q_len, sizeof *t->m);
    t->l = ith_arena_take(arena, t->q_len, sizeof *t->l);
    t->o_sum = ith_arena_take(arena, t->q_len, t->head_dim * (int64_t)sizeof *t->o_sum);
    t->packed = ith_arena_take(arena, t->packed_bytes, 1);
    t->scratch = ith_arena_take(arena, t->scratch_bytes, 1);
}

/* Fills `count` rows with random numbers, and lists pointers to the rows. */
static void fill(const ith_trial *t, char *data, const void **rows, int64_t count, uint32_t *seed)
{
    int64_t bytes = ith_dtype_bytes(t->dtype);
    ith_random_numbers(t->dtype, data, count * t->head_dim, seed);
    for (int64_t i = 0; i < count; i++)
        rows[i] = data + i * t->head_dim * bytes;
}

/* The memory is filled with zeros, and so touched, before kernels are timed: the times have no page faults. */
ith_status ith_trial_create(ith_context *context, uint32_t seed, ith_trial *t)
{
    ith_arena arena = {0};
    lay_out(&arena, t);
    ith_status status = ith_arena_allocate_zero(context, &arena, "timing kernels");
    if (status)
        return status;
    lay_out(&arena, t);
    t->memory = arena.base;
    fill(t, t->q, t->q_rows, t->q_len, &seed);
    fill(t, t->k, t->k_rows, t->kv_len, &seed);
    fill(t, t->v, t->v_rows, t->kv_len, &seed);
    for (int64_t i = 0; i < t->q_len; i++)
        t->o_rows[i] = t->o + i * t->head_dim * ith_dtype_bytes(t->dtype);
    return ITH_OK;
}

void ith_trial_free(ith_context *context, ith_trial *t)
{
    ith_free(context, t->memory);
    t->memory = NULL;
}

/* The address of the packed KV block that begins at key j. KV blocks lie one after another. */
static char *packed_at(const ith_trial *t, int64_t j)
{
    return t->packed + t->kernel->packed_bytes(j, t->head_dim);
}

void ith_trial_pack(const ith_trial *t)
{
    for (int64_t j = 0; j < t->kv_len; j += t->tiles.block_kv)
        t->kernel->pack(&(ith_attn_pack){.dtype = t->dtype,
                                         .head_dim = t->head_dim,
                                         .keys = ith_min64(t->tiles.block_kv, t->kv_len - j),
                                         .k = t->k_rows + j,
                                         .v = t->v_rows + j,
                                         .packed = packed_at(t, j)});
}

/* Calls the kernel once for each block of queries and each KV block, as the executor does. */
void ith_trial_attend(const ith_trial *t)
{
    ith_attn_call call = {.dtype = t->dtype,
                          .head_dim = t->head_dim,
                          .tiles = t->tiles,
                          .scale = 1 / sqrtf((float)t->head_dim),
                          .softmax = t->softmax,
                          .scratch = t->scratch};
    if (t->softmax == ITH_SOFTMAX_FIXED_M)
        /* logits are small here, so any small offset will do */
        memset(t->m, 0, (size_t)t->q_len * sizeof *t->m);
    for (int64_t i = 0; i < t->q_len; i += t->tiles.block_q) {
        call.q_rows = ith_min64(t->tiles.block_q, t->q_len - i);
        call.q = t->q_rows + i;
        call.o = t->o_rows + i;
        call.m = t->m + i, call.l = t->l + i, call.o_sum = t->o_sum + i * t->head_dim;
        for (int64_t j = 0; j < t->kv_len; j += t->tiles.block_kv) {
            call.keys = ith_min64(t->tiles.block_kv, t->kv_len - j);
            call.packed = packed_at(t, j);
            call.first = j == 0, call.last = j + call.keys == t->kv_len;
            t->kernel->attend(&call);
        }
    }
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

/* Prepares the trial for timing a kernel, with the kernel's best tiles. block_q is at most the number of queries in the
 * trial: a longer block would only take memory. */
static void take_turn(ith_trial *t, const ith_attn_kernel *kernel)
{
    ith_attn_tile_limits limits = kernel->tiles(t->head_dim);
    t->kernel = kernel;
    t->tiles = limits.best;
    t->tiles.block_q = ith_min64(limits.best.block_q, ith_round_up(t->q_len, limits.step.block_q));
}

/* Sets packed_bytes and scratch_bytes to the most that any candidate needs. */
static ith_status find_sizes(ith_context *context, ith_trial *t, const ith_candidates *candidates)
{
    for (int i = 0; i < candidates->count; i++) {
        take_turn(t, candidates->kernels[i]);
        int64_t packed = t->kernel->packed_bytes(t->kv_len, t->head_dim);
        int64_t scratch = t->kernel->scratch_bytes(t->head_dim, &t->tiles);
        if (packed < 0 || scratch < 0)
            return ith_fail(context, ITH_ERR_MEMORY, "timing kernel %s takes more than a size can hold",
                            t->kernel->name);
        t->packed_bytes = ith_max64(t->packed_bytes, packed);
        t->scratch_bytes = ith_max64(t->scratch_bytes, scratch);
    }
    return ITH_OK;
}

/* A trial and the kernels that are timed on it. */
typedef struct contest {
    ith_trial trial;
    const ith_candidates *candidates;
} contest;

/* Runs a kernel once on all queries and keys of the trial (ith_measure_once). */
static ith_status measure_once(void *user, int index, double *rate)
{
    ith_trial *t = &((contest *)user)->trial;
    double operations = 4.0 * (double)t->q_len * (double)t->kv_len * (double)t->head_dim;
    take_turn(t, ((contest *)user)->candidates->kernels[index]);
    ith_trial_pack(t);
    double start = ith_clock_thread_seconds();
    ith_trial_attend(t);
    *rate = 1e-6 * operations / fmax(ith_clock_thread_seconds() - start, 1e-9);
    return ITH_OK;
}

/* The first turn warms up, the second sets the rates, and later turns keep the best rate, because other work of the
 * machine disturbs the fastest turn least. */
ith_status ith_measure_in_turns(ith_measure_once *once, void *user, ith_wisdom_entry *entry)
{
    int32_t most = 0;
    for (int turn = 0; turn <= TURNS; turn++)
        for (int i = 0; i < entry->count; i++) {
            int32_t *best = &entry->figures[i].value;
            double rate = 0;
            if (turn && *best < most / (turn == 1 ? HOPELESS_AT_FIRST : HOPELESS))
                continue;
            ith_status status = once(user, i, &rate);
            if (status)
                return status;
            const int32_t now = ith_wisdom_number(rate);
            *best = turn > 1 && *best > now ? *best : now;
            most = most > now ? most : now;
        }
    return ITH_OK;
}

ith_status ith_measure_kernels(ith_context *context, ith_dtype dtype, int64_t head_dim, ith_softmax softmax,
                               const ith_candidates *candidates, ith_wisdom_entry *entry)
{
    int64_t large = ith_max64(head_dim, WHOLE_HEAD_DIM);
    contest c = {{.dtype = dtype, .head_dim = head_dim, .softmax = softmax}, candidates};
    c.trial.q_len = ith_max64(ROWS * WHOLE_HEAD_DIM / large, FEWEST_ROWS);
    c.trial.kv_len = ith_max64(KEYS * WHOLE_HEAD_DIM / large, FEWEST_KEYS);
    ith_status status = find_sizes(context, &c.trial, candidates);
    if (!status)
        status = ith_trial_create(context, 1, &c.trial);
    if (status)
        return status;
    for (int i = 0; i < candidates->count; i++)
        ith_wisdom_add(entry, candidates->kernels[i]->name, 1);
    status = ith_measure_in_turns(measure_once, &c, entry);
    ith_trial_free(context, &c.trial);
    return status;
}
