/* SPDX-License-Identifier: Apache-2.0 */
/* A module with a kernel that computes: the kernel in plain C under another name. */
#include "kernels/kernel_module.h"
#include "kernels/ref/attn_f32_ref.c"

static const ith_attn_kernel plain = {.name = "f32_module",
                                      .cpu = ITH_CPU_BASELINE,
                                      .logits = {"f32_ref", 1},
                                      .outputs = {"f32_ref", 1},
                                      .supports = supports,
                                      .tiles = tiles,
                                      .packed_bytes = packed_bytes,
                                      .scratch_bytes = scratch_bytes,
                                      .pack = pack,
                                      .attend = attend};
static const ith_attn_kernel *const kernels[] = {&plain, NULL};

extern ITH_API const ith_kernel_module ith_kernel_module_table;
const ith_kernel_module ith_kernel_module_table = {.head = {.abi = ITH_KERNEL_MODULE_ABI, .name = "plain"},
                                                   .kernels = kernels};
