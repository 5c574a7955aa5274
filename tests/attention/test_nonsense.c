/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of ithaca.h with NULL and with nonsense: a status and a sentence, or the neutral answer of functions
 * that return no status. Nothing crashes, and an object that could not be made is NULL. */
#include "support/fixture.h"
#include "support/memory.h"
#include "support/refused.h"
#include "support/temporary.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const int nonsense[] = {-1, INT_MIN, INT_MAX, 99};
enum { NONSENSE = sizeof nonsense / sizeof *nonsense };

static ith_attn_problem small_problem(void)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = 2, problem.head_dim = 8, problem.q_len = problem.kv_len = 4;
    return problem;
}

static void names_of_unknown_values(void **state)
{
    (void)state;
    for (int i = 0; i < NONSENSE; i++) {
        assert_string_equal(ith_status_name((ith_status)(nonsense[i] == -1 ? -77 : nonsense[i])), "unknown status");
        assert_string_equal(ith_dtype_name((ith_dtype)nonsense[i]), "none");
        assert_int_equal(ith_dtype_bytes((ith_dtype)nonsense[i]), 0);
        assert_string_equal(ith_choice_name((ith_choice)nonsense[i]), "unknown");
        assert_string_equal(ith_strategy_name((ith_strategy)nonsense[i]), "unknown");
        assert_string_equal(ith_softmax_name((ith_softmax)nonsense[i]), "unknown");
        assert_string_equal(ith_direction_name((ith_direction)nonsense[i]), "unknown");
        assert_string_equal(ith_exchange_mode_name((ith_exchange_mode)nonsense[i]), "unknown");
        assert_string_equal(ith_effort_name((ith_effort)nonsense[i]), "unknown");
        assert_string_equal(ith_compress_name((ith_compress)nonsense[i]), "unknown");
        assert_int_equal(ith_dtype_run((ith_dtype)nonsense[i]), 1);
        assert_string_equal(ith_kernel_origin_name((ith_kernel_origin)nonsense[i]), "unknown");
    }
    assert_non_null(ith_version());
}

static void *no_memory(void *user, size_t bytes, size_t alignment)
{
    (void)user, (void)bytes, (void)alignment;
    return NULL;
}

static void contexts(void **state)
{
    (void)state;
    ith_context *made = context;
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    ith_allocator allocator = ITH_ALLOCATOR_INIT;
    REFUSED(NULL, "out is NULL", ith_context_create(NULL, NULL));
    REFUSED_SIZES(NULL, options, "ith_context_options", ith_context_create(&options, &made));
    assert_null(made);
    options.allocator = &allocator;
    REFUSED(NULL, "allocate", ith_context_create(&options, &made));
    allocator.allocate = no_memory;
    REFUSED(NULL, "release", ith_context_create(&options, &made));
    REFUSED_SIZES(NULL, allocator, "ith_allocator", ith_context_create(&options, &made));
    options.allocator = NULL;
    for (int i = 0; i < NONSENSE; i++) {
        options.log_level = (ith_log_level)nonsense[i];
        REFUSED(NULL, "is no ith_log_level", ith_context_create(&options, &made));
        options.log_level = ITH_LOG_DEBUG, options.cpu_mask = (uint32_t)nonsense[i];
        check(NULL, ith_context_create(&options, &made));
        assert_true(ith_context_cpu(made) & ITH_CPU_BASELINE);
        ith_context_destroy(&made);
    }
    made = context;
    REFUSED(NULL, "parent is NULL", ith_context_clone(NULL, &made));
    assert_null(made);
    REFUSED(NULL, "parent is NULL", ith_context_clone(NULL, NULL));
    REFUSED(context, "out is NULL", ith_context_clone(context, NULL));
    ith_memory_use use = ITH_MEMORY_USE_INIT;
    REFUSED(NULL, "context is NULL", ith_context_memory(NULL, &use));
    REFUSED(context, "ith_memory_use is NULL", ith_context_memory(context, NULL));
    REFUSED_SIZES(context, use, "ith_memory_use", ith_context_memory(context, &use));
    assert_int_equal(ith_context_cpu(NULL), 0);
    ith_context_destroy(NULL);
    check(context, ith_context_clone(context, &made));
    ith_context_destroy(&made);
    ith_context_destroy(&made);
    assert_null(made);
}

