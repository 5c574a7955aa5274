/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on Hopper: bf16 or f16, head_dim 64 or 128, by the equations of kernels/kernel.h,
 *
 *     s_ij = c q_i . k_j,  p_ij = 2^(s_ij - m_i),  l_i = sum_j p_ij,  o_i = sum_j p_ij v_j,  c = log2(e) scale.
 *
 * A work item is GROUPS * 64 queries of one head (of each block of a cluster, where CLUSTER blocks share keys). Blocks of
 * threads live as long as the call, and take items in order, head by head, so that the keys of a head stay in the L2
 * cache. A block has one warp that loads tiles of queries, keys and values into shared memory by TMA (load_items), and
 * GROUPS warpgroups that compute, with 64 queries each (attend_items).
 *
 * A warpgroup holds in registers the logits of one tile of keys [64, KEYS], which become p; p in 16 bits as an operand;
 * and o [64, D]. It issues the products for the logits of a tile, then p v of the tile before. While p v is computed, it
 * makes p from the logits. Tiles are visited from the last to the first, so that only the first step of an item meets
 * columns without keys. The warpgroups take turns to issue products: while one computes p, the matrix units work for the
 * other. TURNS: 0, they do not; 1, a turn ends after the last product that it issues; n + 1, n products earlier. */
#ifndef ITH_KERNELS_CUDA_ATTN_16BIT_SM90_H
#define ITH_KERNELS_CUDA_ATTN_16BIT_SM90_H

#include "tma_sm90.cuh"
#include "wgmma_sm90.cuh"

#include <math.h>

enum {
    ROWS = 64,  /* queries of a warpgroup */
    STRIP = 64, /* numbers of a strip (wgmma_sm90.cuh) */
    STAGES = 2, /* tiles of keys, and as many of values, in shared memory */
    GROUPS_MOST = 3,
    FIRST_TURN_BARRIER = 1, /* barriers of threads: GROUPS for the turns, then one for each warpgroup */
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
    int q_rows, kv_rows, item_rows;
    int64_t items, items_per_head;
    float c;
    bool wants_fixed, first_shard, last_shard;
    const uint8_t *fixed;
    const int32_t *keys, *halt;
    float *o_sum, *m, *l, *lse;
    int64_t lse_stride;
} attend_arguments;

