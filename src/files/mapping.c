/* SPDX-License-Identifier: Apache-2.0 */
/* Maps regular files into memory for reading. */
#include "mapping.h"

#include "../base/open_file.h"
#include "../base/size.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((int64_t)1 << 20) /* bytes copied between two checks for an interruption */

ith_status ith_mapping_open(ith_context *context, const char *path, ith_mapping *out)
{
    int file;
    int64_t bytes;
    *out = (ith_mapping){NULL, 0};
    ith_status status = ith_open_file(context, path, &file, &bytes);
    if (status)
        return status;
    void *data = bytes ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
    if (data == MAP_FAILED)
        status = ith_fail(context, ITH_ERR_IO, "cannot map %s into memory: %s", path, strerror(errno));
    close(file);
    if (status || !bytes)
        return status;
    /* Each tensor is read once, from front to back, so the system may read ahead. */
    madvise(data, (size_t)bytes, MADV_SEQUENTIAL);
    *out = (ith_mapping){data, bytes};
    return ITH_OK;
}

void ith_mapping_close(ith_mapping *mapping)
{
    if (mapping->data)
        munmap((void *)(uintptr_t)mapping->data, (size_t)mapping->bytes);
    *mapping = (ith_mapping){NULL, 0};
}

ith_status ith_mapping_copy(ith_context *context, void *to, const void *from, int64_t bytes)
{
    ith_status status = ITH_OK;
    for (int64_t done = 0; done < bytes && !(status = ith_context_check(context)); done += PIECE_BYTES)
        memcpy((char *)to + done, (const char *)from + done, (size_t)ith_min64(PIECE_BYTES, bytes - done));
    return status;
}

void ith_mapping_drop(const void *data, int64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + (uintptr_t)bytes) / page * page;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}
