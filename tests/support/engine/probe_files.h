/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of readers: each reads a file of any content, such as a file that was damaged on purpose, and uses all that
 * the file promises. The program ends if a promise is broken. */
#ifndef ITH_TESTS_PROBE_FILES_H
#define ITH_TESTS_PROBE_FILES_H

#include "files/json.h"
#include "support/memory_file.h"
#include <ithaca/files.h>
#include <ithaca/ithaca.h>

/* Opens a file of tensors and returns the status. After a failure the sentence must name the file; after a success the
 * file must keep its promises. */
ith_status probe_file(ith_context *ctx, const char *path);

/* Reads a JSON configuration and returns the status. Asks for every kind of value at keys of every kind. */
ith_status probe_json(ith_context *ctx, const char *path);

/* The entry of libFuzzer, which every target in tools/ defines. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Calls a probe with a file that has the bytes that libFuzzer made. */
int fuzz_file(const uint8_t *data, size_t size, ith_status (*probe)(ith_context *, const char *path));

#endif
