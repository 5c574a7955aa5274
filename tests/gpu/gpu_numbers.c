/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_numbers.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>

/* A pseudo-random number between -1 and 1 that follows from a seed and an index. */
static float random_at(uint64_t seed, int64_t index)
{
    uint64_t x = seed + (uint64_t)index * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (float)((double)((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1.0);
}

double gpu_number(const void *data, ith_dtype type, int64_t index)
{
    if (type == ITH_BF16)
        return (double)ith_f32_from_bf16(((const uint16_t *)data)[index]);
    return (double)((const float *)data)[index];
}

void *gpu_random_numbers(ith_dtype type, int64_t count, float scale, float offset)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    const uint64_t seed = state += 0x123456789abcdef1u;
    void *data = malloc((size_t)(count ? count * ith_dtype_bytes(type) : 1));
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) {
        const float x = offset + scale * random_at(seed, i);
        if (type == ITH_BF16)
            ((uint16_t *)data)[i] = ith_bf16_from_f32(x);
        else
            ((float *)data)[i] = x;
    }
    return data;
}

double gpu_larger(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}
