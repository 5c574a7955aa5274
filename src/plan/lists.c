/* SPDX-License-Identifier: Apache-2.0 */
/* The public lists of kernels and of modules. */
#include "../kernels/kernel_module.h"

const char *ith_kernel_list(const ith_context *context, int index, bool *usable)
{
    const ith_attn_kernel *kernel = index >= 0 ? ith_attn_kernel_at(index) : NULL;
    if (!kernel)
        return NULL;
    if (usable)
        *usable = context && (kernel->cpu & ~ith_context_cpu(context)) == 0;
    return kernel->name;
}

const char *ith_module_list(int index, const char **refusal)
{
    const ith_module *module = ith_module_at(&ith_kernel_modules, index);
    if (!module)
        return NULL;
    if (refusal)
        *refusal = module->refusal;
    return module->path;
}
