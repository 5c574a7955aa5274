/* SPDX-License-Identifier: Apache-2.0 */
/* The attention in the middle of the decoder, over the pixels of one latent frame:
 *
 *   x += W_o softmax(q k^T / sqrt(channels)) v + b_o,   [q k v] = W norm(x) + b
 *
 * One head as wide as the channels. The library's own attention takes it, which holds no matrix of pixels by pixels. */
#include "vae_layers.h"

#include "../../base/size.h"

ith_status ith_vae_attention_create(ith_vae_work *work, const ith_vae *vae, int64_t pixels,
                                    ith_vae_attention_layer *out)
{
    out->norm = vae->attention_norm, out->pixels = pixels, out->channels = vae->proj.in;
    ith_attn_problem problem = ITH_ATTN_PROBLEM_INIT;
    problem.heads = problem.kv_heads = 1, problem.head_dim = out->channels;
    problem.q_len = problem.kv_len = pixels, problem.dtype = ITH_F32;
    problem.q_row_stride = problem.k_row_stride = problem.v_row_stride = 3 * out->channels;
    ith_attn_options options = ITH_ATTN_OPTIONS_INIT;
    options.strategy = ITH_STRATEGY_SINGLE;
    ith_status status = ith_vae_linear_create(work, &vae->qkv, &out->qkv);
    if (!status)
        status = ith_vae_linear_create(work, &vae->proj, &out->proj);
    return status ? status : ith_plan_create(work->context, &problem, &options, NULL, &out->plan);
}

void ith_vae_attention_free(ith_vae_work *work, ith_vae_attention_layer *layer)
{
    ith_linear_destroy(work->context, &layer->qkv);
    ith_linear_destroy(work->context, &layer->proj);
    ith_plan_destroy(&layer->plan);
}

int64_t ith_vae_attention_temp_bytes(int64_t pixels, int64_t channels)
{
    return pixels * channels * 5 * (int64_t)sizeof(float);
}

ith_status ith_vae_attention_run(ith_vae_work *work, ith_vae_attention_layer *layer)
{
    int64_t c = layer->channels, count = layer->pixels * c;
    float *normal = (float *)(void *)work->temp, *o = normal + count, *qkv = o + count;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < layer->pixels; i++)
        work->rowops->channel_norm(normal + i * c, work->x + i * c, layer->norm, 1, c, false);
    ith_status status = ith_linear_run(work->context, layer->qkv, layer->pixels, normal, c, qkv, 3 * c);
    const ith_attn_tensors tensors = {
        .struct_size = sizeof(ith_attn_tensors), .q = qkv, .k = qkv + c, .v = qkv + 2 * c, .o = o};
    if (!status)
        status = ith_plan_execute(layer->plan, &tensors);
    if (!status)
        status = ith_linear_run(work->context, layer->proj, layer->pixels, o, c, normal, c);
    if (status)
        return status;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < layer->pixels; i++)
        work->rowops->add_gated(work->x + i * c, normal + i * c, NULL, c);
    return ITH_OK;
}
