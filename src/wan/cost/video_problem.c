/* SPDX-License-Identifier: Apache-2.0 */
/* Video problems: by the name of a published model, and of an open checkpoint (ithaca/video_cost.h). */
#include "video_problem.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/sized.h"
#include "../run/denoise/denoise_choice.h"
#include "../run/prompts.h"

#include <stdio.h>
#include <string.h>

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* A published model and a size of video. The sources are the reference implementations, Wan-Video/Wan2.1 and Wan2.2. */
typedef struct published {
    const char *name;
    int64_t experts, layers, heads, ffn_dim, channels;
    int64_t frames, height, width, steps;
    bool wan_22; /* it has the autoencoder of Wan 2.2 */
    ith_image_use image_use;
    int64_t images; /* number of images that are given */
    bool has_clip;  /* it has the image encoder of Wan 2.1's models from images */
} published;

static const published problems[] = {
    {"wan2.2-a14b-720p", 2, 40, 40, 13824, 16, 81, 720, 1280, 40, false, ITH_IMAGE_UNUSED, 0, false},
    {"wan2.2-a14b-480p", 2, 40, 40, 13824, 16, 81, 480, 832, 40, false, ITH_IMAGE_UNUSED, 0, false},
    {"wan2.1-14b-720p", 1, 40, 40, 13824, 16, 81, 720, 1280, 50, false, ITH_IMAGE_UNUSED, 0, false},
    {"wan2.1-14b-480p", 1, 40, 40, 13824, 16, 81, 480, 832, 50, false, ITH_IMAGE_UNUSED, 0, false},
    {"wan2.1-1.3b-480p", 1, 30, 12, 8960, 16, 81, 480, 832, 50, false, ITH_IMAGE_UNUSED, 0, false},
    {"wan2.2-ti2v-5b-720p", 1, 30, 24, 14336, 48, 121, 704, 1280, 50, true, ITH_IMAGE_OPTIONAL, 0, false},
    {"wan2.2-ti2v-5b-image-720p", 1, 30, 24, 14336, 48, 121, 704, 1280, 50, true, ITH_IMAGE_OPTIONAL, 1, false},
    {"wan2.2-i2v-a14b-720p", 2, 40, 40, 13824, 16, 81, 720, 1280, 40, false, ITH_IMAGE_NEEDED, 1, false},
    {"wan2.2-i2v-a14b-480p", 2, 40, 40, 13824, 16, 81, 480, 832, 40, false, ITH_IMAGE_NEEDED, 1, false},
    {"wan2.1-i2v-14b-720p", 1, 40, 40, 13824, 16, 81, 720, 1280, 40, false, ITH_IMAGE_NEEDED, 1, true},
    {"wan2.1-i2v-14b-480p", 1, 40, 40, 13824, 16, 81, 480, 832, 40, false, ITH_IMAGE_NEEDED, 1, true},
    {"wan2.1-flf2v-14b-720p", 1, 40, 40, 13824, 16, 81, 720, 1280, 50, false, ITH_IMAGE_NEEDED, 2, true},
};
#define PROBLEMS ((int)(sizeof problems / sizeof *problems))

const char *ith_video_problem_list(int index)
{
    return index >= 0 && index < PROBLEMS ? problems[index].name : NULL;
}

/* Sets the decoder's sizes, and the strides that they make. */
static void put_decoder(const ith_vae_config *vae, ith_video_problem *out)
{
    out->decoder_dim = vae->decoder_base_dim, out->decoder_blocks = vae->res_blocks, out->decoder_levels = vae->levels;
    out->encoder_dim = vae->encoder_base_dim;
    out->decoder_patch = vae->patch, out->decoder_residual = vae->residual;
    out->frame_stride = vae->stride_time, out->pixel_stride = vae->stride_space;
    for (int64_t i = 0; i < vae->levels; i++)
        out->decoder_factors[i] = vae->dim_mult[i];
    for (int64_t i = 0; i + 1 < vae->levels; i++)
        out->decoder_doubles[i] = vae->temporal_up[i];
}

/* Sets the sizes of umT5-XXL, which all published models have. */
static void put_umt5(ith_video_problem *out)
{
    out->text_dim = 4096, out->text_layers = 24, out->text_heads = 64, out->text_head_dim = 64;
    out->text_ffn_dim = 10240, out->text_vocab = 256384, out->text_buckets = 32;
}

static void put_vision(const ith_vision_config *c, ith_video_problem *out)
{
    out->vision_dim = c->dim, out->vision_layers = c->layers, out->vision_heads = c->heads;
    out->vision_ffn_dim = c->ffn_dim, out->vision_image = c->image, out->vision_patch = c->patch;
}

