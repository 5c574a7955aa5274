/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel that a plan takes: by name, by measurement, by the rule of ITH_EFFORT_ESTIMATE, and on ranks whose
 * machines differ. */
#include "kernels/kernel.h"
#include "plan/kernel_wisdom.h"
#include "plan/measure.h"
#include "support/in_rank.h"
#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/plan_trial.h"

#include "support/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- By name --------------------------------------------------------------------------------------------------- */

static void named_kernels_are_taken_or_refused(void **state)
{
    (void)state;
    ith_context *context = new_context(), *plain = NULL;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = ITH_CPU_BASELINE;
    assert_int_equal(ith_context_create(&options, &plain), ITH_OK);
    const ith_attn_kernel *k;
    for (int i = 0; (k = ith_attn_kernel_at(i)); i++) {
        trial t = new_trial();
        ith_plan_info info = ITH_PLAN_INFO_INIT;
        t.options.kernel = k->name;
        if (k->cpu & ~(uint32_t)ITH_CPU_BASELINE) {
            assert_int_equal(ith_plan_predict(plain, &t.problem, &t.options, 1, 0, true, &info), ITH_ERR_UNSUPPORTED);
            assert_non_null(strstr(ith_context_error(plain), "which this machine lacks; kernels that would do here: "));
            assert_non_null(strstr(ith_context_error(plain), "f32_ref"));
        }
        if (k->cpu & ~ith_context_cpu(context))
            continue;
        for (int n = 0; n < 6; n++) {
            static const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16};
            t.problem.dtype = types[n % 3];
            t.options.softmax = n < 3 ? ITH_SOFTMAX_ONLINE : ITH_SOFTMAX_FIXED_M;
            bool takes = k->supports(t.problem.dtype, t.problem.head_dim, t.options.softmax) &&
                         k->supports(t.problem.dtype, t.problem.head_dim, ITH_SOFTMAX_ONLINE);
            ith_status status = ith_plan_predict(context, &t.problem, &t.options, 1, 0, true, &info);
            assert_int_equal(status, takes ? ITH_OK : ITH_ERR_UNSUPPORTED);
            if (takes)
                assert_ptr_equal(info.kernel, k->name);
            else
                assert_non_null(strstr(ith_context_error(context), ith_softmax_name(t.options.softmax)));
        }
    }
    trial t = new_trial();
    t.options.kernel = "";
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT, "no kernel is named ''; kernels that would do here: ");
    ith_context_destroy(&context);
    ith_context_destroy(&plain);
}

/* ---- By measurement -------------------------------------------------------------------------------------------- */

static int candidates_for(uint32_t cpu, ith_dtype dtype, int64_t head_dim)
{
    int candidates = 0;
    const ith_attn_kernel *k;
    for (int i = 0; (k = ith_attn_kernel_at(i)); i++)
        candidates +=
            !(k->cpu & ~cpu) && k->cpu != ITH_CPU_BASELINE && k->supports(dtype, head_dim, ITH_SOFTMAX_ONLINE);
    return candidates;
}

/* The first plan measures kernels. Later plans and predictions recall its choice. */
static void kernels_are_measured_once(void **state)
{
    (void)state;
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, -1);
    trial t = new_trial();
    t.problem.head_dim = 16;
    t.problem.heads = 1;
    t.options.effort = ITH_EFFORT_MEASURE;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    const char *chosen = NULL;
    long calls[3];
    bool several = candidates_for(ith_context_cpu(context), ITH_F32, 16) > 1;
    for (int i = 0; i < 3; i++) {
        long before = atomic_load(&allocator.calls);
        assert_int_equal(run_trial_in(context, &t, 3), ITH_OK);
        calls[i] = atomic_load(&allocator.calls) - before;
        chosen = chosen ? chosen : t.info.kernel;
        assert_ptr_equal(t.info.kernel, chosen);
        assert_int_equal(t.info.kernel_origin, !several ? ITH_KERNEL_ESTIMATED
                                               : i      ? ITH_KERNEL_RECALLED
                                                        : ITH_KERNEL_MEASURED);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(ith_plan_predict(context, &t.problem, NULL, 3, rank, true, &info), ITH_OK);
            assert_ptr_equal(info.kernel, chosen);
        }
    }
    assert_int_equal(calls[1], calls[2]);
    assert_true(several ? calls[0] > calls[1] : calls[0] >= calls[1]);
    ith_context_destroy(&context);
    /* A machine without vector instructions takes the kernel in plain C. */
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = ITH_CPU_BASELINE;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    assert_int_equal(run_trial_in(context, &t, 3), ITH_OK);
    assert_string_equal(t.info.kernel, "f32_ref");
    ith_context_destroy(&context);
}