/* What a block of threads keeps in shared memory besides tiles. full: the tile was loaded; empty: all have read it. */
typedef struct shared_state {
    uint64_t q_full[GROUPS_MOST], q_empty[GROUPS_MOST];
    uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    uint64_t go, go_read;      /* of clusters: the first block tells the others whether to go on */
    int64_t item[GROUPS_MOST]; /* the item of the tile of queries, or NO_ITEM */
    uint32_t goes;
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

/* ---- The warp that loads ---------------------------------------------------------------------------------------- */

/* Loads the part of a tile of keys or values that this block contributes: all of it, or KEYS / CLUSTER rows that go to
 * all blocks of the cluster. */
template <int D, int KEYS, int CLUSTER>
__device__ __forceinline__ void load_tile(uint32_t tile, const CUtensorMap *map, const head_rows &rows, int head,
                                          int row, uint32_t full, uint32_t empty, uint32_t parity, uint32_t rank)
{
    const int part = KEYS / CLUSTER;
    static_assert(part % 8 == 0, "the swizzle repeats every 8 rows");
    const int place = head - rows.first;
    if constexpr (CLUSTER > 1)
        barrier_wait_cluster(empty, parity ^ 1);
    else
        barrier_wait(empty, parity ^ 1);
    barrier_arrive_expect(full, (uint32_t)stage_bytes<D, KEYS>);
#pragma unroll
    for (int strip = 0; strip < D / STRIP; strip++) {
        const uint32_t to = tile + (uint32_t)strip * KEYS * STRIP * 2 + rank * part * STRIP * 2;
        if constexpr (CLUSTER > 1)
            copy_box_to(to, map, strip * STRIP, place % rows.heads, row + (int)rank * part, place / rows.heads, full,
                        (uint16_t)((1 << CLUSTER) - 1));
        else
            copy_box(to, map, strip * STRIP, place % rows.heads, row, place / rows.heads, full);
    }
}

/* Hands an item to a warpgroup, with its queries if they are needed. */
template <int D>
__device__ __forceinline__ void hand_out(const attend_arguments &a, shared_state *state, uint32_t tile, int group,
                                         int64_t item, bool loads, int head, int row, uint32_t parity)
{
    const uint32_t full = shared_address(&state->q_full[group]);
    barrier_wait(shared_address(&state->q_empty[group]), parity ^ 1);
    *(volatile int64_t *)&state->item[group] = item;
    if (!loads) {
        barrier_arrive(full);
        return;
    }
    const int place = head - a.q.first;
    barrier_arrive_expect(full, ROWS * D * 2);
#pragma unroll
    for (int strip = 0; strip < D / STRIP; strip++)
        copy_box(tile + (uint32_t)strip * ROWS * STRIP * 2, &a.q_map, strip * STRIP, place % a.q.heads, row,
                 place / a.q.heads, full);
}

/* Whether to compute the next item: the call was not cancelled. Blocks of a cluster must agree, so that the first one
 * reads `halt` and tells the others. */
template <int CLUSTER>
__device__ __forceinline__ bool goes_on(const attend_arguments &a, shared_state *state, uint32_t rank, uint32_t parity)
{
    if constexpr (CLUSTER == 1)
        return *(const volatile int32_t *)a.halt == 0;
    const uint32_t go = shared_address(&state->go), read = shared_address(&state->go_read);
    if (rank == 0) {
        const bool goes = *(const volatile int32_t *)a.halt == 0;
        barrier_wait_cluster(read, parity ^ 1);
        for (uint32_t other = 1; other < CLUSTER; other++)
            send(shared_address(&state->goes), goes, go, other);
        return goes;
    }
    barrier_arrive_expect(go, 4);
    barrier_wait_cluster(go, parity);
    const bool goes = *(volatile uint32_t *)&state->goes != 0;
    barrier_arrive_at(read, 0);
    return goes;
}

/* One thread loads the tiles of all items of the block, in the order in which attend_items reads them. */
template <int D, int KEYS, int GROUPS, int CLUSTER>
__device__ void load_items(const attend_arguments &a, shared_state *state, uint32_t tiles)
{
    const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
    ring_place k_place = {0, 0}, v_place = {0, 0};
    uint32_t q_parity = 0;
    for (int64_t item = blockIdx.x / CLUSTER; item < a.items; item += gridDim.x / CLUSTER) {
        const int place = (int)(item / a.items_per_head), head = a.first + place, kv_head = head / a.per_kv;
        const int row = (int)(item % a.items_per_head) * a.item_rows + (int)rank * GROUPS * ROWS;
        if (a.fixed && (a.fixed[place] != 0) != a.wants_fixed)
            continue;
        if (!goes_on<CLUSTER>(a, state, rank, q_parity))
            break;
        int count = (count_keys(a, head) + KEYS - 1) / KEYS;
        const bool any = count > 0;
        for (int tile = count - 1; tile >= -1 && any; tile--) {
            if (tile >= 0) {
                load_tile<D, KEYS, CLUSTER>(k_tile<D, KEYS, GROUPS>(tiles, k_place.stage), &a.k_map, a.k, kv_head,
                                            tile * KEYS, shared_address(&state->k_full[k_place.stage]),
                                            shared_address(&state->k_empty[k_place.stage]), k_place.parity, rank);
                advance(k_place);
            }
            if (tile == count - 1) {
                for (int group = 0; group < GROUPS; group++)
                    hand_out<D>(a, state, q_tile<D, KEYS, GROUPS>(tiles, group), group, item, true, head,
                                row + group * ROWS, q_parity);
            } else {
                load_tile<D, KEYS, CLUSTER>(v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), &a.v_map, a.v, kv_head,
                                            (tile + 1) * KEYS, shared_address(&state->v_full[v_place.stage]),
                                            shared_address(&state->v_empty[v_place.stage]), v_place.parity, rank);
                advance(v_place);
            }
        }
        for (int group = 0; group < GROUPS && !any; group++)
            hand_out<D>(a, state, 0, group, item, false, head, row, q_parity);
        q_parity ^= 1;
    }
    for (int group = 0; group < GROUPS; group++)
        hand_out<D>(a, state, 0, group, NO_ITEM, false, 0, 0, q_parity);
}

/* ---- The warpgroups that compute -------------------------------------------------------------------------------- */

/* Where a thread's numbers lie: rows `row` + 8 i of the tile, columns 8 j + column + e. */
typedef struct thread_place {
    int group, warp, lane, row, column;
} thread_place;