static void texts_are_cut(void **state)
{
    (void)state;
    char text[8] = "before";
    assert_null(ith_cpu_describe(UINT32_MAX, NULL, 0));
    assert_null(ith_cpu_describe(UINT32_MAX, NULL, 100));
    assert_ptr_equal(ith_cpu_describe(UINT32_MAX, text, 0), text);
    assert_string_equal(text, "before");
    assert_string_equal(ith_cpu_describe(UINT32_MAX, text, sizeof text), "baselin");
    assert_string_equal(ith_cpu_describe(0, text, 1), "");
    assert_null(ith_plan_print(NULL, NULL, 100));
    assert_string_equal(ith_plan_print(NULL, strcpy(text, "before"), sizeof text), "");
}

static void shares(void **state)
{
    (void)state;
    int64_t begin = 7, count = 7;
    ith_share(10, 2, 0, NULL, &count);
    ith_share(10, 2, 0, &begin, NULL);
    ith_share(10, 2, 0, NULL, NULL);
    assert_true(begin == 7 && count == 7);
    const struct {
        int64_t length;
        int ranks, rank;
    } wrong[] = {{-1, 2, 0},  {INT64_MIN, 2, 0},     {10, 0, 0}, {10, -3, 0}, {10, 2, 2},
                 {10, 2, -1}, {10, INT_MIN, INT_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin = count = 7;
        ith_share(wrong[i].length, wrong[i].ranks, wrong[i].rank, &begin, &count);
        assert_true(begin == 0 && count == 0);
    }
    ith_share(INT64_MAX, INT_MAX, INT_MAX - 1, &begin, &count);
    assert_true(begin + count == INT64_MAX);
}

static ith_status never(ith_context *c, ith_comm *comm, void *user)
{
    (void)c, (void)comm, (void)user;
    return ITH_ERR_INTERNAL;
}

static ith_status returns(ith_context *c, ith_comm *comm, void *user)
{
    (void)c, (void)comm;
    return *(ith_status *)user;
}

static ith_status aborts(ith_context *c, ith_comm *comm, void *user)
{
    (void)c;
    ith_comm_abort(comm, *(ith_status *)user);
    return ITH_OK;
}

/* A call on a group that was ended with a number that is no failure. */
static ith_status aborts_and_goes_on(ith_context *c, ith_comm *comm, void *user)
{
    ith_attn_problem problem = small_problem();
    ith_plan *plan = NULL;
    aborts(c, comm, user);
    ith_status status = ith_plan_create(c, &problem, NULL, comm, &plan);
    ith_plan_destroy(&plan);
    return status;
}

static void ranks(void **state)
{
    (void)state;
    const int numbers[] = {1, 7, INT_MAX, -11, -999, INT_MIN};
    REFUSED(NULL, "context is NULL", ith_run_ranks(NULL, 2, 0, never, NULL));
    REFUSED(context, "fn is NULL", ith_run_ranks(context, 2, 0, NULL, NULL));
    REFUSED(context, "ranks is 0", ith_run_ranks(context, 0, 0, never, NULL));
    REFUSED(context, "ranks is -1", ith_run_ranks(context, INT_MIN + INT_MAX, 0, never, NULL));
    REFUSED(context, "ranks is 2147483647", ith_run_ranks(context, INT_MAX, 0, never, NULL));
    REFUSED(context, "threads is -1", ith_run_ranks(context, 1, -1, never, NULL));
    REFUSED(context, "threads is 2147483647", ith_run_ranks(context, 1, INT_MAX, never, NULL));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ith_status status = (ith_status)numbers[i];
        REFUSED_AS(ITH_ERR_ABORTED, context, "no ith_status", ith_run_ranks(context, 1, 1, returns, &status));
        REFUSED_AS(ITH_ERR_ABORTED, context, "ended the group",
                   ith_run_ranks(context, 2, 1, aborts_and_goes_on, &status));
    }
}

