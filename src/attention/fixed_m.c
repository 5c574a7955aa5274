/* SPDX-License-Identifier: Apache-2.0 */
/* Key statistics, gate and row offsets of the fixed-m softmax (fixed_m.h). The gate decides which heads may use it.
 *
 * Each rank r measures its shard of n_r keys, in pieces of PIECE rows:
 *     the mean key k'_r,   max |k_j - k'_r|,   max |v_jd|,   max |q_i|
 * An all-gather over the ring brings these statistics to every rank, which computes
 *     k' = sum_r n_r k'_r / sum_r n_r,
 *     max_r (max_j |k_j - k'_r| + |k'_r - k'|) >= max_j |k_j - k'|
 *
 * Norms are rounded up. k' need not be the exact mean of the keys: the offset is a valid bound with any vector k', and
 * the gate allows for the rounding errors of the mean. If a number is not finite, the bound is not finite either, and
 * the head does not pass the gate. */
#include "fixed_m.h"

#include "../base/parallel.h"
#include "../kernels/device.h"
#include "../kernels/keyops.h"

#include <math.h>
#include <string.h>

enum { PIECE = ITH_KEYOPS_PIECE }; /* rows that are summed together */
#define TASKS_PER_THREAD 8         /* a parallel loop handles about this many pieces (of PIECE rows) for each thread */
/* the fewest kv heads that are measured together, unless there are fewer: rows of neighbouring heads share pages of
 * memory */
#define TOGETHER 16
#define OFFSET_ROWS 64        /* the most queries whose offsets m_i are computed at a time */
#define LARGEST_LOGIT 88      /* a base-2 logit exceeds the offset of its row by at most this */
#define SMALLEST_EXPONENT 126 /* the smallest normal f32 is 2^-126 */
#define OFFSET_ERROR 0x1p-15  /* bound of the error of an offset m_i in f32, in heads that may use fixed_m */

/* Statistics of the keys and values in one piece (PIECE rows) of a shard. Sums of keys are kept in ith_fixed_m.sums. */
typedef struct ith_key_piece {
    int64_t count;   /* number of keys that are not masked */
    float magnitude; /* the largest |v_jd|, an element of V */
    float distance;  /* the largest |k_j - k'_r|^2, where k'_r is the mean key of this rank's shard */
    bool plain_bias; /* every key_bias is 0 or -inf */
} key_piece;

/* Statistics of a kv head, in the message of numbers that each rank sends to the others. The message holds for each kv
 * head its mean key [head_dim] followed by these statistics; then, for each query head, the largest |q_i|. */
enum { STAT_COUNT, STAT_DISTANCE, STAT_MAGNITUDE, STATS };

/* The larger of a and b; NaN if either is NaN. */
static float worse(float a, float b)
{
    return a >= b || isnan(a) ? a : b;
}

/* Rounds x up: returns an f32 that is at least x. */
static float round_up(double x)
{
    return (float)(x + fabs(x) * 0x1p-23);
}

/* Twice the bound that keyops.h states for the relative error of a sum over head_dim elements. */
static double sum_error(int64_t head_dim)
{
    return (double)(head_dim / ITH_KEYOPS_LANES + 8) * 0x1p-23;
}

/* An upper bound of the norm |x|. square: |x|^2 as ith_keyops computes it, with rounding errors. */
static double norm_of(double square, int64_t head_dim)
{
    return sqrt((square + (double)head_dim * 0x1p-125) * (1 + sum_error(head_dim)));
}

static int64_t message_floats(const ith_fixed_m *f, int64_t kv_heads, int64_t heads)
{
    return kv_heads * (f->setting->problem.head_dim + STATS) + heads;
}

static float *mean_in(const ith_fixed_m *f, float *message, int64_t kv_head)
{
    return message + kv_head * (f->setting->problem.head_dim + STATS);
}

static float *stats_in(const ith_fixed_m *f, float *message, int64_t kv_head)
{
    return mean_in(f, message, kv_head) + f->setting->problem.head_dim;
}

static float *query_norms_in(const ith_fixed_m *f, float *message)
{
    return mean_in(f, message, f->heads.kv_heads);
}

