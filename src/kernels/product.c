/* SPDX-License-Identifier: Apache-2.0 */
/* The list of product kernels, and the choice of one. */
#include "product.h"

#include "../base/cpu.h"

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

/* The first kernel of this type for `cpu` that splits an f32 number into at most `parts` parts. */
static const ith_product_kernel *find(ith_dtype type, int parts, uint32_t cpu)
{
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i]->type == type && kernels[i]->parts <= parts && ith_cpu_has(cpu, kernels[i]->cpu))
            return kernels[i];
    return NULL;
}

const ith_product_kernel *ith_product_kernel_choose(ith_dtype type, uint32_t cpu)
{
    return find(type, ITH_PRODUCT_PARTS_MAX, cpu);
}

const ith_product_kernel *ith_product_kernel_exact(uint32_t cpu)
{
    return find(ITH_F32, 1, cpu);
}

int ith_product_parts(const ith_product_kernel *kernel, ith_dtype dtype, bool rounds)
{
    if (kernel->parts == 1 || dtype == ITH_BF16 || rounds)
        return 1;
    return dtype == ITH_F16 ? 2 : kernel->parts;
}
