/* SPDX-License-Identifier: Apache-2.0 */
/* The operations on a row between two linear layers of a transformer (device_layers.h): residual sum, LayerNorm and
 * modulation in one pass; RMSNorm and RoPE of q and k in one pass; bias and GELU.
 *
 * A block has a row. A thread holds groups of W neighbouring numbers of the row in registers: group tid + i * THREADS,
 * i < GROUPS. So a row is read and written once. W is 8, or 2 for rows that are not a multiple of 8. Sums are f32: of
 * up to 8 * GROUPS numbers in a thread, then over the block. */
#include "cuda_device.h"

#include <cuda_bf16.h>
#include <stdio.h>

namespace
{

enum { THREADS = 128, WARPS = THREADS / 32, GROUPS_MOST = 8 };

/* ---- Groups of numbers ------------------------------------------------------------------------------------------- */

/* How long a value that is loaded stays in caches: rows are read once, vectors are read for every row. */
enum reuse { ONCE, OFTEN };

template <reuse R, typename V> __device__ __forceinline__ V fetch(const V *from)
{
    return R == ONCE ? __ldcs(from) : *from;
}

/* Loads W numbers. W is 8 or 2; the address is aligned to the smaller of 16 bytes and W numbers. */
template <int W, reuse R = OFTEN> __device__ __forceinline__ void load(float (&v)[W], const float *from)
{
    if constexpr (W == 8) {
        const float4 low = fetch<R>((const float4 *)from), high = fetch<R>((const float4 *)from + 1);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
        const float2 both = fetch<R>((const float2 *)from);
        v[0] = both.x, v[1] = both.y;
    }
}

template <int W, reuse R = OFTEN> __device__ __forceinline__ void load(float (&v)[W], const __nv_bfloat16 *from)
{
    uint32_t words[W / 2];
    if constexpr (W == 8) {
        const uint4 all = fetch<R>((const uint4 *)from);
        words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
        words[0] = fetch<R>((const uint32_t *)from);
    }
#pragma unroll
    for (int i = 0; i < W / 2; i++) {
        v[2 * i] = __uint_as_float(words[i] << 16);
        v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

template <int W> __device__ __forceinline__ void store(float *to, const float (&v)[W])
{
    if constexpr (W == 8) {
        ((float4 *)to)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)to)[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        *(float2 *)to = make_float2(v[0], v[1]);
    }
}

template <int W> __device__ __forceinline__ void store(__nv_bfloat16 *to, const float (&v)[W])
{
    uint32_t words[W / 2];
#pragma unroll
    for (int i = 0; i < W / 2; i++) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        words[i] = *(const uint32_t *)&pair;
    }
    if constexpr (W == 8)
        *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
    else
        *(uint32_t *)to = words[0];
}

/* The sum of `value` over the threads of the block, in every thread. space: [WARPS], not used by the call before. */
__device__ __forceinline__ float block_sum(float value, float *space)
{
#pragma unroll
    for (int lane = 16; lane; lane /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    if (threadIdx.x % 32 == 0)
        space[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        sum += space[i];
    return sum;
}

/* ---- Residual sum and norm --------------------------------------------------------------------------------------- */

__device__ __forceinline__ int64_t time_of(const ith_device_row_update &u, int64_t row)
{
    const int64_t entry = row / u.share;
    return u.known ? 2 * entry + (u.begin + row % u.share < u.known) : entry;
}

/* x += gate y, for the groups of a row that this thread holds. */
template <typename Y, int W, int GROUPS>
__device__ __forceinline__ void add_gated(float (&x)[GROUPS][W], const Y *y, const float *gate, int count)
{
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int group = threadIdx.x + i * THREADS;
        float added[W], factor[W];
        if (group >= count)
            continue;
        load<W, ONCE>(added, y + (int64_t)group * W);
        if (gate)
            load<W>(factor, gate + (int64_t)group * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[i][j] += gate ? factor[j] * added[j] : added[j];
    }
}

/* Sets mean and inverse to the row's mean and to 1 / sqrt(var + eps). */
template <int W, int GROUPS>
__device__ __forceinline__ void moments(const float (&x)[GROUPS][W], int count, int64_t dim, float eps, float &mean,
                                        float &inverse)
{
    __shared__ float space[2][WARPS];
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += x[i][j]; /* groups behind the row's end are zeros */
    mean = block_sum(sum, space[0]) / (float)dim;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float distance = (int)threadIdx.x + i * THREADS < count ? x[i][j] - mean : 0.0f;
            squares += distance * distance;
        }
    inverse = 1.0f / sqrtf(block_sum(squares, space[1]) / (float)dim + eps);
}

template <typename Y, typename N, int W, int GROUPS>
__global__ void __launch_bounds__(THREADS) update_rows(const __grid_constant__ ith_device_row_update u)
{
    const int64_t row = blockIdx.x, time = time_of(u, row);
    const int count = (int)(u.dim / W);
    float x[GROUPS][W], mean = 0, inverse = 1;
    float *x_row = u.x + row * u.dim;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int group = threadIdx.x + i * THREADS;
#pragma unroll
        for (int j = 0; j < W; j++)
            x[i][j] = 0;
        if (group < count)
            load<W, ONCE>(x[i], x_row + (int64_t)group * W);
    }
    if (u.y) {
        const float *gate = u.gate.first ? u.gate.first + time * u.gate.stride : NULL;
        add_gated<Y, W, GROUPS>(x, (const Y *)u.y + row * u.y_stride, gate, count);
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            if ((int)threadIdx.x + i * THREADS < count)
                store<W>(x_row + (int64_t)(threadIdx.x + i * THREADS) * W, x[i]);
    }
    if (!u.n)
        return;
    if (u.normed)
        moments<W, GROUPS>(x, count, u.dim, u.eps, mean, inverse);
    const float *a = u.a.first + time * u.a.stride, *b = u.b.first + time * u.b.stride;
    N *n = (N *)u.n + row * u.n_stride;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int group = threadIdx.x + i * THREADS;
        float scale[W], shift[W];
        if (group >= count)
            continue;
        if (u.normed) {
            load<W>(scale, a + (int64_t)group * W);
            load<W>(shift, b + (int64_t)group * W);
#pragma unroll
            for (int j = 0; j < W; j++)
                x[i][j] = (x[i][j] - mean) * inverse * scale[j] + shift[j];
        }
        store<W>(n + (int64_t)group * W, x[i]);
    }
}