void ith_fixed_m_lay_out(const ith_attn_setting *setting, const ith_fixed_m_shape *shape, ith_arena *arena,
                         ith_fixed_m *out)
{
    const ith_attn_problem *p = &setting->problem;
    ith_fixed_m f = {.setting = setting, .ops = ith_keyops_choose(ith_context_cpu(setting->context))};
    f.ranks = p->replicated_kv ? setting->ring * setting->ulysses : setting->ring;
    f.c = (double)p->scale * M_LOG2E;
    f.pieces = ith_div_up(shape->kv_rows, PIECE);
    f.q_pieces = ith_div_up(shape->q_rows, PIECE);
    int64_t wanted = ith_div_up((int64_t)setting->threads * TASKS_PER_THREAD, ith_max64(f.pieces, 1));
    f.together = ith_max64(ith_min64(ith_max64(wanted, TOGETHER), shape->kv_heads), 1);
    int64_t message_bytes = message_floats(&f, shape->kv_heads, shape->heads) * (int64_t)sizeof(float);
    if (!setting->device) { /* a device measures in memory of its own */
        f.sums = ith_arena_take(arena, f.together * f.pieces, p->head_dim * (int64_t)sizeof *f.sums);
        f.keys = ith_arena_take(arena, shape->kv_heads * f.pieces, sizeof *f.keys);
        f.queries = ith_arena_take(arena, shape->heads * f.q_pieces, sizeof *f.queries);
        f.rows = ith_arena_take(arena, setting->threads, 2 * PIECE * (int64_t)sizeof *f.rows);
    }
    f.own = ith_arena_take(arena, 1, message_bytes);
    f.all = f.ranks > 1 ? ith_arena_take(arena, f.ranks, message_bytes) : f.own;
    f.means = ith_arena_take(arena, shape->kv_heads, p->head_dim * (int64_t)sizeof *f.means);
    f.bounds = ith_arena_take(arena, shape->kv_heads, sizeof *f.bounds);
    f.applies = ith_arena_take(arena, shape->heads, sizeof *f.applies);
    *out = f;
}

/* ---- This rank's shard: on all threads ------------------------------------------------------------------------- */

/* The arguments of ith_fixed_m_prepare, and the progress of its loop over kv heads (`measure`). */
typedef struct measurement {
    ith_fixed_m *f;
    const ith_queries *queries;
    const ith_shard *own;
    const ith_attn_tensors *tensors;
    int64_t first, here; /* `measure` is summing the keys of kv heads [first, first + here) */
    /* `measure` is finding distances from the mean key in kv heads [first - before, first) */
    int64_t before;
} measurement;

/* Fills k and v with pointers to the keys and values in piece number `piece` (PIECE rows) of a kv head, sets *bias to
 * their key_bias or NULL, and returns their number. */
static int64_t key_piece_rows(const measurement *t, int64_t kv_head, int64_t piece, const void **k, const void **v,
                              const float **bias)
{
    int64_t head = t->f->heads.kv_first + kv_head, row = piece * PIECE;
    int64_t all = ith_shard_keys(t->f->setting, t->own, t->tensors, head);
    int64_t rows = ith_max64(ith_min64(all - row, PIECE), 0);
    *bias = rows > 0 ? ith_key_rows(t->f->setting, t->own, t->tensors, head, row, rows, k, v) : NULL;
    return rows;
}

/* Whether every key_bias of these keys is 0 or -inf: nothing else is added to their logits. */
static bool bias_is_plain(const float *bias, int64_t rows)
{
    bool plain = true;
    for (int64_t i = 0; bias && i < rows; i++)
        plain &= bias[i] == 0.0f || bias[i] == -INFINITY;
    return plain;
}

static int64_t count_rows(const void *const *rows, int64_t count)
{
    int64_t present = 0;
    for (int64_t i = 0; i < count; i++)
        present += rows[i] != NULL;
    return present;
}

/* Sums the keys in a piece (PIECE rows) of a kv head and finds the statistics that do not need the mean key: the number
 * of keys, the largest |v_jd|, and the kind of key_bias. k: memory of this thread for pointers to 2 PIECE rows. */
