/* SPDX-License-Identifier: Apache-2.0 */
/* Scales pictures with the filter F of Lanczos or with cubic convolution, with the numbers of Pillow's resize:
 *
 *   out(i) = sum_j w(j) in(j),  w(j) = F((j + 1/2 - c) / s) / sum of all F,  c = (i + 1/2) r,  s = max(r, 1)
 *   r = size of the input / size of the output
 *   Lanczos: F(x) = sinc(x) sinc(x / 3) for -3 <= x < 3, otherwise 0
 *   cubic (doi:10.1109/TASSP.1981.1163711, a = -1/2): F(x) = 3/2 |x|^3 - 5/2 |x|^2 + 1 for |x| < 1,
 *     -1/2 |x|^3 + 5/2 |x|^2 - 4 |x| + 2 for 1 <= |x| < 2, otherwise 0
 *
 * first along rows, then along columns. Weights have 22 binary places, and both sums are rounded to 8 bits. */
#include "image_fit.h"

#include "../../base/arena.h"
#include "../../base/context.h"
#include "../../base/size.h"

#include <math.h>

#define LOBES 3.0 /* the filter of Lanczos is 0 beyond this distance */
#define PLACES 22 /* binary places of a weight */

static const double pi = 3.14159265358979323846;

static int64_t multiple_below(double side, int64_t multiple)
{
    return ith_max64((int64_t)side / multiple, 1) * multiple;
}

/* How far two shapes are from one another: the larger ratio of the two. */
static double distance(double shape, double other)
{
    return fmax(shape / other, other / shape);
}

/* Implements ITH_SIZE_BEST, in the reference's order of operations, on which the rounding depends. */
static void choose_best_size(const ith_image *image, double area, int64_t multiple, int64_t *height, int64_t *width)
{
    const double shape = (double)image->width / (double)image->height, ideal = pow(area * shape, 0.5);
    const int64_t width_first = multiple_below(ideal, multiple), height_first = multiple_below(area / ideal, multiple);
    *width = width_first, *height = multiple_below(area / (double)width_first, multiple);
    const int64_t other = multiple_below(area / (double)height_first, multiple);
    if (distance(shape, (double)*width / (double)*height) >= distance(shape, (double)other / (double)height_first))
        *width = other, *height = height_first;
}

void ith_image_size_within(const ith_image *image, ith_size_rule rule, int64_t area, int64_t multiple, int64_t *height,
                           int64_t *width)
{
    const double shape = (double)image->height / (double)image->width;
    if (rule == ITH_SIZE_BEST) {
        choose_best_size(image, (double)area, multiple, height, width);
        return;
    }
    *height = multiple_below(rint(sqrt((double)area * shape)), multiple);
    *width = multiple_below(rint(sqrt((double)area / shape)), multiple);
}

int64_t ith_image_side(int64_t given, int64_t same, int64_t other, int64_t multiple)
{
    const double side = (double)given * (double)other / (double)same;
    return ith_max64((int64_t)rint(side / (double)multiple), 1) * multiple;
}

/* ---- Filters ----------------------------------------------------------------------------------------------------- */

