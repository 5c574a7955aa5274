/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in float64, straight from its definition, for tests and for `ithaca verify`:
 *
 *     s_ij = scale q_i . k_j + bias_ij,   p_ij = exp(s_ij - max_j s_ij),
 *     o_i = sum_j p_ij v_j / sum_j p_ij,  lse_i = log sum_j exp(s_ij).
 *
 * A row without a key has o = 0 and lse = -inf. The oracle shares no code with the library: it converts types itself.
 * In an ith_attn_problem for the oracle, kv_heads, the strides and the sizes of a mask must be filled in. A scale of 0
 * stands for 1 / sqrt(head_dim). */
#ifndef ITH_ORACLE_H
#define ITH_ORACLE_H

#include <ithaca/ithaca.h>

/* The outputs of some queries of every head. o is [batch, heads, count, head_dim], and the other results are [batch,
 * heads, count]. */
typedef struct ith_oracle_rows {
    int64_t count;
    int64_t *index; /* [count]: the numbers of the chosen queries */
    /* o: the outputs. lse: the natural logarithm of the sum of exp(s_ij) of each row. */
    double *o, *lse;
    double *max_logit; /* [batch, heads, count]: the largest logit s_ij of each row; set by ith_oracle_exact */
    /* The largest |scale q_i . k_j| of each row, over keys with a bias above -1e30; set by ith_oracle_exact. */
    double *max_product;
} ith_oracle_rows;

/* Allocates rows for all queries if `most` is at least their number, otherwise for `most` queries at even distances.
 * Returns false if there is no memory; ith_oracle_rows_free must be called in either case. */
bool ith_oracle_rows_create(const ith_attn_problem *problem, int64_t most, ith_oracle_rows *rows);
/* Frees the memory of the rows, and sets their number to 0. */
void ith_oracle_rows_free(ith_oracle_rows *rows);

/* Computes the rows in float64. Returns false if there is no memory. */
bool ith_oracle_exact(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows);
/* Computes the rows as a plain implementation would: logits and sums in f32, p and o rounded to the type of v. Returns
 * false if there is no memory. */
bool ith_oracle_plain(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows);
/* Copies o and lse from the tensors, which hold the results to be checked, into the rows. */
void ith_oracle_copy_results(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows);

/* The relative L2 error |o - exact| / |exact| of head n = b * heads + h. It is infinite if it would be NaN, and if a
 * row without a key has an output other than 0. */
double ith_oracle_head_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                             int64_t n);
/* The relative L2 error |o - exact| / |exact| over all heads whose exact lse is at most most_lse in every row. */
double ith_oracle_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                        double most_lse);
/* The largest |lse - exact| / max(1, |exact|) of all rows. It is infinite if a row has lse = -inf (no key) in only one
 * of `rows` and `exact`. */
double ith_oracle_lse_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact);

#endif
