/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for the readers of safetensors and GGUF files, which begin with "GGUF". From the root of the tree:
 *
 *     clang -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc -Itests tools/fuzz_safetensors.c \
 *         $(find src/files src/base -name '*.c') tests/support/{memory_file,engine/probe_files}.c build/src/libith_kernels.a -fopenmp -ljansson -ldl -lm -o fuzz
 *     mkdir -p found && ./fuzz found tests/files/corpus/safetensors tests/files/corpus/gguf
 *
 * What it finds goes to one of these folders, under a name that says what it is: tests/files/test_corpus.c replays all of it. */
#include "support/engine/probe_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_file(data, size, probe_file);
}
