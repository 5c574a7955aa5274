/* SPDX-License-Identifier: Apache-2.0 */
/* Partial attention in f32 with AVX-512: attn_f32_tmpl.c with a tile of 8 rows x 48 queries. 24 registers hold sums, 3
 * hold queries, 1 holds a broadcast number. The 9 rows of tile_avx512.h do not divide panels of keys. */
#include "attn_f32_avx512.h"

#include "exp2_short_avx512.h"
#include "vec_avx512.h"

#define EXP2_SHORT vec_exp2_short

#include "../attn_pack_interleaved.h"
#include "../tile_rows.h"

#include "../attn_f32_tmpl.c"

void ith_attn_f32_avx512_pack(const ith_attn_pack *p)
{
    pack(p);
}

void ith_attn_f32_avx512_attend(const ith_attn_call *call)
{
    attend(call);
}
