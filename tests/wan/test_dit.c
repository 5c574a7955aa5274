/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer compared with diffusers, on the checkpoint of the demo and on a small transformer of odd sizes;
 * several ranks compared with one; refusals. */
#include "base/observer.h"
#include "base/size.h"
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/golden_pass.h"
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "support/guarded.h"
#include "support/temporary.h"
#include "wan/dit/dit_weights.h"
#include "wan/dit/dit_workspace.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The golden file holds the embedding of each prompt's first rows. */
static void text_embedding_is_that_of_diffusers(const golden_pass *c)
{
    const ith_tensor *want = find_tensor(c->file, "condition_embedder.text_embedder"),
                     *text = find_tensor(c->file, "text");
    const int64_t count = want->shape[1], dim = want->shape[2], text_dim = text->shape[2];
    float *out = malloc((size_t)(count * dim) * sizeof *out);
    ith_linear_workspace workspace;
    ith_arena arena;
    check(context, one_workspace_make(context, c->dit->memory.linears, count, &workspace, &arena));
    for (int64_t b = 0; b < 2; b++) {
        ith_linear_rows rows = {(float *)text->data + b * text->shape[1] * text_dim, text_dim};
        const ith_linear_input x = ith_linear_from_rows(&rows);
        check(context, ith_dit_embed_text(context, c->dit, &workspace, count, &x, out));
        double error = relative_l2(out, (const float *)want->data + b * count * dim, count * dim);
        print_message("text embedding of prompt %d: relative error %.2e\n", (int)b, error);
        assert_true(error <= 2e-6);
    }
    one_workspace_free(context, &workspace, &arena);
    free(out);
}

/* longest: the most rows of a prompt for which there is room; 0: as many as the longest prompt of the pass has. */
static void golden_shapes(bool low, int64_t longest)
{
    golden_pass c;
    golden_pass_open_expert(&c, low, OPERANDS_F32);
    c.shape.longest_text = longest;
    c.watched = true;
    failing_allocator allocator; /* its memory holds NaN */
    ith_context *own = failing_context(&allocator, -1);
    check(own, golden_pass_run(own, NULL, &c));
    ith_context_destroy(&own);
    const double error = golden_pass_error(&c);
    print_message("relative error %.2e, worst stage %.2e\n", error, c.worst);
    assert_true(error <= 2e-5);
    assert_int_equal(c.seen, 2 * 8); /* all stages but the text embedding, in two passes */
    text_embedding_is_that_of_diffusers(&c);
    golden_pass_close(&c);
}

static void stages_and_output_are_those_of_diffusers(void **state)
{
    (void)state;
    golden_shapes(false, 0);
    golden_shapes(true, 0);
    golden_shapes(true, 200);
}

static void odd_sizes_are_right(void **state)
{
    (void)state;
    static const char *const models[] = {SMALL_DIT, NO_CROSS_NORM};
    for (int i = 0; i < 2; i++) {
        golden_pass c;
        golden_pass_open_odd(&c, models[i], OPERANDS_F32);
        check(context, golden_pass_run(context, NULL, &c));
        const double error = golden_pass_error(&c);
        print_message("relative error %.2e\n", error);
        assert_true(error <= 2e-6);
        golden_pass_close(&c);
    }
}

/* A kernel that is named computes cross-attention too. */
static void both_attentions_take_the_named_kernel(void **state)
{
    (void)state;
    golden_pass c;
    int named = 0;
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_F32);
    for (int i = 0; (c.options.kernel = ith_kernel_list(context, i, NULL)); i++) {
        ith_dit_workspace *run = NULL;
        ith_plan_info self = ITH_PLAN_INFO_INIT, cross = ITH_PLAN_INFO_INIT;
        if (ith_dit_workspace_create(context, c.dit, c.text, &c.shape, &c.options, NULL, &run))
            continue; /* of another type, or not for this processor */
        check(context, ith_plan_describe(run->self_plan, &self));
        check(context, ith_plan_describe(run->cross_plan, &cross));
        assert_string_equal(self.kernel, c.options.kernel);
        assert_string_equal(cross.kernel, c.options.kernel);
        named++;
        ith_dit_workspace_free(context, &run);
    }
    assert_true(named > 0);
    golden_pass_close(&c);
}

