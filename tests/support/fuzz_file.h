/* SPDX-License-Identifier: Apache-2.0 */
/* What libFuzzer made, put before a reader of files. */
#ifndef ITH_TESTS_FUZZ_FILE_H
#define ITH_TESTS_FUZZ_FILE_H

#include "support/memory_file.h"

#include <ithaca/ithaca.h>

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline int fuzz_file(const uint8_t *data, size_t size, ith_status (*probe)(ith_context *, const char *path))
{
    ith_context *context = NULL;
    if (ith_context_create(NULL, &context))
        return 0;
    memory_file file = memory_file_create();
    memory_file_fill(&file, data, size);
    probe(context, file.path);
    close(file.file);
    ith_context_destroy(&context);
    return 0;
}

#endif
