/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of several ranks of one process: overlap is found, layouts in common buffers are not taken for overlap, and a
 * rank that is stuck does not hold the others. */
#include "attention/extents.h"
#include "base/clock.h"
#include "support/fixture.h"
#include "support/in_range.h"
#include "support/in_rank.h"
#include "support/random.h"
#include "support/times.h"

#include <stdlib.h>
#include <string.h>

/* ---- Two extents against a count of bytes ----------------------------------------------------------------------- */

enum { BYTES = 4096 };

/* Marks the bytes of an extent. Returns whether any of them was marked before. */
static bool mark(char bytes[BYTES], const ith_extent *e)
{
    bool marked = false;
    for (uintptr_t b = 0; b < e->batches; b++)
        for (uintptr_t s = 0; s < e->rows; s++)
            for (uintptr_t i = 0; i < e->width; i++) {
                char *byte = &bytes[e->begin + b * e->batch_stride + s * e->row_stride + i];
                marked |= *byte;
                *byte = 1;
            }
    return marked;
}

static bool share_a_byte(const ith_extent *a, const ith_extent *b)
{
    char bytes[BYTES] = {0};
    mark(bytes, a);
    return mark(bytes, b);
}

/* Strides of a layout [batch, rows, width] or [rows, batch, width] whose rows do not overlap. */
static void draw_strides(uint64_t *seed, ith_extent *e)
{
    const uintptr_t width = e->width + random_below(seed, 4), gap = random_below(seed, 6);
    if (e->batches == 1 || random_below(seed, 2)) {
        e->row_stride = width;
        e->batch_stride = e->batches == 1 ? e->row_stride : 6 * width + gap;
    } else {
        e->batch_stride = width;
        e->row_stride = 4 * width + gap;
    }
}

static ith_extent draw(uint64_t *seed)
{
    ith_extent e = {.begin = 1 + random_below(seed, 200), .width = 1 + random_below(seed, 9)};
    e.batches = 1 + random_below(seed, 4), e.rows = random_below(seed, 7);
    draw_strides(seed, &e);
    return e;
}

static void overlap_is_exact_with_equal_strides(void **state)
{
    (void)state;
    uint64_t seed = 5;
    int found = 0;
    for (int i = 0; i < 200000; i++) {
        ith_extent a = draw(&seed), b = draw(&seed);
        b.batches = a.batches, b.row_stride = a.row_stride, b.batch_stride = a.batch_stride;
        b.width = a.width;
        const bool share = share_a_byte(&a, &b);
        found += share;
        if (ith_extents_overlap(&a, &b) != share || ith_extents_overlap(&b, &a) != share)
            fail_msg("case %d: %d expected", i, share);
    }
    assert_true(in_range(found, 20000, 180000));
}

