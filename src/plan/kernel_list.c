/* SPDX-License-Identifier: Apache-2.0 */
/* The public list of kernels. */
#include "../kernels/kernel.h"

const char *ith_kernel_list(const ith_context *context, int index, bool *usable)
{
    const ith_attn_kernel *kernel = index >= 0 ? ith_attn_kernel_at(index) : NULL;
    if (!kernel)
        return NULL;
    if (usable)
        *usable = context && (kernel->cpu & ~ith_context_cpu(context)) == 0;
    return kernel->name;
}
