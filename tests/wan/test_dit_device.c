/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer on a device compared with diffusers: every stage on one rank, and the output on several, in f32 and
 * bf16; tokens with a condition, known tokens, prompts of different lengths; streamed layers; memory; failures. The
 * device is the fake one (gpu/fake), which works at once or as late as it may, unless ITHACA_TEST_DEVICE names another,
 * such as cuda:0. */
#include "comm/comm.h"
#include "device/device_fixture.h"
#include "gpu/fake/fake_device.h"
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/find_tokens.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "wan/dit/device/dit_device.h"

#include <ithaca/files.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 2

/* A golden pass with the expected output. */
typedef struct call {
    ith_tensor_file *file;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_shape shape;
    int64_t tokens, in, out; /* S; numbers of a token's latents before and after the pass */
    float t[BATCH], *result;
    const float *want;
    ith_attn_options options;
    int64_t streamed; /* number of streamed layers */
    int repeats;      /* passes of each workspace */
    bool watched;     /* whether the stages are compared */
    double limit, worst;
    int seen;
} call;

static const char *devices[] = {"fake:0", "fake:1"};
static int device_count = 2;

/* ---- Golden passes ----------------------------------------------------------------------------------------------- */

/* The rows of a prompt, which the golden file pads with zeros. */
static int64_t count_rows(const float *rows, int64_t count, int64_t dim)
{
    while (count > 0) {
        bool is_zero = true;
        for (int64_t i = 0; i < dim; i++)
            is_zero = is_zero && rows[(count - 1) * dim + i] == 0;
        if (!is_zero)
            break;
        count--;
    }
    return count;
}

static void find_prompts(const call *c, const float *rows[BATCH], int64_t counts[BATCH])
{
    const ith_tensor *both = ith_tensor_file_find(c->file, "text");
    for (int b = 0; b < BATCH; b++) {
        const ith_tensor *text = both ? both : find_tensor(c->file, b ? "text_1" : "text_0");
        const int64_t dim = text->shape[text->dims - 1], most = text->shape[text->dims - 2];
        rows[b] = (const float *)text->data + (both ? b * most * dim : 0);
        counts[b] = count_rows(rows[b], most, dim);
    }
}

static void open_call_with(call *c, const char *golden, const char *model, ith_lora *lora, int kind, int64_t streamed)
{
    const float *rows[BATCH];
    int64_t counts[BATCH];
    memset(c, 0, sizeof *c);
    c->streamed = streamed, c->repeats = 2;
    c->options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    c->limit = kind == OPERANDS_F32 ? 2e-5 : 3e-2;
    check(context, ith_tensor_file_open(context, golden, &c->file));
    check(context, open_dit_with(context, model, lora, number_kind(kind), ITH_LINEAR_KEEP_NONE, streamed, &c->dit));
    const ith_tensor *latents = find_tensor(c->file, "latents"), *out = find_tensor(c->file, "out");
    const ith_tensor *time = find_tensor(c->file, "timestep");
    c->shape = (ith_dit_shape){BATCH, latents->shape[2], latents->shape[3], latents->shape[4], 0, 0};
    c->tokens = ith_dit_token_count(c->shape.frames, c->shape.height, c->shape.width);
    c->shape.known = ith_tensor_file_find(c->file, "first") ? c->tokens / c->shape.frames : 0;
    c->in = latents->shape[1] * ITH_DIT_PATCH, c->out = out->shape[1] * ITH_DIT_PATCH;
    c->want = out->data;
    for (int b = 0; b < BATCH; b++)
        c->t[b] = time->dtype == ITH_F32 ? ((const float *)time->data)[b] : (float)((const int64_t *)time->data)[b];
    find_prompts(c, rows, counts);
    check(context, ith_dit_text_create(context, c->dit, BATCH, rows, counts, &c->text));
    c->result = calloc((size_t)(BATCH * c->tokens * c->out), sizeof *c->result);
    assert_non_null(c->result);
}

