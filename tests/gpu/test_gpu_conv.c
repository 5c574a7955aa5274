/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of convolutional layers on a device (kernels/device_conv.h), each compared with its definition in
 * float64, with random and extreme sizes; then their rates with the sizes of the published autoencoders. The argument
 * "short" leaves out the rates. */
#include "gpu_numbers.h"
#include "gpu_test.h"

#include <math.h>

static const ith_device_convolutions *ops;
static struct ith_device_convs *convs;

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static const char *name_of(ith_dtype type)
{
    return type == ITH_BF16 ? "bf16" : "f32";
}

/* Numbers of one type in memory of the host and of the device. */
typedef struct numbers {
    ith_dtype type;
    int64_t count;
    void *data;
    gpu_buffer on_device;
} numbers;

static float at(const numbers *n, int64_t i)
{
    return (float)gpu_number(n->data, n->type, i);
}

static numbers make_random(ith_dtype type, int64_t count, float scale)
{
    numbers n = {type, count, gpu_random_numbers(type, count, scale, 0), {0}};
    n.on_device = gpu_upload(n.data, count * ith_dtype_bytes(type));
    return n;
}

static numbers make_poisoned(ith_dtype type, int64_t count)
{
    return (numbers){type, count, malloc((size_t)(count * ith_dtype_bytes(type))),
                     gpu_poisoned(count * ith_dtype_bytes(type))};
}

/* Fetches the numbers that the device has written, and checks that it wrote nothing around them. */
static void fetch(numbers *n, const char *what)
{
    gpu_download(n->data, n->on_device.data, n->on_device.bytes);
    if (!gpu_is_guarded(&n->on_device))
        gpu_fail("%s: memory around the result was written", what);
}

static void drop(numbers *n)
{
    if (n->data) {
        free(n->data);
        gpu_free(&n->on_device);
    }
    *n = (numbers){0};
}

/* The error of a result as a multiple of the allowed error, |y - ref| / (unit |ref| + slack). slack: allowed for the
 * sums. */
static double error_of(double y, double ref, ith_dtype type, double slack)
{
    return fabs(y - ref) / ((type == ITH_BF16 ? 0x1.02p-8 : 0x1p-23) * fabs(ref) + slack);
}

/* ---- Convolutions ------------------------------------------------------------------------------------------------ */

typedef struct conv_case {
    int64_t frames, height, width, in, out, depth, kernel;
} conv_case;

static ith_device_conv call_of(const conv_case *c, ith_dtype type)
{
    return (ith_device_conv){.type = type,
                             .frames = c->frames,
                             .height = c->height,
                             .width = c->width,
                             .in = c->in,
                             .out = c->out,
                             .depth = c->depth,
                             .kernel = c->kernel};
}

/* Number `out` of pixel (f, i, j) of y in float64. *size: the sum of the products without signs. */
static double conv_at(const conv_case *c, const numbers *x, const numbers *w, int64_t pixel, int64_t out, double *size)
{
    const int64_t edge = (c->kernel - 1) / 2, f = pixel / c->width / c->height;
    const int64_t i = pixel / c->width % c->height, j = pixel % c->width;
    double sum = 0;
    *size = 0;
    for (int64_t tap = 0; tap < c->depth * c->kernel * c->kernel; tap++) {
        const int64_t t = tap / c->kernel / c->kernel, row = i + tap / c->kernel % c->kernel - edge;
        const int64_t column = j + tap % c->kernel - edge;
        if (row < 0 || row >= c->height || column < 0 || column >= c->width)
            continue;
        const int64_t from = (((f + t) * c->height + row) * c->width + column) * c->in;
        const int64_t filter = (out * c->depth * c->kernel * c->kernel + tap) * c->in;
        for (int64_t k = 0; k < c->in; k++) {
            const double product = (double)at(x, from + k) * at(w, filter + k);
            sum += product;
            *size += fabs(product);
        }
    }
    return sum;
}

/* Allocates scratch memory and starts a convolution. */
static void convolve(const ith_device_conv *call)
{
    int64_t bytes = 0;
    GPU_OK(ops->prepare(convs, call, &bytes, gpu_said));
    gpu_buffer scratch = gpu_poisoned(bytes + 1);
    GPU_OK(ops->convolve(gpu_stream, convs, call, scratch.data, bytes, gpu_said));
    gpu_wait();
    if (!gpu_is_guarded(&scratch))
        gpu_fail("a convolution wrote around its %lld bytes of scratch memory", (long long)bytes);
    gpu_free(&scratch);
}

