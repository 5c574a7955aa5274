/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that a pipeline encodes once for several runs: the runs give the same latents, and open no text encoder. */
#include "support/engine/pipeline_fixture.h"
#include "support/memory.h"

#include <stdio.h>
#include <string.h>

#define FRAME_BYTES (32 * 32 * 3)

static const char circle[] = "A red circle moves to the right.", square[] = "A green square.", nothing[] = "";

/* The frames of a run, and whether its text stage was seen. */
typedef struct outcome {
    uint8_t frames[5 * FRAME_BYTES];
    int64_t count;
    bool encoded;
} outcome;

static void look(void *user, ith_stage stage, int64_t done, int64_t total)
{
    (void)done, (void)total;
    if (stage == ITH_STAGE_TEXT)
        ((outcome *)user)->encoded = true;
}

static ith_status take_frame(void *user, int64_t index, const uint8_t *rgb, int64_t height, int64_t width)
{
    outcome *o = user;
    assert_int_equal(height * width * 3, FRAME_BYTES);
    memcpy(o->frames + index * FRAME_BYTES, rgb, FRAME_BYTES);
    o->count = index + 1;
    return ITH_OK;
}

/* The options of each rank, and its results. */
typedef struct scene {
    ith_generate_options options;
    ith_pipeline *pipeline;
    const char *const *texts;
    int64_t text_count;
} scene;

static ith_status encode(ith_context *own, ith_comm *comm, void *user)
{
    const scene *s = user;
    (void)own;
    return ith_pipeline_encode(s->pipeline, comm, &s->options, s->texts, s->text_count);
}

static ith_status generate(ith_context *own, ith_comm *comm, void *user)
{
    const scene *s = user;
    (void)own;
    return ith_pipeline_generate(s->pipeline, comm, &s->options, NULL);
}

static scene small_scene(outcome *o)
{
    scene s = {.options = ITH_GENERATE_OPTIONS_INIT, .pipeline = pipeline};
    s.options.prompt = circle, s.options.negative = nothing;
    s.options.frames = 5, s.options.height = s.options.width = 32, s.options.steps = 2;
    s.options.guidance[0] = 4, s.options.guidance[1] = 3, s.options.precision = ITH_PRECISION_F32;
    s.options.on_progress = look, s.options.on_frame = take_frame, s.options.user = o;
    return s;
}

static void texts_are_encoded_once(void **state)
{
    (void)state;
    static const char *const texts[] = {circle, nothing, square, circle};
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        outcome plain = {.count = 0}, kept = {.count = 0}, other = {.count = 0};
        scene s = small_scene(&plain);
        ith_pipeline *own = NULL;
        check(context, ith_pipeline_open(context, MODEL, &own));
        s.pipeline = own;
        check(context, ith_run_ranks(context, ranks, 0, generate, &s));
        assert_true(plain.encoded);
        assert_int_equal(plain.count, 5);
        s.texts = texts, s.text_count = 4;
        check(context, ith_run_ranks(context, ranks, 0, encode, &s));
        s.options.user = &kept;
        check(context, ith_run_ranks(context, ranks, 0, generate, &s));
        assert_false(kept.encoded);
        assert_memory_equal(kept.frames, plain.frames, sizeof plain.frames);
        s.options.user = &other, s.options.prompt = square;
        check(context, ith_run_ranks(context, ranks, 0, generate, &s));
        assert_false(other.encoded);
        assert_memory_not_equal(other.frames, plain.frames, sizeof plain.frames);
        s.options.negative = "something else", other.encoded = false; /* one of the prompts was not encoded before */
        check(context, ith_run_ranks(context, ranks, 0, generate, &s));
        assert_true(other.encoded);
        s.options.negative = nothing, s.options.precision = ITH_PRECISION_BF16; /* the prompts were kept in f32 */
        other.encoded = false;
        check(context, ith_run_ranks(context, ranks, 0, generate, &s));
        assert_true(other.encoded);
        ith_pipeline_close(&own);
    }
}

