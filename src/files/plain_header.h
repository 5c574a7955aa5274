/* SPDX-License-Identifier: Apache-2.0 */
/* A fast reader of the headers that programs usually write into safetensors files. A header may be 100 MB long, and a
 * parser of all JSON takes several seconds for it. */
#ifndef ITH_FILES_PLAIN_HEADER_H
#define ITH_FILES_PLAIN_HEADER_H

#include "tensor_file_parts.h"

/* Fills in the lists and the text of a file from its header, in the order of the header, if the header is plain. A
 * header is plain if its strings are ASCII without escapes, and all values of its metadata are strings. Each tensor
 * must have the members "dtype", "shape" and "data_offsets", which agree, and no others. Otherwise *plain is false, and
 * the file has no lists: the caller reads such a header with a parser for all of JSON, whose errors name the mistake. A
 * name may occur twice. ITH_ERR_MEMORY is the only error. */
ith_status ith_plain_header_read(ith_tensor_file *file, const char *header, int64_t bytes, bool *plain);

#endif
