/* SPDX-License-Identifier: Apache-2.0 */
/* A file in memory that has a path and can be filled again and again, so that tests of thousands of small files need no
 * disk. */
#ifndef ITH_TESTS_MEMORY_FILE_H
#define ITH_TESTS_MEMORY_FILE_H

#include <stddef.h>

typedef struct memory_file {
    int file;
    char path[40];
} memory_file;

memory_file memory_file_create(void);

void memory_file_fill(const memory_file *memory, const void *data, size_t bytes);

#endif