/* A prediction whose options ask to measure kernels estimates instead: it sends and times nothing. */
static void predictions_measure_nothing(void **state)
{
    (void)state;
    ith_context *context = new_context();
    trial t = new_trial();
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    t.options.effort = ITH_EFFORT_MEASURE;
    assert_int_equal(ith_plan_predict(context, &t.problem, &t.options, 1, 0, true, &info), ITH_OK);
    assert_int_equal(info.kernel_origin, ITH_KERNEL_ESTIMATED);
    ith_context_destroy(&context);
}

static ith_status plan_alone(ith_context *context, ith_comm *comm, void *user)
{
    (void)comm;
    const trial *t = user;
    ith_plan *plan = NULL;
    RANK_TRY(ith_plan_create(context, &t->problem, &t->options, NULL, &plan));
    ith_plan_destroy(&plan);
    return ITH_OK;
}

/* Contexts that share wisdom plan at the same time. One of them measures, and the others wait for it. */
static void one_context_measures_for_all(void **state)
{
    (void)state;
    failing_allocator allocator;
    ith_context *context = failing_context(&allocator, -1);
    trial t = new_trial();
    t.options.effort = ITH_EFFORT_MEASURE;
    long calls[2];
    for (int i = 0; i < 2; i++) {
        long before = atomic_load(&allocator.calls);
        assert_int_equal(ith_run_ranks(context, 4, 4, plan_alone, &t), ITH_OK);
        calls[i] = atomic_load(&allocator.calls) - before;
    }
    assert_true(calls[0] - calls[1] <= 2); /* one allocation for wisdom, one for timing */
    ith_context_destroy(&context);
}

/* ---- By the rule ----------------------------------------------------------------------------------------------- */

/* The kernel that is estimated to be the fastest on a machine with these instruction sets. */
typedef struct expectation {
    uint32_t sets;
    ith_dtype dtype;
    int64_t head_dim;
    const char *kernel;
} expectation;

#if defined(__x86_64__)
enum {
    AVX2 = ITH_CPU_AVX2,
    AVX512 = AVX2 | ITH_CPU_AVX512,
    AVX512_BF16 = AVX512 | ITH_CPU_AVX512_BF16,
    AVX512_FP16 = AVX512 | ITH_CPU_AVX512_FP16,
    AMX_BF16 = AVX512_BF16 | ITH_CPU_AMX_BF16,
};

static const expectation expectations[] = {
    {ITH_CPU_BASELINE, ITH_BF16, 128, "f32_ref"},
    {AVX2, ITH_F32, 128, "f32_avx2"},
    {AVX2, ITH_BF16, 40, "f32_avx2"},
    {AVX512, ITH_F32, 1, "f32_avx512"},
    {AVX512, ITH_BF16, 128, "f32_avx512"},
    {AVX512_BF16, ITH_F32, 128, "f32_avx512"},
    {AVX512_BF16, ITH_BF16, 128, NULL}, /* depends on the processor's maker */
    {AVX512_FP16, ITH_BF16, 63, "f32_avx512"},
    {AVX512_FP16, ITH_BF16, 64, "bf16_avx512fp16"},
    {AVX512_FP16, ITH_F16, 128, "f32_avx512"},
    {AMX_BF16, ITH_BF16, 8, "bf16_amx"},
    {AMX_BF16 | AVX512_FP16, ITH_BF16, 128, "bf16_amx"},
    {AMX_BF16, ITH_F16, 23, "f32_avx512"},
    {AMX_BF16, ITH_F16, 24, "f16_amx"},
    {AMX_BF16, ITH_F32, 24, "f32_avx512"},
    {AMX_BF16, ITH_F32, 32, "f32_amx"},
    {AMX_BF16, ITH_F32, 40, "f32_avx512"},
    {AMX_BF16, ITH_F32, 48, "f32_amx"},
    {AMX_BF16, ITH_F32, 128, "f32_amx"},
};

