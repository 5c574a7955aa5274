/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pictures: PNG, JPEG and WebP. */
#ifndef ITH_MEDIA_IMAGE_H
#define ITH_MEDIA_IMAGE_H

#include <ithaca/ithaca.h>

#define ITH_IMAGE_MOST_PIXELS (INT64_C(1) << 26)
#define ITH_IMAGE_MOST_BYTES (INT64_C(1) << 28) /* the most bytes of a file */

/* Reads a picture as 8-bit RGB, *rgb [*height, *width, 3], turned upright as image_file.h says. Grey, palettes, 16
 * bits and CMYK become RGB; an alpha channel is left out, and the colours below it stay. The caller frees *rgb with
 * free. ITH_ERR_IO if the file cannot be read, ITH_ERR_FORMAT if it is damaged, is no such picture, or has more than
 * ITH_IMAGE_MOST_PIXELS or ITH_IMAGE_MOST_BYTES; ITH_ERR_UNSUPPORTED if libav cannot decode its form of picture, such
 * as a CMYK JPEG with fewer pixels of some colours; ITH_ERR_MEMORY. */
ith_status ith_image_read(ith_context *context, const char *path, uint8_t **rgb, int64_t *height, int64_t *width);

/* As ith_image_read, for a picture in memory. `path` names it in sentences. */
ith_status ith_image_decode(ith_context *context, const char *path, const uint8_t *data, int64_t bytes, uint8_t **rgb,
                            int64_t *height, int64_t *width);

#endif
