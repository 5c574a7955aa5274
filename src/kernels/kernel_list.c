/* SPDX-License-Identifier: Apache-2.0 */
/* The list of attention kernels: first the kernels of this library, then the kernels of loaded modules. */
#include "kernel.h"

#include "kernel_module.h"

#include <string.h>

#define ITH_ATTN_KERNEL(type, isa, tile, symbol) extern const ith_attn_kernel symbol;
#include "kernels.inc"

static const ith_attn_kernel *const kernels[] = {
#define ITH_ATTN_KERNEL(type, isa, tile, symbol) &symbol,
#include "kernels.inc"
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

ith_module_kind ith_kernel_modules = {
    .name = "kernel", .symbol = "ith_kernel_module_table", .abi = ITH_KERNEL_MODULE_ABI};

/* Kernel number `index` of all loaded modules; NULL beyond the last. */
static const ith_attn_kernel *module_kernel_at(int index)
{
    const ith_module *module;
    for (int i = 0; (module = ith_module_at(&ith_kernel_modules, i)) != NULL; i++) {
        const ith_kernel_module *table = (const ith_kernel_module *)module->table;
        for (int j = 0; table && table->kernels[j]; j++)
            if (index-- == 0)
                return table->kernels[j];
    }
    return NULL;
}

const ith_attn_kernel *ith_attn_kernel_at(int index)
{
    if (index < 0)
        return NULL;
    return index < KERNELS ? kernels[index] : module_kernel_at(index - KERNELS);
}

const ith_attn_kernel *ith_attn_kernel_named(const char *name)
{
    const ith_attn_kernel *kernel;
    for (int i = 0; (kernel = ith_attn_kernel_at(i)) != NULL; i++) {
        if (strcmp(kernel->name, name) == 0)
            return kernel;
    }
    return NULL;
}
