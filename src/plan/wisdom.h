/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom: measured rates, kept for a context and all its clones.
 *
 * An entry has a subject, a text that names an operation, its type and its sizes, and lists the kernels that were timed
 * for it, the preferred one first. Kernels are known by name. So the meaning of wisdom depends neither on the order of
 * the table of kernels nor on its plugins, and a kernel that is missing here is passed over and kept. */
#ifndef ITH_PLAN_WISDOM_H
#define ITH_PLAN_WISDOM_H

#include "../kernels/kernel.h"

enum {
    ITH_WISDOM_SUBJECT_BYTES = 64,
    ITH_WISDOM_KERNELS = 32, /* of an entry; more are not measured */
    ITH_WISDOM_ENTRIES = 64, /* a new one replaces the oldest */
    ITH_WISDOM_MOST_RATE = 1000000000
};

typedef struct ith_wisdom_rate {
    char kernel[ITH_ATTN_NAME_BYTES];
    int32_t rate; /* 10^6 operations a second */
} ith_wisdom_rate;

typedef struct ith_wisdom_entry {
    char subject[ITH_WISDOM_SUBJECT_BYTES]; /* "attention bf16 head_dim=128 softmax=online" */
    int32_t count;
    ith_wisdom_rate kernels[ITH_WISDOM_KERNELS];
} ith_wisdom_entry;

typedef struct ith_wisdom {
    int64_t count; /* entries ever added; number n is in slot n % ITH_WISDOM_ENTRIES */
    ith_wisdom_entry entries[ITH_WISDOM_ENTRIES];
} ith_wisdom;

/* Locks and returns the wisdom of the context's family, until ith_wisdom_close. */
ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out);
void ith_wisdom_close(ith_context *context);

/* The entry of a subject; NULL if there is none. */
const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *wisdom, const char *subject);
/* Adds an entry, or replaces the one of the same subject. */
void ith_wisdom_put(ith_wisdom *wisdom, const ith_wisdom_entry *entry);

/* Entry number i, the oldest first; NULL after the last. */
const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *wisdom, int64_t i);

#endif
