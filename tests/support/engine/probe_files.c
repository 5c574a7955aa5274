/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/probe_files.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ends the program if a condition does not hold: a fuzzer and a test both notice this. */
static void probe_require(int holds)
{
    if (!holds)
        abort();
}

/* Checks the promises of an open file: each tensor is found by its name, and all data lie in one piece that is no
 * larger than the file. Reads every byte of the data once. */
static void probe_tensors(const ith_tensor_file *file, int64_t file_bytes)
{
    unsigned sum = 0;
    int64_t total = 0;
    uintptr_t least = UINTPTR_MAX, most = 0;
    for (int64_t i = 0; i < ith_tensor_file_count(file); i++) {
        const ith_tensor *tensor = ith_tensor_file_at(file, i);
        probe_require(ith_tensor_file_find(file, tensor->name) == tensor);
        probe_require(tensor->dims >= 0 && tensor->dims <= ITH_MAX_DIMS);
        int64_t count = 1, bytes;
        probe_require(ith_dtype_bytes(tensor->dtype) > 0 && tensor->bytes >= 0);
        for (int d = 0; d < tensor->dims; d++)
            if (tensor->shape[d] == 0)
                count = 0;
        for (int d = 0; d < tensor->dims && count > 0; d++)
            probe_require(!__builtin_mul_overflow(count, tensor->shape[d], &count));
        bytes = ith_dtype_row_bytes(tensor->dtype, count);
        probe_require(bytes == tensor->bytes);
        uintptr_t begin = (uintptr_t)tensor->data, end = begin + (uintptr_t)bytes;
        least = begin < least ? begin : least;
        most = end > most ? end : most;
        total += bytes;
        for (int64_t b = 0; b < tensor->bytes; b++)
            sum += ((const unsigned char *)tensor->data)[b];
    }
    const bool padded = total && most - least > (uintptr_t)total; /* there are gaps between tensors, as in GGUF files */
    probe_require(total <= file_bytes - 8 && (total == 0 || padded || most - least == (uintptr_t)total));
    probe_require(!padded || most - least <= (uintptr_t)file_bytes);
    static volatile unsigned sink; /* so that the compiler keeps the reads */
    sink = sum;
    (void)sink;
}

ith_status probe_file(ith_context *ctx, const char *path)
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

static void probe_json_key(ith_context *ctx, const ith_json *json, const char *key)
{
    int64_t integer = 0, length = 0, integers[4];
    double number = 0, numbers[4];
    bool truth = false, truths[4];
    const char *text = NULL, *names[16], *values[16];
    ith_json_int(ctx, json, key, 1, 100, 0, &integer);
    ith_json_double(ctx, json, key, NAN, &number);
    ith_json_bool(ctx, json, key, false, &truth);
    ith_json_string(ctx, json, key, true, &text);
    ith_json_doubles(ctx, json, key, 4, numbers, &length);
    ith_json_ints(ctx, json, key, 0, 9, 4, integers, &length);
    ith_json_bools(ctx, json, key, 4, truths, &length);
    ith_json_string_at(json, key, 1);
    if (!ith_json_map_count(ctx, json, key, &length) && length <= 16)
        ith_json_map(json, key, names, values);
}

ith_status probe_json(ith_context *ctx, const char *path)
{
    static const char *const keys[] = {"layers", "eps", "name", "mean", "up", "weight_map", "class"};
    ith_json *json = NULL;
    ith_status status = ith_json_read(ctx, path, &json);
    for (size_t i = 0; !status && i < sizeof keys / sizeof keys[0]; i++)
        probe_json_key(ctx, json, keys[i]);
    ith_json_close(&json);
    return status;
}

int fuzz_file(const uint8_t *data, size_t size, ith_status (*probe)(ith_context *, const char *path))
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
