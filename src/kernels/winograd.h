/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of F(2x2, 3x3), which computes a convolution of 3 x 3 with 16 multiplications for 4 pixels instead of
 * 36 (Winograd; Lavin and Gray, arXiv:1509.09308). A tile is 2 x 2 pixels of the output, and reads d, 4 x 4 pixels of
 * the input. For each pair of an input and an output channel, with the filter g of 3 x 3 numbers:
 *
 *     y = A^T (u * v) A,   u = G g G^T,   v = B^T d B        (u * v: element by element)
 *
 *           1  0  -1  0            1    0    0             1  1  1  0
 *     B^T = 0  1   1  0      G =  1/2  1/2  1/2      A^T = 0  1 -1 -1
 *           0 -1   1  0           1/2 -1/2  1/2
 *           0  1   0 -1            0    0    1
 *
 * u * v, summed over the input channels, is 16 matrix products of tiles by output channels. They are computed for one
 * row of v (0 to 3) at a time: four products. Pixels lie with their channels innermost.
 *
 * F(2x2x2, 3x3x3) does the same in time for a convolution of 3 x 3 x 3: two frames of the output, 8 pixels, read four
 * frames of the input and take 64 multiplications instead of 96 with F(2x2, 3x3) for each frame. The matrices B^T, G
 * and A^T are applied over time as over height and width, with the oldest frame first. There are 64 products: number
 * 4 p + t belongs to element p of the 16 elements of u * v and to row t of B^T d over time. Row 3 is the newest filter
 * of the three, so the first frame of a video, before which all frames are zero, takes only the 16 products 4 p + 3.
 *
 * One body in C (winograd_tmpl.c) is compiled for each instruction set, with the flags of its folder under cpu/, and
 * chosen at run time. The results have the same bits on every instruction set. */
#ifndef ITH_KERNELS_WINOGRAD_H
#define ITH_KERNELS_WINOGRAD_H

#include "../base/context.h"

/* A request to compute one row of v for some neighbouring tiles. With d0 to d3 for the rows of d, row 0 of B^T d is
 * d0 - d2, row 1 is d1 + d2, row 2 is d2 - d1, and row 3 is d1 - d3. */
typedef struct ith_winograd_input {
    int frames;                       /* 1: F(2x2, 3x3); 4: F(2x2x2, 3x3x3) */
    const void *first[4], *second[4]; /* for each frame the two rows of d that are added or subtracted, from the first
                                         tile's first pixel on */
    ith_dtype dtype;                  /* number type of the pixels: F32 or BF16 */
    bool adds;                        /* first + second; otherwise first - second */
    int64_t tiles, channels;
    float *v;               /* [4 columns of v][frames][tiles][channels]: a product for each column and frame */
    int64_t product_stride; /* numbers from one product to the next */
    int64_t tile_stride;    /* numbers from one tile to the next */
} ith_winograd_input;

/* A request to add the contribution of one row of u * v to the output pixels of some neighbouring tiles. */
typedef struct ith_winograd_output {
    int frames; /* frames of the output. 1: F(2x2, 3x3); 2: F(2x2x2, 3x3x3) */
    int row;    /* the row of u * v; the caller asks for rows 0, 1, 2 and 3 in this order */
    int64_t tiles, channels;
    const float *m; /* [4 columns][1 or 4 rows over time][tiles][channels]: this row of u * v, summed over the input
                       channels */
    int64_t product_stride; /* numbers from one product to the next */
    const float *bias;      /* [channels]: added by the first call that writes a pixel */
    float *upper[2];        /* [2 tiles][channels] for each frame: the upper row of pixels, which row 0 of u * v
                               overwrites */
    float *lower[2];        /* the same for the lower row of pixels, which row 1 of u * v overwrites */
} ith_winograd_output;

/* The transforms of one instruction set. */
typedef struct ith_winograd {
    const char *name;
    void (*input)(const ith_winograd_input *input);
    void (*output)(const ith_winograd_output *output);
} ith_winograd;

extern const ith_winograd ith_winograd_ref;
#if defined(__x86_64__)
extern const ith_winograd ith_winograd_avx2, ith_winograd_avx512;
#endif

/* The transforms for the widest instruction set among the ith_cpu_feature bits `cpu`. Never NULL. */
const ith_winograd *ith_winograd_choose(uint32_t cpu);
/* Writes u = G g G^T for a filter g [3][3] to u [4][4]. It is computed in float64 and rounded once. */
void ith_winograd_filter(float u[16], const float g[9]);
/* The same over height, width and time for a filter g [3 frames][3][3]: u [4][4][4 rows over time]. */
void ith_winograd_filter_time(float u[64], const float g[27]);

#endif