static void open_call(call *c, const char *golden, const char *model, int kind)
{
    open_call_with(c, golden, model, NULL, kind, 0);
}

/* Makes the video of a call small, for tests that compare two runs and not the golden output. It has five tokens, whose
 * latents are the first numbers of the golden latents. */
static void shrink(call *c)
{
    c->shape.frames = 1, c->shape.height = 2, c->shape.width = 10;
    c->tokens = ith_dit_token_count(c->shape.frames, c->shape.height, c->shape.width);
}

static void close_call(call *c)
{
    ith_dit_text_free(context, &c->text);
    ith_dit_free(context, &c->dit);
    ith_tensor_file_close(&c->file);
    free(c->result);
}

/* Compares a stage. For each batch entry the golden file holds all or the first tokens of the stage; it holds
 * patch_embedding as [2, dim, F, H/2, W/2]. */
static void compare_stage(void *user, const char *stage, const float *rows, int64_t count, int64_t width)
{
    call *c = user;
    const ith_tensor *want = ith_tensor_file_find(c->file, stage);
    assert_non_null(rows);
    if (!want)
        return;
    const int64_t of_entry = count / BATCH, compared = want->dims == 3 ? want->shape[1] : of_entry;
    const float *golden = want->data;
    double difference = 0, norm = 0;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < compared; i++)
            for (int64_t j = 0; j < width; j++) {
                const int64_t at = want->dims == 5 ? (b * width + j) * of_entry + i : (b * compared + i) * width + j;
                const double d = (double)rows[(b * of_entry + i) * width + j] - (double)golden[at];
                difference += d * d;
                norm += (double)golden[at] * (double)golden[at];
            }
    const double error = sqrt(difference / norm);
    print_message("  %-40s %.2e\n", stage, error);
    if (!(error <= c->limit))
        fail_msg("%s: relative error %g", stage, error);
    c->worst = fmax(c->worst, error);
    c->seen++;
}

/* ---- One rank's part --------------------------------------------------------------------------------------------- */

static ith_status run_rank(ith_context *own, ith_comm *comm, void *user)
{
    call *c = user;
    ith_dit_workspace *run = NULL;
    ith_status status = ith_dit_workspace_create(own, c->dit, c->text, &c->shape, &c->options, comm, &run);
    if (status)
        return status;
    int64_t begin = 0, count = 0;
    ith_share(c->tokens, ith_comm_size(comm), ith_comm_rank(comm), &begin, &count);
    const int64_t known = c->shape.known - begin;
    const float *latents = find_tensor(c->file, "latents")->data;
    float *tokens = malloc((size_t)(BATCH * count * c->in + 1) * sizeof *tokens);
    float *condition = find_tokens(c->file, "condition", &c->shape, begin, count);
    float *first = find_tokens(c->file, "first", &c->shape, begin, known < 0 ? 0 : known < count ? known : count);
    float *out = malloc((size_t)(BATCH * count * c->out + 1) * sizeof *out);
    float *space = malloc((size_t)(BATCH * c->tokens * ith_dit_config_of(c->dit)->dim) * sizeof *space);
    if (c->watched)
        ith_dit_workspace_watch(run, compare_stage, c, space);
    for (int64_t b = 0; b < BATCH; b++)
        ith_dit_patchify(latents + b * c->tokens * c->in, c->in / ITH_DIT_PATCH, &c->shape, begin, count,
                         tokens + b * count * c->in);
    const ith_dit_tokens input = {tokens, count * c->in, first, condition};
    for (int again = 0; again < c->repeats && !status; again++)
        status = ith_dit_forward(own, run, &input, c->t, out);
    for (int64_t b = 0; b < BATCH && !status; b++)
        ith_dit_unpatchify(out + b * count * c->out, c->out / ITH_DIT_PATCH, &c->shape, begin, count,
                           c->result + b * c->tokens * c->out);
    free(tokens), free(condition), free(first), free(out), free(space);
    ith_dit_workspace_free(own, &run);
    return status;
}

