/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a checkpoint folder in the diffusers layout: model_index.json, the scheduler, and a configuration for each
 * component. Models of an official size get their default settings from the reference implementation (Wan-Video/Wan2.2
 * and Wan2.1, wan/configs), because the flow_shift in the folders on the Hugging Face hub differs from it. */
#include "model.h"

#include "../base/context.h"
#include "model_index.h"

#include <stdio.h>

/* The reference's negative prompt for its own models (wan/configs/shared_config.py, sample_neg_prompt). */
static const char official_negative[] =
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，最差质量，低质量，JPEG压缩残留，"
    "丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画"
    "面，"
    "杂乱的背景，三条腿，背景人很多，倒着走";

/* The settings of the reference implementation for a published model, which is identified by dim, layers and experts.
 */
typedef struct official_model {
    const char *kind;
    int64_t dim, layers;
    int experts;
    int64_t frames, height, width, steps;
    double fps, shift, guidance[2], boundary;
    double hub_shift; /* flow_shift in the folder on the Hugging Face hub, which differs from the reference's shift */
} official_model;

static const official_model officials[] = {
    {"Wan2.2-T2V-A14B", 5120, 40, 2, 81, 720, 1280, 40, 16, 12, {4, 3}, 0.875, 3},
    {"Wan2.1-T2V-14B", 5120, 40, 1, 81, 720, 1280, 50, 16, 5, {5, 5}, 0, 3},
    {"Wan2.1-T2V-1.3B", 1536, 30, 1, 81, 480, 832, 50, 16, 5, {5, 5}, 0, 3},
};

char *ith_model_path(ith_context *context, const ith_model *model, const char *part)
{
    return ith_format(context, "%s/%s", model->folder, part);
}

/* Finds the published model that has the same sizes as this model. Returns NULL if there is none. */
static const official_model *find_official(const ith_model *model)
{
    for (size_t i = 0; i < sizeof officials / sizeof officials[0]; i++)
        if (officials[i].dim == model->dit[0].dim && officials[i].layers == model->dit[0].layers &&
            officials[i].experts == model->info.experts)
            return &officials[i];
    return NULL;
}

/* Reads scheduler_config.json. diffusers would use the class that model_index.json names, even if scheduler_config.json
 * names another. Here the two must agree. */
static ith_status read_scheduler(ith_context *context, ith_model *model, ith_solver named)
{
    static const char *const classes[] = {
        [ITH_SOLVER_UNIPC] = "UniPCMultistepScheduler", [ITH_SOLVER_EULER] = "FlowMatchEulerDiscreteScheduler"};
    char *path = ith_model_path(context, model, "scheduler");
    ith_status status = path ? ith_scheduler_read(context, path, &model->scheduler) : ITH_ERR_MEMORY;
    ith_free(context, path);
    if (!status && model->scheduler.solver != named)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s/model_index.json: the scheduler is a %s, but scheduler/scheduler_config.json is of a %s: "
                        "both must name the same class",
                        model->folder, classes[named], classes[model->scheduler.solver]);
    return status;
}

static ith_status read_components(ith_context *context, ith_model *model)
{
    static const char *const experts[] = {"transformer", "transformer_2"};
    ith_status status = ITH_OK;
    char *path = NULL;
    for (int i = 0; i < model->info.experts && !status; i++) {
        if (!(path = ith_model_path(context, model, experts[i])))
            return ITH_ERR_MEMORY;
        status = ith_dit_config_read(context, path, &model->dit[i]);
        ith_free(context, path);
    }
    if (status)
        return status;
    if (!(path = ith_model_path(context, model, "text_encoder")))
        return ITH_ERR_MEMORY;
    status = ith_text_config_read(context, path, &model->text);
    ith_free(context, path);
    if (status)
        return status;
    if (!(path = ith_model_path(context, model, "vae")))
        return ITH_ERR_MEMORY;
    status = ith_vae_config_read(context, path, &model->vae);
    ith_free(context, path);
    return status;
}

