/* SPDX-License-Identifier: Apache-2.0 */
#include "support/memory_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

memory_file memory_file_create(void)
{
    memory_file memory = {.file = memfd_create("ithaca-test", MFD_CLOEXEC)};
    if (memory.file < 0)
        abort();
    snprintf(memory.path, sizeof memory.path, "/proc/self/fd/%d", memory.file);
    return memory;
}

void memory_file_fill(const memory_file *memory, const void *data, size_t bytes)
{
    if (ftruncate(memory->file, 0) || pwrite(memory->file, data, bytes, 0) != (ssize_t)bytes)
        abort();
}
