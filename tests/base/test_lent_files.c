/* SPDX-License-Identifier: Apache-2.0 */
/* Lent files: memory takes the place of a file's path. They are opened like other files. A context and its clones share
 * them, and the last of these frees them. */
#include "base/lent_files.h"
#include "base/open_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

/* The parts of files of memory that this process has mapped. */
static int count_maps(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "/memfd:") != NULL;
    fclose(maps);
    return count;
}

/* All files and all of their parts count as held, and only the part that is being filled is mapped. */
static void many_parts_of_many_files_are_held(void **state)
{
    (void)state;
    static const char *const names[] = {"first", "second", "third"};
    ith_context *context = NULL;
    ith_lent_file *lent[3];
    int file = -1, number = 0;
    int64_t bytes = 0;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ith_lent_file_create(context, names[i], BYTES + i, &lent[i]), ITH_OK);
    const int64_t before = ith_context_bytes(context);
    const int maps = count_maps();
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 3; i++) {
            void *to = ith_lent_file_fill(context, lent[i], part * 50000, 4 * (i + 1));
            assert_non_null(to);
            memcpy(to, &(int[]){i, i, i}, 4 * ((size_t)i + 1));
            assert_int_equal(count_maps(), maps + (part ? 3 : i + 1));
        }
    assert_int_equal(ith_lent_bytes(context), 2 * (4 + 8 + 12));
    assert_int_equal(ith_context_bytes(context), before + 2 * (4 + 8 + 12));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ith_open_file(context, names[i], &file, &bytes), ITH_OK);
        assert_int_equal(bytes, BYTES + i);
        assert_int_equal(pread(file, &number, sizeof number, 50000), sizeof number);
        assert_int_equal(number, i);
        close(file);
        ith_lent_file_end(lent[i]);
    }
    assert_int_equal(count_maps(), maps);
    ith_context_destroy(&context);
}

/* A part that has ended is not ended again: other memory may lie there by then. */
static void a_part_ends_once(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ith_context *context = NULL;
    ith_lent_file *lent = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    assert_int_equal(ith_lent_file_create(context, "file", (int64_t)page, &lent), ITH_OK);
    void *part = ith_lent_file_fill(context, lent, 0, (int64_t)page);
    assert_non_null(part);
    ith_lent_file_end(lent);
    void *other = mmap(part, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(other, part);
    ith_lent_file_end(lent);
    assert_int_equal(msync(other, page, MS_ASYNC), 0); /* it is still mapped */
    munmap(other, page);
    ith_context_destroy(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lent_file_is_opened_by_its_path),
        cmocka_unit_test(many_parts_of_many_files_are_held),
        cmocka_unit_test(a_part_ends_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
