/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the engine's descriptions from a video problem (video_model.h). */
#include "video_model.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/sized.h"
#include "../run/denoise/denoise_choice.h"
#include "../run/request.h"
#include "video_problem.h"

static void put_dit(const ith_video_problem *p, ith_dit_config *out)
{
    *out = (ith_dit_config){.heads = p->heads,
                            .head_dim = p->head_dim,
                            .dim = p->heads * p->head_dim,
                            .ffn_dim = p->ffn_dim,
                            .layers = p->layers,
                            .text_dim = p->text_dim,
                            .freq_dim = p->freq_dim,
                            .in_channels =
                                p->image_use == ITH_IMAGE_NEEDED ? 2 * p->channels + p->frame_stride : p->channels,
                            .out_channels = p->channels,
                            .image_dim = p->vision_dim,
                            .patch = {1, 2, 2},
                            .positions = INT32_MAX,
                            .eps = 1e-6};
}

static void put_vision(const ith_video_problem *p, ith_vision_config *out)
{
    *out = (ith_vision_config){.image = p->vision_image,
                               .patch = p->vision_patch,
                               .dim = p->vision_dim,
                               .heads = p->vision_heads,
                               .ffn_dim = p->vision_ffn_dim,
                               .layers = p->vision_layers,
                               .eps = 1e-5};
    ith_vision_config_usual(out);
}

static void put_text(const ith_video_problem *p, ith_text_config *out)
{
    *out = (ith_text_config){.vocab = p->text_vocab,
                             .dim = p->text_dim,
                             .heads = p->text_heads,
                             .head_dim = p->text_head_dim,
                             .ffn_dim = p->text_ffn_dim,
                             .layers = p->text_layers,
                             .buckets = p->text_buckets,
                             .max_distance = p->text_buckets, /* no size depends on it */
                             .eps = 1e-6};
}

static void put_vae(const ith_video_problem *p, ith_vae_config *out)
{
    *out = (ith_vae_config){.z_dim = p->channels,
                            .decoder_base_dim = p->decoder_dim,
                            .encoder_base_dim = p->encoder_dim,
                            .levels = p->decoder_levels,
                            .res_blocks = p->decoder_blocks,
                            .residual = p->decoder_residual != 0,
                            .patch = p->decoder_patch,
                            .stride_time = p->frame_stride,
                            .stride_space = p->pixel_stride};
    for (int64_t i = 0; i < p->decoder_levels; i++) {
        out->dim_mult[i] = p->decoder_factors[i];
        out->temporal_up[i] = p->decoder_doubles[i] != 0;
    }
    for (int64_t i = 0; i < p->channels; i++)
        out->std[i] = 1;
}

/* Only whether guidance is above 1, and whether paths are set, changes the cost: their values are placeholders. */
static void put_options(const ith_video_problem *p, ith_cfg cfg, ith_generate_options *out)
{
    *out = (ith_generate_options)ITH_GENERATE_OPTIONS_INIT;
    out->frames = p->frames, out->height = p->height, out->width = p->width, out->steps = p->steps;
    out->guidance[0] = out->guidance[1] = p->negative_rows ? 2 : 1;
    out->solver = p->solver ? (ith_solver)p->solver : p->solver_order ? ITH_SOLVER_UNIPC : ITH_SOLVER_EULER;
    out->cfg = cfg ? cfg : ITH_CFG_BATCH;
    out->precision = p->precision;
    out->keep_packed = p->keep_packed, out->shard_weights = p->shard_weights;
    out->threads = p->threads;
    out->dump_file = p->dumps ? "dump" : NULL;
    out->from_latents = p->steps ? NULL : "latents";
}

/* Describes the transformers, the encoders and the decoder of a problem. */
static ith_status put_components(ith_context *context, const ith_video_problem *p, ith_model *model)
{
    put_dit(p, &model->dit[0]);
    if (p->vision_dim)
        put_vision(p, &model->vision);
    if (p->vision_dim && ith_vision_config_check(context, "a video problem", &model->vision))
        return ITH_ERR_ARGUMENT;        /* not ITH_ERR_FORMAT: there is no file */
    if (p->vision_dim && p->images > 1) /* FLF2V adds a vector to each row */
        model->dit[0].image_rows = 2 * ith_vision_tokens(&model->vision);
    model->dit[1] = model->dit[0];
    put_text(p, &model->text);
    put_vae(p, &model->vae);
    if (ith_vae_config_check_levels(context, "a video problem", &model->vae))
        return ITH_ERR_ARGUMENT; /* not ITH_ERR_FORMAT: there is no file */
    return ITH_OK;
}

ith_status ith_video_model_make(ith_context *context, const ith_video_problem *given, ith_cfg cfg,
                                ith_video_problem *full, ith_video_model *out)
{
    *full = (ith_video_problem)ITH_VIDEO_PROBLEM_INIT;
    *out = (ith_video_model){.counts = {0}};
    ith_status status = ITH_SIZED_READ(context, ith_video_problem, ITH_VIDEO_PROBLEM_INIT, given, full);
    if (!status)
        status = ith_video_problem_check(context, full);
    if (!status && cfg)
        status = ith_request_check_cfg(context, cfg);
    if (status)
        return status;
    ith_model *model = &out->model;
    status = put_components(context, full, model);
    if (status)
        return status;
    model->scheduler = ith_scheduler_default();
    model->scheduler.unipc.order = model->scheduler.dpmpp.order = ith_max64(full->solver_order, 1);
    model->info = (ith_model_info){.experts = (int)full->experts,
                                   .latent_channels = full->channels,
                                   .image_use = full->image_use,
                                   .frame_stride = full->frame_stride,
                                   .pixel_stride = full->pixel_stride};
    for (ith_part part = 0; part < ITH_PART_VISION; part++)
        model->lists[part] = full->list_bytes[part];
    model->lists[ITH_PART_VISION] = full->vision_list_bytes;
    full->precision = ith_precision_resolve(context, full->precision);
    put_options(full, cfg, &out->options);
    out->image = (ith_image){sizeof out->image, NULL, full->height, full->width};
    out->options.image = full->images ? &out->image : NULL;
    out->options.last_image = full->images > 1 ? &out->image : NULL;
    out->types = ith_number_types_choose(context, full->precision);
    out->size = ith_latent_size_of(&model->info, &out->options);
    out->counts[0] = full->prompt_rows, out->counts[1] = full->negative_rows;
    if (full->lora_rank)
        status = ith_lora_make_random(context, full->lora_rank, ith_max64(model->dit[0].dim, model->dit[0].ffn_dim),
                                      &model->loras[0]);
    model->loras[1] = model->loras[0];
    return status;
}

void ith_video_model_free(ith_video_model *m)
{
    ith_lora_close(&m->model.loras[0]);
    m->model.loras[1] = NULL;
}

ith_dit_shape ith_video_shape(const ith_video_model *m, int64_t batch)
{
    return ith_denoise_shape(&m->model, &m->options, &m->size, m->counts, batch);
}
