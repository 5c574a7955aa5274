/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of convolutional layers (kernels/device_conv.h) in plain C, with sums in f64. They check that the
 * arrays of a call exist. */
#include "fake_device.h"

#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct ith_device_convs {
    int unused;
};

static double number(ith_dtype type, const void *data, int64_t i)
{
    return type == ITH_BF16 ? ith_f32_from_bf16(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

static void keep(ith_dtype type, void *data, int64_t i, double value)
{
    if (type == ITH_BF16)
        ((uint16_t *)data)[i] = ith_bf16_from_f32((float)value);
    else
        ((float *)data)[i] = (float)value;
}

/* ---- Convolutions ------------------------------------------------------------------------------------------------ */

const char *fake_conv_refusal(void)
{
    return NULL;
}

ith_status fake_create_convs(struct ith_device *device, struct ith_device_convs **out, char *said)
{
    (void)device;
    *out = calloc(1, sizeof **out);
    if (*out)
        return ITH_OK;
    snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
    return ITH_ERR_MEMORY;
}

void fake_destroy_convs(struct ith_device_convs *convs)
{
    free(convs);
}

/* Bytes of scratch memory. No call uses them, but callers must provide them. */
static int64_t scratch_of(const ith_device_conv *c)
{
    return c->frames * 1000;
}

ith_status fake_prepare_conv(struct ith_device_convs *convs, const ith_device_conv *conv, int64_t *bytes, char *said)
{
    (void)convs, (void)said;
    *bytes = scratch_of(conv);
    return ITH_OK;
}

/* Computes FAKE_TOGETHER numbers of pixel (f, i, j) of y. spread: their weights. */
static void sum_taps(const ith_device_conv *c, const char *x, const double *spread, int64_t f, int64_t i, int64_t j,
                     double sums[FAKE_TOGETHER])
{
    const int64_t edge = (c->kernel - 1) / 2, bytes = c->in * ith_dtype_bytes(c->type);
    for (int64_t t = 0; t < c->depth; t++)
        for (int64_t r = 0; r < c->kernel; r++)
            for (int64_t s = 0; s < c->kernel; s++) {
                const int64_t row = i + r - edge, column = j + s - edge;
                if (row < 0 || row >= c->height || column < 0 || column >= c->width)
                    continue;
                const int64_t pixel = ((f + t) * c->height + row) * c->width + column;
                const int64_t tap = (t * c->kernel + r) * c->kernel + s;
                fake_add_products(sums, x + pixel * bytes, c->type, c->in, spread + tap * c->in * FAKE_TOGETHER);
            }
}

/* Computes pixel number `pixel` of y. */
static void convolve_pixel(const ith_device_conv *c, const void *x, const double *spread, void *y, int64_t pixel)
{
    const int64_t area = c->height * c->width, taps = c->depth * c->kernel * c->kernel * c->in;
    for (int64_t out = 0; out < c->out; out += FAKE_TOGETHER) {
        double sums[FAKE_TOGETHER] = {0};
        sum_taps(c, x, spread + out * taps, pixel / area, pixel % area / c->width, pixel % c->width, sums);
        for (int64_t i = 0; i < FAKE_TOGETHER && out + i < c->out; i++)
            keep(c->type, y, pixel * c->out + out + i, sums[i]);
    }
}

ith_status fake_convolve(struct ith_device *device, const ith_device_conv *c, void *scratch, int64_t scratch_bytes,
                         char *said)
{
    const int64_t area = c->height * c->width, size = ith_dtype_bytes(c->type);
    const void *x = fake_at(device, c->x, (c->frames + c->depth - 1) * area * c->in * size, said);
    const void *w = fake_at(device, c->w, c->out * c->depth * c->kernel * c->kernel * c->in * size, said);
    void *y = fake_at(device, c->y, c->frames * area * c->out * size, said);
    if (!x || !w || !y || !fake_at(device, scratch, scratch_bytes, said))
        return ITH_ERR_INTERNAL;
    if (scratch_bytes < scratch_of(c)) {
        snprintf(said, ITH_DEVICE_SENTENCE, "too little scratch memory");
        return ITH_ERR_INTERNAL;
    }
    double *spread = fake_spread_weights(w, c->type, c->out, c->depth * c->kernel * c->kernel * c->in);
    if (!spread) {
        snprintf(said, ITH_DEVICE_SENTENCE, "the processor has no memory left");
        return ITH_ERR_MEMORY;
    }
#pragma omp parallel for
    for (int64_t pixel = 0; pixel < c->frames * area; pixel++)
        convolve_pixel(c, x, spread, y, pixel);
    free(spread);
    return ITH_OK;
}

/* ---- Pixels ------------------------------------------------------------------------------------------------------ */

/* Replaces the addresses of a pass's arrays by addresses that this module can access. Returns whether the arrays
 * exist. */
static bool reach_pixels(struct ith_device *device, ith_device_pixels *p, char *said)
{
    const int64_t area = p->height * p->width, count = p->frames * area * p->channels, size = ith_dtype_bytes(p->type);
    const int64_t sources = p->dealt.time ? (p->frames + p->dealt.skipped + 1) / 2 : p->frames;
    const struct {
        void *pointer;
        int64_t bytes;
    } arrays[] = {{&p->x, count * 4},
                  {&p->y, count * size},
                  {&p->bias, p->pieces * p->channels * 4},
                  {&p->dealt.from, sources * (p->height / 2) * (p->width / 2) * p->dealt.channels * 4},
                  {&p->sum, count * 4},
                  {&p->plain, count * size * (p->doubled ? 4 : 1)},
                  {&p->normed, count * size},
                  {&p->gamma, p->channels * 4}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        void **pointer = arrays[i].pointer;
        if (*pointer && !(*pointer = fake_at(device, *pointer, arrays[i].bytes, said)))
            return false;
    }
    return true;
}

static double dealt_number(const ith_device_pixels *p, int64_t f, int64_t i, int64_t j, int64_t c)
{
    const ith_device_dealt *d = &p->dealt;
    const int64_t frame = d->time ? f + d->skipped : f, source = d->time ? frame / 2 : frame;
    const int64_t part = ((d->time ? frame % 2 : 0) * 2 + i % 2) * 2 + j % 2;
    const int64_t pixel = (source * (p->height / 2) + i / 2) * (p->width / 2) + j / 2;
    return d->from[pixel * d->channels + (c * (d->time ? 8 : 4) + part) / d->repeats];
}

static void pass_pixel(const ith_device_pixels *p, int64_t f, int64_t i, int64_t j)
{
    const int64_t area = p->height * p->width, inside = i * p->width + j, pixel = f * area + inside;
    const int64_t of_y = (f / p->pieces * area + inside) * p->pieces + f % p->pieces;
    double s[ITH_DEVICE_PIXEL_CHANNELS], squares = 0;
    for (int64_t c = 0; c < p->channels; c++) {
        s[c] = (p->x ? p->x[pixel * p->channels + c] : 0) + (p->y ? number(p->type, p->y, of_y * p->channels + c) : 0) +
               (p->bias ? p->bias[f % p->pieces * p->channels + c] : 0) +
               (p->dealt.from ? dealt_number(p, f, i, j, c) : 0);
        squares += s[c] * s[c];
    }
    const double inverse = sqrt((double)p->channels) / fmax(sqrt(squares), 1e-12);
    for (int64_t c = 0; c < p->channels; c++) {
        if (p->sum)
            p->sum[pixel * p->channels + c] = (float)s[c];
        if (p->plain && !p->doubled)
            keep(p->type, p->plain, pixel * p->channels + c, s[c]);
        for (int64_t corner = 0; p->plain && p->doubled && corner < 4; corner++) {
            const int64_t row = f * 2 * p->height + 2 * i + corner / 2;
            keep(p->type, p->plain, (row * 2 * p->width + 2 * j + corner % 2) * p->channels + c, s[c]);
        }
        const double v = p->normed ? s[c] * inverse * p->gamma[c] : 0;
        if (p->normed)
            keep(p->type, p->normed, pixel * p->channels + c, p->silu ? v / (1 + exp(-v)) : v);
    }
}

ith_status fake_pixels(struct ith_device *device, const ith_device_pixels *pixels, char *said)
{
    ith_device_pixels p = *pixels;
    if (!reach_pixels(device, &p, said))
        return ITH_ERR_INTERNAL;
#pragma omp parallel for
    for (int64_t row = 0; row < p.frames * p.height; row++)
        for (int64_t column = 0; column < p.width; column++)
            pass_pixel(&p, row / p.height, row % p.height, column);
    return ITH_OK;
}

ith_status fake_colours(struct ith_device *device, const ith_device_colours *c, char *said)
{
    const int64_t patch = c->patch, height = c->height * patch, width = c->width * patch;
    const void *y =
        fake_at(device, c->y, c->frames * c->height * c->width * c->channels * ith_dtype_bytes(c->type), said);
    const float *bias = fake_at(device, c->bias, 3 * patch * patch * 4, said);
    float *rgb = fake_at(device, c->rgb, c->frames * height * width * 3 * 4, said);
    if (!y || !bias || !rgb)
        return ITH_ERR_INTERNAL;
    for (int64_t i = 0; i < c->frames * height * width * 3; i++) {
        const int64_t colour = i % 3, column = i / 3 % width, row = i / 3 / width % height, f = i / 3 / width / height;
        const int64_t pixel = (f * c->height + row / patch) * c->width + column / patch;
        const int64_t channel = (colour * patch + column % patch) * patch + row % patch;
        const double v = number(c->type, y, pixel * c->channels + channel) + bias[channel];
        rgb[i] = (float)(v < -1 ? -1 : v > 1 ? 1 : v);
    }
    return ITH_OK;
}

ith_status fake_softmax(struct ith_device *device, const ith_device_softmax *s, char *said)
{
    float *rows = fake_at(device, s->rows, s->count * s->n * 4, said);
    if (!rows)
        return ITH_ERR_INTERNAL;
    for (float *row = rows; row < rows + s->count * s->n; row += s->n) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < s->n; i++)
            most = fmax(most, row[i]);
        for (int64_t i = 0; i < s->n; i++)
            sum += exp(s->scale * (row[i] - most));
        for (int64_t i = 0; i < s->n; i++)
            row[i] = (float)(exp(s->scale * (row[i] - most)) / sum);
    }
    return ITH_OK;
}
