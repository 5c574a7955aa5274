/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), as ith_tensor_file and stores read
 * them. Sizes are turned round, so that the last one counts contiguous elements, as elsewhere. Metadata that are
 * strings, numbers or booleans are strings of ith_tensor_file_metadata: "wan", "32", "0.5", "true". Arrays are read by
 * the functions here. */
#ifndef ITH_FILES_GGUF_H
#define ITH_FILES_GGUF_H

#include <ithaca/files.h>

#include "../base/context.h"

/* The types of values in the metadata. */
typedef enum ith_gguf_type {
    ITH_GGUF_U8,
    ITH_GGUF_I8,
    ITH_GGUF_U16,
    ITH_GGUF_I16,
    ITH_GGUF_U32,
    ITH_GGUF_I32,
    ITH_GGUF_F32,
    ITH_GGUF_BOOL,
    ITH_GGUF_STRING,
    ITH_GGUF_ARRAY,
    ITH_GGUF_U64,
    ITH_GGUF_I64,
    ITH_GGUF_F64
} ith_gguf_type;

/* An array of the metadata: numbers one after the other, or strings, each with its length before it. */
typedef struct ith_gguf_array {
    ith_gguf_type type;
    int64_t count, bytes;
    char *data; /* NULL: there is no such array */
} ith_gguf_array;

/* Copies the array at `key` from the file. The caller frees array->data with ith_free. If the file is no GGUF file or
 * has no such array, *array is zero. ITH_ERR_IO if the file was cut. */
ith_status ith_gguf_array_read(ith_context *context, const ith_tensor_file *file, const char *key,
                               ith_gguf_array *array);
/* Returns the string that begins at byte *at of an array of strings, and moves *at to the next. *bytes is its length;
 * it has no terminating zero. NULL at the end of the array, and if the array is damaged. */
const char *ith_gguf_array_string(const ith_gguf_array *array, int64_t *at, int64_t *bytes);
/* Whether the file is a GGUF file. */
bool ith_gguf_is(const ith_tensor_file *file);

#endif
