/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the oneDNN module. */
#ifndef ITH_KERNELS_ATTN_BF16_ONEDNN_H
#define ITH_KERNELS_ATTN_BF16_ONEDNN_H

#include "../kernel.h"

extern const ith_attn_kernel ith_k_attn_bf16_onednn;

#endif
