/* SPDX-License-Identifier: Apache-2.0 */
/* Locks names of files with flock (name_lock.h). */
#include "name_lock.h"

#include "../../media/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether an open file still has this name: the process that had locked it before may have removed it. */
static bool has_name(int file, const char *name)
{
    struct stat open_one, named;
    return !fstat(file, &open_one) && !lstat(name, &named) && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

/* Opens and locks a file. Returns a descriptor; -1 with the reason in errno, which is EWOULDBLOCK if another process
 * has locked it. */
static int open_locked(const char *name)
{
    for (;;) {
        const int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file < 0)
            return -1;
        if (flock(file, LOCK_EX | LOCK_NB)) {
            const int error = errno;
            if (error != EWOULDBLOCK) /* the file system has no locks */
                unlink(name);
            close(file);
            errno = error;
            return -1;
        }
        if (has_name(file, name))
            return file;
        close(file);
    }
}

bool ith_name_lock_take(const char *path, ith_name_lock *lock)
{
    char target[PATH_MAX], name[PATH_MAX];
    *lock = (ith_name_lock){.path = NULL};
    if (ith_output_target(path, target) || ith_output_beside(target, ".", ".lock", name))
        return true;
    const int file = open_locked(name);
    if (file < 0)
        return errno != EWOULDBLOCK;
    lock->path = strdup(name);
    lock->file = file;
    if (!lock->path) {
        unlink(name);
        close(file);
    }
    return true;
}

void ith_name_lock_release(ith_name_lock *lock)
{
    if (!lock->path)
        return;
    unlink(lock->path);
    close(lock->file);
    free(lock->path);
    lock->path = NULL;
}
