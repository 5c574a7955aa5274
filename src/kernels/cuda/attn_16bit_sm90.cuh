/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on Hopper: bf16 or f16, head_dim 64 or 128, by the equations of kernels/kernel.h,
 *
 *     s_ij = c q_i . k_j,  p_ij = 2^(s_ij - m_i),  l_i = sum_j p_ij,  o_i = l_i / l'_i sum_j p'_ij v_j,  c = log2(e) scale,
 *
 * where p' is p rounded to 16 bits and l' the sum of p'. So o / l is a mean whose weights p' / l' add up to 1, and m need
 * not be the maximum of a row. With the online softmax, m is the maximum of the first tile of keys, and is raised only
 * when the probabilities of a later tile grow large (exceeds); that tile is then computed once more. l' is not kept
 * between calls: it starts as l.
 *
 * A work item is GROUPS * 64 queries of one head. Blocks of threads live as long as the call, and take items in order,
 * head by head, so that the keys of a head stay in the L2 cache. A block has one warp that loads tiles of queries, keys
 * and values into shared memory by TMA (load_items), and GROUPS warpgroups that compute, with 64 queries each
 * (attend_items).
 *
 * A warpgroup holds in registers the logits of one tile of keys [64, KEYS], which become p; p in 16 bits as an operand;
 * and o [64, D]. It issues the products for the logits of a tile, then p v of the tile before. While p v is computed, it
 * makes p from the logits. Tiles are visited from the last to the first, so that only the first step of an item meets
 * columns without keys. If TURNS, the warpgroups take turns to issue products: while one computes p, the matrix units
 * work for the other.
 *
 * What a row becomes depends on its own numbers only: wherever a choice concerns a whole warp or warpgroup, rows that did
 * not ask for it get the same bits either way. */
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
    LARGE = 1 << 12,        /* where |m| is larger, c s is rounded before m is subtracted */
    NO_ITEM = -1
};

/* How l' is summed (candidates): by additions; by additions, and only in tiles that have more than 1 / 16 of l; by matrix
 * products with ones. BARE: l, which only lse and the state need, is not summed. */
enum { SUM_ALL = 1, SUM_LARGE = 2, SUM_MATRIX = 3, SUM_MATRIX_BARE = 4, SUM_ALL_BARE = 5 };
template <int SUMS> constexpr bool sums_l = SUMS <= SUM_MATRIX;
template <int SUMS> constexpr bool uses_matrix = SUMS == SUM_MATRIX || SUMS == SUM_MATRIX_BARE;

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

/* What a block of threads keeps in shared memory besides tiles. full: the tile was loaded; empty: all have read it. */
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

/* Where a thread's numbers lie: rows `row` + 8 i of the tile, columns 8 j + column + e. */
typedef struct thread_place {
    int group, warp, lane, row, column;
} thread_place;

/* Waits until a tile is loaded. */
__device__ __forceinline__ void wait_for(uint64_t *full, const ring_place &place)
{
    barrier_wait(shared_address(&full[place.stage]), place.parity);
}

/* One thread of each warp tells that the warp has read a tile. */
__device__ __forceinline__ void release(uint64_t *empty, const ring_place &place, const thread_place &thread)
{
    if (thread.lane == 0)
        barrier_arrive(shared_address(&empty[place.stage]));
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

/* The state of a thread's two rows. l and l_rounded (l') are sums over the thread's own columns. shrink: what l and l' were,
 * and o is to be, multiplied with because m has grown. */
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

/* o of rows whose m has grown. */
template <int D> __device__ __forceinline__ void shrink_outputs(float (&o)[D / 2], const row_state &rows)
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] *= rows.shrink[i / 2 % 2];
}

/* s becomes p. Large m: the error of a rounded m could make c s - m positive and large where c s was not rounded. */
template <int KEYS, int SUMS>
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
        if constexpr (sums_l<SUMS>)
            sums.of[row] += s[i];
    }
    return sums;
}

/* Whether m must be raised: some p of the tile is too large, or there was no logit yet. f16 ends at 65504. No p is negative,
 * so that p are ordered as their bits are, and NaN is above all. */
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

/* p becomes s in 16 bits. */
template <typename T, int KEYS>
__device__ __forceinline__ void round_tile(uint32_t (&p)[KEYS / 4], const float (&s)[KEYS / 2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        p[i] = round_pair<T>(s[2 * i], s[2 * i + 1]);
}

/* sums += a b, of matrices [16, 16] and [16, 8], in a warp; b consists of ones. a and sums lie in registers as those of a
 * warp do for wgmma. So sums[0] and sums[2] become the sums of the thread's rows. */
template <typename T> __device__ __forceinline__ void sum_rows(float (&sums)[4], const uint32_t *a)
{
#define CASE(TYPE)                                                                                                     \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %8}, "   \
                 "{%0, %1, %2, %3};"                                                                                   \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(is_bf16<T> ? 0x3f803f80 : 0x3c003c00))
    if constexpr (is_bf16<T>)
        CASE("bf16.bf16");
    else
        CASE("f16.f16");
#undef CASE
}

