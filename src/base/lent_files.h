/* SPDX-License-Identifier: Apache-2.0 */
/* Files that another process has sent to this one, in memory. Code that opens a file by its path asks here for the path
 * under which the file can really be opened, so it reads lent files like all others. A lent file may have holes, which
 * take no memory and read as zeros.
 *
 * The files belong to a family of contexts. They have no names in any file system, so they disappear with the process,
 * however it ends. */
#ifndef ITH_BASE_LENT_FILES_H
#define ITH_BASE_LENT_FILES_H

#include <ithaca/ithaca.h>

#include <stdatomic.h>

typedef struct ith_lent_file ith_lent_file;

/* Makes a file of `bytes` bytes, all of them a hole, in the place of `path`. It can be opened from now on, and is freed
 * with the family. ITH_ERR_MEMORY on failure. */
ith_status ith_lent_file_create(ith_context *context, const char *path, int64_t bytes, ith_lent_file **out);
/* Makes room for bytes [begin, begin + bytes) of the file, which the context counts as held. Returns the address to
 * which the caller writes them; NULL on failure, with an error sentence. The memory is valid until the next call for
 * this file. */
void *ith_lent_file_fill(ith_context *context, ith_lent_file *file, int64_t begin, int64_t bytes);
/* Ends the filling of the file. */
void ith_lent_file_end(ith_lent_file *file);

/* The path under which the file `path` can be opened: another one if it was lent, otherwise `path` itself. */
const char *ith_lent_path(const ith_context *context, const char *path);
/* The bytes that the lent files of the context's family hold. */
int64_t ith_lent_bytes(const ith_context *context);

/* Frees the files of a family. root: its first context. */
void ith_lent_files_free(ith_context *root, ith_lent_file *list);

#endif
