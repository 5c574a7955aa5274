/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and the memory of the kernel of f32 tensors with AMX. */
#ifndef ITH_KERNELS_ATTN_F32_AMX_H
#define ITH_KERNELS_ATTN_F32_AMX_H

#define TYPE ITH_F32
#define PARTS 3

#include "attn_split_layout.h"

/* If more than a quarter of the elements in the tiles is padding of head_dim, other kernels are faster. */
static inline bool pays(int64_t head_dim)
{
    return head_dim >= STEP && 4 * head_dim >= 3 * ith_round_up(head_dim, STEP);
}

/* Functions of the kernel (kernel.h), for processors that have its instruction sets. */
void ith_attn_f32_amx_pack(const ith_attn_pack *pack);
void ith_attn_f32_amx_attend(const ith_attn_call *call);

#endif
