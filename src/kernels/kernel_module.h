/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels in shared modules (base/modules.h): ithaca_kernel_NAME.so exports an ith_kernel_module called
 * ith_kernel_module_table. */
#ifndef ITH_KERNELS_KERNEL_MODULE_H
#define ITH_KERNELS_KERNEL_MODULE_H

#include "../base/modules.h"
#include "kernel.h"

/* The version of the interface between the library and its kernel modules. It goes up with every change to this file or
 * to a struct of kernel.h. */
#define ITH_KERNEL_MODULE_ABI 5

/* The table of kernels that a module exports. */
typedef struct ith_kernel_module {
    ith_module_head head;
    const ith_attn_kernel *const *kernels; /* an array of kernels that ends with NULL */
} ith_kernel_module;

/* Describes kernel modules to the loader (base/modules.h), and lists the modules that are loaded. */
extern ith_module_kind ith_kernel_modules;

#endif
