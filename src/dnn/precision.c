/* The faster of the two precisions: the same product in both, timed. */
#include "../base/clock.h"
#include "linear.h"

#define ROWS 256
#define WIDTH 768
#define REPETITIONS 5

/* The shortest of a few runs. */
static ith_status time_product(ith_context *context, const float *weight, const float *x, float *y,
                               ith_precision precision, double *seconds)
{
    ith_linear *linear = NULL;
    ith_status status = ith_linear_create(context, WIDTH, WIDTH, weight, ITH_F32, NULL, precision, &linear);
    for (int i = 0; !status && i < REPETITIONS; i++) {
        double begin = ith_clock_seconds();
        status = ith_linear_run(context, linear, ROWS, x, WIDTH, y, WIDTH);
        double took = ith_clock_seconds() - begin;
        if (!i || took < *seconds)
            *seconds = took;
    }
    ith_linear_destroy(context, &linear);
    return status;
}

ith_status ith_precision_measure(ith_context *context, ith_precision *out)
{
    double f32_seconds = 0, bf16_seconds = 0;
    float *weight = ith_alloc_zero(context, WIDTH * WIDTH + 2 * ROWS * WIDTH, sizeof *weight, "a timed product");
    if (!weight)
        return ITH_ERR_MEMORY;
    float *x = weight + WIDTH * WIDTH, *y = x + ROWS * WIDTH;
    *out = ITH_PRECISION_F32;
    ith_status status = time_product(context, weight, x, y, ITH_PRECISION_F32, &f32_seconds);
    if (!status)
        status = time_product(context, weight, x, y, ITH_PRECISION_BF16, &bf16_seconds);
    if (!status && bf16_seconds < f32_seconds)
        *out = ITH_PRECISION_BF16;
    if (status == ITH_ERR_UNSUPPORTED)
        status = ITH_OK;
    ith_free(context, weight);
    return status;
}
