/* SPDX-License-Identifier: Apache-2.0 */
#include "support/random.h"

#include <math.h>
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

float random_normal(uint64_t *state)
{
    float radius = sqrtf(-2.0f * logf(random_uniform(state) + 0x1p-25f)); /* Box and Muller */
    return radius * cosf(6.2831853f * random_uniform(state));
}

float *random_floats(uint64_t *state, int64_t count)
{
    float *x = malloc(((size_t)count + 1) * sizeof *x);
    for (int64_t i = 0; x && i < count; i++)
        x[i] = random_signed(state);
    return x;
}
