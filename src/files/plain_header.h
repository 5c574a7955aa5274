/* SPDX-License-Identifier: Apache-2.0 */
/* The headers that writers of safetensors files make. A header may be 100 MB long, and a parser of all JSON takes
 * several seconds for it. */
#ifndef ITH_FILES_PLAIN_HEADER_H
#define ITH_FILES_PLAIN_HEADER_H

#include "tensor_file_parts.h"

/* Fills in the lists and the text of a file from its header, in the order of the header, if the header is plain:
 * strings of ASCII without escapes, tensors with the members "dtype", "shape" and "data_offsets" alone, which agree,
 * and metadata of strings. Otherwise *plain is false, and the file has no lists: such a header needs a parser of all
 * JSON, which also says what is wrong with it. Names may occur twice. ITH_ERR_MEMORY is the only error. */
ith_status ith_plain_header_read(ith_tensor_file *file, const char *header, int64_t bytes, bool *plain);

#endif
