/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are not regular are refused as inputs and as outputs with a sentence, and no call waits for them. Outputs
 * that are links, that have long names, and that replace files with permissions. */
#include "base/file_lock.h"
#include "base/open_file.h"
#include "base/output_place.h"
#include "base/replace_file.h"
#include "support/in_range.h"
#include "support/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static ith_context *context;
static char *folder;

static int set_up(void **state)
{
    (void)state;
    alarm(60); /* ends this program if a call waits */
    folder = temporary_folder();
    return ith_context_create(NULL, &context);
}

static int tear_down(void **state)
{
    (void)state;
    ith_context_destroy(&context);
    temporary_remove(folder);
    return 0;
}

static ith_status write_word(FILE *file, void *user)
{
    fputs(user, file);
    return ITH_OK;
}

static void assert_refused(const char *path, const char *kind)
{
    int file = 0;
    int64_t bytes;
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(ith_open_file(context, path, &file, &bytes), ITH_ERR_IO);
    assert_int_equal(file, -1);
    assert_non_null(strstr(ith_context_error(context), kind));
    assert_int_equal(ith_replace_file(context, path, write_word, "word"), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), kind));
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

static void pipes_are_refused(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "pipe"), *link = temporary_path(folder, "link");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "a pipe");
    assert_int_equal(symlink(path, link), 0);
    assert_refused(link, "a pipe");
    int reader = open(path, O_RDONLY | O_NONBLOCK); /* a pipe with a reader is refused too */
    assert_refused(path, "a pipe");
    char byte;
    assert_int_equal(read(reader, &byte, 1), 0);
    close(reader);
}

static void sockets_are_refused(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "socket");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    assert_int_equal(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    int file;
    int64_t bytes;
    assert_int_equal(ith_open_file(context, path, &file, &bytes), ITH_ERR_IO); /* the system refuses to open it */
    assert_int_equal(ith_replace_file(context, path, write_word, "word"), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "a socket"));
    close(server);
}

static void folders_are_refused(void **state)
{
    (void)state;
    assert_refused(folder, "a folder");
}

static void terminals_are_refused(void **state)
{
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master))
        skip();
    const char *path = ptsname(master);
    int file;
    int64_t bytes;
    assert_int_equal(ith_open_file(context, path, &file, &bytes), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "a device"));
    assert_int_equal(ith_replace_file(context, path, write_word, "word"), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "a terminal"));
    close(master);
}

static void a_device_is_written_to_but_not_read(void **state)
{
    (void)state;
    int file;
    int64_t bytes;
    assert_int_equal(ith_replace_file(context, "/dev/null", write_word, "word"), ITH_OK);
    assert_int_equal(ith_replace_file(context, "/dev/full", write_word, "word"), ITH_ERR_IO);
    assert_int_equal(ith_open_file(context, "", &file, &bytes), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "its name is empty"));
    assert_int_equal(ith_open_file(context, "/dev/zero", &file, &bytes), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), "a device"));
}

static void regular_files_are_opened_and_replaced(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "file");
    int file;
    int64_t bytes;
    char text[8] = "";
    assert_int_equal(ith_replace_file(context, path, write_word, "first"), ITH_OK);
    assert_int_equal(ith_replace_file(context, path, write_word, "word"), ITH_OK);
    assert_int_equal(ith_open_file(context, path, &file, &bytes), ITH_OK);
    assert_int_equal(bytes, 4);
    assert_int_equal(read(file, text, sizeof text), 4);
    assert_string_equal(text, "word");
    close(file);
}

static void assert_word(const char *path, const char *word)
{
    char *text = temporary_read(path, NULL);
    assert_string_equal(text, word);
    free(text);
}

