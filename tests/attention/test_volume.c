/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that ranks send, as predicted from the schedule and as counted where they move. Both are compared with the
 * formulas for even shares, and with a count that this test makes row by row for any shares. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "support/in_rank.h"
#include "support/plan_trial.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct volume_case {
    ith_attn_problem problem;
    ith_attn_options options;
    const int32_t *kv_lengths; /* [batch]; NULL: none */
    int64_t predicted[TRIAL_RANKS], sent[TRIAL_RANKS];
} volume_case;

/* ---- Counted by executing -------------------------------------------------------------------------------------- */

static ith_status execute_and_count(ith_context *context, ith_plan *plan, const ith_attn_tensors *tensors,
                                    int64_t *predicted, int64_t *sent)
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    RANK_TRY(ith_plan_execute(plan, tensors));
    RANK_TRY(ith_plan_execute(plan, tensors));
    RANK_TRY(ith_plan_describe(plan, &info));
    RANK_TRY(ith_plan_count(plan, &counters));
    RANK_CHECK(context, counters.executions == 2);
    RANK_CHECK(context, counters.sent_bytes % 2 == 0);
    *predicted = info.sent_bytes;
    *sent = counters.sent_bytes / 2;
    return ITH_OK;
}

static ith_status count_in_rank(ith_context *context, ith_comm *comm, void *user)
{
    volume_case *c = user;
    const ith_attn_problem *p = &c->problem;
    int64_t begin, q_rows, kv_rows, kv_heads = p->kv_heads ? p->kv_heads : p->heads;
    ith_share(p->q_len, ith_comm_size(comm), ith_comm_rank(comm), &begin, &q_rows);
    ith_share(p->kv_len, ith_comm_size(comm), ith_comm_rank(comm), &begin, &kv_rows);
    size_t size = (size_t)ith_dtype_bytes(p->dtype), row = (size_t)(p->batch * p->head_dim) * size;
    char *q = calloc((size_t)(q_rows * p->heads) + 1, row), *o = calloc((size_t)(q_rows * p->heads) + 1, row);
    char *k = calloc((size_t)(kv_rows * kv_heads) + 1, row), *v = calloc((size_t)(kv_rows * kv_heads) + 1, row);
    ith_attn_tensors tensors = {.struct_size = sizeof(ith_attn_tensors), .q = q, .k = k, .v = v, .o = o};
    tensors.kv_lengths = c->kv_lengths;
    int rank = ith_comm_rank(comm);
    ith_plan *plan = NULL;
    ith_status status = ith_plan_create(context, p, &c->options, comm, &plan);
    if (!status)
        status = execute_and_count(context, plan, &tensors, &c->predicted[rank], &c->sent[rank]);
    ith_plan_destroy(&plan);
    free(q), free(k), free(v), free(o);
    return status;
}

static void run_volume(volume_case *c, int ranks)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    ith_status status = ith_run_ranks(context, ranks, ranks, count_in_rank, c);
    if (status)
        print_error("%s\n", ith_context_error(context));
    assert_int_equal(status, ITH_OK);
    for (int rank = 0; rank < ranks && !c->kv_lengths; rank++)
        assert_int_equal(c->sent[rank], c->predicted[rank]);
    ith_context_destroy(&context);
}

/* ---- Counted row by row ---------------------------------------------------------------------------------------- */

/* The ranks that hold each row, and the ranks that compute each head of each chunk. */
typedef struct census {
    const volume_case *c;
    int64_t kv_heads;
    int ranks, ulysses, ring;
    int64_t sent[TRIAL_RANKS]; /* by each rank: the number of rows, each of one head */
} census;

typedef struct head_range {
    int64_t first, count, kv_heads;
} head_range;

static bool by_entry(const census *s)
{
    return s->c->options.fold == ITH_CHOICE_OFF && s->ulysses > 1;
}

/* Ranks of a ulysses axis get heads in groups. The size of a group is the product of the axis and of the query heads of
 * a kv head; if there are too few heads for one such group, it is the axis. */
