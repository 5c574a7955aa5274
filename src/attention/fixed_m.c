/* SPDX-License-Identifier: Apache-2.0 */
/* Key statistics, gate and row offsets of the fixed-m softmax (fixed_m.h).
 *
 * Over this rank's shard, in pieces of PIECE rows:   k'_r = mean of k_j,  max |k_j - k'_r|,  max |v|,  max |q_i|
 * Over the ring, from an all-gather of these:        k' = sum_r n_r k'_r / sum_r n_r,
 *                                                    max_r (max |k_j - k'_r| + |k'_r - k'|) >= max |k_j - k'|
 *
 * Norms are rounded up. k' need not be the exact mean: the offset is right for any vector, and the gate has room for a
 * mean that is off by rounding. Whatever is not finite makes a bound that is not, and fails the gate. */
#include "fixed_m.h"

#include "../base/parallel.h"
#include "../kernels/keyops.h"

#include <math.h>
#include <string.h>

#define PIECE 512          /* rows; the bits of a sum depend on it */
#define TASKS_PER_THREAD 8 /* pieces between two means */
#define TOGETHER 16        /* heads between two means, at least: neighbours, which share pages of memory */
#define OFFSET_ROWS 64
#define LARGEST_LOGIT 88 /* C */
#define SMALLEST_EXPONENT 126
#define OFFSET_ERROR 0x1p-15 /* of the rounding of m to f32 where the gate is passed */

/* What one piece of a shard's keys says, besides its sum. */
typedef struct ith_key_piece {
    int64_t count;   /* of keys that are not masked */
    float magnitude; /* max |v| */
    float distance;  /* max |k_j - k'_r|^2 */
    bool plain_bias; /* nothing is added to their logits */
} key_piece;

/* What this rank tells the others: for each key problem the mean [head_dim] and then these, followed by max |q_i| of
 * each query problem. */
enum { TOLD_COUNT, TOLD_DISTANCE, TOLD_MAGNITUDE, TOLD };

/* The larger, NaN being the largest of all. */
static float worse(float a, float b)
{
    return a >= b || isnan(a) ? a : b;
}

/* x as f32, not below it. */
static float round_up(double x)
{
    return (float)(x + fabs(x) * 0x1p-23);
}

/* The relative error of the sums in keyops.h, twice over. */
static double sum_error(int64_t head_dim)
{
    return (double)(head_dim / ITH_KEYOPS_LANES + 8) * 0x1p-23;
}

/* At least |x|, from the |x|^2 that ith_keyops computed. */
static double norm_of(double square, int64_t head_dim)
{
    return sqrt((square + (double)head_dim * 0x1p-125) * (1 + sum_error(head_dim)));
}

static int64_t message_floats(const ith_fixed_m *f, int64_t keys_count, int64_t problems)
{
    return keys_count * (f->setting->problem.head_dim + TOLD) + problems;
}

static float *told_mean(const ith_fixed_m *f, float *message, int64_t keys)
{
    return message + keys * (f->setting->problem.head_dim + TOLD);
}

static float *told(const ith_fixed_m *f, float *message, int64_t keys)
{
    return told_mean(f, message, keys) + f->setting->problem.head_dim;
}

static float *told_queries(const ith_fixed_m *f, float *message)
{
    return told_mean(f, message, f->heads.keys_count);
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
    f.together = ith_max64(ith_min64(ith_max64(wanted, TOGETHER), shape->keys_count), 1);
    int64_t message_bytes = message_floats(&f, shape->keys_count, shape->problems) * (int64_t)sizeof(float);
    f.sums = ith_arena_take(arena, f.together * f.pieces, p->head_dim * (int64_t)sizeof *f.sums);
    f.keys = ith_arena_take(arena, shape->keys_count * f.pieces, sizeof *f.keys);
    f.queries = ith_arena_take(arena, shape->problems * f.q_pieces, sizeof *f.queries);
    f.own = ith_arena_take(arena, 1, message_bytes);
    f.all = f.ranks > 1 ? ith_arena_take(arena, f.ranks, message_bytes) : f.own;
    f.means = ith_arena_take(arena, shape->keys_count, p->head_dim * (int64_t)sizeof *f.means);
    f.bounds = ith_arena_take(arena, shape->keys_count, sizeof *f.bounds);
    f.applies = ith_arena_take(arena, shape->problems, sizeof *f.applies);
    *out = f;
}

/* ---- This rank's shard: on all threads ------------------------------------------------------------------------- */

/* What ith_fixed_m_prepare was given. */
typedef struct measured {
    ith_fixed_m *f;
    const ith_queries *queries;
    const ith_shard *own;
    const ith_attn_tensors *tensors;
    int64_t first, here, before; /* key problems under way, from the first of the group; as many just before them */
} measured;

