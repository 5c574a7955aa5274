/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the configuration of a model. A checkpoint in the diffusers layout has model_index.json, the configuration of
 * the scheduler, and one for each component. The sizes of other files follow from the shapes of their tensors. Models
 * of an official size get their default settings from the reference implementation (Wan-Video/Wan2.2 and Wan2.1,
 * wan/configs), because the flow_shift in the folders on the Hugging Face hub is different. */
#include "model.h"

#include "../../base/context.h"
#include "../../base/count.h"
#include "../../base/lent_files.h"
#include "../../base/plain_text.h"
#include "../../base/sized.h"
#include "../source/recognise.h"
#include "model_index.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The reference's negative prompt for its own models (wan/configs/shared_config.py, sample_neg_prompt). FLF2V of Wan
 * 2.1 has all of this text, I2V of Wan 2.1 the text without CUTS, and all others the text without CUTS and SHAKING
 * (wan/configs/wan_i2v_14B.py, __init__.py). */
#define CUTS "镜头切换，"
#define SHAKING "镜头晃动，"
static const char official_negative[] =
    CUTS SHAKING "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，"
                 "最差质量，低质量，JPEG压缩残留，丑陋的，残缺的，多余的手指，画得不好的手部，"
                 "画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画面，"
                 "杂乱的背景，三条腿，背景人很多，倒着走";

/* The settings of the reference implementation for a published model. It is identified by its sizes and its use of
 * images. If other models share both, a word identifies it: in the name of its folder or file, or of the file to which
 * a link leads. */
typedef struct official_model {
    const char *kind;
    int64_t dim, layers;
    int experts;
    ith_image_use image_use;
    int64_t vision; /* images that the image encoder of Wan 2.1 reads: 0, 1 or 2 */
    const char *word;
    int64_t frames, height, width, steps;
    double fps, shift, guidance[2], boundary;
    double shift_480p; /* for videos of at most 480 x 832 pixels, if it differs; 0: it does not */
    double hub_shift;  /* flow_shift in the folder on the Hugging Face hub, which differs from the reference's shift */
} official_model;

static const official_model officials[] = {
    {"Wan2.2-T2V-A14B", 5120, 40, 2, ITH_IMAGE_UNUSED, 0, "", 81, 720, 1280, 40, 16, 12, {4, 3}, 0.875, 0, 3},
    {"Wan2.2-I2V-A14B", 5120, 40, 2, ITH_IMAGE_NEEDED, 0, "", 81, 720, 1280, 40, 16, 5, {3.5, 3.5}, 0.9, 0, 3},
    {"Wan2.2-TI2V-5B", 3072, 30, 1, ITH_IMAGE_OPTIONAL, 0, "", 121, 704, 1280, 50, 24, 5, {5, 5}, 0, 0, 5},
    {"Wan2.1-T2V-14B", 5120, 40, 1, ITH_IMAGE_UNUSED, 0, "", 81, 720, 1280, 50, 16, 5, {5, 5}, 0, 0, 3},
    {"Wan2.1-T2V-1.3B", 1536, 30, 1, ITH_IMAGE_UNUSED, 0, "", 81, 480, 832, 50, 16, 5, {5, 5}, 0, 0, 3},
    {"Wan2.1-I2V-14B-720P", 5120, 40, 1, ITH_IMAGE_NEEDED, 1, "720p", 81, 720, 1280, 40, 16, 5, {5, 5}, 0, 3, 3},
    {"Wan2.1-I2V-14B-480P", 5120, 40, 1, ITH_IMAGE_NEEDED, 1, "", 81, 480, 832, 40, 16, 5, {5, 5}, 0, 3, 3},
    {"Wan2.1-FLF2V-14B-720P", 5120, 40, 1, ITH_IMAGE_NEEDED, 2, "", 81, 720, 1280, 50, 16, 16, {5, 5}, 0, 0, 16},
};

