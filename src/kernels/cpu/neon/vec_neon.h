/* Vectors of four floats, NEON on AArch64. What each vec_<isa>.h offers is said in ../attn_pass.h. */
#ifndef ITH_KERNELS_VEC_NEON_H
#define ITH_KERNELS_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef float32x4_t vec;
enum { LANES = 4 };

static inline vec vec_load(const float *x)
{
    return vld1q_f32(x);
}

static inline void vec_store(float *x, vec a)
{
    vst1q_f32(x, a);
}

static inline void vec_prefetch(const char *x)
{
    __builtin_prefetch(x, 0, 2);
}

static inline vec vec_set(float x)
{
    return vdupq_n_f32(x);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

static inline vec vec_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}

static inline vec vec_sub(vec a, vec b)
{
    return vsubq_f32(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}

/* The number where one of them is NaN. */
static inline vec vec_max(vec a, vec b)
{
    return vmaxnmq_f32(a, b);
}

static inline float vec_hmax(vec a)
{
    return vmaxnmvq_f32(a);
}

static inline float vec_hsum(vec a)
{
    return vaddvq_f32(a);
}

static inline float vec_first(vec a)
{
    return vgetq_lane_f32(a, 0);
}

static inline vec vec_load_bf16(const uint16_t *x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16));
}

static inline vec vec_load_f16(const uint16_t *x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}

/* 2^(s - m), m an integer: 2^(n - m) 2^f, n = round(s), f = s - n in [-1/2, 1/2]: a polynomial of degree 5 with P(0) =
 * 1, minimax in relative error (9e-8). Adding `shifter` = 1.5 2^23 + 127 - m leaves n - m + 127 in the low bits, 2^(n -
 * m) when they are the exponent; below 2^-127 that is 0. An m for which the shifter has no bits is taken off before: s
 * has no more of them. */
static inline vec vec_exp2_whole(vec s, vec m)
{
    uint32x4_t beyond = vcgtq_f32(vec_mul(m, m), vec_set(0x1p40f));
    vec far = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(m), beyond));
    vec near = vec_sub(m, far);
    vec shifter = vec_sub(vec_set(0x1.8p23f + 127.0f), near);
    vec x = vmaxq_f32(vec_sub(near, vec_set(127.0f)), vec_sub(s, far)); /* NaN where s is */
    vec shifted = vec_add(x, shifter);
    vec f = vec_sub(x, vec_sub(shifted, shifter));
    vec p = vec_fma(f, vec_set(1.3264728477e-3f), vec_set(9.6715129912e-3f));
    p = vec_fma(p, f, vec_set(5.5507335812e-2f));
    p = vec_fma(p, f, vec_set(2.4022242427e-1f));
    p = vec_fma(p, f, vec_set(6.9314700365e-1f));
    p = vec_fma(p, f, vec_set(1.0f));
    return vec_mul(p, vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}

static inline vec vec_exp2(vec x)
{
    return vec_exp2_whole(x, vec_set(0.0f));
}

static inline void vec_transpose(vec x[LANES])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1])), b = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3])), d = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

#endif