/* One thread of each warp tells that the warp has read a tile, in all blocks of the cluster. */
template <int CLUSTER> __device__ __forceinline__ void release(uint64_t *empty, const thread_place &thread)
{
    if (CLUSTER == 1 && thread.lane == 0)
        barrier_arrive(shared_address(empty));
    else if (CLUSTER > 1 && thread.lane < CLUSTER)
        barrier_arrive_at(shared_address(empty), (uint32_t)thread.lane);
}

/* s = q k^T, enqueued. */
template <typename T, int D, int KEYS>
__device__ __forceinline__ void enqueue_logits(float (&s)[KEYS / 2], uint32_t q, uint32_t k)
{
    const uint64_t q_matrix = wgmma_descriptor(q, 16), k_matrix = wgmma_descriptor(k, 16);
    wgmma_shared<T, KEYS, false>(s, q_matrix, k_matrix);
#pragma unroll
    for (int step = 1; step < D / 16; step++) {
        const int strip = step / 4, piece = step % 4 * 2;
        wgmma_shared<T, KEYS, true>(s, q_matrix + strip * ROWS * 8 + piece, k_matrix + strip * KEYS * 8 + piece);
    }
    wgmma_commit();
}

/* o += p v, enqueued. If HANDOVER >= 0, the next warpgroup gets its turn to issue products before step HANDOVER. */
template <typename T, int D, int KEYS, int HANDOVER>
__device__ __forceinline__ void enqueue_outputs(float (&o)[D / 2], const uint32_t (&p)[KEYS / 4], uint32_t v,
                                                int next_turn)
{
    const uint64_t v_matrix = wgmma_descriptor(v, KEYS * STRIP * 2);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        if (step == HANDOVER)
            threads_arrive<256>(next_turn);
        wgmma_registers<T, D>(o, p + 4 * step, v_matrix + step * 128);
    }
    wgmma_commit();
    if (HANDOVER == KEYS / 16)
        threads_arrive<256>(next_turn);
}

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

template <typename T, int KEYS>
__device__ __forceinline__ void round_tile(uint32_t (&p)[KEYS / 4], const float (&s)[KEYS / 2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        p[i] = round_pair<T>(s[2 * i], s[2 * i + 1]);
}

/* The state of a thread's two rows. l: the sum of the thread's own columns. shrink: what o and l of the rows were, or are
 * to be, multiplied with because m has grown. */
typedef struct row_state {
    float m[2], l[2], shrink[2];
} row_state;

/* Moves m to the maximum of the rows. */
template <int KEYS> __device__ __forceinline__ void move_offsets(row_state &rows, const float (&s)[KEYS / 2], float c)
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
        const float m = fmaxf(rows.m[i], most * c);
        rows.shrink[i] = m == -INFINITY ? 1 : power_of_2(rows.m[i] - m);
        rows.m[i] = m;
        rows.l[i] *= rows.shrink[i];
    }
}

/* s becomes p, and its sums are added to l. */
template <int KEYS> __device__ __forceinline__ void exponentiate(float (&s)[KEYS / 2], row_state &rows, float c)
{
    const float offsets[2] = {rows.m[0] == -INFINITY ? 0 : rows.m[0], rows.m[1] == -INFINITY ? 0 : rows.m[1]};
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        s[i] = power_of_2(fmaf(s[i], c, -offsets[i / 2 % 2]));
        sums[i % 4] += s[i];
    }
    rows.l[0] += sums[0] + sums[1];
    rows.l[1] += sums[2] + sums[3];
}

template <int KEYS, bool FIXED>
__device__ __forceinline__ void make_probabilities(float (&s)[KEYS / 2], row_state &rows, float c)
{
    if constexpr (!FIXED)
        move_offsets<KEYS>(rows, s, c);
    exponentiate<KEYS>(s, rows, c);
}

/* o of rows whose m has grown. A warp without such rows skips the multiplications by 1. */
template <int D> __device__ __forceinline__ void shrink_outputs(float (&o)[D / 2], const row_state &rows)
{
    if (!__any_sync(0xffffffff, rows.shrink[0] != 1 || rows.shrink[1] != 1))
        return;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] *= rows.shrink[i / 2 % 2];
}

