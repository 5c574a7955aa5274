/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of plans: a plan holds the memory that was predicted; all ranks get an error if one rank gets no memory;
 * an execution allocates nothing. */
#include "comm/comm.h"
#include "kernels/kernel.h"
#include "support/in_rank.h"
#include "support/memory.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/memory.h"
#include "support/plan_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- Plans of every kind --------------------------------------------------------------------------------------- */

typedef struct plan_kind {
    int ranks;
    ith_strategy strategy;
    ith_exchange_mode exchange;
    ith_softmax softmax;
    ith_direction direction;
    int chunks;
    ith_choice fold;
} plan_kind;

static const plan_kind kinds[] = {
    {1, ITH_STRATEGY_SINGLE, ITH_EXCHANGE_AUTO, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {1, ITH_STRATEGY_SINGLE, ITH_EXCHANGE_AUTO, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_ULYSSES, ITH_EXCHANGE_IN_PLACE, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_ULYSSES, ITH_EXCHANGE_IN_PLACE, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 2, ITH_CHOICE_OFF},
    {3, ITH_STRATEGY_ULYSSES, ITH_EXCHANGE_COPY, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_ULYSSES, ITH_EXCHANGE_COPY, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 2, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_ULYSSES, ITH_EXCHANGE_COPY, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 4, ITH_CHOICE_OFF},
    {3, ITH_STRATEGY_RING, ITH_EXCHANGE_IN_PLACE, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_RING, ITH_EXCHANGE_IN_PLACE, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_BIDIR, 1, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_RING, ITH_EXCHANGE_COPY, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {3, ITH_STRATEGY_RING, ITH_EXCHANGE_COPY, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_BIDIR, 1, ITH_CHOICE_AUTO},
    {4, ITH_STRATEGY_ULYSSES_RING, ITH_EXCHANGE_IN_PLACE, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, ITH_CHOICE_AUTO},
    {4, ITH_STRATEGY_ULYSSES_RING, ITH_EXCHANGE_IN_PLACE, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_BIDIR, 1, ITH_CHOICE_OFF},
    {4, ITH_STRATEGY_ULYSSES_RING, ITH_EXCHANGE_COPY, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 3, ITH_CHOICE_AUTO},
    {4, ITH_STRATEGY_ULYSSES_RING, ITH_EXCHANGE_COPY, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_BIDIR, 2, ITH_CHOICE_OFF},
    {4, ITH_STRATEGY_ULYSSES_RING, ITH_EXCHANGE_MIXED, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 3, ITH_CHOICE_AUTO},
    {4, ITH_STRATEGY_ULYSSES_RING, ITH_EXCHANGE_MIXED, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_BIDIR, 2, ITH_CHOICE_OFF},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static ith_attn_options options_of(const plan_kind *kind)
{
    ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
    o.strategy = kind->strategy;
    o.exchange = kind->exchange;
    o.softmax = kind->softmax;
    o.direction = kind->direction;
    o.chunks = kind->chunks;
    o.fold = kind->fold;
    return o;
}

/* The first kernel of the table that runs on this machine and takes every problem of this file. */
static const char *usable_kernel(void)
{
    ith_context *context = NULL;
    const ith_attn_kernel *kernel;
    bool found = false;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int i = 0; !found && (kernel = ith_attn_kernel_at(i)); i++)
        found = !(kernel->cpu & ~ith_context_cpu(context)) && kernel->supports(ITH_F32, 8, ITH_SOFTMAX_FIXED_M) &&
                kernel->supports(ITH_BF16, 128, ITH_SOFTMAX_FIXED_M) &&
                kernel->supports(ITH_F16, 64, ITH_SOFTMAX_FIXED_M);
    ith_context_destroy(&context);
    assert_true(found);
    return kernel->name;
}

/* ---- Execution ------------------------------------------------------------------------------------------------- */

typedef struct meter {
    failing_allocator allocator;
    trial trial;
} meter;

/* Counts the allocations of an execution. It lies between two barriers, so that no other rank is still planning. */
static ith_status meter_execution(ith_context *context, ith_comm *comm, void *user)
{
    meter *m = user;
    float q[TRIAL_NUMBERS] = {0}, k[TRIAL_NUMBERS] = {0}, v[TRIAL_NUMBERS] = {0}, o[TRIAL_NUMBERS], lse[TRIAL_NUMBERS];
    ith_attn_tensors tensors = {.struct_size = sizeof(ith_attn_tensors), .q = q, .k = k, .v = v, .o = o, .lse = lse};
    ith_plan *plan = NULL;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    RANK_TRY(ith_plan_create(context, &m->trial.problem, &m->trial.options, comm, &plan));
    RANK_TRY(ith_comm_barrier(comm));
    long before = atomic_load(&m->allocator.calls);
    RANK_TRY(ith_plan_execute(plan, &tensors));
    RANK_TRY(ith_plan_execute(plan, &tensors));
    RANK_CHECK(context, atomic_load(&m->allocator.calls) == before);
    RANK_TRY(ith_plan_count(plan, &counters));
    RANK_CHECK(context, counters.executions == 2 && counters.seconds > 0);
    RANK_TRY(ith_comm_barrier(comm));
    ith_plan_destroy(&plan);
    return ITH_OK;
}

static void execution_allocates_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        meter m = {.trial = new_trial()};
        m.trial.options = options_of(&kinds[i]);
        ith_context *context = failing_context(&m.allocator, -1);
        ith_status status = ith_run_ranks(context, kinds[i].ranks, 0, meter_execution, &m);
        if (status)
            print_error("kind %d: %s\n", i, ith_context_error(context));
        assert_int_equal(status, ITH_OK);
        ith_context_destroy(&context);
        assert_int_equal(atomic_load(&m.allocator.held), 0);
    }
}

