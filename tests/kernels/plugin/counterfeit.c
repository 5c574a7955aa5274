/* SPDX-License-Identifier: Apache-2.0 */
/* A module as plugin.h describes it, with one kernel that does nothing; built for this ABI and for another one. */
#include "kernels/plugin.h"

static bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    (void)dtype, (void)head_dim, (void)softmax;
    return false;
}

static const ith_attn_kernel counterfeit = {.name = "counterfeit", .cpu = ITH_CPU_BASELINE, .supports = supports};
static const ith_attn_kernel *const kernels[] = {&counterfeit, NULL};

extern ITH_API const ith_kernel_plugin_table ith_kernel_plugin;
const ith_kernel_plugin_table ith_kernel_plugin = {.abi = ITH_KERNEL_PLUGIN_ABI + ABI_DIFFERENCE, .kernels = kernels};
