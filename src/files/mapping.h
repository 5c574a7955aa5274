/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file mapped into memory for reading. Nothing is read before it is touched.
 *
 * A file that another process shortens while it is mapped cannot be guarded against: touching the lost pages raises
 * SIGBUS. Files are replaced by renaming (as ith_tensor_file_write does), which leaves a mapping whole. */
#ifndef ITH_FILES_MAPPING_H
#define ITH_FILES_MAPPING_H

#include "../base/context.h"

typedef struct ith_mapping {
    const unsigned char *data; /* NULL for an empty file */
    int64_t bytes;
} ith_mapping;

/* ITH_ERR_IO for anything that cannot be opened or is no regular file (a folder, a pipe, a device: never waited for).
 * *out is empty on failure. */
ith_status ith_mapping_open(ith_context *context, const char *path, ith_mapping *out);
void ith_mapping_close(ith_mapping *mapping);

/* memcpy from memory that may have to come from a slow disk: a piece at a time, ITH_ERR_INTERRUPTED between two. */
ith_status ith_mapping_copy(ith_context *context, void *to, const void *from, int64_t bytes);

/* Tells the system that pages wholly inside [data, data + bytes) are not needed for now: they leave this process's
 * memory, and come back from the file if touched again. */
void ith_mapping_drop(const void *data, int64_t bytes);

#endif
