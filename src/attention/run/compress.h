/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed messages: rows of q, k, v and o travel with fewer bits than they have in memory (ith_compress). A vector
 * is the head_dim numbers of one row and one head. It travels as
 *
 *   bf16   each number of an f32 tensor rounded to bf16
 *   8bit   v: one scale s = max |x| / 127 in f32, then x / s rounded to 8 bits; q, k and o as with bf16
 *
 * In 8 bits, a vector with a NaN or an infinity arrives as NaNs. Along a ring a shard is rounded once for each hop:
 * numbers in bf16 do not change after the first hop; numbers in 8 bits may change a little at each hop, by the rounding
 * of the scale and of the tensor's type. If the execution is to stop (halt.h), messages and rows stay unfinished. */
#ifndef ITH_ATTENTION_COMPRESS_H
#define ITH_ATTENTION_COMPRESS_H

#include "../setting.h"

/* The sums from which the relative error of compression follows: sqrt(error / norm). */
typedef struct ith_compress_error {
    double error, norm; /* sums of (x - x')^2 and of x^2 over all numbers x that were sent, and arrive as x' */
} ith_compress_error;

/* Writes the vectors of a region to `to`, one after the other, as they travel, and adds to *sums. The region consists
 * of whole vectors of the tensor. Returns the bytes written. */
int64_t ith_compress_region(const ith_attn_setting *setting, ith_attn_tensor tensor, const ith_region *region, char *to,
                            ith_compress_error *sums);
/* Fills a region from vectors as they travel. */
void ith_decompress_region(const ith_attn_setting *setting, ith_attn_tensor tensor, const char *from,
                           const ith_region *region);

#endif
