/* SPDX-License-Identifier: Apache-2.0 */
/* Problems for tests of fixed_m: whole tensors, the offsets and the gate that ranks compute for them, and the same
 * statistics from their definition in double. */
#ifndef ITH_TESTS_FIXED_CASE_H
#define ITH_TESTS_FIXED_CASE_H

#include <ithaca/ithaca.h>

#include <stdbool.h>
#include <stdint.h>

#define FIXED_MOST_RANKS 5
#define FIXED_MOST_SEGMENTS 4

/* ---- A problem, whole ------------------------------------------------------------------------------------------ */

typedef struct fixed_case {
    ith_attn_problem problem;
    bool keeps_mean;     /* keys are not smoothed */
    void *q, *k, *v;     /* of the problem's type, [B, S, H, D] */
    float *qf, *kf, *vf; /* the same as f32 */
    int32_t kv_lengths[4];
    float *key_bias;
    /* How the case is run: */
    int ring, segments, threads;
    int64_t first, count; /* the query heads that are measured; `problem` below is the number of one of them */
    int64_t cuts[FIXED_MOST_RANKS + 1];
    /* The results of each rank: m [problems, q_len] for all queries, applies [problems] */
    float *m[FIXED_MOST_RANKS];
    bool *applies[FIXED_MOST_RANKS];
} fixed_case;

/* The numbers in q, and in k or v. */
int64_t fixed_q_count(const fixed_case *c);
int64_t fixed_k_count(const fixed_case *c);
/* Row `row` of the queries of a query head, as f32. */
const float *fixed_q_row(const fixed_case *c, int64_t problem, int64_t row);
/* The offset of a key of a query head, in elements. */
int64_t fixed_key_at(const fixed_case *c, int64_t problem, int64_t row);
/* Whether neither kv_lengths nor key_bias hides a key of a query head. */
bool fixed_key_counts(const fixed_case *c, int64_t problem, int64_t row);

/* Allocates the arrays of a case whose problem is set, filled with zeros. One rank, one segment and one thread will
 * measure all heads. */
void fixed_case_alloc(fixed_case *c);
/* Makes q, k and v from qf, kf and vf, which are rounded to the problem's type. */
void fixed_case_round(fixed_case *c);
void fixed_case_free(fixed_case *c);

/* ---- Through the code under test ------------------------------------------------------------------------------- */

/* Computes the offsets and the gate on c->ring ranks, whose shards are the keys between c->cuts. */
void fixed_case_run_cuts(fixed_case *c);
/* Does so on `ring` ranks with equal shares. */
void fixed_case_run(fixed_case *c, int ring);

/* ---- The definition in double ---------------------------------------------------------------------------------- */

/* The statistics of one query head, computed in double. */
typedef struct fixed_truth {
    double *mean;                                  /* k' [D] */
    double bound, magnitude, largest_q, largest_k; /* max |k_j - k'|, max |v|, max |q_i|, max |k_j| */
    int64_t keys;
    double gate; /* 2B or B, before ceil */
} fixed_truth;

/* |x - from| of n numbers; from NULL: zeros. */
double fixed_norm(const float *x, const double *from, int64_t n);
/* scale log2(e) */
double fixed_base2_scale(const fixed_case *c);
/* The statistics of a query head. The caller frees `mean`. */
fixed_truth fixed_truth_of(const fixed_case *c, int64_t problem);

#endif
