/* SPDX-License-Identifier: Apache-2.0 */
/* The list of product kernels, and the choice of one. */
#include "product.h"

#define ITH_PRODUCT_KERNEL(type, isa, tile, symbol) extern const ith_product_kernel symbol;
#include "kernels.inc"

static const ith_product_kernel *const kernels[] = {
#define ITH_PRODUCT_KERNEL(type, isa, tile, symbol) &symbol,
#include "kernels.inc"
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

const ith_product_kernel *ith_product_kernel_at(int index)
{
    return index >= 0 && index < KERNELS ? kernels[index] : NULL;
}

const ith_product_kernel *ith_product_kernel_choose(ith_dtype type, uint32_t cpu)
{
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->type == type && !(kernels[i]->cpu & ~cpu))
            return kernels[i];
    return NULL;
}

int ith_product_parts(const ith_product_kernel *kernel, ith_dtype dtype, bool rounds)
{
    if (kernel->parts == 1 || dtype == ITH_BF16 || rounds)
        return 1;
    return dtype == ITH_F16 ? 2 : kernel->parts;
}