/* The settings of a model of a custom size. The shift, of Wan 2.1, is for files that name no shift. */
static const official_model custom = {NULL, 0, 0, 0, ITH_IMAGE_UNUSED, 0, "", 81, 480, 832, 40, 16, 5, {5, 5}, 0, 0, 0};

/* The number of images that the image encoder reads; 0: there is none. */
static int64_t vision_images(const ith_model *model)
{
    return !model->dit[0].image_dim ? 0 : model->dit[0].image_rows ? 2 : 1;
}

static bool has_official_sizes(const ith_model *model, const official_model *official)
{
    return official->dim == model->dit[0].dim && official->layers == model->dit[0].layers &&
           official->experts == model->info.experts && official->image_use == (ith_image_use)model->info.image_use &&
           official->vision == vision_images(model);
}

/* Whether the path of the transformer has a word: as it is given, where a link may have the name of the file, or whole,
 * which the path of a folder such as "." needs. A lent file has no whole path here. */
static bool path_has(const ith_model *model, const char *word)
{
    char space[PATH_MAX];
    const char *given = ith_source_path(&model->sources, ITH_PART_DIT), *whole = realpath(given, space);
    return ith_has_part(given, word) || (whole && ith_has_part(whole, word));
}

/* Finds the published model that has the same sizes as this model. Returns NULL if there is none. */
static const official_model *find_official(const ith_model *model)
{
    for (int i = 0; i < ITH_COUNT(officials); i++)
        if (has_official_sizes(model, &officials[i]) && path_has(model, officials[i].word))
            return &officials[i];
    return NULL;
}

/* Reads scheduler_config.json. diffusers would use the class that model_index.json names, even if scheduler_config.json
 * names another. Here the two must agree. */
static ith_status read_scheduler(ith_context *context, ith_model *model, ith_solver named)
{
    char *path = ith_format(context, "%s/scheduler", model->folder);
    ith_status status = path ? ith_scheduler_read(context, path, &model->scheduler) : ITH_ERR_MEMORY;
    ith_free(context, path);
    if (!status && model->scheduler.solver != named)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s/model_index.json: the scheduler is a %s, but scheduler/scheduler_config.json is of a %s: "
                        "both must name the same class",
                        model->folder, ith_scheduler_class(named), ith_scheduler_class(model->scheduler.solver));
    return status;
}

/* Reads the configuration of one component: from its folder, or from its tensors and a config.json beside them. */
static ith_status read_component(ith_context *context, ith_model *model, ith_part part)
{
    const ith_source *source = &model->sources.parts[part];
    ith_dit_config *dit = &model->dit[part == ITH_PART_DIT_2];
    ith_store *store = NULL;
    if (source->folder)
        return part == ITH_PART_TEXT     ? ith_text_config_read(context, source->folder, &model->text)
               : part == ITH_PART_VAE    ? ith_vae_config_read(context, source->folder, &model->vae)
               : part == ITH_PART_VISION ? ith_vision_config_read(context, source->folder, &model->vision)
                                         : ith_dit_config_read(context, source->folder, dit);
    ith_status status = ith_model_open_part(context, model, part, &store);
    if (!status)
        status = part == ITH_PART_TEXT     ? ith_text_config_find(context, source->config, store, &model->text)
                 : part == ITH_PART_VAE    ? ith_vae_config_find(context, source->config, store, &model->vae)
                 : part == ITH_PART_VISION ? ith_vision_config_find(context, source->config, store, &model->vision)
                                           : ith_dit_config_find(context, source->config, store, dit);
    ith_store_close(&store);
    return status;
}

/* Reads how the image encoder's pictures are prepared, in a checkpoint that says it. */
static ith_status read_processor(ith_context *context, ith_model *model, const ith_model_index *index)
{
    if (!model->sources.folder || !index->has_processor || !ith_model_has_part(model, ITH_PART_VISION))
        return ITH_OK;
    char *path = ith_format(context, "%s/image_processor", model->folder);
    ith_status status = path ? ith_vision_processor_read(context, path, &model->vision) : ITH_ERR_MEMORY;
    ith_free(context, path);
    return status;
}

