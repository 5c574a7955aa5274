/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a whole problem in this process' memory. Each rank uses its share where it lies: nothing is copied to
 * ranks but pointers. */
#ifndef ITH_CLI_ATTEND_WHOLE_H
#define ITH_CLI_ATTEND_WHOLE_H

#include <ithaca/ithaca.h>

#define ITH_ATTEND_OWNED_MAX 12

typedef struct ith_attend_whole {
    ith_attn_problem problem; /* with the strides of the whole tensors */
    ith_attn_tensors tensors; /* whole; lse [B, H, Sq] */
    float *lse_shares;        /* the ranks' lse, one after the other: rank r's is [B, H, its share] */
    void *owned[ITH_ATTEND_OWNED_MAX];
    int owned_count;
} ith_attend_whole;

/* Fills in strides: tensors are contiguous [B, S, H, D]. */
void ith_attend_set_strides(ith_attn_problem *problem);
/* Memory on a cache line, freed with the whole; NULL if there is none. */
void *ith_attend_own(ith_attend_whole *whole, int64_t bytes);
/* o, lse and the ranks' lse. False if there is no memory. */
bool ith_attend_own_results(ith_attend_whole *whole);
void ith_attend_free(ith_attend_whole *whole);

/* What one rank of `ranks` is given. */
ith_attn_tensors ith_attend_share(const ith_attend_whole *whole, int ranks, int rank);
/* Puts the ranks' lse together. */
void ith_attend_gather_lse(ith_attend_whole *whole, int ranks);

/* Fills in tensors, strides and memory for results, for whole->problem: normal q, k and v, and what has_kv_lengths,
 * has_key_bias and mask ask for. The deviation of the logits (at the scale 1/sqrt(D)) is 1 in the first head and grows
 * to `deviation` in the last. With kv_lengths the first batch entry keeps all of its keys, others lose some; a mask
 * hides a quarter of the keys, and every key from the first query of the last head. The same seed gives the same
 * numbers. Prints what is wrong and returns an exit status. */
int ith_attend_make_random(ith_context *context, uint64_t seed, double deviation, ith_attend_whole *whole);

/* 4 B H Sq Skv D */
double ith_attend_operations(const ith_attn_problem *problem);

#endif