/* Logits of columns from `keys` on become -infinity. */
template <int KEYS>
__device__ __forceinline__ void hide_columns(float (&s)[KEYS / 2], int keys, const thread_place &thread)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        if (i / 4 * 8 + thread.column + i % 2 >= keys)
            s[i] = -INFINITY;
}

/* Rows of values from `keys` on become zeros: their p is 0, but they may hold infinity or NaN. */
template <int D, int KEYS>
__device__ __forceinline__ void clear_rows(uint32_t tile, int keys, const thread_place &thread)
{
    const int thread_number = 32 * thread.warp + thread.lane;
    for (int strip = 0; strip < D / STRIP; strip++)
        for (int piece = keys * 8 + thread_number; piece < KEYS * 8; piece += 128)
            asm volatile(
                "st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(tile + (uint32_t)(strip * KEYS * 8 + piece) * 16),
                "r"(0)
                : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    threads_sync<128>(FIRST_TURN_BARRIER + GROUPS_MOST + thread.group);
}

/* The end of a step: waits for the products p v of the step before, if there was one, and makes p and o ready for the next
 * ones. It follows a wait or a branch, so that the compiler does not move the wait for the products up, before the
 * exponentials. */
template <typename T, int D, int KEYS, int CLUSTER, bool FIXED>
__device__ __forceinline__ void finish_step(shared_state *state, bool was_step, const thread_place &thread,
                                            float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 4], float (&o)[D / 2],
                                            const row_state &rows, ring_place &v_place)
{
    wgmma_wait<0>();
    pin(o);
    pin(s);
    if (was_step) {
        release<CLUSTER>(&state->v_empty[v_place.stage], thread);
        advance(v_place);
    }
    round_tile<T, KEYS>(p, s);
    if constexpr (!FIXED)
        shrink_outputs<D>(o, rows);
}

/* Everything that a warpgroup computes for an item with at least one key. */
template <typename T, int D, int KEYS, int GROUPS, int CLUSTER, bool FIXED, int TURNS>
__device__ __forceinline__ void attend_tiles(const attend_arguments &a, shared_state *state, uint32_t tiles, int keys,
                                             const thread_place &thread, float (&o)[D / 2], row_state &rows,
                                             ring_place &k_place, ring_place &v_place)
{
    float s[KEYS / 2];
    uint32_t p[KEYS / 4];
    const uint32_t q = q_tile<D, KEYS, GROUPS>(tiles, thread.group);
    const int count = (keys + KEYS - 1) / KEYS, last_keys = keys - (count - 1) * KEYS;
    const int turn = FIRST_TURN_BARRIER + thread.group, next_turn = FIRST_TURN_BARRIER + (thread.group + 1) % GROUPS;

    barrier_wait(shared_address(&state->k_full[k_place.stage]), k_place.parity);
    wgmma_fence();
    enqueue_logits<T, D, KEYS>(s, q, k_tile<D, KEYS, GROUPS>(tiles, k_place.stage));
    wgmma_wait<0>();
    pin(s);
    release<CLUSTER>(&state->k_empty[k_place.stage], thread);
    advance(k_place);
    if (last_keys < KEYS)
        hide_columns<KEYS>(s, last_keys, thread);
    make_probabilities<KEYS, FIXED>(s, rows, a.c);
    if (last_keys < KEYS && keys < a.kv_rows) {
        barrier_wait(shared_address(&state->v_full[v_place.stage]), v_place.parity);
        clear_rows<D, KEYS>(v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), last_keys, thread);
    }

    for (int tile = count - 2; tile >= 0; tile--) {
        barrier_wait(shared_address(&state->k_full[k_place.stage]), k_place.parity);
        finish_step<T, D, KEYS, CLUSTER, FIXED>(state, tile < count - 2, thread, s, p, o, rows, v_place);
        barrier_wait(shared_address(&state->v_full[v_place.stage]), v_place.parity);
        if constexpr (TURNS)
            threads_sync<256>(turn);
        wgmma_fence();
        enqueue_logits<T, D, KEYS>(s, q, k_tile<D, KEYS, GROUPS>(tiles, k_place.stage));
        enqueue_outputs<T, D, KEYS, TURNS ? KEYS / 16 + 1 - TURNS : -1>(
            o, p, v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), next_turn);
        wgmma_wait<1>();
        pin(s);
        release<CLUSTER>(&state->k_empty[k_place.stage], thread);
        advance(k_place);
        make_probabilities<KEYS, FIXED>(s, rows, a.c);
    }
    if (thread.lane == 0)
        barrier_arrive(shared_address(&state->q_empty[thread.group]));
    finish_step<T, D, KEYS, CLUSTER, FIXED>(state, count > 1, thread, s, p, o, rows, v_place);
    barrier_wait(shared_address(&state->v_full[v_place.stage]), v_place.parity);
    wgmma_fence();
    enqueue_outputs<T, D, KEYS, -1>(o, p, v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), 0);
    wgmma_wait<0>();
    pin(o);
    release<CLUSTER>(&state->v_empty[v_place.stage], thread);
    advance(v_place);
}

