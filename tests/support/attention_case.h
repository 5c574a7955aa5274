/* SPDX-License-Identifier: Apache-2.0 */
/* A random attention problem with its tensors, whole; what float64 makes of it; and its way through a plan. */
#ifndef ITH_TESTS_ATTENTION_CASE_H
#define ITH_TESTS_ATTENTION_CASE_H

#include "support/random.h"

#include <ithaca/ithaca.h>

/* What the logits are like. */
typedef enum case_kind {
    CASE_NORMAL,     /* up to 30 or so */
    CASE_PEAKED,     /* one key takes nearly all of a row's weight */
    CASE_OFFSET,     /* all keys share a large part, so that a row's logits are far from 0 and near one another */
    CASE_CONSTANT,   /* all keys are the same */
    CASE_HUGE,       /* thousands */
    CASE_TINY,       /* 1e-6 and less */
    CASE_ORTHOGONAL, /* queries see nothing of keys that are long */
    CASE_UNEVEN,     /* from head to head all of it */
    CASE_KINDS
} case_kind;

typedef struct attention_case {
    ith_attn_problem problem;
    ith_attn_options options;
    case_kind kind;
    int64_t gap;     /* elements between the rows of every tensor, filled with NaN */
    void *q, *k, *v; /* [B, S, H, D], contiguous, of the problem's type */
    float *key_bias;
    int32_t *kv_lengths;
    void *mask;                        /* [mask_batch, mask_heads, Sq, Skv] */
    double plain_error, largest_logit; /* set by case_oracle */
    float *o, *lse;                    /* whole, filled in by the ranks: [B, Sq, H, D], [B, H, Sq] */
    void *o_bits;                      /* o as it was written */
    bool wants_lse;
    char plan[1024];
} attention_case;

/* About normal with a variance of 1, and below 3.4. */
float case_value(uint64_t *r);

void *case_tensor(ith_dtype type, const float *values, int64_t count);

int64_t case_kv_heads(const attention_case *c);

/* Fills in the tensors of a case whose problem is set. `masked` of 8 keys have a bias of -inf on average; the other
 * biases are 0 if the seed is even. */
void case_fill(attention_case *c, uint64_t seed, int masked);

void case_free(attention_case *c);

/* The whole tensors, without outputs. */
ith_attn_tensors case_tensors(const attention_case *c);

/* The exact o [B, Sq, H, D] and lse [B, H, Sq], rounded to f32. Sets plain_error and largest_logit. */
void case_oracle(attention_case *c, float *o, float *lse);

/* The largest relative L2 error that is accepted: twice that of the plain implementation, which on few numbers may have
 * been lucky: not less than what the rounding of o, and of logits in f32, comes to. And, with logits up to 30, 2^-8 for
 * bf16, 5e-6 for f32. */
double case_bound(const attention_case *c);

/* This rank's rows of a whole tensor, each followed by the gap. */
void *case_share(const attention_case *c, const void *whole, int64_t length, int64_t width, int64_t begin,
                 int64_t rows);

/* The bytes of a problem's mask. */
size_t case_mask_bytes(const ith_attn_problem *problem);

/* One rank's tensors in the memory of its context's device, which may be the processor. */
typedef struct case_placed {
    ith_context *context;
    ith_attn_problem problem; /* with the strides of the tensors */
    ith_attn_tensors tensors;
    void *q;                   /* tensors.q, which o may overwrite */
    int64_t begin, rows;       /* the rank's rows of q and o */
    size_t o_bytes, lse_bytes; /* of the rank's rows, with the gaps between them */
    void *memory[8];           /* allocated */
    int count;
    ith_status status;
} case_placed;

/* Places the tensors of a rank; o and the gaps are NaN. On failure nothing is held. */
ith_status case_place(ith_context *context, ith_comm *comm, const attention_case *c, case_placed *out);
void case_leave(case_placed *placed);

/* One rank's part: its rows, a plan, two executions with the same bits, and a third whose o overwrites q, without
 * allocations. For ith_run_ranks. */
ith_status case_in_rank(ith_context *context, ith_comm *comm, void *user);

#endif
