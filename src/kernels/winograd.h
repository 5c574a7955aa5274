/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of F(2x2, 3x3) and its relatives. F(2x2, 3x3) computes a convolution of 3 x 3 with 16 multiplications
 * for 4 pixels instead of 36 (Winograd; Lavin and Gray, arXiv:1509.09308). A tile is 2 x 2 pixels of the output, and
 * reads d, 4 x 4 pixels of the input. For each pair of an input and an output channel, with the filter g of 3 x 3
 * numbers:
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
 * F(2x4, 3x3) has tiles of 2 x 4 pixels, which read 4 x 6 pixels of the input, and takes 24 multiplications for 8
 * pixels instead of 32. Along the rows of pixels it uses other matrices. They belong to the points 0, a, -a, b, -b and
 * infinity:
 *
 *           a^2 b^2   0     -a^2-b^2    0    1  0                1  1  1    1    1    0
 *              0   -a b^2    -b^2       a    1  0          A^T = 0  a -a    b   -b    0
 *     B^T =    0    a b^2    -b^2      -a    1  0                0 a^2 a^2  b^2  b^2  0
 *              0   -a^2 b    -a^2       b    1  0                0 a^3 -a^3 b^3 -b^3  1
 *              0    a^2 b    -a^2      -b    1  0
 *              0   a^2 b^2     0    -a^2-b^2 0  1
 *
 * The row of G for a point p other than infinity is (1, p, p^2) / the product of p - q over the other four points q;
 * the last row is (0, 0, 1). The points a = 5/8 and b = 3/2 make smaller rounding errors than 1 and 2 (Barabasz and
 * others, doi:10.1145/3412380).
 *
 * F(2x2x2, 3x3x3) and F(2x2x4, 3x3x3) do the same in time for a convolution of 3 x 3 x 3: two frames of the output read
 * four frames of the input and take 64 (96) multiplications instead of 96 (144) with F(2x2, 3x3) (F(2x4, 3x3)) for each
 * frame. The matrices of F(2x2, 3x3) are applied over time as over height, with the oldest frame first. There are 64
 * (96) products: number 4 p + t belongs to element p of the 16 (24) elements of u * v and to row t of B^T d over time.
 * Row 3 is the newest filter of the three, so the first frame of a video, before which all frames are zero, takes only
 * the products 4 p + 3.
 *
 * One body in C (winograd_tmpl.c) is compiled for each instruction set, with the flags of its folder under cpu/, and
 * chosen at run time. The results have the same bits on every instruction set. Pointers have the alignment of their
 * numbers, and no more; an array that is written overlaps nothing else. */
#ifndef ITH_KERNELS_WINOGRAD_H
#define ITH_KERNELS_WINOGRAD_H

#include "../base/context.h"

/* The points a and b of F(2x4, 3x3). */
#define ITH_WINOGRAD_A 0.625f
#define ITH_WINOGRAD_B 1.5f
/* The most elements of u: 4 x 6, and 4 rows over time. */
#define ITH_WINOGRAD_MOST 96

/* A request to compute one row of v for some neighbouring tiles. With d0 to d3 for the rows of d, row 0 of B^T d is
 * d0 - d2, row 1 is d1 + d2, row 2 is d2 - d1, and row 3 is d1 - d3. */
typedef struct ith_winograd_input {
    int width;                        /* pixels of a tile side by side: 2 or 4 */
    int frames;                       /* frames of the input: 1, or 4 of a convolution over time */
    const void *first[4], *second[4]; /* for each frame the two rows of d that are added or subtracted, from the first
                                         tile's first pixel on */
    ith_dtype dtype;                  /* number type of the pixels: F32 or BF16 */
    bool adds;                        /* first + second; otherwise first - second */
    int64_t tiles, channels;
    float *v;               /* [width + 2 columns of v][frames][tiles][channels]: a product for each column and frame */
    int64_t product_stride; /* numbers from one product to the next */
    int64_t tile_stride;    /* numbers from one tile to the next */
} ith_winograd_input;

/* A request to add the contribution of one row of u * v to the output pixels of some neighbouring tiles. */
typedef struct ith_winograd_output {
    int width;  /* pixels of a tile side by side: 2 or 4 */
    int frames; /* frames of the output: 1, or 2 of a convolution over time */
    int row;    /* the row of u * v; the caller asks for rows 0, 1, 2 and 3 in this order */
    int64_t tiles, channels;
    const float *m; /* [width + 2 columns][1 or 4 rows over time][tiles][channels]: this row of u * v, summed over the
                       input channels */
    int64_t product_stride; /* numbers from one product to the next */
    const float *bias;      /* [channels]: added by the first call that writes a pixel */
    float *upper[2];        /* [width * tiles][channels] for each frame: the upper row of pixels, which row 0 of u * v
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
/* Writes u = G g G^T for a filter g [3][3] and tiles of `width` pixels side by side (2 or 4) to u [4][width + 2]. It is
 * computed in float64 and rounded once. */
void ith_winograd_filter(int width, float *u, const float g[9]);
/* The same over height, width and time for a filter g [3 frames][3][3]: u [4][width + 2][4 rows over time]. */
void ith_winograd_filter_time(int width, float *u, const float g[27]);

#endif
