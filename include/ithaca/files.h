/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files, read with suspicion and written whole. Part of libithaca_wan.
 *
 * The format: 8 bytes little-endian header length, a JSON object {name: {dtype, shape, data_offsets}}, the data.
 * https://huggingface.co/docs/safetensors
 *
 * A file is mapped, not read: opening touches its header only, however large it is, and data comes from the disk when
 * it is first touched. A file must not be shortened while it is open (the system would answer with SIGBUS); replacing
 * it by renaming another to its name is safe. */
#ifndef ITHACA_FILES_H
#define ITHACA_FILES_H

#include <ithaca/ithaca.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ITH_MAX_DIMS 8

/* A tensor where it lies, in row-major order; the data belongs to the file it was found in. The format aligns nothing:
 * data may stand at any address, so copy it (memcpy, ith_tensor_to_f32) unless you looked. */
typedef struct ith_tensor {
    size_t struct_size;
    const char *name;
    ith_dtype dtype;
    int dims;                    /* 0: a scalar, of one element */
    int64_t shape[ITH_MAX_DIMS]; /* 0 is a legal size */
    const void *data;
    int64_t bytes;
} ith_tensor;
#define ITH_TENSOR_INIT                                                                                                \
    {                                                                                                                  \
        sizeof(ith_tensor), NULL, ITH_DTYPE_NONE, 0, {0}, NULL, 0                                                      \
    }

/* The elements of a tensor: the product of its shape. 0 for a tensor whose bytes disagree with its shape, and for NULL.
 */
ITH_API int64_t ith_tensor_elements(const ith_tensor *tensor);
/* All of them as f32, from any address. ITH_ERR_ARGUMENT if bytes and shape disagree, ITH_ERR_UNSUPPORTED unless the
 * type is F32, BF16, F16 or F64. */
ITH_API ith_status ith_tensor_to_f32(ith_context *context, const ith_tensor *tensor, float *out);
/* The other way: `count` values rounded to `type`, halves to even. ITH_ERR_UNSUPPORTED unless F32, BF16 or F16. */
ITH_API ith_status ith_tensor_from_f32(ith_context *context, const float *values, int64_t count, ith_dtype type,
                                       void *out);

/* One file, mapped into memory. */
typedef struct ith_tensor_file ith_tensor_file;

/* Opens one .safetensors file. Everything that the header claims is checked: length, JSON, types, shapes against
 * offsets, order, overlap, gaps. ITH_ERR_IO if it cannot be read, ITH_ERR_FORMAT if it is wrong, ITH_ERR_UNSUPPORTED
 * for an element type that is not in ith_dtype or more than ITH_MAX_DIMS dimensions; the sentence names file and
 * tensor. The file keeps what it needs of the context: either may be destroyed first. */
ITH_API ith_status ith_tensor_file_open(ith_context *context, const char *path, ith_tensor_file **out);
ITH_API void ith_tensor_file_close(ith_tensor_file **file);

/* Tensors live as long as the file. 0 for NULL. */
ITH_API int64_t ith_tensor_file_count(const ith_tensor_file *file);
/* 0 <= index < count, ordered by name; NULL for another index. */
ITH_API const ith_tensor *ith_tensor_file_at(const ith_tensor_file *file, int64_t index);
/* NULL if there is none of that name. */
ITH_API const ith_tensor *ith_tensor_file_find(const ith_tensor_file *file, const char *name);
/* The value of a key of "__metadata__", NULL if there is none. */
ITH_API const char *ith_tensor_file_metadata(const ith_tensor_file *file, const char *key);

/* Writes tensors to a file beside `path`, and renames it when it is whole: either there is a complete file of that name
 * afterwards, or what was there before. A path that names a device or a pipe is written to directly. Data starts at a
 * multiple of 8 bytes and larger element types come first, so that all data of the file is aligned. All tensors of the
 * array have the struct_size of the first. keys and values: metadata, pair_count of each; may be NULL with 0.
 * ITH_ERR_ARGUMENT for two tensors of one name and for tensors whose bytes disagree with their shape, ITH_ERR_IO where
 * the system refuses. */
ITH_API ith_status ith_tensor_file_write(ith_context *context, const char *path, const ith_tensor *tensors,
                                         int64_t tensor_count, const char *const *keys, const char *const *values,
                                         int64_t pair_count);

#ifdef __cplusplus
}
#endif
#endif
