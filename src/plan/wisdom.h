/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, kept for a context and all its clones: for a type, a head size and a softmax the rate of every
 * kernel that was timed, and the one that is taken. */
#ifndef ITH_PLAN_WISDOM_H
#define ITH_PLAN_WISDOM_H

#include "../kernels/kernel.h"

enum {
    ITH_WISDOM_KERNELS = 32, /* of the table; more are not measured */
    ITH_WISDOM_ENTRIES = 64, /* the oldest gives way */
    ITH_WISDOM_MOST_RATE = 1000000000
};

typedef struct ith_wisdom_entry {
    ith_dtype dtype;
    ith_softmax softmax;
    int64_t head_dim;
    const ith_attn_kernel *kernel;
    int32_t rates[ITH_WISDOM_KERNELS]; /* 10^6 operations a second by place in the table; 0: not measured */
} ith_wisdom_entry;

typedef struct ith_wisdom {
    int64_t count; /* entries ever put in; number n is in slot n % ITH_WISDOM_ENTRIES */
    ith_wisdom_entry entries[ITH_WISDOM_ENTRIES];
} ith_wisdom;

/* The wisdom of the context's family, which nobody else reads or writes until ith_wisdom_close. */
ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out);
void ith_wisdom_close(ith_context *context);

/* NULL if nothing is known. */
const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *wisdom, ith_dtype dtype, int64_t head_dim,
                                        ith_softmax softmax);
/* Takes the place of what was known of the same type, head size and softmax. */
void ith_wisdom_put(ith_wisdom *wisdom, const ith_wisdom_entry *entry);

/* Entry number i of those that are there, the oldest first; NULL after the last. */
const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *wisdom, int64_t i);

#endif
