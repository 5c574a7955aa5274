/* SPDX-License-Identifier: Apache-2.0 */
/* A libFuzzer target for the reader of LoRA files. From the root of the tree, with CC and CXX clang:
 *
 *     cmake -S . -B build-fuzz -G Ninja -DITHACA_SANITIZE=address,undefined -DCMAKE_C_FLAGS=-fsanitize=fuzzer-no-link
 *     ninja -C build-fuzz ith_wan
 *     clang -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc -Itests tools/fuzz_lora.c \
 *         tests/support/{memory_file,engine/probe_files,engine/probe_models}.c \
 *         build-fuzz/src/libith_{wan,linear,files,cost,attention,kernels,comm,base}.a \
 *         -fopenmp -fsanitize-link-c++-runtime -ljansson -lsentencepiece -lutf8proc -lstdc++ -ldl -lm -o fuzz
 *     mkdir -p found && ./fuzz -max_len=8192 found tests/wan/corpus/lora
 *
 * Add inputs that it finds to this corpus, under names that describe them. tests/wan/test_model_corpus.c replays it. */
#include "support/engine/probe_files.h"
#include "support/engine/probe_models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_file(data, size, probe_lora);
}