static void put_published(const published *p, ith_video_problem *out)
{
    ith_vae_config vae;
    snprintf(out->name, sizeof out->name, "%s", p->name);
    out->experts = p->experts, out->layers = p->layers, out->heads = p->heads, out->head_dim = 128;
    out->ffn_dim = p->ffn_dim, out->channels = p->channels;
    out->frames = p->frames, out->height = p->height, out->width = p->width;
    out->steps = out->guided_steps = p->steps;
    out->image_use = p->image_use, out->images = p->images;
    put_umt5(out);
    if (p->has_clip)
        put_vision(
            &(ith_vision_config){.image = 224, .patch = 14, .dim = 1280, .heads = 16, .ffn_dim = 5120, .layers = 32},
            out);
    ith_vae_config_published(p->wan_22, &vae);
    put_decoder(&vae, out);
}

ith_status ith_video_problem_named(ith_context *context, const char *name, ith_video_problem *problem)
{
    ith_video_problem found = ITH_VIDEO_PROBLEM_INIT;
    char names[512] = "";
    ith_status status = ith_need(NULL, context, "context");
    if (!status)
        status = ith_need(context, name, "name");
    if (status)
        return status;
    for (int i = 0; i < PROBLEMS; i++) {
        if (!strcmp(problems[i].name, name)) {
            put_published(&problems[i], &found);
            return ITH_SIZED_FILL(context, ith_video_problem, ITH_VIDEO_PROBLEM_INIT, problem, &found);
        }
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", problems[i].name);
    }
    return ith_fail(context, ITH_ERR_ARGUMENT, "no problem is called '%.80s'; there are %s", name, names);
}

/* ---- Checkpoints ------------------------------------------------------------------------------------------------- */

static bool experts_are_alike(const ith_model *model)
{
    const ith_dit_config *a = &model->dit[0], *b = &model->dit[1];
    return model->info.experts == 1 || (a->heads == b->heads && a->head_dim == b->head_dim && a->layers == b->layers &&
                                        a->ffn_dim == b->ffn_dim && a->freq_dim == b->freq_dim);
}

static void put_model(const ith_model *model, ith_video_problem *out)
{
    const ith_dit_config *dit = &model->dit[0];
    const ith_text_config *text = &model->text;
    snprintf(out->name, sizeof out->name, "%s", model->kind);
    out->experts = model->info.experts, out->layers = dit->layers, out->heads = dit->heads;
    out->head_dim = dit->head_dim, out->ffn_dim = dit->ffn_dim, out->freq_dim = dit->freq_dim;
    out->channels = dit->out_channels, out->image_use = model->info.image_use;
    out->text_dim = text->dim, out->text_layers = text->layers, out->text_heads = text->heads;
    out->text_head_dim = text->head_dim, out->text_ffn_dim = text->ffn_dim;
    out->text_vocab = text->vocab, out->text_buckets = text->buckets;
    put_decoder(&model->vae, out);
    put_vision(&model->vision, out);
}

/* The mean rank of the LoRA files of one expert, rounded up: a LoRA of this rank in every matrix of the layers has as
 * many numbers. */
static int64_t mean_rank(const ith_model *model, int expert)
{
    const ith_dit_config *c = &model->dit[expert];
    /* numbers of rank 1 in a layer */
    const int64_t square = (c->image_dim ? 10 : 8) * 2 * c->dim, ffn = 2 * (c->dim + c->ffn_dim);
    return ith_div_up(ith_lora_block_numbers(model->loras[expert]), c->layers * (square + ffn));
}

/* done: the steps of a saved run */
static void put_options(const ith_model *model, const ith_generate_options *o, int64_t done, ith_video_problem *out)
{
    out->frames = o->frames, out->height = o->height, out->width = o->width;
    out->steps = o->from_latents ? 0 : o->steps;
    out->steps_done = done;
    out->images = (o->image != NULL) + (o->last_image != NULL);
    out->solver = (int64_t)o->solver, out->solver_order = ith_sampler_order(&model->scheduler, o->solver);
    out->precision = o->precision, out->threads = o->threads;
    out->keep_packed = o->keep_packed, out->shard_weights = o->shard_weights, out->dumps = o->dump_file != NULL;
}