/* A workspace takes no text of more keys than it was made for, nor of another number of prompts. */
static void texts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    golden_pass c;
    ith_dit_workspace *run = NULL;
    ith_dit_text *longer = NULL, *one = NULL;
    const ith_dit_tokens input = {.latents = NULL};
    golden_pass_open_expert(&c, false, OPERANDS_F32);
    float *rows = calloc((size_t)(300 * c.dit->config.text_dim), sizeof *rows);
    check(context, ith_dit_text_create(context, c.dit, 2, (const float *[]){rows, rows}, (int64_t[]){300, 1}, &longer));
    check(context, ith_dit_text_create(context, c.dit, 1, (const float *[]){rows}, (int64_t[]){1}, &one));
    check(context, ith_dit_workspace_create(context, c.dit, c.text, &c.shape, &c.options, NULL, &run));
    ith_dit_workspace_set_text(run, longer);
    assert_int_equal(ith_dit_forward(context, run, &input, c.t, c.result), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "a text of 2 prompts with 301 keys for a workspace"));
    ith_dit_workspace_set_text(run, one);
    assert_int_equal(ith_dit_forward(context, run, &input, c.t, c.result), ITH_ERR_ARGUMENT);
    assert_non_null(strstr(ith_context_error(context), "a text of 1 prompts with 2 keys for a workspace"));
    ith_dit_workspace_free(context, &run);
    ith_dit_text_free(context, &longer);
    ith_dit_text_free(context, &one);
    free(rows);
    golden_pass_close(&c);
}

/* Stops after a layer, and notes the part of the pass that was shown meanwhile. */
typedef struct stopper {
    ith_activity activity;
    const char *after;
    int64_t part, parts;
} stopper;

static void stop_after_layer(void *user, const char *stage, const float *rows, int64_t count, int64_t width)
{
    stopper *s = user;
    (void)rows, (void)count, (void)width;
    if (strcmp(stage, s->after))
        return;
    s->part = atomic_load(&s->activity.part), s->parts = atomic_load(&s->activity.parts);
    ith_context_interrupt(context);
}

/* A stop is heard in the next layer, which the sentence names. */
static void a_stop_names_its_layer(void **state)
{
    (void)state;
    golden_pass c;
    ith_dit_workspace *run = NULL;
    stopper s = {.activity.writing = ATOMIC_FLAG_INIT, .after = "blocks.0"};
    char sentence[64];
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_F32);
    const int64_t layers = c.dit->config.layers, numbers = c.in * c.tokens;
    float *latents = calloc((size_t)numbers, sizeof *latents);
    float *space = calloc((size_t)(2 * c.tokens * c.dit->config.dim), sizeof *space);
    const ith_dit_tokens input = {.latents = latents};
    assert_true(layers > 1 && latents && space);
    check(context, ith_dit_workspace_create(context, c.dit, c.text, &c.shape, &c.options, NULL, &run));
    ith_dit_workspace_watch(run, stop_after_layer, &s, space);
    ith_context_set_activity(context, &s.activity);
    assert_int_equal(ith_dit_forward(context, run, &input, c.t, c.result), ITH_ERR_INTERRUPTED);
    ith_context_set_activity(context, NULL);
    ith_context_end_interruption(context);
    snprintf(sentence, sizeof sentence, "stopped in layer 2 of %lld", (long long)layers);
    assert_string_equal(ith_context_error(context), sentence);
    assert_true(s.part == 1 && s.parts == layers);
    ith_dit_workspace_free(context, &run);
    free(latents), free(space);
    golden_pass_close(&c);
}

