/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory as a file without a name (memfd_create), which other processes open as /proc/PID/fd/FILE, and waits by
 * the system call futex (shared_memory.h). */
#include "shared_memory.h"

#include "size.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t ith_shared_memory_bytes(int64_t bytes)
{
    return ith_round_up(bytes, sysconf(_SC_PAGESIZE));
}

/* Maps a file into memory->data. Returns false, with errno, on failure. */
static bool map(int file, ith_shared_memory *memory)
{
    memory->data = mmap(NULL, (size_t)memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory->data == MAP_FAILED)
        memory->data = NULL;
    return memory->data;
}

ith_status ith_shared_memory_create(ith_context *context, int64_t bytes, const char *what, ith_shared_memory *out)
{
    *out = (ith_shared_memory){.bytes = ith_shared_memory_bytes(bytes)};
    out->file = memfd_create("ithaca", MFD_CLOEXEC);
    if (out->file < 0 || ftruncate(out->file, out->bytes) || !map(out->file, out)) {
        int error = errno;
        ith_shared_memory_hide(out);
        *out = (ith_shared_memory){.file = -1};
        return ith_fail(context, ITH_ERR_MEMORY, "out of memory for %s: %.1f MiB that processes share: %s", what,
                        (double)bytes / 1048576.0, strerror(error));
    }
    out->counted_bytes = out->bytes;
    ith_context_count(context, out->counted_bytes);
    return ITH_OK;
}

ith_shared_handle ith_shared_memory_handle(const ith_shared_memory *memory)
{
    struct stat info = {0};
    fstat(memory->file, &info);
    return (ith_shared_handle){getpid(), memory->file, info.st_dev, info.st_ino};
}

/* Opens the file of a handle. Returns -1, with errno, on failure. In another container the handle's process number may
 * belong to another process, so the path may lead to another file, which gives ENOENT. */
static int open_file(const ith_shared_handle *handle)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)handle->pid, (long long)handle->file);
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return -1;
    if (!fstat(file, &info) && info.st_dev == handle->device && info.st_ino == handle->inode)
        return file;
    close(file);
    errno = ENOENT;
    return -1;
}

ith_status ith_shared_memory_open(ith_context *context, const ith_shared_handle *handle, int64_t bytes,
                                  ith_shared_memory *out)
{
    *out = (ith_shared_memory){.bytes = ith_shared_memory_bytes(bytes), .file = -1};
    int file = open_file(handle), error = errno;
    bool mapped = file >= 0 && map(file, out);
    if (file >= 0) {
        error = errno;
        close(file);
    }
    if (mapped)
        return ITH_OK;
    *out = (ith_shared_memory){.file = -1};
    return ith_fail(context, ITH_ERR_UNSUPPORTED,
                    "cannot map the memory that process %lld of this host shares: %s: processes of a host that share "
                    "memory run as one user and see one another in /proc; or start one process on each host",
                    (long long)handle->pid, strerror(error));
}

void ith_shared_memory_hide(ith_shared_memory *memory)
{
    if (memory->file >= 0)
        close(memory->file);
    memory->file = -1;
}

void ith_shared_memory_free(ith_context *context, ith_shared_memory *memory)
{
    if (memory->data) {
        ith_shared_memory_hide(memory);
        munmap(memory->data, (size_t)memory->bytes);
        ith_context_count(context, -memory->counted_bytes);
    }
    *memory = (ith_shared_memory){.file = -1};
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

void ith_counter_wait(_Atomic uint32_t *counter, uint32_t seen, double seconds)
{
    const double whole = floor(seconds);
    const struct timespec limit = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
    syscall(SYS_futex, counter, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void ith_counter_advance(_Atomic uint32_t *counter)
{
    atomic_fetch_add(counter, 1);
    syscall(SYS_futex, counter, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
