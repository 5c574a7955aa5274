/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for files that a test makes, removed at its end. All functions end the test program on failure. */
#ifndef ITH_TESTS_TEMPORARY_H
#define ITH_TESTS_TEMPORARY_H

#include <stddef.h>

void temporary_require(int holds, const char *what);

/* A new empty folder; freed by temporary_remove. */
char *temporary_folder(void);

/* Removes the folder and all in it. */
void temporary_remove(char *folder);

/* Returns the path folder/name. It stays valid during the next seven calls. */
const char *temporary_path(const char *folder, const char *name);

void temporary_write(const char *path, const void *data, size_t bytes);

/* Reads a whole file. Returns its contents with a NUL behind them, to be freed with free(). bytes may be NULL. */
char *temporary_read(const char *path, size_t *bytes);

/* The number of entries of a folder. */
int temporary_count(const char *folder);

#endif
