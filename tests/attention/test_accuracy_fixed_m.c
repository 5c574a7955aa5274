/* SPDX-License-Identifier: Apache-2.0 */
/* Whole plans with the fixed_m softmax on the hardest inputs. If queries are at right angles to all keys, every logit
 * lies B below its bound; if a query sees only keys opposite to it, its logits lie 2 B below. B is below the gate in
 * some heads, and above it in others. Results are compared with the definition in double and with the online
 * softmax. */
#include "kernels/kernel.h"
#include "support/attention_check.h"
#include "support/compare.h"
#include "support/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8 };

/* ---- The problem ----------------------------------------------------------------------------------------------- */

/* The largest B of each head. With up to 1024 keys the gate is at 192 for bf16, and at 180 for f32 and f16. */
static const double passing[HEADS] = {5, 60, 100, 130, 150, 165, 173, 178}; /* with every type */
static const double mixed[HEADS] = {150, 210, 172, 186, 196, 158, 185, 204};

static double gate_of(ith_dtype type)
{
    return type == ITH_BF16 ? 192 : 180;
}

/* Makes a key: a random vector of length 4 in the first half of the axes, or the opposite of `mirrored`, the key before
 * it; then 3 is added along the first axis. */
static void fill_key(float *k, int64_t D, const float *mirrored, uint64_t *seed)
{
    double square = 0;
    for (int64_t d = 0; d < D / 2; d++) {
        k[d] = case_value(seed);
        square += (double)k[d] * (double)k[d];
    }
    for (int64_t d = 0; d < D; d++)
        k[d] = d >= D / 2 ? 0 : mirrored ? -mirrored[d] : k[d] * 4 / (float)sqrt(square);
    k[0] += mirrored ? 6 : 3; /* -mirrored has -3 there */
}

/* Queries have their numbers in the second half of the axes, and in odd rows small numbers in the first half too. */
static void fill_rows(const attention_case *c, const double *bounds, float *q, float *k, float *v)
{
    const ith_attn_problem *p = &c->problem;
    int64_t D = p->head_dim;
    uint64_t seed = 7;
    for (int64_t i = 0; i < p->batch * p->kv_len * HEADS; i++) {
        fill_key(k + i * D, D, i / HEADS % 2 ? k + (i - HEADS) * D : NULL, &seed);
        for (int64_t d = 0; d < D; d++)
            v[i * D + d] = case_value(&seed) + (d % 2 ? 0 : 1);
    }
    for (int64_t i = 0; i < p->batch * p->q_len * p->heads; i++) {
        double square = 0, wanted = bounds[i % p->heads] / M_LOG2E * sqrt((double)D) / 4;
        for (int64_t d = 0; d < D; d++) {
            float leak = i / p->heads % 2 ? 0.02f : 0;
            q[i * D + d] = case_value(&seed) * (d < D / 2 ? leak : 1);
            square += (double)q[i * D + d] * (double)q[i * D + d];
        }
        for (int64_t d = 0; d < D; d++)
            q[i * D + d] *= (float)(wanted / sqrt(square));
    }
}

/* A case whose q, k and v will be set. */
static attention_case empty_case(ith_dtype type, int64_t D, int64_t kv_len, ith_mask mask)
{
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
    c.problem.heads = HEADS, c.problem.kv_heads = HEADS, c.problem.head_dim = D;
    c.problem.q_len = 45, c.problem.kv_len = kv_len, c.problem.dtype = type, c.problem.mask = mask;
    case_fill(&c, 2, 0);
    return c;
}

static void set_rows(attention_case *c, float *q, float *k, float *v)
{
    int64_t q_count = c->problem.q_len * HEADS * c->problem.head_dim;
    int64_t k_count = c->problem.kv_len * HEADS * c->problem.head_dim;
    free(c->q), free(c->k), free(c->v);
    c->q = case_tensor(c->problem.dtype, q, q_count);
    c->k = case_tensor(c->problem.dtype, k, k_count), c->v = case_tensor(c->problem.dtype, v, k_count);
    free(q), free(k), free(v);
}

static float *numbers(int64_t rows, int64_t D)
{
    return calloc((size_t)(rows * HEADS * D), sizeof(float));
}

static attention_case right_angles(ith_dtype type, int64_t D, int64_t kv_len, const double *bounds)
{
    attention_case c = empty_case(type, D, kv_len, ITH_MASK_NONE);
    float *q = numbers(c.problem.q_len, D), *k = numbers(kv_len, D), *v = numbers(kv_len, D);
    fill_rows(&c, bounds, q, k, v);
    set_rows(&c, q, k, v);
    return c;
}

/* Queries lie along the first axis. With a mask, half of the keys lie at 4 on this axis and half at -4, and the mask
 * hides the keys at 4. Without a mask there is no smoothing, and all keys lie at -4. bounds: the wanted 2 B of each
 * head. */