static const char *bf16_by_maker(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") ? "bf16_avx512bf16" : "f32_avx512";
}
#else
static const expectation expectations[] = {
    {ITH_CPU_BASELINE, ITH_BF16, 128, "f32_ref"},
    {ITH_CPU_NEON, ITH_BF16, 128, "f32_neon"},
};

static const char *bf16_by_maker(void)
{
    return "";
}
#endif

/* Whether this machine has the instruction sets, and the build has the kernel: not every compiler knows all sets. */
static bool can_run(const char *kernel, uint32_t sets)
{
    return machine_has(kernel, sets) && ith_attn_kernel_named(kernel);
}

static void estimates_follow_the_rule(void **state)
{
    (void)state;
    bool lacking = false;
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        const expectation *e = &expectations[i];
        const char *kernel = e->kernel ? e->kernel : bf16_by_maker();
        if (!can_run(kernel, e->sets)) {
            lacking = true;
            continue;
        }
        ith_context_options machine = ITH_CONTEXT_OPTIONS_INIT;
        ith_context *context = NULL;
        machine.cpu_mask = e->sets;
        assert_int_equal(ith_context_create(&machine, &context), ITH_OK);
        trial t = new_trial();
        t.execute = false;
        t.problem.head_dim = e->head_dim, t.problem.dtype = e->dtype;
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            assert_int_equal(run_trial_in(context, &t, ranks), ITH_OK);
            assert_string_equal(t.info.kernel, kernel);
            assert_int_equal(t.info.kernel_origin, ITH_KERNEL_ESTIMATED);
            assert_non_null(strstr(t.plan, "(estimate)"));
        }
        ith_context_destroy(&context);
    }
    if (lacking)
        skip();
}

SPOIL(other_effort, o->effort = ITH_EFFORT_MEASURE)

static void ranks_agree_on_the_effort(void **state)
{
    (void)state;
    trial t = new_trial();
    t.odd_rank = 1, t.spoil = other_effort;
    expect_refusal(&t, 2, ITH_ERR_ARGUMENT,
                   "effort is measure on rank 1 and estimate on rank 0: every rank must ask for the same");
}

/* ---- On machines that differ ----------------------------------------------------------------------------------- */

static uint32_t odd_sets; /* the instruction sets of the odd rank's machine */

/* Makes a plan on this rank, in a context of its own. The odd rank's context has only the instruction sets
 * `odd_sets`. */
static ith_status differ(ith_context *parent, ith_comm *comm, void *user)
{
    (void)parent;
    trial *t = user;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.cpu_mask = ith_comm_rank(comm) == t->odd_rank ? odd_sets : 0;
    ith_context *own = NULL;
    ith_plan *plan = NULL;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    RANK_CHECK(parent, !ith_context_create(&options, &own));
    ith_status status = ith_plan_create(own, &t->problem, &t->options, comm, &plan);
    if (!status)
        status = ith_plan_describe(plan, &info);
    t->seen[ith_comm_rank(comm)] = status;
    snprintf(t->sentences[ith_comm_rank(comm)], ITH_ERROR_BYTES, "%s", status ? ith_context_error(own) : info.kernel);
    ith_plan_destroy(&plan);
    ith_context_destroy(&own);
    return ITH_OK;
}

