/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of a transformer for image-to-video compared with diffusers: tokens with a condition, and known tokens,
 * whose time step is 0. On several ranks, all, none or some tokens of a rank's share are known. */
#include "comm/comm.h"
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/find_tokens.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"
#include "wan/dit/dit.h"

#include <ithaca/files.h>

#include <stdlib.h>
#include <string.h>

#define BATCH 2

/* A golden pass with the expected output. */
typedef struct call {
    ith_tensor_file *file;
    ith_dit *dit;
    ith_dit_text *text;
    ith_dit_shape shape;
    int64_t tokens, width; /* S; numbers of a token's latents */
    float t[BATCH], *result;
    const float *want;
    ith_attn_options options;
} call;

static void open_call(call *c, const char *golden, const char *model)
{
    memset(c, 0, sizeof *c);
    c->options = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    check(context, ith_tensor_file_open(context, golden, &c->file));
    check(context,
          open_dit(context, model, (ith_number_types){ith_operands_f32(), ITH_F32}, ITH_LINEAR_KEEP_NONE, &c->dit));
    const ith_tensor *latents = find_tensor(c->file, "latents"), *text = find_tensor(c->file, "text");
    c->shape = (ith_dit_shape){BATCH, latents->shape[2], latents->shape[3], latents->shape[4], 0, 0};
    c->tokens = c->shape.frames * (c->shape.height / 2) * (c->shape.width / 2);
    c->shape.known = ith_tensor_file_find(c->file, "first") ? c->tokens / c->shape.frames : 0;
    c->width = latents->shape[1] * ITH_DIT_PATCH;
    c->want = find_tensor(c->file, "out")->data;
    const float *rows[BATCH] = {text->data, (const float *)text->data + text->shape[1] * text->shape[2]};
    const int64_t counts[BATCH] = {9, 4};
    for (int b = 0; b < BATCH; b++)
        c->t[b] = (float)((const int64_t *)find_tensor(c->file, "timestep")->data)[b];
    check(context, ith_dit_text_create(context, c->dit, BATCH, rows, counts, &c->text));
    c->result = calloc((size_t)(BATCH * c->tokens * c->width), sizeof *c->result);
    assert_non_null(c->result);
}

static void close_call(call *c)
{
    ith_dit_text_free(context, &c->text);
    ith_dit_free(context, &c->dit);
    ith_tensor_file_close(&c->file);
    free(c->result);
}

static ith_status run_rank(ith_context *rank_context, ith_comm *comm, void *user)
{
    const call *c = user;
    ith_dit_workspace *run = NULL;
    ith_status status = ith_dit_workspace_create(rank_context, c->dit, c->text, &c->shape, &c->options, comm, &run);
    if (status)
        return status;
    int64_t begin = 0, count = 0;
    const ith_tensor *latents = find_tensor(c->file, "latents");
    ith_share(c->tokens, ith_comm_size(comm), ith_comm_rank(comm), &begin, &count);
    const int64_t numbers = count * c->width, known = c->shape.known - begin;
    float *tokens = malloc((size_t)(BATCH * numbers + 1) * sizeof *tokens);
    float *condition = find_tokens(c->file, "condition", &c->shape, begin, count);
    float *first = find_tokens(c->file, "first", &c->shape, begin, known < 0 ? 0 : known < count ? known : count);
    float *out = malloc((size_t)(BATCH * numbers + 1) * sizeof *out);
    for (int64_t b = 0; b < BATCH; b++)
        ith_dit_patchify((const float *)latents->data + b * c->tokens * c->width, c->width / ITH_DIT_PATCH, &c->shape,
                         begin, count, tokens + b * numbers);
    const ith_dit_tokens input = {tokens, numbers, first, condition};
    status = ith_dit_forward(rank_context, run, &input, c->t, out);
    for (int64_t b = 0; b < BATCH && !status; b++)
        ith_dit_unpatchify(out + b * numbers, c->width / ITH_DIT_PATCH, &c->shape, begin, count,
                           c->result + b * c->tokens * c->width);
    free(tokens), free(condition), free(first), free(out);
    ith_dit_workspace_free(rank_context, &run);
    return status;
}

static void compare_pass(const char *golden, const char *model)
{
    static const struct {
        int ranks;
        ith_strategy strategy;
    } groups[] = {{1, ITH_STRATEGY_AUTO},    {2, ITH_STRATEGY_AUTO}, {3, ITH_STRATEGY_AUTO},
                  {4, ITH_STRATEGY_ULYSSES}, {4, ITH_STRATEGY_RING}, {7, ITH_STRATEGY_RING}};
    call c;
    open_call(&c, golden, model);
    const int64_t count = BATCH * c.tokens * c.width;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        memset(c.result, 0, (size_t)count * sizeof *c.result);
        c.options.strategy = groups[i].strategy;
        check(context, ith_run_ranks(context, groups[i].ranks, 1, run_rank, &c));
        const double error = relative_l2(c.result, c.want, count);
        print_message("%d ranks: relative error %.2e\n", groups[i].ranks, error);
        assert_true(error <= 1e-5);
    }
    close_call(&c);
}

static void tokens_with_a_condition(void **state)
{
    (void)state;
    compare_pass("golden/i2v/dit.safetensors", "golden/i2v/model/transformer");
}

static void known_tokens_have_time_step_0(void **state)
{
    (void)state;
    compare_pass("golden/ti2v/dit.safetensors", "golden/ti2v/model/transformer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_with_a_condition),
                                       cmocka_unit_test(known_tokens_have_time_step_0)};
    return cmocka_run_group_tests_name("dit_image", tests, context_set_up, context_tear_down);
}