/* ---- RMSNorm and RoPE -------------------------------------------------------------------------------------------- */

/* Rotates the pairs of one group, whose first number is number `at` of the row. */
template <int W> __device__ __forceinline__ void rotate(float (&v)[W], const ith_device_heads &h, int64_t token, int at)
{
    const int64_t pair = token * (h.head_dim / 2) + at % (int)h.head_dim / 2;
    float cosines[W / 2], sines[W / 2];
    if constexpr (W == 8) {
        const float4 c = *(const float4 *)(h.cosines + pair), s = *(const float4 *)(h.sines + pair);
        cosines[0] = c.x, cosines[1] = c.y, cosines[2] = c.z, cosines[3] = c.w;
        sines[0] = s.x, sines[1] = s.y, sines[2] = s.z, sines[3] = s.w;
    } else {
        cosines[0] = h.cosines[pair], sines[0] = h.sines[pair];
    }
#pragma unroll
    for (int j = 0; j < W / 2; j++) {
        const float even = v[2 * j], odd = v[2 * j + 1];
        v[2 * j] = even * cosines[j] - odd * sines[j];
        v[2 * j + 1] = even * sines[j] + odd * cosines[j];
    }
}

template <typename T, int W, int GROUPS>
__global__ void __launch_bounds__(THREADS) norm_heads(const __grid_constant__ ith_device_heads h)
{
    __shared__ float space[WARPS];
    const int64_t row = blockIdx.x / h.normed, dim = h.heads * h.head_dim;
    const int vector = blockIdx.x % h.normed, count = (int)(dim / W);
    const float *weights = h.weights[vector];
    T *data = (T *)h.data + row * h.stride + vector * dim;
    float v[GROUPS][W], squares = 0;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int group = threadIdx.x + i * THREADS;
#pragma unroll
        for (int j = 0; j < W; j++)
            v[i][j] = 0;
        if (group < count)
            load<W, ONCE>(v[i], data + (int64_t)group * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            squares += v[i][j] * v[i][j];
    }
    const float inverse = 1.0f / sqrtf(block_sum(squares, space) / (float)dim + h.eps);
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int group = threadIdx.x + i * THREADS;
        float factor[W];
        if (group >= count)
            continue;
        load<W>(factor, weights + (int64_t)group * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[i][j] *= inverse * factor[j];
        if (h.cosines)
            rotate<W>(v[i], h, row % h.tokens, group * W);
        store<W>(data + (int64_t)group * W, v[i]);
    }
}

