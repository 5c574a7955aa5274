/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes of one host map. It has no name in any file system, so it disappears with the last
 * process that maps it, however these processes end. One process creates it and tells the others its handle by
 * message; the others open it by this handle. */
#ifndef ITH_BASE_SHARED_MEMORY_H
#define ITH_BASE_SHARED_MEMORY_H

#include "context.h"

#include <stdatomic.h>

/* Shared memory, as one process has mapped it. */
typedef struct ith_shared_memory {
    void *data;                   /* aligned to a page; NULL: none */
    int64_t bytes, counted_bytes; /* counted_bytes: held by the context; 0 if another process created the memory */
    /* the file descriptor in the process that created the memory, until ith_shared_memory_hide; otherwise -1 */
    int file;
} ith_shared_memory;

/* The data with which another process of the host opens the memory. */
typedef struct ith_shared_handle {
    int64_t pid, file;
    uint64_t device, inode; /* tell this memory from every other file */
} ith_shared_handle;

/* Makes zeroed memory. The context counts ith_shared_memory_bytes(bytes) as held. what: names the memory in the error
 * sentence of ITH_ERR_MEMORY. On failure *out is empty. */
ith_status ith_shared_memory_create(ith_context *context, int64_t bytes, const char *what, ith_shared_memory *out);
int64_t ith_shared_memory_bytes(int64_t bytes);
/* The handle of memory that this process has created and not hidden yet. */
ith_shared_handle ith_shared_memory_handle(const ith_shared_memory *memory);
/* Maps the memory that another process of this host, or this one, has created. The context does not count it.
 * ITH_ERR_UNSUPPORTED if the system keeps this process from it, as it does where processes run as different users or in
 * different containers. On failure *out is empty. */
ith_status ith_shared_memory_open(ith_context *context, const ith_shared_handle *handle, int64_t bytes,
                                  ith_shared_memory *out);
/* After this call no further process can open the memory. */
void ith_shared_memory_hide(ith_shared_memory *memory);
/* Unmaps the memory, of which other processes may still have mappings. It may be empty. */
void ith_shared_memory_free(ith_context *context, ith_shared_memory *memory);

/* Sleeps until *counter differs from `seen`, but at most for `seconds`. The counter may lie in shared memory. */
void ith_counter_wait(_Atomic uint32_t *counter, uint32_t seen, double seconds);
/* Adds 1 to *counter, and wakes all threads of all processes that wait for it. */
void ith_counter_advance(_Atomic uint32_t *counter);

#endif
