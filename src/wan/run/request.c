/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in the defaults of a run's options, and checks their values (request.h). */
#include "request.h"

#include "../../base/context.h"
#include "../../base/size.h"
#include "../../base/sized.h"
#include "../../base/team_limit.h"
#include "../image/image_fit.h"
#include "../part/multiple.h"
#include "../part/precision.h"
#include "../text/text_codepoints.h"
#include "denoise/denoise_choice.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define MOST_STEPS 10000
#define MOST_SIDE 65536 /* largest height and width of an image */

static void put_defaults(const ith_model *model, ith_generate_options *options)
{
    if (options->from_latents)
        options->image = options->last_image = NULL;
    const ith_model_info *info = &model->info;
    if (!options->negative)
        options->negative = info->negative;
    if (!options->frames)
        options->frames = info->frames;
    if (!options->steps)
        options->steps = info->steps;
    if (options->shift == 0)
        options->shift = info->shift;
    if (isnan(options->guidance[0]))
        options->guidance[0] = info->guidance[0];
    if (isnan(options->guidance[1]))
        options->guidance[1] = info->guidance[1];
    if (isnan(options->boundary))
        options->boundary = info->boundary;
    if (!options->solver)
        options->solver = model->scheduler.solver;
    if (!options->sigmas)
        options->sigmas = ITH_SIGMAS_OFFICIAL;
    if (!options->cfg)
        options->cfg = ITH_CFG_BATCH;
    if (!options->fit)
        options->fit = ITH_FIT_COVER;
    options->threads = ith_threads_or(options->threads, ith_processor_count());
}

/* Chooses the height and the width, or one of them, if they are not given. */
static void put_size(const ith_model_info *info, ith_generate_options *options)
{
    const ith_image *image = options->image;
    const int64_t multiple = info->size_multiple, area = options->area ? options->area : info->height * info->width;
    const ith_size_rule rule = info->image_use == ITH_IMAGE_OPTIONAL ? ITH_SIZE_BEST : ITH_SIZE_ROUNDED;
    if (image && !options->height && !options->width)
        ith_image_size_within(image, rule, area, multiple, &options->height, &options->width);
    else if (image && !options->height)
        options->height = ith_image_side(options->width, image->width, image->height, multiple);
    else if (image && !options->width)
        options->width = ith_image_side(options->height, image->height, image->width, multiple);
    if (!options->height)
        options->height = info->height;
    if (!options->width)
        options->width = info->width;
}

/* Returns the status of a check of settings that a resumed run has from its file. If the model does not allow them, the
 * sentence says that the file may be of another model. */
static ith_status blame_saved_run(ith_context *context, const ith_generate_options *options, ith_status status)
{
    return status == ITH_ERR_ARGUMENT && options->resume_file
               ? ith_fail_in(context, status, "%s may be a saved run of another model", options->resume_file)
               : status;
}

/* Checks the frames, and the height and width if they are not 0: a side that is not given may follow from the other and
 * from an image. */
static ith_status check_size(ith_context *context, const ith_model *model, const ith_generate_options *options)
{
    const ith_model_info *info = &model->info;
    int64_t positions = model->dit[0].positions;
    if (info->experts == 2)
        positions = ith_min64(positions, model->dit[1].positions);
    int64_t most_pixels = positions * info->size_multiple;
    ith_status status = ith_multiple_check(context, "frames", options->frames, 1, info->frame_stride,
                                           (positions - 1) * info->frame_stride + 1);
    if (!status && options->height)
        status = ith_multiple_check(context, "height", options->height, 0, info->size_multiple, most_pixels);
    if (!status && options->width)
        status = ith_multiple_check(context, "width", options->width, 0, info->size_multiple, most_pixels);
    return status;
}

static ith_status check_range(ith_context *context, const char *name, double value, double least, double most)
{
    if (value >= least && value <= most)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s is %.10g; it must lie between %.10g and %.10g", name, value, least,
                    most);
}