static ith_status read_components(ith_context *context, ith_model *model)
{
    static const ith_part order[] = {ITH_PART_DIT, ITH_PART_DIT_2, ITH_PART_TEXT, ITH_PART_VAE, ITH_PART_VISION};
    ith_status status = ITH_OK;
    for (int i = 0; i < ITH_COUNT(order) && !status; i++)
        if (ith_model_has_part(model, order[i]))
            status = read_component(context, model, order[i]);
    return status;
}

/* The file that gives the sizes of an expert, for messages. */
typedef struct file_name {
    char text[512];
} file_name;

static file_name sizes_of(const ith_model *model, int expert)
{
    const ith_part part = expert ? ITH_PART_DIT_2 : ITH_PART_DIT;
    file_name name;
    snprintf(name.text, sizeof name.text, "%s%s", ith_source_path(&model->sources, part),
             model->sources.parts[part].folder ? "/config.json" : "");
    return name;
}

/* The name of an unsupported model with these channels, in brackets; "" if it is not known. */
static const char *kind_of_channels(int64_t in, int64_t out)
{
    return in == 96 && out == 48 ? " (Lucy-Edit)" : in == 48 && out == 16 ? " (Fun-Control)" : "";
}

/* Finds the use of images of an expert from its channels: latents alone; or latents, a mask with one channel for each
 * frame of a latent frame, and the latents of the images. */
static ith_status find_image_use(ith_context *context, const ith_model *model, const ith_model_index *index, int expert,
                                 ith_image_use *use)
{
    const ith_dit_config *dit = &model->dit[expert];
    const int64_t latents = model->vae.z_dim, conditioned = 2 * latents + model->vae.stride_time;
    const bool from_text = dit->in_channels == latents && (index->expands || !index->from_image);
    *use = dit->in_channels == conditioned ? ITH_IMAGE_NEEDED : index->expands ? ITH_IMAGE_OPTIONAL : ITH_IMAGE_UNUSED;
    if (dit->out_channels != latents)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: the transformer makes latents of %lld channels, and the autoencoder %s reads %lld: "
                        "TI2V-5B needs the autoencoder of Wan 2.2 (wan2.2_vae), and every other model needs the "
                        "autoencoder of Wan 2.1 (wan_2.1_vae)",
                        sizes_of(model, expert).text, (long long)dit->out_channels,
                        ith_source_path(&model->sources, ITH_PART_VAE), (long long)latents);
    if (from_text || (*use == ITH_IMAGE_NEEDED && !index->expands))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "%s: %lld channels in and %lld out%s are not supported with an autoencoder of %lld: models from "
                    "text with %lld and %lld, and models from images with %lld and %lld are",
                    sizes_of(model, expert).text, (long long)dit->in_channels, (long long)dit->out_channels,
                    kind_of_channels(dit->in_channels, dit->out_channels), (long long)latents, (long long)latents,
                    (long long)latents, (long long)conditioned, (long long)latents);
}

/* Checks that the transformers and the image encoder suit one another. */
static ith_status check_vision(ith_context *context, const ith_model *model, int expert)
{
    const ith_dit_config *dit = &model->dit[expert];
    const char *encoder = ith_source_path(&model->sources, ITH_PART_VISION);
    if (dit->image_dim != model->dit[0].image_dim || dit->image_rows != model->dit[0].image_rows)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: transformer and transformer_2 take different rows of images",
                        model->folder);
    if (!dit->image_dim) /* and no image encoder, whose sizes are 0 */
        return ITH_OK;
    const int64_t both = 2 * ith_vision_tokens(&model->vision);
    if (model->info.image_use != ITH_IMAGE_NEEDED)
        return ith_fail(
            context, ITH_ERR_UNSUPPORTED,
            "%s: a model with an image encoder and %lld channels in is not supported: models from images are",
            sizes_of(model, expert).text, (long long)dit->in_channels);
    if (dit->image_dim != model->vision.dim)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: image_dim is %lld, and the image encoder %s makes rows of %lld",
                        sizes_of(model, expert).text, (long long)dit->image_dim, encoder, (long long)model->vision.dim);
    if (dit->image_rows && dit->image_rows != both)
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: pos_embed_seq_len is %lld, and the image encoder %s makes %lld rows of two images",
                        sizes_of(model, expert).text, (long long)dit->image_rows, encoder, (long long)both);
    return ITH_OK;
}