/* If an output is a link, the link stays, and the file behind it is written, whether it exists or not. */
static void links_are_followed(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(mkdir(temporary_path(folder, "far"), 0777), 0);
    const char *first = temporary_path(folder, "first"), *second = temporary_path(folder, "far/second");
    const char *target = temporary_path(folder, "far/target");
    assert_int_equal(symlink("far/second", first), 0);
    assert_int_equal(symlink("target", second), 0);
    for (int there = 0; there < 2; there++) {
        assert_int_equal(ith_replace_file(context, first, write_word, there ? "old" : "new"), ITH_OK);
        assert_word(target, there ? "old" : "new");
        assert_int_equal(lstat(first, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(lstat(second, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
    }
    const char *loop = temporary_path(folder, "loop"), *nowhere = temporary_path(folder, "nowhere");
    assert_int_equal(symlink("loop", loop), 0);
    assert_int_equal(ith_replace_file(context, loop, write_word, "word"), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(ELOOP)));
    assert_int_equal(symlink("none/file", nowhere), 0);
    assert_int_equal(ith_replace_file(context, nowhere, write_word, "word"), ITH_ERR_IO);
    assert_int_equal(lstat(nowhere, &info), 0);
}

/* With the longest name that a file may have, the temporary file and the lock beside it can still be made. */
static void the_longest_name_will_do(void **state)
{
    (void)state;
    char name[257];
    int lock;
    memset(name, 'n', sizeof name);
    memcpy(name, "\xc3\xa4", 2);
    name[255] = '\0';
    const char *path = temporary_path(folder, name);
    assert_int_equal(ith_replace_file(context, path, write_word, "word"), ITH_OK);
    assert_word(path, "word");
    assert_int_equal(ith_file_lock(context, path, &lock), ITH_OK);
    ith_file_unlock(lock);
    name[255] = 'n', name[256] = '\0';
    assert_int_equal(ith_replace_file(context, temporary_path(folder, name), write_word, "word"), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(ENAMETOOLONG)));
}

/* Long names that begin alike have locks of their own. */
static void long_names_have_their_own_locks(void **state)
{
    (void)state;
    char name[121];
    int locks[2];
    struct stat info[2];
    memset(name, 'm', sizeof name);
    name[120] = '\0';
    for (int i = 0; i < 2; i++) {
        name[119] = (char)('a' + i);
        assert_int_equal(ith_file_lock(context, temporary_path(folder, name), &locks[i]), ITH_OK);
        assert_int_equal(fstat(locks[i], &info[i]), 0);
    }
    assert_int_not_equal(info[0].st_ino, info[1].st_ino);
    ith_file_unlock(locks[0]);
    ith_file_unlock(locks[1]);
}

/* A file has one lock, through whichever link it is named. */
static void a_link_has_the_lock_of_its_file(void **state)
{
    (void)state;
    int lock, other;
    struct stat a, b;
    assert_int_equal(symlink("locked", temporary_path(folder, "alias")), 0);
    assert_int_equal(ith_file_lock(context, temporary_path(folder, "locked"), &lock), ITH_OK);
    ith_file_unlock(lock);
    assert_int_equal(ith_file_lock(context, temporary_path(folder, "alias"), &other), ITH_OK);
    assert_int_equal(fstat(other, &a), 0);
    assert_int_equal(stat(temporary_path(folder, "locked.lock"), &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    ith_file_unlock(other);
}

/* A file or a folder that is not there has one real name, however it is named. */
static void an_output_has_one_real_name(void **state)
{
    (void)state;
    static const char *const names[] = {"frames", "frames/", "./frames//", "deep/../frames", "to_frames", "deep/up/"};
    char real[PATH_MAX], *place = realpath(folder, NULL), *expected = NULL;
    const int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_non_null(place);
    assert_true(asprintf(&expected, "%s/frames", place) > 0);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("deep", 0777), 0);
    assert_int_equal(symlink("frames", "to_frames"), 0);
    assert_int_equal(symlink("../frames/", "deep/up"), 0);
    for (int there = 0; there < 2; there++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            assert_int_equal(ith_output_real(names[i], real), 0);
            assert_string_equal(real, expected);
        }
        assert_int_equal(there ? rmdir("frames") : mkdir("frames", 0777), 0);
    }
    assert_int_equal(fchdir(here), 0);
    close(here);
    free(expected);
    free(place);
}

static bool clock_runs; /* each look at the clock is a second later than the last one */
static int late;        /* the seconds by which the clock is fast */

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    const int result = __real_clock_gettime(clock, time);
    time->tv_sec += clock_runs ? ++late : late;
    return result;
}

/* A lock that somebody else holds is not waited for without end, and no descriptor is left open. */
static void a_lock_is_waited_for_ten_seconds(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "taken");
    int lock, other = 7;
    assert_int_equal(ith_file_lock(context, path, &lock), ITH_OK);
    const int next = dup(lock);
    close(next);
    clock_runs = true, late = 0;
    const ith_status status = ith_file_lock(context, path, &other);
    clock_runs = false;
    assert_int_equal(status, ITH_ERR_TIMEOUT);
    assert_true(in_range(late, 10, 13));
    assert_int_equal(other, -1);
    assert_non_null(strstr(ith_context_error(context), "taken.lock for 10 seconds"));
    assert_int_equal(dup(lock), next);
    close(next);
    ith_file_unlock(lock);
    assert_int_equal(ith_file_lock(context, path, &other), ITH_OK);
    ith_file_unlock(other);
}

/* A file without a name has no lock: a lock named ".lock" would be left in the folder where the program was called. */
static void a_file_without_a_name_has_no_lock(void **state)
{
    (void)state;
    int lock = 7;
    assert_int_equal(ith_file_lock(context, "", &lock), ITH_ERR_IO);
    assert_int_equal(lock, -1);
    assert_non_null(strstr(ith_context_error(context), "a file needs a name"));
    assert_int_equal(access(".lock", F_OK), -1);
}

static void permissions_are_kept(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    struct stat info;
    const char *path = temporary_path(folder, "private");
    assert_int_equal(ith_replace_file(context, path, write_word, "first"), ITH_OK);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(ith_replace_file(context, path, write_word, "second"), ITH_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    const bool root = geteuid() == 0; /* root may write everywhere */
    assert_int_equal(root ? seteuid(NOBODY) : 0, 0);
    ith_status status = ith_replace_file(context, path, write_word, "third");
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(EACCES)));
    assert_word(path, "second");
}

