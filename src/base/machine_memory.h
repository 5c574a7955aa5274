/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that this process can still allocate. */
#ifndef ITH_BASE_MACHINE_MEMORY_H
#define ITH_BASE_MACHINE_MEMORY_H

#include "context.h"

/* An amount of memory, and the limit from which it follows. */
typedef struct ith_memory_limit {
    int64_t bytes;      /* INT64_MAX if no limit is known */
    const char *source; /* the tightest limit, in words that end a sentence: "are free in this machine", ... */
} ith_memory_limit;

/* The memory that is left. */
typedef struct ith_machine_memory {
    ith_memory_limit free;   /* for this process */
    ith_memory_limit shared; /* the same without RLIMIT_AS: processes of a machine share it */
} ith_machine_memory;

/* Returns the least of three amounts: the available memory of the machine (MemAvailable), the rest of the limit on
 * address space (RLIMIT_AS), and the rest of the limits of control groups. These are the process's group and its
 * ancestors, of versions 1 and 2. Files that a group caches count as free, because the system drops them on demand.
 * root: the folder that holds proc and sys, "" for the root of the file system. */
ith_machine_memory ith_machine_memory_read(const char *root);

#endif
