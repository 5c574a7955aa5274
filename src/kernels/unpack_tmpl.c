/* SPDX-License-Identifier: Apache-2.0 */
/* The body of unpack.h in plain C. A file for each instruction set defines UNPACK, the name of the function, and
 * includes this file once. It may define UNPACK_F16(x), which converts the bits of an f16 to f32, and
 * UNPACK_HALVES(halves, factor, out), which converts 32 of them and multiplies them by a power of two.
 *
 * Quantisation blocks of 32 or 256 numbers are unpacked in groups of 32. In the formulas d, m and dmin are f16 scales
 * of the block, s and t are scales of a group or of half of it, and q is the code of a number. Codes are first brought
 * into bytes, then the compiler vectorises the loop that scales them. fp8 selects values by masks instead of
 * conditions, because gcc does not vectorise a product of floats that a condition guards. */
#include "../base/dtype.h"
#include "../base/size.h"
#include "unpack.h"

#ifndef UNPACK_F16
#define UNPACK_F16(x) ith_f32_from_f16(x)
#endif

enum { GROUP = 32, HALF = GROUP / 2 };

/* Unpacks group number `group` of a quantisation block. */
typedef void group_fn(const unsigned char *restrict block, int group, float *restrict out);

/* Reads an f16 at any address. */
static inline float f16_at(const unsigned char *bytes)
{
    uint16_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return UNPACK_F16(bits);
}

/* 32 bytes, as four words. The compiler splits such a vector where registers are shorter. */
typedef uint64_t words __attribute__((vector_size(GROUP)));
typedef uint8_t octets __attribute__((vector_size(GROUP)));

/* The codes of a group, a byte each. */
typedef union codes {
    words words;
    octets vector;
    uint8_t bytes[GROUP];
} codes;

/* A word whose eight bytes are all `byte`. */
static inline uint64_t bytes_of(uint64_t byte)
{
    return byte * 0x0101010101010101u;
}

/* The bits of `mask` of each of 32 bytes, shifted right first. The mask must leave out the highest `shift` bits of a
 * byte, which come from its neighbour. */
static inline codes take_bits(const unsigned char *x, int shift, uint64_t mask)
{
    codes q;
    memcpy(q.bytes, x, sizeof q);
    q.words = q.words >> shift & bytes_of(mask);
    return q;
}

/* out[i] = s (q - zero) + t for codes [first, first + count) */
static inline __attribute__((always_inline)) void scale(const codes *q, int first, int count, int zero, float s,
                                                        float t, float *restrict out)
{
#pragma GCC unroll 1 /* gcc does not vectorise a loop of 16 that it has unrolled before */
    for (int i = first; i < first + count; i++)
        out[i] = s * (float)(q->bytes[i] - zero) + t;
}

/* ---- Blocks of 32 numbers -------------------------------------------------------------------------------------- */

/* d q: d, 32 signed bytes */
static inline void q8_0(const unsigned char *restrict block, int group, float *restrict out)
{
    const float d = f16_at(block);
    (void)group;
    for (int i = 0; i < GROUP; i++)
        out[i] = d * (float)(int8_t)block[2 + i];
}

/* Codes of four bits: the lower halves of 16 bytes, and then their upper halves. */
static inline codes four_bits(const unsigned char *x)
{
    uint64_t two[2];
    codes q;
    memcpy(two, x, sizeof two);
    q.words = (words){two[0], two[1], two[0] >> 4, two[1] >> 4} & bytes_of(15);
    return q;
}

/* d (q - 8): d, codes */
static inline void q4_0(const unsigned char *restrict block, int group, float *restrict out)
{
    const codes q = four_bits(block + 2);
    (void)group;
    scale(&q, 0, GROUP, 8, f16_at(block), -0.0f, out);
}

/* d q + m: d, m, codes */
static inline void q4_1(const unsigned char *restrict block, int group, float *restrict out)
{
    const codes q = four_bits(block + 4);
    (void)group;
    scale(&q, 0, GROUP, 0, f16_at(block), f16_at(block + 2), out);
}

