/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of tensors and of their files besides the public ones (ithaca/files.h): names of types, sizes, copies and
 * conversions that notice a cut file.
 *
 * The format (https://huggingface.co/docs/safetensors): eight bytes with the length N of the header, little-endian; N
 * bytes of JSON, {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {...}};
 * then the data, to which the offsets refer. */
#ifndef ITH_FILES_TENSOR_H
#define ITH_FILES_TENSOR_H

#include <ithaca/files.h>

#include "../base/context.h"

/* The member of the header that holds the file's metadata instead of a tensor. */
#define ITH_TENSOR_METADATA_KEY "__metadata__"
/* A file begins with the length of its header, a number of this many bytes. */
#define ITH_TENSOR_LENGTH_BYTES 8
/* The maximal length of a header in bytes, as in the reference implementation. */
#define ITH_TENSOR_HEADER_MOST_BYTES 100000000

/* Returns the name of an element type in the format: "F32", "BF16", ...; NULL if the format has no such type. */
const char *ith_tensor_type_name(ith_dtype type);
/* Returns the element type with that name in the format; ITH_DTYPE_NONE for an unknown name. */
ith_dtype ith_tensor_type_parse(const char *name);
/* Sets *bytes to the bytes of all elements of this shape. Returns false if a size is negative, if the product does not
 * fit, or if the last size is not a multiple of ith_dtype_run(type). */
bool ith_tensor_bytes(ith_dtype type, int dims, const int64_t *shape, int64_t *bytes);
/* Checks that the type, the shape and the bytes of a caller's tensor agree. */
ith_status ith_tensor_check_bytes(ith_context *context, const ith_tensor *tensor);

/* Converts elements [first, first + count) of a tensor of type F32, BF16, F16, F64 or a quantised type
 * (kernels/unpack.h), whose data may begin at any address, to f32. file: the name of the tensor's file, or words for
 * it. ITH_ERR_IO if the file was cut. */
ith_status ith_tensor_part_to_f32(ith_context *context, const char *file, const ith_tensor *tensor, int64_t first,
                                  int64_t count, float *out);

/* If the data of a tensor are not aligned to its type, copies them to new memory *copy, which the caller frees with
 * ith_free. Otherwise, and after a failure, *copy is NULL. file: as above. */
ith_status ith_tensor_align(ith_context *context, const char *file, const ith_tensor *tensor, void **copy);

/* Adds a few numbers of a tensor, up to 64 bytes from the middle of its data, to *hash. file: the name of the tensor's
 * file. ITH_ERR_IO if the file was cut. */
ith_status ith_tensor_hash_sample(ith_context *context, const char *file, const ith_tensor *tensor, uint64_t *hash);

/* The offset in the file where the data of one of its tensors begin; tensor NULL: where the header ends. */
int64_t ith_tensor_file_offset(const ith_tensor_file *file, const ith_tensor *tensor);

/* The bytes of memory that an open file holds: the lists of its tensors and of its metadata, and their names. */
int64_t ith_tensor_file_held_bytes(const ith_tensor_file *file);

/* Checks that the file's path still names the file that was opened, with the same content. Takes two system calls.
 * ITH_ERR_IO if it was replaced, changed or removed. */
ith_status ith_tensor_file_check(ith_context *context, const ith_tensor_file *file);

/* A shape as text for messages, such as "[2, 3]". */
typedef struct ith_shape_text {
    char text[ITH_MAX_DIMS * 22]; /* room for 20 digits and ", " for each size */
} ith_shape_text;
ith_shape_text ith_shape_print(int dims, const int64_t *shape);

/* Writes a file as ith_tensor_file_write does, without metadata. If the context is interrupted, it returns
 * ITH_ERR_INTERRUPTED, and an existing file stays unchanged. */
ith_status ith_tensor_file_write_stoppable(ith_context *context, const char *path, const ith_tensor *tensors,
                                           int64_t tensor_count);

#endif
