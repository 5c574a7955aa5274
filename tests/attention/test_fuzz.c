/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the function that the fuzzer calls (tools/fuzz_attention.c) on random bytes and on its corpus. ITHACA_PROBES
 * sets the number of random inputs. */
#include "support/memory.h"
#include "support/probe_attention.h"
#include "support/random.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { FEW_PROBES = 400, BYTES = 96 };

static void probe(ith_context *context, const uint8_t *data, size_t size, const char *what)
{
    if (!probe_attention(context, data, size))
        fail_msg("%s: %s", what, ith_context_error(context));
    assert_int_equal(memory_of(context).current_bytes, 0);
}

static void random_bytes(void **state)
{
    (void)state;
    const char *wanted = getenv("ITHACA_PROBES");
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    uint64_t r = 7;
    for (int i = 0; i < (wanted ? atoi(wanted) : FEW_PROBES); i++) {
        uint8_t data[BYTES];
        char what[32];
        for (int n = 0; n < BYTES; n++)
            data[n] = (uint8_t)random_bits(&r);
        snprintf(what, sizeof what, "random bytes %d", i);
        probe(context, data, BYTES, what);
    }
    ith_context_destroy(&context);
}

static void corpus(void **state)
{
    (void)state;
    ith_context *context = NULL;
    assert_int_equal(ith_context_create(NULL, &context), ITH_OK);
    DIR *entries = opendir("attention/corpus");
    assert_non_null(entries);
    int files = 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        char path[512];
        uint8_t data[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "attention/corpus/%s", entry->d_name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        probe(context, data, size, path);
        files++;
    }
    closedir(entries);
    ith_context_destroy(&context);
    assert_true(files >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_bytes), cmocka_unit_test(corpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
