/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for the reader of GGUF, which gets inputs that begin with "GGUF", and for the reader of
 * safetensors, which gets all others. From the root of the tree, after `make`:
 *
 *     clang -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc -Itests tools/fuzz_safetensors.c \
 *         $(find src/files src/base -name '*.c') tests/support/{memory_file,engine/probe_files}.c \
 *         build/src/libith_kernels.a -fopenmp -ljansson -ldl -lm -o fuzz
 *     mkdir -p found && ./fuzz found tests/files/corpus/safetensors tests/files/corpus/gguf
 *
 * Add inputs that it finds to one of these folders, under names that describe them. tests/files/test_corpus.c replays
 * them. */
#include "support/engine/probe_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_file(data, size, probe_file);
}
