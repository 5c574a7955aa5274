/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that this process may still take. */
#ifndef ITH_BASE_MACHINE_MEMORY_H
#define ITH_BASE_MACHINE_MEMORY_H

#include "context.h"

typedef struct ith_machine_memory {
    int64_t free_bytes; /* INT64_MAX: the system says nothing */
    const char *source; /* what leaves no more, for a sentence: "in this machine", ... */
} ith_machine_memory;

/* The least of what the system could give to anybody (MemAvailable), of what the limit on address space leaves
 * (RLIMIT_AS), and of what the limits of the process's control group and the groups above it leave, of version 1 and 2.
 * A group's cached files count as free: the system drops them when memory is asked for.
 * root: the folder that holds proc and sys, "" for the system's own. */
ith_machine_memory ith_machine_memory_read(const char *root);

#endif
