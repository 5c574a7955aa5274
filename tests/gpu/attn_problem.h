/* SPDX-License-Identifier: Apache-2.0 */
/* Attention problems for the kernels of a device module, and two results for each, computed on the CPU: one in float64,
 * and a plain one in the same types as a kernel (f32 logits and sums, probabilities rounded to the type of v). */
#ifndef ITH_TESTS_ATTN_PROBLEM_H
#define ITH_TESTS_ATTN_PROBLEM_H

#include "kernels/kernel.h"

enum { SHARDS_MAX = 3 };

/* How rows lie in memory. */
typedef enum rows_layout {
    LAYOUT_BSHD,  /* [B, S, H, D] */
    LAYOUT_BHSD,  /* [B, H, S, D] */
    LAYOUT_FUSED, /* [B, S, H, D] as a part of longer rows, aligned as in a fused buffer of q, k and v */
    LAYOUT_ODD,   /* [B, S, H, D] with an odd distance between rows, and an odd beginning */
    LAYOUTS
} rows_layout;

/* The kind of keys of a problem. */
typedef enum logit_kind {
    LOGITS_NORMAL, /* normally distributed */
    LOGITS_PEAKED, /* each row has a key that outweighs the others, and keys share an offset */
    LOGITS_ALIKE   /* all keys are the same */
} logit_kind;

/* The parameters of a problem. 0 means none, or the first value. */
typedef struct attn_spec {
    ith_dtype dtype;
    ith_softmax softmax; /* ONLINE or FIXED_M */
    bool mixed;          /* some heads use the other softmax, as `fixed` says */
    int64_t batch, heads, per_kv, head_dim, q_rows, kv_rows;
    int64_t first, count; /* the heads of the call; count 0: all */
    int shards;
    float spread; /* the size of logits */
    logit_kind logits;
    rows_layout layout;
    bool lengths, biased, hiding; /* keys; key_bias; key_bias of -inf */
    ith_mask mask;
    bool mask_of_batch, mask_of_head; /* the mask has an entry for each batch entry, or head */
} attn_spec;

typedef struct attn_problem {
    attn_spec spec;
    int64_t kv_heads, kv_all;    /* kv heads of the whole batch; keys of all shards */
    int64_t cut[SHARDS_MAX + 1]; /* shard s has keys [cut[s], cut[s + 1]) */
    int32_t *keys;               /* [shards, batch] or NULL */
    float scale, *q, *k, *v;     /* [heads of the batch, rows, head_dim]: numbers of the type */
    float *bias;                 /* [batch, kv_rows] or NULL */
    uint8_t *fixed;              /* [count] or NULL */
    uint8_t *shown;              /* [mask batch, mask heads, q_rows, kv_rows] or NULL */
    float *added;                /* the same */
    float *m;                    /* [count, q_rows]: offsets of heads with fixed_m */
    int64_t mask_batch_stride, mask_head_stride;
} attn_problem;

/* Results of the heads of a call. */
typedef struct attn_answer {
    float *o;   /* [count, q_rows, head_dim] */
    float *lse; /* [count, q_rows] */
} attn_answer;

attn_problem make_problem(const attn_spec *spec, uint64_t seed);
void free_problem(attn_problem *p);
attn_answer make_answer(const attn_problem *p);
void free_answer(attn_answer *a);

/* Whether head `index` of the call uses fixed_m. */
bool uses_fixed_m(const attn_problem *p, int64_t index);
/* Whether key j is present for query i of head first + index. *added: the number that is added to its scaled logit. */
bool sees(const attn_problem *p, int64_t index, int64_t i, int64_t j, double *added);

attn_answer compute_exact(const attn_problem *p);
attn_answer compute_plain(const attn_problem *p);

/* |a - b| / |b| over a head; infinite if it would be NaN. */
double head_error(const attn_problem *p, const attn_answer *a, const attn_answer *b, int64_t index);
/* The largest |a.lse - b.lse| / max(4, |b.lse|); infinite if only one of two is -inf. */
double lse_error(const attn_problem *p, const attn_answer *a, const attn_answer *b);
/* Half a unit in the last place of a number just below 1; for f32 a whole unit. */
double unit_of(ith_dtype dtype);

/* The problem in one line, for a failure. */
const char *describe(const attn_problem *p);

#endif
