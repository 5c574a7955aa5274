/* SPDX-License-Identifier: Apache-2.0 */
/* Scales and cuts pictures, and fits them to the size of a video: the size that a picture's shape asks for, and the
 * scaled and cut pixels. */
#ifndef ITH_WAN_IMAGE_FIT_H
#define ITH_WAN_IMAGE_FIT_H

#include <ithaca/wan.h>

/* The rules for a video's size from an image's shape, within an area. Both sides are multiples of `multiple`, at least
 * `multiple` itself. */
typedef enum ith_size_rule {
    /* The rule of diffusers for I2V: height = round(sqrt(area image.height / image.width)), width = round(sqrt(area
     * image.width / image.height)), each rounded down to a multiple. */
    ITH_SIZE_ROUNDED,
    /* The rule of the reference for TI2V (best_output_size): two sizes are made. One has the width as above, without
     * the first rounding, and a height of area / width; the other has the height as above and a width of area / height.
     * The size whose shape is nearer to the image's shape is taken. */
    ITH_SIZE_BEST
} ith_size_rule;

/* Sets *height and *width to the shape of the image within `area` pixels. */
void ith_image_size_within(const ith_image *image, ith_size_rule rule, int64_t area, int64_t multiple, int64_t *height,
                           int64_t *width);

/* The second side of a video in the shape of an image, if its first side has `given` pixels: given other / same,
 * rounded to the nearest multiple of `multiple`, at least `multiple`. same, other: the first and the second side of the
 * image. */
int64_t ith_image_side(int64_t given, int64_t same, int64_t other, int64_t multiple);

/* Filters of Pillow: LANCZOS and BICUBIC. */
typedef enum ith_image_filter { ITH_FILTER_LANCZOS, ITH_FILTER_CUBIC } ith_image_filter;

/* How a picture is scaled and cut: it becomes a picture of whole_height x whole_width pixels, of which height x width
 * pixels in the middle remain. If an odd number of rows or columns is cut off, one more is cut off at the end. */
typedef struct ith_image_scaling {
    ith_image_filter filter;
    int64_t whole_height, whole_width;
    int64_t height, width; /* at most whole_height and whole_width */
} ith_image_scaling;

/* Scales and cuts the image, to rgb [height, width, 3]. Pillow's resize and crop give the same pixels. */
ith_status ith_image_scale(ith_context *context, const ith_image *image, const ith_image_scaling *scaling,
                           uint8_t *rgb);
/* The bytes of memory that ith_image_scale takes while it works. */
int64_t ith_image_scale_bytes(const ith_image *image, const ith_image_scaling *scaling);

/* Scales the image to height x width pixels, rgb [height, width, 3]. COVER keeps its shape, and cuts off the rest on
 * both sides; STRETCH changes its shape. The pixels of an image of this size stay as they are. Pillow's resize with its
 * Lanczos filter gives the same pixels. */
ith_status ith_image_fit(ith_context *context, const ith_image *image, ith_fit fit, int64_t height, int64_t width,
                         uint8_t *rgb);
/* The bytes of memory that ith_image_fit takes while it works. */
int64_t ith_image_fit_bytes(const ith_image *image, ith_fit fit, int64_t height, int64_t width);

#endif