/* The fake device takes a second for a pass of the demo's model. Its two experts differ only in their weights, so on
 * the fake device only the first expert runs with all groups of ranks. */
static const struct {
    const char *golden, *model;
    int stages;  /* stages of the golden file, which a watched pass compares */
    int groups;  /* groups of ranks that run on the fake device */
    int repeats; /* repeats on the fake device */
} passes[] = {
    {"golden/shapes/dit_high.safetensors", "../models/shapes/transformer", 8, 4, 1},
    {"golden/shapes/dit_low.safetensors", "../models/shapes/transformer_2", 8, 1, 1},
    {"golden/dit_small/run.safetensors", "golden/dit_small", 0, 4, 2},
    {"golden/dit_no_cross_norm/run.safetensors", "golden/dit_no_cross_norm", 0, 4, 2},
    {"golden/i2v/dit.safetensors", "golden/i2v/model/transformer", 0, 4, 2},
    {"golden/ti2v/dit.safetensors", "golden/ti2v/model/transformer", 0, 4, 2},
};

static void compare_pass(int pass, int kind)
{
    static const struct {
        int ranks;
        ith_strategy strategy;
    } groups[] = {{1, ITH_STRATEGY_AUTO}, {2, ITH_STRATEGY_AUTO}, {2, ITH_STRATEGY_RING}, {4, ITH_STRATEGY_AUTO}};
    const int most = (int)(sizeof groups / sizeof *groups);
    const bool is_fake = !strncmp(devices[0], "fake", 4);
    call c;
    open_call(&c, passes[pass].golden, passes[pass].model, kind);
    const int64_t numbers = BATCH * c.tokens * c.out;
    print_message("%s, %s:\n", passes[pass].golden, kind == OPERANDS_F32 ? "f32" : "bf16");
    c.watched = true, c.repeats = 1;
    check(context, run_rank(context, NULL, &c));
    c.watched = false, c.repeats = is_fake ? passes[pass].repeats : 2;
    assert_int_equal(c.seen, passes[pass].stages);
    for (int i = 0; i < (is_fake ? passes[pass].groups : most); i++) {
        memset(c.result, 0, (size_t)numbers * sizeof *c.result);
        c.options.strategy = groups[i].strategy;
        check(context, ith_run_ranks(context, groups[i].ranks, 0, run_rank, &c));
        const double error = relative_l2(c.result, c.want, numbers);
        print_message("  %d ranks, %s: relative error %.2e\n", groups[i].ranks, ith_strategy_name(groups[i].strategy),
                      error);
        if (!(error <= c.limit))
            fail_msg("relative error %g", error);
    }
    close_call(&c);
}

static void compare_passes(int kind)
{
    check(context, ith_context_use_device(context, devices[kind == OPERANDS_F32 ? 0 : device_count - 1]));
    for (size_t pass = 0; pass < sizeof passes / sizeof *passes; pass++)
        compare_pass((int)pass, kind);
    check(context, ith_context_use_device(context, "cpu"));
}

static void f32_is_that_of_diffusers(void **state)
{
    (void)state;
    compare_passes(OPERANDS_F32);
}

static void bf16_is_close(void **state)
{
    (void)state;
    compare_passes(OPERANDS_BF16_IN_F32);
}

/* ---- One prompt after the other ---------------------------------------------------------------------------------- */

/* If the guidance branches are computed one after the other, with the shorter text padded, they have the numbers that
 * they have as a batch. */
