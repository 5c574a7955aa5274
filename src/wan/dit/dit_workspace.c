/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's buffers, plans and RoPE tables for latents of one size.
 *
 * RoPE: of head_dim d, h and w get 2 (d / 6) numbers each and t the rest, in this order t, h, w; the i-th pair of a
 * part of size n turns by position * 10000^(-2i/n). Angles are double, cosines and sines are kept as f32. */
#include "dit_workspace.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../../comm/comm.h"

#include <math.h>
#include <string.h>

static ith_status check_shape(ith_context *context, const ith_dit_shape *s, const ith_dit_text *text)
{
    if (s->batch != text->batch)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a batch of %lld, but the text has %lld prompts",
                        (long long)s->batch, (long long)text->batch);
    if (s->frames < 1 || s->height < 2 || s->width < 2 || s->height % 2 != 0 || s->width % 2 != 0)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "a latent of %lld x %lld x %lld (frames, height, width): there must be a frame, and height and "
                        "width must be even",
                        (long long)s->frames, (long long)s->height, (long long)s->width);
    if (s->longest_text < 0 || s->longest_text > ITH_DIT_TEXT_LEN)
        return ith_fail(context, ITH_ERR_ARGUMENT, "longest text of %lld rows; at most %d are attended to",
                        (long long)s->longest_text, ITH_DIT_TEXT_LEN);
    int64_t tokens = 0;
    if (s->frames > INT32_MAX || s->height > INT32_MAX || s->width > INT32_MAX ||
        !ith_size_mul(s->frames, s->height / 2 * (s->width / 2), &tokens) || tokens > INT64_MAX / s->batch >> 24)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a latent of %lld x %lld x %lld is too large", (long long)s->frames,
                        (long long)s->height, (long long)s->width);
    return ITH_OK;
}

static ith_status allocate(ith_context *context, ith_dit_workspace *run)
{
    const ith_dit_config *c = &run->dit->config;
    const int64_t batch = run->shape.batch, element = ith_dtype_bytes(run->type), f32 = 4;
    const struct {
        void **pointer;
        int64_t count, bytes;
        const char *what;
    } buffers[] = {
        {(void **)&run->x, run->rows, c->dim * f32, "the transformer's hidden states"},
        {&run->qkv, run->rows, 3 * c->dim * element, "queries, keys and values"},
        {&run->o, run->rows, c->dim * element, "attention's output"},
        {(void **)&run->narrow, run->chunk, c->dim * f32, "a chunk of rows"},
        {(void **)&run->wide, run->chunk, ith_dit_wide(c, run->type) * f32, "a chunk of wide rows"},
        {(void **)&run->cosines, run->share, c->head_dim / 2 * f32, "RoPE's cosines"},
        {(void **)&run->sines, run->share, c->head_dim / 2 * f32, "RoPE's sines"},
        {(void **)&run->sinusoid, batch, c->freq_dim * f32, "the time embedding"},
        {(void **)&run->e, batch, c->dim * f32, "the time embedding"},
        {(void **)&run->e_silu, batch, c->dim * f32, "the time embedding"},
        {(void **)&run->e0, batch, ITH_DIT_MODULATIONS * c->dim * f32, "the time embedding"},
        {(void **)&run->modulation, batch, ITH_DIT_MODULATIONS * c->dim * f32, "the modulation"},
        {&run->padded, batch * run->keys, 2 * c->dim * element, "a text's padded keys"},
        {(void **)&run->padded_bias, batch * run->keys, f32, "a text's padded key bias"},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        *buffers[i].pointer = ith_alloc(context, buffers[i].count, buffers[i].bytes, buffers[i].what);
        if (!*buffers[i].pointer)
            return ITH_ERR_MEMORY;
    }
    /* Behind a shorter text; everything else is written before it is read. */
    memset(run->padded, 0, (size_t)(batch * run->keys * 2 * c->dim * element));
    return ITH_OK;
}

/* The pairs of one part of a head, of `size` numbers, at one position. */
static void rope_part(float *cosines, float *sines, int64_t size, int64_t position)
{
    for (int64_t i = 0; i < size / 2; i++) {
        double angle = (double)position / pow(10000.0, (double)(2 * i) / (double)size);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
}

static void fill_rope(ith_dit_workspace *run)
{
    const int64_t head_dim = run->dit->config.head_dim, half = head_dim / 2;
    const int64_t space = 2 * (head_dim / 6), time = head_dim - 2 * space;
    const int64_t height = run->shape.height / 2, width = run->shape.width / 2;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < run->share; i++) {
        int64_t token = run->begin + i;
        float *cosines = run->cosines + i * half, *sines = run->sines + i * half;
        rope_part(cosines, sines, time, token / (height * width));
        rope_part(cosines + time / 2, sines + time / 2, space, token / width % height);
        rope_part(cosines + (time + space) / 2, sines + (time + space) / 2, space, token % width);
    }
}

