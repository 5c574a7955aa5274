/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a safetensors file of any content and uses all that it promises: for files that were damaged on purpose. */
/* Reads a configuration of any content and asks it for every kind of value at keys of every kind. */
/* Gives a reader of files the bytes that libFuzzer made. */
#ifndef ITH_TESTS_PROBE_FILES_H
#define ITH_TESTS_PROBE_FILES_H

#include "files/json.h"
#include "support/memory_file.h"
#include <ithaca/files.h>
#include <ithaca/ithaca.h>

/* The status of opening. A failure must have a sentence, success a file that keeps its promises. */
ith_status probe_file(ith_context *ctx, const char *path);

/* The status of reading. */
ith_status probe_json(ith_context *ctx, const char *path);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int fuzz_file(const uint8_t *data, size_t size, ith_status (*probe)(ith_context *, const char *path));

#endif
