/* SPDX-License-Identifier: Apache-2.0 */
/* The operations on pixels between two convolutions, on NVIDIA GPUs (kernels/device_conv.h): sums, norms, the softmax
 * of the attention over pixels, and the colours of finished frames.
 *
 * In `between`, `lanes` neighbouring threads of a warp share a pixel. Its channels are cut into vectors of V numbers.
 * Thread `lane` of them has vectors lane, lane + lanes, ..., at most N. Row y of the grid is frame y. */
#include "cuda_device.h"

#include <cuda_bf16.h>
#include <stdio.h>

namespace
{

constexpr int THREADS = 256;
constexpr int64_t MOST_FRAMES = 65535;

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

template <int V> __device__ __forceinline__ void load(const float *from, float (&v)[V])
{
    if constexpr (V == 8) {
        const float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
        v[0] = *from;
    }
}

template <int V> __device__ __forceinline__ void load(const __nv_bfloat16 *from, float (&v)[V])
{
    if constexpr (V == 8) {
        const uint4 packed = *(const uint4 *)from;
        const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[2 * i] = __uint_as_float(words[i] << 16);
            v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    } else {
        v[0] = __bfloat162float(*from);
    }
}

template <int V> __device__ __forceinline__ void store(float *to, const float (&v)[V])
{
    if constexpr (V == 8) {
        ((float4 *)to)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)to)[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        *to = v[0];
    }
}

template <int V> __device__ __forceinline__ void store(__nv_bfloat16 *to, const float (&v)[V])
{
    if constexpr (V == 8) {
        __nv_bfloat162 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pairs[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        *(uint4 *)to = *(const uint4 *)pairs;
    } else {
        *to = __float2bfloat16_rn(v[0]);
    }
}

/* ---- Pixels ----------------------------------------------------------------------------------------------------- */

/* The place of a pixel. */
struct place {
    int frame, row, column;
    int64_t pixel; /* its number in all frames */
};

template <int V> __device__ __forceinline__ void add(float (&s)[V], const float (&v)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        s[i] += v[i];
}

/* Adds the numbers that the shortcut around a level deals out to channels [c, c + V). */
template <int V>
__device__ __forceinline__ void add_dealt(float (&s)[V], const ith_device_pixels &p, const place &at, unsigned c)
{
    const ith_device_dealt &d = p.dealt;
    const int frame = d.time ? at.frame + (int)d.skipped : at.frame;
    const int64_t source = d.time ? frame / 2 : frame;
    const unsigned copies = d.time ? 8 : 4, repeats = (unsigned)d.repeats;
    const unsigned part = ((d.time ? frame % 2 : 0) * 2 + at.row % 2) * 2 + at.column % 2;
    const float *from = d.from + ((source * (p.height / 2) + at.row / 2) * (p.width / 2) + at.column / 2) * d.channels;
#pragma unroll
    for (int i = 0; i < V; i++)
        s[i] += from[((c + i) * copies + part) / repeats];
}

/* s of channels [c, c + V). */
template <typename T, int V>
__device__ __forceinline__ void sum_inputs(float (&s)[V], const ith_device_pixels &p, const place &at, int64_t c)
{
    const int piece = p.pieces > 1 ? at.frame % (int)p.pieces : 0;
    float v[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        s[i] = 0;
    if (p.x) {
        load<V>(p.x + at.pixel * p.channels + c, v);
        add<V>(s, v);
    }
    if (p.y) {
        int64_t pixel = at.pixel;
        if (p.pieces > 1) {
            const int64_t first = (int64_t)(at.frame / (int)p.pieces) * p.height * p.width;
            pixel = (first + (int64_t)at.row * p.width + at.column) * p.pieces + piece;
        }
        load<V>((const T *)p.y + pixel * p.channels + c, v);
        add<V>(s, v);
    }
    if (p.bias) {
        load<V>(p.bias + piece * p.channels + c, v);
        add<V>(s, v);
    }
    if (p.dealt.from)
        add_dealt<V>(s, p, at, (unsigned)c);
}

/* Stores channels [c, c + V) of `plain`. */
template <typename T, int V>
__device__ __forceinline__ void store_plain(const ith_device_pixels &p, const place &at, int64_t c, const float (&s)[V])
{
    T *to = (T *)p.plain;
    if (!p.doubled) {
        store<V>(to + at.pixel * p.channels + c, s);
        return;
    }
    const int64_t width = 2 * p.width, row = (int64_t)at.frame * 2 * p.height + 2 * at.row;
    to += (row * width + 2 * at.column) * p.channels + c;
    store<V>(to, s);
    store<V>(to + p.channels, s);
    store<V>(to + width * p.channels, s);
    store<V>(to + (width + 1) * p.channels, s);
}

template <typename T, int V, int N>
__global__ void __launch_bounds__(THREADS) between(const __grid_constant__ ith_device_pixels p, int lanes)
{
    const int lane = threadIdx.x % lanes;
    const int64_t area = p.height * p.width;
    const int64_t inside = (int64_t)blockIdx.x * (THREADS / lanes) + threadIdx.x / lanes;
    const bool exists = inside < area;
    place at = {(int)blockIdx.y, 0, 0, (int64_t)blockIdx.y * area + inside};
    at.row = (int)((unsigned)inside / (unsigned)p.width);
    at.column = (int)((unsigned)inside % (unsigned)p.width);
    float s[N][V], squares = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int64_t c = (int64_t)(lane + n * lanes) * V;
        if (!exists || c >= p.channels)
            continue;
        sum_inputs<T, V>(s[n], p, at, c);
#pragma unroll
        for (int i = 0; i < V; i++)
            squares += s[n][i] * s[n][i];
        if (p.sum)
            store<V>(p.sum + at.pixel * p.channels + c, s[n]);
        if (p.plain)
            store_plain<T, V>(p, at, c, s[n]);
    }
    if (!p.normed)
        return;
    for (int other = lanes / 2; other > 0; other /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, other);
    const float inverse = sqrtf((float)p.channels) / fmaxf(sqrtf(squares), 1e-12f);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int64_t c = (int64_t)(lane + n * lanes) * V;
        if (!exists || c >= p.channels)
            continue;
        float gamma[V], v[V];
        load<V>(p.gamma + c, gamma);
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] = s[n][i] * inverse * gamma[i];
            v[i] = p.silu ? v[i] / (1.0f + expf(-v[i])) : v[i];
        }
        store<V>((T *)p.normed + at.pixel * p.channels + c, v);
    }
}

