/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of an execution's tensors, and whether two of them overlap. */
#ifndef ITH_ATTENTION_EXTENTS_H
#define ITH_ATTENTION_EXTENTS_H

#include "setting.h"

/* The memory of a tensor: `batches` times `rows` rows of `width` bytes. In bytes, row s of batch entry b begins at
 *     begin + b * batch_stride + s * row_stride.
 * A tensor without rows has no memory. */
typedef struct ith_extent {
    uintptr_t begin, width, batches, rows, batch_stride, row_stride;
} ith_extent;

/* Numbers of the tensors that an execution reads or writes. q, k, v, o and lse come first, as in ith_attn_tensor. */
enum { ITH_EXTENT_BIAS = ITH_TENSORS, ITH_EXTENT_MASK, ITH_EXTENT_LENGTHS, ITH_EXTENTS };

/* The memory of all tensors of an execution, by their numbers. */
typedef struct ith_extents {
    ith_extent of[ITH_EXTENTS];
} ith_extents;

/* The name of a tensor in error sentences. */
const char *ith_extent_name(int tensor);

/* The memory of the tensors of an execution. */
ith_extents ith_extents_of(const ith_attn_setting *setting, const ith_attn_tensors *tensors);

/* Whether two tensors share a byte. Tensors whose ranges of addresses intersect count as sharing a byte if they have
 * neither the same strides nor separate columns of one buffer. */
bool ith_extents_overlap(const ith_extent *a, const ith_extent *b);

/* Checks the tensors of an execution: none may be missing or misaligned, and outputs may not overlap other tensors.
 * Sets *all to their memory. */
ith_status ith_attn_tensors_check(const ith_attn_setting *setting, const ith_attn_tensors *tensors, ith_extents *all);

#endif