/* Piece `piece` of a key problem of the group: pointers to its rows. Returns how many. */
static int64_t key_piece_rows(const measured *t, int64_t keys, int64_t piece, const void **k, const void **v,
                              const float **bias)
{
    int64_t problem = t->f->heads.first_keys + keys, row = piece * PIECE;
    int64_t all = ith_shard_keys(t->f->setting, t->own, t->tensors, problem);
    int64_t rows = ith_max64(ith_min64(all - row, PIECE), 0);
    *bias = rows > 0 ? ith_key_rows(t->f->setting, t->own, t->tensors, problem, row, rows, k, v) : NULL;
    return rows;
}

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

/* The sum of a piece's keys, and all that can be said before their mean is known. */
static void sum_piece(const measured *t, int64_t keys, int64_t slot, int64_t piece)
{
    const ith_fixed_m *f = t->f;
    const ith_attn_problem *p = &f->setting->problem;
    const void *k[PIECE], *v[PIECE];
    const float *bias;
    int64_t rows = key_piece_rows(t, keys, piece, k, v, &bias);
    double *sum = f->sums + (slot * f->pieces + piece) * p->head_dim;
    key_piece *out = f->keys + keys * f->pieces + piece;
    memset(sum, 0, (size_t)p->head_dim * sizeof *sum);
    out->plain_bias = bias_is_plain(bias, rows);
    out->magnitude = f->ops->most_magnitude(v, rows, p->dtype, p->head_dim);
    out->count = f->setting->smoothed ? f->ops->add_rows(sum, k, rows, p->dtype, p->head_dim) : count_rows(k, rows);
}

/* k'_r, as it is told to the others. */
static void find_mean(const measured *t, int64_t keys, int64_t slot, int64_t pieces)
{
    const ith_fixed_m *f = t->f;
    int64_t head_dim = f->setting->problem.head_dim, count = 0;
    double *sum = f->sums + slot * f->pieces * head_dim;
    for (int64_t piece = 0; piece < pieces; piece++)
        count += f->keys[keys * f->pieces + piece].count;
    for (int64_t piece = 1; piece < pieces; piece++)
        for (int64_t d = 0; d < head_dim; d++)
            sum[d] += sum[piece * head_dim + d];
    for (int64_t d = 0; d < head_dim; d++)
        told_mean(f, f->own, keys)[d] = count > 0 ? (float)(sum[d] / (double)count) : 0.0f;
    told(f, f->own, keys)[TOLD_COUNT] = (float)count;
}

static void measure_piece(const measured *t, int64_t keys, int64_t piece)
{
    const ith_fixed_m *f = t->f;
    const ith_attn_problem *p = &f->setting->problem;
    const void *k[PIECE];
    const float *bias;
    int64_t rows = key_piece_rows(t, keys, piece, k, NULL, &bias);
    const float *centre = f->setting->smoothed ? told_mean(f, f->own, keys) : NULL;
    f->keys[keys * f->pieces + piece].distance = f->ops->most_distance(centre, k, rows, p->dtype, p->head_dim);
}

static void measure_queries(const measured *t, int64_t query, int64_t piece)
{
    const ith_fixed_m *f = t->f;
    const ith_attn_problem *p = &f->setting->problem;
    const void *q[PIECE];
    int64_t row = piece * PIECE, rows = ith_min64(PIECE, t->queries->rows - row);
    ith_query_rows(f->setting, t->queries, f->heads.first + query, row, rows, q, NULL);
    f->queries[query * f->q_pieces + piece] = f->ops->most_distance(NULL, q, rows, p->dtype, p->head_dim);
}

/* Whether to skip what is left to measure. */
static bool halted(const ith_fixed_m *f)
{
    return ith_halted(f->setting->halt);
}

/* Threads share out the pieces of a few key problems at a time. A piece of one head follows that of its neighbour, for
 * the sake of the pages that they share. Sums come first, then means, then distances from them; the distances go with
 * the sums of the next key problems. */
static void sum_in_thread(void *user, int thread)
{
    const measured *t = user;
    const ith_fixed_m *f = t->f;
    int64_t first, count, pieces = ith_div_up(t->own->rows, PIECE), q_pieces = ith_div_up(t->queries->rows, PIECE);
    ith_share(t->before * pieces, f->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count && !halted(f); task++)
        measure_piece(t, t->first - t->before + task % t->before, task / t->before);
    ith_share(t->here * pieces, f->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count && !halted(f); task++)
        sum_piece(t, t->first + task % t->here, task % t->here, task / t->here);
    ith_share(t->first == 0 ? f->heads.count * q_pieces : 0, f->setting->threads, thread, &first, &count);
    for (int64_t task = first; task < first + count && !halted(f); task++)
        measure_queries(t, task % f->heads.count, task / f->heads.count);
}