/* What l' grows by because of a tile. */
template <typename T, int KEYS, int SUMS>
__device__ __forceinline__ void add_rounded(float (&rounded)[2], const row_state &rows, const uint32_t (&p)[KEYS / 4],
                                            const tile_sums &sums)
{
    rounded[0] = rounded[1] = 0;
    if constexpr (SUMS == SUM_LARGE) {
        const bool matters[2] = {16 * sums.of[0] > rows.l[0], 16 * sums.of[1] > rows.l[1]};
        if (__any_sync(0xffffffff, matters[0] || matters[1]))
#pragma unroll
            for (int i = 0; i < KEYS / 4; i++)
                rounded[i % 2] += first_of_pair<T>(p[i]) + second_of_pair<T>(p[i]);
        rounded[0] = matters[0] ? rounded[0] : sums.of[0];
        rounded[1] = matters[1] ? rounded[1] : sums.of[1];
    } else {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++)
            rounded[i % 2] += first_of_pair<T>(p[i]) + second_of_pair<T>(p[i]);
    }
}

/* The end of a step: waits for the products p v of the step before, if there was one, and makes p ready for the next ones.
 * It follows a wait or a branch, so that the compiler does not move the wait for the products up, before the
 * exponentials. */
template <typename T, int D, int KEYS, int SUMS>
__device__ __forceinline__ void finish_step(float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 4], float (&o)[D / 2],
                                            float (&row_sums)[4], bool moved, const row_state &rows)
{
    wgmma_wait<0>();
    pin(o);
    pin(s);
    round_tile<T, KEYS>(p, s);
    if constexpr (uses_matrix<SUMS>) {
        float odd[4] = {0, 0, 0, 0}; /* two chains, so that a product need not wait for the one before */
#pragma unroll
        for (int i = 0; i < 4; i++)
            row_sums[i] = 0;
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++)
            sum_rows<T>(step % 2 ? odd : row_sums, p + 4 * step);
        row_sums[0] += odd[0];
        row_sums[2] += odd[2];
    }
    if (moved)
        shrink_outputs<D>(o, rows);
}

/* p of a tile, from its logits s. With the online softmax, if a row of the warpgroup needs a larger m, the logits are
 * computed again, m is raised, and then p is. */
template <typename T, int D, int KEYS, int SUMS>
__device__ __forceinline__ tile_sums make_probabilities(const attend_arguments &a, uint32_t q, uint32_t k,
                                                        const thread_place &thread, float (&s)[KEYS / 2],
                                                        row_state &rows, bool &moved)
{
    tile_sums sums = exponentiate<KEYS, SUMS>(s, rows, a.c);
    moved = false;
    if (!a.wants_fixed) {
        bool moves[2];
        find_excess<T, KEYS>(moves, s, rows);
        const bool some = threads_any<128>(FIRST_TURN_BARRIER + GROUPS_MOST + thread.group, moves[0] || moves[1]);
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
            sums = exponentiate<KEYS, SUMS>(s, rows, a.c);
        }
    }
    rows.l[0] += sums.of[0];
    rows.l[1] += sums.of[1];
    return sums;
}

/* p of the first tile, which has `keys` keys. */
template <int KEYS, int SUMS>
__device__ __forceinline__ tile_sums make_first_probabilities(const attend_arguments &a, int keys,
                                                              const thread_place &thread, float (&s)[KEYS / 2],
                                                              row_state &rows)
{
    const bool all[2] = {true, true};
    if (keys < KEYS)
        hide_columns<KEYS>(s, keys, thread);
    if (!a.wants_fixed)
        raise_offsets<KEYS>(rows, s, a.c, all);
    const tile_sums sums = exponentiate<KEYS, SUMS>(s, rows, a.c);
    rows.l[0] += sums.of[0];
    rows.l[1] += sums.of[1];
    return sums;
}

