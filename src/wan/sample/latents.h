/* SPDX-License-Identifier: Apache-2.0 */
/* Latents in and out of files: the first noise, latents to be decoded, and the dump of a run. */
#ifndef ITH_WAN_LATENTS_H
#define ITH_WAN_LATENTS_H

#include <ithaca/files.h>
#include <ithaca/wan.h>

/* The size of a latent: [channels, frames, height, width]. */
typedef struct ith_latent_size {
    int64_t channels, frames, height, width;
} ith_latent_size;

int64_t ith_latent_count(const ith_latent_size *size);
/* Of the video that the options ask for. */
ith_latent_size ith_latent_size_of(const ith_model_info *info, const ith_generate_options *options);

/* The first tensor of `names` (ended by NULL) that the file has, as F32 of exactly this size. *out: ith_free. */
ith_status ith_latents_read(ith_context *context, const char *path, const char *const *names,
                            const ith_latent_size *size, float **out);
/* The size of what such a call would read: `channels` channels, and whatever else. Reads the header only. */
ith_status ith_latents_look(ith_context *context, const char *path, const char *const *names, int64_t channels,
                            ith_latent_size *size);
/* The names that latents to be decoded have, in files that ith_latents_write and ith_dump_write made. */
extern const char *const ith_saved_latents[];
/* One tensor `latents`; keys and values: metadata, pair_count of each. */
ith_status ith_latents_write(ith_context *context, const char *path, const ith_latent_size *size, const float *latents,
                             const char *const *keys, const char *const *values, int64_t pair_count);

/* What --dump keeps until the run has ended. NULL members were not asked for or not made. */
typedef struct ith_dump {
    ith_latent_size size;
    int64_t steps, steps_done, frames_done, height, width; /* height, width: of the frames */
    float *noise, *latents, *final;
    uint8_t *frames;
} ith_dump;
ith_status ith_dump_create(ith_context *context, const ith_latent_size *size, int64_t steps, int64_t frames,
                           int64_t height, int64_t width, ith_dump **out);
void ith_dump_free(ith_context *context, ith_dump **dump);
/* noise, latents [steps done, ...], final and frames, as far as they were made. May be interrupted. */
ith_status ith_dump_write(ith_context *context, const char *path, const ith_dump *dump);

#endif
