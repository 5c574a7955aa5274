/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels that stand on libraries which this one must not need: each in a shared module of its own, looked
 * for once, when the table of kernels is first read past its end. A module that is not there, or was built for another
 * version of kernel.h, is passed over in silence.
 *
 * Modules lie in the folder that ITHACA_PLUGIN_PATH names (set but empty: nowhere). Where it is not set: in ithaca/
 * beside the library, or beside the library itself, as in a build folder. */
#ifndef ITH_KERNELS_PLUGIN_H
#define ITH_KERNELS_PLUGIN_H

#include "kernel.h"

/* Of kernel.h's structs and of this one: goes up with every change. */
#define ITH_KERNEL_PLUGIN_ABI 4

/* What a module exports under this name: ith_kernel_plugin. */
typedef struct ith_kernel_plugin_table {
    uint32_t abi;
    const ith_attn_kernel *const *kernels; /* ends with NULL */
} ith_kernel_plugin_table;
#define ITH_KERNEL_PLUGIN_SYMBOL "ith_kernel_plugin"

/* The kernels of all modules: index 0, 1, ... until NULL. They stay for good. */
const ith_attn_kernel *ith_kernel_plugin_at(int index);

#endif
