/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast attention kernels are, on one head of pseudo-random numbers. */
#ifndef ITH_PLAN_MEASURE_H
#define ITH_PLAN_MEASURE_H

#include "wisdom.h"

/* Writes `count` nearly normal numbers, each the sum of four uniform ones. They depend on *seed, which is advanced. */
void ith_measure_numbers(ith_dtype dtype, char *data, int64_t count, uint32_t *seed);

/* Kernels to choose from, in the order of the kernel table. */
typedef struct ith_candidates {
    int count;
    const ith_attn_kernel *kernels[ITH_WISDOM_FIGURES];
} ith_candidates;

/* Times the candidates on one head of this type and size, and writes their names and rates to the entry, in the order
 * of the candidates. Kernels take turns, so that a disturbance affects all of them. A kernel that is far behind drops
 * out. The measurement takes milliseconds, on one thread. */
ith_status ith_measure_kernels(ith_context *context, ith_dtype dtype, int64_t head_dim, ith_softmax softmax,
                               const ith_candidates *candidates, ith_wisdom_entry *entry);

#endif
