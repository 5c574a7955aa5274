/* SPDX-License-Identifier: Apache-2.0 */
/* The transformer compared with diffusers, on the checkpoint of the demo and on a small transformer of odd sizes;
 * several ranks compared with one; refusals; memory. */
#include "base/observer.h"
#include "base/size.h"
#include "comm/comm.h"
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/kinds.h"
#include "support/engine/one_layer.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "support/guarded.h"
#include "support/memory.h"
#include "support/rank_group.h"
#include "support/temporary.h"
#include "wan/dit/dit_shards.h"
#include "wan/dit/dit_weights.h"
#include "wan/dit/dit_workspace.h"

#include <ithaca/files.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL "golden/dit_small"
#define NO_CROSS_NORM "golden/dit_no_cross_norm" /* cross_attn_norm is false */

/* One call of the transformer, read from a golden file, with the expected output. */
typedef struct call {
    ith_tensor_file *file;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_shape shape;
    int64_t in, out, tokens; /* channels; S */
    const float *latents, *want;
    float t[2];
    float *result; /* [2, out, frames, height, width] */
    ith_attn_options options;
} call;

static void open_call(call *c, const char *golden, const char *model, int kind)
{
    memset(c, 0, sizeof *c);
    c->options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    check(context, ith_tensor_file_open(context, golden, &c->file));
    check(context, open_dit(context, model, number_kind(kind), ITH_LINEAR_KEEP_NONE, &c->dit));
    const ith_tensor *latents = find_tensor(c->file, "latents"), *time = find_tensor(c->file, "timestep");
    c->latents = latents->data;
    c->want = find_tensor(c->file, "out")->data;
    c->shape = (ith_dit_shape){2, latents->shape[2], latents->shape[3], latents->shape[4], 0, 0};
    c->in = latents->shape[1], c->out = find_tensor(c->file, "out")->shape[1];
    c->tokens = c->shape.frames * (c->shape.height / 2) * (c->shape.width / 2);
    for (int b = 0; b < 2; b++)
        c->t[b] = time->dtype == ITH_F32 ? ((const float *)time->data)[b] : (float)((const int64_t *)time->data)[b];
    c->result = calloc((size_t)(2 * c->out * 4 * c->tokens), sizeof *c->result);
    assert_non_null(c->result);
}

/* The number of rows of a prompt. The golden file's `text` is [2, 40, text_dim], with zeros after each prompt. */
static int64_t rows_of(const ith_tensor *text, int64_t entry)
{
    const int64_t dim = text->shape[2];
    const float *rows = (const float *)text->data + entry * text->shape[1] * dim;
    int64_t count = text->shape[1];
    while (count > 0) {
        double sum = 0;
        for (int64_t i = 0; i < dim; i++)
            sum += fabs((double)rows[(count - 1) * dim + i]);
        if (sum != 0)
            break;
        count--;
    }
    return count;
}

static void open_shapes(call *c, bool low, int kind)
{
    open_call(c, low ? "golden/shapes/dit_low.safetensors" : "golden/shapes/dit_high.safetensors",
              low ? "../models/shapes/transformer_2" : "../models/shapes/transformer", kind);
    const ith_tensor *text = find_tensor(c->file, "text");
    const float *first = text->data;
    const float *rows[2] = {first, first + text->shape[1] * text->shape[2]};
    const int64_t counts[2] = {rows_of(text, 0), rows_of(text, 1)};
    check(context, ith_dit_text_create(context, c->dit, 2, rows, counts, &c->text));
}

/* One of the two small transformers of odd sizes. */
static void open_odd(call *c, const char *model, int kind)
{
    char run[64];
    snprintf(run, sizeof run, "%s/run.safetensors", model);
    open_call(c, run, model, kind);
    const ith_tensor *first = find_tensor(c->file, "text_0"), *second = find_tensor(c->file, "text_1");
    const float *rows[2] = {first->data, second->data};
    const int64_t counts[2] = {first->shape[0], second->shape[0]};
    check(context, ith_dit_text_create(context, c->dit, 2, rows, counts, &c->text));
}

static void open_small(call *c, int kind)
{
    open_odd(c, SMALL, kind);
}