static int64_t group_of(const census *s, int64_t heads)
{
    int64_t whole = s->ulysses * (s->c->problem.heads / s->kv_heads);
    return heads >= whole ? whole : s->ulysses;
}

static int64_t listed_heads(const census *s)
{
    return s->c->problem.heads * (by_entry(s) ? 1 : s->c->problem.batch);
}

static int64_t chunks_of(const census *s)
{
    int64_t groups = listed_heads(s) / group_of(s, listed_heads(s)), wanted = s->ulysses > 1 ? s->c->options.chunks : 1;
    return groups < 1 ? 1 : groups < wanted ? groups : wanted;
}

/* The heads of a chunk that a rank of the ulysses axis computes. The last chunk has the heads that are left over,
 * too. */
static head_range heads_of(const census *s, int64_t entry, int64_t chunk, int u)
{
    int64_t heads = listed_heads(s), group = group_of(s, heads), chunks = chunks_of(s), first, groups, begin, count;
    ith_share(heads / group, (int)chunks, (int)chunk, &first, &groups);
    int64_t end = chunk == chunks - 1 ? heads : (first + groups) * group;
    ith_share(end - first * group, s->ulysses, u, &begin, &count);
    head_range range = {entry * heads + first * group + begin, count, 0};
    int64_t queries = s->c->problem.heads / s->kv_heads, last = -1;
    for (int64_t n = range.first; n < range.first + count; n++)
        if (n / queries != last)
            last = n / queries, range.kv_heads++;
    return range;
}

static int64_t rows_of(const census *s, int64_t length, int rank)
{
    int64_t begin, rows;
    ith_share(length, s->ranks, rank, &begin, &rows);
    return rows;
}

/* Counts rows that ranks of a ulysses axis exchange: q, k and v from their owner to the rank that computes with them,
 * and o back. */
static void count_all_to_all(census *s, int64_t entry, int64_t chunk)
{
    const ith_attn_problem *p = &s->c->problem;
    for (int owner = 0; owner < s->ranks; owner++)
        for (int u = 0; u < s->ulysses; u++) {
            int other = owner / s->ulysses * s->ulysses + u;
            head_range heads = heads_of(s, entry, chunk, u);
            if (other == owner)
                continue;
            for (int64_t n = 0; n < heads.count; n++) {
                s->sent[owner] += rows_of(s, p->q_len, owner); /* q */
                s->sent[other] += rows_of(s, p->q_len, owner); /* o */
            }
            for (int64_t n = 0; n < heads.kv_heads; n++)
                s->sent[owner] += 2 * rows_of(s, p->kv_len, owner); /* k and v */
        }
}

/* The rows of a shard: all keys that the ranks of a ulysses axis hold together. */
static int64_t shard_rows(const census *s, int index)
{
    int64_t rows = 0;
    for (int u = 0; u < s->ulysses; u++)
        rows += rows_of(s, s->c->problem.kv_len, index * s->ulysses + u);
    return rows;
}

/* Counts rows of shards that travel hop by hop, each until all ranks have seen it. */
static void count_hops(census *s, int64_t entry, int64_t chunk)
{
    bool both_ways = s->c->options.direction == ITH_DIRECTION_BIDIR;
    for (int index = 0; index < s->ring; index++)
        for (int u = 0; u < s->ulysses; u++) {
            int64_t rows = 2 * shard_rows(s, index) * heads_of(s, entry, chunk, u).kv_heads;
            for (int hop = 1; !both_ways && hop < s->ring; hop++)
                s->sent[(index + hop - 1) % s->ring * s->ulysses + u] += rows;
            for (int at = index; both_ways && at + 1 < s->ring; at++)
                s->sent[at * s->ulysses + u] += rows;
            for (int at = index; both_ways && at > 0; at--)
                s->sent[at * s->ulysses + u] += rows;
        }
}

/* Counts rows that are read in place: each rank packs the shard of its ulysses axis for its own heads, and the other
 * ranks of its ring read it there. */
