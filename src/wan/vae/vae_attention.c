/* SPDX-License-Identifier: Apache-2.0 */
/* The layers in the middle, at the size of the latents: residual blocks, and between them the attention over the pixels
 * of one latent frame:
 *
 *   x += W_o softmax(q k^T / sqrt(channels)) v + b_o,   [q k v] = W norm(x) + b
 *
 * There is one head, as wide as the channels. The library's own attention computes it without a matrix of pixels by
 * pixels. */
#include "vae_layers.h"

#include "../../base/context.h"
#include "../../base/trace.h"

static int64_t channels_of(const ith_vae_attention *attention)
{
    return attention->proj->filter->in;
}

void ith_vae_middle_add(ith_vae_work *work, int64_t height, int64_t width)
{
    const ith_vae *vae = work->vae;
    ith_vae_middle *m = &work->middle;
    const char *const stage = work->stage;
    m->pixels = height * width;
    m->x = (ith_vae_rows){NULL, 1, height, width, vae->proj.in, 0};
    m->before = ith_vae_residual_add(work, &vae->before, height, width, 1);
    work->stage = NULL; /* the linear layers of the attention are part of its interval */
    m->attention.norm = vae->attention_norm;
    m->attention.qkv = ith_vae_linear_add(work, &vae->qkv, m->pixels);
    m->attention.proj = ith_vae_linear_add(work, &vae->proj, m->pixels);
    work->stage = stage;
    m->after = ith_vae_residual_add(work, &vae->after, height, width, 1);
}

ith_attn_problem ith_vae_attention_problem(const ith_vae_attention *attention)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = problem.kv_heads = 1, problem.head_dim = channels_of(attention);
    problem.q_len = problem.kv_len = attention->qkv->pixels, problem.dtype = ITH_F32;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = 3 * channels_of(attention);
    return problem;
}

/* Makes the context compute on the processor, where these layers are, and returns the device that it had. */
static struct ith_device_use *leave_device(ith_context *context)
{
    struct ith_device_use *use = ith_context_device_use(context);
    ith_context_set_device_use(context, NULL);
    return use;
}

ith_status ith_vae_attention_plan(const ith_vae_work *work, ith_vae_attention *attention)
{
    const ith_attn_problem problem = ith_vae_attention_problem(attention);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    struct ith_device_use *use = leave_device(work->context);
    ith_status status = ith_plan_create(work->context, &problem, &options, NULL, &attention->plan);
    ith_context_set_device_use(work->context, use);
    return status;
}

ith_status ith_vae_attention_plan_bytes(const ith_vae_work *work, const ith_vae_attention *attention, int64_t *bytes)
{
    const ith_attn_problem problem = ith_vae_attention_problem(attention);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    struct ith_device_use *use = leave_device(work->context);
    ith_status status = ith_plan_predict(work->context, &problem, &options, 1, 0, true, &info);
    ith_context_set_device_use(work->context, use);
    *bytes = info.memory_bytes + ITH_ALLOC_HEADER;
    return status;
}

int64_t ith_vae_attention_temp_bytes(const ith_vae_attention *attention)
{
    return attention->qkv->pixels * channels_of(attention) * 5 * (int64_t)sizeof(float);
}

static ith_status attend(const ith_vae_work *work, const ith_vae_attention *attention, float *x)
{
    const int64_t c = channels_of(attention), pixels = attention->qkv->pixels, count = pixels * c;
    /* work->temp has three parts: norm(x), later the output of `proj`; o; and rows with q, k and v side by side. */
    float *normal = (float *)(void *)work->temp, *o = normal + count, *qkv = o + count;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < pixels; i++)
        work->rowops->channel_norm(normal + i * c, x + i * c, attention->norm, 1, c, false);
    ith_status status = ith_vae_linear_apply(work, attention->qkv, pixels, normal, qkv);
    const ith_attn_tensors tensors = {
        .struct_size = sizeof(ith_attn_tensors), .q = qkv, .k = qkv + c, .v = qkv + 2 * c, .o = o};
    if (!status)
        status = ith_plan_execute(attention->plan, &tensors);
    if (!status)
        status = ith_vae_linear_apply(work, attention->proj, pixels, o, normal);
    if (status)
        return status;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < pixels; i++)
        work->rowops->add_gated(x + i * c, normal + i * c, NULL, c);
    return ITH_OK;
}

static ith_status apply_attention(const ith_vae_work *work, const ith_vae_attention *attention, float *x)
{
    double traced = ith_trace_begin(work->context);
    ith_status status = attend(work, attention, x);
    ith_trace_end(work->context, traced, ITH_VAE_ATTENTION, "compute");
    return status;
}

static ith_status apply_residual(ith_vae_work *work, ith_vae_conv *convs)
{
    const ith_vae_rows *x = &work->middle.x;
    ith_vae_residual_begin(convs);
    return ith_vae_residual_feed(work, convs, x, x, x->rows);
}

ith_status ith_vae_middle_apply(ith_vae_work *work)
{
    const ith_vae_middle *m = &work->middle;
    ith_status status = apply_residual(work, m->before);
    if (!status)
        status = apply_attention(work, &m->attention, m->x.x);
    return status ? status : apply_residual(work, m->after);
}
