/* SPDX-License-Identifier: Apache-2.0 */
/* The file or folder of a video: names, links, folders, full disks, and failures, which keep the file that was
 * there. */
#include "support/engine/video_case.h"
#include "support/memory.h"
#include "support/temporary.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Fails with a sentence that names the path and has the words in it. */
static void assert_refused(video_case *f, const char *path, const ith_video_options *options, ith_status status,
                           const char *words)
{
    assert_int_equal(ith_video_check(f->context, path, options), status);
    assert_non_null(strstr(ith_context_error(f->context), words));
    assert_non_null(strstr(ith_context_error(f->context), path));
}

static void names_that_cannot_be_written(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    assert_refused(f, video_path(f, "clip.avi"), &options, ITH_ERR_ARGUMENT, ".mp4");
    assert_refused(f, video_path(f, ".mp4"), &options, ITH_ERR_ARGUMENT, "no known kind");
    assert_refused(f, "", &options, ITH_ERR_ARGUMENT, "no known kind");
    assert_refused(f, video_path(f, "none/clip.mp4"), &options, ITH_ERR_IO, "folder does not exist");
    assert_refused(f, video_path(f, "none/frames/"), &options, ITH_ERR_IO, "folder does not exist");
    assert_refused(f, "/dev/full/clip.mp4", &options, ITH_ERR_IO, "Not a directory");
    assert_refused(f, "//", &options, ITH_ERR_ARGUMENT, "root folder");
    assert_refused(f, "/proc/clip.gif", &options, ITH_ERR_IO, "cannot be written");
    assert_int_equal(symlink("/dev/full", video_path(f, "full.mp4")), 0);
    assert_refused(f, f->path, &options, ITH_ERR_IO, "not an ordinary file");
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(ith_video_check_path(f->context, video_path(f, "clip.mp4")), ITH_OK);
    assert_int_equal(ith_video_check_path(f->context, video_path(f, "frames/")), ITH_OK);
    assert_int_equal(ith_video_check_path(f->context, video_path(f, "clip.mpeg")), ITH_ERR_ARGUMENT);
    assert_int_equal(ith_video_check(f->context, video_path(f, "clip.mp4"), &options), ITH_OK);
    assert_int_equal(temporary_count(f->folder), 0);
}

static void options_that_make_no_video(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    options.fps = NAN;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "frames a second");
    options.fps = 0.0099;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "frames a second");
    options.fps = 1001;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "frames a second");
    options.fps = 200;
    assert_refused(f, video_path(f, "clip.gif"), &options, ITH_ERR_ARGUMENT, "at most 100");
    options.fps = 100;
    assert_int_equal(video_write(f, video_path(f, "clip.gif"), &options), ITH_OK);
    unlink(f->path);
    options = video_options(f), options.crf = 52;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "crf");
    options = video_options(f), options.width = INT64_MAX;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "pixels");
    options = video_options(f), options.height = 16386;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "pixels is not between");
    options = video_options(f), options.width = 16386;
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "pixels is not between");
    f->height = 15;
    options = video_options(f);
    assert_refused(f, video_path(f, "clip.mp4"), &options, ITH_ERR_ARGUMENT, "even width and height");
    f->height = 48;
    options.width = options.height = 16384;
    assert_refused(f, video_path(f, "clip.gif"), &options, ITH_ERR_ARGUMENT, "not 16384 x 16384");
    assert_refused(f, video_path(f, "clip/"), &options, ITH_ERR_ARGUMENT, "not 16384 x 16384");
    options = video_options(f), options.width = 0;
    assert_refused(f, video_path(f, "clip/"), &options, ITH_ERR_ARGUMENT, "pixels");
    ith_video_writer *writer = NULL;
    options = video_options(f);
    assert_int_equal(ith_video_open(f->context, video_path(f, "clip.mp4"), &options, &writer), ITH_OK);
    assert_int_equal(ith_video_finish(&writer), ITH_ERR_ARGUMENT); /* without a frame */
    assert_null(writer);
    ith_video_discard(&writer);
    ith_video_discard(NULL);
    assert_int_equal(temporary_count(f->folder), 0);
}

static void frames_of_others_are_kept(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    assert_int_equal(mkdir(video_path(f, "frames"), 0777), 0);
    fclose(fopen(video_path(f, "frames/notes.txt"), "w"));
    video_assert_written(f, video_path(f, "frames/"), &options); /* other files in the folder do not matter */
    assert_int_equal(temporary_count(f->path), VIDEO_FRAMES + 1);
    assert_refused(f, f->path, &options, ITH_ERR_IO, "already holds frames");
    assert_int_equal(temporary_count(f->path), VIDEO_FRAMES + 1);
    assert_refused(f, video_path(f, "frames/notes.txt/"), &options, ITH_ERR_IO, "a file, not a folder");
}

