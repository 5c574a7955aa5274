/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks with random weights: the stages that they report, and the operations of each; memory, errors,
 * interruption, refused allocations. Afterwards the context is as before. */
#include <ithaca/bench.h>

#include "base/observer.h"
#include "base/trace.h"
#include "support/fixture.h"
#include "support/memory.h"
#include "support/refused.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { STAGES_MAX = 32 };

typedef struct found {
    ith_bench_stage stages[STAGES_MAX];
    int count;
    int64_t done, total, shown; /* the progress, and how often it was shown */
    int questions, stop_at;     /* should_stop returns true at this question; negative: never */
} found;

static void take_stage(void *user, const ith_bench_stage *stage)
{
    found *f = user;
    assert_true(f->count < STAGES_MAX);
    f->stages[f->count++] = *stage;
}

static void take_progress(void *user, int64_t done, int64_t total)
{
    found *f = user;
    assert_true(done >= f->done && done <= total);
    f->done = done, f->total = total, f->shown++;
}

static bool stop_at_once(void *user)
{
    found *f = user;
    return f->stop_at >= 0 && f->questions++ >= f->stop_at;
}

static ith_block_problem tiny_block(void)
{
    ith_block_problem p = ITH_BLOCK_PROBLEM_INIT;
    p.heads = 2, p.head_dim = 32, p.ffn_dim = 96, p.tokens = 40, p.text_rows = 9;
    return p;
}

/* The layers of models/shapes. */
static ith_decode_problem tiny_decode(void)
{
    ith_decode_problem p = ITH_DECODE_PROBLEM_INIT;
    p.base_dim = 16, p.res_blocks = 1, p.frames = 5, p.height = 16, p.width = 24;
    return p;
}

static ith_bench_options options_for(found *f)
{
    ith_bench_options o = ITH_BENCH_OPTIONS_INIT;
    *f = (found){.stop_at = -1};
    o.repeats = 2, o.threads = 1, o.precision = ITH_PRECISION_F32;
    o.on_stage = take_stage, o.on_progress = take_progress, o.should_stop = stop_at_once, o.user = f;
    return o;
}

/* Checks every stage, and that the stages add up to the whole. */
static void check_stages(const found *f, const char *const *names, int count)
{
    double quiet = 0, operations = 0;
    assert_int_equal(f->count, count);
    for (int i = 0; i < count; i++) {
        const ith_bench_stage *s = &f->stages[i];
        assert_string_equal(s->name, names[i]);
        assert_true(s->seconds >= 0 && s->spread >= 0 && s->quiet_seconds >= 0 && isfinite(s->spread));
        assert_true(s->quiet_seconds <= s->seconds * 1.0001);
        assert_int_equal(s->operations > 0, s->peak[0] != '\0');
        assert_int_equal(s->operations > 0, s->peak_gflops > 0);
        assert_true(s->burst_gflops >= s->peak_gflops);
        if (i < count - 1)
            quiet += s->quiet_seconds, operations += s->operations;
    }
    const ith_bench_stage *whole = &f->stages[count - 1];
    assert_true(whole->seconds > 0);
    assert_true(fabs(whole->quiet_seconds - quiet) <= 1e-9 * quiet);
    assert_true(fabs(whole->operations - operations) <= 1e-9 * operations);
}

/* A product of rows [m, k] and [k, n]. */
static double product(double m, double n, double k)
{
    return 2 * m * n * k;
}

