/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the names of output files before a long computation, so that a result is not lost at its end, and writes small
 * files. */
#include "output_name.h"

#include "../../media/output.h"
#include "../cli.h"

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

/* Prints that an output cannot be written. error: an error number of the system. */
static int cannot_write(const char *path, int error)
{
    return ith_cli_error("'%s' cannot be written: %s", path,
                         error == ENOENT ? "its folder does not exist" : strerror(error));
}

/* Creates the temporary file of an output, in the folder where the output will be written. Returns a descriptor, or -1
 * with the reason in errno. */
static int create_beside(const char *path, char target[PATH_MAX], char partial[PATH_MAX])
{
    errno = ith_output_target(path, target);
    return errno ? -1 : ith_output_create(target, false, partial);
}

int ith_cli_check_output(const char *path)
{
    struct stat info;
    if (!path)
        return ITH_EXIT_DONE;
    if (!*path)
        return ith_cli_error("'' cannot be written: a file needs a name");
    if (!strcmp(path, "-"))
        return ith_cli_error("'-' cannot be written: results go to a file, not to standard output; './-' is a file of "
                             "that name");
    bool there = !stat(path, &info);
    const char *why = there ? why_not(path, &info) : NULL;
    if (why)
        return ith_cli_error("'%s' cannot be written: %s", path, why);
    const int error = ith_output_is_device(path) ? 0 : ith_output_try(path);
    return error ? cannot_write(path, error) : ITH_EXIT_DONE;
}

/* Prints into an open file and closes it. Returns an error number; 0 on success. */
static int print_and_close(FILE *file, void (*print)(FILE *file, void *user), void *user)
{
    print(file, user);
    const bool failed = ferror(file) || fflush(file);
    int error = failed ? (errno ? errno : EIO) : ith_output_sync(fileno(file), false);
    if (fclose(file) && !error)
        error = errno;
    return error;
}

int ith_cli_replace_file(const char *path, void (*print)(FILE *file, void *user), void *user)
{
    struct stat info;
    char target[PATH_MAX], partial[PATH_MAX];
    const bool device = !stat(path, &info) && S_ISCHR(info.st_mode);
    int file = device ? open(path, O_WRONLY | O_CLOEXEC) : create_beside(path, target, partial);
    if (file < 0)
        return cannot_write(path, errno);
    FILE *stream = fdopen(file, "w");
    int error = stream ? print_and_close(stream, print, user) : errno;
    if (!stream)
        close(file);
    if (!device && !error && rename(partial, target))
        error = errno;
    if (!device && error)
        unlink(partial);
    return error ? cannot_write(path, error) : ITH_EXIT_DONE;
}

/* The real name of the folder of a file. The caller frees it. NULL: there is no such folder, or no memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    char *real = folder ? realpath(folder, NULL) : NULL;
    free(folder);
    return real;
}

/* The name of a file as ith_output_real makes it; if it cannot, the name itself. The caller frees it. NULL: there is no
 * memory. */
static char *resolve(const char *path)
{
    char real[PATH_MAX];
    return strdup(ith_output_real(path, real) ? path : real);
}

/* Whether a name begins with the name of a folder, whole. */
static bool begins_with(const char *name, const char *folder)
{
    const size_t length = strlen(folder);
    return !strncmp(name, folder, length) && (name[length] == '/' || !name[length] || !strcmp(folder, "/"));
}

bool ith_cli_is_inside(const char *path, const char *folder)
{
    char *real = path ? realpath(path, NULL) : NULL, *place = path ? folder_of(path) : NULL;
    char *whole = folder ? realpath(folder, NULL) : NULL;
    struct stat info;
    const bool inside = real && place && whole && !stat(real, &info) && S_ISREG(info.st_mode) &&
                        (begins_with(real, whole) || begins_with(place, whole));
    free(real), free(place), free(whole);
    return inside;
}

bool ith_cli_is_in_folder(const char *path, const char *folder)
{
    char *place = folder_of(path), *whole = realpath(folder, NULL);
    const bool inside = place && whole && !strcmp(place, whole);
    free(place), free(whole);
    return inside;
}

/* A file of a list: its place in the list, and its name without links. */
typedef struct named {
    char *real;
    int64_t index;
} named;

/* Compares two files for qsort: by name, then by their places in the list. */
static int compare(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const int order = strcmp(x->real, y->real);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

int ith_cli_find_same(const char *const *paths, int64_t count, int64_t outputs, int64_t *first, int64_t *second)
{
    named *list = calloc((size_t)count + 1, sizeof *list);
    int64_t used = 0;
    bool lacks = !list;
    *first = *second = -1;
    for (int64_t i = 0; i < count && !lacks; i++) {
        if (!paths[i] || !*paths[i] || ith_output_is_device(paths[i]))
            continue;
        list[used] = (named){resolve(paths[i]), i};
        lacks = !list[used++].real;
    }
    if (!lacks)
        qsort(list, (size_t)used, sizeof *list, compare);
    for (int64_t i = 1; i < used && !lacks && *first < 0; i++)
        if (!strcmp(list[i - 1].real, list[i].real) && list[i - 1].index < outputs)
            *first = list[i - 1].index, *second = list[i].index;
    for (int64_t i = 0; i < used; i++)
        free(list[i].real);
    free(list);
    return lacks ? ith_cli_error("there is no memory for names") : ITH_EXIT_DONE;
}

int ith_cli_check_distinct(const char *const *paths, const char *const *options, int count, int outputs)
{
    int64_t first, second;
    const int code = ith_cli_find_same(paths, count, outputs, &first, &second);
    if (code || first < 0)
        return code;
    return ith_cli_error("%s and %s name the same file, '%s'", options[first], options[second], paths[second]);
}
