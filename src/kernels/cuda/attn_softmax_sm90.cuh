/* SPDX-License-Identifier: Apache-2.0 */
/* The softmax of the Hopper attention kernel (attn_16bit_sm90.cuh), on a tile of logits that a warpgroup holds in
 * registers as wgmma leaves them (wgmma_sm90.cuh): with KEYS columns, a thread has KEYS / 2 numbers, of two rows.
 *
 *     p_ij = 2^(c s_ij - m_i),   l_i = sum_j p_ij,   l'_i = sum_j p'_ij     p': p rounded to 16 bits */
#ifndef ITH_KERNELS_CUDA_ATTN_SOFTMAX_SM90_H
#define ITH_KERNELS_CUDA_ATTN_SOFTMAX_SM90_H

#include "wgmma_sm90.cuh"

#include <math.h>

enum { LARGE = 1 << 12 }; /* where |m| is larger, c s is rounded before m is subtracted */

/* Where a thread's numbers lie: rows `row` + 8 i of the tile, columns 8 j + column + e. */
typedef struct thread_place {
    int group, warp, lane, row, column;
} thread_place;

__device__ __forceinline__ float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers in 16 bits, rounded to nearest even, the first in the lower half. */
template <typename T> __device__ __forceinline__ uint32_t round_pair(float first, float second)
{
    uint32_t pair;
    if constexpr (is_bf16<T>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

template <typename T> __device__ __forceinline__ float first_of_pair(uint32_t pair)
{
    return is_bf16<T> ? __uint_as_float(pair << 16) : __half2float(__ushort_as_half((unsigned short)pair));
}

template <typename T> __device__ __forceinline__ float second_of_pair(uint32_t pair)
{
    return is_bf16<T> ? __uint_as_float(pair & 0xffff0000)
                      : __half2float(__ushort_as_half((unsigned short)(pair >> 16)));
}

/* The state of a thread's two rows. l and l_rounded (l') are sums over the thread's own columns. shrink: the factor
 * that follows from a larger m. l and l' are multiplied by it already; o is not yet (shrink_outputs). */
typedef struct row_state {
    float m[2], l[2], l_rounded[2], shrink[2];
} row_state;

/* The sums of p of one tile over the thread's columns. */
typedef struct tile_sums {
    float of[2];
} tile_sums;

/* Moves m to the maximum of the logits, in rows for which `moves` is set, and scales l and l' accordingly. */
template <int KEYS>
__device__ __forceinline__ void raise_offsets(row_state &rows, const float (&s)[KEYS / 2], float c,
                                              const bool (&moves)[2])
{
    float top[4]; /* of the numbers that each thread has in the even and in the odd columns of its rows */
#pragma unroll
    for (int i = 0; i < 4; i++)
        top[i] = s[i];
#pragma unroll
    for (int i = 4; i < KEYS / 2; i++)
        top[i % 4] = fmaxf(top[i % 4], s[i]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = fmaxf(top[2 * i], top[2 * i + 1]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
        const float m = moves[i] ? fmaxf(rows.m[i], most * c) : rows.m[i];
        rows.shrink[i] = m == rows.m[i] ? 1 : power_of_2(rows.m[i] - m);
        rows.m[i] = m;
        rows.l[i] *= rows.shrink[i];
        rows.l_rounded[i] *= rows.shrink[i];
    }
}

/* Multiplies o by `shrink`, which is not 1 in rows whose m has grown. */
template <int D> __device__ __forceinline__ void shrink_outputs(float (&o)[D / 2], const row_state &rows)
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] *= rows.shrink[i / 2 % 2];
}

/* Replaces s by p. Where |m| is large, c s is rounded before m is subtracted, because m comes from rounded c s: the
 * difference from an unrounded c s could be positive and large. */
template <int KEYS>
__device__ __forceinline__ tile_sums exponentiate(float (&s)[KEYS / 2], const row_state &rows, float c)
{
    float offset[2], factor[2];
    bool large[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        offset[i] = rows.m[i] == -INFINITY ? 0 : rows.m[i];
        large[i] = fabsf(offset[i]) > LARGE;
        factor[i] = large[i] ? 1 : c;
    }
    if (__any_sync(0xffffffff, large[0] || large[1]))
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            s[i] *= large[i / 2 % 2] ? c : 1;
    tile_sums sums = {};
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        const int row = i / 2 % 2;
        s[i] = power_of_2(fmaf(s[i], factor[row], -offset[row]));
        sums.of[row] += s[i];
    }
    return sums;
}

/* Whether m must be raised: some p of the tile is too large, or there was no logit yet. f16 ends at 65504. No p is
 * negative, so that p are ordered as their bits are, and NaN is above all. */
template <typename T, int KEYS>
__device__ __forceinline__ void find_excess(bool (&moves)[2], const float (&p)[KEYS / 2], const row_state &rows)
{
    int most[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        most[i % 2] = __vimax3_s32(most[i % 2], __float_as_int(p[2 * i]), __float_as_int(p[2 * i + 1]));
#pragma unroll
    for (int i = 0; i < 2; i++)
        moves[i] = most[i] > __float_as_int(is_bf16<T> ? 0x1p32f : 0x1p15f) || rows.m[i] == -INFINITY;
}

/* Sets the logits of columns from `keys` on to -infinity. */
template <int KEYS>
__device__ __forceinline__ void hide_columns(float (&s)[KEYS / 2], int keys, const thread_place &thread)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        if (i / 4 * 8 + thread.column + i % 2 >= keys)
            s[i] = -INFINITY;
}

/* Writes s, rounded to 16 bits, to p. */
template <typename T, int KEYS>
__device__ __forceinline__ void round_tile(uint32_t (&p)[KEYS / 4], const float (&s)[KEYS / 2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        p[i] = round_pair<T>(s[2 * i], s[2 * i + 1]);
}

/* The numbers that a tile adds to l'. A sum of rounded p costs time, and differs much from the sum of p only if few p
 * make up most of it. So a tile adds the sum of rounded p if its p are more than 1 / 16 of l over the thread's columns,
 * otherwise the sum of p. */
template <typename T, int KEYS>
__device__ __forceinline__ void add_rounded(float (&rounded)[2], const row_state &rows, const uint32_t (&p)[KEYS / 4],
                                            const tile_sums &sums)
{
    const bool matters[2] = {16 * sums.of[0] > rows.l[0], 16 * sums.of[1] > rows.l[1]};
    rounded[0] = rounded[1] = 0;
    if (__any_sync(0xffffffff, matters[0] || matters[1]))
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++)
            rounded[i % 2] += first_of_pair<T>(p[i]) + second_of_pair<T>(p[i]);
    rounded[0] = matters[0] ? rounded[0] : sums.of[0];
    rounded[1] = matters[1] ? rounded[1] : sums.of[1];
}

/* The sum over the four threads that hold a row. */
__device__ __forceinline__ float add_quad(float x)
{
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

#endif
