/* SPDX-License-Identifier: Apache-2.0 */
/* Lent files: memory takes the place of a file's path. They are opened like other files. A context and its clones share
 * them, and the last of these frees them. */
#include "base/lent_files.h"
#include "base/open_file.h"

#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define BYTES ((int64_t)100000)

static void a_lent_file_is_opened_by_its_path(void **state)
{
    (void)state;
    static const char name[] = "no/such/folder/file", text[] = "sixteen letters.";
    ith_context *root = NULL, *clone = NULL, *other = NULL;
    ith_lent_file *lent = NULL;
    char read_back[sizeof text], hole = 1;
    int file = -1;
    int64_t bytes = 0;
    assert_int_equal(ith_context_create(NULL, &root), ITH_OK);
    assert_int_equal(ith_context_create(NULL, &other), ITH_OK);
    assert_int_equal(ith_context_clone(root, &clone), ITH_OK);
    assert_int_equal(ith_open_file(root, name, &file, &bytes), ITH_ERR_IO);
    const int64_t before = ith_context_bytes(root);
    assert_int_equal(ith_lent_file_create(clone, name, BYTES, &lent), ITH_OK);
    char *to = ith_lent_file_fill(clone, lent, 77777, sizeof text);
    assert_non_null(to);
    memcpy(to, text, sizeof text);
    ith_lent_file_end(lent);
    assert_int_equal(ith_lent_bytes(root), sizeof text);
    assert_true(ith_context_bytes(root) >= before + (int64_t)sizeof text);

    assert_int_equal(ith_open_file(root, name, &file, &bytes), ITH_OK);
    assert_int_equal(bytes, BYTES);
    assert_int_equal(pread(file, read_back, sizeof read_back, 77777), sizeof read_back);
    assert_memory_equal(read_back, text, sizeof text);
    assert_int_equal(pread(file, &hole, 1, 5000), 1);
    assert_int_equal(hole, 0);
    close(file);

    /* A context that is no clone does not see it, and other paths do not give it. */
    assert_int_equal(ith_open_file(other, name, &file, &bytes), ITH_ERR_IO);
    assert_int_equal(ith_open_file(root, "no/such/folder/file2", &file, &bytes), ITH_ERR_IO);
    assert_string_equal(ith_lent_path(root, "/etc/hosts"), "/etc/hosts");

    char real[64];
    strncpy(real, ith_lent_path(root, name), sizeof real - 1), real[sizeof real - 1] = '\0';
    assert_int_equal(access(real, F_OK), 0);
    ith_context_destroy(&clone);
    ith_context_destroy(&root);
    assert_int_equal(access(real, F_OK), -1);
    ith_context_destroy(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_lent_file_is_opened_by_its_path)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