static void memory_is_predicted(void **state)
{
    (void)state;
    static const char *const texts[] = {circle, nothing};
    outcome o;
    scene s = small_scene(&o);
    ith_generate_report report = ITH_GENERATE_REPORT_INIT;
    ith_context *own = NULL;
    ith_pipeline *fresh = NULL;
    check(own, ith_context_create(NULL, &own));
    check(own, ith_pipeline_open(own, MODEL, &fresh));
    check(own, ith_pipeline_encode(fresh, NULL, &s.options, texts, 2));
    const int64_t held = memory_of(own).current_bytes;
    s.options.frames = 17, s.options.height = s.options.width = 128, s.options.on_frame = NULL;
    check(own, ith_pipeline_generate(fresh, NULL, &s.options, &report));
    assert_int_equal(memory_of(own).current_bytes, held);
    const double ratio = (double)report.predicted_bytes / (double)report.peak_bytes;
    if (ratio < 0.95 || ratio > 1.05)
        fail_msg("predicted %lld bytes, held %lld", (long long)report.predicted_bytes, (long long)report.peak_bytes);
    ith_pipeline_close(&fresh);
    assert_int_equal(memory_of(own).current_bytes, 0);
    ith_context_destroy(&own);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {circle, NULL};
    outcome o;
    scene s = small_scene(&o);
    assert_int_equal(ith_pipeline_encode(NULL, NULL, &s.options, texts, 1), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_pipeline_encode(pipeline, NULL, NULL, texts, 1), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_pipeline_encode(pipeline, NULL, &s.options, NULL, 1), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_pipeline_encode(pipeline, NULL, &s.options, texts, 2), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "a text is NULL"));
    check(context, ith_pipeline_encode(pipeline, NULL, &s.options, texts, 0));
}

static ith_status encode_other(ith_context *own, ith_comm *comm, void *user)
{
    static const char *const texts[] = {circle, square};
    const scene *s = user;
    (void)own;
    return ith_pipeline_encode(s->pipeline, comm, &s->options, texts, 1 + (ith_comm_rank(comm) == 1));
}

/* Ranks with different texts are refused, even if they share a pipeline. */
static void ranks_give_the_same_texts(void **state)
{
    (void)state;
    outcome o;
    scene s = small_scene(&o);
    assert_int_equal(ith_run_ranks(context, 2, 0, encode_other, &s), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "the list of texts of rank 1 and of rank 0 differ"));
}

static ith_status encode_all(ith_context *own, void *user)
{
    static const char *const texts[] = {circle, square};
    scene s = small_scene(user);
    ith_pipeline *fresh = NULL;
    s.options.threads = 2;
    ith_status status = ith_pipeline_open(own, MODEL, &fresh);
    s.pipeline = fresh, s.texts = texts, s.text_count = 2;
    if (!status)
        status = ith_run_ranks(own, 2, 0, encode, &s);
    ith_pipeline_close(&fresh);
    return status;
}

static void no_refused_allocation_loses_memory(void **state)
{
    (void)state;
    outcome o;
    assert_true(refuse_every_allocation(encode_all, &o, 23) > 30);
}

/* The last allocations of a call are the list of the texts that the pipeline keeps. */
static void ranks_hear_why_no_text_is_kept(void **state)
{
    (void)state;
    outcome o;
    failing_allocator allocator;
    ith_context *own = failing_context(&allocator, -1);
    check(own, encode_all(own, &o));
    ith_context_destroy(&own);
    const long calls = atomic_load(&allocator.calls);
    for (long refused = calls - 4; refused < calls; refused++) {
        own = failing_context(&allocator, refused);
        assert_int_equal(encode_all(own, &o), ITH_ERR_MEMORY);
        assert_non_null(strstr(ith_context_error(own), "memory"));
        ith_context_destroy(&own);
        assert_int_equal(atomic_load(&allocator.held), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_encoded_once),
        cmocka_unit_test(ranks_give_the_same_texts),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(no_refused_allocation_loses_memory),
        cmocka_unit_test(ranks_hear_why_no_text_is_kept),
    };
    return cmocka_run_group_tests(tests, pipeline_set_up, pipeline_tear_down);
}
