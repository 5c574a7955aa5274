/* SPDX-License-Identifier: Apache-2.0 */
/* Interpolates colours, and converts them with the matrix of BT.601 (yuv.h). */
#include "yuv.h"

static int limited(int value)
{
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

static int64_t within(int64_t place, int64_t count)
{
    return place < 0 ? 0 : place < count ? place : count - 1;
}

/* The samples of one colour for a row of pixels. */
typedef struct colour_row {
    const uint8_t *near, *far; /* the row of samples that contains the pixels, and the next nearest one */
    int64_t columns;
} colour_row;

static colour_row find_row(const ith_yuv *yuv, int plane, int64_t y)
{
    const int64_t rows = ((yuv->height - 1) >> yuv->shift_y) + 1, near = y >> yuv->shift_y;
    const int64_t far = yuv->shift_y == 1 ? within(y % 2 ? near + 1 : near - 1, rows) : near;
    return (colour_row){.near = yuv->planes[plane] + near * yuv->strides[plane],
                        .far = yuv->planes[plane] + far * yuv->strides[plane],
                        .columns = ((yuv->width - 1) >> yuv->shift_x) + 1};
}

/* The colour of a pixel from the four samples around it: a is the nearest, d the farthest. libjpeg rounds halves up in
 * one column and down in the next; libwebp rounds twice. */
static int mix_full(int a, int b, int c, int d, bool odd)
{
    return (9 * a + 3 * (b + c) + d + (odd ? 7 : 8)) >> 4;
}

static int mix_narrow(int a, int b, int c, int d)
{
    return (((a + 3 * (b + c) + d + 8) >> 3) + a) >> 1;
}

/* The colour of a pixel between two samples. */
static int mix_two(int near, int far, bool odd)
{
    return (3 * near + far + (odd ? 2 : 1)) >> 2;
}

static int colour_at(const ith_yuv *yuv, colour_row row, int64_t y, int64_t x)
{
    const int64_t near = x >> yuv->shift_x, far = within(x % 2 ? near + 1 : near - 1, row.columns);
    const bool between_rows = yuv->shift_y == 1, between_columns = yuv->shift_x == 1;
    if (between_rows && between_columns && yuv->full)
        return mix_full(row.near[near], row.near[far], row.far[near], row.far[far], x % 2);
    if (between_rows && between_columns)
        return mix_narrow(row.near[near], row.near[far], row.far[near], row.far[far]);
    if (between_columns)
        return mix_two(row.near[near], row.near[far], x % 2);
    return between_rows ? mix_two(row.near[near], row.far[near], y % 2) : row.near[near];
}

/* The formula of JPEG (JFIF), in units of 1 / 65536. */
static void write_full(int y, int cb, int cr, uint8_t *rgb)
{
    enum { HALF = 1 << 15 };
    cb -= 128, cr -= 128;
    rgb[0] = (uint8_t)limited(y + ((91881 * cr + HALF) >> 16));
    rgb[1] = (uint8_t)limited(y + ((-22554 * cb - 46802 * cr + HALF) >> 16));
    rgb[2] = (uint8_t)limited(y + ((116130 * cb + HALF) >> 16));
}

/* The formula of WebP, with the rounding of libwebp. */
static void write_narrow(int y, int cb, int cr, uint8_t *rgb)
{
    const int bright = (y * 19077) >> 8;
    rgb[0] = (uint8_t)limited((bright + ((cr * 26149) >> 8) - 14234) >> 6);
    rgb[1] = (uint8_t)limited((bright - ((cb * 6419) >> 8) - ((cr * 13320) >> 8) + 8708) >> 6);
    rgb[2] = (uint8_t)limited((bright + ((cb * 33050) >> 8) - 17685) >> 6);
}

void ith_yuv_to_rgb(const ith_yuv *yuv, uint8_t *rgb, int64_t stride)
{
    for (int64_t y = 0; y < yuv->height; y++) {
        const uint8_t *bright = yuv->planes[0] + y * yuv->strides[0];
        const colour_row cb = find_row(yuv, 1, y), cr = find_row(yuv, 2, y);
        for (int64_t x = 0; x < yuv->width; x++)
            (yuv->full ? write_full : write_narrow)(bright[x], colour_at(yuv, cb, y, x), colour_at(yuv, cr, y, x),
                                                    rgb + y * stride + 3 * x);
    }
}