static double run_conv(const conv_case *c, ith_dtype type)
{
    const int64_t area = c->height * c->width, taps = c->depth * c->kernel * c->kernel;
    const int64_t samples = 4000, count = c->frames * area * c->out;
    numbers x = make_random(type, (c->frames + c->depth - 1) * area * c->in, 1);
    numbers w = make_random(type, c->out * taps * c->in, 1);
    numbers y = make_poisoned(type, count), again = make_poisoned(type, count);
    ith_device_conv call = call_of(c, type);
    call.x = x.on_device.data, call.w = w.on_device.data, call.y = y.on_device.data;
    convolve(&call);
    call.y = again.on_device.data;
    convolve(&call);
    fetch(&y, "a convolution"), fetch(&again, "a convolution");
    if (memcmp(y.data, again.data, (size_t)(count * ith_dtype_bytes(type))))
        gpu_fail("two equal convolutions differ");
    double worst = 0;
    const int64_t step = count > samples ? count / samples + 1 : 1;
#pragma omp parallel for reduction(max : worst)
    for (int64_t i = 0; i < count; i += step) {
        double size;
        const double ref = conv_at(c, &x, &w, i / c->out, i % c->out, &size);
        worst = gpu_larger(worst, error_of(at(&y, i), ref, type, 0x1p-21 * size));
    }
    for (int64_t i = 0; i < count; i++)
        if (isnan(at(&y, i))) {
            gpu_fail("number %lld of %lld of a convolution's result is missing", (long long)i, (long long)count);
            break;
        }
    drop(&x), drop(&w), drop(&y), drop(&again);
    return worst;
}