/* Everything that a warpgroup computes for an item with at least one key. */
template <typename T, int D, int KEYS, int GROUPS, int TURNS, int SUMS>
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
    release(state->k_empty, k_place, thread);
    advance(k_place);
    tile_sums sums = make_first_probabilities<KEYS, SUMS>(a, last_keys, thread, s, rows);
    bool moved = !a.wants_fixed && !a.first_shard;
    if (last_keys < KEYS && keys < a.kv_rows) {
        wait_for(state->v_full, v_place);
        clear_rows<D, KEYS>(v_tile<D, KEYS, GROUPS>(tiles, v_place.stage), last_keys, thread);
    }

    float row_sums[4], rounded[2];
    for (int tile = count - 2; tile >= 0; tile--) {
        const uint32_t k = k_tile<D, KEYS, GROUPS>(tiles, k_place.stage);
        wait_for(state->k_full, k_place);
        finish_step<T, D, KEYS, SUMS>(s, p, o, row_sums, moved, rows);
        if (tile < count - 2) {
            release(state->v_empty, v_place, thread);
            advance(v_place);
        }
        wait_for(state->v_full, v_place);
        if constexpr (TURNS)
            threads_sync<256>(FIRST_TURN_BARRIER + thread.group);
        wgmma_fence();
        enqueue_logits<T, D, KEYS>(s, q, k);
        if constexpr (!uses_matrix<SUMS>)
            add_rounded<T, KEYS, SUMS>(rounded, rows, p, sums);
        enqueue_outputs<T, D, KEYS>(o, p, v_tile<D, KEYS, GROUPS>(tiles, v_place.stage));
        if constexpr (TURNS)
            threads_arrive<256>(FIRST_TURN_BARRIER + (thread.group + 1) % GROUPS);
        wgmma_wait<1>();
        pin(s);
        if (a.wants_fixed)
            release(state->k_empty, k_place, thread);
        rows.l_rounded[0] += uses_matrix<SUMS> ? row_sums[0] : rounded[0];
        rows.l_rounded[1] += uses_matrix<SUMS> ? row_sums[2] : rounded[1];
        sums = make_probabilities<T, D, KEYS, SUMS>(a, q, k, thread, s, rows, moved);
        if (!a.wants_fixed)
            release(state->k_empty, k_place, thread);
        advance(k_place);
    }
    if (thread.lane == 0)
        barrier_arrive(shared_address(&state->q_empty[thread.group]));
    finish_step<T, D, KEYS, SUMS>(s, p, o, row_sums, moved, rows);
    if (count > 1) {
        release(state->v_empty, v_place, thread);
        advance(v_place);
    }
    wait_for(state->v_full, v_place);
    wgmma_fence();
    if constexpr (!uses_matrix<SUMS>)
        add_rounded<T, KEYS, SUMS>(rounded, rows, p, sums);
    enqueue_outputs<T, D, KEYS>(o, p, v_tile<D, KEYS, GROUPS>(tiles, v_place.stage));
    rows.l_rounded[0] += uses_matrix<SUMS> ? row_sums[0] : rounded[0];
    rows.l_rounded[1] += uses_matrix<SUMS> ? row_sums[2] : rounded[1];
    wgmma_wait<0>();
    pin(o);
    release(state->v_empty, v_place, thread);
    advance(v_place);
}

/* The state before the first tile. `at` numbers the row among those of the state, and counts only if it exists. */
template <int D, int SUMS>
__device__ __forceinline__ void read_state(const attend_arguments &a, const int64_t (&at)[2], const bool (&exists)[2],
                                           const thread_place &thread, float (&o)[D / 2], row_state &rows)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool reads = exists[i] && !a.first_shard;
        rows.m[i] = reads || (a.wants_fixed && exists[i]) ? a.m[at[i]] : a.wants_fixed ? 0 : -INFINITY;
        rows.l[i] = reads && thread.lane % 4 == 0 ? a.l[at[i]] : 0;
        rows.l_rounded[i] = reads && (uses_matrix<SUMS> || thread.lane % 4 == 0) ? a.l[at[i]] : 0;
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

/* The sum over the four threads that hold a row. */
__device__ __forceinline__ float add_quad(float x)
{
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

template <typename T, int D, int KEYS, int GROUPS, int TURNS, int SUMS>
__device__ void attend_items(const attend_arguments &a, shared_state *state, uint32_t tiles, const thread_place &thread)
{
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
        const int row = ((int)(item % a.items_per_head) * GROUPS + thread.group) * ROWS + thread.row;
        const int keys = count_keys(a, a.first + place);
        const bool exists[2] = {row < a.q_rows, row + 8 < a.q_rows};
        const int64_t at[2] = {(int64_t)place * a.q_rows + row, (int64_t)place * a.q_rows + row + 8};
        read_state<D, SUMS>(a, at, exists, thread, o, rows);
        if (keys > 0)
            attend_tiles<T, D, KEYS, GROUPS, TURNS, SUMS>(a, state, tiles, keys, thread, o, rows, k_place, v_place);
        else if (thread.lane == 0)
            barrier_arrive(shared_address(&state->q_empty[thread.group]));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rows.l[i] = add_quad(rows.l[i]);
            if constexpr (!uses_matrix<SUMS>)
                rows.l_rounded[i] = add_quad(rows.l_rounded[i]);
        }
        if (a.last_shard)
            write_outputs<T, D>(a, place, row, exists, thread, o, rows);
        else
            write_state<D>(a, at, exists, thread, o, rows);
    }
    if (TURNS && thread.group == 0)
        threads_sync<256>(FIRST_TURN_BARRIER);
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

template <typename T, int D, int KEYS, int GROUPS, int TURNS, int SUMS>
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
        attend_items<T, D, KEYS, GROUPS, TURNS, SUMS>(a, state, tiles, thread);
    }
}

#endif
