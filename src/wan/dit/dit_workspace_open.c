/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one rank's buffers, plans and RoPE tables for latents of one size.
 *
 * RoPE: a head of d numbers has three parts, for the frame t, the row h and the column w of a token, in this order. The
 * parts of h and w have 2 floor(d / 6) numbers each, the part of t has the rest. Pair i of a part of n numbers is
 * rotated by the angle position * 10000^(-2i/n). Angles are double; their cosines and sines are f32. */
#include "dit_workspace.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../../comm/comm.h"
#include "device/dit_device.h"

#include <math.h>
#include <omp.h>

/* Checks the size of the latents, and the rows of images. The product of the number of tokens and the widest row must
 * fit into an int64_t. */
static ith_status check_shape(ith_context *context, const ith_dit *dit, const ith_dit_shape *s)
{
    if (s->frames < 1 || s->height < 2 || s->width < 2 || s->height % 2 != 0 || s->width % 2 != 0)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "a latent of %lld x %lld x %lld (frames, height, width): there must be a frame, and height and "
                        "width must be even",
                        (long long)s->frames, (long long)s->height, (long long)s->width);
    if (!dit->config.image_dim != !s->image_rows || s->image_rows < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%lld rows of images for a transformer that takes %s",
                        (long long)s->image_rows, dit->config.image_dim ? "some" : "none");
    if (s->longest_text < 0 || s->longest_text > ITH_TEXT_LEN)
        return ith_fail(context, ITH_ERR_ARGUMENT, "longest text of %lld rows; at most %d are attended to",
                        (long long)s->longest_text, ITH_TEXT_LEN);
    int64_t tokens = 0;
    if (s->frames > INT32_MAX || s->height > INT32_MAX || s->width > INT32_MAX ||
        !ith_size_mul(s->frames, s->height / 2 * (s->width / 2), &tokens) || tokens > INT64_MAX / s->batch >> 24)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a latent of %lld x %lld x %lld is too large", (long long)s->frames,
                        (long long)s->height, (long long)s->width);
    return ITH_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Computes the sizes of a rank's workspace. keys: number of cross-attention keys of its first prompts. */
static ith_dit_workspace sizes_of(const ith_dit *dit, const ith_dit_shape *shape, int64_t keys, int ranks, int rank)
{
    ith_dit_workspace w = {.dit = dit, .shape = *shape, .type = dit->types.attention, .threads = omp_get_max_threads()};
    ith_share(ith_dit_token_count(shape->frames, shape->height, shape->width), ranks, rank, &w.begin, &w.share);
    w.rows = shape->batch * w.share;
    w.keys = ith_max64(keys, shape->longest_text ? ith_dit_text_keys(shape->longest_text) : 0);
    return w;
}

/* Lays out a workspace and its arrays in one allocation (`arena`). Returns NULL while the arena only counts bytes. */
static ith_dit_workspace *lay_out(const ith_dit_workspace *sizes, ith_arena *arena)
{
    ith_dit_workspace w = *sizes, *place = ith_arena_take(arena, 1, sizeof *place);
    const ith_dit_config *c = &w.dit->config;
    const int64_t batch = w.shape.batch, times = ith_dit_time_rows(&w.shape), element = ith_dtype_bytes(w.type);
    const int64_t f32 = sizeof(float), rows = w.dit->use ? 0 : w.rows; /* a device has rows of its own */
    w.x = ith_arena_take(arena, rows, c->dim * f32);
    w.qkv = ith_arena_take(arena, rows, 3 * c->dim * element);
    w.cosines = ith_arena_take(arena, w.share, c->head_dim / 2 * f32);
    w.sines = ith_arena_take(arena, w.share, c->head_dim / 2 * f32);
    w.e = ith_arena_take(arena, times, c->dim * f32);
    w.e0 = ith_arena_take(arena, times, ITH_DIT_MODULATIONS * c->dim * f32);
    w.modulation = ith_arena_take(arena, times, ITH_DIT_MODULATIONS * c->dim * f32);
    w.padded = ith_arena_take(arena, w.dit->use ? 0 : batch * w.keys, 2 * c->dim * element);
    w.padded_bias = ith_arena_take(arena, batch * w.keys, f32);
    ith_linear_workspace_lay_out(w.dit->memory.linears, w.threads, w.dit->use ? times : rows, arena, &w.linears);
    if (w.type != ITH_F32)
        w.unrounded = ith_arena_take(arena, ith_min64(rows, ith_linear_strip(&w.linears)), 2 * c->dim * f32);
    if (place)
        *place = w;
    return place;
}

/* ---- RoPE ------------------------------------------------------------------------------------------------------ */

