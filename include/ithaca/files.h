/* SPDX-License-Identifier: Apache-2.0 */
/* Reads safetensors and GGUF files, and writes safetensors files. Part of libithaca_wan.
 *
 * The format: 8 bytes with the length of the header (little-endian), the header, which is a JSON object {name: {dtype,
 * shape, data_offsets}}, and the data. https://huggingface.co/docs/safetensors
 *
 * A file is mapped, not read: opening reads only its header, for files of any size, and data comes from the disk when
 * it is first accessed. If another process cuts the file while it is open, the system raises SIGBUS at the next
 * access to the lost bytes. ith_tensor_copy and ith_tensor_to_f32 turn this into ITH_ERR_IO. A program that reads
 * ith_tensor.data itself is killed by the signal. Replacing a file by renaming another one to its name is safe.
 *
 * For this the library installs a handler for SIGBUS when it opens a file, and again if the program has replaced it
 * since. The handler acts on the library's own reads only, and hands every other SIGBUS to the handler that it found. A
 * program that installs a handler while a file is in use lets it call the handler that it replaces. No thread that
 * calls the library may block SIGBUS. */
#ifndef ITHACA_FILES_H
#define ITHACA_FILES_H

#include <ithaca/ithaca.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ITH_MAX_DIMS 8 /* maximal number of dimensions of a tensor */

/* A tensor in row-major order. Its data belongs to the file in which the tensor was found. The format aligns nothing,
 * so data may begin at any address: check its alignment, or copy it (ith_tensor_copy, ith_tensor_to_f32). */
typedef struct ith_tensor {
    size_t struct_size;
    const char *name;
    ith_dtype dtype;
    int dims;                    /* number of dimensions; 0: a scalar with one element */
    int64_t shape[ITH_MAX_DIMS]; /* size of each dimension; 0 is legal */
    const void *data;
    int64_t bytes; /* bytes of the data */
} ith_tensor;
#define ITH_TENSOR_INIT                                                                                                \
    {                                                                                                                  \
        sizeof(ith_tensor), NULL, ITH_DTYPE_NONE, 0, {0}, NULL, 0                                                      \
    }

/* The number of elements of a tensor, the product of its shape; 0 if its bytes disagree with its shape, and for
 * NULL. */
ITH_API int64_t ith_tensor_elements(const ith_tensor *tensor);
/* Writes all elements of a tensor to out as f32. The data may begin at any address. ITH_ERR_ARGUMENT if bytes and shape
 * disagree, ITH_ERR_UNSUPPORTED for BOOL, U8, I16, I32 and I64, ITH_ERR_IO if the tensor's file was cut. */
ITH_API ith_status ith_tensor_to_f32(ith_context *context, const ith_tensor *tensor, float *out);
/* Copies the data of a tensor to out, tensor->bytes bytes. ITH_ERR_ARGUMENT if bytes and shape disagree, ITH_ERR_IO if
 * the tensor's file was cut. */
ITH_API ith_status ith_tensor_copy(ith_context *context, const ith_tensor *tensor, void *out);
/* Rounds `count` f32 values to `type`, halves to even, and writes them to out. ITH_ERR_UNSUPPORTED unless the type is
 * F32, BF16 or F16. */
ITH_API ith_status ith_tensor_from_f32(ith_context *context, const float *values, int64_t count, ith_dtype type,
                                       void *out);

/* One safetensors or GGUF file, mapped into memory. */
typedef struct ith_tensor_file ith_tensor_file;

/* Opens a safetensors file or a GGUF file of version 3; the first bytes of the file decide. Everything that the header
 * claims is checked: lengths, JSON, types, shapes against offsets, order, overlap, gaps. ITH_ERR_IO if the file cannot
 * be read, ITH_ERR_FORMAT if it is wrong, ITH_ERR_UNSUPPORTED for an element type that is not in ith_dtype, more than
 * ITH_MAX_DIMS dimensions, or another version of GGUF; the sentence names file and tensor. The file holds a reference
 * to its context: either may be destroyed first. */
ITH_API ith_status ith_tensor_file_open(ith_context *context, const char *path, ith_tensor_file **out);
ITH_API void ith_tensor_file_close(ith_tensor_file **file);

/* The number of tensors in a file; 0 for NULL. */
ITH_API int64_t ith_tensor_file_count(const ith_tensor_file *file);
/* Returns tensor number `index` in the order of their names; NULL for an index that is not from 0 to count - 1. The
 * tensor lives as long as the file. */
ITH_API const ith_tensor *ith_tensor_file_at(const ith_tensor_file *file, int64_t index);
/* Returns the tensor of that name; NULL if there is none. The tensor lives as long as the file. */
ITH_API const ith_tensor *ith_tensor_file_find(const ith_tensor_file *file, const char *name);
/* Returns the value of a key of the metadata as text: in a safetensors file the metadata are the strings of
 * "__metadata__", in a GGUF file its strings, numbers and booleans. NULL if there is no such key. The text lives as
 * long as the file. */
ITH_API const char *ith_tensor_file_metadata(const ith_tensor_file *file, const char *key);

/* Writes tensors to a file beside `path`, and renames it to `path` when it is complete; on failure the earlier file
 * stays. A path that names a device or a pipe is written to directly. Data starts at a multiple of 8 bytes and larger
 * element types come first, so that all data of the file is aligned. All tensors of the array have the struct_size of
 * the first. keys and values: metadata, pair_count of each; may be NULL with 0. ITH_ERR_ARGUMENT for two tensors of one
 * name, for tensors whose bytes disagree with their shape, and for the types of GGUF files (from ITH_Q4_0 on),
 * ITH_ERR_IO if the system refuses to write. */
ITH_API ith_status ith_tensor_file_write(ith_context *context, const char *path, const ith_tensor *tensors,
                                         int64_t tensor_count, const char *const *keys, const char *const *values,
                                         int64_t pair_count);

#ifdef __cplusplus
}
#endif
#endif