/* ---- Bias and activation ----------------------------------------------------------------------------------------- */

/* y = act(y + bias): a block has THREADS numbers of a row. */
template <typename T> __global__ void __launch_bounds__(THREADS) bias_act(const __grid_constant__ ith_device_linear l)
{
    const int64_t parts = (l.out + THREADS - 1) / THREADS;
    const int64_t row = blockIdx.x / parts, column = blockIdx.x % parts * THREADS + threadIdx.x;
    if (column >= l.out)
        return;
    T *y = (T *)l.y + row * l.y_stride + column;
    float v = (float)*y + (l.bias ? (float)((const T *)l.bias)[column] : 0.0f);
    if (l.gelu)
        v = v / (1.0f + expf(-1.5957691216057308f * (v + 0.044715f * (v * v * v))));
    *y = (T)v;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

ith_status refuse(char *said, const char *what, int64_t dim)
{
    snprintf(said, ITH_DEVICE_SENTENCE,
             "%s of %lld numbers: on a GPU a row has at most %d, in multiples of 8, or an even number up to %d", what,
             (long long)dim, THREADS * GROUPS_MOST * 8, THREADS * GROUPS_MOST * 2);
    return ITH_ERR_UNSUPPORTED;
}

/* The width of a group: 8, or 2 where rows or heads are not multiples of 8; 0 if the rows are too long or odd. */
int group_width(int64_t dim, int64_t inner, bool aligned)
{
    if (dim % 8 == 0 && inner % 8 == 0 && aligned && dim <= THREADS * GROUPS_MOST * 8)
        return 8;
    return dim % 2 == 0 && inner % 2 == 0 && dim <= THREADS * GROUPS_MOST * 2 ? 2 : 0;
}

bool is_aligned(const void *pointer, int64_t stride)
{
    return (uintptr_t)pointer % 16 == 0 && stride % 8 == 0;
}

template <typename Y, typename N> void launch_update(const ith_device_row_update &u, int width, cudaStream_t stream)
{
    const unsigned rows = (unsigned)u.rows;
    const int64_t groups = (u.dim + THREADS * 8 - 1) / (THREADS * 8);
    if (width == 2)
        update_rows<Y, N, 2, GROUPS_MOST><<<rows, THREADS, 0, stream>>>(u);
    else if (groups == 1)
        update_rows<Y, N, 8, 1><<<rows, THREADS, 0, stream>>>(u);
    else if (groups == 2)
        update_rows<Y, N, 8, 2><<<rows, THREADS, 0, stream>>>(u);
    else if (groups == 3)
        update_rows<Y, N, 8, 3><<<rows, THREADS, 0, stream>>>(u);
    else if (groups <= 5)
        update_rows<Y, N, 8, 5><<<rows, THREADS, 0, stream>>>(u);
    else
        update_rows<Y, N, 8, GROUPS_MOST><<<rows, THREADS, 0, stream>>>(u);
}

template <typename T> void launch_heads(const ith_device_heads &h, int width, cudaStream_t stream)
{
    const unsigned vectors = (unsigned)(h.rows * h.normed);
    const int64_t groups = (h.heads * h.head_dim + THREADS * 8 - 1) / (THREADS * 8);
    if (width == 2)
        norm_heads<T, 2, GROUPS_MOST><<<vectors, THREADS, 0, stream>>>(h);
    else if (groups == 1)
        norm_heads<T, 8, 1><<<vectors, THREADS, 0, stream>>>(h);
    else if (groups == 2)
        norm_heads<T, 8, 2><<<vectors, THREADS, 0, stream>>>(h);
    else if (groups == 3)
        norm_heads<T, 8, 3><<<vectors, THREADS, 0, stream>>>(h);
    else if (groups <= 5)
        norm_heads<T, 8, 5><<<vectors, THREADS, 0, stream>>>(h);
    else
        norm_heads<T, 8, GROUPS_MOST><<<vectors, THREADS, 0, stream>>>(h);
}

} // namespace

