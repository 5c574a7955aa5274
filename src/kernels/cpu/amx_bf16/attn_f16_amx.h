/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel of f16 tensors with AMX. */
#ifndef ITH_KERNELS_ATTN_F16_AMX_H
#define ITH_KERNELS_ATTN_F16_AMX_H

#define TYPE ITH_F16
#define PARTS 2

#include "attn_split_layout.h"

/* With a smaller head_dim, too much of each tile is padding, and other kernels are faster. */
static inline bool pays(int64_t head_dim)
{
    return head_dim >= 24;
}

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_f16_amx_pack(const ith_attn_pack *pack);
void ith_attn_f16_amx_attend(const ith_attn_call *call);

#endif
