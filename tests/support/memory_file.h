/* SPDX-License-Identifier: Apache-2.0 */
/* A file in memory with a path of its own, to be filled again and again: thousands of small files cost no disk. */
#ifndef ITH_TESTS_MEMORY_FILE_H
#define ITH_TESTS_MEMORY_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct memory_file {
    int file;
    char path[40];
} memory_file;

static inline memory_file memory_file_create(void)
{
    memory_file memory = {.file = memfd_create("ithaca-test", MFD_CLOEXEC)};
    if (memory.file < 0)
        abort();
    snprintf(memory.path, sizeof memory.path, "/proc/self/fd/%d", memory.file);
    return memory;
}

static inline void memory_file_fill(const memory_file *memory, const void *data, size_t bytes)
{
    if (ftruncate(memory->file, 0) || pwrite(memory->file, data, bytes, 0) != (ssize_t)bytes)
        abort();
}

#endif
