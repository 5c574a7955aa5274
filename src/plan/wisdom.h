/* SPDX-License-Identifier: Apache-2.0 */
/* Wisdom: results of measurements on this machine, kept for a context and all its clones.
 *
 * An entry has a subject, which is a text that names an operation, its type and its sizes, and a list of named numbers.
 * There are three kinds of subjects:
 *
 *     attention TYPE head_dim=D softmax=S [device=MODEL]      the rate of each kernel, the preferred kernel first
 *     tiles KERNEL TYPE head_dim=D softmax=S keys=N           the fastest tiles of a kernel (tile_wisdom.h)
 *     strategy TYPE heads=H ... ranks=P ... [device=MODEL]    the fastest strategy (strategy_wisdom.h)
 *
 * MODEL is the maker's name of a device. An entry without it is about the processor.
 *
 * Kernels are known by name, so wisdom depends neither on the order of the kernel table nor on loaded modules. A
 * subject or a name that this library lacks is skipped, and kept. */
#ifndef ITH_PLAN_WISDOM_H
#define ITH_PLAN_WISDOM_H

#include "../kernels/kernel.h"

/* The limits of wisdom. */
enum {
    ITH_WISDOM_SUBJECT_BYTES = 256, /* size of a subject (the text that names an entry), with its final 0 */
    ITH_WISDOM_FIGURES = 32,        /* the most numbers of an entry; further kernels are not measured */
    /* the most entries that are kept; after that a new entry replaces the oldest */
    ITH_WISDOM_ENTRIES = 256,
    ITH_WISDOM_MOST = 1000000000 /* the largest number that an entry can hold; the smallest is 1 */
};

/* A named number, such as the rate of a kernel in 10^6 operations a second. */
typedef struct ith_wisdom_figure {
    char name[ITH_ATTN_NAME_BYTES];
    int32_t value;
} ith_wisdom_figure;

/* The results that were measured for one subject. */
typedef struct ith_wisdom_entry {
    char subject[ITH_WISDOM_SUBJECT_BYTES]; /* for example "attention bf16 head_dim=128 softmax=online" */
    bool own; /* measured by this process; when wisdom is saved, it replaces the file's entry of this subject */
    int32_t count;
    ith_wisdom_figure figures[ITH_WISDOM_FIGURES];
} ith_wisdom_entry;

/* The entries that a context and all its clones share. */
typedef struct ith_wisdom {
    int64_t count; /* number of entries ever added; entry n is entries[n % ITH_WISDOM_ENTRIES] */
    ith_wisdom_entry entries[ITH_WISDOM_ENTRIES];
} ith_wisdom;

/* Locks the wisdom that the context shares with its clones, and returns it. Other threads wait until
 * ith_wisdom_close. */
ith_status ith_wisdom_open(ith_context *context, ith_wisdom **out);
void ith_wisdom_close(ith_context *context);

/* The entry for a subject; NULL if there is none. */
const ith_wisdom_entry *ith_wisdom_find(const ith_wisdom *wisdom, const char *subject);
/* Adds an entry, or replaces the entry that has the same subject. */
void ith_wisdom_put(ith_wisdom *wisdom, const ith_wisdom_entry *entry);

/* Entry number i, counted from the oldest; NULL after the last. */
const ith_wisdom_entry *ith_wisdom_at(const ith_wisdom *wisdom, int64_t i);

/* The number that an entry holds for a value: the nearest from 1 to ITH_WISDOM_MOST. */
int32_t ith_wisdom_number(double value);
/* Adds a number to an entry that has room for it. */
void ith_wisdom_add(ith_wisdom_entry *entry, const char *name, double value);
/* The number called `name`; 0 if the entry is NULL or has none. */
int64_t ith_wisdom_value(const ith_wisdom_entry *entry, const char *name);

#endif