/* ---- Allocations that fail ------------------------------------------------------------------------------------- */

/* Refuses the n-th allocation that one rank's thread makes. */
typedef struct picky_allocator {
    ith_allocator table;
    int rank;
    long refuse;
    bool refused;
    atomic_long held;
    trial trial;
} picky_allocator;

static _Thread_local int this_rank = -1;
static _Thread_local long calls_of_rank;

static void *picky_allocate(void *user, size_t bytes, size_t alignment)
{
    picky_allocator *self = user;
    void *block = NULL;
    if (this_rank == self->rank && calls_of_rank++ == self->refuse) {
        self->refused = true;
        return NULL;
    }
    if (posix_memalign(&block, alignment, bytes))
        return NULL;
    atomic_fetch_add(&self->held, 1);
    return block;
}

static void picky_release(void *user, void *block)
{
    picky_allocator *self = user;
    atomic_fetch_sub(&self->held, 1);
    free(block);
}

/* Makes a plan. It succeeds on all ranks or fails on all, and afterwards the group still works. */
static ith_status plan_picky(ith_context *context, ith_comm *comm, void *user)
{
    picky_allocator *self = user;
    ith_plan *plan = NULL, *again = NULL;
    this_rank = ith_comm_rank(comm);
    calls_of_rank = 0;
    ith_status status = ith_plan_create(context, &self->trial.problem, &self->trial.options, comm, &plan);
    this_rank = -1;
    RANK_CHECK(context, !status == (plan != NULL));
    RANK_CHECK(context, status == ITH_OK || (status == ITH_ERR_MEMORY && ith_context_error(context)[0]));
    float failed = status != ITH_OK;
    RANK_TRY(ith_comm_allreduce(comm, &failed, 1, ITH_REDUCE_SUM));
    RANK_CHECK(context, failed == (status ? (float)ith_comm_size(comm) : 0));
    RANK_TRY(ith_plan_create(context, &self->trial.problem, &self->trial.options, comm, &again));
    ith_plan_destroy(&again);
    ith_plan_destroy(&plan);
    self->trial.seen[ith_comm_rank(comm)] = status;
    return ITH_OK;
}

