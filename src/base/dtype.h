/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between f32 and the 16-bit types, rounded to nearest even. bf16 is the upper half of an f32, with 8 bits
 * of exponent and 7 of fraction. f16 is IEEE 754 binary16, with 5 bits of exponent and 10 of fraction. */
#ifndef ITH_BASE_DTYPE_H
#define ITH_BASE_DTYPE_H

#include "context.h"

#include <string.h>

/* Whether kernels compute with numbers of a type: F32, BF16 or F16. */
static inline bool ith_dtype_is_operand(ith_dtype type)
{
    return type == ITH_F32 || type == ITH_BF16 || type == ITH_F16;
}

static inline float ith_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ith_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ith_f32_from_bf16(uint16_t value)
{
    return ith_f32_from_bits((uint32_t)value << 16);
}

static inline uint16_t ith_bf16_from_f32(float value)
{
    uint32_t bits = ith_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN: a set fraction bit keeps it from becoming infinity */
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float ith_round_to_bf16(float value)
{
    return ith_f32_from_bf16(ith_bf16_from_f32(value));
}

/* Convert a number, given by its bits, from f16 and to f16. */
float ith_f32_from_f16(uint16_t value);
uint16_t ith_f16_from_f32(float value);

/* Computes y[i] = x[i] as f32. type: the type of x, which is F32, BF16, F16 or F64. */
void ith_to_f32(float *y, const void *x, ith_dtype type, int64_t count);
/* Computes y[i] = x[i] rounded to `type`: F32, BF16 or F16. */
void ith_from_f32(void *y, ith_dtype type, const float *x, int64_t count);

#endif
