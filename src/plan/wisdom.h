/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom: measured rates of kernels, kept for a context and all its clones.
 *
 * An entry has a subject, which is a text that names an operation, its type and its sizes. It lists the kernels that
 * were timed for the subject, with the preferred kernel first. Kernels are known by name, so wisdom depends neither on
 * the order of the kernel table nor on loaded plugins. A kernel that this library lacks is skipped, and kept. */
#ifndef ITH_PLAN_WISDOM_H
#define ITH_PLAN_WISDOM_H

#include "../kernels/kernel.h"

enum {
    ITH_WISDOM_SUBJECT_BYTES = 64, /* size of a subject (the text that names an entry), with its final 0 */
    ITH_WISDOM_KERNELS = 32,       /* the most kernels that one entry lists; further kernels are not measured */
    /* the most entries that are kept; after that a new entry replaces the oldest */
    ITH_WISDOM_ENTRIES = 64,
    ITH_WISDOM_MOST_RATE = 1000000000 /* the highest rate that an entry can hold */
};

/* The measured rate of one kernel. */
typedef struct ith_wisdom_rate {
    char kernel[ITH_ATTN_NAME_BYTES];
    int32_t rate; /* in 10^6 operations a second */
} ith_wisdom_rate;

/* The measured rates of kernels for one subject: an operation, its type and its sizes. */
typedef struct ith_wisdom_entry {
    char subject[ITH_WISDOM_SUBJECT_BYTES]; /* for example "attention bf16 head_dim=128 softmax=online" */
    int32_t count;
    ith_wisdom_rate kernels[ITH_WISDOM_KERNELS];
} ith_wisdom_entry;

/* Measured rates of kernels, shared by a context and all its clones. */
typedef struct ith_wisdom {
    int64_t count; /* number of entries ever added; entry n is entries[n % ITH_WISDOM_ENTRIES] */
    ith_wisdom_entry entries[ITH_WISDOM_ENTRIES];
} ith_wisdom;

/* Locks the measured rates that the context shares with its clones, and returns them. Other threads wait until
 * ith_wisdom_close. */
ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out);
void ith_wisdom_close(ith_context *context);

/* The entry with the measured rates for a subject (an operation, its type and its sizes); NULL if there is none. */
const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *wisdom, const char *subject);
/* Adds an entry with measured rates, or replaces the entry that has the same subject. */
void ith_wisdom_put(ith_wisdom *wisdom, const ith_wisdom_entry *entry);

/* Entry number i, counted from the oldest; NULL after the last. */
const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *wisdom, int64_t i);

#endif
