/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes latents in .safetensors files (latents.h). */
#include "latents.h"

#include "../../base/context.h"
#include "../../base/dtype.h"
#include "../../base/size.h"
#include "../../files/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t ith_latent_count(const ith_latent_size *size)
{
    return size->channels * size->frames * size->height * size->width;
}

ith_latent_size ith_latent_size_of(const ith_model_info *info, const ith_generate_options *options)
{
    return (ith_latent_size){info->latent_channels, (options->frames - 1) / info->frame_stride + 1,
                             options->height / info->pixel_stride, options->width / info->pixel_stride};
}

static ith_tensor tensor_of(const char *name, const ith_latent_size *size, const float *data)
{
    ith_tensor tensor = {.struct_size = sizeof(ith_tensor), .name = name, .dtype = ITH_F32, .dims = 4, .data = data};
    tensor.shape[0] = size->channels, tensor.shape[1] = size->frames;
    tensor.shape[2] = size->height, tensor.shape[3] = size->width;
    tensor.bytes = ith_latent_count(size) * 4;
    return tensor;
}

static const ith_tensor *find_first(const ith_tensor_file *file, const char *const *names)
{
    for (; *names; names++) {
        const ith_tensor *tensor = ith_tensor_file_find(file, *names);
        if (tensor)
            return tensor;
    }
    return NULL;
}

/* Converts a tensor to f32 in new memory. */
static ith_status copy_tensor(ith_context *context, const char *path, const ith_tensor *tensor, int64_t count,
                              float **out)
{
    *out = ith_alloc(context, count, sizeof **out, "latents");
    if (!*out)
        return ITH_ERR_MEMORY;
    ith_status status = ith_tensor_part_to_f32(context, path, tensor, 0, count, *out);
    if (!status)
        status = ith_latents_check_finite(context, path, tensor->name, *out, count);
    if (status) {
        ith_free(context, *out);
        *out = NULL;
    }
    return status;
}

ith_status ith_latents_check_finite(ith_context *context, const char *path, const char *name, const float *numbers,
                                    int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(numbers[i]))
            return ith_fail(context, ITH_ERR_FORMAT, "%s: %s holds numbers that are not finite", path, name);
    return ITH_OK;
}

const char *const ith_saved_latents[] = {"final", "latents", NULL};
const char *const ith_first_noise[] = {"noise", NULL};

/* Refuses a saved run (saved_run.h) whose latents lack steps. */
static ith_status check_finished(ith_context *context, const char *path, const ith_tensor_file *file)
{
    const char *step = ith_tensor_file_metadata(file, "step"), *steps = ith_tensor_file_metadata(file, "steps");
    if (!step || !steps || strtoll(step, NULL, 10) >= strtoll(steps, NULL, 10))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_ARGUMENT,
                    "%s is a run that was saved at step %.20s of %.20s: its latents are noise still, and resuming the "
                    "run finishes them",
                    path, step, steps);
}

/* Finds the first tensor of the list `names` that an open file has, checks its type, and reads its size. */
static ith_status look(ith_context *context, const char *path, const ith_tensor_file *file, const char *const *names,
                       int64_t channels, const ith_tensor **out, ith_latent_size *size)
{
    const ith_tensor *tensor = find_first(file, names);
    if (!tensor)
        return ith_fail(context, ITH_ERR_FORMAT, "%s: has no tensor %s", path, names[0]);
    if (tensor->dims != 4 || tensor->shape[0] != channels || !ith_dtype_is_operand(tensor->dtype))
        return ith_fail(context, ITH_ERR_FORMAT,
                        "%s: %s is %s of %d dimensions with %lld first; [%lld, frames, height, width] of f32, bf16 or "
                        "f16 is wanted",
                        path, tensor->name, ith_dtype_name(tensor->dtype), tensor->dims,
                        (long long)(tensor->dims ? tensor->shape[0] : 0), (long long)channels);
    ith_status status = names == ith_saved_latents ? check_finished(context, path, file) : ITH_OK;
    if (status)
        return status;
    *out = tensor;
    *size = (ith_latent_size){channels, tensor->shape[1], tensor->shape[2], tensor->shape[3]};
    return ith_latent_count(size) ? ITH_OK : ith_fail(context, ITH_ERR_FORMAT, "%s: %s is empty", path, tensor->name);
}

ith_status ith_latents_look(ith_context *context, const char *path, const char *const *names, int64_t channels,
                            ith_latent_size *size)
{
    ith_tensor_file *file = NULL;
    const ith_tensor *tensor = NULL;
    ith_status status = ith_tensor_file_open(context, path, &file);
    if (!status)
        status = look(context, path, file, names, channels, &tensor, size);
    ith_tensor_file_close(&file);
    return status;
}

/* Opens a file, and finds the first tensor of the list `names` that it has, which must have this size. *file is NULL on
 * failure. */
