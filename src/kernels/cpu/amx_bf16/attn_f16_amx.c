/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention of f16 tensors with AMX. Each number is split into two bf16 numbers (attn_split_tmpl.c). */
#include "../avx512/exp2_short_avx512.h"

#include "attn_f16_amx.h"
#define EXP2_SHORT vec_exp2_short

#include "attn_split_tmpl.c"

void ith_attn_f16_amx_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_f16_amx_attend(const ith_attn_call *call)
{
    attend(call);
}
