/* SPDX-License-Identifier: Apache-2.0 */
/* The names of an output. It is written as .NAME.partial-PID in the same folder and renamed when it is complete, so an
 * incomplete file never has the final name. An existing folder is kept, because it may be a mount point or a current
 * folder: frames are written to a partial folder inside it, and moved up one by one after the last one is written. */
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reports that the output cannot be written. error: an error number of the system. */
static ith_status cannot_write(ith_context *context, const ith_output *output, int error)
{
    return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: %s", output->path, strerror(error));
}

/* Sets output->target: the path without a trailing '/' and, if it exists, with symbolic links resolved. */
static ith_status find_target(ith_context *context, ith_output *output)
{
    output->target = ith_strdup(context, output->path);
    if (!output->target)
        return ITH_ERR_MEMORY;
    for (size_t length = strlen(output->target); length > 1 && output->target[length - 1] == '/'; length--)
        output->target[length - 1] = '\0';
    char *real = realpath(output->target, NULL);
    if (!real)
        return errno == ENOENT ? ITH_OK : cannot_write(context, output, errno);
    ith_free(context, output->target);
    output->target = ith_strdup(context, real);
    free(real);
    return output->target ? ITH_OK : ITH_ERR_MEMORY;
}

/* Whether the name of a file has the form frame_*.png. */
static bool is_frame(const char *name)
{
    size_t length = strlen(name);
    return length > 10 && !strncmp(name, "frame_", 6) && !strcmp(name + length - 4, ".png");
}

/* Calls visit for every frame_*.png of a folder until a call returns an error number. Returns that number, or 0. */
static int for_each_frame(const char *folder, void *user, int (*visit)(int folder, const char *name, void *user))
{
    DIR *entries = opendir(folder);
    if (!entries)
        return errno;
    int error = 0;
    for (struct dirent *entry; !error && (entry = readdir(entries));)
        if (is_frame(entry->d_name))
            error = visit(dirfd(entries), entry->d_name, user);
    closedir(entries);
    return error;
}

/* A callback of for_each_frame: returns an error, because the folder already has a frame. */
static int refuse_frame(int folder, const char *name, void *user)
{
    (void)folder, (void)name, (void)user;
    return EEXIST;
}

/* A callback of for_each_frame: removes a frame, and ignores errors. */
static int remove_frame(int folder, const char *name, void *user)
{
    (void)user;
    unlinkat(folder, name, 0);
    return 0;
}

/* A callback of for_each_frame: moves a frame to the folder whose descriptor `user` points to. */
static int move_frame(int folder, const char *name, void *user)
{
    return renameat(folder, name, *(const int *)user, name) ? errno : 0;
}

/* Checks that the output does not exist yet, is a regular file, or is a folder without frames. */
static ith_status check_target(ith_context *context, ith_output *output)
{
    struct stat info;
    if (stat(output->target, &info))
        return errno == ENOENT ? ITH_OK : cannot_write(context, output, errno);
    output->existing = output->folder && S_ISDIR(info.st_mode);
    if (output->existing) {
        int error = for_each_frame(output->target, NULL, refuse_frame);
        if (error == EEXIST)
            return ith_fail(context, ITH_ERR_IO,
                            "folder '%s' already holds frames (frame_*.png): name another or empty it", output->path);
        return error ? cannot_write(context, output, error) : ITH_OK;
    }
    if (output->folder)
        return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: it is a file, not a folder", output->path);
    if (!S_ISREG(info.st_mode))
        return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: it is not an ordinary file", output->path);
    return ITH_OK;
}

/* Makes the name under which the unfinished output is written. Attempts from 1 on append a number, because an earlier
 * process with the same id may have left a file. */
static char *partial_name(ith_context *context, const ith_output *output, int attempt)
{
    char number[16] = "";
    if (attempt)
        snprintf(number, sizeof number, "-%d", attempt);
    long process = (long)getpid();
    if (output->existing)
        return ith_format(context, "%s/.frames.partial-%ld%s", output->target, process, number);
    const char *slash = strrchr(output->target, '/');
    int parent_bytes = slash ? (int)(slash - output->target) + 1 : 0;
    /* The name is cut to 200 bytes, so that with its suffix it stays below 255, the limit of most file systems. */
    return ith_format(context, "%.*s.%.200s.partial-%ld%s", parent_bytes, output->target, output->target + parent_bytes,
                      process, number);
}

/* Creates the unfinished file or folder under its partial name. Returns 0, or on failure another number, with the
 * reason in errno. */
static int create(const ith_output *output)
{
    if (output->folder)
        return mkdir(output->partial, 0777);
    int file = open(output->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return file < 0 ? -1 : close(file);
}

/* Creates the unfinished file or folder under the first partial name that is free. */
static ith_status create_partial(ith_context *context, ith_output *output)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        output->partial = partial_name(context, output, attempt);
        if (!output->partial)
            return ITH_ERR_MEMORY;
        if (!create(output))
            return ITH_OK;
        int error = errno;
        ith_free(context, output->partial);
        output->partial = NULL;
        if (error == ENOENT)
            return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: its folder does not exist", output->path);
        if (error != EEXIST)
            return cannot_write(context, output, error);
    }
    return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: remove the unfinished .partial files beside it",
                    output->path);
}

ith_status ith_output_reserve(ith_context *context, const char *path, bool folder, ith_output *output)
{
    *output = (ith_output){.folder = folder, .path = ith_strdup(context, path)};
    ith_status status = output->path ? ITH_OK : ITH_ERR_MEMORY;
    if (!status && strlen(path) >= PATH_MAX)
        status = cannot_write(context, output, ENAMETOOLONG);
    if (!status)
        status = find_target(context, output);
    if (!status)
        status = check_target(context, output);
    if (!status)
        status = create_partial(context, output);
    if (status)
        ith_output_release(context, output);
    return status;
}

/* Writes the output through to the disk, because the error of a full disk may appear only then. */
static ith_status sync_partial(ith_context *context, const ith_output *output)
{
    int file = open(output->partial, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cannot_write(context, output, errno);
    int error = fsync(file) && errno != EINVAL && errno != EROFS ? errno : 0;
    close(file);
    return error ? cannot_write(context, output, error) : ITH_OK;
}

/* Moves the frames from the partial folder to the folder around it. Returns an error number of the system, or 0. */
static int move_frames(const ith_output *output)
{
    int target = open(output->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target < 0)
        return errno;
    int error = for_each_frame(output->partial, &target, move_frame);
    if (!error && rmdir(output->partial))
        error = errno;
    close(target);
    return error;
}

ith_status ith_output_commit(ith_context *context, ith_output *output)
{
    ith_status status = sync_partial(context, output);
    if (status)
        return status;
    int error = 0;
    if (output->existing)
        error = move_frames(output);
    else if (rename(output->partial, output->target))
        error = errno;
    if (error)
        return cannot_write(context, output, error);
    ith_free(context, output->partial);
    output->partial = NULL;
    return ITH_OK;
}

void ith_output_release(ith_context *context, ith_output *output)
{
    if (output->partial && output->folder) {
        for_each_frame(output->partial, NULL, remove_frame);
        rmdir(output->partial);
    } else if (output->partial) {
        unlink(output->partial);
    }
    ith_free(context, output->partial);
    ith_free(context, output->target);
    ith_free(context, output->path);
    *output = (ith_output){0};
}
