/* SPDX-License-Identifier: Apache-2.0 */
/* Measures one block of the transformer: an expert of a single layer with random weights, on random tokens. The stages
 * are the intervals that dit_forward.c marks in the trace. On a device all stages are compared with the rate of a large
 * matrix product. The latent has one frame of 1 x S patches, since only the number of tokens matters. */
#include "bench_call.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/sized.h"
#include "../dit/dit_workspace.h"
#include "../sample/noise.h"

#include <string.h>

/* Sizes of the layers around the block. They are small, because only the block is measured. */
#define TEXT_DIM 64
#define FREQ_DIM 256
#define CHANNELS 16

#define MOST_HEADS 4096
#define MOST_HEAD_DIM 4096
#define MOST_WIDTH (1 << 20)
#define MOST_RANK 4096
#define MOST_TOKENS 1000000000

/* The state of one benchmark of a block. */
typedef struct block_bench {
    ith_bench_call call;
    ith_block_problem problem;
    ith_dit_config config;
    ith_lora *lora; /* NULL: there is none */
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_workspace *workspace;
    ith_device_rate *rate;           /* of the context's device; NULL: the processor computes */
    float *tokens, *out, *text_rows; /* [tokens, 4 CHANNELS] twice, and [text_rows, TEXT_DIM], in one allocation */
} block_bench;

/* ---- Sizes ----------------------------------------------------------------------------------------------------- */

static ith_status read_problem(ith_context *context, const ith_block_problem *given, ith_block_problem *p)
{
    *p = (ith_block_problem)ITH_BLOCK_PROBLEM_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_block_problem, ITH_BLOCK_PROBLEM_INIT, given, p);
    if (!status)
        status = ith_bench_check_range(context, "heads", p->heads, 1, MOST_HEADS);
    if (!status)
        status = ith_bench_check_range(context, "head_dim", p->head_dim, 2, MOST_HEAD_DIM);
    if (!status && p->head_dim % 2)
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "head_dim is %lld; it must be even, because RoPE turns pairs of numbers: %lld would do",
                          (long long)p->head_dim, (long long)p->head_dim + 1);
    if (!status)
        status = ith_bench_check_range(context, "heads * head_dim", p->heads * p->head_dim, 2, MOST_WIDTH);
    if (!status)
        status = ith_bench_check_range(context, "ffn_dim", p->ffn_dim, 1, MOST_WIDTH);
    if (!status)
        status = ith_bench_check_range(context, "tokens", p->tokens, 1, MOST_TOKENS);
    if (!status)
        status = ith_bench_check_range(context, "text_rows", p->text_rows, 1, ITH_TEXT_LEN);
    if (!status)
        status = ith_bench_check_range(context, "lora_rank", p->lora_rank, 0, MOST_RANK);
    return status;
}

static ith_dit_config config_of(const ith_block_problem *p)
{
    return (ith_dit_config){.heads = p->heads,
                            .head_dim = p->head_dim,
                            .dim = p->heads * p->head_dim,
                            .ffn_dim = p->ffn_dim,
                            .layers = 1,
                            .text_dim = TEXT_DIM,
                            .freq_dim = FREQ_DIM,
                            .in_channels = CHANNELS,
                            .out_channels = CHANNELS,
                            .patch = {1, 2, 2},
                            .positions = MOST_TOKENS,
                            .eps = 1e-6};
}

