/* SPDX-License-Identifier: Apache-2.0 */
/* Locks files with flock (file_lock.h). */
#include "file_lock.h"

#include "clock.h"
#include "output_place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const double MOST_SECONDS = 10;
#define PAUSE_NANOSECONDS 2000000

/* Waits for the lock. A lock that other processes hold is asked for again and again, so that the wait can end. */
static ith_status wait_for(ith_context *context, const char *name, int file)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NANOSECONDS};
    const double until = ith_clock_seconds() + MOST_SECONDS;
    while (flock(file, LOCK_EX | LOCK_NB)) {
        if (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS)
            return ITH_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return ith_fail(context, ITH_ERR_IO, "cannot lock %s: %s", name, strerror(errno));
        if (ith_clock_seconds() > until)
            return ith_fail(context, ITH_ERR_TIMEOUT, "another process has locked %s for %.0f seconds", name,
                            MOST_SECONDS);
        nanosleep(&pause, NULL);
    }
    return ITH_OK;
}

ith_status ith_file_lock(ith_context *context, const char *path, int *lock)
{
    *lock = -1;
    if (!*path)
        return ith_fail(context, ITH_ERR_IO, "cannot write '': a file needs a name");
    char target[PATH_MAX], name[PATH_MAX];
    errno = ith_output_target(path, target);
    if (!errno)
        errno = ith_output_beside(target, "", ".lock", name);
    if (!errno)
        *lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*lock < 0)
        return ith_fail(context, ITH_ERR_IO, "cannot write %s.lock: %s", path, strerror(errno));
    ith_status status = wait_for(context, name, *lock);
    if (status)
        close(*lock), *lock = -1;
    return status;
}

void ith_file_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}