static ith_status read(ith_pipeline *pipeline, const ith_generate_options *options, int64_t done,
                       ith_video_problem *out)
{
    ith_context *context = pipeline->context;
    const ith_model *model = pipeline->model;
    int64_t counts[2] = {0, 0};
    if (!experts_are_alike(model))
        return ith_fail(context, ITH_ERR_UNSUPPORTED, "%s: the two experts have different sizes: no time is predicted",
                        model->folder);
    put_model(model, out);
    out->lora_rank = ith_max64(mean_rank(model, 0), model->info.experts > 1 ? mean_rank(model, 1) : 0);
    ith_status status = ITH_OK;
    for (ith_part part = 0; part < ITH_PART_VISION && !status; part++)
        status = ith_model_list_bytes(context, model, part, &out->list_bytes[part]);
    if (!status)
        status = ith_model_list_bytes(context, model, ITH_PART_VISION, &out->vision_list_bytes);
    put_options(model, options, done, out);
    out->guided_steps = 0;
    if (!status && !options->from_latents)
        status = ith_count_ids(pipeline, context, options, counts);
    if (!status && !options->from_latents)
        status = ith_denoise_guided_steps(context, model, options, done, &out->guided_steps);
    out->prompt_rows = counts[0], out->negative_rows = counts[1];
    return status;
}

ith_status ith_video_problem_read(ith_pipeline *pipeline, const ith_generate_options *options,
                                  ith_video_problem *problem)
{
    ith_generate_options resolved;
    ith_request_parts parts;
    ith_saved_run *saved = NULL;
    ith_video_problem found = ITH_VIDEO_PROBLEM_INIT;
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_status status = ith_request_read(pipeline, pipeline->context, options, true, &resolved, &parts, &saved);
    if (!status)
        status = read(pipeline, &resolved, saved ? saved->step : 0, &found);
    ith_saved_run_close(pipeline->context, &saved);
    if (status)
        return status;
    return ITH_SIZED_FILL(pipeline->context, ith_video_problem, ITH_VIDEO_PROBLEM_INIT, problem, &found);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* A size of a problem and its limits, which keep products of sizes far below 2^63. */
typedef struct limit {
    const char *name;
    int64_t value, least, most;
} limit;

static ith_status check_limits(ith_context *context, const limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (limits[i].value < limits[i].least || limits[i].value > limits[i].most)
            return ith_fail(context, ITH_ERR_ARGUMENT,
                            "%s of a video problem is %lld; it must lie between %lld and %lld", limits[i].name,
                            (long long)limits[i].value, (long long)limits[i].least, (long long)limits[i].most);
    return ITH_OK;
}

/* Checks that `value` is `base` plus some multiple of `multiple`. */
static ith_status check_multiple(ith_context *context, const char *name, int64_t value, int64_t base, int64_t multiple)
{
    if ((value - base) % multiple == 0)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s of a video problem is %lld; it must be %s of %lld", name,
                    (long long)value, base ? "one more than a multiple" : "a multiple", (long long)multiple);
}

static ith_status check_decoder(ith_context *context, const ith_video_problem *p)
{
    if (!p->decoder_levels && p->images)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a video problem has images, and decoder_levels is 0");
    if (!p->decoder_levels)
        return ITH_OK;
    const limit sizes[] = {{"decoder_dim", p->decoder_dim, 2, 4096},
                           {"decoder_blocks", p->decoder_blocks, 1, 64},
                           {"decoder_patch", p->decoder_patch, 1, 16},
                           {"decoder_residual", p->decoder_residual, 0, 1}};
    ith_status status = check_limits(context, sizes, sizeof sizes / sizeof *sizes);
    int64_t time = 1, space = p->decoder_patch;
    for (int64_t i = 0; i < p->decoder_levels && !status; i++) {
        const limit factor[] = {{"decoder_factors", p->decoder_factors[i], 1, 64},
                                {"decoder_doubles", p->decoder_doubles[i], 0, i + 1 < p->decoder_levels}};
        status = check_limits(context, factor, sizeof factor / sizeof *factor);
        time *= p->decoder_doubles[i] ? 2 : 1;
        space *= i ? 2 : 1;
    }
    if (!status && (time != p->frame_stride || space != p->pixel_stride))
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "the strides of a video problem are %lld frames and %lld pixels, and its decoder makes %lld "
                          "and %lld",
                          (long long)p->frame_stride, (long long)p->pixel_stride, (long long)time, (long long)space);
    return status;
}

enum { WIDE = 1 << 20 }; /* the largest width of a layer */

/* Checks the image encoder, and the images that a model with one takes. */
static ith_status check_vision(ith_context *context, const ith_video_problem *p)
{
    if (!p->vision_dim)
        return ITH_OK;
    const limit sizes[] = {{"vision_layers", p->vision_layers, 2, 4096},
                           {"vision_heads", p->vision_heads, 1, 4096},
                           {"vision_ffn_dim", p->vision_ffn_dim, 1, WIDE},
                           {"vision_image", p->vision_image, 1, 4096},
                           {"vision_patch", p->vision_patch, 1, p->vision_image},
                           {"vision_list_bytes", p->vision_list_bytes, 0, INT32_MAX}};
    if (p->image_use != ITH_IMAGE_NEEDED)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "a video problem has an image encoder, and its model needs no image");
    return check_limits(context, sizes, sizeof sizes / sizeof *sizes);
}