static void close_call(call *c)
{
    ith_dit_text_free(context, &c->text);
    ith_dit_free(context, &c->dit);
    ith_tensor_file_close(&c->file);
    free(c->result);
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

typedef struct watcher {
    const call *call;
    int seen;
    double worst;
} watcher;

/* Compares a stage. For each batch entry the golden file holds the first tokens of the stage; it holds patch_embedding
 * as [2, dim, F, H/2, W/2]. */
static void compare_stage(void *user, const char *stage, const float *rows, int64_t count, int64_t width)
{
    watcher *w = user;
    const ith_tensor *want = ith_tensor_file_find(w->call->file, stage);
    if (!want)
        return;
    int64_t of_entry = count / 2, compared = want->dims == 3 ? want->shape[1] : of_entry;
    const float *golden = want->data;
    double difference = 0, norm = 0;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = 0; i < compared; i++)
            for (int64_t j = 0; j < width; j++) {
                int64_t at = want->dims == 5 ? (b * width + j) * of_entry + i : (b * compared + i) * width + j;
                double d = (double)rows[(b * of_entry + i) * width + j] - (double)golden[at];
                difference += d * d;
                norm += (double)golden[at] * (double)golden[at];
            }
    double error = sqrt(difference / norm);
    if (!(error <= 2e-5))
        fail_msg("%s: relative error %g", stage, error);
    w->worst = fmax(w->worst, error);
    w->seen++;
}

/* ---- One rank's part of a call, for one rank or many ----------------------------------------------------------- */

typedef struct rank_job {
    call *call;
    watcher *watcher;
    float *out; /* latents [2, ...] */
} rank_job;

static ith_status run_rank(ith_context *c, ith_comm *comm, void *user)
{
    rank_job *job = user;
    call *k = job->call;
    ith_dit_workspace *run = NULL;
    ith_status status = ith_dit_workspace_create(c, k->dit, k->text, &k->shape, &k->options, comm, &run);
    if (status)
        return status;
    float *space = malloc((size_t)(2 * k->tokens * ith_dit_config_of(k->dit)->dim) * sizeof *space);
    if (job->watcher)
        ith_dit_workspace_watch(run, compare_stage, job->watcher, space);
    int64_t begin = 0, count = 0, in = k->in * 4, out = k->out * 4;
    ith_share(k->tokens, ith_comm_size(comm), ith_comm_rank(comm), &begin, &count);
    float *tokens = malloc((size_t)(2 * (count + 1) * in) * sizeof *tokens);
    float *result = malloc((size_t)(2 * (count + 1) * out) * sizeof *result);
    for (int64_t b = 0; b < 2; b++)
        ith_dit_patchify(k->latents + b * k->tokens * in, k->in, &k->shape, begin, count, tokens + b * count * in);
    const ith_dit_tokens input = {.latents = tokens, .batch_stride = count * in};
    for (int again = 0; again < 2 && !status; again++)
        status = ith_dit_forward(c, run, &input, k->t, result);
    for (int64_t b = 0; b < 2 && !status; b++)
        ith_dit_unpatchify(result + b * count * out, k->out, &k->shape, begin, count, job->out + b * k->tokens * out);
    free(tokens);
    free(result);
    free(space);
    ith_dit_workspace_free(c, &run);
    return status;
}

/* The golden file holds the embedding of each prompt's first rows. */
static void text_embedding_is_that_of_diffusers(const call *c)
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

/* longest: the most rows of a prompt for which there is room; 0: as many as the longest prompt of the call has. */
static void golden_shapes(bool low, int64_t longest)
{
    call c;
    open_shapes(&c, low, OPERANDS_F32);
    c.shape.longest_text = longest;
    watcher w = {.call = &c};
    rank_job job = {&c, &w, c.result};
    failing_allocator allocator; /* its memory holds NaN */
    ith_context *own = failing_context(&allocator, -1);
    check(own, run_rank(own, NULL, &job));
    ith_context_destroy(&own);
    double error = relative_l2(c.result, c.want, 2 * c.out * 4 * c.tokens);
    print_message("relative error %.2e, worst stage %.2e\n", error, w.worst);
    assert_true(error <= 2e-5);
    assert_int_equal(w.seen, 2 * 8); /* all stages but the text embedding, in two passes */
    text_embedding_is_that_of_diffusers(&c);
    close_call(&c);
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
    static const char *const models[] = {SMALL, NO_CROSS_NORM};
    for (int i = 0; i < 2; i++) {
        call c;
        open_odd(&c, models[i], OPERANDS_F32);
        rank_job job = {&c, NULL, c.result};
        check(context, run_rank(context, NULL, &job));
        double error = relative_l2(c.result, c.want, 2 * c.out * 4 * c.tokens);
        print_message("relative error %.2e\n", error);
        assert_true(error <= 2e-6);
        close_call(&c);
    }
}

