/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of convolutional layers on a device: convolutions over frames, and the operations on pixels between
 * two of them. They belong to the contract of device modules (device.h), whose rules hold here too: functions that take
 * a stream only enqueue work.
 *
 * Frames of pixels are arrays [frames][height][width][channels]. Their numbers are F32 or BF16 (`type`). Calls with 0
 * frames do nothing. */
#ifndef ITH_KERNELS_DEVICE_CONV_H
#define ITH_KERNELS_DEVICE_CONV_H

#include "../base/modules.h" /* the types of ithaca.h */

struct ith_device;
struct ith_device_stream;

/* The library of convolutions, and the algorithms that it has chosen. One thread at a time may use it. */
struct ith_device_convs;

/* A convolution without bias, of `frames` frames of `height` x `width` pixels:
 *
 *   y[f][i][j][o] = sum over t < depth, r, s < kernel, c < in of
 *                   w[o][t][r][s][c] x[f + t][i + r - edge][j + s - edge][c],   edge = (kernel - 1) / 2
 *
 * x has depth - 1 frames more than y. Pixels outside of x are zeros. Sums are f32, and y is rounded to `type`. F32
 * numbers are multiplied as they are, without TF32. The same call gives the same bits every time. Pointers are aligned
 * to 64 bytes; y overlaps neither x nor w. */
typedef struct ith_device_conv {
    ith_dtype type;
    int64_t frames, height, width, in, out;
    int64_t depth, kernel; /* 1 or 3 each */
    const void *x, *w;
    void *y;
} ith_device_conv;

/* The shortcut around a level of the Wan 2.2 decoder, which makes 2 x 2 pixels of one, and two frames of one if `time`.
 * Pixel (f, i, j) takes from pixel (F / 2, i / 2, j / 2) of `from` [][height / 2][width / 2][channels], or from frame f
 * if not `time`, where F = f + skipped:
 *
 *   dealt[c] = from[(c copies + part) / repeats],   copies = time ? 8 : 4,
 *   part = ((time ? F % 2 : 0) 2 + i % 2) 2 + j % 2 */
typedef struct ith_device_dealt {
    const float *from; /* NULL: zeros */
    int64_t channels, repeats, skipped;
    bool time;
} ith_device_dealt;

/* One pass over the pixels between two convolutions. For each pixel, a vector of `channels` numbers:
 *
 *   s = x + y + bias + dealt
 *   sum = s,   plain = s,   normed = act(s sqrt(channels) / max(|s|, 1e-12) gamma)
 *
 * x, y, dealt.from and bias may be NULL, which stands for zeros; sum, plain and normed may be NULL. sum may be x. All
 * other arrays overlap none of the outputs. channels is at most ITH_DEVICE_PIXEL_CHANNELS. */
typedef struct ith_device_pixels {
    int64_t frames, height, width, channels;
    ith_dtype type; /* of y, plain and normed */
    const float *x;
    /* A pixel of y holds the channels of `pieces` frames, one after the other: frame f is piece f % pieces of frame
     * f / pieces of y, [frames / pieces][height][width][pieces][channels]. */
    const void *y;
    int64_t pieces;
    const float *bias; /* [pieces][channels] */
    ith_device_dealt dealt;
    float *sum;
    void *plain;
    bool doubled; /* plain is [frames][2 height][2 width][channels]: each pixel becomes 2 x 2 */
    void *normed;
    const float *gamma; /* [channels] */
    bool silu;          /* act(v) = v / (1 + exp(-v)); false: act(v) = v */
} ith_device_pixels;

enum { ITH_DEVICE_PIXEL_CHANNELS = 2048 };

/* The colours of finished frames: rgb [frames][patch height][patch width][3] becomes y + bias, clamped to [-1, 1]; a
 * NaN stays a NaN. y is [frames][height][width][channels]. The first 3 patch^2 channels of its pixel hold a square of
 * pixels, [colour][column][row]. */
typedef struct ith_device_colours {
    int64_t frames, height, width, channels, patch;
    ith_dtype type; /* of y */
    const void *y;
    const float *bias; /* [3 patch^2] */
    float *rgb;
} ith_device_colours;

/* The softmax of rows, in place: each of `count` contiguous rows of n numbers becomes e^(scale (x - max x)) / sum. */
typedef struct ith_device_softmax {
    float *rows;
    int64_t count, n;
    float scale; /* greater than 0 */
} ith_device_softmax;

/* The operations. A module that has none leaves its pointer to this table NULL. */
typedef struct ith_device_convolutions {
    /* The reason why this machine has no convolutions; NULL: it has them. Loads their library if that has not
     * happened yet. */
    const char *(*refusal)(void);
    /* ITH_ERR_UNSUPPORTED if there is a refusal. */
    ith_status (*create)(struct ith_device *device, struct ith_device_convs **out, char *said);
    void (*destroy)(struct ith_device_convs *convs); /* accepts NULL */
    /* Chooses the algorithm of a convolution, whose pointers are not looked at, and sets *bytes to the scratch memory
     * that it needs. ITH_ERR_UNSUPPORTED if the library cannot compute it. */
    ith_status (*prepare)(struct ith_device_convs *convs, const ith_device_conv *conv, int64_t *bytes, char *said);
    /* scratch: memory of the device of scratch_bytes bytes, at least as many as `prepare` asks for. */
    ith_status (*convolve)(struct ith_device_stream *stream, struct ith_device_convs *convs,
                           const ith_device_conv *conv, void *scratch, int64_t scratch_bytes, char *said);
    ith_status (*pixels)(struct ith_device_stream *stream, const ith_device_pixels *pixels, char *said);
    ith_status (*colours)(struct ith_device_stream *stream, const ith_device_colours *colours, char *said);
    ith_status (*softmax)(struct ith_device_stream *stream, const ith_device_softmax *softmax, char *said);
} ith_device_convolutions;

#endif
