/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tensors of golden files as tokens (ith_dit_patchify). */
#ifndef ITH_TESTS_FIND_TOKENS_H
#define ITH_TESTS_FIND_TOKENS_H

#include "wan/dit/dit.h"

#include <ithaca/files.h>

/* Returns tokens [begin, begin + count) of a tensor [channels, frames, ...] with the height and width of `shape`, for
 * free(). NULL if the file has no such tensor. */
float *find_tokens(const ith_tensor_file *file, const char *name, const ith_dit_shape *shape, int64_t begin,
                   int64_t count);

#endif
