/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of an open file of tensors, for the readers of its formats. */
#ifndef ITH_FILES_TENSOR_FILE_PARTS_H
#define ITH_FILES_TENSOR_FILE_PARTS_H

#include "mapping.h"
#include "tensor.h"

/* A key and a value of the metadata. */
typedef struct ith_metadata_pair {
    const char *key, *value;
} ith_metadata_pair;

/* An array in the metadata of a GGUF file, and where its items lie in the file. */
typedef struct ith_metadata_array {
    const char *key;
    uint32_t type;
    int64_t count, begin, bytes;
} ith_metadata_array;

/* An open file of tensors. */
struct ith_tensor_file {
    ith_context *context;
    char *path;
    ith_mapping mapping;
    const char *data; /* the data behind the header; offsets of tensors count from here */
    int64_t data_bytes;
    ith_tensor *tensors; /* the tensors of the file, ordered by name */
    int64_t count;
    ith_metadata_pair *pairs; /* the metadata, ordered by key */
    int64_t pair_count;
    ith_metadata_array *arrays; /* the arrays in the metadata of a GGUF file */
    int64_t array_count;
    char *text; /* all names, keys and values as C strings, one after another */
    bool is_gguf;
};

/* A little-endian number of 1 to 8 bytes. */
static inline uint64_t ith_little_endian(const unsigned char *digits, int64_t bytes)
{
    uint64_t number = 0;
    for (int64_t i = bytes - 1; i >= 0; i--)
        number = number << 8 | digits[i];
    return number;
}

/* Sorts the tensors, unless they are in this order: a header may have a million of them. */
void ith_tensor_file_sort(ith_tensor_file *file, int (*compare)(const void *, const void *));
/* Orders the tensors by name and the metadata by key. */
void ith_tensor_file_order(ith_tensor_file *file);
/* Checks that the tensors, which are ordered by place, cover the data from the first byte to the last without overlap.
 * Each tensor begins at the first multiple of `alignment` after the tensor before it. */
ith_status ith_tensor_file_check_cover(const ith_tensor_file *file, int64_t alignment);
/* Compares tensors by the place of their data for qsort. At the same place an empty tensor comes first. */
int ith_tensor_by_place(const void *a, const void *b);

/* Reads a mapped safetensors file. */
ith_status ith_safetensors_read(ith_tensor_file *file);
/* Reads the header of a mapped GGUF file. The file begins with ITH_GGUF_MAGIC. */
ith_status ith_gguf_read(ith_tensor_file *file);
#define ITH_GGUF_MAGIC "GGUF"

#endif