static void check_convolutions(void)
{
    static const conv_case cases[] = {
        {1, 7, 9, 16, 24, 1, 1},      {1, 6, 10, 384, 1152, 1, 1}, {4, 9, 16, 96, 192, 1, 1},
        {3, 6, 5, 16, 16, 1, 3},      {2, 20, 24, 192, 96, 1, 3},  {1, 5, 7, 16, 384, 3, 3},
        {1, 5, 7, 48, 1024, 3, 3},    {4, 6, 10, 8, 8, 3, 3},      {1, 1, 1, 16, 16, 3, 3},
        {1, 1, 33, 32, 16, 3, 3},     {4, 18, 22, 96, 96, 3, 3},   {2, 9, 11, 384, 384, 3, 3},
        {4, 17, 19, 192, 192, 3, 3},  {4, 12, 20, 96, 8, 3, 3},    {4, 12, 20, 256, 16, 3, 3},
        {1, 6, 10, 1024, 1024, 3, 3}, {1, 9, 10, 384, 768, 3, 1},  {2, 9, 10, 64, 128, 3, 1},
        {2, 5, 3, 32, 64, 3, 1},      {1, 4, 4, 8, 16, 3, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const conv_case *c = &cases[i];
        const double f32 = run_conv(c, ITH_F32), bf16 = run_conv(c, ITH_BF16);
        printf("convolution %lld x %lld x %lld, %lld -> %lld, %lld x %lld x %lld: error f32 %.3f, bf16 %.3f\n",
               (long long)c->frames, (long long)c->height, (long long)c->width, (long long)c->in, (long long)c->out,
               (long long)c->depth, (long long)c->kernel, (long long)c->kernel, f32, bf16);
        if (!(f32 <= 2) || !(bf16 <= 1.1))
            gpu_fail("this convolution's error is too large");
    }
}

/* ---- Pixels ------------------------------------------------------------------------------------------------------ */

typedef struct pixel_case {
    int64_t frames, height, width, channels, pieces;
    bool x, y, bias, in_place, sum, plain, doubled, normed, silu;
    int64_t dealt_channels, skipped; /* 0: channels are not dealt out */
    bool time;
} pixel_case;

typedef struct pixel_arrays {
    numbers x, y, bias, from, gamma, sum, plain, normed;
} pixel_arrays;

/* s of channel c of pixel (f, i, j). */
static double sum_at(const pixel_case *p, const pixel_arrays *a, int64_t f, int64_t inside, int64_t c)
{
    const int64_t area = p->height * p->width, i = inside / p->width, j = inside % p->width;
    const int64_t piece = f % p->pieces, copies = p->time ? 8 : 4;
    double s = 0;
    if (p->x)
        s += at(&a->x, (f * area + inside) * p->channels + c);
    if (p->y)
        s += at(&a->y, ((f / p->pieces * area + inside) * p->pieces + piece) * p->channels + c);
    if (p->bias)
        s += at(&a->bias, piece * p->channels + c);
    if (p->dealt_channels) {
        const int64_t repeats = p->channels * copies / p->dealt_channels, frame = f + (p->time ? p->skipped : 0);
        const int64_t source = p->time ? frame / 2 : frame;
        const int64_t part = ((p->time ? frame % 2 : 0) * 2 + i % 2) * 2 + j % 2;
        const int64_t pixel = (source * (p->height / 2) + i / 2) * (p->width / 2) + j / 2;
        s += at(&a->from, pixel * p->dealt_channels + (c * copies + part) / repeats);
    }
    return s;
}

/* The largest error of a pixel in all outputs. */
static double pixel_error(const pixel_case *p, const pixel_arrays *a, ith_dtype type, int64_t f, int64_t inside)
{
    const int64_t area = p->height * p->width, i = inside / p->width, j = inside % p->width;
    double worst = 0, squares = 0;
    for (int64_t c = 0; c < p->channels; c++) {
        const double s = sum_at(p, a, f, inside, c);
        squares += s * s;
    }
    const double inverse = sqrt((double)p->channels) / fmax(sqrt(squares), 1e-12);
    for (int64_t c = 0; c < p->channels; c++) {
        const double s = sum_at(p, a, f, inside, c), slack = 0x1p-20;
        const int64_t place = (f * area + inside) * p->channels + c;
        if (p->sum)
            worst = gpu_larger(worst, error_of(at(&a->sum, place), s, ITH_F32, slack));
        if (p->plain && !p->doubled)
            worst = gpu_larger(worst, error_of(at(&a->plain, place), s, type, slack));
        for (int64_t corner = 0; p->plain && p->doubled && corner < 4; corner++) {
            const int64_t row = f * 2 * p->height + 2 * i + corner / 2;
            const int64_t to = (row * 2 * p->width + 2 * j + corner % 2) * p->channels + c;
            worst = gpu_larger(worst, error_of(at(&a->plain, to), s, type, slack));
        }
        if (p->normed) {
            const double v = s * inverse * at(&a->gamma, c), n = p->silu ? v / (1 + exp(-v)) : v;
            worst = gpu_larger(worst, error_of(at(&a->normed, place), n, type, 4 * slack));
        }
    }
    return worst;
}

static double run_pixels(const pixel_case *p, ith_dtype type)
{
    const int64_t area = p->height * p->width, count = p->frames * area * p->channels;
    const int64_t sources = p->time ? (p->frames + p->skipped + 1) / 2 : p->frames;
    pixel_arrays a = {.x = make_random(ITH_F32, count, 2),
                      .y = make_random(type, count, 2),
                      .bias = make_random(ITH_F32, p->pieces * p->channels, 1),
                      .from = make_random(ITH_F32, sources * (area / 4 + 1) * (p->dealt_channels + 1), 1),
                      .gamma = make_random(ITH_F32, p->channels, 2),
                      .sum = make_poisoned(ITH_F32, count),
                      .plain = make_poisoned(type, count * (p->doubled ? 4 : 1)),
                      .normed = make_poisoned(type, count)};
    ith_device_pixels call = {.frames = p->frames,
                              .height = p->height,
                              .width = p->width,
                              .channels = p->channels,
                              .type = type,
                              .x = p->x ? (const float *)(void *)a.x.on_device.data : NULL,
                              .y = p->y ? a.y.on_device.data : NULL,
                              .pieces = p->pieces,
                              .bias = p->bias ? (const float *)(void *)a.bias.on_device.data : NULL,
                              .plain = p->plain ? a.plain.on_device.data : NULL,
                              .doubled = p->doubled,
                              .normed = p->normed ? a.normed.on_device.data : NULL,
                              .gamma = (const float *)(void *)a.gamma.on_device.data,
                              .silu = p->silu};
    if (p->sum)
        call.sum = (float *)(void *)(p->in_place ? a.x.on_device.data : a.sum.on_device.data);
    if (p->dealt_channels)
        call.dealt = (ith_device_dealt){.from = (const float *)(void *)a.from.on_device.data,
                                        .channels = p->dealt_channels,
                                        .repeats = p->channels * (p->time ? 8 : 4) / p->dealt_channels,
                                        .skipped = p->skipped,
                                        .time = p->time};
    GPU_OK(ops->pixels(gpu_stream, &call, gpu_said));
    gpu_wait();
    numbers *outputs[] = {&a.sum, &a.plain, &a.normed};
    for (int i = 0; i < 3; i++)
        fetch(outputs[i], "a pass over pixels");
    if (p->sum && p->in_place)
        gpu_download(a.sum.data, a.x.on_device.data, a.x.on_device.bytes);
    double worst = 0;
#pragma omp parallel for reduction(max : worst)
    for (int64_t pixel = 0; pixel < p->frames * area; pixel++)
        worst = gpu_larger(worst, pixel_error(p, &a, type, pixel / area, pixel % area));
    numbers *all[] = {&a.x, &a.y, &a.bias, &a.from, &a.gamma, &a.sum, &a.plain, &a.normed};
    for (int i = 0; i < 8; i++)
        drop(all[i]);
    return worst;
}

static void check_pixels(void)
{
    /* frames, height, width, channels, pieces; x, y, bias, in place; sum, plain, doubled, normed, silu; dealt */
    static const pixel_case cases[] = {
        {1, 3, 5, 8, 1, true, true, true, true, true, false, false, true, true, 0, 0, false},
        {4, 9, 7, 96, 1, true, true, true, true, true, true, false, true, true, 0, 0, false},
        {2, 6, 11, 192, 1, false, true, true, false, true, false, false, true, true, 0, 0, false},
        {1, 7, 9, 384, 1, true, true, true, true, true, false, false, true, false, 0, 0, false},
        {3, 5, 9, 384, 3, false, true, true, false, true, false, false, false, false, 0, 0, false},
        {4, 5, 7, 192, 2, false, true, true, false, false, true, true, false, false, 0, 0, false},
        {1, 5, 7, 384, 1, true, true, true, false, false, true, true, false, false, 0, 0, false},
        {2, 6, 8, 1024, 1, false, true, true, false, true, true, false, true, true, 1024, 0, true},
        {1, 6, 8, 1024, 1, false, true, true, false, true, true, false, true, true, 1024, 1, true},
        {4, 6, 8, 512, 1, false, true, true, false, true, false, false, true, true, 1024, 0, true},
        {4, 4, 6, 512, 1, false, true, true, false, true, true, false, true, true, 512, 0, false},
        {1, 3, 3, 2048, 1, true, true, true, false, true, true, false, true, true, 0, 0, false},
        {2, 3, 3, 1536, 1, true, true, true, false, true, true, false, true, true, 0, 0, false},
        {1, 4, 5, 16, 1, true, false, false, false, false, true, false, false, false, 0, 0, false},
        {2, 4, 5, 7, 1, true, true, true, false, true, true, true, true, true, 0, 0, false},
        {2, 4, 6, 12, 1, true, true, false, false, true, true, false, true, true, 24, 0, true},
        {1, 5, 5, 333, 1, true, true, true, false, true, true, false, true, false, 0, 0, false},
        {1, 1, 1, 24, 1, false, true, false, false, true, true, true, true, true, 0, 0, false},
        {2, 40, 60, 256, 1, true, true, true, true, true, false, false, true, true, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pixel_case *p = &cases[i];
        const double f32 = run_pixels(p, ITH_F32), bf16 = run_pixels(p, ITH_BF16);
        printf("pixels %lld x %lld x %lld x %lld, pieces %lld, dealt %lld: error f32 %.3f, bf16 %.3f\n",
               (long long)p->frames, (long long)p->height, (long long)p->width, (long long)p->channels,
               (long long)p->pieces, (long long)p->dealt_channels, f32, bf16);
        if (!(f32 <= 1) || !(bf16 <= 1.1))
            gpu_fail("this pass's error is too large");
    }
}

/* ---- Colours ----------------------------------------------------------------------------------------------------- */

static void run_colours(int64_t frames, int64_t height, int64_t width, int64_t patch, int64_t channels, ith_dtype type)
{
    const int64_t rows = height * patch, columns = width * patch;
    numbers y = make_random(type, frames * height * width * channels, 1.5f);
    numbers bias = make_random(ITH_F32, 3 * patch * patch, 0.25f);
    numbers rgb = make_poisoned(ITH_F32, frames * rows * columns * 3);
    const ith_device_colours call = {.frames = frames,
                                     .height = height,
                                     .width = width,
                                     .channels = channels,
                                     .patch = patch,
                                     .type = type,
                                     .y = y.on_device.data,
                                     .bias = (const float *)(void *)bias.on_device.data,
                                     .rgb = (float *)(void *)rgb.on_device.data};
    GPU_OK(ops->colours(gpu_stream, &call, gpu_said));
    gpu_wait();
    fetch(&rgb, "colours");
    double worst = 0;
    for (int64_t i = 0; i < rgb.count; i++) {
        const int64_t colour = i % 3, column = i / 3 % columns, row = i / 3 / columns % rows,
                      f = i / 3 / columns / rows;
        const int64_t pixel = (f * height + row / patch) * width + column / patch;
        const int64_t channel = (colour * patch + column % patch) * patch + row % patch;
        const double v = (double)at(&y, pixel * channels + channel) + at(&bias, channel);
        worst = gpu_larger(worst, fabs(at(&rgb, i) - fmax(-1, fmin(1, v))));
    }
    printf("colours %lld x %lld x %lld, patch %lld, %s: error %.1e\n", (long long)frames, (long long)height,
           (long long)width, (long long)patch, name_of(type), worst);
    if (!(worst <= 0x1p-22))
        gpu_fail("these colours' error is too large");
    drop(&y), drop(&bias), drop(&rgb);
}

/* ---- Softmax ----------------------------------------------------------------------------------------------------- */

static void run_softmax(int64_t count, int64_t n, float scale, float spread)
{
    numbers rows = make_random(ITH_F32, count * n, spread), result = {ITH_F32, count * n, NULL, rows.on_device};
    const ith_device_softmax call = {(float *)(void *)rows.on_device.data, count, n, scale};
    GPU_OK(ops->softmax(gpu_stream, &call, gpu_said));
    result.data = malloc((size_t)(count * n) * sizeof(float));
    fetch(&result, "a softmax");
    double worst = 0;
#pragma omp parallel for reduction(max : worst)
    for (int64_t row = 0; row < count; row++) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmax(most, at(&rows, row * n + i));
        for (int64_t i = 0; i < n; i++)
            sum += exp(scale * (at(&rows, row * n + i) - most));
        for (int64_t i = 0; i < n; i++) {
            const double x = scale * (at(&rows, row * n + i) - most), ref = exp(x) / sum;
            worst = gpu_larger(worst, fabs(at(&result, row * n + i) - ref) / ((4 - x) * 0x1p-22 * ref + 1e-37));
        }
    }
    printf("softmax %lld x %lld: error %.3f\n", (long long)count, (long long)n, worst);
    if (!(worst <= 1))
        gpu_fail("this softmax's error is too large");
    free(result.data);
    drop(&rows);
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

enum { WARM = 2, TIMED = 10 };

static void rate_conv(const conv_case *c, ith_dtype type)
{
    const int64_t area = c->height * c->width, taps = c->depth * c->kernel * c->kernel;
    gpu_buffer x = gpu_filled((c->frames + c->depth - 1) * area * c->in * ith_dtype_bytes(type), 0x3c);
    gpu_buffer w = gpu_filled(c->out * taps * c->in * ith_dtype_bytes(type), 0x3c);
    gpu_buffer y = gpu_filled(c->frames * area * c->out * ith_dtype_bytes(type), 0);
    ith_device_conv call = call_of(c, type);
    int64_t bytes = 0;
    call.x = x.data, call.w = w.data, call.y = y.data;
    GPU_OK(ops->prepare(convs, &call, &bytes, gpu_said));
    gpu_buffer scratch = gpu_filled(bytes + 1, 0);
    double begin = 0;
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM) {
            gpu_wait();
            begin = gpu_now();
        }
        GPU_OK(ops->convolve(gpu_stream, convs, &call, scratch.data, bytes, gpu_said));
    }
    gpu_wait();
    const double seconds = (gpu_now() - begin) / TIMED;
    const double operations = 2.0 * (double)(c->frames * area) * (double)(c->in * c->out * taps);
    printf("%s %lld x %4lld x %4lld, %4lld -> %4lld, %lld x %lld x %lld: %7.3f ms, %6.1f TFLOP/s, scratch %.1f MB\n",
           name_of(type), (long long)c->frames, (long long)c->height, (long long)c->width, (long long)c->in,
           (long long)c->out, (long long)c->depth, (long long)c->kernel, (long long)c->kernel, 1e3 * seconds,
           1e-12 * operations / seconds, 1e-6 * (double)bytes);
    gpu_free(&x), gpu_free(&w), gpu_free(&y), gpu_free(&scratch);
}