/* Codes of five bits: bit i of `fifth`, 32 bits, is the highest bit of code i. */
static inline codes five_bits(const unsigned char *fifth, const unsigned char *x)
{
    codes q = four_bits(x), chosen;
    chosen.words = (words){bytes_of(fifth[0]), bytes_of(fifth[1]), bytes_of(fifth[2]), bytes_of(fifth[3])} &
                   0x8040201008040201u; /* byte n of a word keeps bit n */
    q.vector |= (octets)(chosen.vector != 0) & 16;
    return q;
}

/* d (q - 16): d, the fifth bits, codes */
static inline void q5_0(const unsigned char *restrict block, int group, float *restrict out)
{
    const codes q = five_bits(block + 2, block + 6);
    (void)group;
    scale(&q, 0, GROUP, 16, f16_at(block), -0.0f, out);
}

/* d q + m: d, m, the fifth bits, codes */
static inline void q5_1(const unsigned char *restrict block, int group, float *restrict out)
{
    const codes q = five_bits(block + 4, block + 8);
    (void)group;
    scale(&q, 0, GROUP, 0, f16_at(block), f16_at(block + 2), out);
}

/* d T[q]: as Q4_0, with a table of levels that are not evenly spaced */
static inline void iq4_nl(const unsigned char *restrict block, int group, float *restrict out)
{
    static const float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const codes q = four_bits(block + 2);
    const float d = f16_at(block);
    (void)group;
    for (int i = 0; i < GROUP; i++)
        out[i] = d * levels[q.bytes[i]];
}

/* ---- Blocks of 256 numbers ------------------------------------------------------------------------------------- */

/* d s q - dmin t: 16 bytes of s (lower half) and t for 16 numbers each, 64 bytes of codes of two bits, d, dmin */
static inline void q2_k(const unsigned char *restrict block, int group, float *restrict out)
{
    const float d = f16_at(block + 80), dmin = f16_at(block + 82);
    const unsigned char *st = block + 2 * group;
    const codes q = take_bits(block + 16 + 32 * (group / 4), 2 * (group % 4), 3);
    scale(&q, 0, HALF, 0, d * (float)(st[0] & 15), -(dmin * (float)(st[0] >> 4)), out);
    scale(&q, HALF, HALF, 0, d * (float)(st[1] & 15), -(dmin * (float)(st[1] >> 4)), out);
}

