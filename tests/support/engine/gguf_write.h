/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files, and packs tensors, for tests of packed weights. */
#ifndef ITH_TESTS_GGUF_WRITE_H
#define ITH_TESTS_GGUF_WRITE_H

#include "support/engine/repackage.h"

/* Writes tensors as a GGUF file. A tensor without data becomes a hole. */
void gguf_write_tensors(const ith_tensor *tensors, int64_t count, const char *architecture, const char *path);
/* Writes all tensors of a package as a GGUF file. */
void gguf_write(const package *p, const char *path);
/* Packs tensor `index` of a package as a quantised type: numbers of about the same size, with random codes for most
 * types. The last size of the tensor must be a multiple of ith_dtype_run(type). */
void package_pack(package *p, int64_t index, ith_dtype type);
/* Adds a tensor of f32 numbers, which are copied. */
void package_add_floats(package *p, const char *name, int dims, const int64_t *shape, const float *numbers);
/* Replaces all packed tensors by the same numbers as f32. factor: they are multiplied by it. */
void package_unpack(package *p, float factor);

#endif