/* The state before the first tile. `at` numbers the row among those of the state, and counts only if it exists. */
template <int D, bool FIXED>
__device__ __forceinline__ void read_state(const attend_arguments &a, const int64_t (&at)[2], const bool (&exists)[2],
                                           const thread_place &thread, float (&o)[D / 2], row_state &rows)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool reads = exists[i] && !a.first_shard;
        rows.m[i] = reads || (FIXED && exists[i]) ? a.m[at[i]] : FIXED ? 0 : -INFINITY;
        rows.l[i] = reads && thread.lane % 4 == 0 ? a.l[at[i]] : 0;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            float2 pair = make_float2(0, 0);
            if (reads)
                pair = *(const float2 *)(a.o_sum + at[i] * D + 8 * j + thread.column);
            o[4 * j + 2 * i] = pair.x;
            o[4 * j + 2 * i + 1] = pair.y;
        }
    }
}

template <int D, bool FIXED>
__device__ __forceinline__ void write_state(const attend_arguments &a, const int64_t (&at)[2], const bool (&exists)[2],
                                            const thread_place &thread, const float (&o)[D / 2], const row_state &rows)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!exists[i])
            continue;
        if (thread.lane % 4 == 0) {
            a.l[at[i]] = rows.l[i];
            if (!FIXED)
                a.m[at[i]] = rows.m[i];
        }
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(float2 *)(a.o_sum + at[i] * D + 8 * j + thread.column) =
                make_float2(o[4 * j + 2 * i], o[4 * j + 2 * i + 1]);
    }
}

/* Four threads hold words of four pieces each, thread t word t of each piece. Afterwards thread t holds piece t. */
__device__ __forceinline__ void gather_piece(uint32_t (&words)[4], int lane)
{
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & bit)
                continue;
            const bool upper = lane & bit;
            const uint32_t other = __shfl_xor_sync(0xffffffff, upper ? words[i] : words[i | bit], bit);
            if (upper)
                words[i] = other;
            else
                words[i | bit] = other;
        }
}

/* o / l in 16 bits, and lse. Rows without keys get 0 and -infinity. */
template <typename T, int D>
__device__ __forceinline__ void write_outputs(const attend_arguments &a, int place, int row, const bool (&exists)[2],
                                              const thread_place &thread, float (&o)[D / 2], const row_state &rows)
{
    const int o_place = a.first + place - a.o.first;
    T *head = (T *)a.o_data + o_place / a.o.heads * a.o_batch_stride + (int64_t)(o_place % a.o.heads) * D;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float part = rows.l[i] == 0 ? 0 : 1 / rows.l[i];
#pragma unroll
        for (int j = 0; j < D / 8; j += 4) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                words[k] = round_pair<T>(o[4 * (j + k) + 2 * i] * part, o[4 * (j + k) + 2 * i + 1] * part);
            gather_piece(words, thread.lane);
            if (exists[i])
                *(uint4 *)(head + (int64_t)(row + 8 * i) * a.o_row_stride + 8 * (j + thread.lane % 4)) =
                    make_uint4(words[0], words[1], words[2], words[3]);
        }
        if (a.lse && exists[i] && thread.lane % 4 == 0)
            a.lse[place * a.lse_stride + row + 8 * i] =
                rows.l[i] == 0 ? -INFINITY : (rows.m[i] + log2f(rows.l[i])) * 0.693147180559945f;
    }
}