static void communicators(void **state)
{
    (void)state;
    ith_context *other = NULL;
    check(context, ith_context_clone(context, &other));
    ith_context *both[] = {context, other}, *holes[] = {context, NULL}, *none[] = {NULL, other},
                *twice[] = {other, other};
    ith_comm *comms[2] = {(ith_comm *)both, (ith_comm *)both};
    REFUSED(NULL, "contexts is NULL", ith_comm_create_local(NULL, 2, comms));
    assert_true(!comms[0] && !comms[1]);
    comms[0] = comms[1] = (ith_comm *)both;
    REFUSED(context, "comms is NULL", ith_comm_create_local(both, 2, NULL));
    REFUSED(NULL, "ranks is 0", ith_comm_create_local(both, 0, comms));
    REFUSED(NULL, "ranks is -1", ith_comm_create_local(both, -1, comms));
    REFUSED(context, "ranks is 2147483647", ith_comm_create_local(both, INT_MAX, comms));
    assert_ptr_equal(comms[0], both); /* the length of the list cannot be known */
    REFUSED(context, "contexts[1] is NULL", ith_comm_create_local(holes, 2, comms));
    assert_true(!comms[0] && !comms[1]);
    REFUSED(NULL, "contexts[0] is NULL", ith_comm_create_local(none, 2, comms));
    REFUSED(other, "contexts[1] is contexts[0]", ith_comm_create_local(twice, 2, comms));
    assert_int_equal(ith_comm_rank(NULL), 0);
    assert_int_equal(ith_comm_size(NULL), 1);
    ith_comm_abort(NULL, ITH_ERR_ABORTED);
    ith_comm_set_timeout(NULL, 1);
    ith_comm_alive(NULL);
    ith_comm_destroy(NULL);
    check(context, ith_comm_create_local(both, 2, comms));
    const double times[] = {-1, -INFINITY, NAN, INFINITY, 1e300, 0};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        ith_comm_set_timeout(comms[0], times[i]);
    for (int i = 0; i < 4; i++)
        ith_comm_destroy(&comms[i % 2]);
    assert_true(!comms[0] && !comms[1]);
    ith_context_destroy(&other);
}

static void strategies(void **state)
{
    (void)state;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT, before = options;
    REFUSED(NULL, "context is NULL", ith_strategy_parse(NULL, "ring", &options));
    REFUSED(context, "name is NULL", ith_strategy_parse(context, NULL, &options));
    REFUSED(context, "ith_attn_options is NULL", ith_strategy_parse(context, "ring", NULL));
    REFUSED_SIZES(context, options, "ith_attn_options", ith_strategy_parse(context, "ring", &options));
    const char *const wrong[] = {"", "_", "rings", "ring_", "ring_bidir_bidir", "tokamax_", "%s%n", "ring ring"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        REFUSED(context, "strategy", ith_strategy_parse(context, wrong[i], &options));
    assert_memory_equal(&options, &before, sizeof options);
}

/* Both ways in which a problem and options are read. */
static void expect_refused(const ith_attn_problem *problem, const ith_attn_options *options, const char *word)
{
    ith_plan *plan = (ith_plan *)context;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    REFUSED(context, word, ith_plan_create(context, problem, options, NULL, &plan));
    assert_null(plan);
    REFUSED(context, word, ith_plan_predict(context, problem, options, 1, 0, true, &info));
}

static void problems(void **state)
{
    (void)state;
    ith_attn_problem problem = small_problem();
    expect_refused(NULL, NULL, "ith_attn_problem is NULL");
    const size_t sizes[] = {0, 3, 8, 1 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem.struct_size = sizes[i];
        expect_refused(&problem, NULL, "ith_attn_problem");
    }
    const size_t fields[] = {offsetof(ith_attn_problem, batch),      offsetof(ith_attn_problem, heads),
                             offsetof(ith_attn_problem, kv_heads),   offsetof(ith_attn_problem, head_dim),
                             offsetof(ith_attn_problem, q_len),      offsetof(ith_attn_problem, kv_len),
                             offsetof(ith_attn_problem, mask_batch), offsetof(ith_attn_problem, mask_heads)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const int64_t values[] = {-1, INT64_MIN};
        for (int j = 0; j < 2; j++) {
            problem = small_problem();
            problem.mask = ITH_MASK_BOOL;
            memcpy((char *)&problem + fields[i], &values[j], sizeof values[j]);
            expect_refused(&problem, NULL, "");
        }
    }
    for (size_t at = offsetof(ith_attn_problem, q_row_stride); at < sizeof problem; at += sizeof(int64_t)) {
        problem = small_problem();
        memcpy((char *)&problem + at, &(int64_t){-5}, sizeof(int64_t));
        expect_refused(&problem, NULL, "stride");
    }
    for (int i = 0; i < NONSENSE; i++) {
        problem = small_problem();
        problem.dtype = (ith_dtype)nonsense[i];
        expect_refused(&problem, NULL, "type");
        problem = small_problem();
        problem.mask = (ith_mask)nonsense[i];
        expect_refused(&problem, NULL, "mask");
    }
    const float scales[] = {NAN, INFINITY, -INFINITY, 2.36e38f, -3e38f};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        problem = small_problem();
        problem.scale = scales[i];
        expect_refused(&problem, NULL, "scale");
    }
}

