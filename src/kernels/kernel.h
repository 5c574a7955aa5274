/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of attention kernels. The rows are in kernels.inc; plain C in ref/ defines what each means.
 *
 * A kernel's unit of work is a partial attention of one head: some queries against a run of packed keys and values.
 * With logits in base 2,
 *
 *     s_ij = log2(e) (scale q_i . k_j + bias_j + mask_ij),   p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,
 *     o_i = sum_j p_ij v_j
 *
 * where m_i is the row's running maximum (online softmax, arXiv:1805.02867) or an offset that the caller gives and that
 * stays (fixed_m: no s_ij - m_i exceeds 88). First `pack` lays keys and values out as the kernel likes to read them;
 * then `run` is called for every block of queries. Several runs continue one another through the state (o_sum, m, l),
 * which lies in memory between them; the last divides by l and writes o and lse.
 *
 * What a kernel owes
 *   - A row's result depends on that row's query, on the keys in their order, on where runs end and on the tiles of
 * keys; not on the row's place in the block, on q_rows, on how packing was cut into calls, or on the thread. (Ulysses
 * gives the bits of a single rank because of this.)
 *   - Every q_rows from 0 to block_q, every number of keys >= 0, every head_dim that `supports` accepts; nothing
 * outside the arrays is touched.
 *   - A row all of whose keys are masked has m = -inf (online), l = 0, o = 0; when finished o = 0, lse = -inf. Never
 * NaN.
 *   - An absent key (NULL, or a bias of -inf) is not looked at. A key that only `mask` hides may be, and must be
 * finite.
 *   - NaN in a query stays in its row. Sums in f32 or better, but for short runs where the kernel's file says so.
 *   - log2(e) * scale is never rounded to less than f32, nor multiplied into a q of less.
 *   - Against float64 on the same inputs the error is at most twice that of the plain implementation in the same type
 *     (f32 logits, p rounded to the type of v, sums in f32), whatever the logits.
 */
#ifndef ITH_KERNELS_KERNEL_H
#define ITH_KERNELS_KERNEL_H

#include "../base/context.h"

/* The largest head_dim that a kernel need take: keeps products of a few of its sizes far from overflow. */
#define ITH_ATTN_HEAD_DIM_MAX (1 << 16)
/* The most keys of a panel: of block_kv_compute_in. */
#define ITH_ATTN_PANEL_MAX 512

/* Sizes of the loops; see ith_attn_options. */
typedef struct ith_attn_tiles {
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in;
} ith_attn_tiles;

/* Packs keys [first, first + keys) of a run. A run is packed by any number of calls, from any threads, each of which
 * begins at a multiple of block_kv_compute_in and ends at one or at the end of the run; what fills up the last tile is
 * written by the call that ends the run. */
typedef struct ith_attn_pack {
    ith_dtype dtype; /* of k and v: F32, BF16, F16 */
    int64_t head_dim, first, keys;
    const void *const *k, *const *v; /* [keys] pointers to rows [head_dim]; NULL (in both): the key is absent */
    const float *key_bias;           /* [keys], natural units, added to the scaled logits; NULL: none */
    void *packed; /* of the run's first key; packed_bytes(keys of the run, head_dim), aligned to 64 */
} ith_attn_pack;

typedef struct ith_attn_run {
    ith_dtype dtype; /* of q and o */
    int64_t q_rows, keys, head_dim;
    ith_attn_tiles tiles; /* as the kernel's limits allow */
    const void *const *q; /* [q_rows] pointers to rows [head_dim] */
    const void *packed;
    float scale;
    ith_softmax softmax; /* ONLINE or FIXED_M */
    ith_mask mask_kind;
    const void *const *mask; /* [q_rows] pointers to rows [keys]: uint8_t (BOOL, 0 hides) or float (ADDITIVE) */
    bool first, last; /* first: start from nothing, o_sum, l (and m, if online) are not read. last: write o, lse */
    float *o_sum;     /* [q_rows, head_dim] unnormalised; NULL if first and last */
    float *m, *l;     /* [q_rows]; m in base 2. NULL if first and last, but m is always there if fixed_m */
    void *const *o;   /* [q_rows] pointers to rows [head_dim]; used if last */
    float *lse;       /* [q_rows], natural logarithm, written if last; NULL: not wanted */
    void *scratch;    /* scratch_bytes(head_dim, tiles), aligned to 64, this thread's own */
    bool (*halted)(void *halt); /* whether to return at once and leave all output as it is; NULL: never. A kernel asks
                                 * every block_kv_compute keys or more often */
    void *halt;
} ith_attn_run;

static inline bool ith_attn_halted(const ith_attn_run *run)
{
    return run->halted && run->halted(run->halt);
}

/* Which tiles a kernel takes: multiples of `step` from `step` to `most`; `best` where the caller has no wish. */
typedef struct ith_attn_tile_limits {
    ith_attn_tiles best, step, most;
} ith_attn_tile_limits;

/* What one of the two products (logits, outputs) runs on. A kernel's peak follows from both (peak.h). */
typedef struct ith_attn_product {
    const char *peak; /* how the name of its row among ITH_PEAK begins: of several the first that the machine runs */
    int times;        /* products of that row in one of the tensors': more than 1 where a number is a sum of parts */
} ith_attn_product;

typedef struct ith_attn_kernel {
    const char *name;
    uint32_t cpu; /* ith_cpu_feature bits that it needs */
    ith_attn_product logits, outputs;
    bool (*pays)(int64_t head_dim); /* is it usually faster than those after it in the table? NULL: always. Such are the
                                     * choices of ITH_EFFORT_ESTIMATE; docs/attention.md has the measurements */
    bool (*supports)(ith_dtype dtype, int64_t head_dim, ith_softmax softmax);
    ith_attn_tile_limits (*tiles)(int64_t head_dim);
    int64_t (*packed_bytes)(int64_t keys, int64_t head_dim); /* -1 if the number does not fit */
    int64_t (*scratch_bytes)(int64_t head_dim, const ith_attn_tiles *tiles);
    void (*pack)(const ith_attn_pack *pack);
    void (*run)(const ith_attn_run *run);
} ith_attn_kernel;

/* The kernels built, index 0, 1, ... until NULL; those that are usually faster first. */
const ith_attn_kernel *ith_attn_kernel_at(int index);
/* The kernel of that name; NULL if there is none. */
const ith_attn_kernel *ith_attn_kernel_named(const char *name);

#endif
