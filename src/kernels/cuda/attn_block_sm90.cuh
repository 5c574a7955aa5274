/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the parts of the Hopper attention kernel (attn_16bit_sm90.cuh) share: the arguments of a call, and
 * the shared memory of a block of threads with its tiles, rings and barriers. */
#ifndef ITH_KERNELS_CUDA_ATTN_BLOCK_SM90_H
#define ITH_KERNELS_CUDA_ATTN_BLOCK_SM90_H

#include "tma_sm90.cuh"

enum {
    ROWS = 64,  /* queries of a warpgroup */
    STRIP = 64, /* numbers of a strip (wgmma_sm90.cuh) */
    STAGES = 2, /* tiles of keys, and as many of values, in shared memory */
    GROUPS_MOST = 3,
    GROUP_BARRIER = 1, /* the first of the barriers of threads, one for each warpgroup */
    NO_ITEM = -1
};

/* Rows of heads: row s of head n begins at data + (n - first) / heads * batch_stride + s * row_stride +
 * (n - first) % heads * D. */
typedef struct head_rows {
    int first, heads;
} head_rows;

typedef struct attend_arguments {
    CUtensorMap q_map, k_map, v_map; /* [D, heads, rows, batch] */
    head_rows q, k, v, o;
    void *o_data;
    int64_t o_row_stride, o_batch_stride;
    int first, heads, per_kv;
    int q_rows, kv_rows;
    int64_t items, items_per_head;
    float c;
    bool wants_fixed, first_shard, last_shard;
    const uint8_t *fixed;
    const int32_t *keys, *halt;
    float *o_sum, *m, *l, *lse;
    int64_t lse_stride;
} attend_arguments;

/* The data that a block of threads keeps in shared memory besides tiles. full: the tile was loaded; empty: all have
 * read it. */
typedef struct shared_state {
    uint64_t q_full[GROUPS_MOST], q_empty[GROUPS_MOST];
    uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    int64_t item[GROUPS_MOST]; /* the item of the tile of queries, or NO_ITEM */
} shared_state;

/* A stage of a ring, and the parity of the phase in which it is full. */
typedef struct ring_place {
    uint32_t stage, parity;
} ring_place;

__device__ __forceinline__ void advance(ring_place &place)
{
    if (++place.stage == STAGES) {
        place.stage = 0;
        place.parity ^= 1;
    }
}

template <int D, int KEYS, int GROUPS> constexpr int q_bytes = GROUPS *ROWS *D * 2;
template <int D, int KEYS> constexpr int stage_bytes = KEYS *D * 2;
/* Bytes of shared memory: tiles, the state, and room to align to 1024. */
template <int D, int KEYS, int GROUPS>
constexpr int shared_bytes = q_bytes<D, KEYS, GROUPS> + 2 * STAGES *stage_bytes<D, KEYS> + (int)sizeof(shared_state) +
                             1024;

/* Places of tiles in shared memory. */
template <int D, int KEYS, int GROUPS> __device__ __forceinline__ uint32_t q_tile(uint32_t tiles, int group)
{
    return tiles + (uint32_t)(group * ROWS * D * 2);
}

template <int D, int KEYS, int GROUPS> __device__ __forceinline__ uint32_t k_tile(uint32_t tiles, uint32_t stage)
{
    return tiles + (uint32_t)q_bytes<D, KEYS, GROUPS> + stage * (uint32_t)stage_bytes<D, KEYS>;
}

template <int D, int KEYS, int GROUPS> __device__ __forceinline__ uint32_t v_tile(uint32_t tiles, uint32_t stage)
{
    return k_tile<D, KEYS, GROUPS>(tiles, STAGES + stage);
}

__device__ __forceinline__ int count_keys(const attend_arguments &a, int head)
{
    return a.keys ? a.keys[head / a.heads] : a.kv_rows;
}

/* Waits until a tile is loaded. */
__device__ __forceinline__ void wait_for(uint64_t *full, const ring_place &place)
{
    barrier_wait(shared_address(&full[place.stage]), place.parity);
}

/* One thread of each warp tells that the warp has read a tile. */
__device__ __forceinline__ void release(uint64_t *empty, const ring_place &place, int lane)
{
    if (lane == 0)
        barrier_arrive(shared_address(&empty[place.stage]));
}

#endif