static void no_overlap_is_overlooked(void **state)
{
    (void)state;
    uint64_t seed = 6;
    for (int i = 0; i < 200000; i++) {
        const ith_extent a = draw(&seed), b = draw(&seed);
        if (share_a_byte(&a, &b) && !ith_extents_overlap(&a, &b))
            fail_msg("case %d", i);
    }
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

enum { RANKS = 4, BATCH = 2, HEADS = 4, DIM = 8, LENGTH = 22, ROW = HEADS * DIM, COUNT = BATCH * LENGTH * ROW };

/* Where the ranks' tensors lie, above all the rank's o: NEXT_Q in the next rank's q, NEXT_O in rank 0's o. ONE_LSE: all
 * ranks have the same lse. LSE_IN_LENGTHS: rank 0's lse lies over the kv_lengths of the others. */
typedef enum place { APART, GLOBAL, ROWS_FIRST, FUSED, O_IS_Q, NEXT_Q, NEXT_O, ONE_LSE, LSE_IN_LENGTHS, PLACES } place;

static const int32_t whole_lengths[BATCH] = {LENGTH, LENGTH};

/* The tensors of all ranks in common buffers. */
typedef struct scene {
    place where;
    ith_strategy strategy;
    ith_exchange_mode exchange;
    float *q, *k, *v, *o, *own[RANKS], *lse;
} scene;

static ith_attn_problem problem_of(place where)
{
    ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
    p.batch = BATCH, p.heads = HEADS, p.head_dim = DIM, p.q_len = p.kv_len = LENGTH;
    const int64_t row = where == ROWS_FIRST ? BATCH * ROW : where == FUSED ? 4 * ROW : ROW;
    p.has_kv_lengths = where == LSE_IN_LENGTHS;
    p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = row;
    const int64_t batch = where == ROWS_FIRST ? ROW : LENGTH * row;
    p.q_batch_stride = p.k_batch_stride = p.v_batch_stride = p.o_batch_stride = batch;
    return p;
}

static int64_t first_row(int rank)
{
    int64_t first, rows;
    ith_share(LENGTH, RANKS, rank % RANKS, &first, &rows);
    return first;
}

static ith_status attend(ith_context *rank_context, ith_comm *comm, void *user)
{
    const scene *s = user;
    const int rank = ith_comm_rank(comm);
    const ith_attn_problem problem = problem_of(s->where);
    const int64_t at = first_row(rank) * problem.q_row_stride, next = first_row(rank + 1) * problem.q_row_stride;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    options.strategy = s->strategy, options.exchange = s->exchange, options.threads = 1;
    t.q = s->q + at, t.k = s->k + at, t.v = s->v + at, t.o = s->o + at;
    if (s->where == APART)
        t.o = s->own[rank];
    if (s->where == O_IS_Q)
        t.o = s->q + at;
    if (s->where == NEXT_Q)
        t.o = s->q + next;
    if (s->where == NEXT_O)
        t.o = s->o;
    if (s->where == ONE_LSE)
        t.lse = s->lse;
    if (s->where == LSE_IN_LENGTHS) {
        t.lse = rank ? s->own[rank] : s->lse;
        t.kv_lengths = rank ? (const int32_t *)(const void *)s->lse : whole_lengths;
    }
    RANK_TRY(ith_plan_create(rank_context, &problem, &options, comm, &plan));
    const ith_status status = ith_plan_execute(plan, &t);
    ith_plan_destroy(&plan);
    RANK_TRY(ith_comm_barrier(comm)); /* the group goes on after a refusal */
    return status;
}

/* The words with which a place is refused; NULL: it is not refused. */
static const char *refusal(place where)
{
    switch (where) {
    case NEXT_Q: return "o of rank 0 overlaps q of rank 1 in memory: the outputs of a rank have memory of their own";
    case NEXT_O: return "o of rank 0 overlaps o of rank 1 in memory";
    case ONE_LSE: return "lse of rank 0 overlaps lse of rank 1 in memory";
    case LSE_IN_LENGTHS: return "lse of rank 0 overlaps kv_lengths of rank 1 in memory";
    default: return NULL;
    }
}

static void run_place(place where, ith_strategy strategy, ith_exchange_mode exchange)
{
    scene s = {.where = where, .strategy = strategy, .exchange = exchange};
    float *all = calloc(4 * COUNT, sizeof *all);
    uint64_t seed = 3;
    for (int i = 0; i < 3 * COUNT; i++)
        all[i] = random_signed(&seed);
    const int64_t apart = where == FUSED ? ROW : COUNT;
    s.q = all, s.k = all + apart, s.v = all + 2 * apart, s.o = all + 3 * apart;
    s.lse = calloc(BATCH * HEADS * LENGTH, sizeof *s.lse);
    if (where == LSE_IN_LENGTHS)
        memcpy(s.lse, whole_lengths, sizeof whole_lengths);
    for (int rank = 0; rank < RANKS; rank++)
        s.own[rank] = calloc(COUNT, sizeof(float));
    const ith_status status = ith_run_ranks(context, RANKS, 0, attend, &s);
    const char *words = refusal(where);
    assert_int_equal(status, words ? ITH_ERR_ARGUMENT : ITH_OK);
    if (words && !strstr(ith_context_error(context), words))
        fail_msg("place %d: %s", where, ith_context_error(context));
    for (int rank = 0; rank < RANKS; rank++)
        free(s.own[rank]);
    free(s.lse), free(all);
}

static void outputs_over_tensors_of_other_ranks_are_refused(void **state)
{
    (void)state;
    static const ith_strategy strategies[] = {ITH_STRATEGY_ULYSSES, ITH_STRATEGY_RING, ITH_STRATEGY_ULYSSES_RING};
    for (place where = APART; where < PLACES; where++)
        for (int i = 0; i < 3; i++) {
            run_place(where, strategies[i], ITH_EXCHANGE_IN_PLACE);
            run_place(where, strategies[i], ITH_EXCHANGE_COPY);
        }
}

/* ---- A rank that is stuck ---------------------------------------------------------------------------------------- */

enum { STUCK_LENGTH = 512 };
#define STUCK_SECONDS 3.0

static _Thread_local int rank_of_thread;
static atomic_bool gets_stuck;

/* Runs tasks one after the other, in place of the caller's threads (ith_parallel_fn). If gets_stuck is set, the tasks
 * of rank 1 begin late, once. */
static void run_tasks(void *user, int count, ith_task_fn task, void *task_user)
{
    (void)user;
    if (rank_of_thread == 1 && atomic_exchange(&gets_stuck, false))
        nap(STUCK_SECONDS);
    for (int i = 0; i < count; i++)
        task(task_user, i);
}

typedef struct late_rank {
    double seconds; /* that rank 0 spent in the execution */
    ith_status status;
} late_rank;

static ith_status execute_late(ith_context *rank_context, ith_comm *comm, void *user)
{
    late_rank *late = user;
    int64_t first, rows;
    const int rank = rank_of_thread = ith_comm_rank(comm);
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_attn_tensors t = ITH_ATTN_TENSORS_INIT;
    ith_plan *plan = NULL;
    problem.heads = 4, problem.head_dim = 64, problem.q_len = problem.kv_len = STUCK_LENGTH;
    options.threads = 2, options.exchange = ITH_EXCHANGE_COPY;
    ith_share(STUCK_LENGTH, 2, rank, &first, &rows);
    float *q = calloc((size_t)rows * 256, sizeof *q), *o = calloc((size_t)rows * 256, sizeof *o);
    t.q = t.k = t.v = q, t.o = o;
    ith_comm_set_timeout(comm, 0.3);
    RANK_TRY(ith_plan_create(rank_context, &problem, &options, comm, &plan));
    if (rank == 0)
        atomic_store(&gets_stuck, true);
    RANK_TRY(ith_comm_barrier(comm));
    const double begin = ith_clock_seconds();
    const ith_status status = ith_plan_execute(plan, &t);
    if (rank == 0)
        late->seconds = ith_clock_seconds() - begin, late->status = status;
    ith_plan_destroy(&plan);
    free(q), free(o);
    return status;
}

/* With messages, a rank whose own threads are stuck is left behind when the time limit has passed. */
static void a_stuck_rank_does_not_hold_the_others(void **state)
{
    (void)state;
    late_rank late = {0};
    ith_context *own = NULL;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.parallel = run_tasks;
    check(NULL, ith_context_create(&options, &own));
    ith_run_ranks(own, 2, 0, execute_late, &late);
    assert_int_equal(late.status, ITH_ERR_TIMEOUT);
    assert_true(late.seconds < 0.7 * STUCK_SECONDS);
    ith_context_destroy(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_is_exact_with_equal_strides),
        cmocka_unit_test(no_overlap_is_overlooked),
        cmocka_unit_test(outputs_over_tensors_of_other_ranks_are_refused),
        cmocka_unit_test(a_stuck_rank_does_not_hold_the_others),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
