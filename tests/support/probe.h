/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a safetensors file of any content and uses all that it promises: for files that were damaged on purpose. */
#ifndef ITH_TESTS_PROBE_H
#define ITH_TESTS_PROBE_H

#include <ithaca/files.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Ends the program: a fuzzer and a test both notice. */
static inline void probe_require(int holds)
{
    if (!holds)
        abort();
}

/* Every byte of the data is read once, by whatever tensor holds it; names must be found again, and all data lie in one
 * piece that the file can hold. */
static inline void probe_tensors(const ith_tensor_file *file, int64_t file_bytes)
{
    unsigned sum = 0;
    int64_t total = 0;
    uintptr_t least = UINTPTR_MAX, most = 0;
    for (int64_t i = 0; i < ith_tensor_file_count(file); i++) {
        const ith_tensor *tensor = ith_tensor_file_at(file, i);
        probe_require(ith_tensor_file_find(file, tensor->name) == tensor);
        probe_require(tensor->dims >= 0 && tensor->dims <= ITH_MAX_DIMS);
        int64_t bytes = ith_dtype_bytes(tensor->dtype);
        probe_require(bytes > 0 && tensor->bytes >= 0);
        for (int d = 0; d < tensor->dims; d++)
            if (tensor->shape[d] == 0)
                bytes = 0;
        for (int d = 0; d < tensor->dims && bytes > 0; d++)
            probe_require(!__builtin_mul_overflow(bytes, tensor->shape[d], &bytes));
        probe_require(bytes == tensor->bytes);
        uintptr_t begin = (uintptr_t)tensor->data, end = begin + (uintptr_t)bytes;
        least = begin < least ? begin : least;
        most = end > most ? end : most;
        total += bytes;
        for (int64_t b = 0; b < tensor->bytes; b++)
            sum += ((const unsigned char *)tensor->data)[b];
    }
    probe_require(total <= file_bytes - 8 && (total == 0 || most - least == (uintptr_t)total));
    static volatile unsigned sink; /* so that the reads are made */
    sink = sum;
    (void)sink;
}

/* The status of opening. A failure must have a sentence, success a file that keeps its promises. */
static inline ith_status probe_file(ith_context *ctx, const char *path)
{
    ith_tensor_file *file = NULL;
    ith_status status = ith_tensor_file_open(ctx, path, &file);
    probe_require(!status == (file != NULL));
    struct stat info;
    if (!status) {
        probe_require(stat(path, &info) == 0);
        probe_tensors(file, info.st_size);
    } else {
        probe_require(strstr(ith_context_error(ctx), path) != NULL);
    }
    ith_tensor_file_close(&file);
    return status;
}

#endif
