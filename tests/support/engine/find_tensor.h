/* SPDX-License-Identifier: Apache-2.0 */
/* Finds tensors in a file. The test fails if a tensor is missing. */
#ifndef ITH_TESTS_FIND_TENSOR_H
#define ITH_TESTS_FIND_TENSOR_H

#include <ithaca/files.h>

const ith_tensor *find_tensor(const ith_tensor_file *file, const char *name);
/* The numbers of an f32 tensor. count may be NULL. */
const float *find_floats(const ith_tensor_file *file, const char *name, int64_t *count);

#endif
