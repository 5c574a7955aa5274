/* SPDX-License-Identifier: Apache-2.0 */
#include "support/corpus.h"

#include "support/memory.h"
#include "support/times.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_SECONDS 1.0

static void replay_file(ith_context *context, const char *path, corpus_probe *probe, bool valid)
{
    const double start = process_seconds();
    if ((probe(context, path) == ITH_OK) != valid)
        fail_msg("%s: %s", path, valid ? ith_context_error(context) : "was read");
    const double seconds = process_seconds() - start;
    if (seconds > MOST_SECONDS)
        fail_msg("%s took %.1f s", path, seconds);
    assert_int_equal(memory_of(context).current_bytes, 0);
}

void corpus_replay(const char *folder, corpus_probe *probe, int least)
{
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    int refused = 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        const bool valid = !strncmp(entry->d_name, "valid", strlen("valid"));
        replay_file(context, path, probe, valid);
        refused += !valid;
    }
    closedir(entries);
    ith_context_destroy(&context);
    printf("%s: %d kinds of broken files\n", folder, refused);
    assert_true(refused >= least);
}
