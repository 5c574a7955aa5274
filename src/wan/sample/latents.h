/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes files of latents: the first noise, latents to be decoded, and the dump file with the latents of
 * every step. */
#ifndef ITH_WAN_LATENTS_H
#define ITH_WAN_LATENTS_H

#include <ithaca/files.h>
#include <ithaca/wan.h>

/* The size of latents: [channels, frames, height, width]. */
typedef struct ith_latent_size {
    int64_t channels, frames, height, width;
} ith_latent_size;

/* The number of numbers in latents of this size. */
int64_t ith_latent_count(const ith_latent_size *size);
/* The size of the latents of the video that the options ask for. */
ith_latent_size ith_latent_size_of(const ith_model_info *info, const ith_generate_options *options);

/* Fails if one of the numbers of the tensor `name` of a file is NaN or infinite. */
ith_status ith_latents_check_finite(ith_context *context, const char *path, const char *name, const float *numbers,
                                    int64_t count);

/* Reads latents of exactly this size as f32, from the first tensor of the list `names` that the file has. The list ends
 * with NULL. Numbers that are not finite are refused. The caller frees *out with ith_free. */
ith_status ith_latents_read(ith_context *context, const char *path, const char *const *names,
                            const ith_latent_size *size, float **out);
/* Checks, from the header of the file alone, that ith_latents_read finds latents of this size. */
ith_status ith_latents_check(ith_context *context, const char *path, const char *const *names,
                             const ith_latent_size *size);
/* Reads the size of latents from the header of a file, for the first tensor of the list `names` that the file has. The
 * tensor must have `channels` channels. */
ith_status ith_latents_look(ith_context *context, const char *path, const char *const *names, int64_t channels,
                            ith_latent_size *size);
/* The names that the tensor of finished latents may have in files written by ith_latents_write and ith_dump_write. The
 * list ends with NULL. */
extern const char *const ith_saved_latents[];
/* The names that the tensor of the first noise may have. The list ends with NULL. */
extern const char *const ith_first_noise[];
/* Writes a file with one tensor, called latents, and `pair_count` pairs of metadata, from `keys` and `values`. */
ith_status ith_latents_write(ith_context *context, const char *path, const ith_latent_size *size, const float *latents,
                             const char *const *keys, const char *const *values, int64_t pair_count);

/* The contents of a dump file, collected in memory until the end of the run. */
typedef struct ith_dump {
    ith_latent_size size;
    int64_t steps, steps_done, frames_done, height, width; /* height, width: size of a frame */
    float *noise, *latents, *final; /* noise, final: of `size`; latents: [steps], each of `size` */
    uint8_t *frames;                /* [frames, height, width, 3] */
    const float *condition;         /* memory of the run, of size `condition_size`; NULL: there is none */
    ith_latent_size condition_size;
} ith_dump;
/* Allocates the contents of a dump file, which ith_dump_free frees. */
ith_status ith_dump_create(ith_context *context, const ith_latent_size *size, int64_t steps, int64_t frames,
                           int64_t height, int64_t width, ith_dump **out);
void ith_dump_free(ith_context *context, ith_dump **dump);
/* Writes a dump file: the tensors noise, latents [steps_done, ...], final and frames, as far as the run has filled
 * them, and the condition, which is called first_latent if it has the channels of the latents. Writing can be
 * interrupted. */
ith_status ith_dump_write(ith_context *context, const char *path, const ith_dump *dump);

#endif
