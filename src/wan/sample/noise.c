/* SPDX-License-Identifier: Apache-2.0 */
/* Normal noise by Philox 4x32-10 and the method of Box and Muller (noise.h). */
#include "noise.h"

#include "../../base/size.h"

#include <math.h>

#define MADE_TOGETHER (1 << 16) /* numbers that are made between two checks for an interruption: some milliseconds */

void ith_noise_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = next0, c2 = next2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* ln(numerator / 2^32) for 1 <= numerator <= 2^32. With numerator = m 2^e, sqrt(1/2) <= m < sqrt(2), and
 * s = (m - 1)/(m + 1): ln m = 2 (s + s^3/3 + s^5/5 + ...). Since s^2 < 0.0295, the terms after s^21/21 are below 2^-53.
 */
static double log_fraction(uint64_t numerator)
{
    int exponent = 63 - __builtin_clzll(numerator);
    double m = (double)numerator / (double)(UINT64_C(1) << exponent); /* 1 <= m < 2, without rounding */
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1), square = s * s, series = 0;
    for (int power = 21; power >= 1; power -= 2)
        series = series * square + 1.0 / power;
    return 2 * s * series + (exponent - 32) * 0.69314718055994531;
}

/* Computes cosine and sine of the angle 2 pi turn / 2^32. The nearest quarter turn is subtracted as an integer. The
 * rest is an angle of at most pi/4, for which Taylor series up to the 16th power are accurate to 2^-53. */
static void turn_cos_sin(uint32_t turn, double *cosine, double *sine)
{
    const int64_t quarter = ((int64_t)turn + 0x20000000) >> 30, rest = turn - (quarter << 30);
    double angle = (double)rest * (6.2831853071795865 / 4294967296.0), square = angle * angle;
    double c = 1, s = 1;
    for (int power = 16; power >= 2; power -= 2) {
        c = 1 - c * square / (power * (power - 1));
        s = 1 - s * square / (power * (power + 1));
    }
    s *= angle;
    switch (quarter & 3) {
    case 0: *cosine = c, *sine = s; break;
    case 1: *cosine = -s, *sine = c; break;
    case 2: *cosine = -c, *sine = -s; break;
    default: *cosine = s, *sine = -c; break;
    }
}

/* Makes the numbers 4 index to 4 index + 3 of the noise: one output of the generator is two pairs of uniform numbers.
 */
static void four_normals(uint64_t seed, uint64_t index, float out[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0};
    uint32_t words[4];
    ith_noise_philox(counter, key, words);
    for (int pair = 0; pair < 4; pair += 2) {
        double radius = sqrt(-2 * log_fraction((uint64_t)words[pair] + 1)), cosine, sine;
        turn_cos_sin(words[pair + 1], &cosine, &sine);
        out[pair] = (float)(radius * cosine);
        out[pair + 1] = (float)(radius * sine);
    }
}

void ith_noise_normal(uint64_t seed, int64_t begin, int64_t count, float *noise)
{
    float four[4];
    for (int64_t i = begin; i < begin + count; i++) {
        if (i == begin || i % 4 == 0)
            four_normals(seed, (uint64_t)i / 4, four);
        noise[i - begin] = four[i % 4];
    }
}

ith_status ith_noise_make(ith_context *context, uint64_t seed, int64_t begin, int64_t count, float *noise)
{
    ith_status status = ITH_OK;
    for (int64_t done = 0; done < count && !(status = ith_context_check(context)); done += MADE_TOGETHER)
        ith_noise_normal(seed, begin + done, ith_min64(MADE_TOGETHER, count - done), noise + done);
    return status;
}
