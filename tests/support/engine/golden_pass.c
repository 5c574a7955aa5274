/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/golden_pass.h"

#include "comm/comm.h"
#include "support/compare.h"
#include "support/engine/find_tensor.h"
#include "support/engine/find_tokens.h"
#include "support/engine/kinds.h"
#include "support/engine/open_parts.h"
#include "support/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void golden_pass_prompts(const golden_pass *p, const float *rows[PASS_BATCH], int64_t counts[PASS_BATCH])
{
    const ith_tensor *both = ith_tensor_file_find(p->file, "text");
    for (int b = 0; b < PASS_BATCH; b++) {
        const ith_tensor *text = both ? both : find_tensor(p->file, b ? "text_1" : "text_0");
        const int64_t dim = text->shape[text->dims - 1], most = text->shape[text->dims - 2];
        rows[b] = (const float *)text->data + (both ? b * most * dim : 0);
        counts[b] = count_rows(rows[b], most, dim);
    }
}

void golden_pass_open_with(golden_pass *p, const char *golden, const char *model, ith_lora *lora, int kind,
                           int64_t streamed)
{
    const ith_dit_choices choices = {.types = number_kind(kind), .lora = lora, .streamed = streamed};
    const float *rows[PASS_BATCH];
    int64_t counts[PASS_BATCH];
    *p = (golden_pass){.options = ITH_ATTN_OPTIONS_INIT, .repeats = 2, .limit = kind == OPERANDS_F32 ? 2e-5 : 3e-2};
    check(context, ith_tensor_file_open(context, golden, &p->file));
    check(context, open_dit_with(context, model, &choices, &p->dit));
    const ith_tensor *latents = find_tensor(p->file, "latents"), *out = find_tensor(p->file, "out");
    const ith_tensor *time = find_tensor(p->file, "timestep");
    p->shape = (ith_dit_shape){PASS_BATCH, latents->shape[2], latents->shape[3], latents->shape[4], 0, 0, 0};
    p->tokens = ith_dit_token_count(p->shape.frames, p->shape.height, p->shape.width);
    p->shape.known = ith_tensor_file_find(p->file, "first") ? p->tokens / p->shape.frames : 0;
    p->in = latents->shape[1] * ITH_DIT_PATCH, p->out = out->shape[1] * ITH_DIT_PATCH;
    p->latents = latents->data, p->want = out->data;
    for (int b = 0; b < PASS_BATCH; b++)
        p->t[b] = time->dtype == ITH_F32 ? ((const float *)time->data)[b] : (float)((const int64_t *)time->data)[b];
    golden_pass_prompts(p, rows, counts);
    check(context, ith_dit_text_create(context, p->dit, PASS_BATCH, rows, counts, &p->text));
    const ith_tensor *images = ith_tensor_file_find(p->file, "image_embeds");
    p->shape.image_rows = images ? images->shape[0] : 0;
    if (images)
        check(context, ith_dit_image_create(context, p->dit, images->data, images->shape[0], &p->image));
    p->result = calloc((size_t)golden_pass_numbers(p), sizeof *p->result);
    assert_non_null(p->result);
}

void golden_pass_open(golden_pass *p, const char *golden, const char *model, int kind)
{
    golden_pass_open_with(p, golden, model, NULL, kind, 0);
}

void golden_pass_open_expert(golden_pass *p, bool low, int kind)
{
    if (low)
        golden_pass_open(p, "golden/shapes/dit_low.safetensors", "../models/shapes/transformer_2", kind);
    else
        golden_pass_open(p, "golden/shapes/dit_high.safetensors", "../models/shapes/transformer", kind);
}

void golden_pass_open_odd(golden_pass *p, const char *model, int kind)
{
    char golden[64];
    snprintf(golden, sizeof golden, "%s/run.safetensors", model);
    golden_pass_open(p, golden, model, kind);
}

void golden_pass_close(golden_pass *p)
{
    ith_dit_text_free(context, &p->text);
    ith_dit_image_free(context, &p->image);
    ith_dit_free(context, &p->dit);
    ith_tensor_file_close(&p->file);
    free(p->result);
}

int64_t golden_pass_numbers(const golden_pass *p)
{
    return PASS_BATCH * p->tokens * p->out;
}

double golden_pass_error(const golden_pass *p)
{
    return relative_l2(p->result, p->want, golden_pass_numbers(p));
}

/* Compares a stage. For each batch entry the golden file holds all or the first tokens of the stage; it holds
 * patch_embedding as [2, dim, F, H/2, W/2]. */