/* ---- Colours ---------------------------------------------------------------------------------------------------- */

/* One thread for each pixel of the finished frames. */
template <typename T> __global__ void __launch_bounds__(THREADS) finish(const __grid_constant__ ith_device_colours c)
{
    const int patch = (int)c.patch;
    const int64_t width = c.width * patch, area = c.height * patch * width;
    const int64_t inside = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (inside >= area)
        return;
    const int row = (int)((unsigned)inside / (unsigned)width), column = (int)((unsigned)inside % (unsigned)width);
    const int64_t source = ((int64_t)blockIdx.y * c.height + row / patch) * c.width + column / patch;
    float *to = c.rgb + ((int64_t)blockIdx.y * area + inside) * 3;
    for (int colour = 0; colour < 3; colour++) {
        const int channel = (colour * patch + column % patch) * patch + row % patch;
        const float v = (float)((const T *)c.y)[source * c.channels + channel] + c.bias[channel];
        to[colour] = v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v;
    }
}

/* ---- Softmax ---------------------------------------------------------------------------------------------------- */

struct maximum {
    __device__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
};

struct sum {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* Combines the values of all threads of the block; every thread gets the result. */
template <typename F> __device__ float combine(float value, F f)
{
    __shared__ float parts[THREADS / 32];
    for (int other = 16; other > 0; other /= 2)
        value = f(value, __shfl_xor_sync(0xffffffffu, value, other));
    __syncthreads(); /* the parts of an earlier call have been read */
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int i = 1; i < THREADS / 32; i++)
        value = f(value, parts[i]);
    return value;
}

/* One block for each row. fmaxf leaves out a NaN, which reaches all numbers of the row through the sum. */
__global__ void __launch_bounds__(THREADS) softmax_row(const __grid_constant__ ith_device_softmax s)
{
    float *row = s.rows + (int64_t)blockIdx.x * s.n;
    float most = -INFINITY, total = 0;
    for (int64_t i = threadIdx.x; i < s.n; i += THREADS)
        most = fmaxf(most, row[i]);
    most = combine(most, maximum());
    for (int64_t i = threadIdx.x; i < s.n; i += THREADS) {
        const float e = expf(s.scale * (row[i] - most));
        row[i] = e;
        total += e;
    }
    const float inverse = 1.0f / combine(total, sum());
    for (int64_t i = threadIdx.x; i < s.n; i += THREADS)
        row[i] *= inverse;
}

/* ---- Launches --------------------------------------------------------------------------------------------------- */

bool is_aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

/* Whether all channels can be taken in vectors of 8. */
bool takes_vectors(const ith_device_pixels &p)
{
    return p.channels % 8 == 0 && is_aligned(p.x) && is_aligned(p.y) && is_aligned(p.bias) && is_aligned(p.sum) &&
           is_aligned(p.plain) && is_aligned(p.normed) && is_aligned(p.gamma);
}

