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

/* Multiplies a column or a row of three numbers by G. The numbers are `stride` apart. */
static void multiply_by_g(double out[4], const double *in, int stride)
{
    double first = in[0], middle = in[stride], last = in[2 * stride];
    out[0] = first;
    out[1] = (first + middle + last) / 2;
    out[2] = (first - middle + last) / 2;
    out[3] = last;
}

/* Computes G g G^T. */
static void filter_plane(double u[16], const float g[9])
{
    double wide[9], columns[3][4];
    for (int i = 0; i < 9; i++)
        wide[i] = (double)g[i];
    for (int j = 0; j < 3; j++)
        multiply_by_g(columns[j], wide + j, 3);
    for (int i = 0; i < 4; i++)
        multiply_by_g(u + 4 * i, &columns[0][i], 4);
}

void ith_winograd_filter(float u[16], const float g[9])
{
    double wide[16];
    filter_plane(wide, g);
    for (int i = 0; i < 16; i++)
        u[i] = (float)wide[i];
}

void ith_winograd_filter_time(float u[64], const float g[27])
{
    double planes[3][16], times[4];
    for (int t = 0; t < 3; t++)
        filter_plane(planes[t], g + 9 * t);
    for (int i = 0; i < 16; i++) {
        multiply_by_g(times, &planes[0][i], 16);
        for (int t = 0; t < 4; t++)
            u[4 * i + t] = (float)times[t];
    }
}
