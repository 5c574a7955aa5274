/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products in f64, for the linear and convolutional layers of the fake device: y[o] = sum over k of x[k] w[o,
 * k]. The sums of FAKE_TOGETHER outputs are computed together, each in the order of k. */
#include "base/dtype.h"
#include "fake_device.h"

#include <stdlib.h>

double *fake_spread_weights(const void *w, ith_dtype type, int64_t out, int64_t in)
{
    const int64_t blocks = (out + FAKE_TOGETHER - 1) / FAKE_TOGETHER;
    double *spread = calloc((size_t)(blocks * in * FAKE_TOGETHER + 1), sizeof *spread);
    for (int64_t o = 0; o < out && spread; o++) {
        double *to = spread + o / FAKE_TOGETHER * in * FAKE_TOGETHER + o % FAKE_TOGETHER;
        for (int64_t k = 0; k < in; k++)
            to[k * FAKE_TOGETHER] = type == ITH_BF16 ? (double)ith_f32_from_bf16(((const uint16_t *)w)[o * in + k])
                                                     : (double)((const float *)w)[o * in + k];
    }
    return spread;
}

void fake_add_products(double sums[FAKE_TOGETHER], const void *x, ith_dtype type, int64_t count, const double *spread)
{
    double s[FAKE_TOGETHER];
    for (int i = 0; i < FAKE_TOGETHER; i++)
        s[i] = sums[i];
    for (int64_t k = 0; k < count; k++) {
        const double v =
            type == ITH_BF16 ? (double)ith_f32_from_bf16(((const uint16_t *)x)[k]) : (double)((const float *)x)[k];
        for (int i = 0; i < FAKE_TOGETHER; i++)
            s[i] += v * spread[k * FAKE_TOGETHER + i];
    }
    for (int i = 0; i < FAKE_TOGETHER; i++)
        sums[i] = s[i];
}
