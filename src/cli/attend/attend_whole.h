/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a whole attention problem in this process, and the shares of the ranks in them. Makes random problems
 * for `ithaca verify`, `ithaca bench` and `ithaca info`. */
#ifndef ITH_CLI_ATTEND_WHOLE_H
#define ITH_CLI_ATTEND_WHOLE_H

#include <ithaca/ithaca.h>

#define ITH_ATTEND_OWNED_MAX 12 /* maximal number of arrays that one problem allocates */

/* One attention problem with its whole tensors, which all ranks of the process share. */
typedef struct ith_attend_whole {
    ith_attn_problem problem;          /* sizes and strides of the whole tensors */
    ith_attn_tensors tensors;          /* the whole tensors; lse is [B, H, Sq] */
    float *lse_shares;                 /* lse of rank 0 [B, H, its rows], then lse of rank 1, and so on */
    void *owned[ITH_ATTEND_OWNED_MAX]; /* arrays that ith_attend_free frees */
    int owned_count;
} ith_attend_whole;

/* Fills in the strides of contiguous tensors [B, S, H, D]. */
void ith_attend_set_strides(ith_attn_problem *problem);
/* Allocates memory, aligned to 64 bytes, that ith_attend_free frees; NULL if there is none. */
void *ith_attend_own(ith_attend_whole *whole, int64_t bytes);
/* Allocates o, lse and lse_shares. Returns false if there is no memory. */
bool ith_attend_own_results(ith_attend_whole *whole);
/* The bytes of the whole mask of a problem; 0 if it has none. */
int64_t ith_attend_mask_bytes(const ith_attn_problem *problem);
void ith_attend_free(ith_attend_whole *whole);

/* Returns the tensors of rank `rank` of `ranks`: pointers to its first rows in the whole tensors. */
ith_attn_tensors ith_attend_share(const ith_attend_whole *whole, int ranks, int rank);
/* Copies the lse of all ranks from whole->lse_shares to whole->tensors.lse [B, H, Sq]. */
void ith_attend_gather_lse(ith_attend_whole *whole, int ranks);

/* Fills whole->tensors with random inputs for whole->problem, and allocates o and lse. q, k and v are normally
 * distributed; kv_lengths and mask are made if the problem asks for them. The standard deviation of the
 * logits (at scale 1/sqrt(D)) grows from 1 in the first head to `deviation` in the last. The same seed gives the same
 * numbers. Prints errors and returns an exit status. */
int ith_attend_make_random(ith_context *context, uint64_t seed, double deviation, ith_attend_whole *whole);

/* The number of floating-point operations of one execution: 4 B H Sq Skv D. */
double ith_attend_operations(const ith_attn_problem *problem);

#endif