/* Checks that the components agree on the number of latent channels and on the width of the text encoder's rows. Finds
 * the model's use of images. */
static ith_status check_components(ith_context *context, ith_model *model, const ith_model_index *index)
{
    for (int i = 0; i < model->info.experts; i++) {
        const ith_dit_config *dit = &model->dit[i];
        ith_image_use use;
        ith_status status = find_image_use(context, model, index, i, &use);
        if (!status && i > 0 && use != (ith_image_use)model->info.image_use)
            status = ith_fail(context, ITH_ERR_FORMAT,
                              "%s: transformer has %lld channels in and transformer_2 %lld: both must have as many",
                              model->folder, (long long)model->dit[0].in_channels, (long long)dit->in_channels);
        if (status)
            return status;
        model->info.image_use = use;
        if ((status = check_vision(context, model, i)))
            return status;
        if (dit->text_dim != model->text.dim)
            return ith_fail(context, ITH_ERR_FORMAT, "%s: text_dim is %lld, the text encoder's d_model is %lld",
                            sizes_of(model, i).text, (long long)dit->text_dim, (long long)model->text.dim);
    }
    return ITH_OK;
}

double ith_model_shift(const ith_model *model, int64_t pixels)
{
    return model->shift_480p != 0 && pixels <= INT64_C(480) * 832 ? model->shift_480p : model->shift;
}

/* Sets the default shifts to the reference's. */
static void take_official_shift(ith_model *model, const official_model *official)
{
    model->shift = official->shift, model->shift_480p = official->shift_480p;
    model->info.shift = ith_model_shift(model, official->height * official->width);
}

/* Chooses the default shift. A folder as published on the hub gets the shift of the reference implementation. Any other
 * folder, such as a fine-tuned or distilled model, gets its own flow_shift. */
static void choose_shift(ith_model *model, const official_model *official)
{
    ith_model_info *info = &model->info;
    const ith_scheduler *scheduler = &model->scheduler;
    info->shift = model->shift = scheduler->shift;
    info->shift_source = model->shift_source;
    if (!model->sources.folder) {
        take_official_shift(model, official ? official : &custom);
        snprintf(model->shift_source, sizeof model->shift_source, "the reference's for %s; the files name none",
                 official ? official->kind : "Wan 2.1");
        return;
    }
    snprintf(model->shift_source, sizeof model->shift_source, "scheduler_config.json");
    if (!official || scheduler->solver != ITH_SOLVER_UNIPC || scheduler->shift != official->hub_shift)
        return;
    take_official_shift(model, official);
    snprintf(model->shift_source, sizeof model->shift_source,
             "the reference's for %s, whose published scheduler_config.json has %g", official->kind,
             official->hub_shift);
}