/* If one rank's machine has fewer instruction sets, all ranks take the kernel that is estimated for this machine. */
static void machines_that_differ_take_what_all_run(void **state)
{
    (void)state;
    ith_context *context = new_context();
    bool lacking = false;
    for (size_t i = 0; i < 3 * sizeof expectations / sizeof *expectations; i++) {
        const expectation *e = &expectations[i / 3];
        const char *kernel = e->kernel ? e->kernel : bf16_by_maker();
        if (!can_run(kernel, e->sets)) {
            lacking = true;
            continue;
        }
        trial t = new_trial();
        t.odd_rank = (int)(i % 3), odd_sets = e->sets;
        t.problem.head_dim = e->head_dim, t.problem.dtype = e->dtype;
        assert_int_equal(ith_run_ranks(context, 3, 3, differ, &t), ITH_OK);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(t.seen[rank], ITH_OK);
            assert_string_equal(t.sentences[rank], kernel);
        }
    }
    ith_context_destroy(&context);
    if (lacking)
        skip();
}

static void machines_that_differ_agree(void **state)
{
    (void)state;
    ith_context *context = new_context();
    odd_sets = ITH_CPU_BASELINE;
    for (int odd = 0; odd < 3; odd++) {
        trial t = new_trial();
        t.odd_rank = odd;
        assert_int_equal(ith_run_ranks(context, 3, 3, differ, &t), ITH_OK);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(t.seen[rank], ITH_OK);
            assert_string_equal(t.sentences[rank], "f32_ref");
        }
        const ith_attn_kernel *first = NULL;
        for (int i = 0; (first = ith_attn_kernel_at(i)); i++)
            if (!(first->cpu & ~ith_context_cpu(context)) && first->supports(ITH_F32, 8, ITH_SOFTMAX_ONLINE))
                break;
        if (first->cpu == ITH_CPU_BASELINE) {
            fprintf(stderr, "skipped: every machine runs plain C, and this one nothing else\n");
            skip();
        }
        t.options.kernel = first->name; /* the odd rank's machine cannot run it */
        assert_int_equal(ith_run_ranks(context, 3, 3, differ, &t), ITH_OK);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(t.seen[rank], ITH_ERR_UNSUPPORTED);
            assert_non_null(strstr(t.sentences[rank], "which this machine lacks"));
        }
    }
    ith_context_destroy(&context);
}

/* Invented rates of two kernels: 1000 for a, and this for b. */
static int32_t rate_of_b;

static ith_status two_rates(const ith_attn_setting *setting, ith_wisdom_entry *entry)
{
    (void)setting;
    ith_wisdom_add(entry, "a", 1000);
    ith_wisdom_add(entry, "b", rate_of_b);
    return ITH_OK;
}

/* Kernels of nearly equal rates keep the order of the table. */
static void a_later_kernel_must_be_clearly_faster(void **state)
{
    (void)state;
    const ith_kernel_names names = {.count = 2, .names = {"a", "b"}};
    for (rate_of_b = 980; rate_of_b <= 1040; rate_of_b += 20) {
        ith_attn_setting setting = {.softmax = ITH_SOFTMAX_ONLINE};
        setting.problem.dtype = ITH_F32, setting.problem.head_dim = 16;
        ith_kernel_decision decision;
        assert_int_equal(ith_context_create(NULL, &setting.context), ITH_OK);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(ith_kernel_decide(&setting, ITH_EFFORT_MEASURE, &names, 0, two_rates, &decision), ITH_OK);
            assert_int_equal(decision.index, rate_of_b > 1030);
            assert_int_equal(decision.origin, again ? ITH_KERNEL_RECALLED : ITH_KERNEL_MEASURED);
        }
        ith_context_destroy(&setting.context);
    }
}

/* Invented rates. Kernel 0 is slow in the later turns, as if it were disturbed; kernel 1 in the first turn that counts,
 * the second. Kernel 2 is so slow in that turn that it is not measured again. */
static ith_status rate_in_turn(void *user, int index, double *rate)
{
    static const double rates[][5] = {{250, 900, 300, 1, 2}, {250, 300, 900, 1, 800}, {250, 100, 1e6, 1e6, 1e6}};
    int *turns = user;
    *rate = rates[index][turns[index]++];
    return ITH_OK;
}

