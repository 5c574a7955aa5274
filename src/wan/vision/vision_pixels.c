/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares a picture as transformers' CLIPImageProcessorPil does: Pillow scales it, so that its shorter side has
 * `resize` pixels; the middle of image x image pixels remains; and a colour x of 8 bits becomes, in f32,
 *
 *     (x / 255 - mean) / std */
#include "vision_pixels.h"

#include "../../base/size.h"
#include "../image/image_fit.h"

void ith_vision_pixels_lay_out(const ith_vision_config *config, ith_arena *arena, ith_vision_pixels *pixels)
{
    pixels->image = config->image, pixels->patch = config->patch;
    pixels->rgb = ith_arena_take(arena, config->image, config->image * ITH_VISION_COLOURS);
    pixels->numbers = ith_arena_take(arena, ITH_VISION_COLOURS * ITH_VISION_SHADES, sizeof *pixels->numbers);
}

/* The longer side is rounded down, in the order of the reference's operations. */
static ith_image_scaling scaling_of(const ith_vision_config *config, const ith_image *image)
{
    const int64_t shorter = ith_min64(image->height, image->width), longer = ith_max64(image->height, image->width);
    const int64_t whole = (int64_t)((double)(config->resize * longer) / (double)shorter);
    ith_image_scaling out = {ITH_FILTER_CUBIC, config->resize, config->resize, config->image, config->image};
    if (image->width <= image->height)
        out.whole_height = whole;
    else
        out.whole_width = whole;
    return out;
}

int64_t ith_vision_pixels_bytes(const ith_vision_config *config, const ith_image *image)
{
    const ith_image_scaling scaling = scaling_of(config, image);
    return ith_image_scale_bytes(image, &scaling);
}

ith_status ith_vision_pixels_read(ith_context *context, const ith_vision_config *config, const ith_image *image,
                                  ith_vision_pixels *pixels)
{
    const ith_image_scaling scaling = scaling_of(config, image);
    for (int colour = 0; colour < ITH_VISION_COLOURS; colour++)
        for (int x = 0; x < ITH_VISION_SHADES; x++)
            pixels->numbers[colour * ITH_VISION_SHADES + x] =
                ((float)(x * (1.0 / 255)) - (float)config->mean[colour]) / (float)config->std[colour];
    return ith_image_scale(context, image, &scaling, pixels->rgb);
}

const float *ith_vision_patch_row(const void *user, int64_t index, float *space)
{
    const ith_vision_pixels *p = user;
    const int64_t side = p->patch, across = p->image / side;
    const uint8_t *corner =
        p->rgb + ((index / across) * side * p->image + (index % across) * side) * ITH_VISION_COLOURS;
    for (int colour = 0; colour < ITH_VISION_COLOURS; colour++)
        for (int64_t y = 0; y < side; y++)
            for (int64_t x = 0; x < side; x++)
                space[(colour * side + y) * side + x] =
                    p->numbers[colour * ITH_VISION_SHADES + corner[(y * p->image + x) * ITH_VISION_COLOURS + colour]];
    return space;
}