static ith_status check_boundary(ith_context *context, const ith_model *model, const ith_generate_options *options)
{
    const double boundary = options->boundary;
    if (model->info.experts == 1 && boundary != 0)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "boundary is %g, but the model has one expert, which takes every step: leave the boundary out",
                        boundary);
    if (isnan(boundary) && options->from_latents)
        return ITH_OK;
    if (isnan(boundary))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s has two experts and no boundary_ratio: a boundary is needed (0.875 in the "
                        "official T2V-A14B; 0 leaves all steps to transformer, as diffusers does)",
                        model->folder);
    return check_range(context, "boundary", boundary, 0, 1);
}

/* The name of the first given file that is about denoising steps; NULL if there is none. */
static const char *file_of_steps(const ith_generate_options *options)
{
    return options->checkpoint_file ? "checkpoint_file"
           : options->resume_file   ? "resume_file"
           : options->dump_file     ? "dump_file"
           : options->latents_file  ? "latents_file"
                                    : NULL;
}

/* Checks the options that save and resume a run. */
static ith_status check_saving(ith_context *context, const ith_generate_options *options)
{
    const char *file = file_of_steps(options);
    if (file && options->from_latents)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "from_latents decodes latents without a denoising step: leave out %s, which is about these "
                        "steps",
                        file);
    if (options->resume_file && options->dump_file)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "dump_file has the latents of every step, and a run that resume_file continues knows its last "
                        "step alone: leave one of them out");
    if (options->preview_every < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "preview_every is %lld; it is a number of steps, or 0 for no preview",
                        (long long)options->preview_every);
    if (options->checkpoint_every >= 0)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "checkpoint_every is %lld; it is a number of steps, or 0 for every step",
                    (long long)options->checkpoint_every);
}

static ith_status check_flags(ith_context *context, const ith_generate_options *options, bool lent)
{
    if (lent && !options->shard_weights && !options->from_latents)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "another process has lent the model to this one, which has no files: set shard_weights");
    if (options->device_memory < 0)
        return ith_fail(context, ITH_ERR_ARGUMENT, "device_memory is %lld bytes, and must be 0 or more",
                        (long long)options->device_memory);
    if (options->keep_packed < ITH_KEEP_AUTO || options->keep_packed > ITH_KEEP_NONE)
        return ith_fail(context, ITH_ERR_ARGUMENT, "keep_packed is %lld; 0 (auto), 1 (all) and 2 (none) are known",
                        (long long)options->keep_packed);
    if (options->keep_packed != ITH_KEEP_ALL || !options->shard_weights)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "keep_packed keeps all weights in each process, and shard_weights a part: leave one of them out");
}

/* Checks the size and the memory of an image. */
static ith_status check_image(ith_context *context, const char *name, const ith_image *image)
{
    if (!image->rgb)
        return ith_fail(context, ITH_ERR_ARGUMENT, "%s has no pixels: rgb is NULL", name);
    if (image->height >= 1 && image->height <= MOST_SIDE && image->width >= 1 && image->width <= MOST_SIDE)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT, "%s has %lld x %lld pixels; it must have 1 x 1 to %d x %d", name,
                    (long long)image->width, (long long)image->height, MOST_SIDE, MOST_SIDE);
}

/* The reason why the model cannot use the given images, or lacks an image; NULL if there is none. */
static const char *fault_of_images(const ith_model_info *model, const ith_generate_options *options)
{
    const int64_t most = model->most_images, least = model->least_images;
    if ((options->image || options->last_image) && !most)
        return "it makes videos from text alone, and takes no image; I2V and TI2V models do";
    if (options->last_image && most == 1)
        return "it takes a first image and no last one; I2V-A14B and FLF2V models take both";
    if (least && !options->image)
        return "it makes videos from an image, and image is needed";
    if (least == 2 && !options->last_image)
        return "it makes videos between a first and a last image, and last_image is needed";
    if (least == 2 && options->frames == 1)
        return "it makes videos between a first and a last image, and needs more than one frame";
    if (options->last_image && options->frames == 1)
        return "a video of one frame has no last frame beside the first: leave the last image out";
    return NULL;
}