static void sum_piece(const measurement *t, int64_t kv_head, int64_t slot, int64_t piece, const void **k)
{
    const ith_fixed_m *f = t->f;
    const ith_attn_problem *p = &f->setting->problem;
    const void **v = k + PIECE;
    const float *bias;
    int64_t rows = key_piece_rows(t, kv_head, piece, k, v, &bias);
    double *sum = f->sums + (slot * f->pieces + piece) * p->head_dim;
    key_piece *out = f->keys + kv_head * f->pieces + piece;
    memset(sum, 0, (size_t)p->head_dim * sizeof *sum);
    out->plain_bias = bias_is_plain(bias, rows);
    out->magnitude = f->ops->most_magnitude(v, rows, p->dtype, p->head_dim);
    out->count = f->setting->smoothed ? f->ops->add_rows(sum, k, rows, p->dtype, p->head_dim) : count_rows(k, rows);
}

/* Writes the mean key of this rank's shard, and the number of keys in it, into the message that this rank sends to the
 * others (f->own). */
static void find_mean(const measurement *t, int64_t kv_head, int64_t slot, int64_t pieces)
{
    const ith_fixed_m *f = t->f;
    int64_t head_dim = f->setting->problem.head_dim, count = 0;
    double *sum = f->sums + slot * f->pieces * head_dim;
    for (int64_t piece = 0; piece < pieces; piece++)
        count += f->keys[kv_head * f->pieces + piece].count;
    for (int64_t piece = 1; piece < pieces; piece++)
        for (int64_t d = 0; d < head_dim; d++)
            sum[d] += sum[piece * head_dim + d];
    for (int64_t d = 0; d < head_dim; d++)
        mean_in(f, f->own, kv_head)[d] = count > 0 ? (float)(sum[d] / (double)count) : 0.0f;
    stats_in(f, f->own, kv_head)[STAT_COUNT] = (float)count;
}

/* Finds the largest |k_j - k'_r|^2 of the keys in a piece (PIECE rows) of a kv head. k'_r is the mean key of this
 * rank's shard, which find_mean must have written to f->own before. */
static void measure_piece(const measurement *t, int64_t kv_head, int64_t piece, const void **k)
{
    const ith_fixed_m *f = t->f;
    const ith_attn_problem *p = &f->setting->problem;
    const float *bias;
    int64_t rows = key_piece_rows(t, kv_head, piece, k, NULL, &bias);
    const float *centre = f->setting->smoothed ? mean_in(f, f->own, kv_head) : NULL;
    f->keys[kv_head * f->pieces + piece].distance = f->ops->most_distance(centre, k, rows, p->dtype, p->head_dim);
}

/* Finds the largest |q_i|^2 of the queries in a piece (PIECE rows) of a query head. */
static void measure_queries(const measurement *t, int64_t head, int64_t piece, const void **q)
{
    const ith_fixed_m *f = t->f;
    const ith_attn_problem *p = &f->setting->problem;
    int64_t row = piece * PIECE, rows = ith_min64(PIECE, t->queries->rows - row);
    ith_query_rows(f->setting, t->queries, f->heads.first + head, row, rows, q, NULL);
    f->queries[head * f->q_pieces + piece] = f->ops->most_distance(NULL, q, rows, p->dtype, p->head_dim);
}

/* Whether the execution is to stop; the remaining measurements are then skipped. */
static bool halted(const ith_fixed_m *f)
{
    return ith_halted(f->setting->halt);
}

/* One thread's share of an iteration of `measure`: distances from the mean key for the heads of the previous iteration,
 * sums of keys for the heads of this one, and in the first iteration norms of queries. A thread handles the same PIECE
 * rows of all heads before the next PIECE rows, because rows of neighbouring heads lie on the same pages of memory. */
static void sum_in_thread(void *user, int thread)
{
    const measurement *t = user;
    const ith_fixed_m *f = t->f;
    const void **rows = f->rows + (int64_t)thread * 2 * PIECE;
    int64_t first, count, pieces = ith_div_up(t->own->rows, PIECE), q_pieces = ith_div_up(t->queries->rows, PIECE);
    ith_share(t->before * pieces, f->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count && !halted(f); task++)
        measure_piece(t, t->first - t->before + task % t->before, task / t->before, rows);
    ith_share(t->here * pieces, f->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count && !halted(f); task++)
        sum_piece(t, t->first + task % t->here, task % t->here, task / t->here, rows);
    ith_share(t->first == 0 ? f->heads.count * q_pieces : 0, f->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count && !halted(f); task++)
        measure_queries(t, task % f->heads.count, task / f->heads.count, rows);
}

