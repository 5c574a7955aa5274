/* SPDX-License-Identifier: Apache-2.0 */
/* Maps regular files into memory for reading, and copies from the mapping (mapping.h). */
#include "mapping.h"

#include "../base/file_fault.h"
#include "../base/lent_files.h"
#include "../base/open_file.h"
#include "../base/size.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_POINTER_BYTES 1024        /* of a file that Git LFS leaves in place of another */
#define PIECE_BYTES ((int64_t)1 << 20) /* bytes copied between two checks for an interruption */

static ith_file_mark mark_of(const struct stat *info)
{
    return (ith_file_mark){info->st_dev, info->st_ino, info->st_size, info->st_mtim.tv_sec, info->st_mtim.tv_nsec};
}

/* Maps an open file, with the size that it has now. */
static ith_status map(ith_context *context, const char *path, int file, ith_mapping *out)
{
    struct stat info;
    if (fstat(file, &info))
        return ith_fail(context, ITH_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    void *data = info.st_size ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
    if (data == MAP_FAILED)
        return ith_fail(context, ITH_ERR_IO, "cannot map %s into memory: %s", path, strerror(errno));
    *out = (ith_mapping){data, info.st_size, mark_of(&info)};
    return ITH_OK;
}

/* Fails if the file is a text that Git LFS leaves in place of a file that was not fetched. */
static ith_status refuse_pointer(ith_context *context, const char *path, const ith_mapping *mapping)
{
    static const char begin[] = "version https://git-lfs";
    char text[sizeof begin - 1];
    if (mapping->bytes < (int64_t)sizeof text || mapping->bytes > MOST_POINTER_BYTES)
        return ITH_OK;
    ith_status status = ith_mapping_copy(context, path, text, mapping->data, sizeof text);
    if (status || memcmp(text, begin, sizeof text) != 0)
        return status;
    return ith_fail(context, ITH_ERR_FORMAT, "%s is a Git LFS pointer: 'git lfs pull' fetches the file", path);
}

ith_status ith_mapping_open(ith_context *context, const char *path, ith_mapping *out)
{
    int file;
    int64_t bytes;
    *out = (ith_mapping){0};
    ith_status status = ith_open_file(context, path, &file, &bytes);
    if (status)
        return status;
    status = map(context, path, file, out);
    close(file);
    ith_file_fault_renew();
    if (!status && (status = refuse_pointer(context, path, out)))
        ith_mapping_close(out);
    return status;
}

void ith_mapping_close(ith_mapping *mapping)
{
    if (mapping->data)
        munmap((void *)(uintptr_t)mapping->data, (size_t)mapping->bytes);
    *mapping = (ith_mapping){0};
}

ith_status ith_mapping_check(ith_context *context, const char *path, const ith_mapping *mapping)
{
    struct stat info;
    ith_file_fault_renew();
    if (stat(ith_lent_path(context, path), &info))
        return ith_fail(context, ITH_ERR_IO, "%s is no longer there while it is in use: %s", path, strerror(errno));
    const ith_file_mark now = mark_of(&info), *then = &mapping->mark;
    if (now.device == then->device && now.inode == then->inode && now.bytes == then->bytes &&
        now.seconds == then->seconds && now.nanoseconds == then->nanoseconds)
        return ITH_OK;
    return ith_fail(context, ITH_ERR_IO, "%s changed while it was in use: run again", path);
}

/* A piece of a copy, which one guard protects. */
typedef struct piece {
    char *to;
    const char *from;
    int64_t bytes;
} piece;

static void copy_piece(void *user)
{
    const piece *p = user;
    memcpy(p->to, p->from, (size_t)p->bytes);
}

ith_status ith_mapping_copy(ith_context *context, const char *path, void *to, const void *from, int64_t bytes)
{
    ith_status status = ITH_OK;
    for (int64_t done = 0; done < bytes && !(status = ith_context_check(context)); done += PIECE_BYTES) {
        piece p = {(char *)to + done, (const char *)from + done, ith_min64(PIECE_BYTES, bytes - done)};
        if (!ith_file_fault_guard(copy_piece, &p))
            return ith_fail_file_fault(context, path);
    }
    return status;
}

ith_status ith_file_read(ith_context *context, const char *path, const char *what, int64_t most, char **data,
                         int64_t *bytes)
{
    ith_mapping mapping;
    *data = NULL;
    ith_status status = ith_mapping_open(context, path, &mapping);
    if (status)
        return status;
    *bytes = mapping.bytes;
    if (mapping.bytes > most)
        status = ith_fail(context, ITH_ERR_FORMAT, "%s has %lld bytes; %s may have %lld at most", path,
                          (long long)mapping.bytes, what, (long long)most);
    else if (!(*data = ith_alloc(context, mapping.bytes + 1, 1, path)))
        status = ITH_ERR_MEMORY;
    else if (!(status = ith_mapping_copy(context, path, *data, mapping.data, mapping.bytes)))
        (*data)[mapping.bytes] = '\0';
    ith_mapping_close(&mapping);
    if (status) {
        ith_free(context, *data);
        *data = NULL;
    }
    return status;
}
