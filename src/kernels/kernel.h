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
 *   - A row whose keys are all masked has m = -inf (online), l = 0, o = 0; its output is o = 0, lse = -inf. Never NaN,
 *     unless its query has NaN or infinity: the state and the output may then be NaN, lse included. The caller finds
 *     such rows by lse, and writes their output itself (attention/run/cpu/sweep.c).
 *   - An absent key (NULL, or a bias of -inf) is never read. A key that only `mask` hides may be read, and must be
 *     finite.
 *   - Rows of q, k, v, o and masks have the alignment of their numbers, and no more. Apart from o[i] and q[i], nothing
 *     that a call writes overlaps anything else.
 *   - NaN in a query stays in its row. Sums are kept in f32 or better; a kernel may keep sums of a few products in a
 *     shorter type if its file says so.
 *   - log2(e) * scale is kept in f32 at least, and is not multiplied into a q of fewer bits.
 *   - A probability below 2^-126 may become zero. So may its product with v, if the values of a panel of keys reach
 *     2^-60. The thread's floating-point mode is the same before and after a call.
 *   - Against float64 on the same inputs, the error is at most twice the error of the plain implementation in the type
 *     (f32 logits, p rounded to the type of v, sums in f32), whatever the logits. */
#ifndef ITH_KERNELS_KERNEL_H
#define ITH_KERNELS_KERNEL_H

#include "../base/dtype.h"

/* The largest head_dim. It is small enough that products of a few sizes do not overflow int64_t. */
#define ITH_ATTN_HEAD_DIM_MAX (1 << 16)
/* The largest number of keys in a packed panel: no kernel has a larger block_kv_compute_in. */
#define ITH_ATTN_PANEL_MAX 512
/* The most keys that a plan packs by one call, before rounding up to panels. */
#define ITH_ATTN_PIECE_KEYS 256
/* Bytes of a buffer for the name of a kernel, with its terminating zero. */
#define ITH_ATTN_NAME_BYTES 48

/* Whether a kernel without limits of its own supports a number type, a head size and a softmax. */
static inline bool ith_attn_takes(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    return head_dim >= 1 && head_dim <= ITH_ATTN_HEAD_DIM_MAX && ith_dtype_is_operand(dtype) &&
           (softmax == ITH_SOFTMAX_ONLINE || softmax == ITH_SOFTMAX_FIXED_M);
}

/* Sizes of the blocks of queries and keys, from the outermost loop to the innermost. ith_attn_options in ithaca.h
 * explains each of them. */
typedef struct ith_attn_tiles {
    int64_t block_q, block_kv, block_kv_compute, block_kv_compute_in;
} ith_attn_tiles;

/* A request to pack keys [first, first + keys) of a KV block and their values. One KV block may be packed by several
 * calls, from any threads. Each call begins at a multiple of block_kv_compute_in, and ends at such a multiple or at the
 * end of the KV block. The call that reaches the end also writes the padding of the last panel. */
typedef struct ith_attn_pack {
    ith_dtype dtype; /* number type of k and v: F32, BF16 or F16 */
    int64_t head_dim, first, keys;
    const void *const *k, *const *v; /* [keys] pointers to rows of head_dim numbers; NULL in both: the key is absent */
    const float *key_bias; /* [keys], added to the scaled logits, in units of the natural logarithm; NULL: none */
    void *packed;          /* the whole packed KV block, aligned to 64; packed_bytes gives its size */
} ith_attn_pack;

