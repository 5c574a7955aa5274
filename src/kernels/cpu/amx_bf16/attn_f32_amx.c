/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of f32 tensors with AMX. Each number is split into three bf16 numbers (attn_split_tmpl.c). */
#include "attn_f32_amx.h"

#include "attn_split_tmpl.c"

void ith_attn_f32_amx_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_f32_amx_attend(const ith_attn_call *call)
{
    attend(call);
}