/* Checks that the components agree on the number of latent channels and on the width of the text encoder's rows. */
static ith_status check_components(ith_context *context, const ith_model *model)
{
    for (int i = 0; i < model->info.experts; i++) {
        const char *expert = i ? "transformer_2" : "transformer";
        const ith_dit_config *dit = &model->dit[i];
        if (dit->in_channels != model->vae.z_dim || dit->out_channels != model->vae.z_dim)
            return ith_fail(context, ITH_ERR_UNSUPPORTED,
                            "%s/%s/config.json: %lld channels in and %lld out, and a VAE of %lld: only text-to-video "
                            "models, where all three are equal, are built",
                            model->folder, expert, (long long)dit->in_channels, (long long)dit->out_channels,
                            (long long)model->vae.z_dim);
        if (dit->text_dim != model->text.dim)
            return ith_fail(context, ITH_ERR_FORMAT,
                            "%s/%s/config.json: text_dim is %lld, the text encoder's d_model is %lld", model->folder,
                            expert, (long long)dit->text_dim, (long long)model->text.dim);
    }
    return ITH_OK;
}

/* Chooses the default shift. A folder as published on the hub gets the shift of the reference implementation. Any other
 * folder, such as a fine-tuned or distilled model, gets its own flow_shift. */
static void choose_shift(ith_model *model, const official_model *official)
{
    ith_model_info *info = &model->info;
    const ith_scheduler *scheduler = &model->scheduler;
    info->shift = scheduler->shift;
    info->shift_source = model->shift_source;
    snprintf(model->shift_source, sizeof model->shift_source, "scheduler_config.json");
    if (!official || scheduler->solver != ITH_SOLVER_UNIPC || scheduler->shift != official->hub_shift)
        return;
    info->shift = official->shift;
    snprintf(model->shift_source, sizeof model->shift_source,
             "the reference's for %s, whose published scheduler_config.json has %g", official->kind,
             official->hub_shift);
}

static void fill_info(ith_model *model)
{
    ith_model_info *info = &model->info;
    info->struct_size = sizeof *info;
    const ith_dit_config *dit = &model->dit[0];
    info->layers = dit->layers, info->heads = dit->heads, info->head_dim = dit->head_dim;
    info->ffn_dim = dit->ffn_dim, info->text_dim = dit->text_dim, info->text_layers = model->text.layers;
    info->latent_channels = model->vae.z_dim;
    info->frame_stride = model->vae.stride_time, info->pixel_stride = model->vae.stride_space;
    info->size_multiple = model->vae.stride_space * dit->patch[1];
    const official_model *official = find_official(model);
    snprintf(model->kind, sizeof model->kind, "%s", official ? official->kind : "Wan-T2V of its own size");
    info->kind = model->kind;
    info->frames = official ? official->frames : 81;
    info->height = official ? official->height : 480;
    info->width = official ? official->width : 832;
    info->steps = official ? official->steps : 40;
    info->fps = official ? official->fps : 16;
    choose_shift(model, official);
    info->guidance[0] = official ? official->guidance[0] : 5.0;
    info->guidance[1] = official ? official->guidance[1] : 5.0;
    info->negative = official ? official_negative : "";
}

ith_status ith_model_read(ith_context *context, const char *folder, ith_model **out)
{
    *out = NULL;
    ith_model *model = ith_alloc_zero(context, 1, sizeof *model, "a model's description");
    if (!model)
        return ITH_ERR_MEMORY;
    ith_model_index index = {0};
    ith_status status = (model->folder = ith_strdup(context, folder)) ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = ith_model_index_read(context, folder, &index);
    if (!status)
        status = read_scheduler(context, model, index.solver);
    model->info.experts = index.experts, model->info.boundary = index.boundary;
    if (!status)
        status = read_components(context, model);
    if (!status)
        status = check_components(context, model);
    if (status) {
        ith_model_free(context, &model);
        return status;
    }
    fill_info(model);
    *out = model;
    return ITH_OK;
}

void ith_model_free(ith_context *context, ith_model **model)
{
    if (!*model)
        return;
    for (int part = 0; part < ITH_PARTS; part++)
        ith_store_close(&(*model)->files[part]);
    ith_free(context, (*model)->folder);
    ith_free(context, *model);
    *model = NULL;
}
