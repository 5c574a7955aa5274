/* SPDX-License-Identifier: Apache-2.0 */
/* A module with one kernel that supports nothing; built for this ABI and for another one. */
#include "kernels/kernel_module.h"

static bool supports(ith_dtype dtype, int64_t head_dim, ith_softmax softmax)
{
    (void)dtype, (void)head_dim, (void)softmax;
    return false;
}

static const ith_attn_kernel idle = {.name = "idle", .cpu = ITH_CPU_BASELINE, .supports = supports};
static const ith_attn_kernel *const kernels[] = {&idle, NULL};

extern ITH_API const ith_kernel_module ith_kernel_module_table;
const ith_kernel_module ith_kernel_module_table = {
    .head = {.abi = ITH_KERNEL_MODULE_ABI + ABI_DIFFERENCE, .name = MODULE_NAME}, .kernels = kernels};