static double sinc(double x)
{
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

static double lanczos(double x)
{
    return x >= -LOBES && x < LOBES ? sinc(x) * sinc(x / LOBES) : 0;
}

static double cubic(double x)
{
    const double d = fabs(x);
    if (d < 1)
        return (1.5 * d - 2.5) * d * d + 1;
    return d < 2 ? ((2.5 - 0.5 * d) * d - 4) * d + 2 : 0;
}

/* A filter, and the distance beyond which it is 0. */
static const struct filter {
    double (*value)(double x);
    double reach;
} filters[] = {[ITH_FILTER_LANCZOS] = {lanczos, LOBES}, [ITH_FILTER_CUBIC] = {cubic, 2}};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* The pixels of the input along one axis that make the pixels of the output. */
typedef struct axis {
    const struct filter *filter;
    int64_t in, whole;    /* pixels of the input, and of the scaled picture before it is cut */
    int64_t begin, count; /* pixels [begin, begin + count) of the scaled picture are the output */
    int64_t most;         /* the most pixels of the input that make one pixel of the output */
    int32_t *first;       /* [count] the first of these pixels */
    int32_t *taps;        /* [count] their number */
    int32_t *weights;     /* [count, most] */
} axis;

/* The two axes, and the memory of the scaling. */
typedef struct axes {
    axis columns, rows;
    uint8_t *narrow; /* [rows.in, columns.count, 3]: the picture after its rows were scaled, and before its columns */
    double *space;   /* [most of both axes] */
} axes;

static double stretch_of(const axis *a)
{
    return fmax((double)a->in / (double)a->whole, 1);
}

static axis axis_of(ith_image_filter filter, int64_t in, int64_t whole, int64_t wanted)
{
    axis a = {.filter = &filters[filter], .in = in, .whole = whole, .begin = (whole - wanted) / 2, .count = wanted};
    a.most = (int64_t)ceil(a.filter->reach * stretch_of(&a)) * 2 + 1;
    return a;
}

static void take_axis(axis *a, ith_arena *arena)
{
    a->first = ith_arena_take(arena, a->count, sizeof *a->first);
    a->taps = ith_arena_take(arena, a->count, sizeof *a->taps);
    a->weights = ith_arena_take(arena, a->count, a->most * (int64_t)sizeof *a->weights);
}

static axes lay_out(const ith_image *image, const ith_image_scaling *to, ith_arena *arena)
{
    axes s = {.columns = axis_of(to->filter, image->width, to->whole_width, to->width),
              .rows = axis_of(to->filter, image->height, to->whole_height, to->height)};
    take_axis(&s.columns, arena);
    take_axis(&s.rows, arena);
    s.narrow = ith_arena_take(arena, image->height, to->width * 3);
    s.space = ith_arena_take(arena, ith_max64(s.columns.most, s.rows.most), sizeof *s.space);
    return s;
}

int64_t ith_image_scale_bytes(const ith_image *image, const ith_image_scaling *scaling)
{
    ith_arena arena = {0};
    lay_out(image, scaling, &arena);
    return arena.used_bytes + ITH_ALLOC_HEADER;
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Computes the weights of pixel `index` of the output. space: [most]. */
static void weigh(const axis *a, int64_t index, double *space)
{
    const double stretch = stretch_of(a), reach = a->filter->reach * stretch;
    const double centre = ((double)(a->begin + index) + 0.5) * ((double)a->in / (double)a->whole);
    const int64_t first = ith_max64((int64_t)(centre - reach + 0.5), 0);
    const int64_t taps = ith_min64((int64_t)(centre + reach + 0.5), a->in) - first;
    double sum = 0;
    for (int64_t i = 0; i < taps; i++)
        sum += space[i] = a->filter->value(((double)(first + i) - centre + 0.5) / stretch);
    for (int64_t i = 0; i < taps; i++)
        a->weights[index * a->most + i] = (int32_t)round(space[i] / sum * (double)(1 << PLACES));
    a->first[index] = (int32_t)first, a->taps[index] = (int32_t)taps;
}

static void weigh_axis(const axis *a, double *space)
{
    for (int64_t i = 0; i < a->count; i++)
        weigh(a, i, space);
}

/* ---- Pixels ------------------------------------------------------------------------------------------------------ */

/* Computes pixel `index` of an axis from the pixels of the input, which are `stride` bytes apart. */
static void scale_pixel(const axis *a, int64_t index, const uint8_t *in, int64_t stride, uint8_t *out)
{
    const int32_t *weights = a->weights + index * a->most;
    in += a->first[index] * stride;
    for (int channel = 0; channel < 3; channel++) {
        int32_t sum = 1 << (PLACES - 1);
        for (int32_t i = 0; i < a->taps[index]; i++)
            sum += weights[i] * in[i * stride + channel];
        sum = sum < 0 ? 0 : sum >> PLACES;
        out[channel] = (uint8_t)(sum > 255 ? 255 : sum);
    }
}

ith_status ith_image_scale(ith_context *context, const ith_image *image, const ith_image_scaling *scaling, uint8_t *rgb)
{
    ith_arena arena = {0};
    lay_out(image, scaling, &arena);
    ith_status status = ith_arena_allocate(context, &arena, "a scaled image");
    if (status)
        return status;
    const axes s = lay_out(image, scaling, &arena);
    const int64_t height = scaling->height, width = scaling->width;
    weigh_axis(&s.columns, s.space);
    weigh_axis(&s.rows, s.space);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < image->height; row++)
        for (int64_t i = 0; i < width; i++)
            scale_pixel(&s.columns, i, image->rgb + row * image->width * 3, 3, s.narrow + (row * width + i) * 3);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < height; row++)
        for (int64_t i = 0; i < width; i++)
            scale_pixel(&s.rows, row, s.narrow + i * 3, width * 3, rgb + (row * width + i) * 3);
    ith_free(context, arena.base);
    return ITH_OK;
}

/* ---- The size of a video ----------------------------------------------------------------------------------------- */

static ith_image_scaling scaling_of(const ith_image *image, ith_fit fit, int64_t height, int64_t width)
{
    ith_image_scaling out = {ITH_FILTER_LANCZOS, height, width, height, width};
    if (fit == ITH_FIT_STRETCH)
        return out;
    const double scale = fmax((double)width / (double)image->width, (double)height / (double)image->height);
    out.whole_height = (int64_t)rint((double)image->height * scale);
    out.whole_width = (int64_t)rint((double)image->width * scale);
    return out;
}

int64_t ith_image_fit_bytes(const ith_image *image, ith_fit fit, int64_t height, int64_t width)
{
    const ith_image_scaling scaling = scaling_of(image, fit, height, width);
    return ith_image_scale_bytes(image, &scaling);
}

ith_status ith_image_fit(ith_context *context, const ith_image *image, ith_fit fit, int64_t height, int64_t width,
                         uint8_t *rgb)
{
    const ith_image_scaling scaling = scaling_of(image, fit, height, width);
    return ith_image_scale(context, image, &scaling, rgb);
}