static attention_case opposites(ith_dtype type, int64_t D, int64_t kv_len, const double *bounds, bool masked)
{
    attention_case c = empty_case(type, D, kv_len, masked ? ITH_MASK_BOOL : ITH_MASK_NONE);
    float *q = numbers(c.problem.q_len, D), *k = numbers(kv_len, D), *v = numbers(kv_len, D);
    uint64_t seed = 11;
    c.options.smooth = !masked ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
    for (int64_t i = 0; i < c.problem.q_len * HEADS; i++)
        q[i * D] = (float)(bounds[i % HEADS] / 2 / M_LOG2E * sqrt((double)D) / 4);
    for (int64_t i = 0; i < kv_len * HEADS * D; i++) {
        bool seen = i / D / HEADS % 2 == 0;
        k[i] = i % D == 0 ? (seen || !masked ? -4.0f : 4.0f) : i % D == 1 ? 0.1f * case_value(&seed) : 0;
        v[i] = case_value(&seed) + (i % 2 ? 0 : 1);
    }
    for (int64_t i = 0; masked && i < c.problem.q_len * kv_len; i++)
        ((uint8_t *)c.mask)[i] = i % kv_len % 2 == 0;
    set_rows(&c, q, k, v);
    return c;
}

/* ---- How many heads took which way ----------------------------------------------------------------------------- */

typedef struct head_count {
    attention_case *c;
    int64_t fixed[8], online[8]; /* of each rank */
} head_count;

static ith_status count_in_rank(ith_context *rank_context, ith_comm *comm, void *user)
{
    head_count *out = user;
    const ith_attn_problem *p = &out->c->problem;
    int64_t begin, rows, kv_begin, kv_rows, width = p->heads * p->head_dim;
    int rank = ith_comm_rank(comm);
    ith_share(p->q_len, ith_comm_size(comm), rank, &begin, &rows);
    ith_share(p->kv_len, ith_comm_size(comm), rank, &kv_begin, &kv_rows);
    void *q = case_share(out->c, out->c->q, p->q_len, width, begin, rows);
    void *k = case_share(out->c, out->c->k, p->kv_len, width, kv_begin, kv_rows);
    void *v = case_share(out->c, out->c->v, p->kv_len, width, kv_begin, kv_rows);
    void *o = case_share(out->c, NULL, p->q_len, width, begin, rows);
    ith_attn_tensors tensors = {.struct_size = sizeof(ith_attn_tensors), .q = q, .k = k, .v = v, .o = o};
    tensors.mask = p->mask == ITH_MASK_NONE ? NULL : out->c->mask;
    ith_plan *plan = NULL;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    ith_status status = ith_plan_create(rank_context, p, &out->c->options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &tensors);
    if (!status)
        status = ith_plan_count(plan, &counters);
    out->fixed[rank] = counters.fixed_m_heads, out->online[rank] = counters.online_heads;
    ith_plan_destroy(&plan);
    free(q), free(k), free(v), free(o);
    return status;
}

/* The number of heads whose B times the factor is below the gate. */
static int64_t below_gate(const attention_case *c, const double *bounds, double factor)
{
    int64_t count = 0;
    for (int h = 0; h < HEADS; h++)
        count += bounds[h] * factor < gate_of(c->problem.dtype);
    return count;
}

/* Each rank of a ring counts the heads that it shares with the others, and all of them count the same. */
static void check_counts(attention_case *c, int ranks, const double *bounds)
{
    head_count out = {.c = c};
    assert_int_equal(ith_run_ranks(context, ranks, ranks, count_in_rank, &out), ITH_OK);
    int64_t fixed = 0, online = 0, ring = c->options.ring;
    for (int rank = 0; rank < ranks; rank++)
        fixed += out.fixed[rank], online += out.online[rank];
    assert_int_equal(fixed + online, HEADS * ring);
    assert_int_equal(fixed % ring, 0);
    if (c->options.softmax == ITH_SOFTMAX_ONLINE)
        assert_int_equal(fixed, 0);
    else if (ring == 1)
        assert_int_equal(fixed, below_gate(c, bounds, 1));
    else /* the bound of a ring is larger by the distance between the mean keys of the shards */
        assert_true(fixed / ring <= below_gate(c, bounds, 1) && fixed / ring >= below_gate(c, bounds, 1.25));
}

/* ---- Every way to compute it ----------------------------------------------------------------------------------- */

typedef struct way {
    ith_strategy strategy;
    int ulysses, ring, chunks;
    ith_direction direction;
    ith_exchange_mode exchange;
} way;