static void branches_in_turn_are_the_batch(void **state)
{
    (void)state;
    call c;
    const float *rows[BATCH];
    int64_t counts[BATCH];
    ith_dit_text *texts[BATCH] = {NULL};
    ith_dit_workspace *run = NULL;
    check(context, ith_context_use_device(context, devices[0]));
    open_call(&c, passes[0].golden, passes[0].model, OPERANDS_F32);
    shrink(&c);
    check(context, run_rank(context, NULL, &c));
    find_prompts(&c, rows, counts);
    for (int b = 0; b < BATCH; b++)
        check(context, ith_dit_text_create(context, c.dit, 1, &rows[b], &counts[b], &texts[b]));
    ith_dit_shape shape = c.shape;
    shape.batch = 1, shape.longest_text = 512;
    check(context, ith_dit_workspace_create(context, c.dit, texts[0], &shape, NULL, NULL, &run));
    float *tokens = malloc((size_t)(c.tokens * c.in) * sizeof *tokens);
    float *out = malloc((size_t)(c.tokens * c.out) * sizeof *out), *latent = malloc((size_t)(c.tokens * c.out) * 4);
    for (int turn = 0; turn < 3; turn++) {
        const int64_t b = turn % 2, numbers = c.tokens * c.out;
        const float *latents = (const float *)find_tensor(c.file, "latents")->data + b * c.tokens * c.in;
        ith_dit_workspace_set_text(run, texts[b]);
        ith_dit_patchify(latents, c.in / ITH_DIT_PATCH, &shape, 0, c.tokens, tokens);
        check(context, ith_dit_forward(context, run, &(ith_dit_tokens){.latents = tokens}, &c.t[b], out));
        ith_dit_unpatchify(out, c.out / ITH_DIT_PATCH, &shape, 0, c.tokens, latent);
        assert_true(relative_l2(latent, c.result + b * numbers, numbers) <= 2e-6);
    }
    free(tokens), free(out), free(latent);
    ith_dit_workspace_free(context, &run);
    for (int b = 0; b < BATCH; b++)
        ith_dit_text_free(context, &texts[b]);
    close_call(&c);
    check(context, ith_context_use_device(context, "cpu"));
}

/* LoRA files of every form are merged into the weights before these are copied to the device. */
static void loras_are_merged(void **state)
{
    (void)state;
    static const char *const forms[] = {"peft", "original", "plain", "kohya", "differences"};
    ith_tensor_file *golden = NULL;
    check(context, ith_context_use_device(context, devices[0]));
    check(context, ith_tensor_file_open(context, "golden/lora/out.safetensors", &golden));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int kind = OPERANDS_F32; kind <= OPERANDS_BF16_IN_F32; kind++) {
            char path[64];
            ith_lora *lora = NULL;
            call c;
            snprintf(path, sizeof path, "golden/lora/%s.safetensors", forms[i]);
            check(context, ith_lora_open(context, &(ith_lora_source){path, 0.7}, 1, &lora));
            open_call_with(&c, "golden/dit_small/run.safetensors", "golden/dit_small", lora, kind, 0);
            check(context, run_rank(context, NULL, &c));
            const double error = relative_l2(c.result, find_tensor(golden, forms[i])->data, BATCH * c.tokens * c.out);
            print_message("LoRA %s, kind %d: relative error %.2e\n", forms[i], kind, error);
            assert_true(error <= c.limit);
            close_call(&c);
            ith_lora_close(&lora);
        }
    ith_tensor_file_close(&golden);
    check(context, ith_context_use_device(context, "cpu"));
}

/* ---- Streamed layers --------------------------------------------------------------------------------------------- */

/* Layers whose weights are copied in each pass give the bits of layers that stay on the device, in whatever order the
 * device works. */
