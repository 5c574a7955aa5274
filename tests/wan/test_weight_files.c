/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of weight files: the shards that belong to a name, and the files of a folder. */
#include "support/fixture.h"
#include "support/folder_fixture.h"
#include "support/memory.h"
#include "support/temporary.h"
#include "wan/source/weight_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Only a name that has a number of a possible series stands for other files. */
static void names_of_shards_make_a_series(void **state)
{
    (void)state;
    static const struct {
        const char *path, *first;
        int64_t count;
    } rows[] = {{"a/b-00002-of-00003.safetensors", "a/b-00001-of-00003.safetensors", 3},
                {"b-00003-of-00003.gguf", "b-00001-of-00003.gguf", 3},
                {"b-00001-of-01000.gguf", "b-00001-of-01000.gguf", 1000},
                {"b-00001-of-01001.gguf", "b-00001-of-01001.gguf", 1},
                {"b-00004-of-00003.gguf", "b-00004-of-00003.gguf", 1},
                {"b-00000-of-00003.gguf", "b-00000-of-00003.gguf", 1},
                {"b-0001x-of-00003.gguf", "b-0001x-of-00003.gguf", 1},
                {"b-    1-of-    3.gguf", "b-    1-of-    3.gguf", 1},
                {"b-00001-of-3.00.gguf", "b-00001-of-3.00.gguf", 1},
                {"-00001-of-00003.gguf", "-00001-of-00003.gguf", 1},
                {"b-00001-of-00003.bin", "b-00001-of-00003.bin", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char **paths = NULL;
        int64_t count = 0;
        check(context, ith_weight_series(context, rows[i].path, &paths, &count));
        if (count != rows[i].count || strcmp(paths[0], rows[i].first))
            fail_msg("%s: %lld files, of which %s is the first", rows[i].path, (long long)count, paths[0]);
        ith_paths_free(context, paths, count);
    }
}

/* A folder may have 1000 weight files. A series counts as one. */
static void folders_of_too_many_files_are_refused(void **state)
{
    (void)state;
    enum { MOST = 1000 };
    ith_weight_list list;
    char name[64];
    temporary_write(temporary_path(folder, "b-00001-of-00002.gguf"), "", 0);
    temporary_write(temporary_path(folder, "b-00002-of-00002.gguf"), "", 0);
    for (int i = 1; i <= MOST; i++) {
        snprintf(name, sizeof name, "%d.gguf", i);
        if (i == MOST) {
            check(context, ith_weight_list_read(context, folder, 0, &list));
            assert_int_equal(list.count, MOST);
            ith_weight_list_free(context, &list);
        }
        temporary_write(temporary_path(folder, name), "", 0);
    }
    assert_int_equal(ith_weight_list_read(context, folder, 0, &list), ITH_ERR_UNSUPPORTED);
    assert_non_null(strstr(ith_context_error(context), "more than 1000 weight files"));
    ith_weight_list_free(context, &list);
}

/* A list goes as deep as it is asked to, and leaves out hidden files and shards after the first. Of the pickles it
 * keeps one. */
static void a_list_has_the_weight_files_of_a_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"1.gguf",
                                        "a/b/3.gguf",
                                        "a/2.safetensors",
                                        "a/.hidden.gguf",
                                        "a.pt",
                                        "a/b/c/4.gguf",
                                        "b.pt",
                                        "a/b/s-00001-of-00002.gguf",
                                        "c.ckpt",
                                        ".hidden/5.gguf",
                                        "a/other.txt",
                                        "a/b/s-00002-of-00002.gguf"};
    static const char *const folders[] = {"a", "a/b", "a/b/c", ".hidden"};
    static const int counts[] = {1, 2, 4, 5};
    ith_weight_list list;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        temporary_require(mkdir(temporary_path(folder, folders[i]), 0700) == 0, folders[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        temporary_write(temporary_path(folder, names[i]), "", 0);
    for (int depth = 0; depth < 4; depth++) {
        check(context, ith_weight_list_read(context, folder, depth, &list));
        assert_int_equal(list.count, counts[depth]);
        assert_string_equal(list.pickle, temporary_path(folder, "a.pt"));
        ith_weight_list_free(context, &list);
        assert_int_equal(memory_of(context).current_bytes, 0);
    }
}

#define test(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        test(names_of_shards_make_a_series),
        test(folders_of_too_many_files_are_refused),
        test(a_list_has_the_weight_files_of_a_folder),
    };
    return cmocka_run_group_tests_name("weight files", tests, NULL, NULL);
}
