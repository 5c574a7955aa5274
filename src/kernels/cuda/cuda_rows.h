/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the kernels over rows share: where the rows of a head lie, which keys are absent, the widest unit of a
 * copy, and grids of blocks. CUDA C++. */
#ifndef ITH_KERNELS_CUDA_ROWS_H
#define ITH_KERNELS_CUDA_ROWS_H

#include "cuda_device.h"

#include "../../base/size.h"

#include <math.h>
#include <stdio.h>

/* The largest head_dim, as in kernel.h. */
enum { CUDA_HEAD_DIM_MAX = 1 << 16 };

/* The first number of row 0 of a head, as an offset from rows.data in elements. Heads are fewer than 2^31
 * (cuda_check_rows). */
static __host__ __device__ inline int64_t cuda_head_offset(const ith_device_rows &rows, int64_t head, int64_t head_dim)
{
    uint32_t n = (uint32_t)(head - rows.first), heads = (uint32_t)rows.heads;
    return (int64_t)(n / heads) * rows.batch_stride + (int64_t)(n % heads) * head_dim;
}

/* The keys of a batch entry: rows [0, count), except those with a bias of -INFINITY. */
typedef struct cuda_keys {
    int64_t count;
    const float *bias; /* NULL: none */
} cuda_keys;

/* The keys of a kv head. call: a struct that has keys, key_bias, kv_heads and kv_rows. */
template <typename Call> static __device__ inline cuda_keys cuda_keys_of(const Call &call, int64_t kv_head)
{
    uint32_t entry = (uint32_t)kv_head / (uint32_t)call.kv_heads;
    cuda_keys all = {call.kv_rows, NULL};
    if (call.keys)
        all.count = call.keys[entry];
    if (call.key_bias)
        all.bias = call.key_bias + (int64_t)entry * call.key_bias_stride;
    return all;
}

static __device__ inline bool cuda_has_key(const cuda_keys &keys, int64_t row)
{
    return row < keys.count && !(keys.bias && keys.bias[row] == -INFINITY);
}

/* Checks the sizes of a call with heads [first, first + count) of `rows`. `heads` of them belong to one batch entry. */
static inline ith_status cuda_check_rows(ith_dtype dtype, int64_t head_dim, int64_t first, int64_t count, int64_t heads,
                                         const ith_device_rows *rows, const char *doing, char *said)
{
    bool heads_fit = first >= 0 && count >= 0 && first <= INT32_MAX - count && heads >= 1 && heads <= INT32_MAX &&
                     rows->heads >= 1 && rows->heads <= INT32_MAX;
    if (heads_fit && head_dim >= 1 && head_dim <= CUDA_HEAD_DIM_MAX &&
        (dtype == ITH_F32 || dtype == ITH_BF16 || dtype == ITH_F16))
        return ITH_OK;
    snprintf(said, ITH_DEVICE_SENTENCE,
             "%s: a GPU takes f32, bf16 and f16, a head_dim from 1 to %d, and fewer than 2^31 heads", doing,
             (int)CUDA_HEAD_DIM_MAX);
    return ITH_ERR_UNSUPPORTED;
}

/* Checks that a grid of a * b * c blocks can be started, and sets *blocks to their number. */
static inline ith_status cuda_grid(int64_t a, int64_t b, int64_t c, unsigned *blocks, const char *doing, char *said)
{
    int64_t all = 0;
    if (ith_size_mul(a, b, &all) && ith_size_mul(all, c, &all) && all <= INT32_MAX) {
        *blocks = (unsigned)all;
        return ITH_OK;
    }
    snprintf(said, ITH_DEVICE_SENTENCE, "%s: the call has more blocks of rows than the 2^31 - 1 of one grid", doing);
    return ITH_ERR_UNSUPPORTED;
}

/* The most bytes, 1, 2, 4, 8 or 16, that divide each of some addresses and sizes. bits: all of them, joined by `|`. */
static inline int cuda_unit(uint64_t bits)
{
    int unit = 16;
    while (bits & (uint64_t)(unit - 1))
        unit /= 2;
    return unit;
}

#endif
