/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the corpora of tools/fuzz_tokenizer.c, tools/fuzz_lora.c and tools/fuzz_saved_run.c. Together with the
 * corpora of tests/files/test_corpus.c and tests/media/test_image.c they have more than 100 kinds of broken files. */
#include "support/corpus.h"
#include "support/engine/probe_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void tokenizers(void **state)
{
    (void)state;
    corpus_replay("wan/corpus/tokenizer", probe_tokenizer, 20);
}

static void loras(void **state)
{
    (void)state;
    corpus_replay("wan/corpus/lora", probe_lora, 20);
}

static void saved_runs(void **state)
{
    (void)state;
    corpus_replay("wan/corpus/saved_run", probe_saved_run, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokenizers), cmocka_unit_test(loras),
                                       cmocka_unit_test(saved_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
