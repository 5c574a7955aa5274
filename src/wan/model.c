/* The checkpoint folder in the diffusers layout: model_index.json, scheduler, and a configuration for each component.
 * Published settings of the official sizes (Wan-Video/Wan2.2 and Wan2.1, wan/configs) are the defaults of models that
 * have those sizes; the hub's flow_shift is not theirs. */
#include "model.h"

#include "../base/context.h"
#include "../files/json.h"

#include <stdio.h>
#include <string.h>

/* The reference's negative prompt for its own models (wan/configs/shared_config.py, sample_neg_prompt). */
static const char official_negative[] =
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，最差质量，低质量，JPEG压缩残留，"
    "丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画"
    "面，"
    "杂乱的背景，三条腿，背景人很多，倒着走";

typedef struct official_model {
    const char *kind;
    int64_t dim, layers;
    int experts;
    int64_t frames, height, width, steps;
    double fps, shift, guidance[2], boundary;
} official_model;

static const official_model officials[] = {
    {"Wan2.2-T2V-A14B", 5120, 40, 2, 81, 720, 1280, 40, 16, 12, {4, 3}, 0.875},
    {"Wan2.1-T2V-14B", 5120, 40, 1, 81, 720, 1280, 50, 16, 5, {5, 5}, 0},
    {"Wan2.1-T2V-1.3B", 1536, 30, 1, 81, 480, 832, 50, 16, 5, {5, 5}, 0},
};

char *ith_model_path(ith_context *context, const ith_model *model, const char *part)
{
    return ith_format(context, "%s/%s", model->folder, part);
}

static const official_model *find_official(const ith_model *model)
{
    for (size_t i = 0; i < sizeof officials / sizeof officials[0]; i++)
        if (officials[i].dim == model->dit[0].dim && officials[i].layers == model->dit[0].layers &&
            officials[i].experts == model->info.experts)
            return &officials[i];
    return NULL;
}

static ith_status read_index(ith_context *context, ith_model *model)
{
    ith_json *index = NULL;
    const char *class_name = NULL;
    bool expand_timesteps = false;
    ith_status status = ith_json_read_in(context, model->folder, "model_index.json", &index);
    if (status)
        return status;
    if ((status = ith_json_string(context, index, "_class_name", true, &class_name)))
        goto done;
    if (strcmp(class_name, "WanPipeline")) {
        status = ith_fail(context, ITH_ERR_UNSUPPORTED,
                          "%s/model_index.json: a %s is not built; text-to-video checkpoints (WanPipeline) are",
                          model->folder, class_name);
        goto done;
    }
    if ((status = ith_json_bool(context, index, "expand_timesteps", false, &expand_timesteps)))
        goto done;
    if (expand_timesteps) {
        status = ith_fail(context, ITH_ERR_UNSUPPORTED,
                          "%s/model_index.json: a model with expand_timesteps (TI2V) is not built; the text-to-video "
                          "models of Wan 2.1 and 2.2 (T2V) are",
                          model->folder);
        goto done;
    }
    model->info.experts = ith_json_string_at(index, "transformer_2", 1) ? 2 : 1;
    status = ith_json_double(context, index, "boundary_ratio", 0, &model->info.boundary);
    if (!status && !(model->info.boundary >= 0 && model->info.boundary <= 1))
        status = ith_fail(context, ITH_ERR_FORMAT, "%s/model_index.json: boundary_ratio is %g, it must lie in [0, 1]",
                          model->folder, model->info.boundary);
done:
    ith_json_close(&index);
    return status;
}

static ith_status read_scheduler(ith_context *context, ith_model *model)
{
    ith_json *json = NULL;
    const char *class_name = NULL, *prediction = NULL;
    ith_status status = ith_json_read_in(context, model->folder, "scheduler/scheduler_config.json", &json);
    if (status)
        return status;
    if ((status = ith_json_string(context, json, "_class_name", true, &class_name)))
        goto done;
    bool unipc = !strcmp(class_name, "UniPCMultistepScheduler");
    if (!unipc && strcmp(class_name, "FlowMatchEulerDiscreteScheduler")) {
        status = ith_fail(context, ITH_ERR_UNSUPPORTED,
                          "%s/scheduler/scheduler_config.json: a %s is not built; UniPCMultistepScheduler and "
                          "FlowMatchEulerDiscreteScheduler are",
                          model->folder, class_name);
        goto done;
    }
    model->solver = unipc ? ITH_SOLVER_UNIPC : ITH_SOLVER_EULER;
    if ((status = ith_json_string(context, json, "prediction_type", false, &prediction)))
        goto done;
    if (unipc && (!prediction || strcmp(prediction, "flow_prediction"))) {
        status = ith_fail(context, ITH_ERR_UNSUPPORTED,
                          "%s/scheduler/scheduler_config.json: prediction_type must be flow_prediction, not %s",
                          model->folder, prediction ? prediction : "absent");
        goto done;
    }
    status = ith_json_double(context, json, unipc ? "flow_shift" : "shift", 1.0, &model->info.shift);
    if (!status && !(model->info.shift > 0 && model->info.shift < 1e6))
        status = ith_fail(context, ITH_ERR_FORMAT, "%s/scheduler/scheduler_config.json: a shift of %g is not positive",
                          model->folder, model->info.shift);
done:
    ith_json_close(&json);
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

/* The components must speak of the same latents and the same text. */
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
    if (model->info.experts == 2 && model->info.boundary == 0)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s/model_index.json: two experts need a boundary_ratio above 0 between them", model->folder);
    return ITH_OK;
}

static void fill_info(ith_model *model)
{
    ith_model_info *info = &model->info;
    const ith_dit_config *dit = &model->dit[0];
    info->layers = dit->layers, info->heads = dit->heads, info->head_dim = dit->head_dim;
    info->ffn_dim = dit->ffn_dim, info->text_dim = dit->text_dim, info->text_layers = model->text.layers;
    info->latent_channels = model->vae.z_dim;
    info->frame_stride = model->vae.stride_time, info->pixel_stride = model->vae.stride_space;
    info->size_multiple = model->vae.stride_space * dit->patch[1];
    if (info->experts == 1)
        info->boundary = 0;
    const official_model *official = find_official(model);
    snprintf(model->kind, sizeof model->kind, "%s", official ? official->kind : "Wan-T2V of its own size");
    info->kind = model->kind;
    info->frames = official ? official->frames : 81;
    info->height = official ? official->height : 480;
    info->width = official ? official->width : 832;
    info->steps = official ? official->steps : 40;
    info->fps = official ? official->fps : 16;
    info->shift = official ? official->shift : info->shift;
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
    ith_status status = (model->folder = ith_strdup(context, folder)) ? ITH_OK : ITH_ERR_MEMORY;
    if (!status)
        status = read_index(context, model);
    if (!status)
        status = read_scheduler(context, model);
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
    ith_free(context, (*model)->folder);
    ith_free(context, *model);
    *model = NULL;
}