/* Scale number k of 16 in the 12 bytes of a Q3_K block: six bits, of which the upper two come last. */
static inline int q3_k_scale(const unsigned char *s, int k)
{
    const int lower = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
    return (lower | (s[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
}

/* d (s - 32) (q - 4): 32 bytes of the third bits of the codes, 64 bytes of the other two, 12 bytes of s, d */
static inline void q3_k(const unsigned char *restrict block, int group, float *restrict out)
{
    const float d = f16_at(block + 108);
    codes q = take_bits(block + 32 + 32 * (group / 4), 2 * (group % 4), 3);
    q.words |= take_bits(block, group, 1).words << 2;
    scale(&q, 0, HALF, 4, d * (float)q3_k_scale(block + 96, 2 * group), -0.0f, out);
    scale(&q, HALF, HALF, 4, d * (float)q3_k_scale(block + 96, 2 * group + 1), -0.0f, out);
}

/* Sets s and t of group j: six bits each, in the 12 bytes of scales of a Q4_K or Q5_K block. */
static inline void q4_k_scales(const unsigned char *bytes, int j, int *s, int *t)
{
    *s = j < 4 ? bytes[j] & 63 : (bytes[j + 4] & 15) | bytes[j - 4] >> 6 << 4;
    *t = j < 4 ? bytes[j + 4] & 63 : bytes[j + 4] >> 4 | bytes[j] >> 6 << 4;
}

/* d s q - dmin t: d, dmin, 12 bytes of s and t, 128 bytes of codes of four bits */
static inline void q4_k(const unsigned char *restrict block, int group, float *restrict out)
{
    const codes q = take_bits(block + 16 + 32 * (group / 2), 4 * (group % 2), 15);
    int s, t;
    q4_k_scales(block + 4, group, &s, &t);
    scale(&q, 0, GROUP, 0, f16_at(block) * (float)s, -(f16_at(block + 2) * (float)t), out);
}

/* As Q4_K, with 32 bytes of fifth bits before the codes */
static inline void q5_k(const unsigned char *restrict block, int group, float *restrict out)
{
    codes q = take_bits(block + 48 + 32 * (group / 2), 4 * (group % 2), 15);
    int s, t;
    q.words |= take_bits(block + 16, group, 1).words << 4;
    q4_k_scales(block + 4, group, &s, &t);
    scale(&q, 0, GROUP, 0, f16_at(block) * (float)s, -(f16_at(block + 2) * (float)t), out);
}

/* d s (q - 32): 128 bytes of the lower four bits of the codes, 64 bytes of the upper two, 16 signed bytes s, d */
static inline void q6_k(const unsigned char *restrict block, int group, float *restrict out)
{
    const float d = f16_at(block + 208);
    const unsigned char *s = block + 192 + 2 * group;
    codes q = take_bits(block + 64 * (group / 4) + 32 * (group % 2), 4 * (group % 4 / 2), 15);
    q.words |= take_bits(block + 128 + 32 * (group / 4), 2 * (group % 4), 3).words << 4;
    scale(&q, 0, HALF, 32, d * (float)(int8_t)s[0], -0.0f, out);
    scale(&q, HALF, HALF, 32, d * (float)(int8_t)s[1], -0.0f, out);
}

/* Unpacks numbers [first, first + count) in quantisation blocks of `groups` groups and `bytes` bytes. */
static inline __attribute__((always_inline)) void unpack_blocks(group_fn unpack_group, const unsigned char *data,
                                                                int64_t bytes, int groups, int64_t first, int64_t count,
                                                                float *out)
{
    float part[GROUP];
    for (int64_t group = first / GROUP, end = first + count; first < end; group++) {
        const unsigned char *block = data + group / groups * bytes;
        const int64_t skipped = first - group * GROUP, wanted = ith_min64(GROUP - skipped, end - first);
        if (wanted == GROUP) {
            unpack_group(block, (int)(group % groups), out);
        } else {
            unpack_group(block, (int)(group % groups), part);
            memcpy(out, part + skipped, (size_t)wanted * sizeof *out);
        }
        first += wanted, out += wanted;
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------------------------- */

#ifdef UNPACK_HALVES

/* Brings fp8 with 4 bits of exponent (bias 7) and 3 of fraction into f16 with bias 15, a factor of 2^8 less. There is
 * no infinity; the largest magnitude is NaN. */
static inline void f8_e4m3_group(const unsigned char *restrict x, float *restrict out)
{
    uint16_t halves[GROUP];
    for (int i = 0; i < GROUP; i++) {
        const uint16_t half = (uint16_t)((int8_t)x[i] * 128 & 0xbf80);
        halves[i] = (uint16_t)(half | (-((half & 0x3f80) == 0x3f80) & 0x7e00));
    }
    UNPACK_HALVES(halves, 0x1p8f, out);
}

/* fp8 with 5 bits of exponent and 2 of fraction: the upper half of an f16 */
static inline void f8_e5m2_group(const unsigned char *restrict x, float *restrict out)
{
    uint16_t halves[GROUP];
    for (int i = 0; i < GROUP; i++)
        halves[i] = (uint16_t)(x[i] << 8);
    UNPACK_HALVES(halves, 1, out);
}

#else

/* a where the condition holds, otherwise b. */
static inline uint32_t choose(bool condition, uint32_t a, uint32_t b)
{
    const uint32_t mask = -(uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

/* fp8 with 4 bits of exponent (bias 7) and 3 of fraction. There is no infinity; the largest magnitude is NaN. */
static inline void f8_e4m3_group(const unsigned char *restrict x, float *restrict out)
{
    for (int i = 0; i < GROUP; i++) {
        const uint32_t magnitude = x[i] & 0x7fu, sign = (x[i] & 0x80u) << 24;
        const uint32_t subnormal = ith_f32_bits((float)(int)magnitude * 0x1p-9f);
        const uint32_t finite = choose(magnitude < 8, subnormal, (magnitude << 20) + (120u << 23));
        out[i] = ith_f32_from_bits(choose(magnitude == 0x7f, 0x7fc00000u, finite) | sign);
    }
}

/* fp8 with 5 bits of exponent and 2 of fraction: the upper half of an f16 */
static inline void f8_e5m2_group(const unsigned char *restrict x, float *restrict out)
{
    for (int i = 0; i < GROUP; i++) {
        const uint32_t magnitude = x[i] & 0x7fu, sign = (x[i] & 0x80u) << 24;
        const uint32_t subnormal = ith_f32_bits((float)(int)magnitude * 0x1p-16f);
        const uint32_t finite = choose(magnitude < 4, subnormal, (magnitude << 21) + (112u << 23));
        out[i] = ith_f32_from_bits(choose(magnitude >= 0x7c, magnitude << 21 | 0x7f800000u, finite) | sign);
    }
}

#endif

/* Unpacks `count` bytes in groups of 32. */
static inline __attribute__((always_inline)) void unpack_bytes(void (*unpack_group)(const unsigned char *restrict x,
                                                                                    float *restrict out),
                                                               const unsigned char *x, int64_t count, float *out)
{
    unsigned char rest[GROUP] = {0};
    float part[GROUP];
    for (; count >= GROUP; count -= GROUP, x += GROUP, out += GROUP)
        unpack_group(x, out);
    memcpy(rest, x, (size_t)count);
    unpack_group(rest, part);
    memcpy(out, part, (size_t)count * sizeof *out);
}

static void i8(const unsigned char *restrict x, int64_t count, float *restrict out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(int8_t)x[i];
}

/* ---- All types ------------------------------------------------------------------------------------------------- */

void UNPACK(ith_dtype type, const void *data, int64_t first, int64_t count, float *out)
{
    const unsigned char *x = data;
    switch (type) {
    case ITH_I8: i8(x + first, count, out); break;
    case ITH_F8_E4M3: unpack_bytes(f8_e4m3_group, x + first, count, out); break;
    case ITH_F8_E5M2: unpack_bytes(f8_e5m2_group, x + first, count, out); break;
    case ITH_Q4_0: unpack_blocks(q4_0, x, 18, 1, first, count, out); break;
    case ITH_Q4_1: unpack_blocks(q4_1, x, 20, 1, first, count, out); break;
    case ITH_Q5_0: unpack_blocks(q5_0, x, 22, 1, first, count, out); break;
    case ITH_Q5_1: unpack_blocks(q5_1, x, 24, 1, first, count, out); break;
    case ITH_Q8_0: unpack_blocks(q8_0, x, 34, 1, first, count, out); break;
    case ITH_IQ4_NL: unpack_blocks(iq4_nl, x, 18, 1, first, count, out); break;
    case ITH_Q2_K: unpack_blocks(q2_k, x, 84, 8, first, count, out); break;
    case ITH_Q3_K: unpack_blocks(q3_k, x, 110, 8, first, count, out); break;
    case ITH_Q4_K: unpack_blocks(q4_k, x, 144, 8, first, count, out); break;
    case ITH_Q5_K: unpack_blocks(q5_k, x, 176, 8, first, count, out); break;
    case ITH_Q6_K: unpack_blocks(q6_k, x, 210, 8, first, count, out); break;
    default: ith_to_f32(out, x + first * ith_dtype_bytes(type), type, count); break;
    }
}