/* Sizes that no machine has: any failure, as long as it has a sentence. */
static void huge_problems(void **state)
{
    (void)state;
    const size_t fields[] = {offsetof(ith_attn_problem, batch), offsetof(ith_attn_problem, heads),
                             offsetof(ith_attn_problem, head_dim), offsetof(ith_attn_problem, q_len),
                             offsetof(ith_attn_problem, kv_len)};
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ith_attn_problem problem = small_problem();
        memcpy((char *)&problem + fields[i], &(int64_t){INT64_MAX}, sizeof(int64_t));
        ith_fail(context, ITH_OK, "stale");
        ith_status status = ith_plan_predict(context, &problem, NULL, 1, 0, true, &info);
        assert_true(status == ITH_ERR_ARGUMENT || status == ITH_ERR_MEMORY || status == ITH_ERR_UNSUPPORTED);
        assert_string_not_equal(ith_context_error(context), "stale");
    }
}

/* A field of ith_attn_options, an int or, if it is wide, an int64_t. */
typedef struct option_field {
    size_t at;
    const char *name;
    bool wide, negative_only;
} option_field;

static const option_field option_fields[] = {
    {offsetof(ith_attn_options, strategy), "strategy", false, false},
    {offsetof(ith_attn_options, ulysses), "ulysses", false, false},
    {offsetof(ith_attn_options, ring), "ring", false, false},
    {offsetof(ith_attn_options, direction), "direction", false, false},
    {offsetof(ith_attn_options, chunks), "chunks", false, true},
    {offsetof(ith_attn_options, fold), "fold", false, false},
    {offsetof(ith_attn_options, softmax), "softmax", false, false},
    {offsetof(ith_attn_options, smooth), "smooth", false, false},
    {offsetof(ith_attn_options, exchange), "exchange", false, false},
    {offsetof(ith_attn_options, threads), "threads", false, true},
    {offsetof(ith_attn_options, effort), "effort", false, false},
    {offsetof(ith_attn_options, compress), "compress", false, false},
    {offsetof(ith_attn_options, overlap), "overlap", true, false},
    {offsetof(ith_attn_options, process_ranks), "process_ranks", true, true},
    {offsetof(ith_attn_options, host_ranks), "host_ranks", true, true},
    {offsetof(ith_attn_options, block_q), "block_q", true, true},
    {offsetof(ith_attn_options, block_kv), "block_kv", true, true},
    {offsetof(ith_attn_options, block_kv_compute), "block_kv_compute", true, true},
    {offsetof(ith_attn_options, block_kv_compute_in), "block_kv_compute_in", true, true},
};

/* Asks for a plan whose options have a value in this field. */
static void expect_field_refused(const option_field *field, int64_t value)
{
    const ith_attn_problem problem = small_problem();
    const int narrow = (int)value;
    ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
    memcpy((char *)&o + field->at, field->wide ? (const void *)&value : (const void *)&narrow,
           field->wide ? sizeof value : sizeof narrow);
    expect_refused(&problem, &o, field->name);
}

