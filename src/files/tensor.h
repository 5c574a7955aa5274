/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the reader and the writer of safetensors files share: names of types, and sizes.
 *
 * The format (https://huggingface.co/docs/safetensors): eight bytes with the length N of the header, little-endian; N
 * bytes of JSON, {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {...}};
 * then the data, to which the offsets refer. */
#ifndef ITH_FILES_TENSOR_H
#define ITH_FILES_TENSOR_H

#include <ithaca/files.h>

#include "../base/context.h"

#define ITH_TENSOR_METADATA_KEY "__metadata__"
/* The maximal length of a header, as in the reference implementation. */
#define ITH_TENSOR_HEADER_MOST_BYTES 100000000

/* The format's name of a type: "F32", "BF16", ...; NULL if it has none. */
const char *ith_tensor_type_name(ith_dtype type);
/* The type with that name; ITH_DTYPE_NONE for an unknown one. */
ith_dtype ith_tensor_type_parse(const char *name);
/* *bytes = product of the shape * bytes of an element; false if a size is negative or the product does not fit. */
bool ith_tensor_bytes(ith_dtype type, int dims, const int64_t *shape, int64_t *bytes);

/* "[2, 3]" for a sentence. */
typedef struct ith_shape_text {
    char text[ITH_MAX_DIMS * 22];
} ith_shape_text;
ith_shape_text ith_shape_print(int dims, const int64_t *shape);

/* Like ith_tensor_file_write, but an interruption of the context ends it with ITH_ERR_INTERRUPTED. An existing file
 * then stays unchanged. */
ith_status ith_tensor_file_write_stoppable(ith_context *context, const char *path, const ith_tensor *tensors,
                                           int64_t tensor_count);

#endif
