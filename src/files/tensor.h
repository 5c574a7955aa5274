/* SPDX-License-Identifier: Apache-2.0 */
/* What reader and writer of safetensors files share: names of types, sizes. */
#ifndef ITH_FILES_TENSOR_H
#define ITH_FILES_TENSOR_H

#include <ithaca/files.h>

#include "../base/context.h"

#define ITH_TENSOR_METADATA_KEY "__metadata__"
/* A longer header is refused, as the reference does. */
#define ITH_TENSOR_HEADER_MOST_BYTES 100000000

/* "F32", "BF16", ...; NULL for a type that has no name there. */
const char *ith_tensor_type_name(ith_dtype type);
/* ITH_DTYPE_NONE for any other name. */
ith_dtype ith_tensor_type_parse(const char *name);
/* *bytes = product of the shape times the size of an element; false if a size is negative or the product too large. */
bool ith_tensor_bytes(ith_dtype type, int dims, const int64_t *shape, int64_t *bytes);

/* "[2, 3]" for a sentence. */
typedef struct ith_shape_text {
    char text[ITH_MAX_DIMS * 22];
} ith_shape_text;
ith_shape_text ith_shape_print(int dims, const int64_t *shape);

/* ith_tensor_file_write that may be interrupted: ITH_ERR_INTERRUPTED, and the name is what it was before. */
ith_status ith_tensor_file_write_stoppable(ith_context *context, const char *path,
                                                       const ith_tensor *tensors, int64_t tensor_count);

#endif
