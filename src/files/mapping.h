/* SPDX-License-Identifier: Apache-2.0 */
/* Maps regular files into memory for reading. The system reads a page of the file when it is first accessed.
 *
 * If another process truncates the file while it is mapped, access to the lost pages raises SIGBUS, and no check can
 * prevent it. A replacement by renaming, as by ith_tensor_file_write, leaves the mapping intact. */
#ifndef ITH_FILES_MAPPING_H
#define ITH_FILES_MAPPING_H

#include "../base/context.h"

/* A file that is mapped into memory. */
typedef struct ith_mapping {
    const unsigned char *data; /* the bytes of the file; NULL for an empty file */
    int64_t bytes;
} ith_mapping;

/* Maps a file. ITH_ERR_IO if it cannot be opened or is not a regular file; the call never waits for a pipe or a device.
 * On failure *out is empty. */
ith_status ith_mapping_open(ith_context *context, const char *path, ith_mapping *out);
void ith_mapping_close(ith_mapping *mapping);

/* Copies bytes from a mapping, which may be slow when they come from a disk. If the context is interrupted, the copy
 * ends after some bytes with ITH_ERR_INTERRUPTED. */
ith_status ith_mapping_copy(ith_context *context, void *to, const void *from, int64_t bytes);

/* Releases the pages that lie entirely inside [data, data + bytes) from this process's memory. A later access reads
 * them from the file again. */
void ith_mapping_drop(const void *data, int64_t bytes);

#endif
