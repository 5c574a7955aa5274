/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX2 and FMA: attn_f32_tmpl.c with the tile of these instruction sets. */
#include "attn_f32_avx2.h"
#include "tile_interleaved_avx2.h"

#include "../attn_pack_interleaved.h"
#include "../tile_interleaved.h"

#include "../attn_f32_tmpl.c"

void ith_attn_f32_avx2_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_f32_avx2_attend(const ith_attn_call *call)
{
    attend(call);
}