static void a_block_has_its_stages(void **state)
{
    (void)state;
    static const char *const names[] = {"qkv", "self attention", "project", "cross attention", "ffn", "rest", "block"};
    const double work[] = {product(40, 192, 64), 2 * product(40, 40, 64), 2 * product(40, 64, 64),
                           2 * product(40, 10, 64), product(40, 64, 64) + 2 * product(40, 96, 64)};
    const ith_dtype types[] = {ITH_F32, ITH_BF16, ITH_F16, ITH_I8, ITH_F8_E4M3, ITH_Q8_0};
    for (int i = 0; i < 12; i++) {
        found f;
        ith_bench_options o = options_for(&f);
        ith_bench_report report = ITH_BENCH_REPORT_INIT;
        const ith_block_problem p = tiny_block();
        o.weights = types[i / 2], o.precision = i % 2 ? ITH_PRECISION_BF16 : ITH_PRECISION_F32;
        check(context, ith_bench_block(context, &p, &o, &report));
        check_stages(&f, names, 7);
        for (int stage = 0; stage < 5; stage++)
            assert_true(f.stages[stage].operations == work[stage]);
        assert_int_equal(report.precision, o.precision);
        assert_int_equal(report.threads, 1);
        assert_int_equal(f.done, 3 * ITH_PROGRESS_UNIT);
        assert_int_equal(f.total, 3 * ITH_PROGRESS_UNIT);
        assert_true(f.shown >= 3 * 5);
    }
}

/* The operations of a residual block: two convolutions over 3 x 3 x 3 pixels, and a shortcut if channels change. */
static double residual(double pixels, double in, double out)
{
    return product(pixels, out, 27 * in) + product(pixels, out, 27 * out) + (in == out ? 0 : product(pixels, out, in));
}

enum { VAE_STAGES = 7 };

/* ith_bench_decode or ith_bench_encode. */
typedef ith_status (*vae_bench)(ith_context *context, const ith_decode_problem *problem,
                                const ith_bench_options *options, ith_bench_report *report);

/* Checks the stages of a decoder or an encoder, and the operations of each. */
static void check_vae(vae_bench bench, const ith_decode_problem *p, const char *const names[VAE_STAGES + 3],
                      const double work[VAE_STAGES])
{
    for (int i = 0; i < 2; i++) {
        found f;
        ith_bench_options o = options_for(&f);
        ith_bench_report report = ITH_BENCH_REPORT_INIT;
        o.precision = i ? ITH_PRECISION_BF16 : ITH_PRECISION_F32;
        check(context, bench(context, p, &o, &report));
        check_stages(&f, names, VAE_STAGES + 3);
        for (int stage = 0; stage < VAE_STAGES; stage++)
            if (f.stages[stage].operations != work[stage])
                fail_msg("%s: %.0f operations, not %.0f", names[stage], f.stages[stage].operations, work[stage]);
        assert_true(report.weights_bytes > 0 && report.weights_bytes < report.predicted_bytes);
        assert_int_equal(f.done, 3 * ITH_PROGRESS_UNIT);
    }
}

static const char *const decoder_names[] = {"latents", "attention", "level 1", "level 2", "level 3",
                                            "level 4", "picture",   "norms",   "rest",    "decode"};

/* Latents of 2 x 3 pixels; level n has 4^n times as many. The first latent frame becomes one frame, the second two at
 * level 2 and four from level 3 on. Only the second is doubled in time. */
static void a_decoder_has_its_stages(void **state)
{
    (void)state;
    const double work[] = {
        2 * (product(6, 16, 16) + product(6, 64, 27 * 16) + 2 * residual(6, 64, 64)),
        2 * (product(6, 256, 64) + 2 * product(6, 6, 64)),
        2 * (2 * residual(6, 64, 64)) + product(6, 128, 3 * 64) + 3 * product(24, 32, 9 * 64),
        3 * (residual(24, 32, 64) + residual(24, 64, 64)) + 2 * product(24, 128, 3 * 64) + 5 * product(96, 32, 9 * 64),
        5 * (2 * residual(96, 32, 32) + product(384, 16, 9 * 32)),
        5 * (2 * residual(384, 16, 16)),
        5 * product(384, 3, 27 * 16),
    };
    const ith_decode_problem p = tiny_decode();
    check_vae(ith_bench_decode, &p, decoder_names, work);
}

