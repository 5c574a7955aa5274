/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of eight floats in two NEON registers each (AArch64), so that a tile of 4 rows x 3 vectors fills 24
 * registers. ../attn_state.h lists the functions. */
#ifndef ITH_KERNELS_VEC_NEON_H
#define ITH_KERNELS_VEC_NEON_H

#include "shape_neon.h"

#include <arm_neon.h>
#include <stdint.h>

typedef struct vec {
    float32x4_t low, high;
} vec;

static inline vec vec_load(const float *x)
{
    return (vec){vld1q_f32(x), vld1q_f32(x + 4)};
}

static inline void vec_store(float *x, vec a)
{
    vst1q_f32(x, a.low);
    vst1q_f32(x + 4, a.high);
}

/* Subnormal numbers stay as they are. */
static inline unsigned vec_flush_begin(void)
{
    return 0;
}

static inline void vec_flush_end(unsigned before)
{
    (void)before;
}

static inline vec vec_set(float x)
{
    return (vec){vdupq_n_f32(x), vdupq_n_f32(x)};
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return (vec){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}

static inline vec vec_add(vec a, vec b)
{
    return (vec){vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}

static inline vec vec_sub(vec a, vec b)
{
    return (vec){vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
}

static inline vec vec_mul(vec a, vec b)
{
    return (vec){vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}

/* The larger number in each lane. If one of the two is NaN, the result is the other. */
static inline vec vec_max(vec a, vec b)
{
    return (vec){vmaxnmq_f32(a.low, b.low), vmaxnmq_f32(a.high, b.high)};
}

static inline float vec_hsum(vec a)
{
    return vaddvq_f32(vaddq_f32(a.low, a.high));
}

static inline vec vec_load_bf16(const uint16_t *x)
{
    uint16x8_t both = vld1q_u16(x);
    return (vec){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(both), 16)),
                 vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(both), 16))};
}

static inline vec vec_load_f16(const uint16_t *x)
{
    float16x8_t both = vreinterpretq_f16_u16(vld1q_u16(x));
    return (vec){vcvt_f32_f16(vget_low_f16(both)), vcvt_high_f32_f16(both)};
}

/* 2^(s - m) for an integer m, as 2^(n - m) 2^f with n = round(s) and f = s - n in [-1/2, 1/2]. 2^f is a polynomial of
 * degree 5 with P(0) = 1, minimax in relative error (9e-8). The low bits of the sum s + shifter, shifter = 1.5 2^23 +
 * 127 - m, are n - m + 127. As the exponent of a float they give 2^(n - m), or 0 below 2^-127. An m too large for the
 * bits of shifter is subtracted from s first; s is then as large as m, and the subtraction is exact. */
static inline float32x4_t exp2_whole(float32x4_t s, float32x4_t m)
{
    uint32x4_t beyond = vcgtq_f32(vmulq_f32(m, m), vdupq_n_f32(0x1p40f));
    float32x4_t far = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(m), beyond)), near = vsubq_f32(m, far);
    float32x4_t shifter = vsubq_f32(vdupq_n_f32(0x1.8p23f + 127.0f), near);
    float32x4_t x = vmaxq_f32(vsubq_f32(near, vdupq_n_f32(127.0f)), vsubq_f32(s, far)); /* x is NaN where s is NaN */
    float32x4_t shifted = vaddq_f32(x, shifter), f = vsubq_f32(x, vsubq_f32(shifted, shifter));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(9.6715129912e-3f), f, vdupq_n_f32(1.3264728477e-3f));
    p = vfmaq_f32(vdupq_n_f32(5.5507335812e-2f), p, f);
    p = vfmaq_f32(vdupq_n_f32(2.4022242427e-1f), p, f);
    p = vfmaq_f32(vdupq_n_f32(6.9314700365e-1f), p, f);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, f);
    return vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}

static inline vec vec_exp2_whole(vec s, vec m)
{
    return (vec){exp2_whole(s.low, m.low), exp2_whole(s.high, m.high)};
}

static inline vec vec_exp2(vec x)
{
    return vec_exp2_whole(x, vec_set(0.0f));
}

/* Transposes a square of four rows of four numbers. */
static inline void transpose_4x4(float32x4_t x[4])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1])), b = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3])), d = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* Transposes a square of 8 x 8 numbers: each 4 x 4 quarter is transposed, and the two quarters off the diagonal change
 * places. */
static inline void vec_transpose(vec x[LANES])
{
    float32x4_t quarter[4][4];
    for (int i = 0; i < 4; i++) {
        quarter[0][i] = x[i].low;
        quarter[1][i] = x[i + 4].low;
        quarter[2][i] = x[i].high;
        quarter[3][i] = x[i + 4].high;
    }
    for (int i = 0; i < 4; i++)
        transpose_4x4(quarter[i]);
    for (int i = 0; i < 4; i++) {
        x[i] = (vec){quarter[0][i], quarter[1][i]};
        x[i + 4] = (vec){quarter[2][i], quarter[3][i]};
    }
}

#endif
