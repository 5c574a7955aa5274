/* SPDX-License-Identifier: Apache-2.0 */
/* The table of attention kernels: those of this library, then those of its plugins. */
#include "kernel.h"

#include "plugin.h"

#include <string.h>

#define ITH_ATTN_KERNEL(type, isa, tile, symbol) extern const ith_attn_kernel symbol;
#include "kernels.inc"

static const ith_attn_kernel *const kernels[] = {
#define ITH_ATTN_KERNEL(type, isa, tile, symbol) &symbol,
#include "kernels.inc"
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

const ith_attn_kernel *ith_attn_kernel_at(int index)
{
    return index >= 0 && index < KERNELS ? kernels[index] : ith_kernel_plugin_at(index - KERNELS);
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
