/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on Hopper: bf16 or f16, head_dim 64 or 128, by the equations of kernels/kernel.h,
 *
 *     s_ij = c q_i . k_j,  p_ij = 2^(s_ij - m_i),  l_i = sum_j p_ij,  o_i = l_i / l'_i sum_j p'_ij v_j
 *
 * where c = log2(e) scale, p' is p rounded to 16 bits and l' the sum of p'. So o / l is a mean whose weights p' / l'
 * add up to 1, and m need not be the maximum of a row. With the online softmax, m is the maximum of the first tile of
 * keys, and is raised only when the probabilities of a later tile grow large (find_excess); that tile is then computed
 * once more. l' is not kept between calls: it starts as l.
 *
 * A work item is GROUPS * 64 queries of one head. Blocks of threads live as long as the call, and take items in order,
 * head by head, so that the keys of a head stay in the L2 cache. A block has one warp that loads tiles of queries, keys
 * and values into shared memory by TMA (load_items), and GROUPS warpgroups that compute, with 64 queries each
 * (attend_items).
 *
 * A warpgroup holds in registers the logits of one tile of keys [64, KEYS], which become p; p in 16 bits as an operand;
 * and o [64, D]. It issues the products for the logits of a tile, then p v of the tile before. While p v is computed,
 * it makes p from the logits. Tiles are visited from the last to the first, so that only the first step of an item
 * meets columns without keys. While one warpgroup computes p, the matrix units work for the others.
 *
 * The result of a row depends on its own numbers only: wherever a choice concerns a whole warp or warpgroup, rows that
 * did not ask for it get the same bits either way. */
#ifndef ITH_KERNELS_CUDA_ATTN_16BIT_SM90_H
#define ITH_KERNELS_CUDA_ATTN_16BIT_SM90_H

#include "attn_block_sm90.cuh"
#include "attn_softmax_sm90.cuh"

/* ---- The warp that loads ---------------------------------------------------------------------------------------- */

template <int D, int KEYS>
__device__ __forceinline__ void load_tile(uint32_t tile, const CUtensorMap *map, const head_rows &rows, int head,
                                          int row, uint64_t *full, uint64_t *empty, ring_place &to)
{
    const int place = head - rows.first;
    const uint32_t barrier = shared_address(&full[to.stage]);
    barrier_wait(shared_address(&empty[to.stage]), to.parity ^ 1);
    barrier_arrive_expect(barrier, (uint32_t)stage_bytes<D, KEYS>);
#pragma unroll
    for (int strip = 0; strip < D / STRIP; strip++)
        copy_box(tile + (uint32_t)strip * KEYS * STRIP * 2, map, strip * STRIP, place % rows.heads, row,
                 place / rows.heads, barrier);
    advance(to);
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

/* One thread loads the tiles of all items of the block, in the order in which attend_items reads them. */
template <int D, int KEYS, int GROUPS>
__device__ void load_items(const attend_arguments &a, shared_state *state, uint32_t tiles)
{
    ring_place k_place = {0, 0}, v_place = {0, 0};
    uint32_t q_parity = 0;
    for (int64_t item = blockIdx.x; item < a.items; item += gridDim.x) {
        const int place = (int)(item / a.items_per_head), head = a.first + place, kv_head = head / a.per_kv;
        const int row = (int)(item % a.items_per_head) * GROUPS * ROWS;
        if (a.fixed && (a.fixed[place] != 0) != a.wants_fixed)
            continue;
        if (*(const volatile int32_t *)a.halt != 0)
            break;
        const int count = (count_keys(a, head) + KEYS - 1) / KEYS;
        for (int i = 0; i <= count && count > 0; i++) {
            if (i < count)
                load_tile<D, KEYS>(k_tile<D, KEYS, GROUPS>(tiles, k_place.stage), &a.k_map, a.k, kv_head,
                                   (count - 1 - i) * KEYS, state->k_full, state->k_empty, k_place);
            if (i > 0)
                load_tile<D, KEYS>(v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), &a.v_map, a.v, kv_head,
                                   (count - i) * KEYS, state->v_full, state->v_empty, v_place);
            for (int group = 0; group < GROUPS && i == 0; group++)
                hand_out<D>(a, state, q_tile<D, KEYS, GROUPS>(tiles, group), group, item, true, head,
                            row + group * ROWS, q_parity);
        }
        for (int group = 0; group < GROUPS && count == 0; group++)
            hand_out<D>(a, state, 0, group, item, false, head, row, q_parity);
        q_parity ^= 1;
    }
    for (int group = 0; group < GROUPS; group++)
        hand_out<D>(a, state, 0, group, NO_ITEM, false, 0, 0, q_parity);
}