/* Products of bf16 numbers give results that are close to diffusers' result in f32. Results by f32 instructions and by
 * bf16 instructions are close to each other. */
static void bf16_is_close(void **state)
{
    (void)state;
    float *first = NULL;
    for (int kind = OPERANDS_BF16_IN_F32; kind < operand_kinds_here(context); kind++) {
        golden_pass c;
        golden_pass_open_expert(&c, false, kind);
        const int64_t numbers = golden_pass_numbers(&c);
        check(context, golden_pass_run(context, NULL, &c));
        const double error = golden_pass_error(&c);
        print_message("relative error %.2e\n", error);
        assert_true(error > 1e-6 && error <= 2e-2);
        if (first) {
            double difference = relative_l2(c.result, first, numbers);
            print_message("relative difference of the two ways %.2e\n", difference);
            assert_true(difference <= 1e-2);
        } else {
            first = malloc((size_t)numbers * sizeof *first);
            assert_non_null(first);
            memcpy(first, c.result, (size_t)numbers * sizeof *first);
        }
        golden_pass_close(&c);
    }
    free(first);
}

/* If the guidance branches are computed one after the other, they have the bits that they have as a batch. */
static void branches_in_turn_are_the_batch(void **state)
{
    (void)state;
    golden_pass c;
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_F32);
    golden_pass_check_branches(&c, 0);
    golden_pass_close(&c);
}

/* ---- Ranks ----------------------------------------------------------------------------------------------------- */

/* tolerance: for rings, whose bits differ. ulysses gives the bits of one rank. */
static void ranks_agree(golden_pass *c, double tolerance)
{
    static const struct {
        int ranks, ulysses, ring;
        ith_strategy strategy;
    } meshes[] = {
        {2, 0, 0, ITH_STRATEGY_ULYSSES},      {3, 0, 0, ITH_STRATEGY_ULYSSES},
        {4, 0, 0, ITH_STRATEGY_ULYSSES},      {6, 0, 0, ITH_STRATEGY_ULYSSES},
        {2, 0, 0, ITH_STRATEGY_RING},         {3, 0, 0, ITH_STRATEGY_RING},
        {6, 0, 0, ITH_STRATEGY_RING},         {4, 2, 2, ITH_STRATEGY_ULYSSES_RING},
        {6, 3, 2, ITH_STRATEGY_ULYSSES_RING}, {6, 2, 3, ITH_STRATEGY_ULYSSES_RING},
    };
    const int64_t numbers = golden_pass_numbers(c);
    float *alone = malloc((size_t)numbers * sizeof *alone);
    assert_non_null(alone);
    check(context, golden_pass_run(context, NULL, c));
    memcpy(alone, c->result, (size_t)numbers * sizeof *alone);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        c->options.strategy = meshes[i].strategy;
        c->options.ulysses = meshes[i].ulysses, c->options.ring = meshes[i].ring;
        memset(c->result, 0, (size_t)numbers * sizeof *c->result);
        check(context, ith_run_ranks(context, meshes[i].ranks, 0, golden_pass_run, c));
        if (meshes[i].strategy == ITH_STRATEGY_ULYSSES)
            assert_memory_equal(c->result, alone, (size_t)numbers * sizeof *alone);
        else
            assert_true(relative_l2(c->result, alone, numbers) <= tolerance);
    }
    free(alone);
}

static void ranks_give_the_answer_of_one(void **state)
{
    (void)state;
    golden_pass c;
    golden_pass_open_expert(&c, false, OPERANDS_F32);
    ranks_agree(&c, 1e-5);
    golden_pass_close(&c);
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_F32); /* 5 heads, 45 tokens */
    ranks_agree(&c, 1e-5);
    golden_pass_close(&c);
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_BF16_IN_F32);
    ranks_agree(&c, 1e-2); /* other last bits of a ring may be rounded to another bf16 number */
    golden_pass_close(&c);
}