static void fields_of_options(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof option_fields / sizeof *option_fields; i++) {
        for (int j = 0; j < NONSENSE; j++)
            if (!option_fields[i].negative_only || nonsense[j] <= 0)
                expect_field_refused(&option_fields[i], nonsense[j]);
        if (!strncmp(option_fields[i].name, "block_", 6))
            expect_field_refused(&option_fields[i], INT64_MAX);
    }
}

static void options_of_plans(void **state)
{
    (void)state;
    const ith_attn_problem problem = small_problem();
    ith_attn_options o = ITH_ATTN_OPTIONS_INIT;
    const size_t sizes[] = {0, 3, 8, 1 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        o.struct_size = sizes[i];
        expect_refused(&problem, &o, "ith_attn_options");
    }
    o = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    o.threads = INT_MAX;
    expect_refused(&problem, &o, "threads");
    o = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    o.process_ranks = 3;
    REFUSED(context, "process_ranks is 3", ith_plan_predict(context, &problem, &o, 4, 0, false, &info));
    o.process_ranks = 4, o.host_ranks = 2;
    REFUSED(context, "a process runs on one host", ith_plan_predict(context, &problem, &o, 4, 0, false, &info));
    o = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    const char *const kernels[] = {"", "abacus", "%s%n", "f32_ref "};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        o.kernel = kernels[i];
        expect_refused(&problem, &o, "kernel");
    }
}

static void plans(void **state)
{
    (void)state;
    const ith_attn_problem problem = small_problem();
    ith_plan *plan = (ith_plan *)context;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_plan_counters counters = ITH_PLAN_COUNTERS_INIT;
    REFUSED(NULL, "context is NULL", ith_plan_create(NULL, &problem, NULL, NULL, &plan));
    assert_null(plan);
    REFUSED(context, "out is NULL", ith_plan_create(context, &problem, NULL, NULL, NULL));
    REFUSED(NULL, "context is NULL", ith_plan_predict(NULL, &problem, NULL, 1, 0, true, &info));
    REFUSED(context, "ith_plan_info is NULL", ith_plan_predict(context, &problem, NULL, 1, 0, true, NULL));
    REFUSED_SIZES(context, info, "ith_plan_info", ith_plan_predict(context, &problem, NULL, 1, 0, true, &info));
    REFUSED(context, "ranks is 0", ith_plan_predict(context, &problem, NULL, 0, 0, true, &info));
    REFUSED(context, "ranks is -2", ith_plan_predict(context, &problem, NULL, -2, 0, true, &info));
    REFUSED(context, "at most 1048576", ith_plan_predict(context, &problem, NULL, 1048577, 0, true, &info));
    REFUSED(context, "at most 1048576", ith_plan_predict(context, &problem, NULL, INT_MAX, 0, true, &info));
    REFUSED(context, "rank is -1", ith_plan_predict(context, &problem, NULL, 2, -1, true, &info));
    REFUSED(context, "rank is 2", ith_plan_predict(context, &problem, NULL, 2, 2, true, &info));
    REFUSED(NULL, "plan is NULL", ith_plan_describe(NULL, &info));
    REFUSED(NULL, "plan is NULL", ith_plan_count(NULL, &counters));
    check(context, ith_plan_create(context, &problem, NULL, NULL, &plan));
    REFUSED(context, "ith_plan_info is NULL", ith_plan_describe(plan, NULL));
    REFUSED_SIZES(context, info, "ith_plan_info", ith_plan_describe(plan, &info));
    REFUSED(context, "ith_plan_counters is NULL", ith_plan_count(plan, NULL));
    REFUSED_SIZES(context, counters, "ith_plan_counters", ith_plan_count(plan, &counters));
    char text[4] = "abc";
    assert_null(ith_plan_print(plan, NULL, 100));
    assert_ptr_equal(ith_plan_print(plan, text, 0), text);
    assert_string_equal(text, "abc");
    assert_int_equal(strlen(ith_plan_print(plan, text, sizeof text)), 3);
    ith_plan_destroy(NULL);
    ith_plan_cancel(NULL);
    ith_plan_destroy(&plan);
    ith_plan_destroy(&plan);
    assert_null(plan);
}