/* A kernel that is named computes cross-attention too. */
static void both_attentions_take_the_named_kernel(void **state)
{
    (void)state;
    call c;
    int named = 0;
    open_small(&c, OPERANDS_F32);
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
    close_call(&c);
}

/* A workspace takes no text of more keys than it was made for, nor of another number of prompts. */
static void texts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    call c;
    ith_dit_workspace *run = NULL;
    ith_dit_text *longer = NULL, *one = NULL;
    const ith_dit_tokens input = {.latents = NULL};
    open_shapes(&c, false, OPERANDS_F32);
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
    close_call(&c);
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
    call c;
    ith_dit_workspace *run = NULL;
    stopper s = {.activity.writing = ATOMIC_FLAG_INIT, .after = "blocks.0"};
    char sentence[64];
    open_small(&c, OPERANDS_F32);
    const int64_t layers = c.dit->config.layers, numbers = c.in * 4 * c.tokens;
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
    close_call(&c);
}

/* Products of bf16 numbers give results that are close to diffusers' result in f32. Results by f32 instructions and by
 * bf16 instructions are close to each other. */
static void bf16_is_close(void **state)
{
    (void)state;
    float *first = NULL;
    for (int kind = OPERANDS_BF16_IN_F32; kind < operand_kinds_here(context); kind++) {
        call c;
        open_shapes(&c, false, kind);
        int64_t numbers = 2 * c.out * 4 * c.tokens;
        rank_job job = {&c, NULL, c.result};
        check(context, run_rank(context, NULL, &job));
        double error = relative_l2(c.result, c.want, numbers);
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
        close_call(&c);
    }
    free(first);
}

/* If the guidance branches are computed one after the other, with the shorter text padded, they have the bits that they
 * have as a batch. */
static void branches_in_turn_are_the_batch(void **state)
{
    (void)state;
    call c;
    open_small(&c, OPERANDS_F32);
    rank_job job = {&c, NULL, c.result};
    check(context, run_rank(context, NULL, &job));
    ith_dit_text *texts[2] = {NULL};
    for (int b = 0; b < 2; b++) {
        const ith_tensor *rows = find_tensor(c.file, b ? "text_1" : "text_0");
        const float *data = rows->data;
        check(context, ith_dit_text_create(context, c.dit, 1, &data, &rows->shape[0], &texts[b]));
    }
    ith_dit_shape shape = c.shape;
    shape.batch = 1, shape.longest_text = 512;
    ith_dit_workspace *run = NULL;
    check(context, ith_dit_workspace_create(context, c.dit, texts[0], &shape, NULL, NULL, &run));
    float *tokens = malloc((size_t)(c.tokens * c.in * 4) * sizeof *tokens);
    float *out = malloc((size_t)(c.tokens * c.out * 4) * sizeof *out);
    float *latent = malloc((size_t)(c.tokens * c.out * 4) * sizeof *latent);
    for (int turn = 0; turn < 3; turn++) {
        int64_t b = turn % 2, numbers = c.tokens * c.out * 4;
        ith_dit_workspace_set_text(run, texts[b]);
        ith_dit_patchify(c.latents + b * c.tokens * c.in * 4, c.in, &shape, 0, c.tokens, tokens);
        check(context, ith_dit_forward(context, run, &(ith_dit_tokens){.latents = tokens}, &c.t[b], out));
        ith_dit_unpatchify(out, c.out, &shape, 0, c.tokens, latent);
        assert_memory_equal(latent, c.result + b * numbers, (size_t)numbers * sizeof *latent);
    }
    free(tokens), free(out), free(latent);
    ith_dit_workspace_free(context, &run);
    ith_dit_text_free(context, &texts[0]);
    ith_dit_text_free(context, &texts[1]);
    close_call(&c);
}

/* ---- Ranks ----------------------------------------------------------------------------------------------------- */