static void find_means_in_thread(void *user, int thread)
{
    const measurement *t = user;
    int64_t first, count;
    ith_share(t->here, t->f->setting->threads, thread, &first, &count);
    for (int64_t slot = first; slot < first + count && !halted(t->f); slot++)
        find_mean(t, t->first + slot, slot, ith_div_up(t->own->rows, PIECE));
}

/* Measures the kv heads, a few at a time. In one iteration the threads sum the keys of these heads and compute the mean
 * keys. In the next iteration they compute the distances of the same keys from the means. */
static void measure(measurement *t)
{
    const ith_attn_setting *s = t->f->setting;
    int64_t all = t->f->heads.kv_heads;
    for (t->first = 0; t->first < all + t->before && !halted(t->f); t->first += t->here) {
        t->here = ith_min64(t->f->together, ith_max64(all - t->first, 0));
        ith_parallel(s->context, s->threads, sum_in_thread, t);
        if (t->here == 0)
            return;
        ith_parallel(s->context, s->threads, find_means_in_thread, t);
        t->before = t->here;
    }
}

/* Writes the largest distances, values and query norms into the message that this rank sends to the others (f->own).
 * Means and numbers of keys are in it already. */
static void fill_message(const measurement *t)
{
    const ith_fixed_m *f = t->f;
    int64_t pieces = ith_div_up(t->own->rows, PIECE), q_pieces = ith_div_up(t->queries->rows, PIECE);
    int64_t head_dim = f->setting->problem.head_dim;
    for (int64_t kv_head = 0; kv_head < f->heads.kv_heads; kv_head++) {
        float square = 0, magnitude = 0;
        bool plain_bias = true;
        for (int64_t i = 0; i < pieces; i++) {
            const key_piece *piece = f->keys + kv_head * f->pieces + i;
            square = worse(square, piece->distance);
            magnitude = worse(magnitude, piece->magnitude);
            plain_bias &= piece->plain_bias;
        }
        float *to = stats_in(f, f->own, kv_head);
        to[STAT_DISTANCE] = plain_bias ? round_up(norm_of((double)square, head_dim)) : INFINITY;
        to[STAT_MAGNITUDE] = magnitude;
    }
    for (int64_t head = 0; head < f->heads.count; head++) {
        float square = 0;
        for (int64_t i = 0; i < q_pieces; i++)
            square = worse(square, f->queries[head * f->q_pieces + i]);
        query_norms_in(f, f->own)[head] = round_up(norm_of((double)square, head_dim));
    }
}

/* ---- All shards: the same on every rank ------------------------------------------------------------------------ */

static float *message_of(const ith_fixed_m *f, int rank)
{
    return f->all + rank * message_floats(f, f->heads.kv_heads, f->heads.count);
}

/* The ranks [*first, *end) whose statistics are merged: all ranks of the ring, or only this rank if every rank holds
 * all keys (replicated_kv). */
static void statistics_range(const ith_fixed_m *f, int *first, int *end)
{
    bool replicated = f->setting->problem.replicated_kv;
    *first = replicated ? ith_comm_rank(f->setting->comm) : 0;
    *end = replicated ? *first + 1 : f->ranks;
}

/* Computes k', the mean key over all shards. If only one shard has keys, k' has the bits of that shard's mean. */
static void merge_mean(const ith_fixed_m *f, int64_t kv_head)
{
    int64_t head_dim = f->setting->problem.head_dim;
    int first, end;
    statistics_range(f, &first, &end);
    double count = 0;
    for (int rank = first; rank < end; rank++)
        count += (double)stats_in(f, message_of(f, rank), kv_head)[STAT_COUNT];
    for (int64_t d = 0; d < head_dim; d++) {
        double sum = 0;
        for (int rank = first; rank < end; rank++) {
            float *message = message_of(f, rank);
            sum += (double)stats_in(f, message, kv_head)[STAT_COUNT] * (double)mean_in(f, message, kv_head)[d];
        }
        f->means[kv_head * head_dim + d] = count > 0 ? (float)(sum / count) : 0.0f;
    }
}

/* An upper bound of |x - y|. If y is NULL, it counts as 0. */
static double distance_between(const float *x, const float *y, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++) {
        double distance = (double)x[i] - (y ? (double)y[i] : 0);
        square += distance * distance;
    }
    return sqrt(square) * (1 + 0x1p-30);
}