/* ---- Refusals -------------------------------------------------------------------------------------------------- */

static void config_with(const char *line, ith_status status, const char *word)
{
    char *folder = temporary_folder(), text[512];
    int length = snprintf(text, sizeof text,
                          "{\"num_attention_heads\": 2, \"attention_head_dim\": 16, \"in_channels\": 4, "
                          "\"ffn_dim\": 8, \"num_layers\": 1, \"text_dim\": 8%s}",
                          line);
    temporary_write(temporary_path(folder, "config.json"), text, (size_t)length);
    ith_dit_config config;
    assert_int_equal(ith_dit_config_read(context, folder, &config), status);
    if (status)
        assert_non_null(strstr(ith_context_error(context), word));
    else
        assert_true(config.dim == 32 && config.in_channels == 4 && config.out_channels == 16 &&
                    config.positions == 1024 && config.freq_dim == 256 && config.patch[2] == 2);
    temporary_remove(folder);
}

static void other_models_are_refused_by_name(void **state)
{
    (void)state;
#define CLASS ", \"_class_name\": \"WanTransformer3DModel\""
    config_with(CLASS, ITH_OK, "");
    config_with(CLASS ", \"image_dim\": null", ITH_OK, "");
    config_with(", \"_class_name\": \"WanVACETransformer3DModel\"", ITH_ERR_UNSUPPORTED, "WanVACE");
    config_with("", ITH_ERR_FORMAT, "_class_name");
    config_with(CLASS ", \"image_dim\": 1280", ITH_ERR_UNSUPPORTED, "image_dim");
    config_with(CLASS ", \"added_kv_proj_dim\": 5120", ITH_ERR_UNSUPPORTED, "added_kv_proj_dim");
    config_with(CLASS ", \"pos_embed_seq_len\": 514", ITH_OK, ""); /* without image_dim the field has no effect */
    config_with(CLASS ", \"qk_norm\": null", ITH_ERR_UNSUPPORTED, "qk_norm is null");
    config_with(CLASS ", \"cross_attn_norm\": null", ITH_ERR_UNSUPPORTED, "cross_attn_norm is null");
    config_with(CLASS ", \"quantization_config\": {}", ITH_ERR_UNSUPPORTED, "quantization_config is {}");
    config_with(CLASS ", \"rope_max_seq_len\": 0", ITH_ERR_FORMAT, "rope_max_seq_len");
    config_with(CLASS ", \"window_size\": [-1, -1]", ITH_OK, ""); /* diffusers knows no such field */
    config_with(CLASS ", \"qk_norm\": \"layer_norm\"", ITH_ERR_UNSUPPORTED, "qk_norm");
    config_with(CLASS ", \"patch_size\": [1, 1, 1]", ITH_ERR_UNSUPPORTED, "patch_size");
    config_with(CLASS ", \"patch_size\": [1, 2]", ITH_ERR_UNSUPPORTED, "patch_size");
    config_with(CLASS ", \"freq_dim\": 255", ITH_ERR_FORMAT, "freq_dim");
    config_with(CLASS ", \"out_channels\": -1", ITH_ERR_FORMAT, "out_channels");
    config_with(CLASS ", \"eps\": 2", ITH_ERR_FORMAT, "eps");
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    golden_pass c;
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_F32);
    ith_dit *dit = NULL;
    assert_int_equal(open_dit(context, SMALL_DIT, (ith_number_types){0}, ITH_LINEAR_KEEP_NONE, &dit), ITH_ERR_ARGUMENT);
    ith_dit_text *text = NULL;
    const float *rows = c.want;
    int64_t count = 513;
    assert_int_equal(ith_dit_text_create(context, c.dit, 1, &rows, &count, &text), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_dit_text_create(context, c.dit, 0, &rows, &count, &text), ITH_ERR_ARGUMENT);
    const ith_dit_shape shapes[] = {{1, 1, 4, 4, 0, 0, 0},  {2, 0, 4, 4, 0, 0, 0},   {2, 1, 3, 4, 0, 0, 0},
                                    {2, 1, 4, 0, 0, 0, 0},  {2, 1, 4, 4, 0, 0, 1},   {2, 1, 4, 3, 0, 0, 0},
                                    {2, 1, 4, 4, -1, 0, 0}, {2, 1, 4, 4, 513, 0, 0}, {2, 1 << 30, 2048, 2048, 0, 0, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ith_dit_workspace *run = NULL;
        assert_int_equal(ith_dit_workspace_create(context, c.dit, c.text, &shapes[i], NULL, NULL, &run),
                         ITH_ERR_ARGUMENT);
        assert_null(run);
    }
    /* a text longer than the workspace was made for */
    ith_dit_shape shape = {1, 1, 4, 4, 0, 0, 0};
    ith_dit_workspace *run = NULL;
    count = 2;
    check(context, ith_dit_text_create(context, c.dit, 1, &rows, &count, &text));
    check(context, ith_dit_workspace_create(context, c.dit, text, &shape, NULL, NULL, &run));
    ith_dit_workspace_set_text(run, c.text);
    const ith_dit_tokens input = {.latents = c.latents};
    assert_int_equal(ith_dit_forward(context, run, &input, c.t, c.result), ITH_ERR_ARGUMENT);
    ith_dit_workspace_set_text(run, text);
    check(context, ith_dit_forward(context, run, &input, c.t, c.result));
    ith_dit_workspace_free(context, &run);
    ith_dit_text_free(context, &text);
    golden_pass_close(&c);
}

