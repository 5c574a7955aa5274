/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a whole attention problem in this process, and the shares of its ranks; random problems for `ithaca
 * verify`, `ithaca bench` and `ithaca info`. */
#ifndef ITH_CLI_ATTEND_WHOLE_H
#define ITH_CLI_ATTEND_WHOLE_H

#include <ithaca/ithaca.h>

#define ITH_ATTEND_OWNED_MAX 12

typedef struct ith_attend_whole {
    ith_attn_problem problem; /* with the strides of the whole tensors */
    ith_attn_tensors tensors; /* whole; lse [B, H, Sq] */
    float *lse_shares;        /* lse of the ranks, one after another: [B, H, rows of the rank] */
    void *owned[ITH_ATTEND_OWNED_MAX];
    int owned_count;
} ith_attend_whole;

/* Fills in the strides of contiguous tensors [B, S, H, D]. */
void ith_attend_set_strides(ith_attn_problem *problem);
/* Allocates memory, aligned to 64 bytes, that ith_attend_free frees; NULL if there is none. */
void *ith_attend_own(ith_attend_whole *whole, int64_t bytes);
/* Allocates o, lse and lse_shares. Returns false if there is no memory. */
bool ith_attend_own_results(ith_attend_whole *whole);
void ith_attend_free(ith_attend_whole *whole);

/* The tensors of one rank of `ranks`: pointers to its first rows in the whole tensors. */
ith_attn_tensors ith_attend_share(const ith_attend_whole *whole, int ranks, int rank);
/* Copies lse_shares into tensors.lse. */
void ith_attend_gather_lse(ith_attend_whole *whole, int ranks);

/* Fills in tensors, strides and memory for results, for whole->problem: normal q, k and v, and the tensors that
 * has_kv_lengths, has_key_bias and mask ask for. The standard deviation of the logits (at scale 1/sqrt(D)) grows from 1
 * in the first head to `deviation` in the last. The same seed gives the same numbers. Prints errors and returns an exit
 * status. */
int ith_attend_make_random(ith_context *context, uint64_t seed, double deviation, ith_attend_whole *whole);

/* The number of floating-point operations: 4 B H Sq Skv D. */
double ith_attend_operations(const ith_attn_problem *problem);

#endif