/* Checks the images and their options: the model takes these images and gets the images that it needs, and the area and
 * the fit are legal. */
static ith_status check_images(ith_context *context, const ith_model *model, const ith_generate_options *options)
{
    const char *fault = fault_of_images(&model->info, options);
    if (fault)
        return blame_saved_run(context, options,
                               ith_fail(context, ITH_ERR_ARGUMENT, "%s: %s", model->info.kind, fault));
    if (options->area && model->info.image_use == ITH_IMAGE_UNUSED)
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "%s: it takes no image whose shape would need an area: give height and width",
                        model->info.kind);
    if (model->dit[0].image_dim && ith_context_device_use(context))
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: models with an image encoder compute on the processor alone: leave the device out",
                        model->info.kind);
    if (options->image && model->vae.encoder_fault)
        return ith_fail(context, ITH_ERR_UNSUPPORTED,
                        "%s: images cannot be encoded: the encoder of its autoencoder is not supported: %s",
                        model->info.kind, model->vae.encoder_fault);
    if (options->area < 0 || options->area > (int64_t)MOST_SIDE * MOST_SIDE)
        return ith_fail(context, ITH_ERR_ARGUMENT, "area is %lld; it must lie between 1 and %lld pixels",
                        (long long)options->area, (long long)MOST_SIDE * MOST_SIDE);
    if (options->fit != ITH_FIT_COVER && options->fit != ITH_FIT_STRETCH)
        return ith_fail(context, ITH_ERR_ARGUMENT, "fit is %lld; 0 (auto), 1 (cover) and 2 (stretch) are known",
                        (long long)options->fit);
    return ITH_OK;
}

/* Copies an image into *copy, makes *option point there, and checks it. */
static ith_status read_image(ith_context *context, const char *name, const ith_image **option, ith_image *copy)
{
    *copy = (ith_image)ITH_IMAGE_INIT;
    if (!*option)
        return ITH_OK;
    ith_status status = ITH_SIZED_READ(context, ith_image, ITH_IMAGE_INIT, *option, copy);
    *option = copy;
    return status ? status : check_image(context, name, copy);
}

/* Copies the structs to which the options point into *parts. */
static ith_status read_parts(ith_context *context, ith_generate_options *options, ith_request_parts *parts)
{
    parts->attention = (ith_attn_options)ITH_ATTN_OPTIONS_INIT;
    ith_status status = ITH_OK;
    if (options->attention)
        status =
            ITH_SIZED_READ(context, ith_attn_options, ITH_ATTN_OPTIONS_INIT, options->attention, &parts->attention);
    options->attention = &parts->attention;
    if (!status)
        status = read_image(context, "image", &options->image, &parts->image);
    return status ? status : read_image(context, "last_image", &options->last_image, &parts->last_image);
}

static ith_status check_numbers(ith_context *context, const ith_model *model, const ith_generate_options *options)
{
    ith_status status = check_range(context, "steps", (double)options->steps, 1, MOST_STEPS);
    if (!status)
        status = check_range(context, "shift", options->shift, ITH_SHIFT_LEAST, ITH_SHIFT_MOST);
    if (!status)
        status = check_range(context, "guidance", options->guidance[0], -100, 100);
    if (!status && model->info.experts == 2)
        status = check_range(context, "guidance of the low-noise expert", options->guidance[1], -100, 100);
    if (!status)
        status = blame_saved_run(context, options, check_boundary(context, model, options));
    if (!status)
        status = check_range(context, "threads", options->threads, 1, INT_MAX);
    if (!status)
        status = ith_thread_limit_check(context, "threads", options->threads);
    return status;
}