/* The latent that becomes `tokens` tokens. */
static ith_dit_shape shape_of(const block_bench *b, int64_t tokens)
{
    return (ith_dit_shape){
        .batch = 1, .frames = 1, .height = 2, .width = 2 * tokens, .longest_text = b->problem.text_rows};
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void lay_out(block_bench *b, int64_t tokens, ith_arena *arena)
{
    const int64_t numbers = CHANNELS * ITH_DIT_PATCH, f32 = sizeof(float);
    b->tokens = ith_arena_take(arena, tokens, numbers * f32);
    b->out = ith_arena_take(arena, tokens, numbers * f32);
    b->text_rows = ith_arena_take(arena, b->problem.text_rows, TEXT_DIM * f32);
}

/* The choices with which the expert is made, for passes of `tokens` tokens. */
static ith_dit_choices choices_of(const block_bench *b, int64_t tokens)
{
    return (ith_dit_choices){.types = b->call.types, .lora = b->lora, .keep = ith_dit_keep(b->lora, tokens)};
}

/* Predicts the peak memory with `tokens` tokens (ith_bench_predict_fn). */
static ith_status predict(void *user, int64_t tokens, int64_t *bytes)
{
    block_bench *b = user;
    ith_context *context = b->call.context;
    const ith_dit_shape shape = shape_of(b, tokens);
    const ith_dit_choices choices = choices_of(b, tokens);
    const ith_dit_rank alone = {.ranks = 1, .shared_memory = true, .options = b->call.options.attention};
    ith_dit *dit = NULL;
    ith_arena buffers = {0};
    int64_t text = 0, making = 0, workspace = 0;
    ith_status status = ith_dit_outline(context, &b->config, &choices, &dit);
    if (status)
        return status;
    lay_out(b, tokens, &buffers);
    ith_dit_text_bytes(dit, 1, b->problem.text_rows, &text, &making);
    status = ith_dit_workspace_bytes(context, dit, &shape, &alone, &workspace);
    *bytes = b->call.report.weights_bytes + ith_lora_random_bytes(b->lora) + ith_dit_bytes(dit) + buffers.used_bytes +
             ITH_ALLOC_HEADER + text + ith_max64(making, workspace);
    ith_dit_free(context, &dit);
    return status;
}

static ith_status check_memory(void *user)
{
    block_bench *b = user;
    ith_bench_call *call = &b->call;
    ith_status status = ITH_OK;
    if (b->problem.lora_rank)
        status = ith_lora_make_random(call->context, b->problem.lora_rank, ith_max64(b->config.dim, b->config.ffn_dim),
                                      &b->lora);
    if (!status)
        status = ith_dit_random_bytes(call->context, &b->config, call->options.weights, &call->report.weights_bytes);
    if (!status)
        status = predict(b, b->problem.tokens, &call->report.predicted_bytes);
    return status ? status : ith_bench_call_check_memory(call, predict, b, b->problem.tokens, 1, "tokens");
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static ith_status make_buffers(block_bench *b)
{
    ith_context *context = b->call.context;
    const int64_t tokens = b->problem.tokens;
    ith_arena arena = {0};
    lay_out(b, tokens, &arena);
    ith_status status = ith_arena_allocate(context, &arena, "a benchmark's tokens");
    if (status)
        return status;
    lay_out(b, tokens, &arena);
    status = ith_noise_make(context, 0, 0, tokens * CHANNELS * ITH_DIT_PATCH, b->tokens);
    return status ? status : ith_noise_make(context, 1, 0, b->problem.text_rows * TEXT_DIM, b->text_rows);
}

static ith_status make(void *user)
{
    block_bench *b = user;
    ith_context *context = b->call.context;
    const ith_dit_shape shape = shape_of(b, b->problem.tokens);
    const ith_dit_choices choices = choices_of(b, b->problem.tokens);
    ith_status status = b->lora ? ith_lora_fill_random(b->lora) : ITH_OK;
    if (!status)
        status = ith_dit_make_random(context, &b->config, b->call.options.weights, &choices, &b->dit);
    if (!status)
        status = make_buffers(b);
    if (!status)
        status = ith_dit_text_create(context, b->dit, 1, (const float *const *)&b->text_rows, &b->problem.text_rows,
                                     &b->text);
    if (!status)
        status =
            ith_dit_workspace_create(context, b->dit, b->text, &shape, b->call.options.attention, NULL, &b->workspace);
    if (!status && b->dit->use)
        status = ith_device_rate_create(context, b->call.types.attention, &b->rate);
    return status;
}

static void destroy(void *user)
{
    block_bench *b = user;
    ith_context *context = b->call.context;
    ith_device_rate_free(&b->rate);
    ith_dit_workspace_free(context, &b->workspace);
    ith_dit_text_free(context, &b->text);
    ith_dit_free(context, &b->dit);
    ith_free(context, b->tokens);
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

static ith_status attention_unit(block_bench *b, const ith_plan *plan, int *unit)
{
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_status status = ith_plan_describe(plan, &info);
    if (!status)
        *unit = ith_bench_clock_add_kernel(&b->call.clock, info.kernel);
    return status;
}

/* The listing of the block's work: the clock's units for linear layers, self-attention and cross-attention. */
typedef struct listing {
    ith_bench_clock *clock;
    int linear, attention[2];
    int attentions; /* number of attentions so far: self-attention comes first */
} listing;

/* Adds the operations of some work to its stage. The items of a stage follow one another. */
static void add_work(void *user, const ith_work *work)
{
    listing *l = user;
    ith_bench_clock *clock = l->clock;
    if (work->kind == ITH_WORK_OF_ROWS)
        return;
    ith_bench_clock_stage *last = clock->stage_count ? &clock->stages[clock->stage_count - 1] : NULL;
    if (last && !strcmp(last->name, work->stage))
        last->operations += work->operations;
    else
        ith_bench_clock_add(clock, work->stage, work->operations,
                            work->kind == ITH_WORK_OF_ATTENTION ? l->attention[l->attentions++] : l->linear);
}

static ith_status add_stages(void *user)
{
    block_bench *b = user;
    const ith_dit_shape shape = shape_of(b, b->problem.tokens);
    listing l = {.clock = &b->call.clock};
    ith_status status = ITH_OK;
    if (b->rate) {
        l.linear = l.attention[0] = l.attention[1] = ith_bench_clock_add_device(l.clock, b->rate);
        ith_dit_list_layer(b->dit, &shape, 1, 0, &(ith_work_list){add_work, &l});
        return ITH_OK;
    }
    l.linear = ith_bench_clock_add_product(l.clock, ith_linear_instructions(b->dit->layers[0].qkv));
    status = attention_unit(b, b->workspace->self_plan, &l.attention[0]);
    if (!status)
        status = attention_unit(b, b->workspace->cross_plan, &l.attention[1]);
    if (!status)
        ith_dit_list_layer(b->dit, &shape, 1, 0, &(ith_work_list){add_work, &l});
    return status;
}

static ith_status forward(void *user, const ith_span *span)
{
    static const float time = 500;
    block_bench *b = user;
    const ith_dit_tokens tokens = {.latents = b->tokens};
    ith_dit_workspace_show(b->workspace, span);
    return ith_dit_forward(b->call.context, b->workspace, &tokens, &time, b->out);
}

static const ith_bench_kind kind = {
    .whole = "block",
    .check_memory = check_memory,
    .make = make,
    .add_stages = add_stages,
    .run = forward,
    .destroy = destroy,
    .takes_quantised = true,
};

ith_status ith_bench_block(ith_context *context, const ith_block_problem *problem, const ith_bench_options *options,
                           ith_bench_report *report)
{
    block_bench b = {0};
    if (!context)
        return ith_need(NULL, context, "context");
    ith_status status = read_problem(context, problem, &b.problem);
    if (status)
        return status;
    b.config = config_of(&b.problem);
    status = ith_bench_call_perform(&b.call, context, options, report, &kind, &b);
    ith_lora_close(&b.lora);
    return status;
}
