/* SPDX-License-Identifier: Apache-2.0 */
/* y = x w^T + b, with weights packed once. A row of y has the same bits whatever the other rows are, however many there
 * are, and however many threads run: rows are cut into tiles of one fixed size. */
#ifndef ITH_LINEAR_LINEAR_H
#define ITH_LINEAR_LINEAR_H

#include "../base/context.h"
#include "operand.h"

typedef struct ith_linear ith_linear;

/* weight [out, in] of F32, BF16 or F16; it and bias ([out], NULL: none) are copied. */
ith_status ith_linear_create(ith_context *context, int64_t in, int64_t out, const void *weight,
                                         ith_dtype weight_type, const float *bias, ith_operand_types types,
                                         ith_linear **linear);
void ith_linear_destroy(ith_context *context, ith_linear **linear);

/* rows x in -> rows x out, by the calling thread's OpenMP team. Strides in elements from one row to the next. Safe from
 * several threads (ranks) at once; any OpenMP team size. y may not overlap x. ITH_ERR_INTERRUPTED soon after the
 * context is interrupted: y is then unfinished. */
ith_status ith_linear_run(ith_context *context, const ith_linear *linear, int64_t rows, const float *x,
                                      int64_t x_stride, float *y, int64_t y_stride);

int64_t ith_linear_in(const ith_linear *linear);
int64_t ith_linear_out(const ith_linear *linear);
/* Bytes that such a layer holds, and that a run of `rows` rows by a team of `threads` works in. The second leaves out
 * what oneDNN asks for besides. */
int64_t ith_linear_bytes(int64_t in, int64_t out, ith_operand_types types);
int64_t ith_linear_run_bytes(int64_t in, int64_t out, ith_operand_types types, int64_t rows, int threads);

#endif
