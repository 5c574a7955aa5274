/* SPDX-License-Identifier: Apache-2.0 */
/* Opens regular files for reading (open_file.h). */
#include "open_file.h"

#include "lent_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const char *ith_file_kind(const struct stat *info)
{
    switch (info->st_mode & S_IFMT) {
    case S_IFREG: return "a file";
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

static ith_status check(ith_context *context, const char *path, int file, int64_t *bytes)
{
    struct stat info;
    if (fstat(file, &info))
        return ith_fail(context, ITH_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ith_fail(context, ITH_ERR_IO, "cannot read %s: it is %s, not a file", path, ith_file_kind(&info));
    *bytes = info.st_size;
    return ITH_OK;
}

ith_status ith_open_file(ith_context *context, const char *path, int *file, int64_t *bytes)
{
    *bytes = 0;
    *file = -1;
    if (!*path)
        return ith_fail(context, ITH_ERR_IO, "cannot open a file: its name is empty");
    /* O_NONBLOCK: open does not wait for the writer of a pipe */
    *file = open(ith_lent_path(context, path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*file < 0)
        return ith_fail(context, ITH_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    ith_status status = check(context, path, *file, bytes);
    if (status) {
        close(*file);
        *file = -1;
    }
    return status;
}
