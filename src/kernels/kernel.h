/* The contract of attention kernels. The rows are in kernels.inc; plain C in ref/ defines what each means.
 *
 * A kernel's unit of work is a partial attention of one head: some queries against a run of packed keys and values.
 *
 *     s_j = scale * q . k_j + bias_j,   m = max_j s_j,   l = sum_j e^(s_j - m),   o = sum_j e^(s_j - m) v_j
 *
 * First `pack` lays a run of keys and values out as the kernel likes to read them (any type becomes what the kernel
 * multiplies in); then `run` is called for every block of queries. Several runs continue one another through the state
 * (o_sum, m, l), which lies in memory between them; the last divides and writes o and lse.
 *
 * What a kernel owes
 *   - A row's result depends on that row's query, on the keys in their order and on where runs end; not on the row's
 *     place in the block, on q_rows, or on the thread. (Ulysses gives the bits of a single rank because of this.)
 *   - Every q_rows and keys >= 0, every head_dim that `supports` accepts; nothing outside the arrays is touched.
 *   - A row all of whose keys are masked (bias -inf) has m = -inf, l = 0, o = 0, and when finished o = 0, lse = -inf.
 *   - A key whose bias is -inf is absent: its k and v are not looked at, so that whatever lies there does no harm.
 *   - NaN in a query stays in its row. Sums in f32 or better.
 */
#ifndef ITH_KERNELS_KERNEL_H
#define ITH_KERNELS_KERNEL_H

#include "../base/context.h"

/* The largest head_dim that a kernel need take: keeps products of a few of its sizes far from overflow. */
#define ITH_ATTN_HEAD_DIM_MAX (1 << 16)

typedef struct ith_attn_pack {
    ith_dtype dtype; /* of k and v: F32, BF16, F16 */
    int64_t keys, head_dim;
    const void *k, *v;
    int64_t k_stride, v_stride; /* elements from one key to the next */
    const float *key_bias;      /* [keys], added to the scaled logits; NULL: none */
    void *packed;               /* packed_bytes(keys, head_dim), aligned to 64 */
} ith_attn_pack;

typedef struct ith_attn_run {
    ith_dtype dtype; /* of q and o */
    int64_t q_rows, keys, head_dim;
    const void *q;
    int64_t q_stride; /* elements from one query to the next */
    const void *packed;
    float scale;
    bool first, last; /* first: start from nothing, o_sum, m and l are not read. last: write o and lse */
    float *o_sum;     /* [q_rows, head_dim] unnormalised; NULL if first and last */
    float *m, *l;     /* [q_rows]; m in units of the kernel's own (base e or base 2); NULL if first and last */
    void *o;
    int64_t o_stride;
    float *lse;    /* [q_rows], natural logarithm; NULL: not wanted */
    void *scratch; /* scratch_bytes(head_dim), aligned to 64, this thread's own */
} ith_attn_run;

typedef struct ith_attn_kernel {
    const char *name;
    uint32_t cpu;     /* ith_cpu_feature bits that it needs */
    int64_t q_block;  /* queries per call of `run` for which it is at its best; a caller may pass any number */
    int64_t kv_block; /* keys per run likewise: how a caller cuts a long run of keys to share out packing */
    bool (*supports)(ith_dtype dtype, int64_t head_dim);
    int64_t (*packed_bytes)(int64_t keys, int64_t head_dim); /* -1 if the number does not fit */
    int64_t (*scratch_bytes)(int64_t head_dim);
    void (*pack)(const ith_attn_pack *pack);
    void (*run)(const ith_attn_run *run);
} ith_attn_kernel;

/* The kernels built, best first, index 0, 1, ... until NULL. */
ITH_PRIVATE const ith_attn_kernel *ith_attn_kernel_at(int index);
/* The best one that `cpu` runs and that supports the problem; by name if name is not NULL. NULL with a sentence. */
ITH_PRIVATE const ith_attn_kernel *ith_attn_kernel_choose(ith_context *context, const char *name, ith_dtype dtype,
                                                          int64_t head_dim);

#endif