ith_attn_problem ith_dit_self_problem(const ith_dit_config *c, ith_dtype type, const ith_dit_shape *shape,
                                      int64_t share)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = shape->batch, problem.heads = problem.kv_heads = c->heads, problem.head_dim = c->head_dim;
    problem.q_len = problem.kv_len = ith_dit_tokens(shape);
    problem.dtype = type;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = 3 * c->dim;
    problem.q_batch_stride = problem.k_batch_stride = problem.v_batch_stride = share * 3 * c->dim;
    return problem;
}

ith_attn_problem ith_dit_cross_problem(const ith_dit_config *c, ith_dtype type, const ith_dit_shape *shape,
                                       int64_t keys)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = shape->batch, problem.heads = problem.kv_heads = c->heads, problem.head_dim = c->head_dim;
    problem.q_len = ith_dit_tokens(shape), problem.kv_len = keys;
    problem.dtype = type;
    problem.has_key_bias = problem.replicated_kv = true;
    problem.k_row_stride = problem.v_row_stride = 2 * c->dim;
    problem.k_batch_stride = problem.v_batch_stride = keys * 2 * c->dim;
    return problem;
}

ith_attn_options ith_dit_cross_options(const ith_attn_options *options)
{
    ith_attn_options own = ITH_ATTN_OPTIONS_INIT;
    if (options)
        own.kernel = options->kernel, own.effort = options->effort;
    return own;
}

static ith_status make_plans(ith_context *context, ith_dit_workspace *run, const ith_attn_options *options,
                             ith_comm *comm)
{
    const ith_dit_config *c = &run->dit->config;
    ith_attn_problem self = ith_dit_self_problem(c, run->type, &run->shape, run->share);
    ith_attn_problem cross = ith_dit_cross_problem(c, run->type, &run->shape, run->keys);
    ith_attn_options own = ith_dit_cross_options(options);
    ith_status status = ith_plan_create(context, &self, options, comm, &run->self_plan);
    return status ? status : ith_plan_create(context, &cross, &own, comm, &run->cross_plan);
}

static ith_status fill_run(ith_context *context, ith_dit_workspace *run, ith_comm *comm)
{
    const ith_dit_shape *shape = &run->shape;
    run->type = run->dit->types.attention;
    run->ops = ith_rowops_choose(ith_context_cpu(context));
    ith_share(ith_dit_tokens(shape), ith_comm_size(comm), ith_comm_rank(comm), &run->begin, &run->share);
    run->rows = shape->batch * run->share;
    run->chunk = ith_min64(run->rows, ITH_DIT_CHUNK);
    run->keys = shape->longest_text ? ith_dit_text_keys(shape->longest_text) : 0;
    run->keys = ith_max64(run->keys, run->text->keys);
    ith_status status = allocate(context, run);
    if (!status)
        fill_rope(run);
    return status;
}

ith_status ith_dit_workspace_create(ith_context *context, const ith_dit *dit, const ith_dit_text *text,
                                    const ith_dit_shape *shape, const ith_attn_options *options, ith_comm *comm,
                                    ith_dit_workspace **out)
{
    *out = NULL;
    ith_dit_workspace *run = NULL;
    ith_status status = check_shape(context, shape, text);
    if (!status) {
        run = ith_alloc_zero(context, 1, sizeof *run, "a transformer's run");
        status = run ? ITH_OK : ITH_ERR_MEMORY;
    }
    if (!status) {
        run->dit = dit, run->shape = *shape, run->text = text;
        status = fill_run(context, run, comm);
        if (!status)
            ith_dit_workspace_set_text(run, text);
    }
    status = ith_comm_agree(comm, status);
    if (!status)
        status = make_plans(context, run, options, comm);
    if (status)
        ith_dit_workspace_free(context, &run);
    *out = run;
    return status;
}

void ith_dit_workspace_free(ith_context *context, ith_dit_workspace **run)
{
    if (!run || !*run)
        return;
    ith_dit_workspace *r = *run;
    ith_plan_destroy(&r->self_plan);
    ith_plan_destroy(&r->cross_plan);
    void *buffers[] = {r->x,        r->qkv, r->o,      r->narrow, r->wide,       r->cosines, r->sines,
                       r->sinusoid, r->e,   r->e_silu, r->e0,     r->modulation, r->padded,  r->padded_bias};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        ith_free(context, buffers[i]);
    ith_free(context, r);
    *run = NULL;
}

void ith_dit_workspace_set_text(ith_dit_workspace *run, const ith_dit_text *text)
{
    run->text = text;
    for (int64_t b = 0; b < ith_min64(run->shape.batch, text->batch); b++)
        for (int64_t key = 0; key < run->keys; key++)
            run->padded_bias[b * run->keys + key] = key < text->keys ? text->key_bias[b * text->keys + key] : -INFINITY;
}

void ith_dit_workspace_show(ith_dit_workspace *run, const ith_span *span)
{
    run->shown = *span;
}

const ith_plan *ith_dit_workspace_plan(const ith_dit_workspace *run)
{
    return run->self_plan;
}

void ith_dit_workspace_watch(ith_dit_workspace *run, ith_dit_watch_fn watch, void *user)
{
    run->watch = watch;
    run->watch_user = user;
}
