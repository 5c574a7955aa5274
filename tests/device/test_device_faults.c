/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on a device: they hold the predicted memory, and executions allocate nothing; allocations and calls of the
 * device that fail; cancellation; misuse; the caller's stream. ITHACA_TEST_DEVICE names the device. */
#include "base/clock.h"
#include "device/device_fixture.h"
#include "support/attention_case.h"
#include "support/execution_scene.h"
#include "support/in_rank.h"
#include "support/rank_group.h"
#include "support/refused.h"
#include "support/times.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plans of every kind ----------------------------------------------------------------------------------------- */

typedef struct plan_kind {
    int ranks, ulysses;
    ith_softmax softmax;
    ith_direction direction;
    int chunks;
    bool lengths;
    ith_mask mask;
} plan_kind;

static const plan_kind kinds[] = {
    {1, 1, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 1, true, ITH_MASK_NONE},
    {1, 1, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 1, false, ITH_MASK_BOOL},
    {2, 2, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_UNI, 2, false, ITH_MASK_ADDITIVE},
    {3, 3, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 1, true, ITH_MASK_NONE},
    {2, 1, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 1, false, ITH_MASK_NONE},
    {3, 1, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_BIDIR, 1, true, ITH_MASK_BOOL},
    {4, 2, ITH_SOFTMAX_FIXED_M, ITH_DIRECTION_UNI, 2, true, ITH_MASK_NONE},
    {4, 2, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_BIDIR, 1, false, ITH_MASK_NONE},
};
enum { KINDS = sizeof kinds / sizeof *kinds, MOST_RANKS = 4 };

/* A case of a kind with `length` queries and keys. Its tensors are not filled. */
static attention_case kind_case(const plan_kind *kind, int64_t length)
{
    attention_case c = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .wants_lse = true};
    c.problem.batch = 2, c.problem.heads = 6, c.problem.kv_heads = 3, c.problem.head_dim = 32;
    c.problem.q_len = length, c.problem.kv_len = length + 7, c.problem.dtype = ITH_F32;
    c.problem.has_kv_lengths = kind->lengths, c.problem.mask = kind->mask;
    c.options.ulysses = kind->ulysses, c.options.ring = kind->ranks / kind->ulysses;
    c.options.softmax = kind->softmax, c.options.direction = kind->direction, c.options.chunks = kind->chunks;
    return c;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* The predicted memory of the plans of all ranks. */
typedef struct forecast {
    attention_case c;
    int64_t host, device; /* predicted bytes of all ranks */
} forecast;

static int64_t device_held(void)
{
    return device_fake ? atomic_load(&device_fake->device_held) : -device_free_bytes();
}

/* The bytes of the communicators of a mesh's two axes, which a plan holds besides its memory. Collective. */
static ith_status measure_axes(ith_context *rank_context, ith_comm *comm, const ith_plan_info *mesh, int64_t *bytes)
{
    ith_comm *ulysses = NULL, *ring = NULL;
    const int rank = ith_comm_rank(comm);
    *bytes = 0;
    if (mesh->strategy != ITH_STRATEGY_ULYSSES_RING)
        return ITH_OK;
    const int64_t before = memory_of(rank_context).current_bytes;
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(ith_comm_split(comm, rank / mesh->ulysses, rank, &ulysses));
    RANK_TRY(ith_comm_split(comm, rank % mesh->ulysses, rank, &ring));
    RANK_TRY(ith_comm_barrier(comm));
    *bytes = memory_of(rank_context).current_bytes - before;
    RANK_TRY(ith_comm_barrier(comm));
    ith_comm_destroy(&ulysses);
    ith_comm_destroy(&ring);
    return ith_comm_barrier(comm);
}

/* Adds up the predicted memory of all ranks' plans. */
static ith_status sum_predictions(ith_comm *comm, const ith_plan_info *info, forecast *f)
{
    int64_t mine[2] = {info->memory_bytes, info->device_bytes}, all[MOST_RANKS][2];
    RANK_TRY(ith_comm_allgather(comm, mine, sizeof mine, all));
    if (ith_comm_rank(comm) > 0)
        return ITH_OK;
    f->host = f->device = 0;
    for (int rank = 0; rank < ith_comm_size(comm); rank++)
        f->host += all[rank][0], f->device += all[rank][1];
    return ITH_OK;
}

