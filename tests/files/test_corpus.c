/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the corpora of tools/fuzz_safetensors.c and tools/fuzz_json.c. */
#include "support/corpus.h"
#include "support/engine/probe_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void safetensors(void **state)
{
    (void)state;
    corpus_replay("files/corpus/safetensors", probe_file, 27);
}

static void gguf(void **state)
{
    (void)state;
    corpus_replay("files/corpus/gguf", probe_file, 17);
}

static void json(void **state)
{
    (void)state;
    corpus_replay("files/corpus/json", probe_json, 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(safetensors), cmocka_unit_test(gguf), cmocka_unit_test(json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