static void the_best_of_the_turns_counts(void **state)
{
    (void)state;
    ith_wisdom_entry entry = {.count = 3, .figures = {{"a", 1}, {"b", 1}, {"c", 1}}};
    int turns[3] = {0};
    assert_int_equal(ith_measure_in_turns(rate_in_turn, turns, &entry), ITH_OK);
    const int32_t expected[] = {900, 900, 100};
    for (int i = 0; i < 3; i++)
        assert_int_equal(entry.figures[i].value, expected[i]);
    assert_int_equal(turns[0], 5);
    assert_int_equal(turns[2], 2);
}

/* A kernel that is too slow or too fast for any number, or fails (user: NULL). */
static ith_status extreme_rate(void *user, int index, double *rate)
{
    *rate = index ? 1e30 : 1e-30;
    return user ? ITH_OK : ITH_ERR_IO;
}

static void rates_have_limits(void **state)
{
    (void)state;
    ith_wisdom_entry entry = {.count = 2, .figures = {{"a", 0}, {"b", 0}}};
    assert_int_equal(ith_measure_in_turns(extreme_rate, &entry, &entry), ITH_OK);
    assert_int_equal(entry.figures[0].value, 1);
    assert_int_equal(entry.figures[1].value, ITH_WISDOM_MOST);
    assert_int_equal(ith_measure_in_turns(extreme_rate, NULL, &entry), ITH_ERR_IO);
}

/* ---- The calls of a kernel that is timed ------------------------------------------------------------------------- */

/* The last turn of a kernel that computes nothing, and the first fault of all turns. */
typedef struct turn {
    int64_t packed, keys, queries; /* keys that were packed; keys that a block of queries has met; queries in all */
    bool attended;
    int wrong;
} turn;

enum {
    LARGE_BYTES = 64,        /* of a number of a packed key */
    LARGE_SCRATCH = 1 << 20, /* bytes of scratch memory of the large kernel and of the small one */
    SMALL_SCRATCH = 64
};

static turn large_turn, small_turn;
static const char *largest_end; /* the end of the largest allocation, which is the trial's */
static size_t largest_bytes;

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    char *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    (void)user;
    if (memory && bytes > largest_bytes)
        largest_bytes = bytes, largest_end = memory + bytes;
    return memory;
}

static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void count_packed(turn *t, const ith_attn_pack *pack)
{
    if (t->attended)
        *t = (turn){.wrong = t->wrong};
    t->packed += pack->keys;
}

/* Checks the order of the calls and the size of their memory. The scratch memory lies behind the packed keys. */
static void check_call(turn *t, const ith_attn_call *call, int64_t key_bytes, int64_t scratch_bytes)
{
    const char *packed = call->packed, *scratch = call->scratch;
    t->attended = true;
    t->wrong += call->first != (t->keys == 0);
    t->wrong += scratch - packed < (t->packed - t->keys) * key_bytes;
    t->wrong += largest_end - scratch < scratch_bytes;
    t->keys += call->keys;
    t->wrong += t->keys > t->packed || call->last != (t->keys == t->packed);
    if (t->keys < t->packed)
        return;
    t->keys = 0;
    t->queries += call->q_rows;
}

static void pack_large(const ith_attn_pack *pack)
{
    count_packed(&large_turn, pack);
}

static void pack_small(const ith_attn_pack *pack)
{
    count_packed(&small_turn, pack);
}

static void attend_large(const ith_attn_call *call)
{
    check_call(&large_turn, call, call->head_dim * LARGE_BYTES, LARGE_SCRATCH);
}

static void attend_small(const ith_attn_call *call)
{
    check_call(&small_turn, call, call->head_dim, SMALL_SCRATCH);
}

static ith_attn_tile_limits odd_tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){{100, 60, 60, 60}, {4, 4, 4, 4}, {100, 60, 60, 60}};
}

static ith_attn_tile_limits even_tiles(int64_t head_dim)
{
    (void)head_dim;
    return (ith_attn_tile_limits){{16, 16, 16, 16}, {16, 16, 16, 16}, {16, 16, 16, 16}};
}

static int64_t large_bytes(int64_t keys, int64_t head_dim)
{
    return keys * head_dim * LARGE_BYTES;
}