/* One call of a kernel: a block of queries against one KV block. */
typedef struct ith_attn_call {
    ith_dtype dtype; /* number type of q and o */
    int64_t q_rows, keys, head_dim;
    ith_attn_tiles tiles; /* sizes of blocks, within the limits that the kernel's function `tiles` returns */
    const void *const *q; /* [q_rows] pointers to rows of head_dim numbers */
    const void *packed;   /* the whole packed KV block, as ith_attn_pack.packed */
    float scale;
    ith_softmax softmax; /* ONLINE or FIXED_M */
    ith_mask mask_kind;
    /* [q_rows] pointers to rows of `keys` numbers: uint8_t (BOOL, 0 hides the key) or float (ADDITIVE). */
    const void *const *mask;
    /* first: this is the first call for these queries; the state (o_sum, l and, with the online softmax, m) is not
     * read. last: this is the last call; o and lse are written. */
    bool first, last;
    float *o_sum; /* [q_rows, head_dim], unnormalised outputs; may be NULL if both first and last are true */
    /* [q_rows] each: offsets m in base 2, and sums l of probabilities. l may be NULL if both first and last are true;
     * m may then be NULL only with the online softmax. */
    float *m, *l;
    /* [q_rows] pointers to rows of head_dim numbers; used only if `last` is true. o[i] may be q[i]: a kernel reads a
     * row of q for the last time before it writes this row of o. */
    void *const *o;
    float *lse;    /* [q_rows], in natural logarithms, written if `last` is true; NULL: not wanted */
    void *scratch; /* memory of this thread alone, aligned to 64; scratch_bytes gives its size */
    /* A kernel asks at least every block_kv_compute keys whether to stop. If the answer is true, it leaves out the rest
     * of its work and returns; what it has written to o, lse and the state has no meaning. NULL: it never stops early.
     */
    bool (*halted)(void *halt);
    void *halt; /* the argument of `halted` */
} ith_attn_call;

static inline bool ith_attn_halted(const ith_attn_call *call)
{
    return call->halted && call->halted(call->halt);
}

/* The block sizes that a kernel accepts: multiples of `step`, from `step` to `most`. The default is `best`. */
typedef struct ith_attn_tile_limits {
    ith_attn_tiles best, step, most;
} ith_attn_tile_limits;

/* The instructions that compute a matrix product of a kernel, such as the logits or the outputs of attention. The peak
 * rate of a kernel follows from them (peak.h). */
typedef struct ith_instructions {
    /* The beginning of the name of an ITH_PEAK row of kernels.inc, such as "bf16_amx". If several names begin with
     * it, the first row that the machine can run counts. */
    const char *peak;
    /* How many hardware multiplications one product of two numbers takes; above 1 if numbers are split into parts. */
    int times;
} ith_instructions;

/* A kernel of attention: its name, its requirements, its limits and its functions. Every processor can call the
 * functions before `pack`, because plans are made for other machines too. */
typedef struct ith_attn_kernel {
    const char *name; /* shorter than ITH_ATTN_NAME_BYTES, without spaces; saved measurements (wisdom) refer to it */
    uint32_t cpu;     /* the instruction sets that the kernel needs, as ith_cpu_feature bits */
    ith_instructions logits, outputs;
    /* Whether the kernel is usually faster than the kernels after it in kernels.inc. ITH_EFFORT_ESTIMATE chooses the
     * first kernel that pays (docs/attention.md has measurements). NULL: it always pays. */
    bool (*pays)(int64_t head_dim);
    bool (*supports)(ith_dtype dtype, int64_t head_dim, ith_softmax softmax);
    ith_attn_tile_limits (*tiles)(int64_t head_dim);
    int64_t (*packed_bytes)(int64_t keys, int64_t head_dim); /* -1 if the number does not fit into int64_t */
    int64_t (*scratch_bytes)(int64_t head_dim, const ith_attn_tiles *tiles);
    void (*pack)(const ith_attn_pack *pack);
    void (*attend)(const ith_attn_call *call);
} ith_attn_kernel;

/* Initialises the function pointers of an ith_attn_kernel with functions of the same names, which the kernel's file
 * defines. ITH_ATTN_SIZES initialises the pointers to the functions that every processor can call, except for `pays`.
 */
#define ITH_ATTN_SIZES                                                                                                 \
    .supports = supports, .tiles = tiles, .packed_bytes = packed_bytes, .scratch_bytes = scratch_bytes
#define ITH_ATTN_FUNCTIONS ITH_ATTN_SIZES, .pack = pack, .attend = attend

/* Returns kernel number `index` of the library and its loaded modules; NULL beyond the last. Kernels of the library
 * come first; among them, kernels that are usually faster come before the others. */
const ith_attn_kernel *ith_attn_kernel_at(int index);
/* The kernel called `name`; NULL if there is none. */
const ith_attn_kernel *ith_attn_kernel_named(const char *name);

#endif