static void rate_pixels(int64_t frames, int64_t height, int64_t width, int64_t channels, bool doubled)
{
    const int64_t count = frames * height * width * channels;
    gpu_buffer x = gpu_filled(4 * count, 0x3c), y = gpu_filled(2 * count, 0x3c), n = gpu_filled(2 * count, 0);
    gpu_buffer plain = gpu_filled(doubled ? 8 * count : 256, 0), bias = gpu_filled(4 * channels, 0x3c);
    const ith_device_pixels call = {.frames = frames,
                                    .height = height,
                                    .width = width,
                                    .channels = channels,
                                    .type = ITH_BF16,
                                    .x = (const float *)(void *)x.data,
                                    .y = y.data,
                                    .pieces = 1,
                                    .bias = (const float *)(void *)bias.data,
                                    .sum = doubled ? NULL : (float *)(void *)x.data,
                                    .plain = doubled ? plain.data : NULL,
                                    .doubled = doubled,
                                    .normed = doubled ? NULL : n.data,
                                    .gamma = (const float *)(void *)bias.data,
                                    .silu = true};
    double begin = 0;
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM) {
            gpu_wait();
            begin = gpu_now();
        }
        GPU_OK(ops->pixels(gpu_stream, &call, gpu_said));
    }
    gpu_wait();
    const double seconds = (gpu_now() - begin) / TIMED, bytes = (double)count * (doubled ? 14 : 12);
    printf("pixels %lld x %lld x %lld x %lld%s: %.3f ms, %.0f GB/s\n", (long long)frames, (long long)height,
           (long long)width, (long long)channels, doubled ? ", doubled" : "", 1e3 * seconds, 1e-9 * bytes / seconds);
    gpu_free(&x), gpu_free(&y), gpu_free(&n), gpu_free(&plain), gpu_free(&bias);
}