/* Computes *bound, at least max_j |k_j - k'| over all shards, and *magnitude, the largest |v_jd|. */
static void merge_bounds(const ith_fixed_m *f, int64_t kv_head, double *bound, float *magnitude)
{
    int64_t head_dim = f->setting->problem.head_dim;
    int first, end;
    statistics_range(f, &first, &end);
    *bound = 0, *magnitude = 0;
    for (int rank = first; rank < end; rank++) {
        float *message = message_of(f, rank);
        const float *from = stats_in(f, message, kv_head);
        if (from[STAT_COUNT] == 0)
            continue;
        double between = distance_between(mean_in(f, message, kv_head), f->means + kv_head * head_dim, head_dim);
        double farthest = (double)from[STAT_DISTANCE] + between;
        *bound = *bound >= farthest || isnan(*bound) ? *bound : farthest;
        *magnitude = worse(*magnitude, from[STAT_MAGNITUDE]);
    }
}

static int log2_up(int64_t n)
{
    int power = 0;
    while (((int64_t)1 << power) < n)
        power++;
    return power;
}

/* Whether a head may use fixed_m: both inequalities of fixed_m.h hold. The test uses no logarithms, because C libraries
 * may round them differently. gate: the bound G of fixed_m.h. */
static bool passes(const ith_attn_setting *s, double gate, double magnitude)
{
    int kept_bits = s->problem.dtype == ITH_BF16 ? 12 : 24;
    int most = LARGEST_LOGIT + SMALLEST_EXPONENT - kept_bits - log2_up(s->problem.kv_len);
    if (!(gate <= most))
        return false;
    return ldexp(1.0, (int)gate - most) <= magnitude &&
           (double)s->problem.kv_len * (magnitude > 1 ? magnitude : 1) < ldexp(1.0, 127 - LARGEST_LOGIT);
}

/* Returns |c| q_norm bound, an upper bound of each B_i of fixed_m.h, with a margin for products that underflow. */
static double bound_of(const ith_fixed_m *f, double q_norm, double bound)
{
    return fabs(f->c) * (q_norm * bound + (double)f->setting->problem.head_dim * 0x1p-125);
}

/* Merges the statistics of all ranks and decides for each query head whether it may use fixed_m. All ranks that share
 * these keys come to the same decision. */
static void conclude(const ith_fixed_m *f)
{
    const ith_attn_setting *s = f->setting;
    int64_t head_dim = s->problem.head_dim, per_key = s->problem.heads / s->problem.kv_heads, head = 0;
    double sides = !s->smoothed || s->problem.mask ? 2 : 1;
    for (int64_t kv_head = 0; kv_head < f->heads.kv_heads; kv_head++) {
        double bound;
        float magnitude;
        merge_mean(f, kv_head);
        merge_bounds(f, kv_head, &bound, &magnitude);
        double common = distance_between(f->means + kv_head * head_dim, NULL, head_dim);
        f->bounds[kv_head] = bound + common * sum_error(head_dim);
        for (; head < f->heads.count && (f->heads.first + head) / per_key == f->heads.kv_first + kv_head; head++) {
            float q_norm = 0;
            for (int rank = 0; rank < f->ranks; rank++)
                q_norm = worse(q_norm, query_norms_in(f, message_of(f, rank))[head]);
            double gate = ceil(sides * bound_of(f, (double)q_norm, f->bounds[kv_head]) + OFFSET_ERROR);
            double off = bound_of(f, (double)q_norm, bound + common) * (double)(head_dim + 64) * 0x1p-24;
            f->applies[head] = off <= 0.5 && passes(s, gate, (double)magnitude);
        }
    }
}

static ith_status gather(const ith_fixed_m *f)
{
    const ith_attn_setting *s = f->setting;
    int64_t bytes = message_floats(f, f->heads.kv_heads, f->heads.count) * (int64_t)sizeof(float);
    if (f->ranks == 1)
        return ITH_OK;
    return ith_comm_allgather(s->problem.replicated_kv ? s->comm : s->ring_comm, f->own, bytes, f->all);
}

/* Returns true, and marks all heads, if no head may use fixed_m whatever its numbers are: the mask is additive. */
static bool excludes_all(const ith_fixed_m *f)
{
    if (f->setting->problem.mask != ITH_MASK_ADDITIVE)
        return false;
    for (int64_t head = 0; head < f->heads.count; head++)
        f->applies[head] = false;
    return true;
}

