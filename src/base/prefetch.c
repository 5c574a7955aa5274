/* SPDX-License-Identifier: Apache-2.0 */
/* Reads mapped files ahead with madvise (prefetch.h). */
#include "prefetch.h"

#include <sys/mman.h>
#include <unistd.h>

void ith_prefetch(const void *data, int64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data / page * page, end = (uintptr_t)data + (uintptr_t)bytes;
    if (bytes > 0)
        madvise((void *)begin, end - begin, MADV_WILLNEED);
}
