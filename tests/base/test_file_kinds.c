/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are not regular ones, as inputs and as outputs: refused with a sentence, and never waited for. */
#include "base/open_file.h"
#include "base/replace_file.h"
#include "support/temporary.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static ith_context *context;
static char *folder;

static int set_up(void **state)
{
    (void)state;
    alarm(60); /* a wait ends this program */
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
    int reader = open(path, O_RDONLY | O_NONBLOCK); /* nor is one written to that has a reader */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipes_are_refused),
        cmocka_unit_test(sockets_are_refused),
        cmocka_unit_test(folders_are_refused),
        cmocka_unit_test(terminals_are_refused),
        cmocka_unit_test(a_device_is_written_to_but_not_read),
        cmocka_unit_test(regular_files_are_opened_and_replaced),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