/* Sets the number of images that the model takes. */
static void count_images(ith_model *model)
{
    ith_model_info *info = &model->info;
    const int64_t vision = vision_images(model);
    info->least_images = vision ? vision : info->image_use == ITH_IMAGE_NEEDED;
    info->most_images = vision                                  ? vision
                        : info->image_use == ITH_IMAGE_NEEDED   ? 2
                        : info->image_use == ITH_IMAGE_OPTIONAL ? 1
                                                                : 0;
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
    static const char *const own[] = {[ITH_IMAGE_UNUSED] = "Wan-T2V (custom size)",
                                      [ITH_IMAGE_OPTIONAL] = "Wan-TI2V (custom size)",
                                      [ITH_IMAGE_NEEDED] = "Wan-I2V (custom size)"};
    static const char *const clip[] = {"", "Wan2.1-I2V (custom size)", "Wan2.1-FLF2V (custom size)"};
    const int64_t vision = vision_images(model);
    const official_model *official = find_official(model), *settings = official ? official : &custom;
    snprintf(model->kind, sizeof model->kind, "%s",
             official ? official->kind
             : vision ? clip[vision]
                      : own[info->image_use]);
    info->kind = model->kind;
    info->frames = settings->frames, info->height = settings->height, info->width = settings->width;
    info->steps = settings->steps, info->fps = settings->fps;
    info->guidance[0] = settings->guidance[0], info->guidance[1] = settings->guidance[1];
    choose_shift(model, official);
    const size_t left_out = vision == 2 ? 0 : vision == 1 ? strlen(CUTS) : strlen(CUTS SHAKING);
    info->negative = official ? official_negative + left_out : "";
    count_images(model);
    if (isnan(info->boundary) && model->sources.experts == 2 && official)
        info->boundary = official->boundary;
}

/* Reads model_index.json and the scheduler of a checkpoint. Transformers that the caller names beside a checkpoint
 * replace the transformers of the checkpoint. Files without a checkpoint have the scheduler of the reference
 * implementation. */
static ith_status read_index(ith_context *context, ith_model *model, ith_model_index *out)
{
    ith_model_index index = {.experts = model->sources.experts, .solver = ITH_SOLVER_UNIPC};
    ith_status status = ITH_OK;
    model->scheduler = ith_scheduler_default();
    if (model->sources.folder)
        status = ith_model_index_read(context, model->folder, &index);
    if (!status && model->sources.folder)
        status = read_scheduler(context, model, index.solver);
    const bool replaced = model->sources.experts && model->sources.experts != index.experts;
    model->info.experts = model->sources.experts ? model->sources.experts : index.experts;
    model->info.boundary = index.boundary;
    if (model->info.experts == 2 && (replaced || !model->sources.folder))
        model->info.boundary = (double)NAN;
    else if (model->info.experts == 1)
        model->info.boundary = 0;
    *out = index;
    return status;
}

/* ---- LoRA files ------------------------------------------------------------------------------------------------ */

/* Whether a LoRA file changes an expert: 0 for high noise or for the only transformer, 1 for low noise. */
static bool reaches(const ith_model *model, const ith_lora_file *lora, int expert)
{
    const int noise = lora->expert == ITH_LORA_BY_NAME ? ith_noise_of_name(lora->file)
                      : lora->expert == ITH_LORA_HIGH  ? 1
                      : lora->expert == ITH_LORA_LOW   ? -1
                                                       : 0;
    return model->info.experts == 1 || noise == 0 || (noise > 0) == (expert == 0);
}

static ith_status check_lora(ith_context *context, const ith_model *model, const ith_lora_file *lora)
{
    if (!lora->file || !*lora->file)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a LoRA without a file name");
    if (lora->expert < ITH_LORA_BY_NAME || lora->expert > ITH_LORA_LOW)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s: expert %lld is no ith_lora_expert", lora->file,
                        (long long)lora->expert);
    if (model->info.experts == 1 && (lora->expert == ITH_LORA_HIGH || lora->expert == ITH_LORA_LOW))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s is a LoRA for %s noise, but the model has one transformer for all noise", lora->file,
                        lora->expert == ITH_LORA_HIGH ? "high" : "low");
    return ITH_OK;
}

