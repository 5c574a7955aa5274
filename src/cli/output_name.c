/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the names of output files before a long computation, so that a result is not lost at its end, and writes small
 * files. */
#include "output_name.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_terminal(const char *path)
{
    int file = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool terminal = file >= 0 && isatty(file);
    if (file >= 0)
        close(file);
    return terminal;
}

/* The reason why an existing file cannot be replaced or written to; NULL if it can. */
static const char *why_not(const char *path, const struct stat *info)
{
    switch (info->st_mode & S_IFMT) {
    case S_IFREG: return NULL;
    case S_IFCHR: return is_terminal(path) ? "it is a terminal, not a file" : NULL;
    case S_IFDIR: return "it is a folder";
    case S_IFIFO: return "it is a pipe, not a file";
    case S_IFSOCK: return "it is a socket, not a file";
    default: return "it is a device, not a file";
    }
}

/* Creates and removes a temporary file in the folder where the output will be written; for a symbolic link, in the
 * folder of its target. Prints errors and returns an exit status. */
static int try_beside(const char *path, bool there)
{
    char real[PATH_MAX], *beside = NULL;
    if (asprintf(&beside, "%s.%ld-check.tmp", there && realpath(path, real) ? real : path, (long)getpid()) < 0)
        return ith_cli_error("there is no memory for a name");
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = file < 0 && errno != EEXIST ? errno : 0;
    if (file >= 0) {
        close(file);
        unlink(beside);
    }
    free(beside);
    return error ? ith_cli_error("'%s' cannot be written: %s", path, strerror(error)) : ITH_EXIT_DONE;
}

int ith_cli_check_output(const char *path)
{
    struct stat info;
    if (!path)
        return ITH_EXIT_DONE;
    if (!*path)
        return ith_cli_error("'' cannot be written: a file needs a name");
    bool there = !stat(path, &info);
    const char *why = there ? why_not(path, &info) : NULL;
    if (why)
        return ith_cli_error("'%s' cannot be written: %s", path, why);
    return there && S_ISCHR(info.st_mode) ? ITH_EXIT_DONE : try_beside(path, there);
}

/* Prints into an open file and closes it. Returns an error number; 0 on success. */
static int print_and_close(FILE *file, void (*print)(FILE *file, void *user), void *user)
{
    print(file, user);
    bool failed = ferror(file) || fflush(file) || (fsync(fileno(file)) && errno != EINVAL); /* EINVAL: a device */
    int error = failed ? (errno ? errno : EIO) : 0;
    if (fclose(file) && !error)
        error = errno;
    return error;
}

int ith_cli_replace_file(const char *path, void (*print)(FILE *file, void *user), void *user)
{
    struct stat info;
    char *beside = NULL;
    const bool device = !stat(path, &info) && S_ISCHR(info.st_mode);
    if (asprintf(&beside, "%s.%ld.partial", path, (long)getpid()) < 0)
        return ith_cli_error("there is no memory for a name");
    FILE *file = fopen(device ? path : beside, device ? "we" : "wxe");
    int error = file ? print_and_close(file, print, user) : errno;
    if (file && !device && !error && rename(beside, path))
        error = errno;
    if (file && !device && error)
        unlink(beside);
    free(beside);
    return error ? ith_cli_error("'%s' cannot be written: %s", path, strerror(error)) : ITH_EXIT_DONE;
}

/* Whether two names mean the same regular file. A device such as /dev/null may be named twice. */
static bool is_same(const char *a, const char *b)
{
    struct stat first, second;
    if (!strcmp(a, b))
        return strncmp(a, "/dev/", 5) != 0;
    return !stat(a, &first) && !stat(b, &second) && S_ISREG(first.st_mode) && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

int ith_cli_check_distinct(const char *const *paths, const char *const *options, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if (paths[i] && paths[j] && is_same(paths[i], paths[j]))
                return ith_cli_error("%s and %s name the same file, '%s'", options[i], options[j], paths[j]);
    return ITH_EXIT_DONE;
}
