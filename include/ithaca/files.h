/* Safetensors files, read with suspicion and written whole. Part of libithaca_wan.
 *
 * The format: 8 bytes little-endian header length, a JSON object {name: {dtype, shape, data_offsets}}, the data.
 * https://huggingface.co/docs/safetensors */
#ifndef ITHACA_FILES_H
#define ITHACA_FILES_H

#include <ithaca/ithaca.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ITH_MAX_DIMS 8

/* A tensor where it lies, in row-major order; the data belongs to the file it was found in. */
typedef struct ith_tensor {
    const char *name;
    ith_dtype dtype;
    int dims;
    int64_t shape[ITH_MAX_DIMS];
    const void *data;
    int64_t bytes;
} ith_tensor;

/* One file, or a set of shards with their index, mapped into memory. */
typedef struct ith_tensor_file ith_tensor_file;

/* Opens one .safetensors file. Everything that the header claims is checked: length, JSON, types, shapes against
 * offsets, order, overlap, gaps. ITH_ERR_IO or ITH_ERR_FORMAT with a sentence that names file and tensor. */
ITH_API ith_status ith_tensor_file_open(ith_context *context, const char *path, ith_tensor_file **out);
ITH_API void ith_tensor_file_close(ith_tensor_file **file);

ITH_API int64_t ith_tensor_file_count(const ith_tensor_file *file);
/* 0 <= index < count; ordered by name. */
ITH_API const ith_tensor *ith_tensor_file_at(const ith_tensor_file *file, int64_t index);
/* NULL if there is none of that name. */
ITH_API const ith_tensor *ith_tensor_file_find(const ith_tensor_file *file, const char *name);
/* The value of a key of "__metadata__", NULL if there is none. */
ITH_API const char *ith_tensor_file_metadata(const ith_tensor_file *file, const char *key);

/* Writes tensors to a file beside `path`, and renames it when it is whole: either there is a complete file of that name
 * afterwards, or what was there before. keys and values: metadata, pair_count of each; may be NULL with 0. */
ITH_API ith_status ith_tensor_file_write(ith_context *context, const char *path, const ith_tensor *tensors,
                                         int64_t tensor_count, const char *const *keys, const char *const *values,
                                         int64_t pair_count);

#ifdef __cplusplus
}
#endif
#endif
