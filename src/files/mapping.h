/* SPDX-License-Identifier: Apache-2.0 */
/* Maps regular files into memory for reading. The system reads a page of the file when it is first accessed, and keeps
 * it for all processes that map the file.
 *
 * Another process may change a file while it is mapped. If the file is cut, access to the lost pages raises SIGBUS, so
 * every access goes through ith_mapping_copy or another guard (base/file_fault.h). If the file is overwritten, its new
 * content appears in the mapping. If it is replaced by renaming, the mapping keeps the old content. ith_mapping_check
 * finds all these changes. */
#ifndef ITH_FILES_MAPPING_H
#define ITH_FILES_MAPPING_H

#include "../base/context.h"

/* The identity of a file and of its content. Two different files have different marks. A change of the content changes
 * the mark of a file. */
typedef struct ith_file_mark {
    uint64_t device, inode;
    int64_t bytes, seconds, nanoseconds; /* size, and the time of the last change of the content */
} ith_file_mark;

/* A file that is mapped into memory. */
typedef struct ith_mapping {
    const unsigned char *data; /* the bytes of the file; NULL for an empty file */
    int64_t bytes;
    ith_file_mark mark; /* at the time of opening */
} ith_mapping;

/* Maps a file. ITH_ERR_IO if it cannot be opened or is not a regular file; the call never waits for a pipe or a device;
 * ITH_ERR_FORMAT for a text that Git LFS leaves in place of a file. On failure *out is empty. */
ith_status ith_mapping_open(ith_context *context, const char *path, ith_mapping *out);
void ith_mapping_close(ith_mapping *mapping);

/* Checks that `path` still names the mapped file, with the same content. Takes two system calls.
 * ITH_ERR_IO if it was replaced, changed or removed. */
ith_status ith_mapping_check(ith_context *context, const char *path, const ith_mapping *mapping);

/* Copies bytes from a mapped file, which may be slow when they come from a disk. If the context is interrupted, the
 * copy ends after some bytes with ITH_ERR_INTERRUPTED. ITH_ERR_IO if the file was cut. */
ith_status ith_mapping_copy(ith_context *context, const char *path, void *to, const void *from, int64_t bytes);

/* Reads a whole file of at most `most` bytes into new memory and adds a final 0. The caller frees *data with
 * ith_free. ITH_ERR_FORMAT for a larger file; `what` names it in the sentence: "a configuration". */
ith_status ith_file_read(ith_context *context, const char *path, const char *what, int64_t most, char **data,
                         int64_t *bytes);

#endif