/* On rank 0: compares the memory that the plans hold with the prediction. A GPU hands out memory in large pieces. */
static ith_status check_held(ith_context *rank_context, ith_comm *comm, const forecast *f, int64_t host, int64_t device)
{
    const int64_t slack = device_fake ? ith_comm_size(comm) : ith_comm_size(comm) * ((int64_t)64 << 20);
    if (ith_comm_rank(comm) > 0)
        return ITH_OK;
    if (host < f->host || (double)host > 1.05 * (double)f->host)
        return ith_fail(rank_context, ITH_ERR_INTERNAL, "%lld bytes of the host predicted, %lld held",
                        (long long)f->host, (long long)host);
    if (llabs(device - f->device) > slack)
        return ith_fail(rank_context, ITH_ERR_INTERNAL, "%lld bytes of the device predicted, %lld held",
                        (long long)f->device, (long long)device);
    return ITH_OK;
}

static ith_status foresee(ith_context *rank_context, ith_comm *comm, void *user)
{
    forecast *f = user;
    ith_plan_info predicted = ITH_PLAN_INFO_INIT, made = ITH_PLAN_INFO_INIT;
    ith_plan *plan = NULL;
    const bool first = ith_comm_rank(comm) == 0;
    int64_t axes;
    RANK_TRY(ith_plan_predict(rank_context, &f->c.problem, &f->c.options, ith_comm_size(comm), ith_comm_rank(comm),
                              true, &predicted));
    RANK_TRY(sum_predictions(comm, &predicted, f));
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(measure_axes(rank_context, comm, &predicted, &axes));
    const int64_t host = memory_of(rank_context).current_bytes, device = first ? device_held() : 0;
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(ith_plan_create(rank_context, &f->c.problem, &f->c.options, comm, &plan));
    RANK_TRY(ith_plan_describe(plan, &made));
    RANK_CHECK(rank_context, made.memory_bytes == predicted.memory_bytes);
    RANK_CHECK(rank_context, made.device_bytes == predicted.device_bytes && made.device_bytes > 0);
    RANK_CHECK(rank_context, made.sent_bytes == predicted.sent_bytes && made.kernel == predicted.kernel);
    RANK_TRY(ith_comm_barrier(comm));
    RANK_TRY(check_held(rank_context, comm, f, memory_of(rank_context).current_bytes - host - axes,
                        first ? device_held() - device : 0));
    RANK_TRY(ith_comm_barrier(comm));
    ith_plan_destroy(&plan);
    RANK_TRY(ith_comm_barrier(comm));
    RANK_CHECK(rank_context, !first || !device_fake || device_held() == device);
    return ith_comm_barrier(comm);
}

static void memory_is_as_predicted(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        forecast f = {.c = kind_case(&kinds[i], device_fake ? 300 : 20000)};
        f.c.problem.mask = ITH_MASK_NONE; /* the mask would be memory of the caller */
        if (ith_run_ranks(context, kinds[i].ranks, 0, foresee, &f))
            fail_msg("kind %d: %s", i, ith_context_error(context));
    }
}

/* ---- Executions -------------------------------------------------------------------------------------------------- */

/* Makes a plan and executes it once. user: an attention_case. */
static ith_status plan_and_execute(ith_context *rank_context, ith_comm *comm, void *user)
{
    const attention_case *c = user;
    case_placed placed;
    ith_plan *plan = NULL;
    RANK_TRY(case_place(rank_context, comm, c, &placed));
    ith_status status = ith_plan_create(rank_context, &placed.problem, &c->options, comm, &plan);
    if (!status)
        status = ith_plan_execute(plan, &placed.tensors);
    ith_plan_destroy(&plan);
    case_leave(&placed);
    return status;
}

/* Counts the allocations of executions. */
typedef struct meter {
    attention_case c;
    failing_allocator allocator;
} meter;

