/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the attention kernels for any CUDA device share: where a block finds its rows, keys, biases and masks,
 * and how a logit is masked. kernels/device.h has the contract of a call, and kernels/ref/attn_f32_ref.c defines the
 * results. */
#ifndef ITH_KERNELS_CUDA_ATTN_CALL_CUH
#define ITH_KERNELS_CUDA_ATTN_CALL_CUH

#include "../kernel.h"
#include "cuda_device.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>
#include <math_constants.h>
#include <stdio.h>

namespace
{

constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

/* A row's bits may not depend on its place in the block. So products that are added to something are written as
 * __fmul_rn or fmaf: the compiler could fuse one of them with its sum and not another. */

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

__device__ inline float to_f32(float x)
{
    return x;
}

__device__ inline float to_f32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

__device__ inline float to_f32(__half x)
{
    return __half2float(x);
}

__device__ inline void from_f32(float *to, float x)
{
    *to = x;
}

__device__ inline void from_f32(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

__device__ inline void from_f32(__half *to, float x)
{
    *to = __float2half_rn(x);
}

/* 2^x with an error of at most 2 units in the last place. Results below 2^-126 become 0. */
__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The offset that is subtracted from the logits of a row: m, or 0 if m is not finite. m is -inf while no key was seen,
 * so that 2^(m - 0) = 0. */
__device__ inline float shift_of(float m)
{
    return isfinite(m) ? m : 0.0f;
}

/* ---- Background copies ------------------------------------------------------------------------------------------ */

__device__ inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Copies 16 bytes from global to shared memory in the background, or writes 16 zeros if `present` is false. */
__device__ inline void copy_16_bytes(void *to, const void *from, bool present)
{
    int bytes = present ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

/* Waits for the copies that this thread has begun. */
__device__ inline void wait_for_copies()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Ends a group of background copies, which wait_for_groups counts. */
__device__ inline void end_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this thread's background copies, except for the last LEFT groups. */
template <int LEFT> __device__ void wait_for_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* ---- Where a block finds its work ------------------------------------------------------------------------------ */

/* The work of a block: the queries of one head from `row` on. */
struct block_place {
    int64_t index, head, entry, row; /* head = call.first + index; entry: its batch entry */
};

/* Blocks of the same head follow one another, so that they share its keys and values in the cache. */
__device__ inline block_place place_of(const ith_device_attend &call, int64_t block_rows)
{
    int64_t blocks = (call.q_rows + block_rows - 1) / block_rows;
    block_place place;
    place.index = blockIdx.x / blocks;
    place.head = call.first + place.index;
    place.entry = place.head / call.heads;
    place.row = blockIdx.x % blocks * block_rows;
    return place;
}

/* Whether the block has nothing to do: the call was cancelled, or the head uses the other softmax. All threads of the
 * block get the same answer. */
__device__ inline bool is_idle(const ith_device_attend &call, const block_place &place)
{
    bool others = call.fixed && (call.fixed[place.index] != 0) != (call.softmax == ITH_SOFTMAX_FIXED_M);
    bool halted = call.halt && *(const volatile int32_t *)call.halt != 0;
    return __syncthreads_or(others || halted);
}

/* The number of keys of a batch entry in this shard. */
__device__ inline int64_t keys_of(const ith_device_attend &call, const block_place &place)
{
    return call.keys ? call.keys[place.entry] : call.kv_rows;
}

/* Row 0 of head n. */
template <typename T> __device__ inline T *rows_of(const ith_device_rows &rows, int64_t n, int64_t head_dim)
{
    int64_t head = n - rows.first;
    return (T *)rows.data + head / rows.heads * rows.batch_stride + head % rows.heads * head_dim;
}

/* ---- Biases and masks ------------------------------------------------------------------------------------------ */

/* The biases and the mask that are added to the logits of one head. */
struct logit_terms {
    const float *bias; /* of the first key, or NULL */
    const char *mask;  /* the mask of query 0 and key 0 */
};

__device__ inline logit_terms terms_of(const ith_device_attend &call, const block_place &place)
{
    logit_terms terms = {nullptr, nullptr};
    if (call.key_bias)
        terms.bias = call.key_bias + place.entry * call.key_bias_stride;
    int64_t at = place.entry * call.mask_batch_stride + place.head % call.heads * call.mask_head_stride;
    if (call.mask_kind != ITH_MASK_NONE)
        terms.mask = (const char *)call.mask + at * (call.mask_kind == ITH_MASK_BOOL ? 1 : (int64_t)sizeof(float));
    return terms;
}

/* Multiplies a bias or mask by log2(e), for logits in base 2. A finite number stays finite. */
__device__ inline float to_base2(float x)
{
    float y = __fmul_rn(x, LOG2_E);
    return isinf(y) && !isinf(x) ? copysignf(FLT_MAX, x) : y;
}

/* The logit s, in base 2, of query i and key j with its bias and mask. A hidden logit becomes -inf, even if s is NaN. A
 * finite mask leaves a finite logit finite. */
__device__ inline float add_terms(const ith_device_attend &call, const logit_terms &terms, int64_t i, int64_t j,
                                  float s)
{
    if (terms.bias) {
        float bias = terms.bias[j];
        s = bias == -CUDART_INF_F ? -CUDART_INF_F : s + to_base2(bias);
    }
    if (call.mask_kind == ITH_MASK_NONE || s == -CUDART_INF_F)
        return s;
    int64_t at = i * call.mask_row_stride + j;
    if (call.mask_kind == ITH_MASK_BOOL)
        return ((const uint8_t *)terms.mask)[at] != 0 ? s : -CUDART_INF_F;
    float mask = ((const float *)terms.mask)[at];
    s += to_base2(mask);
    if (mask == -CUDART_INF_F)
        return -CUDART_INF_F;
    return s < -FLT_MAX ? -FLT_MAX : s;
}

/* ---- State and results ----------------------------------------------------------------------------------------- */

/* The state of a row when a call begins. Row `at` of the state is place.index * q_rows + the number of the query. */
__device__ inline void load_m_l(const ith_device_attend &call, int64_t at, float *m, float *l)
{
    *m = call.softmax == ITH_SOFTMAX_FIXED_M || !call.first_shard ? call.m[at] : -CUDART_INF_F;
    *l = call.first_shard ? 0.0f : call.l[at];
}

/* Stores m and l of a row for the next call or, at the last shard, its lse. */
__device__ inline void store_m_l(const ith_device_attend &call, const block_place &place, int64_t row, float m, float l)
{
    int64_t at = place.index * call.q_rows + row;
    if (!call.last_shard) {
        if (call.softmax == ITH_SOFTMAX_ONLINE)
            call.m[at] = m;
        call.l[at] = l;
    } else if (call.lse) {
        call.lse[place.index * call.lse_stride + row] = l == 0.0f ? -CUDART_INF_F : (m + log2f(l)) * LN_2;
    }
}

} // namespace

/* ---- Starting a kernel ----------------------------------------------------------------------------------------- */

/* The number of blocks of threads of a call, or 0 with a sentence if there are too many. */
static inline int64_t ith_cuda_attn_blocks(const ith_device_attend *call, int64_t block_rows, char *said)
{
    int64_t blocks = (call->q_rows + block_rows - 1) / block_rows;
    if (blocks <= INT32_MAX / call->count)
        return blocks * call->count;
    snprintf(said, ITH_DEVICE_SENTENCE, "attention of %lld heads of %lld queries is too large for one call on the GPU",
             (long long)call->count, (long long)call->q_rows);
    return 0;
}

#endif
