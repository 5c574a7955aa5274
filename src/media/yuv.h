/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the pixels of JPEG and lossy WebP to RGB. */
#ifndef ITH_MEDIA_YUV_H
#define ITH_MEDIA_YUV_H

#include <stdbool.h>
#include <stdint.h>

/* A picture of brightness (Y) and colour (Cb, Cr), which may have fewer samples. */
typedef struct ith_yuv {
    const uint8_t *planes[3]; /* Y, Cb, Cr */
    int64_t strides[3];       /* bytes from row to row */
    int64_t height, width;
    int shift_y, shift_x; /* a sample of colour stands for 1 << shift_y rows and 1 << shift_x columns of pixels */
    bool full;            /* Y from 0 to 255, as in JPEG, instead of 16 to 235, as in WebP */
} ith_yuv;

/* Writes RGB pixels, with `stride` bytes from row to row, as libjpeg and libwebp do: between two samples of colour, a
 * pixel takes three quarters of the nearer one; a sample for more than two pixels is repeated. */
void ith_yuv_to_rgb(const ith_yuv *yuv, uint8_t *rgb, int64_t stride);

#endif