static ith_status meter_executions(ith_context *rank_context, ith_comm *comm, void *user)
{
    meter *m = user;
    case_placed placed;
    ith_plan *plan = NULL;
    RANK_TRY(case_place(rank_context, comm, &m->c, &placed));
    RANK_TRY(ith_plan_create(rank_context, &placed.problem, &m->c.options, comm, &plan));
    RANK_TRY(ith_comm_barrier(comm));
    const long calls = atomic_load(&m->allocator.calls);
    const int64_t device = device_fake ? device_held() : 0;
    const long streams = device_fake ? atomic_load(&device_fake->streams) : 0;
    for (int i = 0; i < 3; i++)
        RANK_TRY(ith_plan_execute(plan, &placed.tensors));
    RANK_CHECK(rank_context, atomic_load(&m->allocator.calls) == calls);
    RANK_CHECK(rank_context, !device_fake || device_held() == device);
    RANK_CHECK(rank_context, !device_fake || atomic_load(&device_fake->streams) == streams);
    RANK_TRY(ith_comm_barrier(comm));
    ith_plan_destroy(&plan);
    case_leave(&placed);
    return ITH_OK;
}

static void executions_allocate_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        meter m = {.c = kind_case(&kinds[i], 40)};
        case_fill(&m.c, 1, 0);
        ith_context *own = failing_context(&m.allocator, -1);
        check(own, ith_context_use_device(own, device_name));
        if (ith_run_ranks(own, kinds[i].ranks, 0, meter_executions, &m))
            fail_msg("kind %d: %s", i, ith_context_error(own));
        ith_context_destroy(&own);
        case_free(&m.c);
    }
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

static ith_status try_alone(ith_context *own, void *user)
{
    RANK_TRY(ith_context_use_device(own, device_name));
    return plan_and_execute(own, NULL, user);
}

static void allocations_of_the_host_may_fail(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS && kinds[i].ranks == 1; i++) {
        attention_case c = kind_case(&kinds[i], 30);
        case_fill(&c, 3, 0);
        assert_true(refuse_every_allocation(try_alone, &c, 1) > 0);
        case_free(&c);
    }
}

/* Runs a case again and again; each time another call fails: number n = 0, 1, ... from the beginning. calls, refuse:
 * fields of fake_control_table, the count of calls and the number of the call that fails. After each failure all ranks
 * have a sentence with one of two texts, and no memory is lost. A group of one rank goes on. */
static void fail_each(int kind, atomic_long *calls, atomic_long *refuse, const char *words, const char *other)
{
    attention_case c = kind_case(&kinds[kind], 20);
    case_fill(&c, 4, 0);
    const long streams = atomic_load(&device_fake->streams);
    const int64_t device = device_held(), pinned = atomic_load(&device_fake->pinned_held);
    bool refused = true;
    for (long n = 0; refused; n += n < 60 ? 1 : 7) {
        atomic_store(refuse, atomic_load(calls) + n);
        const ith_status status = ith_run_ranks(context, kinds[kind].ranks, 0, plan_and_execute, &c);
        refused = atomic_load(calls) > atomic_load(refuse);
        atomic_store(refuse, -1);
        const bool says = strstr(ith_context_error(context), words) || strstr(ith_context_error(context), other);
        if (!status != !refused || (refused && !says))
            fail_msg("kind %d, call %ld: %s: %s", kind, n, ith_status_name(status), ith_context_error(context));
        if (refused && kinds[kind].ranks == 1 && strstr(ith_context_error(context), "the group has ended"))
            fail_msg("kind %d, call %ld: one rank: %s", kind, n, ith_context_error(context));
        assert_int_equal(device_held(), device);
        assert_int_equal(atomic_load(&device_fake->pinned_held), pinned);
        assert_int_equal(atomic_load(&device_fake->streams), streams);
        assert_int_equal(memory_of(context).current_bytes, 0);
    }
    case_free(&c);
}

/* Calls of the module fail at once. Operations fail when the device runs them. Then other operations may fail because
 * they need their results, so any sentence about the device is right. */
