/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a picture's patches, as CLIP's image processor makes them. */
#ifndef ITH_WAN_VISION_PIXELS_H
#define ITH_WAN_VISION_PIXELS_H

#include "../../base/arena.h"
#include "vision_config.h"

#include <ithaca/wan.h>

#define ITH_VISION_COLOURS 3
#define ITH_VISION_SHADES 256 /* values of a colour in a picture */

/* A picture that is ready for the encoder. */
typedef struct ith_vision_pixels {
    int64_t image, patch; /* as in the configuration */
    uint8_t *rgb;         /* [image, image, 3]: the scaled and cut picture */
    float *numbers;       /* [3, 256]: the number for each value of a colour */
} ith_vision_pixels;

/* Lays out the arrays in an arena. If the arena has no memory yet, it only counts the bytes. */
void ith_vision_pixels_lay_out(const ith_vision_config *config, ith_arena *arena, ith_vision_pixels *pixels);
/* Scales and cuts a picture, and computes the numbers of its colours. */
ith_status ith_vision_pixels_read(ith_context *context, const ith_vision_config *config, const ith_image *image,
                                  ith_vision_pixels *pixels);
/* The bytes of memory that ith_vision_pixels_read takes while it works. */
int64_t ith_vision_pixels_bytes(const ith_vision_config *config, const ith_image *image);
/* Writes the numbers [3, patch, patch] of a patch to `space`, and returns it. Patches are counted along the rows. user:
 * an ith_vision_pixels. It is a row function for an ith_linear_input. */
const float *ith_vision_patch_row(const void *user, int64_t index, float *space);

#endif