/* Computes the cosines and sines of the angles of RoPE for a part of a head with `size` numbers, at one position. */
static void rope_part(float *cosines, float *sines, int64_t size, int64_t position)
{
    for (int64_t i = 0; i < size / 2; i++) {
        double angle = (double)position / pow(10000.0, (double)(2 * i) / (double)size);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
}

/* Fills the RoPE tables of this rank's tokens. The position (t, h, w) of a token is its place in the grid of
 * patches. */
static void fill_rope(ith_dit_workspace *w)
{
    const int64_t head_dim = w->dit->config.head_dim, half = head_dim / 2;
    const int64_t space = 2 * (head_dim / 6), time = head_dim - 2 * space;
    const int64_t height = w->shape.height / 2, width = w->shape.width / 2;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < w->share; i++) {
        int64_t token = w->begin + i;
        float *cosines = w->cosines + i * half, *sines = w->sines + i * half;
        rope_part(cosines, sines, time, token / (height * width));
        rope_part(cosines + time / 2, sines + time / 2, space, token / width % height);
        rope_part(cosines + (time + space) / 2, sines + (time + space) / 2, space, token % width);
    }
}

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

/* Describes self-attention. A rank's queries, keys and values lie side by side in one buffer, [rows, 3 dim]; o
 * overwrites the queries, or, on a device, has a buffer of its own, [rows, dim]. */
static ith_attn_problem self_problem(const ith_dit_workspace *w)
{
    const ith_dit_config *c = &w->dit->config;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = w->shape.batch, problem.heads = problem.kv_heads = c->heads, problem.head_dim = c->head_dim;
    problem.q_len = problem.kv_len = ith_dit_token_count(w->shape.frames, w->shape.height, w->shape.width);
    problem.dtype = w->type;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = problem.o_row_stride = 3 * c->dim;
    problem.q_batch_stride = problem.k_batch_stride = problem.v_batch_stride = w->share * 3 * c->dim;
    problem.o_batch_stride = problem.q_batch_stride;
    if (w->dit->use)
        problem.o_row_stride = c->dim, problem.o_batch_stride = w->share * c->dim;
    return problem;
}

/* Describes cross-attention. Every rank has all keys and values of the prompts, so ranks exchange nothing. */
static ith_attn_problem cross_problem(const ith_dit_workspace *w)
{
    const ith_dit_config *c = &w->dit->config;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.batch = w->shape.batch, problem.heads = problem.kv_heads = c->heads, problem.head_dim = c->head_dim;
    problem.q_len = ith_dit_token_count(w->shape.frames, w->shape.height, w->shape.width), problem.kv_len = w->keys;
    problem.dtype = w->type;
    problem.has_key_bias = problem.replicated_kv = true;
    if (w->dit->use) /* a device has all rows of padding */
        problem.kv_len = ITH_TEXT_LEN, problem.has_key_bias = false;
    problem.k_row_stride = problem.v_row_stride = 2 * c->dim;
    problem.k_batch_stride = problem.v_batch_stride = problem.kv_len * 2 * c->dim;
    return problem;
}

ith_attn_problem ith_dit_image_problem(const ith_dit *dit, const ith_dit_shape *shape)
{
    const ith_dit_config *c = &dit->config;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = problem.kv_heads = c->heads, problem.head_dim = c->head_dim;
    problem.q_len = ith_dit_token_count(shape->frames, shape->height, shape->width);
    problem.kv_len = shape->image_rows;
    problem.dtype = dit->types.attention;
    problem.replicated_kv = true;
    problem.k_row_stride = problem.v_row_stride = 2 * c->dim;
    return problem;
}

/* Cross attention exchanges nothing, so only two options matter: the kernel and the effort. */
static ith_attn_options cross_options(const ith_attn_options *options)
{
    ith_attn_options own = ITH_ATTN_OPTIONS_INIT;
    if (options)
        own.kernel = options->kernel, own.effort = options->effort;
    return own;
}

int64_t ith_dit_problems(const ith_dit *dit, const ith_dit_shape *shape, int ranks, int rank, ith_attn_problem *self,
                         ith_attn_problem *cross)
{
    const ith_dit_workspace sizes = sizes_of(dit, shape, ith_dit_text_keys(shape->longest_text), ranks, rank);
    *self = self_problem(&sizes);
    *cross = cross_problem(&sizes);
    return sizes.rows;
}

static ith_status make_plans(ith_context *context, ith_dit_workspace *w, const ith_attn_options *options,
                             ith_comm *comm)
{
    const ith_attn_problem self = self_problem(w), cross = cross_problem(w);
    const ith_attn_problem image = ith_dit_image_problem(w->dit, &w->shape);
    const ith_attn_options own = cross_options(options);
    ith_status status = ith_plan_create(context, &self, options, comm, &w->self_plan);
    if (!status)
        status = ith_plan_create(context, &cross, &own, comm, &w->cross_plan);
    return status || !w->shape.image_rows ? status : ith_plan_create(context, &image, &own, comm, &w->image_plan);
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

/* Predicts the memory of the plans of self-attention and of cross-attention, of the host and of a device. */
static ith_status predict_plans(ith_context *context, const ith_dit_workspace *sizes, const ith_dit_rank *rank,
                                int64_t *host, int64_t *device)
{
    const ith_attn_options own = cross_options(rank->options);
    const ith_attn_problem problems[] = {self_problem(sizes), cross_problem(sizes),
                                         ith_dit_image_problem(sizes->dit, &sizes->shape)};
    const int count = sizes->shape.image_rows ? 3 : 2;
    ith_status status = ITH_OK;
    *host = *device = 0;
    for (int i = 0; i < count && !status; i++) {
        ith_plan_info info = ITH_PLAN_INFO_INIT;
        status = ith_plan_predict(context, &problems[i], i ? &own : rank->options, rank->ranks, rank->rank,
                                  rank->shared_memory, &info);
        *host += info.memory_bytes + ITH_ALLOC_HEADER;
        *device += info.device_bytes;
    }
    return status;
}

ith_status ith_dit_workspace_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                                   const ith_dit_rank *rank, int64_t *bytes)
{
    ith_status status = check_shape(context, dit, shape);
    if (status)
        return status;
    const int64_t keys = ith_dit_text_keys(shape->longest_text);
    const ith_dit_workspace sizes = sizes_of(dit, shape, keys, rank->ranks, rank->rank);
    int64_t plans = 0, on_device = 0;
    ith_arena arena = {0};
    lay_out(&sizes, &arena);
    if (arena.overflow)
        return ith_fail(context, ITH_ERR_MEMORY, "a transformer's workspace takes more memory than a size can hold");
    status = predict_plans(context, &sizes, rank, &plans, &on_device);
    *bytes = arena.used_bytes + ITH_ALLOC_HEADER + plans;
    return status;
}

