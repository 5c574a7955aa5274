/* SPDX-License-Identifier: Apache-2.0 */
/* A random attention problem: its whole tensors, its exact result in float64, and its execution by a plan on some
 * ranks. */
#ifndef ITH_TESTS_ATTENTION_CASE_H
#define ITH_TESTS_ATTENTION_CASE_H

#include "support/random.h"

#include <ithaca/ithaca.h>

/* The kinds of logits that the queries and keys of a case make. */
typedef enum case_kind {
    CASE_NORMAL,     /* magnitudes up to about 30 */
    CASE_PEAKED,     /* one key takes nearly all of a row's weight */
    CASE_OFFSET,     /* all keys share a large part, so that a row's logits are far from 0 and near one another */
    CASE_CONSTANT,   /* all keys are the same */
    CASE_HUGE,       /* magnitudes of thousands */
    CASE_TINY,       /* magnitudes of 1e-6 and less */
    CASE_ORTHOGONAL, /* 0, because long queries are orthogonal to long keys */
    CASE_UNEVEN,     /* each kv head has one of the kinds above, in turn */
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
    double plain_error, largest_logit; /* set by case_oracle: the plain implementation's error; the
                                        * largest magnitude of a logit */
    float *o, *lse;                    /* whole, filled in by the ranks: [B, Sq, H, D], [B, H, Sq] */
    void *o_bits;                      /* o in the problem's type, with the bits that the plan wrote */
    bool wants_lse;
    char plan[1024];
} attention_case;

/* A nearly normal random number, with a variance of about 1 and a magnitude of at most 3.4. */
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

/* The largest relative L2 error that is accepted: twice the error of the plain implementation. On few numbers that
 * error may be small by chance, so the bound is at least the error that rounding o, and logits in f32, may cause. If
 * logits are at most 30, the bound is also at most 2^-8 for bf16, 2^-10 for f16 and 5e-6 for f32, unless the plain
 * implementation exceeds this. */
double case_bound(const attention_case *c);

/* A copy of rows [begin, begin + rows) of each batch entry of a whole tensor [B, length, width], each row followed by
 * the gap, to be freed with free(). whole NULL: all NaN. */
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

/* An ith_rank_fn; user: an attention_case. Places the rank's rows, makes a plan and executes it three times, in the
 * third execution with o over q. All three must give the same bits. Copies the rank's o and lse to the case. */
ith_status case_in_rank(ith_context *context, ith_comm *comm, void *user);

#endif