/* The same for Wan 2.2. Each level begins with the channels of the level before it, and the last convolution makes 2 x
 * 2 pixels. */
static void a_decoder_of_wan_22_has_its_stages(void **state)
{
    (void)state;
    const double work[] = {
        2 * (product(6, 48, 48) + product(6, 64, 27 * 48) + 2 * residual(6, 64, 64)),
        2 * (product(6, 256, 64) + 2 * product(6, 6, 64)),
        2 * (2 * residual(6, 64, 64)) + product(6, 128, 3 * 64) + 3 * product(24, 64, 9 * 64),
        3 * (2 * residual(24, 64, 64)) + 2 * product(24, 128, 3 * 64) + 5 * product(96, 64, 9 * 64),
        5 * (residual(96, 64, 32) + residual(96, 32, 32) + product(384, 32, 9 * 32)),
        5 * (residual(384, 32, 16) + residual(384, 16, 16)),
        5 * product(384, 12, 27 * 16),
    };
    ith_decode_problem p = tiny_decode();
    p.vae = 22, p.height = 32, p.width = 48;
    check_vae(ith_bench_decode, &p, decoder_names, work);
    p.height = 24;
    REFUSED(context, "height is 24; it must be a multiple of 16: the nearest are 16 and 32",
            ith_bench_decode(context, &p, NULL, NULL));
}

/* Level 1 works at the size of the picture. Its five frames become three after level 2, and two after level 3: every
 * two frames become one, except the first frame, which stays. */
static void an_encoder_has_its_stages(void **state)
{
    (void)state;
    static const char *const names[] = {"latents", "attention", "picture", "level 1", "level 2",
                                        "level 3", "level 4",   "norms",   "rest",    "encode"};
    const double middle = 2 * residual(6, 64, 64);
    double work[] = {
        2 * (middle + product(6, 32, 27 * 64) + product(6, 16, 32)),
        2 * (product(6, 256, 64) + 2 * product(6, 6, 64)),
        5 * product(384, 16, 27 * 3),
        5 * (residual(384, 16, 16) + product(96, 16, 9 * 16)),
        5 * (residual(96, 16, 32) + product(24, 32, 9 * 32)) + 2 * product(24, 32, 3 * 32),
        3 * (residual(24, 32, 64) + product(6, 64, 9 * 64)) + product(6, 64, 3 * 64),
        2 * residual(6, 64, 64),
    };
    ith_decode_problem p = tiny_decode();
    check_vae(ith_bench_encode, &p, names, work);
    p.vae = 22, p.height = 32, p.width = 48;
    work[0] = 2 * (middle + product(6, 96, 27 * 64) + product(6, 48, 96)), work[2] = 5 * product(384, 16, 27 * 12);
    check_vae(ith_bench_encode, &p, names, work);
}

/* Runs a benchmark in a new context. Returns the predicted memory minus the memory that it held. */
static int64_t memory_missing(vae_bench bench, int threads, ith_precision precision, ith_dtype weights)
{
    found f;
    ith_context *own = NULL;
    ith_bench_options o = options_for(&f);
    ith_bench_report report = ITH_BENCH_REPORT_INIT;
    ith_block_problem block = tiny_block();
    const ith_decode_problem decode = tiny_decode();
    block.heads = 12, block.tokens = 700, block.ffn_dim = 1000, block.lora_rank = threads > 1 ? 5 : 0;
    o.threads = threads, o.precision = precision, o.weights = weights, o.repeats = 1;
    check(NULL, ith_context_create(NULL, &own));
    check(own, bench ? bench(own, &decode, &o, &report) : ith_bench_block(own, &block, &o, &report));
    assert_int_equal(memory_of(own).current_bytes, 0);
    assert_int_equal(memory_of(own).peak_bytes, report.peak_bytes);
    const int64_t missing = report.predicted_bytes - report.peak_bytes;
    ith_bench_report smaller = ITH_BENCH_REPORT_INIT; /* with the same context, whose peak is larger */
    block.tokens = 16, f.done = 0;
    check(own, ith_bench_block(own, &block, &o, &smaller));
    assert_true(memory_of(own).peak_bytes >= report.peak_bytes);
    assert_int_equal(smaller.predicted_bytes - smaller.peak_bytes, 0);
    ith_context_destroy(&own);
    return missing;
}