static void tensors(void **state)
{
    (void)state;
    const ith_attn_problem problem = small_problem();
    float q[64] = {0}, k[64] = {0}, v[64] = {0}, o[64] = {0};
    ith_attn_tensors all = ITH_ATTN_TENSORS_INIT;
    all.q = q, all.k = k, all.v = v, all.o = o;
    ith_plan *plan = NULL;
    check(context, ith_plan_create(context, &problem, NULL, NULL, &plan));
    REFUSED(NULL, "plan is NULL", ith_plan_execute(NULL, &all));
    REFUSED(context, "ith_attn_tensors is NULL", ith_plan_execute(plan, NULL));
    REFUSED_SIZES(context, all, "ith_attn_tensors", ith_plan_execute(plan, &all));
    ith_attn_tensors missing = all;
    missing.q = NULL;
    REFUSED(context, "q", ith_plan_execute(plan, &missing));
    missing = all, missing.k = NULL;
    REFUSED(context, "k", ith_plan_execute(plan, &missing));
    missing = all, missing.v = NULL;
    REFUSED(context, "v", ith_plan_execute(plan, &missing));
    missing = all, missing.o = NULL;
    REFUSED(context, "o", ith_plan_execute(plan, &missing));
    missing = all, missing.o = k;
    REFUSED(context, "overlap", ith_plan_execute(plan, &missing));
    missing = all, missing.mask = q;
    REFUSED(context, "mask", ith_plan_execute(plan, &missing));
    missing = all, missing.k = (const char *)k + 1;
    REFUSED(context, "k", ith_plan_execute(plan, &missing));
    check(context, ith_plan_execute(plan, &all));
    ith_plan_destroy(&plan);
}

static void kernels_and_peaks(void **state)
{
    (void)state;
    bool usable = true;
    assert_non_null(ith_kernel_list(NULL, 0, &usable));
    assert_false(usable);
    assert_non_null(ith_kernel_list(context, 0, NULL));
    usable = true;
    assert_non_null(ith_product_list(NULL, 0, &usable));
    assert_false(usable);
    assert_non_null(ith_product_list(context, 0, NULL));
    for (int i = 0; i < NONSENSE; i++) {
        assert_null(ith_kernel_list(context, nonsense[i], &usable));
        assert_null(ith_product_list(context, nonsense[i], &usable));
    }
    const char *refusal = "untouched";
    for (int i = 0; i < NONSENSE; i++)
        assert_null(ith_module_list(nonsense[i], &refusal));
    assert_string_equal(refusal, "untouched");
    assert_null(ith_module_list(nonsense[0], NULL));
    ith_peak peak = ITH_PEAK_INIT;
    REFUSED(NULL, "context is NULL", ith_peak_rate(NULL, 0, 1, 0, &peak));
    REFUSED(context, "ith_peak is NULL", ith_peak_rate(context, 0, 1, 0, NULL));
    REFUSED_SIZES(context, peak, "ith_peak", ith_peak_rate(context, 0, 1, 0, &peak));
    REFUSED(context, "index is -1", ith_peak_rate(context, -1, 1, 0, &peak));
    REFUSED(NULL, "context is NULL", ith_kernel_peak(NULL, "f32_ref", 1, 0, &peak));
    REFUSED(context, "name is NULL", ith_kernel_peak(context, NULL, 1, 0, &peak));
    REFUSED(context, "abacus", ith_kernel_peak(context, "abacus", 1, 0, &peak));
    REFUSED(context, "ith_peak is NULL", ith_kernel_peak(context, "f32_ref", 1, 0, NULL));
    REFUSED_SIZES(context, peak, "ith_peak", ith_kernel_peak(context, "f32_ref", 1, 0, &peak));
    const double times[] = {-1, NAN, INFINITY, 1e300};
    for (int i = 0; i < 4; i++) {
        REFUSED(context, "seconds is", ith_peak_rate(context, 0, 1, times[i], &peak));
        REFUSED(context, "seconds is", ith_kernel_peak(context, "f32_ref", 1, times[i], &peak));
    }
    REFUSED(context, "threads is -1", ith_peak_rate(context, 0, -1, 0, &peak));
    REFUSED(context, "threads is 2147483647", ith_kernel_peak(context, "f32_ref", INT_MAX, 0, &peak));
    strcpy(peak.name, "before"), peak.gflops = 1;
    check(context, ith_peak_rate(context, INT_MAX, 1, 0, &peak));
    assert_string_equal(peak.name, "");
    assert_true(peak.gflops == 0);
}

