/* SPDX-License-Identifier: Apache-2.0 */
/* Lent files are files without names (memfd_create), which the process opens as /proc/self/fd/NUMBER (lent_files.h). */
#include "lent_files.h"

#include "context_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A lent file. path: its name for the caller; real: the path under which it can be opened. */
struct ith_lent_file {
    ith_lent_file *next;
    char *path, real[32];
    int file;
    int64_t bytes, held_bytes;
    void *map; /* the part that is being filled */
    size_t map_bytes;
};

ith_status ith_lent_file_create(ith_context *context, const char *path, int64_t bytes, ith_lent_file **out)
{
    ith_lent_file *f = ith_alloc_zero(context, 1, sizeof *f, "a lent file");
    *out = NULL;
    if (!f || !(f->path = ith_strdup(context, path))) {
        ith_free(context, f);
        return ITH_ERR_MEMORY;
    }
    f->bytes = bytes;
    f->file = memfd_create("ithaca", MFD_CLOEXEC);
    if (f->file < 0 || ftruncate(f->file, bytes)) {
        ith_fail(context, ITH_ERR_MEMORY, "out of memory for %s, which another process has sent: %s", path,
                 strerror(errno));
        if (f->file >= 0)
            close(f->file);
        ith_free(context, f->path);
        ith_free(context, f);
        return ITH_ERR_MEMORY;
    }
    snprintf(f->real, sizeof f->real, "/proc/self/fd/%d", f->file);
    _Atomic(ith_lent_file *) *list = ith_context_lent(context);
    f->next = atomic_load(list);
    while (!atomic_compare_exchange_weak(list, &f->next, f))
        ;
    *out = f;
    return ITH_OK;
}

void *ith_lent_file_fill(ith_context *context, ith_lent_file *f, int64_t begin, int64_t bytes)
{
    const int64_t page = sysconf(_SC_PAGESIZE), first = begin / page * page;
    ith_lent_file_end(f);
    void *map = mmap(NULL, (size_t)(begin + bytes - first), PROT_READ | PROT_WRITE, MAP_SHARED, f->file, first);
    if (map == MAP_FAILED) {
        ith_fail(context, ITH_ERR_MEMORY, "out of memory for %s, which another process has sent: %s", f->path,
                 strerror(errno));
        return NULL;
    }
    f->map = map, f->map_bytes = (size_t)(begin + bytes - first);
    f->held_bytes += bytes;
    ith_context_count(context, bytes);
    return (char *)map + (begin - first);
}

void ith_lent_file_end(ith_lent_file *f)
{
    if (f->map)
        munmap(f->map, f->map_bytes);
    f->map = NULL;
}

static const ith_lent_file *first_of(const ith_context *context)
{
    return context ? atomic_load(ith_context_lent(context)) : NULL;
}

const char *ith_lent_path(const ith_context *context, const char *path)
{
    for (const ith_lent_file *f = first_of(context); f; f = f->next)
        if (!strcmp(f->path, path))
            return f->real;
    return path;
}

int64_t ith_lent_bytes(const ith_context *context)
{
    int64_t bytes = 0;
    for (const ith_lent_file *f = first_of(context); f; f = f->next)
        bytes += f->held_bytes;
    return bytes;
}

void ith_lent_files_free(ith_context *root, ith_lent_file *list)
{
    for (ith_lent_file *f = list, *next; f; f = next) {
        next = f->next;
        ith_lent_file_end(f);
        close(f->file);
        ith_free(root, f->path);
        ith_free(root, f);
    }
}