static void calls_of_the_device_may_fail(void **state)
{
    (void)state;
    for (int kind = 0; device_fake && kind < KINDS; kind++) {
        fail_each(kind, &device_fake->calls, &device_fake->refuse, "the test refuses", "could not read its mask");
        fail_each(kind, &device_fake->runs, &device_fake->fail, device_use->name, "could not read its mask");
    }
}

static void a_device_may_have_too_little_memory(void **state)
{
    (void)state;
    ith_attn_problem p = ITH_ATTN_PROBLEM_INIT;
    ith_plan *plan = NULL;
    p.heads = 1024, p.head_dim = 128, p.q_len = p.kv_len = 1 << 20, p.dtype = ITH_BF16;
    p.has_kv_lengths = true; /* keys are packed */
    REFUSED_AS(ITH_ERR_MEMORY, context, "are free", ith_plan_create(context, &p, NULL, NULL, &plan));
    assert_null(plan);
    assert_non_null(strstr(ith_context_error(context), device_use->name));
    void *memory = NULL;
    REFUSED_AS(ITH_ERR_MEMORY, context, "are free", ith_device_allocate(context, (int64_t)1 << 45, &memory));
    attention_case c = kind_case(&kinds[0], 30); /* the device works as before */
    case_fill(&c, 5, 0);
    check(context, plan_and_execute(context, NULL, &c));
    case_free(&c);
}

/* ---- Cancellation ------------------------------------------------------------------------------------------------ */

enum { LONG_HEADS = 4 };

/* A long execution: v is 1 everywhere, so that o is 1. kv_length shortens it. */
typedef struct long_run {
    ith_attn_problem problem;
    ith_attn_options options;
    int ranks;
    int32_t kv_length;
    ith_plan *plans[MOST_RANKS];
    atomic_int begun;
    int canceller; /* the rank whose plan is cancelled */
    double after;  /* seconds until its plan is cancelled */
    /* NULL, or the caller's stream of one rank, which has work when the plan is cancelled */
    struct ith_device_stream *busy;
    _Atomic double cancelled, ended; /* cancelled: if `busy` ends later, the time of its end */
} long_run;

static void *cancel_soon(void *user)
{
    long_run *run = user;
    char said[ITH_DEVICE_SENTENCE] = "";
    bool done = !run->busy;
    while (atomic_load(&run->begun) < run->ranks)
        nap(1e-3);
    nap(run->after);
    atomic_store(&run->cancelled, ith_clock_seconds());
    ith_plan_cancel(run->plans[run->canceller]);
    while (!done && !device_use->module->query(run->busy, &done, said))
        atomic_store(&run->cancelled, ith_clock_seconds());
    return NULL;
}

/* A tensor of this rank on the device, in which every number is `value`. */
static ith_status fill_tensor(ith_context *rank_context, int64_t count, float value, void **out)
{
    float *numbers = malloc((size_t)count * sizeof *numbers + 1);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = value;
    ith_status status = ith_device_allocate(rank_context, count * (int64_t)sizeof *numbers, out);
    if (!status)
        status = ith_device_copy(rank_context, *out, numbers, count * (int64_t)sizeof *numbers);
    free(numbers);
    return status;
}

/* Whether the first and the last row of o are 1. */
static ith_status check_ones(ith_context *rank_context, const float *o, int64_t count)
{
    float ends[2] = {0};
    RANK_TRY(ith_device_copy(rank_context, ends, o, sizeof *ends));
    RANK_TRY(ith_device_copy(rank_context, ends + 1, o + count - 1, sizeof *ends));
    RANK_CHECK(rank_context, fabsf(ends[0] - 1) < 1e-5f && fabsf(ends[1] - 1) < 1e-5f);
    return ITH_OK;
}

/* Executes three times with the tensors of this rank: cancelled by another thread, cancelled before it begins, not
 * cancelled. */
