/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of random numbers that take the place of weight files: a benchmark needs weights of the right sizes and
 * types, and no checkpoint. A tensor of any name and shape is made when it is first asked for. */
#ifndef ITH_FILES_RANDOM_TENSORS_H
#define ITH_FILES_RANDOM_TENSORS_H

#include <ithaca/files.h>

#include "../base/context.h"

typedef struct ith_random_tensors ith_random_tensors;

/* Makes an empty list. Its tensors will have the type `type`: F32, BF16, F16 or a quantised type (kernels/unpack.h).
 * Only matrices whose rows are whole quantisation blocks will have a quantised type; other tensors will be BF16. */
ith_status ith_random_tensors_create(ith_context *context, ith_dtype type, ith_random_tensors **out);
/* Frees all tensors. NULL is accepted. */
void ith_random_tensors_free(ith_random_tensors **tensors);

/* Returns the tensor `name` in *out. Numbers are uniform, with mean 0 and variance 1/n where n is the product of all
 * sizes but the first, so that a layer's results are about as large as its inputs. Numbers of quantised types have
 * random bits, and are finite. out NULL: the function makes nothing, and only counts the bytes of the tensor.
 * ITH_ERR_INTERRUPTED if the context is interrupted meanwhile. */
ith_status ith_random_tensors_take(ith_random_tensors *tensors, const char *name, int dims, const int64_t *shape,
                                   const ith_tensor **out);
/* Returns the bytes that the list takes from the context once it has made all tensors that were counted. */
int64_t ith_random_tensors_bytes(const ith_random_tensors *tensors);

#endif