extern "C" ith_status ith_cuda_update_rows(struct ith_device_stream *stream, const ith_device_row_update *update,
                                           char *said)
{
    const ith_device_row_update &u = *update;
    const int width =
        group_width(u.dim, 8,
                    is_aligned(u.x, u.dim) && is_aligned(u.y, u.y ? u.y_stride : 0) &&
                        is_aligned(u.n, u.n ? u.n_stride : 0) && is_aligned(u.gate.first, u.gate.stride) &&
                        is_aligned(u.a.first, u.a.stride) && is_aligned(u.b.first, u.b.stride));
    if (!u.rows)
        return ITH_OK;
    if (!width)
        return refuse(said, "the residual sum and norm of rows", u.dim);
    ith_status status = ith_cuda_check(cudaSetDevice(stream->device->index), "starting a norm", said);
    if (status)
        return status;
    const bool y_bf16 = u.y ? u.y_type == ITH_BF16 : u.n_type == ITH_BF16, n_bf16 = u.n_type == ITH_BF16;
    if (y_bf16 && n_bf16)
        launch_update<__nv_bfloat16, __nv_bfloat16>(u, width, stream->stream);
    else if (y_bf16)
        launch_update<__nv_bfloat16, float>(u, width, stream->stream);
    else if (n_bf16)
        launch_update<float, __nv_bfloat16>(u, width, stream->stream);
    else
        launch_update<float, float>(u, width, stream->stream);
    return ith_cuda_check_launch("starting a norm", said);
}

extern "C" ith_status ith_cuda_norm_heads(struct ith_device_stream *stream, const ith_device_heads *heads, char *said)
{
    const ith_device_heads &h = *heads;
    const int64_t dim = h.heads * h.head_dim;
    const int width = group_width(dim, h.cosines ? h.head_dim : 8,
                                  is_aligned(h.data, h.stride) && is_aligned(h.weights[0], 0) &&
                                      is_aligned(h.normed > 1 ? h.weights[1] : NULL, 0) && is_aligned(h.cosines, 0) &&
                                      is_aligned(h.sines, 0));
    if (!h.rows)
        return ITH_OK;
    if (!width)
        return refuse(said, "the norm of heads", dim);
    ith_status status = ith_cuda_check(cudaSetDevice(stream->device->index), "starting a norm of heads", said);
    if (status)
        return status;
    if (h.type == ITH_BF16)
        launch_heads<__nv_bfloat16>(h, width, stream->stream);
    else
        launch_heads<float>(h, width, stream->stream);
    return ith_cuda_check_launch("starting a norm of heads", said);
}

extern "C" ith_status ith_cuda_bias_act(struct ith_device_stream *stream, const ith_device_linear *linear, char *said)
{
    const int64_t blocks = linear->rows * ((linear->out + THREADS - 1) / THREADS);
    if (linear->y_type == ITH_BF16)
        bias_act<__nv_bfloat16><<<(unsigned)blocks, THREADS, 0, stream->stream>>>(*linear);
    else
        bias_act<float><<<(unsigned)blocks, THREADS, 0, stream->stream>>>(*linear);
    return ith_cuda_check_launch("starting a bias", said);
}