static ith_status execute_cancelled(ith_context *rank_context, ith_comm *comm, long_run *run, ith_attn_tensors *tensors,
                                    int64_t count)
{
    const int rank = ith_comm_rank(comm);
    pthread_t thread;
    tensors->kv_lengths = &run->kv_length;
    tensors->stream = run->busy ? device_use->module->raw_stream(run->busy) : NULL;
    if (rank == 0)
        pthread_create(&thread, NULL, cancel_soon, run);
    atomic_fetch_add(&run->begun, 1);
    const ith_status status = ith_plan_execute(run->plans[rank], tensors);
    atomic_store(&run->ended, ith_clock_seconds()); /* nearly the time at which the last rank ended */
    if (rank == 0)
        pthread_join(thread, NULL);
    RANK_CHECK(rank_context, status == ITH_ERR_INTERRUPTED);
    RANK_CHECK(rank_context, strstr(ith_context_error(rank_context), "cancelled"));
    RANK_TRY(ith_comm_barrier(comm));
    if (rank == 0) {
        run->kv_length = 9;
        ith_plan_cancel(run->plans[run->canceller]);
    }
    RANK_TRY(ith_comm_barrier(comm));
    RANK_CHECK(rank_context, ith_plan_execute(run->plans[rank], tensors) == ITH_ERR_INTERRUPTED);
    RANK_TRY(ith_plan_execute(run->plans[rank], tensors));
    return check_ones(rank_context, tensors->o, count);
}

static ith_status run_long(ith_context *rank_context, ith_comm *comm, void *user)
{
    long_run *run = user;
    const int rank = ith_comm_rank(comm);
    int64_t begin, rows;
    void *q = NULL, *k = NULL, *v = NULL, *o = NULL;
    ith_share(run->problem.q_len, run->ranks, rank, &begin, &rows);
    const int64_t count = rows * run->problem.heads * run->problem.head_dim;
    RANK_TRY(fill_tensor(rank_context, count, 0, &q));
    RANK_TRY(fill_tensor(rank_context, count, 0, &k));
    RANK_TRY(fill_tensor(rank_context, count, 1, &v));
    RANK_TRY(fill_tensor(rank_context, count, 0, &o));
    ith_attn_tensors tensors = {.struct_size = sizeof tensors, .q = q, .k = k, .v = v, .o = o};
    ith_status status = ith_plan_create(rank_context, &run->problem, &run->options, comm, &run->plans[rank]);
    if (!status)
        status = execute_cancelled(rank_context, comm, run, &tensors, count);
    ith_plan_destroy(&run->plans[rank]);
    ith_device_release(rank_context, q);
    ith_device_release(rank_context, k);
    ith_device_release(rank_context, v);
    ith_device_release(rank_context, o);
    return status;
}

/* Seconds from the cancellation to the end of the last rank. busy: NULL, or a stream with work. */
static double cancel_long(int ranks, int ulysses, ith_softmax softmax, double after, struct ith_device_stream *busy)
{
    long_run run = {.problem = ITH_ATTN_PROBLEM_INIT, .options = ITH_ATTN_OPTIONS_INIT, .ranks = ranks};
    run.problem.heads = LONG_HEADS, run.problem.head_dim = device_fake ? 8 : 32;
    run.problem.q_len = run.problem.kv_len = device_fake ? 12000 : 262144;
    run.problem.has_kv_lengths = true;
    run.kv_length = (int32_t)run.problem.kv_len;
    run.options.ulysses = ulysses, run.options.ring = ranks / ulysses, run.options.softmax = softmax;
    run.after = after, run.canceller = ranks - 1, run.busy = busy;
    if (ith_run_ranks(context, ranks, 0, run_long, &run))
        fail_msg("%d ranks, ulysses %d: %s", ranks, ulysses, ith_context_error(context));
    return atomic_load(&run.ended) - atomic_load(&run.cancelled);
}

