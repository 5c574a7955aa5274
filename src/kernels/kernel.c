/* The table of attention kernels. */
#include "kernel.h"

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
    return index >= 0 && index < KERNELS ? kernels[index] : NULL;
}

const ith_attn_kernel *ith_attn_kernel_named(const char *name)
{
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(kernels[i]->name, name) == 0)
            return kernels[i];
    }
    return NULL;
}