/* Checks each number by itself. */
static ith_status check_ranges(ith_context *context, const ith_video_problem *p)
{
    const int64_t most_images = !p->steps ? 0 : p->image_use == ITH_IMAGE_NEEDED ? 2 : p->image_use;
    const int64_t least_order = p->solver == ITH_SOLVER_UNIPC || p->solver == ITH_SOLVER_DPMPP;
    const int64_t most_order = p->solver == ITH_SOLVER_EULER ? 0 : ITH_SCHEDULER_MOST_ORDER;
    const limit sizes[] = {{"experts", p->experts, 1, 2},
                           {"layers", p->layers, 1, 4096},
                           {"heads", p->heads, 1, 4096},
                           {"head_dim", p->head_dim, 2, 4096},
                           {"ffn_dim", p->ffn_dim, 1, WIDE},
                           {"freq_dim", p->freq_dim, 2, WIDE},
                           {"channels", p->channels, 1, 64},
                           {"text_dim", p->text_dim, 1, WIDE},
                           {"text_layers", p->text_layers, 1, 4096},
                           {"text_heads", p->text_heads, 1, 4096},
                           {"text_head_dim", p->text_head_dim, 1, 4096},
                           {"text_ffn_dim", p->text_ffn_dim, 1, WIDE},
                           {"text_vocab", p->text_vocab, 1, INT32_MAX},
                           {"text_buckets", p->text_buckets, 4, WIDE},
                           {"decoder_levels", p->decoder_levels, 0, 8},
                           {"frame_stride", p->frame_stride, 1, 128},
                           {"pixel_stride", p->pixel_stride, 1, 128},
                           {"frames", p->frames, 1, WIDE},
                           {"height", p->height, 1, WIDE},
                           {"width", p->width, 1, WIDE},
                           {"steps", p->steps, 0, 10000},
                           {"steps_done", p->steps_done, 0, p->steps},
                           {"guided_steps", p->guided_steps, 0, ith_video_steps_left(p)},
                           {"prompt_rows", p->prompt_rows, p->steps ? 1 : 0, ITH_TEXT_LEN},
                           {"negative_rows", p->negative_rows, p->guided_steps ? 1 : 0, ITH_TEXT_LEN},
                           {"solver", p->solver, ITH_SOLVER_AUTO, ITH_SOLVER_DPMPP},
                           {"solver_order", p->solver_order, least_order, most_order},
                           {"image_use", p->image_use, ITH_IMAGE_UNUSED, ITH_IMAGE_NEEDED},
                           {"images", p->images, p->steps && p->image_use == ITH_IMAGE_NEEDED, most_images},
                           {"encoder_dim", p->encoder_dim, p->images ? 2 : 0, 4096},
                           {"vision_dim", p->vision_dim, 0, WIDE},
                           {"lora_rank", p->lora_rank, 0, 4096},
                           {"list_bytes[0]", p->list_bytes[0], 0, INT32_MAX},
                           {"list_bytes[1]", p->list_bytes[1], 0, INT32_MAX},
                           {"list_bytes[2]", p->list_bytes[2], 0, INT32_MAX},
                           {"list_bytes[3]", p->list_bytes[3], 0, INT32_MAX},
                           {"precision", (int64_t)p->precision, 0, ITH_PRECISION_BF16},
                           {"threads", p->threads, 0, 1 << 16}};
    return check_limits(context, sizes, sizeof sizes / sizeof *sizes);
}

ith_status ith_video_problem_check(ith_context *context, const ith_video_problem *p)
{
    ith_status status = check_ranges(context, p);
    if (!status && p->heads * p->head_dim > WIDE)
        status = ith_fail(context, ITH_ERR_ARGUMENT,
                          "%lld heads of %lld in a video problem are %lld wide; at most %d is supported",
                          (long long)p->heads, (long long)p->head_dim, (long long)(p->heads * p->head_dim), WIDE);
    if (!status)
        status = check_vision(context, p);
    if (!status)
        status = check_multiple(context, "head_dim", p->head_dim, 0, 2);
    if (!status)
        status = check_multiple(context, "freq_dim", p->freq_dim, 0, 2);
    if (!status)
        status = check_multiple(context, "frames", p->frames, 1, p->frame_stride);
    if (!status)
        status = check_multiple(context, "height", p->height, 0, 2 * p->pixel_stride);
    if (!status)
        status = check_multiple(context, "width", p->width, 0, 2 * p->pixel_stride);
    return status ? status : check_decoder(context, p);
}