/* fake:0 and fake:1 are left out: their work runs in the thread that should notice the cancellation. */
static void executions_are_cancelled(void **state)
{
    (void)state;
    static const struct {
        int ranks, ulysses;
        ith_softmax softmax;
    } ways[] = {{1, 1, ITH_SOFTMAX_ONLINE},
                {1, 1, ITH_SOFTMAX_FIXED_M},
                {4, 4, ITH_SOFTMAX_ONLINE},
                {4, 1, ITH_SOFTMAX_ONLINE},
                {4, 2, ITH_SOFTMAX_FIXED_M}};
    if (device_fake && strcmp(device_use->name, "fake:2") != 0)
        return;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        /* ranks that share a GPU share its queues too (docs/perflog.md, Stopping a device) */
        const double soon = device_fake || ways[i].ranks > 1 ? 1.0 : 0.2;
        double late = cancel_long(ways[i].ranks, ways[i].ulysses, ways[i].softmax, 0.1, NULL);
        for (int n = 0; n < 3 && late > soon; n++) /* a busy machine may hold up a rank */
            late = cancel_long(ways[i].ranks, ways[i].ulysses, ways[i].softmax, 0.1, NULL);
        printf("cancelled on %d ranks, ulysses %d, %s: all ranks ended %.1f ms later\n", ways[i].ranks, ways[i].ulysses,
               ith_softmax_name(ways[i].softmax), 1e3 * late);
        assert_true(late <= soon);
    }
}

/* A cancellation that comes while the execution waits for the caller's stream counts when it begins. */
static void waiting_executions_are_cancelled(void **state)
{
    (void)state;
    const ith_device_module *module = device_use->module;
    const int64_t bytes = device_fake ? 256 << 20 : (int64_t)8 << 30;
    struct ith_device_stream *stream = NULL;
    void *memory = NULL;
    char said[ITH_DEVICE_SENTENCE] = "";
    if (device_fake && strcmp(device_use->name, "fake:2") != 0)
        return;
    assert_int_equal(module->create_stream(device_use->device, &stream, said), ITH_OK);
    check(context, ith_device_allocate(context, bytes, &memory));
    for (int i = 0; i < (device_fake ? 10 : 100); i++)
        assert_int_equal(module->fill(stream, memory, i, bytes, said), ITH_OK);
    const double late = cancel_long(1, 1, ITH_SOFTMAX_ONLINE, 0.02, stream);
    printf("cancelled while it waited for the caller's stream: ended %.1f ms after the stream\n", 1e3 * late);
    module->destroy_stream(stream);
    ith_device_release(context, memory);
    assert_true(late <= (device_fake ? 1.0 : 0.2));
}

/* ---- Misuse ------------------------------------------------------------------------------------------------------ */

/* An execution with a wrong tensor on one rank, or on all. */
typedef struct misuse {
    attention_case c;
    int tensor, odd; /* the number of the tensor in `names`; the rank that has it, -1: all */
    ith_status seen[MOST_RANKS];
    char sentence[1024];
} misuse;

static const char *const tensor_names[] = {"q", "k", "v", "o", "lse", "mask"};
enum { TENSORS = sizeof tensor_names / sizeof *tensor_names };

static void set_tensor(ith_attn_tensors *tensors, int tensor, void *data)
{
    const void **inputs[] = {&tensors->q, &tensors->k, &tensors->v};
    if (tensor < 3)
        *inputs[tensor] = data;
    else if (tensor == 3)
        tensors->o = data;
    else if (tensor == 4)
        tensors->lse = data;
    else
        tensors->mask = data;
}

static ith_status misuse_in_rank(ith_context *rank_context, ith_comm *comm, void *user)
{
    misuse *m = user;
    const int rank = ith_comm_rank(comm);
    const size_t bytes = (size_t)1 << 20;
    case_placed placed;
    ith_plan *plan = NULL;
    RANK_TRY(case_place(rank_context, comm, &m->c, &placed));
    ith_attn_tensors tensors = placed.tensors;
    void *host = calloc(1, bytes);
    if (m->odd < 0 || m->odd == rank)
        set_tensor(&tensors, m->tensor, host);
    ith_status status = ith_plan_create(rank_context, &placed.problem, &m->c.options, comm, &plan);
    if (!status)
        m->seen[rank] = ith_plan_execute(plan, &tensors);
    if (rank == 0)
        snprintf(m->sentence, sizeof m->sentence, "%s", ith_context_error(rank_context));
    if (!status) /* the plan works as before */
        status = ith_plan_execute(plan, &placed.tensors);
    ith_plan_destroy(&plan);
    case_leave(&placed);
    free(host);
    return status;
}