static int64_t small_bytes(int64_t keys, int64_t head_dim)
{
    return keys * head_dim;
}

static int64_t endless_bytes(int64_t keys, int64_t head_dim)
{
    (void)keys, (void)head_dim;
    return -1;
}

static int64_t large_scratch(int64_t head_dim, const ith_attn_tiles *tiles)
{
    (void)head_dim, (void)tiles;
    return LARGE_SCRATCH;
}

static int64_t small_scratch(int64_t head_dim, const ith_attn_tiles *tiles)
{
    (void)head_dim, (void)tiles;
    return SMALL_SCRATCH;
}

static int64_t endless_scratch(int64_t head_dim, const ith_attn_tiles *tiles)
{
    (void)head_dim, (void)tiles;
    return -1;
}

static const ith_attn_kernel large_kernel = {.name = "large",
                                             .tiles = odd_tiles,
                                             .packed_bytes = large_bytes,
                                             .scratch_bytes = large_scratch,
                                             .pack = pack_large,
                                             .attend = attend_large};
static const ith_attn_kernel small_kernel = {.name = "small",
                                             .tiles = even_tiles,
                                             .packed_bytes = small_bytes,
                                             .scratch_bytes = small_scratch,
                                             .pack = pack_small,
                                             .attend = attend_small};

/* Whatever their tiles are, the kernels meet the same queries and keys, each block of queries all keys in order. There
 * is memory for the kernel that needs most, also if another one comes after it. */
static void kernels_are_timed_as_they_are_used(void **state)
{
    (void)state;
    ith_allocator allocator = ITH_ALLOCATOR_INIT;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_context *context = NULL;
    allocator.allocate = allocate, allocator.release = release;
    options.allocator = &allocator;
    assert_int_equal(ith_context_create(&options, &context), ITH_OK);
    for (int softmax = ITH_SOFTMAX_ONLINE; softmax <= ITH_SOFTMAX_FIXED_M; softmax++) {
        const ith_candidates candidates = {2, {&large_kernel, &small_kernel}};
        ith_wisdom_entry entry = {.count = 0};
        large_turn = small_turn = (turn){0};
        largest_bytes = 0;
        assert_int_equal(ith_measure_kernels(context, ITH_F32, 32, (ith_softmax)softmax, &candidates, &entry), ITH_OK);
        assert_int_equal(large_turn.wrong + small_turn.wrong, 0);
        assert_true(large_turn.queries > 0 && large_turn.packed > 0);
        assert_int_equal(large_turn.queries, small_turn.queries);
        assert_int_equal(large_turn.packed, small_turn.packed);
        assert_int_equal(entry.count, 2);
    }
    ith_attn_kernel endless[2] = {small_kernel, small_kernel};
    endless[0].packed_bytes = endless_bytes, endless[1].scratch_bytes = endless_scratch;
    for (int i = 0; i < 2; i++) {
        const ith_candidates candidates = {1, {&endless[i]}};
        ith_wisdom_entry entry = {.count = 0};
        assert_int_equal(ith_measure_kernels(context, ITH_F32, 32, ITH_SOFTMAX_ONLINE, &candidates, &entry),
                         ITH_ERR_MEMORY);
        assert_non_null(strstr(ith_context_error(context), "timing kernel small takes more than a size can hold"));
    }
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_kernels_are_taken_or_refused),
        cmocka_unit_test(kernels_are_measured_once),
        cmocka_unit_test(predictions_measure_nothing),
        cmocka_unit_test(one_context_measures_for_all),
        cmocka_unit_test(estimates_follow_the_rule),
        cmocka_unit_test(ranks_agree_on_the_effort),
        cmocka_unit_test(machines_that_differ_take_what_all_run),
        cmocka_unit_test(machines_that_differ_agree),
        cmocka_unit_test(a_later_kernel_must_be_clearly_faster),
        cmocka_unit_test(the_best_of_the_turns_counts),
        cmocka_unit_test(rates_have_limits),
        cmocka_unit_test(kernels_are_timed_as_they_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
