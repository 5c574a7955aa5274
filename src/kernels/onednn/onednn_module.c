/* SPDX-License-Identifier: Apache-2.0 */
/* What the library finds in the oneDNN module (plugin.h). */
#include "../plugin.h"
#include "attn_bf16_onednn.h"

static const ith_attn_kernel *const kernels[] = {&ith_k_attn_bf16_onednn, NULL};

extern ITH_API const ith_kernel_plugin_table ith_kernel_plugin;
const ith_kernel_plugin_table ith_kernel_plugin = {.abi = ITH_KERNEL_PLUGIN_ABI, .kernels = kernels};
