/* SPDX-License-Identifier: Apache-2.0 */
/* The attention in the middle of the decoder, over the pixels of one latent frame:
 *
 *   x += W_o softmax(q k^T / sqrt(channels)) v + b_o,   [q k v] = W norm(x) + b
 *
 * There is one head, as wide as the channels. The library's own attention computes it without a matrix of pixels by
 * pixels. */
#include "vae_layers.h"

#include "../../base/trace.h"

static int64_t channels_of(const ith_vae_attention *attention)
{
    return attention->proj->filter->in;
}

void ith_vae_attention_add(ith_vae_work *work, const ith_vae *vae, int64_t pixels, ith_vae_attention *attention)
{
    attention->norm = vae->attention_norm;
    attention->qkv = ith_vae_linear_add(work, &vae->qkv, pixels);
    attention->proj = ith_vae_linear_add(work, &vae->proj, pixels);
}

ith_attn_problem ith_vae_attention_problem(const ith_vae_attention *attention)
{
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = problem.kv_heads = 1, problem.head_dim = channels_of(attention);
    problem.q_len = problem.kv_len = attention->qkv->pixels, problem.dtype = ITH_F32;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = 3 * channels_of(attention);
    return problem;
}

ith_status ith_vae_attention_plan(const ith_vae_work *work, ith_vae_attention *attention)
{
    const ith_attn_problem problem = ith_vae_attention_problem(attention);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    return ith_plan_create(work->context, &problem, &options, NULL, &attention->plan);
}

ith_status ith_vae_attention_plan_bytes(const ith_vae_work *work, const ith_vae_attention *attention, int64_t *bytes)
{
    const ith_attn_problem problem = ith_vae_attention_problem(attention);
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    ith_status status = ith_plan_predict(work->context, &problem, &options, 1, 0, true, &info);
    *bytes = info.memory_bytes + ITH_ALLOC_HEADER;
    return status;
}

int64_t ith_vae_attention_temp_bytes(const ith_vae_attention *attention)
{
    return attention->qkv->pixels * channels_of(attention) * 5 * (int64_t)sizeof(float);
}

static ith_status apply(const ith_vae_work *work, const ith_vae_attention *attention, float *x)
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

ith_status ith_vae_attention_apply(const ith_vae_work *work, const ith_vae_attention *attention, float *x)
{
    double traced = ith_trace_begin(work->context);
    ith_status status = apply(work, attention, x);
    ith_trace_end(work->context, traced, ITH_VAE_ATTENTION, "compute");
    return status;
}