/* ---- The warpgroups that compute -------------------------------------------------------------------------------- */

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

/* o += p v, enqueued. */
template <typename T, int D, int KEYS>
__device__ __forceinline__ void enqueue_outputs(float (&o)[D / 2], const uint32_t (&p)[KEYS / 4], uint32_t v)
{
    const uint64_t v_matrix = wgmma_descriptor(v, KEYS * STRIP * 2);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++)
        wgmma_registers<T, D>(o, p + 4 * step, v_matrix + step * 128);
    wgmma_commit();
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
    threads_sync<128>(GROUP_BARRIER + thread.group);
}

/* The end of a step: waits for the products p v of the step before, if there was one, and makes p ready for the next
 * ones. It follows a wait or a branch, so that the compiler does not move the wait for the products up, before the
 * exponentials. */
template <typename T, int D, int KEYS>
__device__ __forceinline__ void finish_step(float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 4], float (&o)[D / 2],
                                            bool moved, const row_state &rows)
{
    wgmma_wait<0>();
    pin(o);
    pin(s);
    round_tile<T, KEYS>(p, s);
    if (moved)
        shrink_outputs<D>(o, rows);
}

/* p of a tile, from its logits s. With the online softmax, if a row of the warpgroup needs a larger m, the logits are
 * computed again, m is raised, and p is computed from the new m. */
template <typename T, int D, int KEYS>
__device__ __forceinline__ tile_sums make_probabilities(const attend_arguments &a, uint32_t q, uint32_t k,
                                                        const thread_place &thread, float (&s)[KEYS / 2],
                                                        row_state &rows, bool &moved)
{
    tile_sums sums = exponentiate<KEYS>(s, rows, a.c);
    moved = false;
    if (!a.wants_fixed) {
        bool moves[2];
        find_excess<T, KEYS>(moves, s, rows);
        const bool some = threads_any<128>(GROUP_BARRIER + thread.group, moves[0] || moves[1]);
        moved = __any_sync(0xffffffff, some); /* tells the compiler that the warp agrees */
        if (moved) {
#pragma unroll
            for (int i = 0; i < 2; i++)
                moves[i] = __ballot_sync(0xffffffff, moves[i]) >> thread.lane / 4 * 4 & 15;
            wgmma_fence();
            enqueue_logits<T, D, KEYS>(s, q, k);
            wgmma_wait<0>();
            pin(s);
            raise_offsets<KEYS>(rows, s, a.c, moves);
            sums = exponentiate<KEYS>(s, rows, a.c);
        }
    }
    rows.l[0] += sums.of[0];
    rows.l[1] += sums.of[1];
    return sums;
}

/* p of the first tile, which has `keys` keys. */
template <int KEYS>
__device__ __forceinline__ tile_sums make_first_probabilities(const attend_arguments &a, int keys,
                                                              const thread_place &thread, float (&s)[KEYS / 2],
                                                              row_state &rows)
{
    const bool all[2] = {true, true};
    if (keys < KEYS)
        hide_columns<KEYS>(s, keys, thread);
    if (!a.wants_fixed)
        raise_offsets<KEYS>(rows, s, a.c, all);
    const tile_sums sums = exponentiate<KEYS>(s, rows, a.c);
    rows.l[0] += sums.of[0];
    rows.l[1] += sums.of[1];
    return sums;
}