/* A folder with other files is refused if it is named without '/', because the name may be a mistake; with '/' it is
 * taken. */
static void a_folder_named_by_mistake_is_refused(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    assert_int_equal(mkdir(video_path(f, "models"), 0777), 0);
    fclose(fopen(video_path(f, "models/.hidden"), "w"));
    assert_refused(f, video_path(f, "models"), &options, ITH_ERR_IO, "models/' writes frames");
    assert_int_equal(ith_video_check_path(f->context, f->path), ITH_ERR_IO);
    assert_int_equal(temporary_count(f->path), 1);
    video_assert_written(f, video_path(f, "models/"), &options);
    assert_int_equal(temporary_count(f->path), VIDEO_FRAMES + 1);
}

/* If an output is a link, the file behind it is written, whether it exists or not, and the link stays. */
static void links_are_followed(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "frames/"};
    video_case *f = *state;
    ith_video_options options = video_options(f);
    struct stat info;
    assert_int_equal(mkdir(video_path(f, "far"), 0777), 0);
    for (int i = 0; i < 3; i++) {
        char link[32], target[32];
        snprintf(link, sizeof link, "%.*s", (int)strcspn(names[i], "/"), names[i]);
        snprintf(target, sizeof target, "far/%s", names[i]);
        assert_int_equal(symlink(target, video_path(f, link)), 0);
        video_assert_written(f, video_path(f, names[i]), &options);
        assert_int_equal(lstat(video_path(f, link), &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(temporary_count(video_path(f, "far")), i + 1);
    }
}

static void the_longest_name_will_do(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    char name[256];
    memset(name, 'n', sizeof name);
    strcpy(name + sizeof name - 5, ".mp4");
    video_assert_written(f, video_path(f, name), &options);
    strcpy(name + sizeof name - 2, "/");
    video_assert_written(f, video_path(f, name), &options);
    assert_int_equal(temporary_count(f->folder), 2);
}

/* A path that the system cannot take is not cut to one that it can: the first 4095 bytes of this one name clip.mp4. */
static void a_path_that_is_too_long_is_refused(void **state)
{
    static const char last[] = "x.mp4";
    video_case *f = *state;
    ith_video_options options = video_options(f);
    static char path[PATH_MAX + sizeof last];
    const char *first = video_path(f, "clip.mp4");
    memset(path, '/', PATH_MAX);
    memcpy(path, first, strlen(first));
    memcpy(path + PATH_MAX, last, sizeof last);
    assert_int_equal(video_write(f, path, &options), ITH_ERR_IO);
    assert_int_equal(temporary_count(f->folder), 0);
}

/* A folder that exists may be a mount point, so its frames are made in it, where they can be renamed. */
static void frames_are_made_in_the_folder_that_exists(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    ith_video_writer *writer = NULL;
    assert_int_equal(mkdir(video_path(f, "old"), 0777), 0);
    assert_int_equal(ith_video_open(f->context, f->path, &options, &writer), ITH_OK);
    assert_int_equal(temporary_count(f->folder), 1);
    assert_int_equal(temporary_count(f->path), 1);
    ith_video_discard(&writer);
    assert_int_equal(temporary_count(f->path), 0);
}

/* A limit on the size of files takes the place of a full disk: write fails in the middle of the file, too. */
static void full_disk(void **state)
{
    video_case *f = *state;
    static const char *const names[] = {"clip.mp4", "clip.gif", "clip/"};
    ith_video_options options = video_options(f);
    struct rlimit limit, old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (rlim_t bytes = 0; bytes < 500; bytes += 100) {
            limit = (struct rlimit){bytes, old.rlim_max};
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
            ith_status status = video_write(f, video_path(f, names[i]), &options);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
            if (i == 2 && !status)
                break; /* the PNGs are smaller than the limit */
            assert_int_equal(status, ITH_ERR_IO);
            assert_non_null(strstr(ith_context_error(f->context), strerror(EFBIG)));
            assert_int_equal(temporary_count(f->folder), 0);
        }
    }
}

static void a_failure_keeps_the_old_file(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    video_assert_written(f, video_path(f, "clip.mp4"), &options);
    long before = video_file_bytes(f->path);
    assert_int_equal(symlink("clip.mp4", video_path(f, "link.mp4")), 0);
    ith_video_writer *writer = NULL;
    assert_int_equal(ith_video_open(f->context, f->path, &options, &writer), ITH_OK);
    assert_int_equal(temporary_count(f->folder), 3);
    ith_video_discard(&writer);
    assert_int_equal(temporary_count(f->folder), 2);
    assert_int_equal(video_file_bytes(video_path(f, "clip.mp4")), before);
    options.crf = 40;
    video_assert_written(f, video_path(f, "link.mp4"), &options); /* through the link, which stays */
    assert_true(video_file_bytes(video_path(f, "clip.mp4")) < before);
    assert_int_equal(temporary_count(f->folder), 2);
}