static void *allocate_guarded(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    return guarded_new(ith_round_up((int64_t)bytes, (int64_t)alignment), (int64_t)alignment, true);
}

static void free_later(void *user, void *memory)
{
    (void)user, (void)memory;
}

/* A prompt of 512 rows has no key that stands for padding. An access after the last bias would be a fault, because the
 * memory ends there. */
static void the_longest_prompt_has_no_absent_rows(void **state)
{
    (void)state;
    golden_pass c;
    golden_pass_open_odd(&c, SMALL_DIT, OPERANDS_F32);
    ith_context_options options = ITH_CONTEXT_OPTIONS_INIT;
    options.allocator = &(ith_allocator){sizeof(ith_allocator), allocate_guarded, free_later, NULL};
    ith_context *guarded = NULL;
    ith_dit_text *text = NULL;
    const int64_t most = 512;
    float *rows = calloc((size_t)(most * c.dit->config.text_dim), sizeof *rows);
    assert_int_equal(ith_context_create(&options, &guarded), ITH_OK);
    for (int64_t count = most - 1; count <= most; count++) { /* the key of one row of padding counts once, too */
        check(guarded, ith_dit_text_create(guarded, c.dit, 1, (const float *const[]){rows}, &count, &text));
        assert_int_equal(text->keys, most);
        for (int64_t key = 0; key < most; key++)
            assert_true(text->key_bias[key] == 0);
        ith_dit_text_free(guarded, &text);
    }
    ith_context_destroy(&guarded);
    guarded_free_all();
    free(rows);
    golden_pass_close(&c);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(stages_and_output_are_those_of_diffusers),
        cmocka_unit_test(odd_sizes_are_right),
        cmocka_unit_test(texts_that_do_not_fit_are_refused),
        cmocka_unit_test(a_stop_names_its_layer),
        cmocka_unit_test(both_attentions_take_the_named_kernel),
        cmocka_unit_test(the_longest_prompt_has_no_absent_rows),
        cmocka_unit_test(bf16_is_close),
        cmocka_unit_test(branches_in_turn_are_the_batch),
        cmocka_unit_test(ranks_give_the_answer_of_one),
        cmocka_unit_test(other_models_are_refused_by_name),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests_name("dit", all, context_set_up, context_tear_down);
}
