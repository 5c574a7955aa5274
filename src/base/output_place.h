/* SPDX-License-Identifier: Apache-2.0 */
/* The place of an output: the file that it replaces, and the temporary file beside it that becomes the output when it
 * is complete. The functions return error numbers of the system, and need no context. */
#ifndef ITH_BASE_OUTPUT_PLACE_H
#define ITH_BASE_OUTPUT_PLACE_H

#include <limits.h>
#include <stdbool.h>

/* Writes the name of the file or folder behind symbolic links to `target`, whether it exists or not. The links stay
 * when the target is replaced. Returns an error number, or 0. */
int ith_output_target(const char *path, char target[PATH_MAX]);

/* Writes the name of a file or folder without links, "." and "..". If it is not there, only the name of its folder is
 * resolved. Returns an error number, or 0. */
int ith_output_real(const char *path, char real[PATH_MAX]);

/* Whether a path is a character device, which keeps nothing, so that several outputs may share it (/dev/null). */
bool ith_output_is_device(const char *path);

/* Whether a path names a folder: a folder is there, or the path has a '/' at its end. */
bool ith_output_is_folder(const char *path);

/* Creates and removes the temporary file of an output. Returns an error number, or 0. */
int ith_output_try(const char *path);

/* Writes the name of a file that belongs to `target`: in the same folder, PREFIX NAME SUFFIX. NAME is the name of the
 * target. A long name is cut, and a hash of the whole name follows: names that begin alike have different files, and no
 * name is too long for a file. Returns an error number, or 0. */
int ith_output_beside(const char *target, const char *prefix, const char *suffix, char beside[PATH_MAX]);

/* Creates an empty file, or a folder, in the folder of `target`: .NAME.partial-PID (ith_output_beside). A file has the
 * permissions of the file that it will replace; a file that may not be written to is refused. Returns a descriptor,
 * which the caller closes, or -1 with the reason in errno. */
int ith_output_create(const char *target, bool folder, char partial[PATH_MAX]);

/* Writes an open file or folder through to the disk, because the error of a full disk may appear only then. data_only:
 * leaves out facts that a reader of the data does not need, such as times. Returns an error number, or 0: also for a
 * device such as /dev/null and on a file system that cannot do it. */
int ith_output_sync(int file, bool data_only);

#endif