static const way ways[] = {
    {ITH_STRATEGY_SINGLE, 1, 1, 0, 0, ITH_EXCHANGE_AUTO},
    {ITH_STRATEGY_ULYSSES, 2, 1, 1, 0, ITH_EXCHANGE_IN_PLACE},
    {ITH_STRATEGY_ULYSSES, 3, 1, 1, 0, ITH_EXCHANGE_COPY},
    {ITH_STRATEGY_ULYSSES, 2, 1, 3, 0, ITH_EXCHANGE_COPY},
    {ITH_STRATEGY_RING, 1, 2, 0, ITH_DIRECTION_UNI, ITH_EXCHANGE_IN_PLACE},
    {ITH_STRATEGY_RING, 1, 4, 0, ITH_DIRECTION_UNI, ITH_EXCHANGE_COPY},
    {ITH_STRATEGY_RING, 1, 3, 0, ITH_DIRECTION_BIDIR, ITH_EXCHANGE_COPY},
    {ITH_STRATEGY_RING, 1, 3, 0, ITH_DIRECTION_BIDIR, ITH_EXCHANGE_IN_PLACE},
    {ITH_STRATEGY_ULYSSES_RING, 2, 2, 1, ITH_DIRECTION_UNI, ITH_EXCHANGE_COPY},
    {ITH_STRATEGY_ULYSSES_RING, 2, 2, 2, ITH_DIRECTION_BIDIR, ITH_EXCHANGE_IN_PLACE},
};
#define WAYS ((int)(sizeof ways / sizeof *ways))

static int take_way(attention_case *c, const way *w)
{
    c->options.strategy = w->strategy;
    c->options.ulysses = w->ulysses, c->options.ring = w->ring, c->options.chunks = w->chunks;
    c->options.direction = w->direction, c->options.exchange = w->exchange;
    return w->ulysses * w->ring;
}

/* The next kernel after number *index that takes the problem; NULL after the last. */
static const char *next_kernel(const attention_case *c, int *index)
{
    const char *name;
    bool usable;
    for (; (name = ith_kernel_list(context, *index, &usable)); ++*index)
        if (usable && ith_attn_kernel_named(name) &&
            ith_attn_kernel_named(name)->supports(c->problem.dtype, c->problem.head_dim, ITH_SOFTMAX_FIXED_M)) {
            ++*index;
            return name;
        }
    return NULL;
}

/* Runs one kernel with both softmaxes. Each result is right, and the two are near to each other. */
static void check_way(attention_case *c, int ranks, const double *bounds, const float *o, const float *lse)
{
    int64_t count = c->problem.q_len * HEADS * c->problem.head_dim;
    float *online = malloc((size_t)count * sizeof *online);
    c->options.softmax = ITH_SOFTMAX_ONLINE;
    check_run(context, c, ranks);
    check_result(c, o, lse, 0);
    memcpy(online, c->o, (size_t)count * sizeof *online);
    c->options.softmax = ITH_SOFTMAX_FIXED_M;
    check_run(context, c, ranks);
    check_result(c, o, lse, 0);
    assert_true(relative_l2(c->o, online, count) <= case_bound(c));
    check_counts(c, ranks, bounds);
    free(online);
}

/* Checks all ways with one kernel, and every kernel on one rank. */
static void check_all(attention_case c, const double *bounds)
{
    int64_t rows = c.problem.q_len * HEADS, D = c.problem.head_dim;
    size_t bytes = (size_t)(rows * D * ith_dtype_bytes(c.problem.dtype));
    float *o = malloc((size_t)(rows * D) * sizeof *o), *lse = malloc((size_t)rows * sizeof *lse);
    char *single = malloc(bytes);
    case_oracle(&c, o, lse);
    const char *kernel;
    for (int index = 0; (kernel = next_kernel(&c, &index));) {
        c.options.kernel = kernel;
        check_way(&c, take_way(&c, &ways[0]), bounds, o, lse);
    }
    int first = 0;
    c.options.kernel = next_kernel(&c, &first);
    for (int i = 0; i < WAYS; i++) {
        check_way(&c, take_way(&c, &ways[i]), bounds, o, lse);
        if (i == 0)
            memcpy(single, c.o_bits, bytes);
        if (ways[i].ring == 1)
            assert_memory_equal(c.o_bits, single, bytes);
    }
    case_free(&c);
    free(o), free(lse), free(single);
}

static void rows_at_the_gate(void **state)
{
    (void)state;
    check_all(right_angles(ITH_BF16, 64, 1001, passing), passing);
    check_all(right_angles(ITH_F32, 64, 602, passing), passing);
    check_all(right_angles(ITH_F16, 40, 700, passing), passing);
    check_all(right_angles(ITH_BF16, 128, 530, passing), passing);
}

static void heads_on_both_sides_of_the_gate(void **state)
{
    (void)state;
    check_all(right_angles(ITH_BF16, 64, 1001, mixed), mixed);
    check_all(right_angles(ITH_F32, 128, 513, mixed), mixed);
    check_all(right_angles(ITH_F16, 64, 600, mixed), mixed);
    check_all(right_angles(ITH_BF16, 36, 777, mixed), mixed);
}

static void rows_at_the_lower_end(void **state)
{
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        check_all(opposites(ITH_BF16, 64, 600, mixed, masked), mixed);
        check_all(opposites(ITH_F32, 32, 514, mixed, masked), mixed);
        check_all(opposites(ITH_F16, 128, 1000, passing, masked), passing);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_at_the_gate),
        cmocka_unit_test(heads_on_both_sides_of_the_gate),
        cmocka_unit_test(rows_at_the_lower_end),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