ith_status ith_request_check_cfg(ith_context *context, ith_cfg cfg)
{
    if ((int)cfg >= ITH_CFG_BATCH && cfg <= ITH_CFG_SEQUENTIAL)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "cfg is %d; 0 (auto), 1 (batch), 2 (parallel) and 3 (sequential) are known", (int)cfg);
}

static ith_status check_words(ith_context *context, const ith_generate_options *options)
{
    if (!options->prompt && !options->from_latents)
        return ith_fail(context, ITH_ERR_ARGUMENT, "a prompt is needed");
    ith_status status = options->from_latents ? ITH_OK : ith_text_check(context, "the prompt", options->prompt);
    /* without guidance it is only metadata of the files that a run saves */
    if (!status && !options->from_latents && options->negative)
        status = ith_text_check(context, "the negative prompt", options->negative);
    if (status)
        return status;
    if (!ith_sampler_has(options->solver))
        return ith_fail(context, ITH_ERR_ARGUMENT,
                        "solver is %d; 0 (auto), 1 (UniPC), 2 (Euler) and 3 (DPM-Solver++) are known", options->solver);
    if (options->sigmas != ITH_SIGMAS_OFFICIAL && options->sigmas != ITH_SIGMAS_DIFFUSERS)
        return ith_fail(context, ITH_ERR_ARGUMENT, "sigmas is %d; 0 (auto), 1 (official) and 2 (diffusers) are known",
                        options->sigmas);
    status = ith_request_check_cfg(context, options->cfg);
    return status ? status : ith_precision_check(context, options->precision);
}

ith_status ith_request_check_ranks(ith_context *context, const ith_generate_options *options, int ranks)
{
    if (options->cfg != ITH_CFG_PARALLEL || ranks % 2 == 0)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "cfg parallel runs the two guidance branches on two halves of the ranks, and %d is odd: %d ranks "
                    "would do, or cfg batch",
                    ranks, ranks < INT_MAX ? ranks + 1 : ranks - 1);
}

/* Checks that the scheduler supports this number of steps and this shift, by creating a sampler of 0 elements. */
static ith_status check_sampling(ith_context *context, const ith_model *model, const ith_generate_options *options)
{
    const ith_sampling sampling = {options->solver, options->sigmas, options->steps, options->shift};
    ith_sampler *sampler = NULL;
    ith_status status = ith_sampler_create(context, &model->scheduler, &sampling, 0, &sampler);
    ith_sampler_destroy(context, &sampler);
    return status;
}

/* Sets the size of the video from the size of the latents in the file from_latents. */
static ith_status take_size(ith_context *context, const ith_model *model, ith_generate_options *options)
{
    const ith_model_info *info = &model->info;
    ith_latent_size size;
    ith_status status =
        ith_latents_look(context, options->from_latents, ith_saved_latents, info->latent_channels, &size);
    if (status)
        return status;
    options->frames = (size.frames - 1) * info->frame_stride + 1;
    options->height = size.height * info->pixel_stride;
    options->width = size.width * info->pixel_stride;
    return ITH_OK;
}

/* Checks the file of the first noise. Its numbers are read when the run needs them. */
static ith_status check_noise(ith_context *context, const ith_model *model, const ith_generate_options *options)
{
    const ith_latent_size size = ith_latent_size_of(&model->info, options);
    return options->noise_file ? ith_latents_check(context, options->noise_file, ith_first_noise, &size) : ITH_OK;
}

/* Copies the options `given` over the defaults, checks the structs and the files that they name, and takes the options
 * of the run that they resume. */
