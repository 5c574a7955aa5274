/* SPDX-License-Identifier: Apache-2.0 */
/* What attention should come to: in float64 straight from the definition, and as a plain implementation has it. Shares
 * no code with the library, conversions of types included. */
#ifndef ITH_CLI_ATTEND_REFERENCE_H
#define ITH_CLI_ATTEND_REFERENCE_H

#include "attend_whole.h"

/* Some rows of every head: o [B, H, count, D], lse [B, H, count]. */
typedef struct ith_attend_rows {
    int64_t count;
    int64_t *index; /* [count], numbers of queries */
    double *o, *lse;
} ith_attend_rows;

/* All rows if `most` is at least the number of queries, otherwise `most` of them, spread evenly. False if there is no
 * memory; free in any case. */
bool ith_attend_rows_create(const ith_attn_problem *problem, int64_t most, ith_attend_rows *rows);
void ith_attend_rows_free(ith_attend_rows *rows);

/* float64 on the tensors as they are. False if there is no memory. */
bool ith_attend_exact(const ith_attend_whole *whole, ith_attend_rows *rows);
/* f32 logits, p rounded to the type of v, f32 sums, o rounded to the type of v. */
bool ith_attend_plain(const ith_attend_whole *whole, ith_attend_rows *rows);
/* What the library left in the whole tensors. */
void ith_attend_found(const ith_attend_whole *whole, ith_attend_rows *rows);

/* The relative L2 difference of o in head problem n = b * H + h; infinity for a NaN, and for anything but 0 in a row
 * with no key. */
double ith_attend_error(const ith_attn_problem *problem, const ith_attend_rows *rows, const ith_attend_rows *exact,
                        int64_t n);
/* The same over all heads together that have no lse above most_lse. */
double ith_attend_error_of_all(const ith_attn_problem *problem, const ith_attend_rows *rows,
                               const ith_attend_rows *exact, double most_lse);
/* The largest difference of lse in units of max(1, |lse|); infinity unless the same rows have no key. */
double ith_attend_lse_error(const ith_attn_problem *problem, const ith_attend_rows *rows, const ith_attend_rows *exact);

#endif