/* A machine without memory gives no context, no clone, no plan and no trace. */
static void memory(void **state)
{
    (void)state;
    failing_allocator allocator;
    const ith_attn_problem problem = small_problem();
    assert_null(failing_context(&allocator, 0));
    assert_non_null(strstr(ith_context_error(NULL), "memory"));
    ith_context *poor = failing_context(&allocator, 1), *clone = poor;
    REFUSED_AS(ITH_ERR_MEMORY, poor, "memory", ith_context_clone(poor, &clone));
    assert_null(clone);
    ith_plan *plan = (ith_plan *)poor;
    allocator.refuse = allocator.calls;
    REFUSED_AS(ITH_ERR_MEMORY, poor, "memory", ith_plan_create(poor, &problem, NULL, NULL, &plan));
    assert_null(plan);
    allocator.refuse = allocator.calls;
    REFUSED_AS(ITH_ERR_MEMORY, poor, "trace", ith_trace_start(poor, 100));
    ith_context_destroy(&poor);
    assert_int_equal(allocator.held, 0);
}

static void files(void **state)
{
    (void)state;
    char *folder = temporary_folder();
    REFUSED(NULL, "context is NULL", ith_wisdom_load(NULL, "wisdom"));
    REFUSED(context, "path is NULL", ith_wisdom_load(context, NULL));
    REFUSED(NULL, "context is NULL", ith_wisdom_save(NULL, "wisdom"));
    REFUSED(context, "path is NULL", ith_wisdom_save(context, NULL));
    REFUSED(NULL, "context is NULL", ith_flight_save(NULL, "flight"));
    REFUSED(context, "path is NULL", ith_flight_save(context, NULL));
    REFUSED(NULL, "context is NULL", ith_trace_start(NULL, 1));
    REFUSED(context, "events is -1", ith_trace_start(context, -1));
    REFUSED(context, "must be from 0 (no trace) to 2", ith_trace_start(context, INT64_MAX));
    REFUSED(context, "nothing is traced", ith_trace_save(context, "trace"));
    check(context, ith_trace_start(context, 4));
    REFUSED(NULL, "context is NULL", ith_trace_save(NULL, "trace"));
    REFUSED(context, "path is NULL", ith_trace_save(context, NULL));
    const char *const paths[] = {"", "/", folder, "/nowhere/at/all", "/proc/self/nothing/file"};
    unlink(".lock");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        REFUSED_AS(ITH_ERR_IO, context, "cannot", ith_wisdom_load(context, paths[i]));
        REFUSED_AS(ITH_ERR_IO, context, "cannot", ith_wisdom_save(context, paths[i]));
        REFUSED_AS(ITH_ERR_IO, context, "cannot", ith_trace_save(context, paths[i]));
    }
    REFUSED_AS(ITH_ERR_IO, context, "its name is empty", ith_trace_save(context, ""));
    REFUSED_AS(ITH_ERR_IO, context, "cannot open /nowhere/a?b?c",
               ith_wisdom_load(context, "/nowhere/a\nb\xc2\x85"
                                        "c"));
    assert_int_equal(access(".lock", F_OK), -1); /* the lock of a file without a name */
    check(context, ith_trace_start(context, 0));
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_unknown_values),
        cmocka_unit_test_setup_teardown(contexts, context_set_up, context_tear_down),
        cmocka_unit_test(texts_are_cut),
        cmocka_unit_test(shares),
        cmocka_unit_test_setup_teardown(ranks, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(communicators, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(strategies, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(problems, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(huge_problems, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(fields_of_options, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(options_of_plans, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(plans, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(tensors, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(kernels_and_peaks, context_set_up, context_tear_down),
        cmocka_unit_test(memory),
        cmocka_unit_test_setup_teardown(files, context_set_up, context_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
