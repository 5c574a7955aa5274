/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the place of an output, and makes its temporary file (output_place.h). */
#include "output_place.h"

#include "control.h"
#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LINKS 40     /* symbolic links behind one another, as in Linux */
#define MOST_ATTEMPTS 100 /* names to try for the temporary file */
#define SHORT_BYTES 100   /* a longer name is cut to this length where a prefix and a suffix are added */

/* The bytes of a path up to its last '/', with it. */
static int folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) + 1 : 0;
}

/* Writes the folder in which a path lies, with its last '/'; "." if the path names none. */
static void put_folder(const char *path, char folder[PATH_MAX])
{
    const int bytes = folder_bytes(path);
    snprintf(folder, PATH_MAX, "%.*s", bytes ? bytes : 1, bytes ? path : ".");
}

int ith_output_target(const char *path, char target[PATH_MAX])
{
    char link[PATH_MAX];
    if (strlen(path) >= PATH_MAX)
        return ENAMETOOLONG;
    strcpy(target, path);
    for (int links = 0; links < MOST_LINKS; links++) {
        ssize_t length = readlink(target, link, sizeof link);
        if (length < 0)
            return errno == EINVAL || errno == ENOENT ? 0 : errno; /* no link, or nothing there yet */
        while (length > 1 && link[length - 1] == '/')
            length--;
        const int folder = link[0] == '/' ? 0 : folder_bytes(target);
        if (folder + length >= PATH_MAX)
            return ENAMETOOLONG;
        memcpy(target + folder, link, (size_t)length);
        target[folder + length] = '\0';
    }
    return ELOOP;
}

int ith_output_real(const char *path, char real[PATH_MAX])
{
    char name[PATH_MAX], target[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= PATH_MAX)
        return ENAMETOOLONG;
    memcpy(name, path, length);
    name[length] = '\0';
    if (realpath(name, real))
        return 0;
    const int error = ith_output_target(name, target), folder = folder_bytes(target);
    if (error)
        return error;
    put_folder(target, name);
    if (!realpath(name, real)) {
        strcpy(real, target);
        return 0;
    }
    const size_t bytes = strlen(real), rest = PATH_MAX - bytes;
    return (size_t)snprintf(real + bytes, rest, "/%s", target + folder) < rest ? 0 : ENAMETOOLONG;
}

bool ith_output_is_device(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISCHR(info.st_mode);
}

bool ith_output_is_folder(const char *path)
{
    struct stat info;
    const size_t length = strlen(path);
    return length && (path[length - 1] == '/' || (!stat(path, &info) && S_ISDIR(info.st_mode)));
}

int ith_output_try(const char *path)
{
    char target[PATH_MAX], partial[PATH_MAX];
    const int error = ith_output_target(path, target), file = error ? -1 : ith_output_create(target, false, partial);
    if (file < 0)
        return error ? error : errno;
    close(file);
    unlink(partial);
    return 0;
}

int ith_output_beside(const char *target, const char *prefix, const char *suffix, char beside[PATH_MAX])
{
    const int folder = folder_bytes(target);
    const char *name = target + folder;
    const size_t whole = strlen(name);
    size_t length = whole;
    char rest[16] = "";
    if (whole > SHORT_BYTES) {
        length = ith_utf8_cut(name, SHORT_BYTES);
        snprintf(rest, sizeof rest, "-%08x", (unsigned)ith_hash(0, name, (int64_t)whole));
    }
    int bytes = snprintf(beside, PATH_MAX, "%.*s%s%.*s%s%s", folder, target, prefix, (int)length, name, rest, suffix);
    return bytes < PATH_MAX ? 0 : ENAMETOOLONG;
}

/* Creates a folder that is not there yet, and opens it. */
static int create_folder(const char *name)
{
    if (mkdir(name, 0777))
        return -1;
    const int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = errno;
    if (folder < 0) { /* the umask forbids it */
        rmdir(name);
        errno = error;
    }
    return folder;
}

/* Creates a file or a folder that is not there yet, and opens it. */
static int create(const char *name, bool folder)
{
    return folder ? create_folder(name) : open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* Whether a file belongs to another user and lies in a folder such as /tmp, where only the owners of the file and of
 * the folder may replace it. */
static bool is_kept_for_owner(const char *target, const struct stat *info)
{
    char folder[PATH_MAX];
    struct stat around;
    const uid_t user = geteuid();
    put_folder(target, folder);
    return user && user != info->st_uid && !stat(folder, &around) && around.st_mode & S_ISVTX && user != around.st_uid;
}

int ith_output_create(const char *target, bool folder, char partial[PATH_MAX])
{
    struct stat info;
    const bool replaces = !folder && !stat(target, &info) && S_ISREG(info.st_mode);
    if (replaces && faccessat(AT_FDCWD, target, W_OK, AT_EACCESS))
        return -1;
    if (replaces && is_kept_for_owner(target, &info)) {
        errno = EPERM;
        return -1;
    }
    for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        char suffix[64], number[16] = "";
        if (attempt) /* an earlier process with the same id may have left a file */
            snprintf(number, sizeof number, "-%d", attempt);
        snprintf(suffix, sizeof suffix, ".partial-%ld%s", (long)getpid(), number);
        errno = ith_output_beside(target, ".", suffix, partial);
        int file = errno ? -1 : create(partial, folder);
        if (file >= 0 && replaces)
            (void)!fchmod(file, info.st_mode & 0777); /* file systems without permissions refuse it */
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

int ith_output_sync(int file, bool data_only)
{
    if (!(data_only ? fdatasync(file) : fsync(file)))
        return 0;
    return errno == EINVAL || errno == EROFS ? 0 : errno; /* no disk is behind it */
}
