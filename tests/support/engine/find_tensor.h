/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a file, which the test fails without. */
#ifndef ITH_TESTS_FIND_TENSOR_H
#define ITH_TESTS_FIND_TENSOR_H

#include <ithaca/files.h>

const ith_tensor *find_tensor(const ith_tensor_file *file, const char *name);
/* The numbers of an f32 tensor. count may be NULL. */
const float *find_floats(const ith_tensor_file *file, const char *name, int64_t *count);

#endif