static ith_status open_sized(ith_context *context, const char *path, const char *const *names,
                             const ith_latent_size *size, ith_tensor_file **file, const ith_tensor **tensor)
{
    ith_latent_size found;
    ith_status status = ith_tensor_file_open(context, path, file);
    if (!status)
        status = look(context, path, *file, names, size->channels, tensor, &found);
    if (!status && (found.frames != size->frames || found.height != size->height || found.width != size->width))
        status =
            ith_fail(context, ITH_ERR_ARGUMENT,
                     "%s: %s is [%lld, %lld, %lld, %lld], this run's frames and size need [%lld, %lld, %lld, %lld]",
                     path, (*tensor)->name, (long long)found.channels, (long long)found.frames, (long long)found.height,
                     (long long)found.width, (long long)size->channels, (long long)size->frames,
                     (long long)size->height, (long long)size->width);
    if (status)
        ith_tensor_file_close(file);
    return status;
}

ith_status ith_latents_check(ith_context *context, const char *path, const char *const *names,
                             const ith_latent_size *size)
{
    ith_tensor_file *file = NULL;
    const ith_tensor *tensor = NULL;
    ith_status status = open_sized(context, path, names, size, &file, &tensor);
    ith_tensor_file_close(&file);
    return status;
}

ith_status ith_latents_read(ith_context *context, const char *path, const char *const *names,
                            const ith_latent_size *size, float **out)
{
    *out = NULL;
    ith_tensor_file *file = NULL;
    const ith_tensor *tensor = NULL;
    ith_status status = open_sized(context, path, names, size, &file, &tensor);
    if (!status)
        status = copy_tensor(context, path, tensor, ith_latent_count(size), out);
    ith_tensor_file_close(&file);
    return status;
}

ith_status ith_latents_write(ith_context *context, const char *path, const ith_latent_size *size, const float *latents,
                             const char *const *keys, const char *const *values, int64_t pair_count)
{
    ith_tensor tensor = tensor_of("latents", size, latents);
    return ith_tensor_file_write(context, path, &tensor, 1, keys, values, pair_count);
}

/* ---- Dump ------------------------------------------------------------------------------------------------------ */

ith_status ith_dump_create(ith_context *context, const ith_latent_size *size, int64_t steps, int64_t frames,
                           int64_t height, int64_t width, ith_dump **out)
{
    *out = NULL;
    ith_dump *dump = ith_alloc_zero(context, 1, sizeof *dump, "the dump");
    if (!dump)
        return ITH_ERR_MEMORY;
    *dump = (ith_dump){.size = *size, .steps = steps, .height = height, .width = width};
    int64_t count = ith_latent_count(size), all_steps = 0, pixels = 0;
    bool fits = ith_size_mul(count, steps, &all_steps) && ith_size_mul(height * width * 3, frames, &pixels);
    dump->noise = ith_alloc(context, count, sizeof(float), "the dump's noise");
    dump->latents = fits ? ith_alloc(context, all_steps, sizeof(float), "the dump's latents") : NULL;
    dump->final = ith_alloc(context, count, sizeof(float), "the dump's final latents");
    dump->frames = fits ? ith_alloc(context, pixels, 1, "the dump's frames") : NULL;
    if (!dump->noise || !dump->latents || !dump->final || !dump->frames) {
        ith_dump_free(context, &dump);
        return ITH_ERR_MEMORY;
    }
    *out = dump;
    return ITH_OK;
}

void ith_dump_free(ith_context *context, ith_dump **dump)
{
    if (!*dump)
        return;
    ith_free(context, (*dump)->noise);
    ith_free(context, (*dump)->latents);
    ith_free(context, (*dump)->final);
    ith_free(context, (*dump)->frames);
    ith_free(context, *dump);
    *dump = NULL;
}

ith_status ith_dump_write(ith_context *context, const char *path, const ith_dump *dump)
{
    ith_tensor tensors[5] = {tensor_of("noise", &dump->size, dump->noise),
                             tensor_of("final", &dump->size, dump->final)};
    ith_tensor *latents = &tensors[2], *frames = &tensors[3];
    *latents = tensor_of("latents", &dump->size, dump->latents);
    memmove(latents->shape + 1, latents->shape, 4 * sizeof latents->shape[0]);
    latents->shape[0] = dump->steps_done;
    latents->dims = 5;
    latents->bytes *= dump->steps_done;
    *frames = (ith_tensor){
        .struct_size = sizeof(ith_tensor), .name = "frames", .dtype = ITH_U8, .dims = 4, .data = dump->frames};
    frames->shape[0] = dump->frames_done, frames->shape[1] = dump->height;
    frames->shape[2] = dump->width, frames->shape[3] = 3;
    frames->bytes = dump->frames_done * dump->height * dump->width * 3;
    if (dump->condition)
        tensors[4] = tensor_of(dump->condition_size.channels == dump->size.channels ? "first_latent" : "condition",
                               &dump->condition_size, dump->condition);
    return ith_tensor_file_write_stoppable(context, path, tensors, dump->condition ? 5 : 4);
}
