/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels in shared modules (base/modules.h): ithaca_kernel_NAME.so exports an ith_kernel_module called
 * ith_kernel_module_table. */
#ifndef ITH_KERNELS_KERNEL_MODULE_H
#define ITH_KERNELS_KERNEL_MODULE_H

#include "../base/modules.h"
#include "kernel.h"

/* Of kernel.h's structs and of this one: goes up with every change. */
#define ITH_KERNEL_MODULE_ABI 5

typedef struct ith_kernel_module {
    ith_module_head head;
    const ith_attn_kernel *const *kernels; /* ends with NULL */
} ith_kernel_module;

extern ith_module_kind ith_kernel_modules;

#endif
