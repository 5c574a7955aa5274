/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer on a device compared with diffusers: every stage on one rank, and the output on several, in f32 and
 * bf16; tokens with a condition, known tokens, prompts of different lengths; streamed layers; memory; failures. The
 * device is the fake one (gpu/fake), which works at once or as late as it may, unless ITHACA_TEST_DEVICE names another,
 * such as cuda:0. */
#include "device/device_fixture.h"
#include "gpu/fake/fake_device.h"
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/golden_pass.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "wan/dit/device/dit_device.h"

#include <ithaca/files.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *devices[] = {"fake:0", "fake:1"};
static int device_count = 2;

static bool is_fake(void)
{
    return strncmp(devices[0], "fake", 4) == 0;
}

/* Makes the video of a pass small, for tests that compare two runs and not the golden output. It has five tokens, whose
 * latents are the first numbers of the golden latents. */
static void shrink(golden_pass *c)
{
    c->shape.frames = 1, c->shape.height = 2, c->shape.width = 10;
    c->tokens = ith_dit_token_count(c->shape.frames, c->shape.height, c->shape.width);
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
    {SMALL_DIT "/run.safetensors", SMALL_DIT, 0, 4, 2},
    {NO_CROSS_NORM "/run.safetensors", NO_CROSS_NORM, 0, 4, 2},
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
    golden_pass c;
    golden_pass_open(&c, passes[pass].golden, passes[pass].model, kind);
    const int64_t numbers = golden_pass_numbers(&c);
    print_message("%s, %s:\n", passes[pass].golden, kind == OPERANDS_F32 ? "f32" : "bf16");
    c.watched = true, c.repeats = 1;
    check(context, golden_pass_run(context, NULL, &c));
    c.watched = false, c.repeats = is_fake() ? passes[pass].repeats : 2;
    assert_int_equal(c.seen, passes[pass].stages);
    for (int i = 0; i < (is_fake() ? passes[pass].groups : most); i++) {
        memset(c.result, 0, (size_t)numbers * sizeof *c.result);
        c.options.strategy = groups[i].strategy;
        check(context, ith_run_ranks(context, groups[i].ranks, 0, golden_pass_run, &c));
        const double error = golden_pass_error(&c);
        print_message("  %d ranks, %s: relative error %.2e\n", groups[i].ranks, ith_strategy_name(groups[i].strategy),
                      error);
        if (!(error <= c.limit))
            fail_msg("relative error %g", error);
    }
    golden_pass_close(&c);
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
    golden_pass c;
    check(context, ith_context_use_device(context, devices[0]));
    golden_pass_open(&c, passes[0].golden, passes[0].model, OPERANDS_F32);
    shrink(&c);
    golden_pass_check_branches(&c, 2e-6);
    golden_pass_close(&c);
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
            golden_pass c;
            snprintf(path, sizeof path, "golden/lora/%s.safetensors", forms[i]);
            check(context, ith_lora_open(context, &(ith_lora_source){.path = path, .strength = 0.7}, 1, &lora));
            golden_pass_open_with(&c, SMALL_DIT "/run.safetensors", SMALL_DIT, lora, kind, 0);
            check(context, golden_pass_run(context, NULL, &c));
            const double error = relative_l2(c.result, find_tensor(golden, forms[i])->data, golden_pass_numbers(&c));
            print_message("LoRA %s, kind %d: relative error %.2e\n", forms[i], kind, error);
            assert_true(error <= c.limit);
            golden_pass_close(&c);
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
    for (int order = 0; order < (is_fake() ? 3 : 1); order++) {
        golden_pass whole;
        check(context, ith_context_use_device(context, is_fake() ? orders[order] : devices[0]));
        golden_pass_open(&whole, passes[0].golden, passes[0].model, OPERANDS_BF16_IN_F32);
        shrink(&whole);
        const int64_t bytes = golden_pass_numbers(&whole) * (int64_t)sizeof *whole.result;
        check(context, golden_pass_run(context, NULL, &whole));
        for (size_t i = 0; i < sizeof streamed / sizeof *streamed; i++) {
            golden_pass c;
            golden_pass_open_with(&c, passes[0].golden, passes[0].model, NULL, OPERANDS_BF16_IN_F32, streamed[i]);
            shrink(&c);
            const ith_dit_device *there = c.dit->device, *all = whole.dit->device;
            assert_int_equal(there->bytes + streamed[i] * there->layer_bytes, all->bytes);
            for (int ranks = 1; ranks <= 2; ranks++) {
                memset(c.result, 0, (size_t)bytes);
                c.options.strategy = ranks > 1 ? ITH_STRATEGY_ULYSSES : ITH_STRATEGY_AUTO;
                check(context, ith_run_ranks(context, ranks, 0, golden_pass_run, &c));
                if (memcmp(c.result, whole.result, (size_t)bytes) != 0)
                    fail_msg("%s, %d layers streamed, %d ranks: other bits", is_fake() ? orders[order] : devices[0],
                             (int)streamed[i], ranks);
            }
            golden_pass_close(&c);
        }
        golden_pass_close(&whole);
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
    golden_pass c;
    ith_dit_workspace *run = NULL;
    if (!is_fake())
        return;
    check(context, ith_context_use_device(context, devices[1]));
    golden_pass_open_with(&c, passes[0].golden, passes[0].model, NULL, OPERANDS_F32, 5);
    shrink(&c);
    fake_control_table *fake = find_fake();
    const int64_t numbers = golden_pass_numbers(&c);
    float *tokens = malloc((size_t)(PASS_BATCH * c.tokens * c.in) * sizeof *tokens);
    float *want = malloc((size_t)numbers * sizeof *want), *out = malloc((size_t)numbers * sizeof *out);
    for (int64_t b = 0; b < PASS_BATCH; b++)
        ith_dit_patchify(c.latents + b * c.tokens * c.in, c.in / ITH_DIT_PATCH, &c.shape, 0, c.tokens,
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
    golden_pass_close(&c);
    check(context, ith_context_use_device(context, "cpu"));
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

/* All work of one rank: opens the expert, makes the text, and computes. */
static ith_status run_whole(const float *const *rows, const int64_t *counts, int64_t streamed, golden_pass *c)
{
    const ith_dit_choices choices = {.types = number_kind(OPERANDS_F32), .streamed = streamed};
    ith_status status = open_dit_with(context, passes[2].model, &choices, &c->dit);
    if (!status)
        status = ith_dit_text_create(context, c->dit, PASS_BATCH, rows, counts, &c->text);
    if (!status)
        status = golden_pass_run(context, NULL, c);
    if (c->text)
        ith_dit_text_free(context, &c->text);
    ith_dit_free(context, &c->dit);
    return status;
}

/* Whichever call of the device fails, the run ends with a sentence, and nothing is left on the device. */
static void fail_each_call(int64_t streamed)
{
    const float *rows[PASS_BATCH];
    int64_t counts[PASS_BATCH], calls = 0;
    golden_pass c;
    check(context, ith_context_use_device(context, devices[1]));
    golden_pass_open_with(&c, passes[2].golden, passes[2].model, NULL, OPERANDS_F32, streamed);
    shrink(&c);
    fake_control_table *fake = find_fake();
    golden_pass_prompts(&c, rows, counts);
    ith_dit_text_free(context, &c.text);
    ith_dit_free(context, &c.dit);
    const int64_t held = atomic_load(&fake->device_held), pinned = atomic_load(&fake->pinned_held);
    const long streams = atomic_load(&fake->streams), before = atomic_load(&fake->calls);
    check(context, run_whole(rows, counts, streamed, &c));
    calls = atomic_load(&fake->calls) - before;
    for (int64_t i = 0; i < calls; i += 1 + i / 40) {
        atomic_store(&fake->refuse, atomic_load(&fake->calls) + i);
        const ith_status status = run_whole(rows, counts, streamed, &c);
        atomic_store(&fake->refuse, -1);
        if (status && !strstr(ith_context_error(context), "the test refuses this call"))
            fail_msg("call %d: %s", (int)i, ith_context_error(context));
        assert_int_equal(atomic_load(&fake->device_held), held);
        assert_int_equal(atomic_load(&fake->pinned_held), pinned);
        assert_int_equal(atomic_load(&fake->streams), streams);
    }
    golden_pass_close(&c);
    check(context, ith_context_use_device(context, "cpu"));
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    if (!is_fake())
        return;
    fail_each_call(0);
    fail_each_call(2);
}

/* A rank is refused if its context computes on another device than the device that holds the weights. */
static void another_device_is_refused(void **state)
{
    (void)state;
    golden_pass c;
    check(context, ith_context_use_device(context, devices[0]));
    golden_pass_open(&c, passes[0].golden, passes[0].model, OPERANDS_F32);
    check(context, ith_context_use_device(context, "cpu"));
    assert_int_equal(golden_pass_run(context, NULL, &c), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "ranks that share a transformer use one device"));
    golden_pass_close(&c);
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
