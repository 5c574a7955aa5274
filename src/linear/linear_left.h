/* SPDX-License-Identifier: Apache-2.0 */
/* Converts weights into left operands of a product kernel. */
#ifndef ITH_LINEAR_LINEAR_LEFT_H
#define ITH_LINEAR_LINEAR_LEFT_H

#include "linear_state.h"

/* The number of parts of the converted weights of a matrix. */
int ith_linear_weight_parts(const ith_linear_size *size, const ith_linear_weight *weight);
/* Whether low-rank additions to layers of this size can be merged, and in out / (in + out) is at most merges_most. */
bool ith_linear_may_merge(const ith_linear_size *size, int64_t merges_most);

/* Converts the weights of features [first, first + count) within block number `block` of k, with the merged additions
 * to them. Writes part p of feature first + i to `to` + p * part_bytes + i * row_bytes, or interleaves the features of
 * each tile from the first on. Returns NULL, or the name of the file that was cut while it was read. */
const char *ith_linear_convert(const ith_linear *linear, int64_t first, int64_t count, int64_t block, char *to,
                               int64_t part_bytes);
/* The same for all blocks of k: writes block b to `to` + b * block_bytes. */
const char *ith_linear_convert_all(const ith_linear *linear, int64_t first, int64_t count, char *to,
                                   int64_t block_bytes, int64_t part_bytes);
/* Lets a call of the kernel fetch the weights of features [first, first + count) within a block of k: sets the members
 * next_left* of the call. If the features lie in several matrices, it fetches only from the first. */
void ith_linear_fetch(const ith_linear *linear, int64_t first, int64_t count, int64_t block, ith_product_call *call);

#endif
