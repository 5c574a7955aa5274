/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast attention kernels are, on one head of pseudo-random numbers. */
#ifndef ITH_PLAN_MEASURE_H
#define ITH_PLAN_MEASURE_H

#include "wisdom.h"

/* A trial, on which kernels are timed: one head of random numbers, and the memory that kernels need for it. The caller
 * sets the sizes before ith_trial_create, and kernel, tiles and softmax before every use. */
typedef struct ith_trial {
    ith_dtype dtype;
    int64_t head_dim, q_len, kv_len;
    /* sizes of `packed` and `scratch`, enough for every kernel that is tried */
    int64_t packed_bytes, scratch_bytes;
    const ith_attn_kernel *kernel;
    ith_attn_tiles tiles;
    ith_softmax softmax;
    void *memory; /* one allocation, which holds all arrays below */
    char *q, *k, *v, *o, *packed, *scratch;
    const void **q_rows, **k_rows, **v_rows;
    void **o_rows;
    float *m, *l, *o_sum;
} ith_trial;

/* Allocates a trial and fills q, k and v with normally distributed numbers that depend on seed. */
ith_status ith_trial_create(ith_context *context, uint32_t seed, ith_trial *trial);
void ith_trial_free(ith_context *context, ith_trial *trial);
/* ith_trial_pack packs all keys and values; ith_trial_attend then computes the attention of all queries, as a plan does
 * on one thread. */
void ith_trial_pack(const ith_trial *trial);
void ith_trial_attend(const ith_trial *trial);

/* Kernels to choose from, in the order of the kernel table. */
typedef struct ith_candidates {
    int count;
    const ith_attn_kernel *kernels[ITH_WISDOM_FIGURES];
} ith_candidates;

/* Measures the rate of candidate `index` once, in 10^6 operations a second. */
typedef ith_status ith_measure_once(void *user, int index, double *rate);

/* Measures the candidates of an entry, whose names are set, and writes their rates. They take turns, so that a
 * disturbance affects all of them. A candidate that is far behind drops out. */
ith_status ith_measure_in_turns(ith_measure_once *once, void *user, ith_wisdom_entry *entry);

/* Times the candidates on one head of this type and size, and writes their names and rates to the entry, in the order
 * of the candidates, by ith_measure_in_turns. The measurement takes milliseconds, on one thread. */
ith_status ith_measure_kernels(ith_context *context, ith_dtype dtype, int64_t head_dim, ith_softmax softmax,
                               const ith_candidates *candidates, ith_wisdom_entry *entry);

#endif
