/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a single picture as PNG. */
#ifndef ITH_MEDIA_PICTURE_H
#define ITH_MEDIA_PICTURE_H

#include <ithaca/ithaca.h>

/* Writes rgb [height, width, 3], each pixel as a square of `scale` x `scale` pixels, to a PNG beside `path`, which is
 * then renamed. ITH_ERR_IO if it cannot be written, ITH_ERR_MEMORY. */
ith_status ith_picture_write(ith_context *context, const char *path, const uint8_t *rgb, int64_t height, int64_t width,
                             int64_t scale);

#endif
