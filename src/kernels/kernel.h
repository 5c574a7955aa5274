/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of attention kernels. kernels.inc lists them; plain C in ref/ defines the result of each.
 *
 * A kernel computes a partial attention of one head: some queries against one KV block, a stretch of packed keys and
 * values. With logits in base 2,
 *
 *     s_ij = log2(e) (scale q_i . k_j + bias_j + mask_ij),   p_ij = 2^(s_ij - m_i),   l_i = sum_j p_ij,
 *     o_i = sum_j p_ij v_j
 *
 * where m_i is the running maximum of the row (online softmax, arXiv:1805.02867) or a fixed offset that the caller
 * gives (fixed_m: no s_ij - m_i exceeds 88). `pack` brings keys and values into the kernel's own order; then `attend`
 * is called for every block of queries. To attend to several KV blocks, the caller makes one call for each: the state
 * (o_sum, m, l) stays in memory between the calls, and the last call divides by l and writes o and lse.
 *
 * Every kernel must keep these rules.
 *   - The result of a row depends on the query of that row, on the keys and their order, on the bounds of the KV blocks
 *     and on the tiles of keys. It does not depend on the position of the row in its block, on q_rows, on the number of
 *     packing calls, or on the thread. (This is why ulysses gives the bits of a single rank.)
 *   - It accepts every q_rows from 0 to block_q, every number of keys >= 0 and every head_dim that `supports` accepts,
 *     and touches nothing outside the arrays.
 *   - A row whose keys are all masked has m = -inf (online), l = 0, o = 0; its output is o = 0, lse = -inf. Never NaN.
 *   - An absent key (NULL, or a bias of -inf) is never read. A key that only `mask` hides may be read, and must be
 *     finite.
 *   - NaN in a query stays in its row. Sums are kept in f32 or better; a kernel may keep sums of a few products in
 *     less if its file says so.
 *   - log2(e) * scale is kept in f32 at least, and is not multiplied into a q of fewer bits.
 *   - Against float64 on the same inputs, the error is at most twice the error of the plain implementation in the type
 *     (f32 logits, p rounded to the type of v, sums in f32), whatever the logits. */
#ifndef ITH_KERNELS_KERNEL_H
#define ITH_KERNELS_KERNEL_H

#include "../base/context.h"

/* The largest head_dim: products of a few sizes stay far from overflow. */
#define ITH_ATTN_HEAD_DIM_MAX (1 << 16)
/* The most keys of a panel, which is the largest block_kv_compute_in. */
#define ITH_ATTN_PANEL_MAX 512
/* Of the name of a kernel, with its terminating zero. */
#define ITH_ATTN_NAME_BYTES 48

/* Sizes of the loops; see ith_attn_options. */
typedef struct ith_attn_tiles {
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in;
} ith_attn_tiles;

/* Packs keys [first, first + keys) of a KV block. Any number of calls, from any threads, pack one KV block. Each begins
 * at a multiple of block_kv_compute_in, and ends at one or at the end of the KV block. The call that reaches the end
 * also writes the padding of the last panel. */
typedef struct ith_attn_pack {
    ith_dtype dtype; /* of k and v: F32, BF16, F16 */
    int64_t head_dim, first, keys;
    const void *const *k, *const *v; /* [keys] pointers to rows [head_dim]; NULL (in both): the key is absent */
    const float *key_bias;           /* [keys], natural units, added to the scaled logits; NULL: none */
    void *packed;                    /* the whole KV block: packed_bytes(its keys, head_dim), aligned to 64 */
} ith_attn_pack;

/* One call of a kernel: a block of queries against one KV block. */
typedef struct ith_attn_call {
    ith_dtype dtype; /* of q and o */
    int64_t q_rows, keys, head_dim;
    ith_attn_tiles tiles; /* as the kernel's limits allow */
    const void *const *q; /* [q_rows] pointers to rows [head_dim] */
    const void *packed;
    float scale;
    ith_softmax softmax; /* ONLINE or FIXED_M */
    ith_mask mask_kind;
    const void *const *mask; /* [q_rows] pointers to rows [keys]: uint8_t (BOOL, 0 hides) or float (ADDITIVE) */
    bool first,
        last;       /* first: o_sum, l (and m, if online) are not read, but start empty. last: o and lse are written */
    float *o_sum;   /* [q_rows, head_dim] unnormalised; NULL if first and last */
    float *m, *l;   /* [q_rows]; m in base 2. NULL if first and last, but m is always there if fixed_m */
    void *const *o; /* [q_rows] pointers to rows [head_dim]; used if last */
    float *lse;     /* [q_rows], natural logarithm, written if last; NULL: not wanted */
    void *scratch;  /* scratch_bytes(head_dim, tiles), aligned to 64, this thread's own */
    bool (*halted)(void *halt); /* true: return at once and write no output; NULL: never. A kernel asks at least every
                                 * block_kv_compute keys */
    void *halt;
} ith_attn_call;

static inline bool ith_attn_halted(const ith_attn_call *call)
{
    return call->halted && call->halted(call->halt);
}

/* The tiles that a kernel accepts: multiples of `step` from `step` to `most`; `best` is the default. */
typedef struct ith_attn_tile_limits {
    ith_attn_tiles best, step, most;
} ith_attn_tile_limits;

/* The instructions of one of the two products (logits, outputs). Both give the peak of the kernel (peak.h). */
typedef struct ith_attn_product {
    const char *peak; /* a prefix of the name of a row of ITH_PEAK; the first match that the machine runs counts */
    int times;        /* instruction products per product of two numbers: above 1 if a number is split into parts */
} ith_attn_product;

typedef struct ith_attn_kernel {
    const char *name; /* shorter than ITH_ATTN_NAME_BYTES, without spaces: wisdom knows kernels by name */
    uint32_t cpu;     /* ith_cpu_feature bits that it needs */
    ith_attn_product logits, outputs;
    bool (*pays)(int64_t head_dim); /* whether it is usually faster than the kernels after it in the table, by which
                                     * ITH_EFFORT_ESTIMATE chooses (docs/attention.md has measurements). NULL: always */
    bool (*supports)(ith_dtype dtype, int64_t head_dim, ith_softmax softmax);
    ith_attn_tile_limits (*tiles)(int64_t head_dim);
    int64_t (*packed_bytes)(int64_t keys, int64_t head_dim); /* -1 if the number does not fit */
    int64_t (*scratch_bytes)(int64_t head_dim, const ith_attn_tiles *tiles);
    void (*pack)(const ith_attn_pack *pack);
    void (*attend)(const ith_attn_call *call);
} ith_attn_kernel;

/* The functions of a kernel, in a file that defines them under these names. */
#define ITH_ATTN_FUNCTIONS                                                                                             \
    .supports = supports, .tiles = tiles, .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes, .pack = pack,  \
    .attend = attend

/* The kernels of this build and its plugins: index 0, 1, ... until NULL. Usually faster ones come first. */
const ith_attn_kernel *ith_attn_kernel_at(int index);
/* The kernel of that name; NULL if there is none. */
const ith_attn_kernel *ith_attn_kernel_named(const char *name);

#endif