static void memory_of_the_host_is_refused(void **state)
{
    (void)state;
    void *host = calloc(1, 64);
    const bool addressed = device_use->module->addresses(device_use->device, host);
    free(host);
    if (addressed) { /* the device reaches memory of the host by page faults */
        printf("the device addresses all memory of the host, so that nothing is refused\n");
        return;
    }
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int i = 0; i < TENSORS * 2; i++) {
            misuse m = {.tensor = i / 2, .odd = i % 2 ? ranks - 1 : -1};
            const plan_kind kind = {ranks, 1, ITH_SOFTMAX_ONLINE, ITH_DIRECTION_AUTO, 1, false, ITH_MASK_BOOL};
            char words[64];
            m.c = kind_case(&kind, 20);
            case_fill(&m.c, 6, 0);
            check(context, ith_run_ranks(context, ranks, 0, misuse_in_rank, &m));
            snprintf(words, sizeof words, "%s lies in memory that the device", tensor_names[m.tensor]);
            for (int rank = 0; rank < ranks; rank++)
                if (m.seen[rank] != ITH_ERR_ARGUMENT || !strstr(m.sentence, words))
                    fail_msg("%s: %s: %s", words, ith_status_name(m.seen[rank]), m.sentence);
            case_free(&m.c);
        }
}

static ith_status create_in_rank(ith_context *rank_context, ith_comm *comm, void *user)
{
    const attention_case *c = user;
    ith_plan *plan = NULL;
    const ith_status status = ith_plan_create(rank_context, &c->problem, &c->options, comm, &plan);
    RANK_CHECK(rank_context, !status == (plan != NULL));
    ith_plan_destroy(&plan);
    return status;
}

static void choices_that_a_device_lacks_are_refused(void **state)
{
    (void)state;
    enum { CHOICES = 7 };
    for (int i = 0; i < CHOICES; i++) {
        attention_case c = kind_case(&kinds[4], 20);
        ith_attn_options *o = &c.options;
        static const struct {
            ith_status status;
            const char *words;
        } wanted[CHOICES] = {{ITH_ERR_UNSUPPORTED, "exchange is in_place"},  {ITH_ERR_UNSUPPORTED, "exchange is mixed"},
                             {ITH_ERR_UNSUPPORTED, "compress is bf16"},      {ITH_ERR_UNSUPPORTED, "compress is 8bit"},
                             {ITH_ERR_ARGUMENT, "no kernel of the device"},  {ITH_ERR_UNSUPPORTED, "block_q is 16"},
                             {ITH_ERR_UNSUPPORTED, "block_kv_compute is 64"}};
        o->exchange = i == 0 ? ITH_EXCHANGE_IN_PLACE : i == 1 ? ITH_EXCHANGE_MIXED : ITH_EXCHANGE_AUTO;
        o->compress = i == 2 ? ITH_COMPRESS_BF16 : i == 3 ? ITH_COMPRESS_8BIT : ITH_COMPRESS_OFF;
        o->kernel = i == 4 ? "f32_ref" : NULL;
        o->block_q = i == 5 ? 16 : 0;
        o->block_kv_compute = i == 6 ? 64 : 0;
        REFUSED_AS(wanted[i].status, context, wanted[i].words, ith_run_ranks(context, 2, 0, create_in_rank, &c));
    }
}

/* Makes a plan on two ranks, of which one computes on the processor. */
static void *create_in_thread(void *user)
{
    group_thread *self = user;
    attention_case *c = self->user;
    ith_plan *plan = NULL;
    ith_status *status = malloc(sizeof *status);
    *status = ith_plan_create(self->group->contexts[self->rank], &c->problem, &c->options,
                              self->group->comms[self->rank], &plan);
    ith_plan_destroy(&plan);
    return status;
}

