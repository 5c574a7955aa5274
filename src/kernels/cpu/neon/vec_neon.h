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

/* 2^x = 2^n 2^f, n = round(x), f in [-1/2, 1/2]: a polynomial of degree 5 with P(0) = 1, minimax in relative error
 * (9e-8), whose exponent n is then added to. Below 2^-126 it is 0. */
static inline vec vec_exp2(vec x)
{
    vec lowest = vec_set(-126.0f);
    vec clamped = vmaxq_f32(lowest, x); /* NaN where x is */
    vec shifter = vec_set(0x1.8p23f);   /* x + shifter has n in its low bits */
    vec shifted = vec_add(clamped, shifter);
    vec f = vec_sub(clamped, vec_sub(shifted, shifter));
    vec p = vec_fma(f, vec_set(1.3264728477e-3f), vec_set(9.6715129912e-3f));
    p = vec_fma(p, f, vec_set(5.5507335812e-2f));
    p = vec_fma(p, f, vec_set(2.4022242427e-1f));
    p = vec_fma(p, f, vec_set(6.9314700365e-1f));
    p = vec_fma(p, f, vec_set(1.0f));
    uint32x4_t exponent = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
    vec y = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), exponent));
    vec y_or_nan = vbslq_f32(vceqq_f32(x, x), y, x);
    return vbslq_f32(vcltq_f32(x, lowest), vec_set(0.0f), y_or_nan);
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