static void memory_is_predicted(void **state)
{
    (void)state;
    static const vae_bench benches[] = {NULL, ith_bench_decode, ith_bench_encode};
    for (int i = 0; i < 12; i++) {
        const ith_precision precision = i & 4 ? ITH_PRECISION_BF16 : ITH_PRECISION_F32;
        assert_int_equal(memory_missing(benches[i % 3], i & 2 ? 3 : 1, precision, i & 4 ? ITH_BF16 : ITH_F32), 0);
    }
}

/* A benchmark that needs more memory than the machine has is refused before it allocates. */
static void too_much_memory_is_refused(void **state)
{
    (void)state;
    found f;
    ith_bench_report report = ITH_BENCH_REPORT_INIT;
    const ith_bench_options o = options_for(&f);
    ith_block_problem block = ITH_BLOCK_PROBLEM_INIT;
    ith_decode_problem decode = ITH_DECODE_PROBLEM_INIT;
    block.tokens = 1000000000;
    REFUSED_AS(ITH_ERR_MEMORY, context, " would do; force", ith_bench_block(context, &block, &o, &report));
    assert_true(report.predicted_bytes > (int64_t)1 << 40);
    decode.height = 8192, decode.width = 65536;
    REFUSED_AS(ITH_ERR_MEMORY, context, " would do; force", ith_bench_decode(context, &decode, &o, &report));
    assert_true(report.predicted_bytes > (int64_t)1 << 40);
    assert_true(report.peak_bytes < 1 << 22);
    assert_int_equal(f.shown, 0);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    found f;
    const ith_bench_options good = options_for(&f);
    const ith_block_problem block = tiny_block();
    const ith_decode_problem decode = tiny_decode();
    REFUSED(NULL, "context is NULL", ith_bench_block(NULL, &block, NULL, NULL));
    REFUSED(NULL, "context is NULL", ith_bench_decode(NULL, &decode, NULL, NULL));
    REFUSED(context, "ith_block_problem is NULL", ith_bench_block(context, NULL, NULL, NULL));
    REFUSED(context, "ith_decode_problem is NULL", ith_bench_decode(context, NULL, NULL, NULL));
    int64_t *const sizes[] = {&(int64_t){0}, &(int64_t){-1}, &(int64_t){INT64_MAX}, &(int64_t){INT64_MIN}};
    for (int i = 0; i < 4; i++) {
        for (size_t at = offsetof(ith_block_problem, heads); at < sizeof block; at += sizeof(int64_t)) {
            if (at == offsetof(ith_block_problem, lora_rank) && !i)
                continue; /* 0: no LoRA */
            ith_block_problem bad = block;
            memcpy((char *)&bad + at, sizes[i], sizeof(int64_t));
            REFUSED(context, "must lie between", ith_bench_block(context, &bad, &good, NULL));
        }
        for (size_t at = offsetof(ith_decode_problem, base_dim); at < sizeof decode; at += sizeof(int64_t)) {
            ith_decode_problem bad = decode;
            memcpy((char *)&bad + at, sizes[i], sizeof(int64_t));
            REFUSED(context, "must lie between", ith_bench_decode(context, &bad, &good, NULL));
        }
    }
    ith_decode_problem odd = decode;
    odd.frames = 7;
    REFUSED(context, "frames is 7; it must be one more than a multiple of 4: the nearest are 5 and 9",
            ith_bench_decode(context, &odd, &good, NULL));
    odd = decode, odd.width = 30;
    REFUSED(context, "width is 30; it must be a multiple of 8: the nearest are 24 and 32",
            ith_bench_decode(context, &odd, &good, NULL));
    ith_bench_options bad = good;
    bad.precision = (ith_precision)99;
    REFUSED(context, "precision is 99", ith_bench_block(context, &block, &bad, NULL));
    for (int i = 0; i < 2; i++) {
        bad = good, bad.weights = (ith_dtype)(i ? 24 : -1);
        REFUSED(context, i ? "weights is 24, and is no ith_dtype" : "weights is -1, and is no ith_dtype",
                ith_bench_block(context, &block, &bad, NULL));
    }
    bad = good, bad.weights = ITH_I32;
    REFUSED(context, "they must be F32, BF16, F16, fp8, I8 or", ith_bench_block(context, &block, &bad, NULL));
    REFUSED(context, "they must be F32, BF16 or F16", ith_bench_decode(context, &decode, &bad, NULL));
    bad.weights = ITH_Q8_0;
    REFUSED(context, "they must be F32, BF16 or F16", ith_bench_decode(context, &decode, &bad, NULL));
    bad = good, bad.threads = -1;
    REFUSED(context, "threads is -1; it must lie between 0 and", ith_bench_block(context, &block, &bad, NULL));
    bad.threads = INT_MAX;
    REFUSED(context, "threads", ith_bench_decode(context, &decode, &bad, NULL));
    bad = good, bad.repeats = 1001;
    REFUSED(context, "repeats is 1001", ith_bench_decode(context, &decode, &bad, NULL));
    assert_int_equal(f.count, 0);
}