/* Everything that a warpgroup computes for an item with at least one key. */
template <typename T, int D, int KEYS, int GROUPS>
__device__ __forceinline__ void attend_tiles(const attend_arguments &a, shared_state *state, uint32_t tiles, int keys,
                                             const thread_place &thread, float (&o)[D / 2], row_state &rows,
                                             ring_place &k_place, ring_place &v_place)
{
    float s[KEYS / 2];
    uint32_t p[KEYS / 4];
    const uint32_t q = q_tile<D, KEYS, GROUPS>(tiles, thread.group);
    const int count = (keys + KEYS - 1) / KEYS, last_keys = keys - (count - 1) * KEYS;

    wait_for(state->k_full, k_place);
    wgmma_fence();
    enqueue_logits<T, D, KEYS>(s, q, k_tile<D, KEYS, GROUPS>(tiles, k_place.stage));
    wgmma_wait<0>();
    pin(s);
    release(state->k_empty, k_place, thread.lane);
    advance(k_place);
    tile_sums sums = make_first_probabilities<KEYS>(a, last_keys, thread, s, rows);
    bool moved = !a.wants_fixed && !a.first_shard;
    if (last_keys < KEYS && keys < a.kv_rows) {
        wait_for(state->v_full, v_place);
        clear_rows<D, KEYS>(v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), last_keys, thread);
    }

    float rounded[2];
    for (int tile = count - 2; tile >= 0; tile--) {
        const uint32_t k = k_tile<D, KEYS, GROUPS>(tiles, k_place.stage);
        wait_for(state->k_full, k_place);
        finish_step<T, D, KEYS>(s, p, o, moved, rows);
        if (tile < count - 2) {
            release(state->v_empty, v_place, thread.lane);
            advance(v_place);
        }
        wait_for(state->v_full, v_place);
        wgmma_fence();
        enqueue_logits<T, D, KEYS>(s, q, k);
        add_rounded<T, KEYS>(rounded, rows, p, sums);
        enqueue_outputs<T, D, KEYS>(o, p, v_tile<D, KEYS, GROUPS>(tiles, v_place.stage));
        wgmma_wait<1>();
        pin(s);
        if (a.wants_fixed)
            release(state->k_empty, k_place, thread.lane);
        rows.l_rounded[0] += rounded[0];
        rows.l_rounded[1] += rounded[1];
        sums = make_probabilities<T, D, KEYS>(a, q, k, thread, s, rows, moved);
        if (!a.wants_fixed)
            release(state->k_empty, k_place, thread.lane);
        advance(k_place);
    }
    if (thread.lane == 0)
        barrier_arrive(shared_address(&state->q_empty[thread.group]));
    finish_step<T, D, KEYS>(s, p, o, moved, rows);
    if (count > 1) {
        release(state->v_empty, v_place, thread.lane);
        advance(v_place);
    }
    wait_for(state->v_full, v_place);
    wgmma_fence();
    add_rounded<T, KEYS>(rounded, rows, p, sums);
    enqueue_outputs<T, D, KEYS>(o, p, v_tile<D, KEYS, GROUPS>(tiles, v_place.stage));
    rows.l_rounded[0] += rounded[0];
    rows.l_rounded[1] += rounded[1];
    wgmma_wait<0>();
    pin(o);
    release(state->v_empty, v_place, thread.lane);
    advance(v_place);
}

/* Reads the state of a thread's two rows before the first tile of a call. at[i]: number of row i in the arrays of the
 * state; not used if the row does not exist. */
template <int D>
__device__ __forceinline__ void read_state(const attend_arguments &a, const int64_t (&at)[2], const bool (&exists)[2],
                                           const thread_place &thread, float (&o)[D / 2], row_state &rows)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool reads = exists[i] && !a.first_shard;
        rows.m[i] = reads || (a.wants_fixed && exists[i]) ? a.m[at[i]] : a.wants_fixed ? 0 : -INFINITY;
        rows.l[i] = reads && thread.lane % 4 == 0 ? a.l[at[i]] : 0;
        rows.l_rounded[i] = reads && thread.lane % 4 == 0 ? a.l[at[i]] : 0;
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

template <int D>
__device__ __forceinline__ void write_state(const attend_arguments &a, const int64_t (&at)[2], const bool (&exists)[2],
                                            const thread_place &thread, const float (&o)[D / 2], const row_state &rows)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!exists[i])
            continue;
        if (thread.lane % 4 == 0) {
            a.l[at[i]] = rows.l[i];
            if (!a.wants_fixed)
                a.m[at[i]] = rows.m[i];
        }
        const float part = rows.l_rounded[i] == 0 ? 1 : rows.l[i] / rows.l_rounded[i];
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(float2 *)(a.o_sum + at[i] * D + 8 * j + thread.column) =
                make_float2(o[4 * j + 2 * i] * part, o[4 * j + 2 * i + 1] * part);
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

