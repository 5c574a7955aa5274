/* The table of attention kernels and the choice of one at run time. */
#include "kernel.h"

#include "../base/cpu.h"

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

/* The names of the kernels that the context's machine runs, separated by commas. */
static void list_usable(uint32_t cpu, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (int i = 0; i < KERNELS; i++) {
        if ((kernels[i]->cpu & ~cpu) != 0)
            continue;
        if (text[0] != '\0')
            strncat(text, ", ", text_bytes - strlen(text) - 1);
        strncat(text, kernels[i]->name, text_bytes - strlen(text) - 1);
    }
}

static const ith_attn_kernel *choose_named(ith_context *context, const char *name, ith_dtype dtype, int64_t head_dim)
{
    uint32_t cpu = ith_context_cpu(context);
    char usable[256], lacking[128];
    list_usable(cpu, usable, sizeof usable);
    for (int i = 0; i < KERNELS; i++) {
        const ith_attn_kernel *kernel = kernels[i];
        if (strcmp(kernel->name, name) != 0)
            continue;
        if ((kernel->cpu & ~cpu) != 0) {
            ith_fail(context, ITH_ERR_UNSUPPORTED, "kernel %s needs %s, which this machine lacks; usable here: %s",
                     name, ith_cpu_describe(kernel->cpu & ~cpu, lacking, sizeof lacking), usable);
            return NULL;
        }
        if (!kernel->supports(dtype, head_dim)) {
            ith_fail(context, ITH_ERR_UNSUPPORTED, "kernel %s does not take head_dim %lld in %s", name,
                     (long long)head_dim, ith_dtype_name(dtype));
            return NULL;
        }
        return kernel;
    }
    ith_fail(context, ITH_ERR_ARGUMENT, "no kernel is named '%s'; usable here: %s", name, usable);
    return NULL;
}

const ith_attn_kernel *ith_attn_kernel_choose(ith_context *context, const char *name, ith_dtype dtype, int64_t head_dim)
{
    if (name != NULL)
        return choose_named(context, name, dtype, head_dim);
    uint32_t cpu = ith_context_cpu(context);
    for (int i = 0; i < KERNELS; i++) {
        if ((kernels[i]->cpu & ~cpu) == 0 && kernels[i]->supports(dtype, head_dim))
            return kernels[i];
    }
    ith_fail(context, ITH_ERR_UNSUPPORTED,
             "no kernel takes head_dim %lld in %s: attention needs head_dim >= 1 and f32, bf16 or f16",
             (long long)head_dim, ith_dtype_name(dtype));
    return NULL;
}
