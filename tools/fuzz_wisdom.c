/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for the reader of wisdom files: an input is the lines between header and checksum, which the
 * target adds. From the root of the tree, with CC and CXX clang:
 *
 *     cmake -S . -B build-fuzz-attention -G Ninja -DITHACA_ENGINE=OFF -DITHACA_SANITIZE=address,undefined \
 *         -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link
 *     ninja -C build-fuzz-attention ith_attention
 *     clang -g -O1 -D_GNU_SOURCE -fopenmp -fsanitize=fuzzer,address,undefined -Iinclude -Isrc -Itests \
 *         tools/fuzz_wisdom.c tests/support/{probe_wisdom,temporary}.c \
 *         build-fuzz-attention/src/libith_{attention,kernels,comm,base}.a -ldl -lm -o fuzz
 *     mkdir -p found && ./fuzz -max_len=4096 found tests/attention/corpus_wisdom
 *
 * Add inputs that it finds to this corpus, under names that describe them; the name of legal wisdom begins with
 * "valid". tests/attention/test_wisdom.c replays the corpus. */
#include "support/probe_wisdom.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ith_context *context = NULL;
    if (ith_context_create(NULL, &context))
        return 0;
    probe_wisdom(context, data, size);
    ith_context_destroy(&context);
    return 0;
}
