/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for plans: random problems, options and ranks. From the root of the tree, with CC and CXX clang:
 *
 *     cmake -S . -B build-fuzz-attention -G Ninja -DITHACA_ENGINE=OFF -DITHACA_SANITIZE=address,undefined \
 *         "-DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link -fsanitize-coverage-ignorelist=$PWD/tools/fuzz_attention.txt"
 *     ninja -C build-fuzz-attention ith_attention ith_support
 *     clang -g -O1 -D_GNU_SOURCE -fopenmp -fsanitize=fuzzer,address,undefined -Iinclude -Isrc -Itests \
 *         tools/fuzz_attention.c build-fuzz-attention/tests/libith_support.a \
 *         build-fuzz-attention/src/libith_{oracle,attention,kernels,comm,base}.a -ldl -lm -o fuzz
 *     mkdir -p found && OMP_NUM_THREADS=1 ./fuzz -max_len=128 found tests/attention/corpus
 *
 * fuzz_attention.txt leaves the loops over numbers without instruments: with them an input takes 3.5 times as long.
 * Add inputs that it finds to this corpus, under names that describe them. tests/attention/test_fuzz.c replays the
 * corpus, and random bytes. */
#include "base/context.h"
#include "support/probe_attention.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ith_context *context; /* one for all inputs, so that memory that is lost adds up */
    if (!context && ith_context_create(NULL, &context))
        return 0;
    if (!probe_attention(context, data, size) || ith_context_bytes(context)) {
        fprintf(stderr, "%s\n", ith_context_error(context));
        __builtin_trap();
    }
    return 0;
}