typedef struct trial {
    video_case *fixture;
    const char *name;
    int entries; /* number of entries in the folder before the video */
} trial;

static ith_status write_one(ith_context *poor, void *user)
{
    trial *t = user;
    video_case f = *t->fixture;
    f.context = poor;
    ith_video_options video = video_options(&f);
    ith_status status = video_write(&f, video_path(&f, t->name), &video);
    assert_int_equal(temporary_count(f.folder), t->entries + (status ? 0 : 1));
    return status;
}

static int syncs, sync_error;
static const char *sync_path; /* a file that must not exist yet while the new file is flushed to the disk */

int __real_fsync(int file);
int __wrap_fsync(int file);
int __wrap_fsync(int file)
{
    if (sync_path)
        assert_true(access(sync_path, F_OK) != 0);
    syncs++;
    errno = sync_error;
    return sync_error ? -1 : __real_fsync(file);
}

/* A disk may refuse the data only in fsync. */
static void videos_reach_the_disk_before_they_have_their_name(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "frames/"};
    video_case *f = *state;
    const ith_video_options options = video_options(f);
    for (int i = 0; i < 3; i++) {
        sync_path = video_path(f, names[i]), sync_error = ENOSPC;
        assert_int_equal(video_write(f, sync_path, &options), ITH_ERR_IO);
        assert_non_null(strstr(ith_context_error(f->context), strerror(ENOSPC)));
        assert_true(access(sync_path, F_OK) != 0);
        syncs = sync_error = 0;
        assert_int_equal(video_write(f, sync_path, &options), ITH_OK);
        assert_true(syncs > 0);
        assert_int_equal(access(sync_path, F_OK), 0);
    }
    sync_path = NULL;
}

static size_t most_written; /* the most bytes that one call of write takes; 0: all */
static int close_error;

ssize_t __real_write(int file, const void *data, size_t bytes);
ssize_t __wrap_write(int file, const void *data, size_t bytes);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    static int calls;
    if (most_written && calls++ % 3 == 1) {
        errno = EINTR;
        return -1;
    }
    return __real_write(file, data, most_written && most_written < bytes ? most_written : bytes);
}

int __real_close(int file);
int __wrap_close(int file);
int __wrap_close(int file)
{
    const int result = __real_close(file);
    if (!close_error)
        return result;
    errno = close_error;
    return -1;
}

/* A system may take a part of the bytes at a time, be interrupted by a signal, and report a full disk only in close. */
static void frames_are_written_whole(void **state)
{
    video_case *f = *state;
    ith_video_options options = video_options(f);
    most_written = 100;
    video_assert_written(f, video_path(f, "frames/"), &options);
    most_written = 0;
    video_assert_pngs(f, f->path, VIDEO_FRAMES);
    close_error = ENOSPC;
    const ith_status status = video_write(f, video_path(f, "others/"), &options);
    close_error = 0;
    assert_int_equal(status, ITH_ERR_IO);
    assert_non_null(strstr(ith_context_error(f->context), strerror(ENOSPC)));
    assert_int_equal(temporary_count(f->folder), 1);
}

static void no_descriptor_stays_open(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "new/", "old", "none/clip.gif"};
    video_case *f = *state;
    ith_video_options options = video_options(f);
    assert_int_equal(mkdir(video_path(f, "old"), 0777), 0);
    video_assert_written(f, video_path(f, "first.mp4"), &options); /* libav may keep some of its own */
    const int before = temporary_count("/proc/self/fd");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(video_write(f, video_path(f, names[i]), &options), i < 4 ? ITH_OK : ITH_ERR_IO);
        assert_int_equal(temporary_count("/proc/self/fd"), before);
    }
}

static void every_allocation_may_fail(void **state)
{
    static const char *const names[] = {"clip.mp4", "clip.gif", "clip/"};
    for (int i = 0; i < 3; i++) {
        trial t = {*state, names[i], i};
        assert_true(refuse_every_allocation(write_one, &t, 1) > 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_that_cannot_be_written, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(options_that_make_no_video, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(frames_of_others_are_kept, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(a_folder_named_by_mistake_is_refused, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(links_are_followed, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(the_longest_name_will_do, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(a_path_that_is_too_long_is_refused, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(frames_are_made_in_the_folder_that_exists, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(full_disk, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(a_failure_keeps_the_old_file, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(videos_reach_the_disk_before_they_have_their_name, video_set_up,
                                        video_tear_down),
        cmocka_unit_test_setup_teardown(frames_are_written_whole, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(no_descriptor_stays_open, video_set_up, video_tear_down),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, video_set_up, video_tear_down),
    };
    return cmocka_run_group_tests_name("video output", tests, NULL, NULL);
}