static void streamed_layers_change_no_bit(void **state)
{
    (void)state;
    static const char *const orders[] = {"fake:1", "fake:2", "fake:3"};
    static const int64_t streamed[] = {1, 3, 6};
    const bool is_fake = !strncmp(devices[0], "fake", 4);
    for (int order = 0; order < (is_fake ? 3 : 1); order++) {
        call whole;
        check(context, ith_context_use_device(context, is_fake ? orders[order] : devices[0]));
        open_call(&whole, passes[0].golden, passes[0].model, OPERANDS_BF16_IN_F32);
        shrink(&whole);
        const int64_t bytes = BATCH * whole.tokens * whole.out * (int64_t)sizeof *whole.result;
        check(context, run_rank(context, NULL, &whole));
        for (size_t i = 0; i < sizeof streamed / sizeof *streamed; i++) {
            call c;
            open_call_with(&c, passes[0].golden, passes[0].model, NULL, OPERANDS_BF16_IN_F32, streamed[i]);
            shrink(&c);
            const ith_dit_device *there = c.dit->device, *all = whole.dit->device;
            assert_int_equal(there->bytes + streamed[i] * there->layer_bytes, all->bytes);
            for (int ranks = 1; ranks <= 2; ranks++) {
                memset(c.result, 0, (size_t)bytes);
                c.options.strategy = ranks > 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_AUTO;
                check(context, ith_run_ranks(context, ranks, 0, run_rank, &c));
                if (memcmp(c.result, whole.result, (size_t)bytes) != 0)
                    fail_msg("%s, %d layers streamed, %d ranks: other bits", is_fake ? orders[order] : devices[0],
                             (int)streamed[i], ranks);
            }
            close_call(&c);
        }
        close_call(&whole);
        check(context, ith_context_use_device(context, "cpu"));
    }
}

static fake_control_table *find_fake(void)
{
    void *module = dlopen(DEVICES "/ithaca_device_fake.so", RTLD_NOW | RTLD_NOLOAD);
    fake_control_table *fake = module ? dlsym(module, "fake_control") : NULL;
    assert_non_null(fake);
    return fake;
}

/* After a pass that failed in the middle, the places for streamed layers hold other layers than the next pass needs
 * first. The next pass must be right all the same. */
