/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the fuzzers' corpus: files whose names begin with "valid" are read, all others are refused. */
#include "base/context.h"
#include "support/engine/probe_files.h"
#include "support/memory.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void replay(const char *folder, ith_status (*probe)(ith_context *, const char *), int least)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    int files = 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        bool valid = !strncmp(entry->d_name, "valid", strlen("valid"));
        if ((probe(context, path) == ITH_OK) != valid)
            fail_msg("%s: %s", path, valid ? ith_context_error(context) : "was read");
        assert_int_equal(memory_of(context).current_bytes, 0);
        files++;
    }
    closedir(entries);
    ith_context_destroy(&context);
    assert_true(files >= least);
}

static void safetensors(void **state)
{
    (void)state;
    replay("files/corpus/safetensors", probe_file, 20);
}

static void json(void **state)
{
    (void)state;
    replay("files/corpus/json", probe_json, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(safetensors), cmocka_unit_test(json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
