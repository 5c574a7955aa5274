/* SPDX-License-Identifier: Apache-2.0 */
#include "support/random.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t random_below(uint64_t *state, uint32_t below)
{
    return (uint32_t)((random_bits(state) >> 32) * below >> 32);
}

int64_t random_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)random_below(state, (uint32_t)(high - low + 1));
}

float random_uniform(uint64_t *state)
{
    return (float)(random_bits(state) >> 40) * 0x1p-24f;
}

float random_signed(uint64_t *state)
{
    return 2 * random_uniform(state) - 1;
}

/* The ziggurat of Marsaglia and Tsang ("The ziggurat method for generating random variables", Journal of Statistical
 * Software, 2000). Layers of the same area cover the right half of exp(-x^2 / 2). Layer 0 is the tail and the
 * rectangle below the curve beside it. Layer i is a rectangle that ends at edge[i]. A number of layer i that is less
 * than edge[i + 1] lies below the curve. */
enum { LAYERS = 256 };
static const double tail_start = 3.6541528853610088, layer_area = 0.00492867323397466;
static float edge[LAYERS + 1], inner[LAYERS]; /* inner: edge[i + 1] / edge[i] */
static pthread_once_t edges_made = PTHREAD_ONCE_INIT;

static double density(double x)
{
    return exp(-0.5 * x * x);
}

static void make_edges(void)
{
    double x[LAYERS + 1] = {layer_area / density(tail_start), tail_start};
    for (int i = 2; i < LAYERS; i++)
        x[i] = sqrt(-2 * log(layer_area / x[i - 1] + density(x[i - 1])));
    for (int i = 0; i <= LAYERS; i++)
        edge[i] = (float)x[i];
    for (int i = 0; i < LAYERS; i++)
        inner[i] = (float)(x[i + 1] / x[i]);
}

/* A number beyond tail_start, by Marsaglia's method. */
static float random_tail(uint64_t *state)
{
    for (;;) {
        const double x = log(random_uniform(state) + 0x1p-25) / tail_start, y = log(random_uniform(state) + 0x1p-25);
        if (-2 * y >= x * x)
            return (float)(tail_start - x);
    }
}

/* Whether a number of layer i lies below the curve: a random height in the layer is compared with the curve. */
static bool below_curve(uint64_t *state, int i, float x)
{
    const double low = density(edge[i]), high = density(edge[i + 1]);
    return low + random_uniform(state) * (high - low) < density(x);
}

float random_normal(uint64_t *state)
{
    pthread_once(&edges_made, make_edges);
    for (;;) {
        const uint64_t bits = random_bits(state);
        const int i = (int)(bits % LAYERS);
        const float part = (float)(int32_t)(bits >> 32) * 0x1p-31f, x = part * edge[i];
        if (fabsf(part) < inner[i])
            return x;
        if (i == 0)
            return part < 0 ? -random_tail(state) : random_tail(state);
        if (below_curve(state, i, x))
            return x;
    }
}

float *random_floats(uint64_t *state, int64_t count)
{
    float *x = malloc(((size_t)count + 1) * sizeof *x);
    for (int64_t i = 0; x && i < count; i++)
        x[i] = random_signed(state);
    return x;
}