static ith_status read_given(ith_context *context, const ith_generate_options *given, ith_generate_options *options,
                             ith_request_parts *parts, ith_saved_run **saved)
{
    *saved = NULL;
    *options = (ith_generate_options)ITH_GENERATE_OPTIONS_INIT;
    ith_status status = ITH_SIZED_READ(context, ith_generate_options, ITH_GENERATE_OPTIONS_INIT, given, options);
    if (!status)
        status = read_parts(context, options, parts);
    if (!status)
        status = check_saving(context, options);
    if (!status && options->resume_file)
        status = ith_saved_run_open(context, options->resume_file, saved);
    if (!status && *saved)
        status = ith_saved_run_take(context, *saved, options, &parts->attention);
    return status;
}

/* For a run with denoising steps: checks the images and the sampling, and makes the size and the shift complete. */
static ith_status settle_denoising(ith_context *context, const ith_model *model, bool has_shift, bool sized,
                                   ith_generate_options *options)
{
    ith_status status = check_images(context, model, options);
    if (!status)
        status = blame_saved_run(context, options, check_sampling(context, model, options));
    if (!status) /* the given sides: put_size computes the others from them */
        status = blame_saved_run(context, options, check_size(context, model, options));
    if (status)
        return status;
    put_size(&model->info, options);
    if (!has_shift)
        options->shift = ith_model_shift(model, options->height * options->width);
    status = check_size(context, model, options);
    return !status && sized ? check_noise(context, model, options) : status;
}

/* For a run that only decodes the latents of a file: takes the size from it. */
static ith_status settle_decoding(ith_context *context, const ith_model *model, bool sized,
                                  ith_generate_options *options)
{
    put_size(&model->info, options);
    return sized ? take_size(context, model, options) : ITH_OK;
}

ith_status ith_request_read(const ith_pipeline *pipeline, ith_context *context, const ith_generate_options *given,
                            bool sized, ith_generate_options *options, ith_request_parts *parts, ith_saved_run **saved)
{
    const ith_model *model = pipeline->model;
    ith_status status = read_given(context, given, options, parts, saved);
    if (status)
        return status;
    const bool has_shift = options->shift != 0;
    put_defaults(model, options);
    status = check_words(context, options);
    if (!status)
        status = check_numbers(context, model, options);
    if (!status)
        status = check_flags(context, options, pipeline->lent);
    if (!status && options->from_latents)
        status = settle_decoding(context, model, sized, options);
    else if (!status)
        status = settle_denoising(context, model, has_shift, sized, options);
    if (!status)
        options->precision = ith_precision_resolve(context, options->precision);
    return status;
}

/* Keeps an open file, whose strings the caller gets, until the pipeline is closed. */
static ith_status keep_saved(ith_pipeline *pipeline, ith_saved_run *saved)
{
    const int64_t count = pipeline->resolved_count;
    ith_saved_run **longer = ith_alloc(pipeline->context, count + 1, sizeof(ith_saved_run *), "a list of saved runs");
    if (!longer)
        return ITH_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        longer[i] = pipeline->resolved[i];
    longer[count] = saved;
    ith_free(pipeline->context, pipeline->resolved);
    pipeline->resolved = longer;
    pipeline->resolved_count++;
    return ITH_OK;
}

ith_status ith_pipeline_resolve(ith_pipeline *pipeline, ith_generate_options *options)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_generate_options given = ITH_GENERATE_OPTIONS_INIT, resolved;
    ith_request_parts parts;
    ith_saved_run *saved = NULL;
    ith_status status =
        ITH_SIZED_READ(pipeline->context, ith_generate_options, ITH_GENERATE_OPTIONS_INIT, options, &given);
    if (!status)
        status = ith_request_read(pipeline, pipeline->context, &given, true, &resolved, &parts, &saved);
    resolved.attention = given.attention, resolved.image = given.image, resolved.last_image = given.last_image;
    if (!status && saved)
        status = keep_saved(pipeline, saved);
    if (!status)
        return ITH_SIZED_FILL(pipeline->context, ith_generate_options, ITH_GENERATE_OPTIONS_INIT, options, &resolved);
    ith_saved_run_close(pipeline->context, &saved);
    return status;
}
