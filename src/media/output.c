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

/* Removes '/' at the end of a name. */
static void strip(char *name)
{
    for (size_t length = strlen(name); length > 1 && name[length - 1] == '/'; length--)
        name[length - 1] = '\0';
}

/* Sets output->target: the path without a trailing '/', behind symbolic links. */
static ith_status find_target(ith_context *context, ith_output *output)
{
    char name[PATH_MAX], target[PATH_MAX];
    snprintf(name, sizeof name, "%s", output->path);
    strip(name);
    int error = ith_output_target(name, target);
    if (error)
        return cannot_write(context, output, error);
    output->target = ith_strdup(context, target);
    return output->target ? ITH_OK : ITH_ERR_MEMORY;
}

/* Whether the name of a file has the form frame_*.png. */
static bool is_frame_name(const char *name)
{
    size_t length = strlen(name);
    return length > 10 && !strncmp(name, "frame_", 6) && !strcmp(name + length - 4, ".png");
}

/* Calls visit for every file of a folder until a call returns an error number. Returns that number, or 0. */
static int for_each_file(const char *folder, void *user, int (*visit)(int folder, const char *name, void *user))
{
    DIR *entries = opendir(folder);
    if (!entries)
        return errno;
    int error = 0;
    for (struct dirent *entry; !error && (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = visit(dirfd(entries), entry->d_name, user);
    closedir(entries);
    return error;
}

/* A callback of for_each_file: returns EEXIST for a frame, and ENOTEMPTY for another file if *user is set. */
static int refuse_file(int folder, const char *name, void *user)
{
    (void)folder;
    return is_frame_name(name) ? EEXIST : *(const bool *)user ? ENOTEMPTY : 0;
}

/* A callback of for_each_file: removes a frame, and ignores errors. */
static int remove_frame(int folder, const char *name, void *user)
{
    (void)user;
    if (is_frame_name(name))
        unlinkat(folder, name, 0);
    return 0;
}

/* A callback of for_each_file: moves a frame to the folder whose descriptor `user` points to. */
static int move_frame(int folder, const char *name, void *user)
{
    return is_frame_name(name) && renameat(folder, name, *(const int *)user, name) ? errno : 0;
}

/* Checks that a folder that exists holds no frames and, unless its name ends in '/', no other files: it may have been
 * named by mistake. */
static ith_status check_folder(ith_context *context, const ith_output *output)
{
    bool must_be_empty = output->path[strlen(output->path) - 1] != '/';
    int error = for_each_file(output->target, &must_be_empty, refuse_file);
    if (error == EEXIST)
        return ith_fail(context, ITH_ERR_IO, "folder '%s' already holds frames (frame_*.png): name another or empty it",
                        output->path);
    if (error == ENOTEMPTY)
        return ith_fail(context, ITH_ERR_IO,
                        "'%s' is a folder that holds files: '%s/' writes frames (frame_*.png) among them", output->path,
                        output->path);
    return error ? cannot_write(context, output, error) : ITH_OK;
}

/* Checks that the output does not exist yet, is a regular file, or is a folder for frames. */
static ith_status check_target(ith_context *context, ith_output *output)
{
    struct stat info;
    if (stat(output->target, &info))
        return errno == ENOENT ? ITH_OK : cannot_write(context, output, errno);
    output->existing = output->folder && S_ISDIR(info.st_mode);
    if (output->existing)
        return check_folder(context, output);
    if (output->folder)
        return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: it is a file, not a folder", output->path);
    if (!S_ISREG(info.st_mode))
        return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: it is not an ordinary file", output->path);
    return ITH_OK;
}

/* Creates the unfinished file, the unfinished folder, or the unfinished folder in a folder that exists. */
static ith_status create_partial(ith_context *context, ith_output *output)
{
    char inside[PATH_MAX], partial[PATH_MAX];
    const char *target = output->target;
    if (output->existing && snprintf(inside, sizeof inside, "%s/frames", target) >= (int)sizeof inside)
        return cannot_write(context, output, ENAMETOOLONG);
    int file = ith_output_create(output->existing ? inside : target, output->folder, partial);
    if (file >= 0) {
        close(file);
        output->partial = ith_strdup(context, partial);
        if (output->partial)
            return ITH_OK;
        output->folder ? rmdir(partial) : unlink(partial);
        return ITH_ERR_MEMORY;
    }
    if (errno == ENOENT)
        return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: its folder does not exist", output->path);
    if (errno == EEXIST)
        return ith_fail(context, ITH_ERR_IO, "'%s' cannot be written: remove the unfinished .partial files beside it",
                        output->path);
    return cannot_write(context, output, errno);
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

static ith_status sync_partial(ith_context *context, const ith_output *output)
{
    int file = open(output->partial, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cannot_write(context, output, errno);
    int error = ith_output_sync(file, false);
    close(file);
    return error ? cannot_write(context, output, error) : ITH_OK;
}

/* Moves the frames from the partial folder to the folder around it. Returns an error number of the system, or 0. */
static int move_frames(const ith_output *output)
{
    int target = open(output->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target < 0)
        return errno;
    int error = for_each_file(output->partial, &target, move_frame);
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
        for_each_file(output->partial, NULL, remove_frame);
        rmdir(output->partial);
    } else if (output->partial) {
        unlink(output->partial);
    }
    ith_free(context, output->partial);
    ith_free(context, output->target);
    ith_free(context, output->path);
    *output = (ith_output){0};
}