static void find_means_in_thread(void *user, int thread)
{
    const measured *t = user;
    int64_t first, count;
    ith_share(t->here, t->f->setting->threads, thread, &first, &count);
    for (int64_t slot = first; slot < first + count && !halted(t->f); slot++)
        find_mean(t, t->first + slot, slot, ith_div_up(t->own->rows, PIECE));
}

static void measure(measured *t)
{
    const ith_attn_setting *s = t->f->setting;
    int64_t all = t->f->heads.keys_count;
    for (t->first = 0; t->first < all + t->before && !halted(t->f); t->first += t->here) {
        t->here = ith_min64(t->f->together, ith_max64(all - t->first, 0));
        ith_parallel(s->context, s->threads, sum_in_thread, t);
        if (t->here == 0)
            return;
        ith_parallel(s->context, s->threads, find_means_in_thread, t);
        t->before = t->here;
    }
}

/* Fills in what is told besides means and counts. */
static void tell(const measured *t)
{
    const ith_fixed_m *f = t->f;
    int64_t pieces = ith_div_up(t->own->rows, PIECE), q_pieces = ith_div_up(t->queries->rows, PIECE);
    int64_t head_dim = f->setting->problem.head_dim;
    for (int64_t keys = 0; keys < f->heads.keys_count; keys++) {
        float square = 0, magnitude = 0;
        bool plain_bias = true;
        for (int64_t i = 0; i < pieces; i++) {
            const key_piece *piece = f->keys + keys * f->pieces + i;
            square = worse(square, piece->distance);
            magnitude = worse(magnitude, piece->magnitude);
            plain_bias &= piece->plain_bias;
        }
        float *to = told(f, f->own, keys);
        to[TOLD_DISTANCE] = plain_bias ? round_up(norm_of((double)square, head_dim)) : INFINITY;
        to[TOLD_MAGNITUDE] = magnitude;
    }
    for (int64_t query = 0; query < f->heads.count; query++) {
        float square = 0;
        for (int64_t i = 0; i < q_pieces; i++)
            square = worse(square, f->queries[query * f->q_pieces + i]);
        told_queries(f, f->own)[query] = round_up(norm_of((double)square, head_dim));
    }
}

/* ---- All shards: the same on every rank ------------------------------------------------------------------------ */

static float *message_of(const ith_fixed_m *f, int rank)
{
    return f->all + rank * message_floats(f, f->heads.keys_count, f->heads.count);
}

/* Which ranks' shards these queries meet: of keys that every rank has, this one's. */
static void shards_met(const ith_fixed_m *f, int *first, int *end)
{
    bool replicated = f->setting->problem.replicated_kv;
    *first = replicated ? ith_comm_rank(f->setting->comm) : 0;
    *end = replicated ? *first + 1 : f->ranks;
}

/* k'. With keys in one shard only it is that shard's mean to the bit. */
static void merge_mean(const ith_fixed_m *f, int64_t keys)
{
    int64_t head_dim = f->setting->problem.head_dim;
    int first, end;
    shards_met(f, &first, &end);
    double count = 0;
    for (int rank = first; rank < end; rank++)
        count += (double)told(f, message_of(f, rank), keys)[TOLD_COUNT];
    for (int64_t d = 0; d < head_dim; d++) {
        double sum = 0;
        for (int rank = first; rank < end; rank++) {
            float *message = message_of(f, rank);
            sum += (double)told(f, message, keys)[TOLD_COUNT] * (double)told_mean(f, message, keys)[d];
        }
        f->means[keys * head_dim + d] = count > 0 ? (float)(sum / count) : 0.0f;
    }
}

static double distance_between(const float *x, const float *y, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++) {
        double distance = (double)x[i] - (y ? (double)y[i] : 0);
        square += distance * distance;
    }
    return sqrt(square) * (1 + 0x1p-30);
}

/* max_j |k_j - k'|, and max |v|. */
static void merge_bounds(const ith_fixed_m *f, int64_t keys, double *bound, float *magnitude)
{
    int64_t head_dim = f->setting->problem.head_dim;
    int first, end;
    shards_met(f, &first, &end);
    *bound = 0, *magnitude = 0;
    for (int rank = first; rank < end; rank++) {
        float *message = message_of(f, rank);
        const float *from = told(f, message, keys);
        if (from[TOLD_COUNT] == 0)
            continue;
        double between = distance_between(told_mean(f, message, keys), f->means + keys * head_dim, head_dim);
        double farthest = (double)from[TOLD_DISTANCE] + between;
        *bound = *bound >= farthest || isnan(*bound) ? *bound : farthest;
        *magnitude = worse(*magnitude, from[TOLD_MAGNITUDE]);
    }
}

static int log2_up(int64_t n)
{
    int power = 0;
    while (((int64_t)1 << power) < n)
        power++;
    return power;
}

