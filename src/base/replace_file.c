/* SPDX-License-Identifier: Apache-2.0 */
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

/* Writes the contents with `write`, flushes them to the disk if to_disk is set, and closes the file. */
static ith_status fill(ith_context *context, const char *path, int file, bool to_disk, ith_write_fn write, void *user)
{
    FILE *stream = fdopen(file, "w");
    if (!stream) {
        ith_status status = refused(context, path);
        close(file);
        return status;
    }
    ith_status status = write(stream, user);
    bool whole = status || (fflush(stream) == 0 && !ferror(stream) && (!to_disk || fsync(file) == 0));
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
    return fill(context, path, file, false, write, user);
}

/* Creates the temporary file beside `path`, for the file `target` behind it. Returns its descriptor; -1 with the failure
 * in *status if there is none, or with ITH_OK if path is a character device. */
static int create(ith_context *context, const char *path, char target[PATH_MAX], char partial[PATH_MAX],
                  ith_status *status)
{
    struct stat info;
    const bool there = stat(path, &info) == 0;
    *status = ITH_OK;
    if (there && S_ISCHR(info.st_mode))
        return -1;
    if (there && !S_ISREG(info.st_mode)) {
        *status = ith_fail(context, ITH_ERR_IO, "cannot write %s: it is %s, not a file", path, ith_file_kind(&info));
        return -1;
    }
    errno = ith_output_target(path, target);
    const int file = errno ? -1 : ith_output_create(target, false, partial);
    if (file < 0)
        *status = refused(context, path);
    return file;
}

ith_status ith_replace_check(ith_context *context, const char *path)
{
    char target[PATH_MAX], partial[PATH_MAX];
    ith_status status;
    const int file = create(context, path, target, partial, &status);
    if (file >= 0)
        close(file), unlink(partial);
    return status;
}

ith_status ith_replace_file(ith_context *context, const char *path, ith_write_fn write, void *user)
{
    char target[PATH_MAX], partial[PATH_MAX];
    ith_status status;
    const int file = create(context, path, target, partial, &status);
    if (file < 0)
        return status ? status : write_device(context, path, write, user);
    status = fill(context, path, file, true, write, user);
    if (!status && rename(partial, target))
        status = refused(context, path);
    if (status)
        unlink(partial);
    return status;
}
