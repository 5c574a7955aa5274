/* SPDX-License-Identifier: Apache-2.0 */
/* The shortcuts around the levels of the Wan 2.2 autoencoder, which have no weights.
 *
 * In the decoder a level makes `copies` pixels of each pixel x: 2 x 2 pixels, of two frames if it doubles the frames.
 * The shortcut repeats each channel of x `repeats` times in a row, and deals them out to the new pixels: new pixel
 * `part` = (frame 2 + row) 2 + column has the channels
 *
 *   y[o] = x[(o copies + part) / repeats],   repeats = out copies / in
 *
 * In the encoder a level makes one pixel of `copies` pixels. The shortcut takes their numbers channel by channel, in
 * each channel pixel by pixel, and averages each `averaged` of them in a row:
 *
 *   y[o] = mean of the numbers o averaged .. (o + 1) averaged - 1,   averaged = in copies / out
 */
#ifndef ITH_WAN_VAE_SHORTCUT_H
#define ITH_WAN_VAE_SHORTCUT_H

#include <stdbool.h>
#include <stdint.h>

/* The most pixels that a level of the decoder makes from one pixel, or that a level of the encoder merges into one. */
#define ITH_VAE_MOST_COPIES 8

/* The number of pixels that a level of the decoder makes from one pixel, or that a level of the encoder merges into
 * one. time: whether the level also changes the number of frames. */
static inline int64_t ith_vae_copies(bool time)
{
    return time ? 8 : 4;
}

/* Adds to the new pixel `part`, with `out` channels, the channels of x that the shortcut deals out to it. */
void ith_vae_shortcut_add(float *y, int64_t out, const float *x, int64_t copies, int64_t repeats, int64_t part);
/* Adds to y, with `out` channels, the averages of the numbers of `copies` pixels. A pixel x[i] of NULL is zero. */
void ith_vae_shortcut_add_means(float *y, int64_t out, const float *const *x, int64_t copies, int64_t averaged);

#endif