static void compare_stage(void *user, const char *stage, const float *rows, int64_t count, int64_t width)
{
    golden_pass *p = user;
    const ith_tensor *want = ith_tensor_file_find(p->file, stage);
    assert_non_null(rows);
    if (!want)
        return;
    const int64_t of_entry = count / PASS_BATCH, compared = want->dims == 3 ? want->shape[1] : of_entry;
    const float *golden = want->data;
    double difference = 0, norm = 0;
    for (int64_t b = 0; b < PASS_BATCH; b++)
        for (int64_t i = 0; i < compared; i++)
            for (int64_t j = 0; j < width; j++) {
                const int64_t at = want->dims == 5 ? (b * width + j) * of_entry + i : (b * compared + i) * width + j;
                const double d = (double)rows[(b * of_entry + i) * width + j] - (double)golden[at];
                difference += d * d;
                norm += (double)golden[at] * (double)golden[at];
            }
    const double error = sqrt(difference / norm);
    print_message("  %-40s %.2e\n", stage, error);
    if (!(error <= p->limit))
        fail_msg("%s: relative error %g", stage, error);
    p->worst = fmax(p->worst, error);
    p->seen++;
}

ith_status golden_pass_run(ith_context *own, ith_comm *comm, void *user)
{
    golden_pass *p = user;
    ith_dit_workspace *run = NULL;
    ith_status status = ith_dit_workspace_create(own, p->dit, p->text, &p->shape, &p->options, comm, &run);
    if (status)
        return status;
    ith_dit_workspace_set_image(run, p->image);
    int64_t begin = 0, count = 0;
    ith_share(p->tokens, ith_comm_size(comm), ith_comm_rank(comm), &begin, &count);
    const int64_t known = p->shape.known - begin;
    float *tokens = malloc((size_t)(PASS_BATCH * count * p->in + 1) * sizeof *tokens);
    float *condition = find_tokens(p->file, "condition", &p->shape, begin, count);
    float *first = find_tokens(p->file, "first", &p->shape, begin, known < 0 ? 0 : known < count ? known : count);
    float *out = malloc((size_t)(PASS_BATCH * count * p->out + 1) * sizeof *out);
    float *space = malloc((size_t)(PASS_BATCH * p->tokens * ith_dit_config_of(p->dit)->dim) * sizeof *space);
    if (p->watched)
        ith_dit_workspace_watch(run, compare_stage, p, space);
    for (int64_t b = 0; b < PASS_BATCH; b++)
        ith_dit_patchify(p->latents + b * p->tokens * p->in, p->in / ITH_DIT_PATCH, &p->shape, begin, count,
                         tokens + b * count * p->in);
    const ith_dit_tokens input = {tokens, count * p->in, first, condition};
    for (int again = 0; again < p->repeats && !status; again++)
        status = ith_dit_forward(own, run, &input, p->t, out);
    for (int64_t b = 0; b < PASS_BATCH && !status; b++)
        ith_dit_unpatchify(out + b * count * p->out, p->out / ITH_DIT_PATCH, &p->shape, begin, count,
                           p->result + b * p->tokens * p->out);
    free(tokens), free(condition), free(first), free(out), free(space);
    ith_dit_workspace_free(own, &run);
    return status;
}

void golden_pass_check_branches(golden_pass *p, double tolerance)
{
    const int64_t numbers = p->tokens * p->out;
    const float *rows[PASS_BATCH];
    int64_t counts[PASS_BATCH];
    ith_dit_text *texts[PASS_BATCH] = {NULL};
    ith_dit_workspace *run = NULL;
    ith_dit_shape shape = p->shape;
    shape.batch = 1, shape.longest_text = 512;
    check(context, golden_pass_run(context, NULL, p));
    golden_pass_prompts(p, rows, counts);
    for (int b = 0; b < PASS_BATCH; b++)
        check(context, ith_dit_text_create(context, p->dit, 1, &rows[b], &counts[b], &texts[b]));
    check(context, ith_dit_workspace_create(context, p->dit, texts[0], &shape, NULL, NULL, &run));
    ith_dit_workspace_set_image(run, p->image);
    float *tokens = malloc((size_t)(p->tokens * p->in) * sizeof *tokens);
    float *out = malloc((size_t)numbers * sizeof *out), *latents = malloc((size_t)numbers * sizeof *latents);
    for (int turn = 0; turn < 3; turn++) {
        const int64_t b = turn % PASS_BATCH;
        ith_dit_workspace_set_text(run, texts[b]);
        ith_dit_patchify(p->latents + b * p->tokens * p->in, p->in / ITH_DIT_PATCH, &shape, 0, p->tokens, tokens);
        check(context, ith_dit_forward(context, run, &(ith_dit_tokens){.latents = tokens}, &p->t[b], out));
        ith_dit_unpatchify(out, p->out / ITH_DIT_PATCH, &shape, 0, p->tokens, latents);
        if (tolerance > 0)
            assert_true(relative_l2(latents, p->result + b * numbers, numbers) <= tolerance);
        else
            assert_memory_equal(latents, p->result + b * numbers, (size_t)numbers * sizeof *latents);
    }
    free(tokens), free(out), free(latents);
    ith_dit_workspace_free(context, &run);
    for (int b = 0; b < PASS_BATCH; b++)
        ith_dit_text_free(context, &texts[b]);
}