/* tolerance: for rings, whose bits differ. ulysses gives the bits of one rank. */
static void ranks_agree(call *c, double tolerance)
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
    int64_t numbers = 2 * c->out * 4 * c->tokens;
    rank_job job = {c, NULL, c->result};
    check(context, run_rank(context, NULL, &job));
    job.out = calloc((size_t)numbers, sizeof(float));
    assert_non_null(job.out);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        c->options.strategy = meshes[i].strategy;
        c->options.ulysses = meshes[i].ulysses, c->options.ring = meshes[i].ring;
        check(context, ith_run_ranks(context, meshes[i].ranks, 0, run_rank, &job));
        if (meshes[i].strategy == ITH_STRATEGY_ULYSSES)
            assert_memory_equal(job.out, c->result, (size_t)numbers * sizeof(float));
        else
            assert_true(relative_l2(job.out, c->result, numbers) <= tolerance);
    }
    free(job.out);
}

static void ranks_give_the_answer_of_one(void **state)
{
    (void)state;
    call c;
    open_shapes(&c, false, OPERANDS_F32);
    ranks_agree(&c, 1e-5);
    close_call(&c);
    open_small(&c, OPERANDS_F32); /* 5 heads, 45 tokens */
    ranks_agree(&c, 1e-5);
    close_call(&c);
    open_small(&c, OPERANDS_BF16_IN_F32); /* other last bits of a ring may be rounded to another bf16 number */
    ranks_agree(&c, 1e-2);
    close_call(&c);
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
    call c;
    open_small(&c, OPERANDS_F32);
    ith_dit *dit = NULL;
    assert_int_equal(open_dit(context, SMALL, (ith_number_types){0}, ITH_LINEAR_KEEP_NONE, &dit), ITH_ERR_ARGUMENT);
    ith_dit_text *text = NULL;
    const float *rows = c.want;
    int64_t count = 513;
    assert_int_equal(ith_dit_text_create(context, c.dit, 1, &rows, &count, &text), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_dit_text_create(context, c.dit, 0, &rows, &count, &text), ITH_ERR_ARGUMENT);
    const ith_dit_shape shapes[] = {
        {1, 1, 4, 4, 0, 0}, {2, 0, 4, 4, 0, 0},  {2, 1, 3, 4, 0, 0},   {2, 1, 4, 0, 0, 0},
        {2, 1, 4, 3, 0, 0}, {2, 1, 4, 4, -1, 0}, {2, 1, 4, 4, 513, 0}, {2, 1 << 30, 2048, 2048, 0, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        ith_dit_workspace *run = NULL;
        assert_int_equal(ith_dit_workspace_create(context, c.dit, c.text, &shapes[i], NULL, NULL, &run),
                         ITH_ERR_ARGUMENT);
        assert_null(run);
    }
    /* a text longer than the workspace was made for */
    ith_dit_shape shape = {1, 1, 4, 4, 0, 0};
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
    close_call(&c);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* The memory of the workspaces that all ranks hold at the same time. Each is made for its rank's number of threads. */
typedef struct memory_job {
    call *call;
    ith_dit *outline;
    ith_dit_shape shape;
    atomic_int_fast64_t predicted;
    int64_t groups; /* bytes of the groups of a mesh's two axes */
    int64_t held;   /* bytes of all workspaces */
} memory_job;

/* Gives rank 0 the bytes that all ranks hold now. */
static ith_status held_by_all(ith_context *c, ith_comm *comm, int64_t *bytes)
{
    ith_status status = ith_comm_agree(comm, ITH_OK);
    if (!ith_comm_rank(comm))
        *bytes = memory_of(c).current_bytes;
    return status ? status : ith_comm_agree(comm, ITH_OK);
}

/* Measures the bytes of the groups that a plan makes for a mesh, which the prediction does not count. */
static ith_status hold_groups(ith_context *c, ith_comm *comm, const ith_attn_options *options, int64_t *bytes)
{
    int64_t before = 0, after = 0;
    int rank = ith_comm_rank(comm), ulysses = options->ulysses;
    ith_comm *axes[2] = {NULL};
    ith_status status = held_by_all(c, comm, &before);
    if (!status && options->strategy == ITH_STRATEGY_ULYSSES_RING)
        status = ith_comm_split(comm, rank / ulysses, rank % ulysses, &axes[0]);
    if (!status && options->strategy == ITH_STRATEGY_ULYSSES_RING)
        status = ith_comm_split(comm, rank % ulysses, rank / ulysses, &axes[1]);
    if (!status)
        status = held_by_all(c, comm, &after);
    *bytes = after - before;
    ith_comm_destroy(&axes[0]);
    ith_comm_destroy(&axes[1]);
    return status;
}

static ith_status hold_workspace(ith_context *c, ith_comm *comm, void *user)
{
    memory_job *job = user;
    ith_dit_workspace *workspace = NULL;
    int64_t bytes = 0, before = 0, after = 0, groups = 0;
    ith_status status = ith_dit_workspace_bytes(c, job->outline, &job->shape, &job->call->options, ith_comm_size(comm),
                                                ith_comm_rank(comm), true, &bytes);
    atomic_fetch_add(&job->predicted, bytes);
    if (!status)
        status = hold_groups(c, comm, &job->call->options, &groups);
    if (!status)
        status = held_by_all(c, comm, &before);
    if (!status)
        status = ith_dit_workspace_create(c, job->call->dit, job->call->text, &job->shape, &job->call->options, comm,
                                          &workspace);
    if (!status)
        status = held_by_all(c, comm, &after);
    if (!ith_comm_rank(comm))
        job->held = after - before, job->groups = groups;
    ith_dit_workspace_free(c, &workspace);
    return status;
}

static void workspaces_are_as_predicted(call *c, ith_dit *outline)
{
    static const struct {
        int ranks, threads;
        ith_strategy strategy;
    } groups[] = {{1, 1, ITH_STRATEGY_AUTO},        {1, 3, ITH_STRATEGY_AUTO}, {2, 3, ITH_STRATEGY_ULYSSES},
                  {3, 2, ITH_STRATEGY_ULYSSES},     {2, 2, ITH_STRATEGY_RING}, {3, 5, ITH_STRATEGY_RING},
                  {4, 4, ITH_STRATEGY_ULYSSES_RING}};
    static const ith_dit_shape shapes[] = {{2, 5, 32, 32, 300, 0}, {2, 1, 2, 26, 512, 13}, {2, 3, 60, 30, 300, 450}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            memory_job job = {.call = c, .outline = outline, .shape = shapes[j]};
            c->options.strategy = groups[i].strategy;
            c->options.ulysses = c->options.ring = groups[i].strategy == ITH_STRATEGY_ULYSSES_RING ? 2 : 0;
            check(context, ith_run_ranks(context, groups[i].ranks, groups[i].threads, hold_workspace, &job));
            assert_int_equal(job.held, atomic_load(&job.predicted) + job.groups);
        }
}

static void memory_is_as_predicted(void **state)
{
    (void)state;
    for (int kind = 0; kind < operand_kinds_here(context); kind++)
        for (int small = 0; small < 2; small++) {
            const char *model = small ? SMALL : "../models/shapes/transformer";
            call c;
            if (small)
                open_small(&c, kind);
            else
                open_shapes(&c, false, kind);
            ith_dit *outline = NULL;
            check(context, ith_dit_outline(context, ith_dit_config_of(c.dit), NULL, number_kind(kind),
                                           ITH_LINEAR_KEEP_NONE, &outline));
            ith_dit_text_free(context, &c.text);
            int64_t held = 0, making = 0, weights = 0, files = dit_file_bytes(context, model, &weights);
            int64_t before = memory_of(context).current_bytes, own = ith_dit_bytes(c.dit);
            assert_int_equal(ith_dit_bytes(outline), own);
            assert_true(small || own < weights / 8); /* matrices stay in their files */
            ith_dit_free(context, &c.dit);
            assert_int_equal(before - memory_of(context).current_bytes, own + files);
            check(context, open_dit(context, model, number_kind(kind), ITH_LINEAR_KEEP_NONE, &c.dit));
            float *rows = calloc((size_t)(300 * ith_dit_config_of(c.dit)->text_dim), sizeof *rows);
            const float *both[2] = {rows, rows};
            const int64_t counts[2] = {300, 2};
            ith_dit_text_bytes(outline, 2, 300, &held, &making);
            check(context, ith_dit_text_create(context, c.dit, 2, both, counts, &c.text));
            assert_int_equal(memory_of(context).current_bytes - before, held);
            workspaces_are_as_predicted(&c, outline);
            free(rows);
            ith_dit_free(context, &outline);
            close_call(&c);
        }
}

/* One of two hosts, with one process each, that share out an expert. Notes whether its memory is as predicted. */
static void share_out(rank_group *g, int rank, void *user)
{
    ith_context *own = g->contexts[rank];
    ith_comm *alone = NULL;
    ith_dit *dit = NULL;
    ith_dit_config config;
    ith_store *store = NULL;
    ith_dit_shards *shards = NULL;
    int64_t predicted = 0;
    bool *right = user;
    ith_status status = ith_comm_split(g->comms[rank], rank, 0, &alone);
    if (!status)
        status = ith_dit_config_read(own, SMALL, &config);
    if (!status)
        status = ith_store_open(own, SMALL, "diffusion_pytorch_model", ITH_STORE_INDEX_FIRST, &store);
    if (!status)
        status = ith_dit_shards_bytes(own, &config, store, number_kind(OPERANDS_F32), 2, 1, true, &predicted);
    if (!status)
        status = open_dit(own, SMALL, number_kind(OPERANDS_F32), ITH_LINEAR_KEEP_NONE, &dit);
    const ith_shard_ranks ranks = {g->comms[rank], alone, 1, true};
    const int64_t before = memory_of(own).current_bytes;
    if (!status)
        status = ith_dit_shards_create(own, dit, &ranks, config.layers, &shards);
    right[rank] = !status && memory_of(own).current_bytes - before == predicted;
    ith_dit_free(own, &dit);
    ith_dit_shards_free(own, &shards);
    ith_comm_destroy(&alone);
}

static void memory_of_shared_layers_is_as_predicted(void **state)
{
    (void)state;
    rank_group g = {.ranks = 2};
    bool right[2] = {false, false};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ith_context_create(NULL, &g.contexts[i]), ITH_OK);
    assert_int_equal(ith_comm_create_local(g.contexts, 2, g.comms), ITH_OK);
    group_run(&g, share_out, right);
    assert_true(right[0] && right[1]);
    group_destroy(&g);
    ith_context_destroy(&g.contexts[0]);
}

static void memory_of_packed_weights_is_as_predicted(void **state)
{
    (void)state;
    for (int kind = 0; kind < operand_kinds_here(context); kind++) {
        const char *model = "../models/shapes/transformer";
        ith_dit *dit = NULL, *outline = NULL;
        int64_t weights = 0, files = dit_file_bytes(context, model, &weights),
                before = memory_of(context).current_bytes;
        check(context, open_dit(context, model, number_kind(kind), ITH_LINEAR_KEEP_ALL, &dit));
        assert_int_equal(memory_of(context).current_bytes - before, ith_dit_bytes(dit) + files);
        check(context,
              ith_dit_outline(context, ith_dit_config_of(dit), NULL, number_kind(kind), ITH_LINEAR_KEEP_ALL, &outline));
        assert_int_equal(ith_dit_bytes(outline), ith_dit_bytes(dit));
        assert_true(ith_dit_bytes(dit) > weights / 2);
        ith_dit_free(context, &outline);
        ith_dit_free(context, &dit);
    }
}

static ith_status whole_call(ith_context *poor, void *user)
{
    (void)user;
    ith_dit *dit = NULL;
    ith_dit_text *text = NULL;
    ith_dit_workspace *run = NULL;
    const ith_dit_shape shape = {1, 1, 4, 4, 0, 0};
    float rows[2 * 10] = {0}, tokens[4 * 12] = {0}, out[4 * 20], t = 5;
    const float *const prompt = rows;
    const int64_t count = 2;
    ith_status status = open_dit(poor, SMALL, number_kind(OPERANDS_F32), ITH_LINEAR_KEEP_NONE, &dit);
    if (!status)
        status = ith_dit_text_create(poor, dit, 1, &prompt, &count, &text);
    if (!status)
        status = ith_dit_workspace_create(poor, dit, text, &shape, NULL, NULL, &run);
    if (!status)
        status = ith_dit_forward(poor, run, &(ith_dit_tokens){.latents = tokens}, &t, out);
    ith_dit_workspace_free(poor, &run);
    ith_dit_text_free(poor, &text);
    ith_dit_free(poor, &dit);
    return status;
}

static void failed_allocations_are_survived(void **state)
{
    (void)state;
    assert_true(refuse_every_allocation(whole_call, NULL, 1) > 20);
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
    call c;
    open_small(&c, OPERANDS_F32);
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
    close_call(&c);
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
        cmocka_unit_test(memory_is_as_predicted),
        cmocka_unit_test(memory_of_packed_weights_is_as_predicted),
        cmocka_unit_test(memory_of_shared_layers_is_as_predicted),
        cmocka_unit_test(failed_allocations_are_survived),
    };
    return cmocka_run_group_tests_name("dit", all, context_set_up, context_tear_down);
}
