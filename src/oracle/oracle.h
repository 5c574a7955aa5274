/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in float64, straight from its definition, for tests and for `ithaca verify`:
 *
 *     s_ij = scale q_i . k_j + bias_ij,   p_ij = exp(s_ij - max_j s_ij),
 *     o_i = sum_j p_ij v_j / sum_j p_ij,  lse_i = log sum_j exp(s_ij).
 *
 * A row without a key has o = 0 and lse = -inf. The oracle shares no code with the library: it converts types itself.
 * Problems have kv_heads, strides and the sizes of a mask filled in. */
#ifndef ITH_ORACLE_H
#define ITH_ORACLE_H

#include <ithaca/ithaca.h>

/* Some rows of every head: o is [B, H, count, D], the others are [B, H, count]. */
typedef struct ith_oracle_rows {
    int64_t count;
    int64_t *index; /* [count]: the queries that these rows belong to */
    double *o, *lse;
    double *peak;  /* largest s_ij of the row; set by ith_oracle_exact */
    double *reach; /* largest |scale q_i . k_j| of keys with a bias above -1e30; set by ith_oracle_exact */
} ith_oracle_rows;

/* Rows for all queries if `most` is at least their number, otherwise for `most` queries at even distances. Returns
 * false if there is no memory; ith_oracle_rows_free is right in both cases. */
bool ith_oracle_rows_create(const ith_attn_problem *problem, int64_t most, ith_oracle_rows *rows);
void ith_oracle_rows_free(ith_oracle_rows *rows);

/* The exact result. Returns false if there is no memory. */
bool ith_oracle_exact(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows);
/* The result of a plain implementation: logits and sums in f32, p and o rounded to the type of v. */
bool ith_oracle_plain(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows);
/* Copies o and lse of the tensors into the rows. */
void ith_oracle_found(const ith_attn_problem *problem, const ith_attn_tensors *tensors, ith_oracle_rows *rows);

/* The relative L2 error |o - exact| / |exact| of head n = b * H + h. It is infinite for NaN, and for anything but 0 in
 * a row without a key. */
double ith_oracle_head_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                             int64_t n);
/* The same over all heads whose exact lse does not exceed most_lse. */
double ith_oracle_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact,
                        double most_lse);
/* The largest |lse - exact| / max(1, |exact|). It is infinite unless the same rows have no key. */
double ith_oracle_lse_error(const ith_attn_problem *problem, const ith_oracle_rows *rows, const ith_oracle_rows *exact);

#endif