static void ranks_on_a_device_and_on_the_processor_are_refused(void **state)
{
    (void)state;
    attention_case c = kind_case(&kinds[4], 20);
    rank_group group;
    void *seen[2];
    check(context, group_create(&group, context, 2));
    check(group.contexts[1], ith_context_use_device(group.contexts[1], "cpu"));
    for (int again = 0; again < 2; again++) { /* the group can still be used */
        group_thread threads[2];
        for (int rank = 0; rank < 2; rank++) {
            threads[rank] = (group_thread){.group = &group, .rank = rank, .user = &c};
            pthread_create(&threads[rank].thread, NULL, create_in_thread, &threads[rank]);
        }
        for (int rank = 0; rank < 2; rank++)
            pthread_join(threads[rank].thread, &seen[rank]);
        for (int rank = 0; rank < 2; rank++) {
            const ith_status status = *(ith_status *)seen[rank];
            if (status != (again ? ITH_OK : ITH_ERR_ARGUMENT))
                fail_msg("rank %d: %s: %s", rank, ith_status_name(status), ith_context_error(group.contexts[rank]));
            free(seen[rank]);
        }
        if (!again)
            assert_string_equal(ith_context_error(group.contexts[0]), ith_context_error(group.contexts[1]));
        check(group.contexts[1], ith_context_use_device(group.contexts[1], device_name));
    }
    group_destroy(&group);
}

/* ---- The caller's stream ----------------------------------------------------------------------------------------- */

/* An execution begins when the work of the caller's stream has ended. Here this work copies q. */
static void executions_follow_the_callers_stream(void **state)
{
    (void)state;
    const ith_device_module *module = device_use->module;
    struct ith_device *device = device_use->device;
    struct ith_device_stream *stream = NULL;
    char said[ITH_DEVICE_SENTENCE] = "";
    void *pinned = NULL;
    attention_case c = kind_case(&kinds[1], device_fake ? 40 : 2000);
    case_placed placed;
    ith_plan *plan = NULL;
    case_fill(&c, 7, 0);
    check(context, case_place(context, NULL, &c, &placed));
    char *o = malloc(2 * placed.o_bytes);
    check(context, ith_plan_create(context, &placed.problem, &c.options, NULL, &plan));
    check(context, ith_plan_execute(plan, &placed.tensors));
    check(context, ith_device_copy(context, o, placed.tensors.o, (int64_t)placed.o_bytes));
    assert_int_equal(module->allocate_pinned(device, (int64_t)placed.o_bytes, &pinned, said), ITH_OK);
    memcpy(pinned, c.q, placed.o_bytes);
    assert_int_equal(module->create_stream(device, &stream, said), ITH_OK);
    for (int i = 0; i < 20; i++) /* while this work lasts, q is wrong */
        assert_int_equal(module->fill(stream, placed.q, 0x11 * i, (int64_t)placed.o_bytes, said), ITH_OK);
    assert_int_equal(module->copy(stream, placed.q, pinned, (int64_t)placed.o_bytes, said), ITH_OK);
    placed.tensors.stream = module->raw_stream(stream);
    check(context, ith_plan_execute(plan, &placed.tensors));
    check(context, ith_device_copy(context, o + placed.o_bytes, placed.tensors.o, (int64_t)placed.o_bytes));
    assert_memory_equal(o, o + placed.o_bytes, placed.o_bytes);
    ith_plan_destroy(&plan);
    module->destroy_stream(stream);
    module->release_pinned(device, pinned);
    case_leave(&placed);
    case_free(&c);
    free(o);
}

int main(void)
{
    device_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_predicted),
        cmocka_unit_test(executions_allocate_nothing),
        cmocka_unit_test(allocations_of_the_host_may_fail),
        cmocka_unit_test(calls_of_the_device_may_fail),
        cmocka_unit_test(a_device_may_have_too_little_memory),
        cmocka_unit_test(executions_are_cancelled),
        cmocka_unit_test(waiting_executions_are_cancelled),
        cmocka_unit_test(memory_of_the_host_is_refused),
        cmocka_unit_test(choices_that_a_device_lacks_are_refused),
        cmocka_unit_test(ranks_on_a_device_and_on_the_processor_are_refused),
        cmocka_unit_test(executions_follow_the_callers_stream),
    };
    return cmocka_run_group_tests(tests, device_context_set_up, context_tear_down);
}
