/* SPDX-License-Identifier: Apache-2.0 */
/* Writes files under a temporary name, and renames them (replace_file.h). */
#include "replace_file.h"

#include "open_file.h"
#include "output_place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fails because path cannot be written, with the reason that is in errno. */
static ith_status refused(ith_context *context, const char *path)
{
    ith_status status = errno == ENOMEM ? ITH_ERR_MEMORY : ITH_ERR_IO;
    return ith_fail(context, status, "cannot write %s: %s", path, strerror(errno));
}

/* Writes the contents with `write`, flushes them to the disk, and closes the file. */
static ith_status fill(ith_context *context, const char *path, int file, ith_write_fn write, void *user)
{
    FILE *stream = fdopen(file, "w");
    if (!stream) {
        ith_status status = refused(context, path);
        close(file);
        return status;
    }
    ith_status status = write(stream, user);
    bool whole = status || (fflush(stream) == 0 && !ferror(stream));
    if (!status && whole)
        whole = !(errno = ith_output_sync(file, false));
    if (!whole)
        status = refused(context, path);
    if (fclose(stream) && !status)
        status = refused(context, path);
    return status;
}

/* Writes directly to a character device such as /dev/null, which cannot be replaced. A terminal is refused. */
static ith_status write_device(ith_context *context, const char *path, ith_write_fn write, void *user)
{
    int file = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return refused(context, path);
    if (isatty(file)) {
        close(file);
        return ith_fail(context, ITH_ERR_IO, "cannot write %s: it is a terminal, not a file", path);
    }
    return fill(context, path, file, write, user);
}

/* Checks the kind of the file at path, if there is one: a file or a character device can be written. */
static ith_status check_kind(ith_context *context, const char *path)
{
    struct stat info;
    if (!*path)
        return ith_fail(context, ITH_ERR_IO, "cannot write a file: its name is empty");
    if (stat(path, &info) || S_ISCHR(info.st_mode) || S_ISREG(info.st_mode))
        return ITH_OK;
    return ith_fail(context, ITH_ERR_IO, "cannot write %s: it is %s, not a file", path, ith_file_kind(&info));
}

ith_status ith_replace_check(ith_context *context, const char *path)
{
    ith_status status = check_kind(context, path);
    if (status || ith_output_is_device(path))
        return status;
    errno = ith_output_try(path);
    return errno ? refused(context, path) : ITH_OK;
}

ith_status ith_replace_file(ith_context *context, const char *path, ith_write_fn write, void *user)
{
    char target[PATH_MAX], partial[PATH_MAX];
    ith_status status = check_kind(context, path);
    if (status)
        return status;
    if (ith_output_is_device(path))
        return write_device(context, path, write, user);
    errno = ith_output_target(path, target);
    int file = errno ? -1 : ith_output_create(target, false, partial);
    if (file < 0)
        return refused(context, path);
    status = fill(context, path, file, write, user);
    if (!status && rename(partial, target))
        status = refused(context, path);
    if (status)
        unlink(partial);
    return status;
}