/* Gathers the messages of all ranks and concludes from them. */
static ith_status gather_and_conclude(const ith_fixed_m *f)
{
    ith_status status = gather(f);
    if (!status)
        conclude(f);
    return status;
}

ith_status ith_fixed_m_prepare(ith_fixed_m *fixed, const ith_heads *heads, const ith_queries *queries,
                               const ith_shard *own, const ith_attn_tensors *tensors)
{
    fixed->heads = *heads;
    if (excludes_all(fixed))
        return ITH_OK;
    measurement t = {fixed, queries, own, tensors, 0, 0, 0};
    measure(&t);
    if (!halted(fixed))
        fill_message(&t);
    else /* some statistics are missing, and the result is void */
        memset(fixed->own, 0, (size_t)message_floats(fixed, heads->kv_heads, heads->count) * sizeof *fixed->own);
    return gather_and_conclude(fixed);
}

ith_status ith_fixed_m_take(ith_fixed_m *fixed, const ith_heads *heads, const ith_fixed_m_measured *m)
{
    const int64_t head_dim = fixed->setting->problem.head_dim;
    fixed->heads = *heads;
    if (excludes_all(fixed))
        return ITH_OK;
    for (int64_t kv_head = 0; kv_head < heads->kv_heads; kv_head++) {
        const float *from = m->stats + kv_head * ITH_DEVICE_KEY_STATS;
        float *to = stats_in(fixed, fixed->own, kv_head);
        memcpy(mean_in(fixed, fixed->own, kv_head), m->means + kv_head * head_dim, (size_t)head_dim * sizeof(float));
        to[STAT_COUNT] = from[ITH_DEVICE_KEY_COUNT];
        to[STAT_DISTANCE] = from[ITH_DEVICE_KEY_OTHER_BIAS] == 0
                                ? round_up(norm_of((double)from[ITH_DEVICE_KEY_SQUARE], head_dim))
                                : INFINITY;
        to[STAT_MAGNITUDE] = from[ITH_DEVICE_KEY_MAGNITUDE];
    }
    for (int64_t head = 0; head < heads->count; head++)
        query_norms_in(fixed, fixed->own)[head] = round_up(norm_of((double)m->squares[head], head_dim));
    return gather_and_conclude(fixed);
}

void ith_fixed_m_constants(const ith_fixed_m *fixed, double *c, double *norm_factor, double *margin)
{
    *c = fixed->c;
    *norm_factor = sqrt(1 + sum_error(fixed->setting->problem.head_dim));
    *margin = OFFSET_ERROR;
}

/* ---- Gates and offsets ------------------------------------------------------------------------------------------- */

bool ith_fixed_m_applies(const ith_fixed_m *fixed, int64_t head)
{
    return fixed->applies[head - fixed->heads.first];
}

int64_t ith_fixed_m_count(const ith_fixed_m *fixed, const ith_heads *heads)
{
    int64_t count = 0;
    for (int64_t i = 0; i < heads->count; i++)
        count += ith_fixed_m_applies(fixed, heads->first + i);
    return count;
}

void ith_fixed_m_offsets(const ith_fixed_m *fixed, int64_t head, const void *const *q, int64_t rows, float *m)
{
    const ith_attn_problem *p = &fixed->setting->problem;
    int64_t kv_head = head / (p->heads / p->kv_heads) - fixed->heads.kv_first;
    const float *mean = fixed->setting->smoothed ? fixed->means + kv_head * p->head_dim : NULL;
    for (int64_t first = 0; first < rows; first += OFFSET_ROWS) {
        int64_t here = ith_min64(OFFSET_ROWS, rows - first);
        float dot[OFFSET_ROWS], square[OFFSET_ROWS];
        fixed->ops->dots(dot, square, mean, q + first, here, p->dtype, p->head_dim);
        for (int64_t i = 0; i < here; i++) {
            double bound = bound_of(fixed, norm_of((double)square[i], p->head_dim), fixed->bounds[kv_head]);
            /* fits in an int, because heads with a larger bound do not use fixed_m */
            int whole = (int)(bound + OFFSET_ERROR);
            whole += (double)whole < bound + OFFSET_ERROR;
            /* m is rounded to the nearest f32. If all keys are equal, each 2^(s - m) is then a power of two, and its
             * sums are exact. */
            m[first + i] = (float)(fixed->c * (double)dot[i] + (double)(whole - LARGEST_LOGIT));
        }
    }
}
