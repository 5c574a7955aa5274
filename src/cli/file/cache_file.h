/* SPDX-License-Identifier: Apache-2.0 */
/* The files that the program keeps in the user's cache: $XDG_CACHE_HOME/ithaca, or ~/.cache/ithaca. */
#ifndef ITH_CLI_CACHE_FILE_H
#define ITH_CLI_CACHE_FILE_H

#include <limits.h>
#include <stdbool.h>

/* Writes the path of a file of this name in the cache. Returns false, with "", if the user has no such folder. */
bool ith_cache_path(const char *name, char path[PATH_MAX]);
/* Makes the folder of a file in the cache. Prints errors and returns an exit status. */
int ith_cache_make(const char *path);

#endif
