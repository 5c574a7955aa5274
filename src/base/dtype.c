/* SPDX-License-Identifier: Apache-2.0 */
/* Converts f16 (IEEE 754 binary16) by integer arithmetic on the bits, so that every machine rounds alike. */
#include "dtype.h"

#include <math.h>

float ith_f32_from_f16(uint16_t value)
{
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t exponent = (value >> 10) & 0x1fu, fraction = value & 0x3ffu;
    if (exponent == 0x1f)
        return ith_f32_from_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent)
        return ith_f32_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
    float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

uint16_t ith_f16_from_f32(float value)
{
    uint32_t bits = ith_f32_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* from 65520 on the nearest f16 is infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* a subnormal f16, a multiple of 2^-24; lrintf rounds to nearest even */
        return (uint16_t)(sign | (uint32_t)lrintf(ith_f32_from_bits(magnitude) * 0x1p24f));
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

void ith_to_f32(float *y, const void *x, ith_dtype type, int64_t count)
{
    if (type == ITH_F32)
        memcpy(y, x, (size_t)count * sizeof *y);
    else if (type == ITH_BF16)
        for (int64_t i = 0; i < count; i++)
            y[i] = ith_f32_from_bf16(((const uint16_t *)x)[i]);
    else if (type == ITH_F16)
        for (int64_t i = 0; i < count; i++)
            y[i] = ith_f32_from_f16(((const uint16_t *)x)[i]);
    else
        for (int64_t i = 0; i < count; i++)
            y[i] = (float)((const double *)x)[i];
}

void ith_from_f32(void *y, ith_dtype type, const float *x, int64_t count)
{
    if (type == ITH_F32)
        memcpy(y, x, (size_t)count * sizeof *x);
    else if (type == ITH_BF16)
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)y)[i] = ith_bf16_from_f32(x[i]);
    else
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)y)[i] = ith_f16_from_f32(x[i]);
}
