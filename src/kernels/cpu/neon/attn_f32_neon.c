/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with NEON: attn_f32_tmpl.c with the tile of this instruction set. */
#include "attn_f32_neon.h"
#include "tile_neon.h"

#include "../attn_pack_rows.h"
#include "../tile_strided.h"

#include "../attn_f32_tmpl.c"

void ith_attn_f32_neon_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_f32_neon_attend(const ith_attn_call *call)
{
    attend(call);
}