static void a_pass_follows_one_that_failed(void **state)
{
    (void)state;
    call c;
    ith_dit_workspace *run = NULL;
    if (strncmp(devices[0], "fake", 4) != 0)
        return;
    check(context, ith_context_use_device(context, devices[1]));
    open_call_with(&c, passes[0].golden, passes[0].model, NULL, OPERANDS_F32, 5);
    shrink(&c);
    fake_control_table *fake = find_fake();
    const int64_t numbers = c.tokens * c.out * BATCH;
    float *tokens = malloc((size_t)(BATCH * c.tokens * c.in) * sizeof *tokens);
    float *want = malloc((size_t)numbers * sizeof *want), *out = malloc((size_t)numbers * sizeof *out);
    const float *latents = find_tensor(c.file, "latents")->data;
    for (int64_t b = 0; b < BATCH; b++)
        ith_dit_patchify(latents + b * c.tokens * c.in, c.in / ITH_DIT_PATCH, &c.shape, 0, c.tokens,
                         tokens + b * c.tokens * c.in);
    const ith_dit_tokens input = {.latents = tokens, .batch_stride = c.tokens * c.in};
    check(context, ith_dit_workspace_create(context, c.dit, c.text, &c.shape, NULL, NULL, &run));
    const long before = atomic_load(&fake->calls);
    check(context, ith_dit_forward(context, run, &input, c.t, want));
    const long calls = atomic_load(&fake->calls) - before;
    for (long i = 1; i < calls; i += 7) {
        atomic_store(&fake->refuse, atomic_load(&fake->calls) + i);
        assert_int_equal(ith_dit_forward(context, run, &input, c.t, out), ITH_ERR_INTERNAL);
        atomic_store(&fake->refuse, -1);
        memset(out, 0, (size_t)numbers * sizeof *out);
        check(context, ith_dit_forward(context, run, &input, c.t, out));
        if (memcmp(out, want, (size_t)numbers * sizeof *out) != 0)
            fail_msg("other bits after call %ld has failed", i);
    }
    free(tokens), free(want), free(out);
    ith_dit_workspace_free(context, &run);
    close_call(&c);
    check(context, ith_context_use_device(context, "cpu"));
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

/* All work of one rank: opens the expert, makes the text, and computes. */
static ith_status run_whole(const float *const *rows, const int64_t *counts, call *c)
{
    ith_status status = open_dit_with(context, passes[2].model, NULL, number_kind(OPERANDS_F32), ITH_LINEAR_KEEP_NONE,
                                      c->streamed, &c->dit);
    if (!status)
        status = ith_dit_text_create(context, c->dit, BATCH, rows, counts, &c->text);
    if (!status)
        status = run_rank(context, NULL, c);
    if (c->text)
        ith_dit_text_free(context, &c->text);
    ith_dit_free(context, &c->dit);
    return status;
}

/* Whichever call of the device fails, the run ends with a sentence, and nothing is left on the device. */
static void fail_each_call(int64_t streamed)
{
    const float *rows[BATCH];
    int64_t counts[BATCH], calls = 0;
    call c;
    check(context, ith_context_use_device(context, devices[1]));
    open_call_with(&c, passes[2].golden, passes[2].model, NULL, OPERANDS_F32, streamed);
    shrink(&c);
    fake_control_table *fake = find_fake();
    find_prompts(&c, rows, counts);
    ith_dit_text_free(context, &c.text);
    ith_dit_free(context, &c.dit);
    const int64_t held = atomic_load(&fake->device_held), pinned = atomic_load(&fake->pinned_held);
    const long streams = atomic_load(&fake->streams), before = atomic_load(&fake->calls);
    check(context, run_whole(rows, counts, &c));
    calls = atomic_load(&fake->calls) - before;
    for (int64_t i = 0; i < calls; i += 1 + i / 40) {
        atomic_store(&fake->refuse, atomic_load(&fake->calls) + i);
        const ith_status status = run_whole(rows, counts, &c);
        atomic_store(&fake->refuse, -1);
        if (status && !strstr(ith_context_error(context), "the test refuses this call"))
            fail_msg("call %d: %s", (int)i, ith_context_error(context));
        assert_int_equal(atomic_load(&fake->device_held), held);
        assert_int_equal(atomic_load(&fake->pinned_held), pinned);
        assert_int_equal(atomic_load(&fake->streams), streams);
    }
    close_call(&c);
    check(context, ith_context_use_device(context, "cpu"));
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    if (strncmp(devices[0], "fake", 4) != 0)
        return;
    fail_each_call(0);
    fail_each_call(2);
}

/* A rank is refused if its context computes on another device than the device that holds the weights. */
static void another_device_is_refused(void **state)
{
    (void)state;
    call c;
    check(context, ith_context_use_device(context, devices[0]));
    open_call(&c, passes[0].golden, passes[0].model, OPERANDS_F32);
    check(context, ith_context_use_device(context, "cpu"));
    assert_int_equal(run_rank(context, NULL, &c), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "ranks that share a transformer use one device"));
    close_call(&c);
}

int main(void)
{
    const char *named = getenv("ITHACA_TEST_DEVICE");
    if (named) {
        device_require();
        devices[0] = named, device_count = 1;
    } else
        setenv("ITHACA_PLUGIN_PATH", DEVICES, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_is_that_of_diffusers),       cmocka_unit_test(bf16_is_close),
        cmocka_unit_test(branches_in_turn_are_the_batch), cmocka_unit_test(loras_are_merged),
        cmocka_unit_test(streamed_layers_change_no_bit),  cmocka_unit_test(a_pass_follows_one_that_failed),
        cmocka_unit_test(failures_leave_nothing),         cmocka_unit_test(another_device_is_refused),
    };
    return cmocka_run_group_tests_name("dit_device", tests, context_set_up, context_tear_down);
}