/* Makes the plan again and again, and refuses one allocation of a rank each time: the first, then the second, and so
 * on. */
static void refuse_each(const plan_kind *kind, const char *kernel, int rank)
{
    for (long refuse = 0, done = 0; !done; refuse++) {
        assert_true(refuse < 1000);
        picky_allocator self = {.rank = rank, .refuse = refuse, .trial = new_trial()};
        self.table = (ith_allocator){sizeof(ith_allocator), picky_allocate, picky_release, &self};
        self.trial.options = options_of(kind);
        self.trial.options.kernel = kernel;
        ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
        options.allocator = &self.table;
        ith_context *context = NULL;
        assert_int_equal(ith_context_create(&options, &context), ITH_OK);
        ith_status status = ith_run_ranks(context, kind->ranks, 0, plan_picky, &self);
        if (status)
            print_error("kind %d, allocation %ld of rank %d: %s\n", (int)(kind - kinds), refuse, rank,
                        ith_context_error(context));
        assert_int_equal(status, ITH_OK);
        for (int i = 0; i < kind->ranks; i++)
            assert_int_equal(self.trial.seen[i], self.refused ? ITH_ERR_MEMORY : ITH_OK);
        done = !self.refused;
        assert_int_equal(memory_of(context).current_bytes, 0);
        ith_context_destroy(&context);
        assert_int_equal(atomic_load(&self.held), 0);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *kernel = usable_kernel();
    for (int i = 0; i < KINDS; i++)
        for (int rank = 0; rank < kinds[i].ranks; rank++)
            refuse_each(&kinds[i], kernel, rank);
    refuse_each(&kinds[0], NULL, 0); /* without a name, kernels are measured if the options ask for it */
    for (int rank = 0; rank < 3; rank++)
        refuse_each(&kinds[2], NULL, rank);
}

/* ---- Predictions ----------------------------------------------------------------------------------------------- */

typedef struct forecast {
    ith_attn_problem problem;
    ith_attn_options options;
} forecast;

static ith_status check_same(ith_context *context, const ith_plan_info *a, const ith_plan_info *b)
{
    RANK_CHECK(context, a->strategy == b->strategy && a->ranks == b->ranks);
    RANK_CHECK(context, a->ulysses == b->ulysses && a->ring == b->ring);
    RANK_CHECK(context, a->direction == b->direction && a->exchange == b->exchange);
    RANK_CHECK(context, a->chunks == b->chunks && a->folded == b->folded);
    RANK_CHECK(context, a->softmax == b->softmax && a->smoothed == b->smoothed);
    RANK_CHECK(context, a->kernel == b->kernel && a->block_q == b->block_q && a->block_kv == b->block_kv);
    RANK_CHECK(context, a->block_kv_compute == b->block_kv_compute);
    RANK_CHECK(context, a->block_kv_compute_in == b->block_kv_compute_in);
    RANK_CHECK(context, a->threads == b->threads && a->sent_bytes == b->sent_bytes);
    RANK_CHECK(context, a->memory_bytes == b->memory_bytes);
    return ITH_OK;
}

/* The bytes of the communicators of a mesh's two axes, on all ranks together. A plan owns them besides its memory. */
static ith_status measure_axes(ith_context *context, ith_comm *comm, const ith_plan_info *mesh, int64_t *bytes)
{
    ith_comm *ulysses = NULL, *ring = NULL;
    int rank = ith_comm_rank(comm);
    *bytes = 0;
    if (mesh->strategy != ITH_STRATEGY_ULYSSES_RING)
        return ITH_OK;
    int64_t before = memory_of(context).current_bytes;
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(ith_comm_split(comm, rank / mesh->ulysses, rank, &ulysses));
    RANK_TRY(ith_comm_split(comm, rank % mesh->ulysses, rank, &ring));
    RANK_TRY(ith_comm_barrier(comm));
    *bytes = memory_of(context).current_bytes - before;
    RANK_TRY(ith_comm_barrier(comm));
    ith_comm_destroy(&ulysses);
    ith_comm_destroy(&ring);
    return ith_comm_barrier(comm);
}

/* Adds up the memory that is predicted for the plans of all ranks, and the memory that the plans then hold. */
static ith_status foresee(ith_context *context, ith_comm *comm, void *user)
{
    const forecast *f = user;
    ith_plan_info predicted = ITH_PLAN_INFO_INIT, made = ITH_PLAN_INFO_INIT;
    ith_plan *plan = NULL;
    int ranks = ith_comm_size(comm);
    RANK_TRY(ith_plan_predict(context, &f->problem, &f->options, ranks, ith_comm_rank(comm), true, &predicted));
    int64_t axes, all[TRIAL_RANKS], sum = 0;
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(measure_axes(context, comm, &predicted, &axes));
    int64_t before = memory_of(context).current_bytes;
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(ith_plan_create(context, &f->problem, &f->options, comm, &plan));
    RANK_TRY(ith_comm_barrier(comm));
    int64_t held = memory_of(context).current_bytes - before - axes;
    RANK_TRY(ith_comm_allgather(comm, &predicted.memory_bytes, sizeof(int64_t), all));
    for (int i = 0; i < ranks; i++)
        sum += all[i];
    if ((double)held < (double)sum || (double)held > 1.05 * (double)sum)
        return ith_fail(context, ITH_ERR_INTERNAL, "%lld bytes predicted, %lld held", (long long)sum, (long long)held);
    RANK_TRY(ith_plan_describe(plan, &made));
    RANK_TRY(check_same(context, &predicted, &made));
    RANK_TRY(ith_comm_barrier(comm));
    ith_plan_destroy(&plan);
    return ITH_OK;
}

static void predictions_come_true(void **state)
{
    (void)state;
    static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
    const char *kernel = usable_kernel();
    for (int i = 0; i < KINDS; i++)
        for (int n = 0; n < 4; n++) {
            forecast f = {.problem = ITH_ATTN_PROBLEM_INIT, .options = options_of(&kinds[i])};
            f.problem.batch = 2;
            f.problem.heads = n % 2 ? 6 : 5;
            f.problem.kv_heads = n % 2 ? 2 : 0;
            f.problem.head_dim = n == 3 ? 128 : 64;
            f.problem.q_len = 1501;
            f.problem.kv_len = n == 2 ? 377 : 1999;
            f.problem.dtype = types[n % 3];
            f.problem.replicated_kv = n == 2 && i % 2;
            f.options.kernel = kernel;
            ith_context *context = NULL;
            assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
            ith_status status = ith_run_ranks(context, kinds[i].ranks, 2 * kinds[i].ranks, foresee, &f);
            if (status)
                print_error("kind %d, problem %d: %s\n", i, n, ith_context_error(context));
            assert_int_equal(status, ITH_OK);
            ith_context_destroy(&context);
        }
}

/* At most three chunks are in memory at a time, so more chunks take less memory. */
static void chunks_save_memory(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    omp_set_num_threads(1);
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
        ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
        ith_plan_info info = ITH_PLAN_INFO_INIT;
        p.heads = 24, p.head_dim = 64, p.q_len = p.kv_len = 20000;
        o.strategy = ITH_STRATEGY_ULYSSES, o.exchange = ITH_EXCHANGE_COPY, o.chunks = i ? 12 : 1;
        assert_int_equal(ith_plan_predict(context, &p, &o, 2, 0, false, &info), ITH_OK);
        assert_int_equal(info.chunks, i ? 12 : 1);
        bytes[i] = info.memory_bytes;
    }
    int64_t exchanged = 4LL * 20000 * 12 * 64 * 4; /* q, k, v, o of this rank's heads */
    assert_true(bytes[0] >= exchanged);
    assert_true(bytes[0] - bytes[1] >= exchanged - exchanged * 3 / 12 - exchanged / 20);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(execution_allocates_nothing),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(predictions_come_true),
        cmocka_unit_test(chunks_save_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
