/* SPDX-License-Identifier: Apache-2.0 */
/* The transform of a filter (winograd.h), and the choice of the other transforms at run time. */
#include "winograd.h"

const ith_winograd *ith_winograd_choose(uint32_t cpu)
{
#if defined(__x86_64__)
    if (cpu & ITH_CPU_AVX512)
        return &ith_winograd_avx512;
    if (cpu & ITH_CPU_AVX2)
        return &ith_winograd_avx2;
#else
    (void)cpu;
#endif
    return &ith_winograd_ref;
}

/* Multiplies three numbers by the G of F(2, 3). The numbers are `stride` apart. */
static void multiply_by_g2(double out[4], const double *in, int stride)
{
    double first = in[0], middle = in[stride], last = in[2 * stride];
    out[0] = first;
    out[1] = (first + middle + last) / 2;
    out[2] = (first - middle + last) / 2;
    out[3] = last;
}

/* Multiplies three neighbouring numbers by the G of F(4, 3). */
static void multiply_by_g4(double out[6], const double in[3])
{
    const double a = (double)ITH_WINOGRAD_A, b = (double)ITH_WINOGRAD_B, points[5] = {0, a, -a, b, -b};
    for (int i = 0; i < 5; i++) {
        double p = points[i], product = 1;
        for (int j = 0; j < 5; j++)
            product *= j == i ? 1 : p - points[j];
        out[i] = (in[0] + p * in[1] + p * p * in[2]) / product;
    }
    out[5] = in[2];
}

/* Computes G g G^T. */
static void filter_plane(int width, double *u, const float g[9])
{
    double wide[9], columns[3][4];
    for (int i = 0; i < 9; i++)
        wide[i] = (double)g[i];
    for (int j = 0; j < 3; j++)
        multiply_by_g2(columns[j], wide + j, 3);
    for (int i = 0; i < 4; i++) {
        const double row[3] = {columns[0][i], columns[1][i], columns[2][i]};
        if (width == 2)
            multiply_by_g2(u + 4 * i, row, 1);
        else
            multiply_by_g4(u + 6 * i, row);
    }
}

void ith_winograd_filter(int width, float *u, const float g[9])
{
    double wide[ITH_WINOGRAD_MOST / 4];
    filter_plane(width, wide, g);
    for (int i = 0; i < 4 * (width + 2); i++)
        u[i] = (float)wide[i];
}

void ith_winograd_filter_time(int width, float *u, const float g[27])
{
    enum { PLANE = ITH_WINOGRAD_MOST / 4 };
    double planes[3][PLANE], times[4];
    for (int t = 0; t < 3; t++)
        filter_plane(width, planes[t], g + 9 * t);
    for (int i = 0; i < 4 * (width + 2); i++) {
        multiply_by_g2(times, &planes[0][i], PLANE);
        for (int t = 0; t < 4; t++)
            u[4 * i + t] = (float)times[t];
    }
}