template <typename T, int D, int KEYS, int GROUPS, int CLUSTER, bool FIXED, int TURNS>
__device__ void attend_items(const attend_arguments &a, shared_state *state, uint32_t tiles, const thread_place &thread)
{
    const int rank = CLUSTER > 1 ? (int)cluster_rank() : 0;
    ring_place k_place = {0, 0}, v_place = {0, 0};
    /* The last warpgroup gives the first its first turn. */
    if (TURNS && thread.group == GROUPS - 1)
        threads_arrive<256>(FIRST_TURN_BARRIER);
    for (uint32_t parity = 0;; parity ^= 1) {
        float o[D / 2];
        row_state rows;
        barrier_wait(shared_address(&state->q_full[thread.group]), parity);
        const int64_t item = *(volatile int64_t *)&state->item[thread.group];
        if (item == NO_ITEM)
            break;
        const int place = (int)(item / a.items_per_head);
        const int row =
            (int)(item % a.items_per_head) * a.item_rows + (rank * GROUPS + thread.group) * ROWS + thread.row;
        const int keys = count_keys(a, a.first + place);
        const bool exists[2] = {row < a.q_rows, row + 8 < a.q_rows};
        const int64_t at[2] = {(int64_t)place * a.q_rows + row, (int64_t)place * a.q_rows + row + 8};
        read_state<D, FIXED>(a, at, exists, thread, o, rows);
        if (keys > 0)
            attend_tiles<T, D, KEYS, GROUPS, CLUSTER, FIXED, TURNS>(a, state, tiles, keys, thread, o, rows, k_place,
                                                                    v_place);
        else if (thread.lane == 0)
            barrier_arrive(shared_address(&state->q_empty[thread.group]));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rows.l[i] += __shfl_xor_sync(0xffffffff, rows.l[i], 1);
            rows.l[i] += __shfl_xor_sync(0xffffffff, rows.l[i], 2);
        }
        if (a.last_shard)
            write_outputs<T, D>(a, place, row, exists, thread, o, rows);
        else
            write_state<D, FIXED>(a, at, exists, thread, o, rows);
    }
    if (TURNS && thread.group == 0)
        threads_sync<256>(FIRST_TURN_BARRIER);
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <int GROUPS, int CLUSTER> __device__ __forceinline__ void init_barriers(shared_state *state)
{
    for (int group = 0; group < GROUPS; group++) {
        barrier_init(shared_address(&state->q_full[group]), 1);
        barrier_init(shared_address(&state->q_empty[group]), 4);
    }
    for (int stage = 0; stage < STAGES; stage++) {
        barrier_init(shared_address(&state->k_full[stage]), 1);
        barrier_init(shared_address(&state->k_empty[stage]), 4 * GROUPS * CLUSTER);
        barrier_init(shared_address(&state->v_full[stage]), 1);
        barrier_init(shared_address(&state->v_empty[stage]), 4 * GROUPS * CLUSTER);
    }
    barrier_init(shared_address(&state->go), 1);
    barrier_init(shared_address(&state->go_read), CLUSTER > 1 ? CLUSTER - 1 : 1);
    barrier_init_fence();
}

template <typename T, int D, int KEYS, int GROUPS, int CLUSTER, bool FIXED, int TURNS>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) attend_kernel(const __grid_constant__ attend_arguments a)
{
    extern __shared__ unsigned char memory[];
    const uint32_t begin = shared_address(memory), tiles = (begin + 1023) / 1024 * 1024;
    shared_state *state =
        (shared_state *)(memory + (tiles - begin) + q_bytes<D, KEYS, GROUPS> + 2 * STAGES * stage_bytes<D, KEYS>);
    if (threadIdx.x == 0)
        init_barriers<GROUPS, CLUSTER>(state);
    __syncthreads();
    if constexpr (CLUSTER > 1)
        cluster_sync();
    const int group = __shfl_sync(0xffffffff, (int)threadIdx.x / 128, 0);
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(GROUPS == 2 ? 40 : 32));
        if (threadIdx.x == 0)
            load_items<D, KEYS, GROUPS, CLUSTER>(a, state, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(GROUPS == 2 ? 232 : 160));
        thread_place thread;
        thread.group = group - 1;
        thread.warp = (int)threadIdx.x / 32 % 4;
        thread.lane = (int)threadIdx.x % 32;
        thread.row = 16 * thread.warp + thread.lane / 4;
        thread.column = thread.lane % 4 * 2;
        attend_items<T, D, KEYS, GROUPS, CLUSTER, FIXED, TURNS>(a, state, tiles, thread);
    }
    if constexpr (CLUSTER > 1)
        cluster_sync();
}

#endif