/* A benchmark restores the observer, the trace and the number of threads, at whichever call should_stop ends it. */
static void a_stop_leaves_the_context_as_it_was(void **state)
{
    (void)state;
    const int threads = omp_get_max_threads();
    const ith_block_problem block = tiny_block();
    const ith_decode_problem decode = tiny_decode();
    check(context, ith_trace_start(context, 16));
    struct ith_trace *trace = ith_context_trace(context);
    for (int i = 0; i < 2; i++) {
        found f;
        ith_bench_options o = options_for(&f);
        f.stop_at = 0;
        ith_status status =
            i ? ith_bench_decode(context, &decode, &o, NULL) : ith_bench_block(context, &block, &o, NULL);
        assert_int_equal(status, ITH_ERR_INTERRUPTED);
        assert_int_equal(f.count, 0);
        assert_ptr_equal(ith_context_observer(context), NULL);
        assert_ptr_equal(ith_context_trace(context), trace);
        assert_int_equal(omp_get_max_threads(), threads);
        assert_false(ith_context_interrupted(context));
    }
    check(context, ith_trace_start(context, 0));
}

static ith_status run_block(ith_context *ctx, void *user)
{
    const ith_block_problem block = tiny_block();
    found *f = user;
    const ith_bench_options o = options_for(f);
    return ith_bench_block(ctx, &block, &o, NULL);
}

static ith_status run_decode(ith_context *ctx, void *user)
{
    ith_decode_problem decode = tiny_decode();
    found *f = user;
    const ith_bench_options o = options_for(f);
    decode.frames = 1;
    return ith_bench_decode(ctx, &decode, &o, NULL);
}

static void allocations_may_fail(void **state)
{
    (void)state;
    found f;
    assert_true(refuse_every_allocation(run_block, &f, 3) >= 20);
    assert_true(refuse_every_allocation(run_decode, &f, 5) >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_block_has_its_stages, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(a_decoder_has_its_stages, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(a_decoder_of_wan_22_has_its_stages, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(an_encoder_has_its_stages, context_set_up, context_tear_down),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test_setup_teardown(too_much_memory_is_refused, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, context_set_up, context_tear_down),
        cmocka_unit_test_setup_teardown(a_stop_leaves_the_context_as_it_was, context_set_up, context_tear_down),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