static void count_reads(census *s, int64_t entry, int64_t chunk)
{
    for (int packer = 0; packer < s->ranks; packer++)
        for (int reader = packer % s->ulysses; reader < s->ranks; reader += s->ulysses)
            if (reader != packer)
                s->sent[packer] +=
                    2 * shard_rows(s, packer / s->ulysses) * heads_of(s, entry, chunk, reader % s->ulysses).kv_heads;
}

static void check_census(volume_case *c, int ulysses, int ring)
{
    census s = {.c = c, .ranks = ulysses * ring, .ulysses = ulysses, .ring = ring};
    s.kv_heads = c->problem.kv_heads ? c->problem.kv_heads : c->problem.heads;
    const bool works = c->problem.q_len > 0; /* without queries nothing is exchanged */
    for (int64_t entry = 0; works && entry < (by_entry(&s) ? c->problem.batch : 1); entry++)
        for (int64_t chunk = 0; chunk < chunks_of(&s); chunk++) {
            count_all_to_all(&s, entry, chunk);
            if (c->options.exchange != ITH_EXCHANGE_IN_PLACE)
                count_hops(&s, entry, chunk);
            else
                count_reads(&s, entry, chunk);
        }
    for (int rank = 0; rank < s.ranks; rank++)
        assert_int_equal(c->sent[rank], s.sent[rank] * c->problem.head_dim * ith_dtype_bytes(c->problem.dtype));
}

/* ---- Tests ----------------------------------------------------------------------------------------------------- */

static const struct {
    ith_strategy strategy;
    int ulysses, ring;
} meshes[] = {
    {ITH_STRATEGY_ULYSSES, 2, 1},      {ITH_STRATEGY_ULYSSES, 4, 1},      {ITH_STRATEGY_RING, 1, 2},
    {ITH_STRATEGY_RING, 1, 5},         {ITH_STRATEGY_ULYSSES_RING, 2, 2}, {ITH_STRATEGY_ULYSSES_RING, 3, 2},
    {ITH_STRATEGY_ULYSSES_RING, 2, 3},
};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* With even shares and one direction, formulas give the bytes. S h b / P is a rank's share of q. */
static void even_shares_meet_the_formulas(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++)
        for (int n = 0; n < 8; n++) {
            int U = meshes[i].ulysses, R = meshes[i].ring, P = U * R, groups = n & 1 ? 3 : 1;
            volume_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
            c.problem.batch = n & 2 ? 2 : 1;
            c.problem.kv_heads = 12;
            c.problem.heads = 12 * groups;
            c.problem.head_dim = 8;
            c.problem.q_len = c.problem.kv_len = 5 * P;
            c.problem.dtype = n & 2 ? ITH_BF16 : ITH_F32;
            c.options.strategy = meshes[i].strategy;
            c.options.ulysses = U;
            c.options.chunks = n & 2 ? 2 : 1;
            c.options.exchange = n & 4 ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_IN_PLACE;
            run_volume(&c, P);
            int64_t share = c.problem.batch * c.problem.q_len / P * c.problem.heads * c.problem.head_dim *
                            ith_dtype_bytes(c.problem.dtype);
            double f = 1.0 / groups;
            double expected = (double)share * ((2 + 2 * f) * (U - 1) / U + 2 * f * (R - 1));
            for (int rank = 0; rank < P; rank++)
                assert_true(fabs((double)c.sent[rank] - expected) < 0.5);
        }
}

/* Everything is uneven: shares differ, no axis divides the heads, query heads share kv heads; with both directions and
 * chunks. */