/* o / l' in 16 bits, and lse. Rows without keys get 0 and -infinity. */
template <typename T, int D>
__device__ __forceinline__ void write_outputs(const attend_arguments &a, int place, int row, const bool (&exists)[2],
                                              const thread_place &thread, float (&o)[D / 2], const row_state &rows)
{
    const int o_place = a.first + place - a.o.first;
    T *head = (T *)a.o_data + o_place / a.o.heads * a.o_batch_stride + (int64_t)(o_place % a.o.heads) * D;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float part = rows.l_rounded[i] == 0 ? 0 : 1 / rows.l_rounded[i];
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

template <typename T, int D, int KEYS, int GROUPS>
__device__ void attend_items(const attend_arguments &a, shared_state *state, uint32_t tiles, const thread_place &thread)
{
    ring_place k_place = {0, 0}, v_place = {0, 0};
    for (uint32_t parity = 0;; parity ^= 1) {
        float o[D / 2];
        row_state rows;
        barrier_wait(shared_address(&state->q_full[thread.group]), parity);
        const int64_t item = *(volatile int64_t *)&state->item[thread.group];
        if (item == NO_ITEM)
            break;
        const int place = (int)(item / a.items_per_head);
        const int row = ((int)(item % a.items_per_head) * GROUPS + thread.group) * ROWS + thread.row;
        const int keys = count_keys(a, a.first + place);
        const bool exists[2] = {row < a.q_rows, row + 8 < a.q_rows};
        const int64_t at[2] = {(int64_t)place * a.q_rows + row, (int64_t)place * a.q_rows + row + 8};
        read_state<D>(a, at, exists, thread, o, rows);
        if (keys > 0)
            attend_tiles<T, D, KEYS, GROUPS>(a, state, tiles, keys, thread, o, rows, k_place, v_place);
        else if (thread.lane == 0)
            barrier_arrive(shared_address(&state->q_empty[thread.group]));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rows.l[i] = add_quad(rows.l[i]);
            rows.l_rounded[i] = add_quad(rows.l_rounded[i]);
        }
        if (a.last_shard)
            write_outputs<T, D>(a, place, row, exists, thread, o, rows);
        else
            write_state<D>(a, at, exists, thread, o, rows);
    }
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <int GROUPS> __device__ __forceinline__ void init_barriers(shared_state *state)
{
    for (int group = 0; group < GROUPS; group++) {
        barrier_init(shared_address(&state->q_full[group]), 1);
        barrier_init(shared_address(&state->q_empty[group]), 4);
    }
    for (int stage = 0; stage < STAGES; stage++) {
        barrier_init(shared_address(&state->k_full[stage]), 1);
        barrier_init(shared_address(&state->k_empty[stage]), 4 * GROUPS);
        barrier_init(shared_address(&state->v_full[stage]), 1);
        barrier_init(shared_address(&state->v_empty[stage]), 4 * GROUPS);
    }
    barrier_init_fence();
}

template <typename T, int D, int KEYS, int GROUPS>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) attend_kernel(const __grid_constant__ attend_arguments a)
{
    extern __shared__ unsigned char memory[];
    const uint32_t begin = shared_address(memory), tiles = (begin + 1023) / 1024 * 1024;
    shared_state *state =
        (shared_state *)(memory + (tiles - begin) + q_bytes<D, KEYS, GROUPS> + 2 * STAGES * stage_bytes<D, KEYS>);
    if (threadIdx.x == 0)
        init_barriers<GROUPS>(state);
    __syncthreads();
    const int group = __shfl_sync(0xffffffff, (int)threadIdx.x / 128, 0);
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(GROUPS == 2 ? 40 : 32));
        if (threadIdx.x == 0)
            load_items<D, KEYS, GROUPS>(a, state, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(GROUPS == 2 ? 232 : 160));
        thread_place thread;
        thread.group = group - 1;
        thread.warp = (int)threadIdx.x / 32 % 4;
        thread.lane = (int)threadIdx.x % 32;
        thread.row = 16 * thread.warp + thread.lane / 4;
        thread.column = thread.lane % 4 * 2;
        attend_items<T, D, KEYS, GROUPS>(a, state, tiles, thread);
    }
}

#endif