/* Whether two paths name one file. */
static bool is_same_file(ith_context *context, const char *a, const char *b)
{
    struct stat first, second;
    return !stat(ith_lent_path(context, a), &first) && !stat(ith_lent_path(context, b), &second) &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* Opens the LoRA files that change an expert. A file that is named twice is most likely a mistake. Users also give LoRA
 * files of Wan 2.1's image-to-video models to image-to-video models of Wan 2.2. These have no image encoder, so the
 * tensors for an image encoder are left out. */
static ith_status open_loras(ith_context *context, ith_model *model, const ith_model_files *files, int expert)
{
    ith_lora_source sources[ITH_LORA_FILES_MAX + 1];
    const bool leaves_out = model->info.image_use == ITH_IMAGE_NEEDED && !model->dit[expert].image_dim;
    int64_t count = 0;
    const char *at = (const char *)files->loras;
    ith_status status = files->lora_count > 0 ? ith_need(context, at, "loras") : ITH_OK;
    if (files->lora_count < 0 || files->lora_count > 2 * ITH_LORA_FILES_MAX)
        status = ith_fail(context, ITH_ERR_ARGUMENT, "lora_count is %lld, and must be from 0 to %d",
                          (long long)files->lora_count, 2 * ITH_LORA_FILES_MAX);
    if (!status)
        status = ith_sized_check_array(context, "ith_lora_file", "ITH_LORA_FILE_INIT", at, files->lora_count,
                                       sizeof *files->loras);
    for (int64_t i = 0; i < files->lora_count && !status; i++, at += files->loras->struct_size) {
        ith_lora_file lora = ITH_LORA_FILE_INIT;
        status = ITH_SIZED_READ(context, ith_lora_file, ITH_LORA_FILE_INIT, at, &lora);
        if (!status)
            status = check_lora(context, model, &lora);
        if (status || !reaches(model, &lora, expert))
            continue;
        for (int64_t j = 0; j < count && !status; j++)
            if (is_same_file(context, sources[j].path, lora.file))
                status = ith_fail(context, ITH_ERR_ARGUMENT,
                                  "%s is named twice; name it once, with the sum of the strengths", lora.file);
        if (count <= ITH_LORA_FILES_MAX) /* one more, so that ith_lora_open refuses it */
            sources[count++] = (ith_lora_source){lora.file, lora.strength, leaves_out};
    }
    return status || !count ? status : ith_lora_open(context, sources, count, &model->loras[expert]);
}

static ith_status read_model(ith_context *context, const ith_model_files *files, ith_model *model)
{
    const char *name = files->folder ? files->folder : files->dit ? files->dit : files->dit_high;
    ith_model_index index = {.experts = 0};
    ith_status status = ith_sources_find(context, files, &model->sources);
    if (!status && !(model->folder = ith_strdup(context, name)))
        status = ITH_ERR_MEMORY;
    if (!status)
        status = read_index(context, model, &index);
    if (!status)
        status = read_components(context, model);
    if (!status)
        status = read_processor(context, model, &index);
    if (!status && files->image_encoder && !model->dit[0].image_dim)
        status =
            ith_fail(context, ITH_ERR_ARGUMENT, "image_encoder is %s, and the model has no image encoder: leave it out",
                     files->image_encoder);
    if (!model->sources.folder) /* only TI2V has the autoencoder of Wan 2.2 */
        index.expands = model->vae.residual && model->dit[0].in_channels == model->vae.z_dim;
    if (!status)
        status = check_components(context, model, &index);
    if (!status)
        fill_info(model);
    for (int expert = 0; expert < model->info.experts && !status; expert++)
        status = open_loras(context, model, files, expert);
    return status;
}

ith_status ith_model_read(ith_context *context, const ith_model_files *files, ith_model **out)
{
    *out = NULL;
    ith_model *model = ith_alloc_zero(context, 1, sizeof *model, "a model's description");
    if (!model)
        return ITH_ERR_MEMORY;
    ith_status status = read_model(context, files, model);
    if (status)
        ith_model_free(context, &model);
    *out = model;
    return status;
}

void ith_model_free(ith_context *context, ith_model **model)
{
    if (!*model)
        return;
    for (int part = 0; part < ITH_PARTS; part++)
        ith_store_close(&(*model)->files[part]);
    for (int expert = 0; expert < 2; expert++)
        ith_lora_close(&(*model)->loras[expert]);
    ith_sources_free(context, &(*model)->sources);
    ith_free(context, (*model)->folder);
    ith_free(context, *model);
    *model = NULL;
}