static void any_shares_meet_the_count(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int n = 0; n < 300; n++) {
        int mesh = n % MESHES;
        volume_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT};
        c.problem.batch = 1 + random_below(&seed, 3);
        c.problem.kv_heads = 1 + random_below(&seed, 5);
        c.problem.heads = c.problem.kv_heads * (1 + random_below(&seed, 4));
        c.problem.head_dim = 1 + random_below(&seed, 9);
        c.problem.q_len = random_below(&seed, 40);
        c.problem.kv_len = random_below(&seed, 40);
        c.problem.dtype = random_below(&seed, 2) ? ITH_F16 : ITH_F32;
        c.options.strategy = meshes[mesh].strategy;
        c.options.ulysses = meshes[mesh].ulysses;
        c.options.chunks = 1 + (int)random_below(&seed, 4);
        c.options.softmax = random_below(&seed, 2) ? ITH_SOFTMAX_FIXED_M : ITH_SOFTMAX_ONLINE;
        c.options.fold = random_below(&seed, 2) ? ITH_CHOICE_OFF : ITH_CHOICE_ON;
        c.options.direction = random_below(&seed, 2) ? ITH_DIRECTION_BIDIR : ITH_DIRECTION_UNI;
        c.options.exchange = (ith_exchange_mode)random_between(&seed, ITH_EXCHANGE_IN_PLACE, ITH_EXCHANGE_MIXED);
        if (c.options.exchange == ITH_EXCHANGE_MIXED && meshes[mesh].ulysses == 1)
            c.options.exchange = ITH_EXCHANGE_COPY; /* with such a mesh `mixed` is the same as `copy` */
        if (c.options.exchange == ITH_EXCHANGE_MIXED && meshes[mesh].ring == 1)
            c.options.exchange = ITH_EXCHANGE_IN_PLACE;
        run_volume(&c, meshes[mesh].ulysses * meshes[mesh].ring);
        check_census(&c, meshes[mesh].ulysses, meshes[mesh].ring);
    }
}

/* By messages whole shards travel. In place, keys beyond kv_lengths are not read. */
static void keys_behind_lengths(void **state)
{
    (void)state;
    const int32_t lengths[2] = {7, 0}; /* on ranks 0 and 1: 4 and 3 keys of entry 0, none of entry 1 */
    for (int n = 0; n < 4; n++) {
        volume_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .kv_lengths = lengths};
        c.problem.batch = c.problem.heads = 2;
        c.problem.head_dim = 8;
        c.problem.q_len = c.problem.kv_len = 8;
        c.problem.has_kv_lengths = true;
        c.options.strategy = n & 1 ? ITH_STRATEGY_RING : ITH_STRATEGY_ULYSSES;
        c.options.exchange = n & 2 ? ITH_EXCHANGE_COPY : ITH_EXCHANGE_IN_PLACE;
        run_volume(&c, 2);
        int64_t row = 8 * 4; /* bytes of one head */
        for (int rank = 0; rank < 2; rank++) {
            /* A ring reads both heads of the other's shard of entry 0. In ulysses rank 0 computes entry 0, rank 1 entry
             * 1; each sends 4 rows of q and of o, for 2 heads. */
            int64_t ring = 2 * 2 * (rank ? 3 : 4), ulysses = 2 * 2 * 4 + (rank ? 2 * 2 * 3 : 0);
            int64_t expected = (n & 1 ? ring : ulysses) * row;
            assert_int_equal(c.sent[rank], n & 2 ? c.predicted[rank] : expected);
        }
    }
}

/* A single rank sends nothing, and ranks send no keys that every rank has. */
static void nothing_is_sent_for_nothing(void **state)
{
    (void)state;
    ith_context *context = NULL;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    p.heads = 6, p.head_dim = 16, p.q_len = p.kv_len = 100;
    assert_int_equal(ith_plan_predict(context, &p, NULL, 1, 0, false, &info), ITH_OK);
    assert_int_equal(info.sent_bytes, 0);
    p.replicated_kv = true;
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(ith_plan_predict(context, &p, NULL, 4, rank, rank % 2, &info), ITH_OK);
        assert_int_equal(info.sent_bytes, 0);
    }
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_shares_meet_the_formulas),
        cmocka_unit_test(any_shares_meet_the_count),
        cmocka_unit_test(keys_behind_lengths),
        cmocka_unit_test(nothing_is_sent_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