template <typename T, int V, int N> void start(const ith_device_pixels &p, int lanes, cudaStream_t stream)
{
    const int64_t together = THREADS / lanes, blocks = (p.height * p.width + together - 1) / together;
    between<T, V, N><<<dim3((unsigned)blocks, (unsigned)p.frames), THREADS, 0, stream>>>(p, lanes);
}

/* Chooses the number of threads of a pixel: as few as leave each at most 4 vectors. */
template <typename T> void choose(const ith_device_pixels &p, cudaStream_t stream)
{
    const bool wide = takes_vectors(p);
    const int64_t vectors = wide ? p.channels / 8 : p.channels;
    int lanes = 1;
    while (lanes < 32 && 4 * lanes < vectors)
        lanes *= 2;
    const int64_t each = (vectors + lanes - 1) / lanes;
    if (!wide && each <= 4)
        start<T, 1, 4>(p, lanes, stream);
    else if (!wide)
        start<T, 1, 64>(p, lanes, stream);
    else if (each == 1)
        start<T, 8, 1>(p, lanes, stream);
    else if (each == 2)
        start<T, 8, 2>(p, lanes, stream);
    else if (each == 3)
        start<T, 8, 3>(p, lanes, stream);
    else if (each == 4)
        start<T, 8, 4>(p, lanes, stream);
    else
        start<T, 8, 8>(p, lanes, stream);
}

/* Checks the sizes of frames, as far as the kernels' numbers of 32 bits and the grid bound them. */
ith_status check_sizes(int64_t frames, int64_t height, int64_t width, char *said)
{
    if (frames <= MOST_FRAMES && height < ((int64_t)1 << 31) / width)
        return ITH_OK;
    snprintf(said, ITH_DEVICE_SENTENCE,
             "%lld frames of %lld x %lld: a GPU takes at most %lld frames at a time, of less than 2^31 pixels",
             (long long)frames, (long long)width, (long long)height, (long long)MOST_FRAMES);
    return ITH_ERR_UNSUPPORTED;
}

} // namespace

extern "C" ith_status ith_cuda_pixels(struct ith_device_stream *stream, const ith_device_pixels *pixels, char *said)
{
    static const char doing[] = "starting a norm of pixels";
    const ith_device_pixels &p = *pixels;
    if (p.frames < 1 || p.height < 1 || p.width < 1)
        return ITH_OK;
    if (p.channels < 1 || p.channels > ITH_DEVICE_PIXEL_CHANNELS) {
        snprintf(said, ITH_DEVICE_SENTENCE, "pixels of %lld channels: on a GPU they have 1 to %d",
                 (long long)p.channels, ITH_DEVICE_PIXEL_CHANNELS);
        return ITH_ERR_UNSUPPORTED;
    }
    ith_status status = check_sizes(p.frames, p.height, p.width, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status)
        return status;
    if (p.type == ITH_BF16)
        choose<__nv_bfloat16>(p, stream->stream);
    else
        choose<float>(p, stream->stream);
    return ith_cuda_check_launch(doing, said);
}

extern "C" ith_status ith_cuda_colours(struct ith_device_stream *stream, const ith_device_colours *colours, char *said)
{
    static const char doing[] = "finishing frames";
    const ith_device_colours &c = *colours;
    if (c.frames < 1 || c.height < 1 || c.width < 1)
        return ITH_OK;
    ith_status status = check_sizes(c.frames, c.height * c.patch, c.width * c.patch, said);
    if (!status)
        status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (status)
        return status;
    const int64_t area = c.height * c.patch * c.width * c.patch;
    const dim3 grid((unsigned)((area + THREADS - 1) / THREADS), (unsigned)c.frames);
    if (c.type == ITH_BF16)
        finish<__nv_bfloat16><<<grid, THREADS, 0, stream->stream>>>(c);
    else
        finish<float><<<grid, THREADS, 0, stream->stream>>>(c);
    return ith_cuda_check_launch(doing, said);
}

extern "C" ith_status ith_cuda_softmax(struct ith_device_stream *stream, const ith_device_softmax *softmax, char *said)
{
    static const char doing[] = "starting a softmax";
    if (softmax->count < 1 || softmax->n < 1)
        return ITH_OK;
    ith_status status = ith_cuda_check(cudaSetDevice(stream->device->index), doing, said);
    if (!status && softmax->count > INT32_MAX) {
        snprintf(said, ITH_DEVICE_SENTENCE, "a softmax of %lld rows: a GPU takes at most 2^31 - 1 at a time",
                 (long long)softmax->count);
        status = ITH_ERR_UNSUPPORTED;
    }
    if (status)
        return status;
    softmax_row<<<(unsigned)softmax->count, THREADS, 0, stream->stream>>>(*softmax);
    return ith_cuda_check_launch(doing, said);
}
