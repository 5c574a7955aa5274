/* A regular file mapped into memory for reading. */
#include "mapping.h"

#include "../base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((int64_t)1 << 20)

static ith_status map(ith_context *context, const char *path, int file, ith_mapping *out)
{
    struct stat info;
    if (fstat(file, &info))
        return ith_fail(context, ITH_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ith_fail(context, ITH_ERR_IO, "cannot read %s: it is %s, not a file", path,
                        S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device");
    if (info.st_size == 0)
        return ITH_OK;
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED)
        return ith_fail(context, ITH_ERR_IO, "cannot map %s into memory: %s", path, strerror(errno));
    /* Weights are read once, from front to back of each tensor; without effect where the system does not care. */
    madvise(data, (size_t)info.st_size, MADV_SEQUENTIAL);
    out->data = data;
    out->bytes = info.st_size;
    return ITH_OK;
}

ith_status ith_mapping_open(ith_context *context, const char *path, ith_mapping *out)
{
    *out = (ith_mapping){NULL, 0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hold us up */
    if (file < 0)
        return ith_fail(context, ITH_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    ith_status status = map(context, path, file, out);
    close(file);
    return status;
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