/* Writes to the file as a user who is no owner. Ends as root, if the program has begun so. */
static ith_status replace_as(uid_t user, const char *path)
{
    assert_int_equal(seteuid(user), 0);
    ith_status tried = ith_replace_check(context, path), written = ith_replace_file(context, path, write_word, "new");
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(tried, written);
    return written;
}

/* In a folder such as /tmp a file that belongs to another user cannot be replaced, though it may be written. The check
 * before a long computation finds it. */
static void a_sticky_folder_keeps_the_files_of_others(void **state)
{
    (void)state;
    enum { OWNER = 54321, OTHER = 54322 };
    const char *sticky = temporary_path(folder, "sticky"), *path = temporary_path(folder, "sticky/file");
    if (geteuid())
        skip();
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(mkdir(sticky, 0777), 0);
    assert_int_equal(chmod(sticky, 01777), 0);
    assert_int_equal(ith_replace_file(context, path, write_word, "old"), ITH_OK);
    assert_int_equal(chown(path, OWNER, OWNER), 0);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(replace_as(OTHER, path), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(EPERM)));
    assert_word(path, "old");
    const int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(sticky), 0);
    const ith_status status = replace_as(OTHER, "file"); /* a name without a folder */
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(EPERM)));
    assert_word(path, "old");
    assert_int_equal(replace_as(OWNER, path), ITH_OK);
    assert_word(path, "new");
    assert_int_equal(chmod(sticky, 0777), 0);
    assert_int_equal(replace_as(OTHER, path), ITH_OK);
}

/* With a umask that forbids the user to open what he makes, no folder is left. */
static void a_folder_that_cannot_be_opened_is_not_left(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    char partial[PATH_MAX];
    const char *place = temporary_path(folder, "open_to_all");
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(mkdir(place, 0777), 0);
    assert_int_equal(chmod(place, 0777), 0);
    const bool root = geteuid() == 0; /* root may open everything */
    assert_int_equal(root ? seteuid(NOBODY) : 0, 0);
    const mode_t before = umask(0777);
    const int made = ith_output_create(temporary_path(folder, "open_to_all/frames"), true, partial), error = errno;
    umask(before);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(made, -1);
    assert_int_equal(error, EACCES);
    assert_int_equal(rmdir(place), 0);
}

static int syncs, sync_error;
static const char *sync_path; /* a file that must still be the old file while the new file is flushed to the disk */

int __real_fsync(int file);
int __wrap_fsync(int file);
int __wrap_fsync(int file)
{
    size_t bytes = 0;
    char *old = sync_path ? temporary_read(sync_path, &bytes) : NULL;
    if (old)
        assert_string_equal(old, "old");
    free(old);
    syncs++;
    errno = sync_error;
    return sync_error ? -1 : __real_fsync(file);
}

/* Some file systems, and devices, have no disk to which data could be flushed. */
static void a_file_system_without_a_disk_is_written_to(void **state)
{
    static const int errors[] = {EINVAL, EROFS};
    (void)state;
    for (int i = 0; i < 2; i++) {
        sync_error = errors[i];
        ith_status status = ith_replace_file(context, temporary_path(folder, "without_disk"), write_word, "new");
        sync_error = 0;
        assert_int_equal(status, ITH_OK);
    }
}

/* A disk may refuse the data only in fsync. */
static void files_reach_the_disk_before_they_replace(void **state)
{
    (void)state;
    const char *path = temporary_path(folder, "synced");
    assert_int_equal(ith_replace_file(context, path, write_word, "old"), ITH_OK);
    sync_path = path, sync_error = ENOSPC;
    assert_int_equal(ith_replace_file(context, path, write_word, "new"), ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(context), strerror(ENOSPC)));
    syncs = sync_error = 0;
    assert_int_equal(ith_replace_file(context, path, write_word, "new"), ITH_OK);
    assert_int_equal(syncs, 1);
    sync_path = NULL;
    size_t bytes;
    char *text = temporary_read(path, &bytes);
    assert_string_equal(text, "new");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipes_are_refused),
        cmocka_unit_test(sockets_are_refused),
        cmocka_unit_test(folders_are_refused),
        cmocka_unit_test(terminals_are_refused),
        cmocka_unit_test(a_device_is_written_to_but_not_read),
        cmocka_unit_test(regular_files_are_opened_and_replaced),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(the_longest_name_will_do),
        cmocka_unit_test(long_names_have_their_own_locks),
        cmocka_unit_test(a_link_has_the_lock_of_its_file),
        cmocka_unit_test(an_output_has_one_real_name),
        cmocka_unit_test(a_lock_is_waited_for_ten_seconds),
        cmocka_unit_test(a_file_without_a_name_has_no_lock),
        cmocka_unit_test(permissions_are_kept),
        cmocka_unit_test(a_sticky_folder_keeps_the_files_of_others),
        cmocka_unit_test(a_folder_that_cannot_be_opened_is_not_left),
        cmocka_unit_test(files_reach_the_disk_before_they_replace),
        cmocka_unit_test(a_file_system_without_a_disk_is_written_to),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