static void print_rates(void)
{
    static const conv_case cases[] = {
        {1, 90, 160, 384, 384, 3, 3},  {2, 180, 320, 384, 384, 3, 3}, {2, 180, 320, 192, 384, 3, 3},
        {4, 360, 640, 192, 192, 3, 3}, {4, 720, 1280, 96, 96, 3, 3},  {4, 720, 1280, 96, 8, 3, 3},
        {4, 360, 640, 384, 192, 1, 3}, {4, 720, 1280, 192, 96, 1, 3}, {2, 180, 320, 384, 768, 3, 1},
        {4, 176, 320, 512, 512, 3, 3}, {4, 352, 640, 256, 256, 3, 3}, {4, 352, 640, 256, 16, 3, 3},
        {4, 352, 640, 512, 256, 3, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        rate_conv(&cases[i], ITH_BF16);
    rate_conv(&cases[0], ITH_F32);
    rate_conv(&(conv_case){1, 360, 640, 192, 192, 3, 3}, ITH_F32);
    rate_conv(&(conv_case){1, 720, 1280, 192, 96, 1, 3}, ITH_F32);
    rate_pixels(4, 720, 1280, 96, false);
    rate_pixels(4, 360, 640, 192, false);
    rate_pixels(2, 180, 320, 384, false);
    rate_pixels(4, 352, 640, 256, false);
    rate_pixels(4, 360, 640, 192, true);
}

int main(int count, char **arguments)
{
    gpu_begin();
    ops = gpu_module->convolutions;
    if (!ops || ops->refusal()) {
        printf("FAILED: there are no convolutions: %s\n", ops ? ops->refusal() : "the module has none");
        return 1;
    }
    GPU_OK(ops->create(gpu_device, &convs, gpu_said));
    check_pixels();
    run_colours(1, 7, 9, 1, 8, ITH_F32);
    run_colours(4, 5, 6, 1, 8, ITH_BF16);
    run_colours(2, 5, 6, 2, 16, ITH_BF16);
    run_colours(3, 5, 6, 2, 12, ITH_F32);
    run_softmax(3, 1, 1, 1);
    run_softmax(5, 15, 0.5f, 10);
    run_softmax(7, 3001, 0.25f, 100);
    run_softmax(100, 14400, 0.05f, 50);
    check_convolutions();
    if (count < 2 || strcmp(arguments[1], "short"))
        print_rates();
    ops->destroy(convs);
    return gpu_end();
}