ith_status ith_dit_workspace_device_bytes(ith_context *context, const ith_dit *dit, const ith_dit_shape *shape,
                                          const ith_dit_rank *rank, int64_t *bytes)
{
    *bytes = 0;
    ith_status status = dit->use ? check_shape(context, dit, shape) : ITH_OK;
    if (status || !dit->use)
        return status;
    const int64_t keys = ith_dit_text_keys(shape->longest_text);
    const ith_dit_workspace sizes = sizes_of(dit, shape, keys, rank->ranks, rank->rank);
    int64_t plans = 0, on_device = 0;
    status = predict_plans(context, &sizes, rank, &plans, &on_device);
    *bytes = ith_dit_space_bytes(&sizes) + on_device;
    return status;
}

/* Makes a workspace except for its plans, which all ranks make together. */
static ith_status build(ith_context *context, const ith_dit_workspace *sizes, ith_dit_workspace **out)
{
    ith_arena arena = {0};
    lay_out(sizes, &arena);
    ith_status status = ith_arena_allocate(context, &arena, "a transformer's workspace");
    if (status)
        return status;
    *out = lay_out(sizes, &arena);
    (*out)->ops = ith_rowops_choose(ith_context_cpu(context));
    fill_rope(*out);
    return sizes->dit->use ? ith_dit_space_create(context, *out) : ITH_OK;
}

ith_status ith_dit_workspace_create(ith_context *context, const ith_dit *dit, const ith_dit_text *text,
                                    const ith_dit_shape *shape, const ith_attn_options *options, ith_comm *comm,
                                    ith_dit_workspace **out)
{
    *out = NULL;
    ith_status status = check_shape(context, dit, shape);
    if (!status && shape->batch != text->batch)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "a batch of %lld, but the text has %lld prompts",
                          (long long)shape->batch, (long long)text->batch);
    if (!status) {
        const ith_dit_workspace sizes = sizes_of(dit, shape, text->keys, ith_comm_size(comm), ith_comm_rank(comm));
        status = build(context, &sizes, out);
    }
    if (!status)
        ith_dit_workspace_set_text(*out, text);
    status = ith_comm_agree(comm, status);
    if (!status)
        status = make_plans(context, *out, options, comm);
    if (status)
        ith_dit_workspace_free(context, out);
    return status;
}

void ith_dit_workspace_free(ith_context *context, ith_dit_workspace **workspace)
{
    ith_dit_workspace *w = *workspace;
    if (!w)
        return;
    ith_plan_destroy(&w->self_plan);
    ith_plan_destroy(&w->cross_plan);
    ith_plan_destroy(&w->image_plan);
    ith_dit_space_free(context, &w->device);
    ith_free(context, w);
    *workspace = NULL;
}

void ith_dit_workspace_set_text(ith_dit_workspace *w, const ith_dit_text *text)
{
    w->text = text;
    for (int64_t b = 0; b < ith_min64(w->shape.batch, text->batch); b++)
        for (int64_t key = 0; key < w->keys; key++)
            w->padded_bias[b * w->keys + key] = key < text->keys ? text->key_bias[b * text->keys + key] : -INFINITY;
}

void ith_dit_workspace_set_image(ith_dit_workspace *w, const ith_dit_image *image)
{
    w->image = image;
}

void ith_dit_workspace_set_shards(ith_dit_workspace *w, ith_dit_shards *shards, ith_comm *comm, bool leads)
{
    w->shards = shards, w->shards_comm = comm, w->leads = leads;
}

void ith_dit_workspace_show(ith_dit_workspace *w, const ith_span *span)
{
    w->shown = *span;
}

const ith_plan *ith_dit_workspace_plan(const ith_dit_workspace *w)
{
    return w->self_plan;
}

void ith_dit_workspace_watch(ith_dit_workspace *w, ith_dit_watch_fn watch, void *user, float *space)
{
    w->watch = watch;
    w->watch_user = user;
    w->watched = space;
}
