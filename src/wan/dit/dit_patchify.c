/* SPDX-License-Identifier: Apache-2.0 */
/* Converts latents to tokens and back. Token (f, h, w) holds [channel, patch row, patch column] of the 2 x 2 patch at
 * row 2h and column 2w of latent frame f. */
#include "dit.h"

/* The index, in a latent, of the first number of one channel of a token. */
static int64_t patch_offset(const ith_dit_shape *shape, int64_t channel, int64_t token)
{
    const int64_t height = shape->height / 2, width = shape->width / 2;
    int64_t f = token / (height * width), h = token / width % height, w = token % width;
    return ((channel * shape->frames + f) * shape->height + 2 * h) * shape->width + 2 * w;
}

void ith_dit_patchify(const float *latent, int64_t channels, const ith_dit_shape *shape, int64_t begin, int64_t count,
                      float *tokens)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < channels; c++, tokens += ITH_DIT_PATCH) {
            const float *patch = latent + patch_offset(shape, c, begin + i);
            tokens[0] = patch[0], tokens[1] = patch[1];
            tokens[2] = patch[shape->width], tokens[3] = patch[shape->width + 1];
        }
}

void ith_dit_unpatchify(const float *tokens, int64_t channels, const ith_dit_shape *shape, int64_t begin, int64_t count,
                        float *latent)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < channels; c++, tokens += ITH_DIT_PATCH) {
            float *patch = latent + patch_offset(shape, c, begin + i);
            patch[0] = tokens[0], patch[1] = tokens[1];
            patch[shape->width] = tokens[2], patch[shape->width + 1] = tokens[3];
        }
}
