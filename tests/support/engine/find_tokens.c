/* SPDX-License-Identifier: Apache-2.0 */
#include "find_tokens.h"

#include <stdlib.h>

float *find_tokens(const ith_tensor_file *file, const char *name, const ith_dit_shape *shape, int64_t begin,
                   int64_t count)
{
    const ith_tensor *tensor = ith_tensor_file_find(file, name);
    if (!tensor)
        return NULL;
    ith_dit_shape own = *shape;
    own.frames = tensor->shape[1];
    float *out = malloc((size_t)((count + 1) * tensor->shape[0] * ITH_DIT_PATCH) * sizeof *out);
    ith_dit_patchify(tensor->data, tensor->shape[0], &own, begin, count, out);
    return out;
}
