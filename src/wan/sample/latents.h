/* SPDX-License-Identifier: Apache-2.0 */
/* Files with latents: the first noise, latents to be decoded, and the dump of a run. */
#ifndef ITH_WAN_LATENTS_H
#define ITH_WAN_LATENTS_H

#include <ithaca/files.h>
#include <ithaca/wan.h>

/* The size of a latent: [channels, frames, height, width]. */
typedef struct ith_latent_size {
    int64_t channels, frames, height, width;
} ith_latent_size;

int64_t ith_latent_count(const ith_latent_size *size);
/* The size of the latents of the video that the options ask for. */
ith_latent_size ith_latent_size_of(const ith_model_info *info, const ith_generate_options *options);

/* Reads the first of the tensors `names` (a list that NULL ends) that the file has: F32, of exactly this size. The
 * caller frees *out with ith_free. */
ith_status ith_latents_read(ith_context *context, const char *path, const char *const *names,
                            const ith_latent_size *size, float **out);
/* Reads the size of that tensor, which must have `channels` channels, from the header of the file. */
ith_status ith_latents_look(ith_context *context, const char *path, const char *const *names, int64_t channels,
                            ith_latent_size *size);
/* The names of latents to be decoded in files of ith_latents_write and ith_dump_write, ended by NULL. */
extern const char *const ith_saved_latents[];
/* Writes a file with one tensor, `latents`. keys and values: pair_count pairs of metadata. */
ith_status ith_latents_write(ith_context *context, const char *path, const ith_latent_size *size, const float *latents,
                             const char *const *keys, const char *const *values, int64_t pair_count);

/* The contents of a dump, kept until the run has ended. A NULL member was not asked for or not computed. */
typedef struct ith_dump {
    ith_latent_size size;
    int64_t steps, steps_done, frames_done, height, width; /* height, width: of the frames */
    float *noise, *latents, *final;
    uint8_t *frames;
} ith_dump;
ith_status ith_dump_create(ith_context *context, const ith_latent_size *size, int64_t steps, int64_t frames,
                           int64_t height, int64_t width, ith_dump **out);
void ith_dump_free(ith_context *context, ith_dump **dump);
/* Writes the tensors noise, latents [steps_done, ...], final and frames, as far as they exist. It can be interrupted.
 */
ith_status ith_dump_write(ith_context *context, const char *path, const ith_dump *dump);

#endif