/* The two inequalities of fixed_m.h, free of logarithms that libraries may round differently. */
static bool passes(const ith_attn_setting *s, double gate, double magnitude)
{
    int kept_bits = s->problem.dtype == ITH_BF16 ? 12 : 24;
    int most = LARGEST_LOGIT + SMALLEST_EXPONENT - kept_bits - log2_up(s->problem.kv_len);
    if (!(gate <= most))
        return false;
    return ldexp(1.0, (int)gate - most) <= magnitude &&
           (double)s->problem.kv_len * (magnitude > 1 ? magnitude : 1) < ldexp(1.0, 127 - LARGEST_LOGIT);
}

/* B, c q_i . k' included in its rounding. */
static double bound_of(const ith_fixed_m *f, double q_norm, double bound)
{
    return fabs(f->c) * (q_norm * bound + (double)f->setting->problem.head_dim * 0x1p-125);
}

static void conclude(const ith_fixed_m *f)
{
    const ith_attn_setting *s = f->setting;
    int64_t head_dim = s->problem.head_dim, per_key = s->problem.heads / s->problem.kv_heads, query = 0;
    double sides = !s->smoothed || s->problem.mask ? 2 : 1;
    for (int64_t keys = 0; keys < f->heads.keys_count; keys++) {
        double bound;
        float magnitude;
        merge_mean(f, keys);
        merge_bounds(f, keys, &bound, &magnitude);
        double common = distance_between(f->means + keys * head_dim, NULL, head_dim);
        f->bounds[keys] = bound + common * sum_error(head_dim);
        for (; query < f->heads.count && (f->heads.first + query) / per_key == f->heads.first_keys + keys; query++) {
            float q_norm = 0;
            for (int rank = 0; rank < f->ranks; rank++)
                q_norm = worse(q_norm, told_queries(f, message_of(f, rank))[query]);
            double gate = ceil(sides * bound_of(f, (double)q_norm, f->bounds[keys]) + OFFSET_ERROR);
            double off = bound_of(f, (double)q_norm, bound + common) * (double)(head_dim + 64) * 0x1p-24;
            f->applies[query] = off <= 0.5 && passes(s, gate, (double)magnitude);
        }
    }
}

static ith_status gather(const ith_fixed_m *f)
{
    const ith_attn_setting *s = f->setting;
    int64_t bytes = message_floats(f, f->heads.keys_count, f->heads.count) * (int64_t)sizeof(float);
    if (f->ranks == 1)
        return ITH_OK;
    return ith_comm_allgather(s->problem.replicated_kv ? s->comm : s->ring_comm, f->own, bytes, f->all);
}

ith_status ith_fixed_m_prepare(ith_fixed_m *fixed, const ith_heads *heads, const ith_queries *queries,
                               const ith_shard *own, const ith_attn_tensors *tensors)
{
    fixed->heads = *heads;
    if (fixed->setting->problem.mask == ITH_MASK_ADDITIVE) {
        for (int64_t query = 0; query < heads->count; query++)
            fixed->applies[query] = false;
        return ITH_OK;
    }
    measured t = {fixed, queries, own, tensors, 0, 0, 0};
    measure(&t);
    tell(&t);
    ith_status status = gather(fixed);
    if (!status)
        conclude(fixed);
    return status;
}

/* ---- What the sweep asks --------------------------------------------------------------------------------------- */

bool ith_fixed_m_applies(const ith_fixed_m *fixed, int64_t problem)
{
    return fixed->applies[problem - fixed->heads.first];
}

void ith_fixed_m_offsets(const ith_fixed_m *fixed, int64_t problem, const void *const *q, int64_t rows, float *m)
{
    const ith_attn_problem *p = &fixed->setting->problem;
    int64_t keys = problem / (p->heads / p->kv_heads) - fixed->heads.first_keys;
    const float *mean = fixed->setting->smoothed ? fixed->means + keys * p->head_dim : NULL;
    for (int64_t first = 0; first < rows; first += OFFSET_ROWS) {
        int64_t here = ith_min64(OFFSET_ROWS, rows - first);
        float dot[OFFSET_ROWS], square[OFFSET_ROWS];
        fixed->ops->dots(dot, square, mean, q + first, here, p->dtype, p->head_dim);
        for (int64_t i = 0; i < here; i++) {
            double bound = bound_of(fixed, norm_of((double)square[i], p->head_dim), fixed->bounds[keys]);
            int whole = (int)(bound + OFFSET_ERROR); /* at most what the gate lets through */
            whole += (double)whole < bound + OFFSET_ERROR;
            /* To nearest: of keys that are all alike 2^(s - m) is then a power of two, and sums of it are exact. */
            m[first + i] = (float)(fixed->c * (double)dot[i] + (double)(whole - LARGEST_LOGIT));
        }
    }
}
